#pragma once

#include <array>
#include <vector>

#include <QPainter>

#include "gui/pixel_canvas.h"
#include "gui/row_boxes.h"
#include "gui/timeline_scene.h"

namespace pipetwin::gui {

/// Paints what a rank has on the scene: its rows, its errors, its memory. Plain and hatched colours
/// go to a canvas; letters, outlines and dashed lines to the painter, when the canvas is there.
class RowPainter {
  public:
    RowPainter(QPainter& painter, PixelCanvas& canvas, const TimelineScene& scene);

    void paint_row(const Row& row);
    void paint_errors(const Band& strip);
    void paint_memory(const Band& curve);

    /// After the canvas was finished.
    void paint_over();

  private:
    /// An action with room for its name.
    struct Named {
        Action action;
        QRect seen;
    };

    const Palette& palette() const { return scene_.palette; }
    const OpStyle& style(Op op) const { return styles_[static_cast<std::size_t>(op)]; }
    ViewTransform view_of(Side side, int step) const;
    const QColor& ground() const;
    QRgb faded(Op op, double compute);
    QRgb fill_of(const Box& box);
    void paint_ground(const Row& row, int step);
    void fill_box(const Box& box, const QRect& row);
    void hatch_box(const Box& box, const QRect& row);
    void paint_parting(const Box& box, const QRect& row);
    QString label_for(const Action& action, const OpStyle& style, int width) const;
    void paint_label(const Named& named);
    void paint_ghosts(const Row& row, int step);
    void paint_curve(const Band& band, Side side, double pixels_per_byte);
    void paint_limit(const Band& band);
    double pixels_per_byte(const Band& band) const;
    Bytes highest(int rank) const;
    std::optional<Bytes> limit_in_sight(int rank) const;

    QPainter& painter_;
    PixelCanvas& canvas_;
    const TimelineScene& scene_;
    std::array<OpStyle, op_count> styles_;  ///< looked up once: their contrasts take long
    std::array<int, op_count> letter_widths_{};
    int digit_width_ = 0;
    static constexpr int shades = 128;
    std::array<std::vector<QRgb>, op_count> faded_;  ///< by the share of compute
    std::vector<Box> boxes_;
    std::vector<Named> named_;
    std::vector<std::pair<Row, int>> ghosts_;  ///< of steps
    std::vector<Band> curves_;
};

/// Hatching as in the rows, for the legend.
void paint_sample(QPainter& painter, const QRect& rect, const OpStyle& style);
void paint_wait(QPainter& painter, const QRect& rect, const Palette& palette);

}  // namespace pipetwin::gui
