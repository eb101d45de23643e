#pragma once

#include <array>

#include <QPainter>

#include "gui/pixel_canvas.h"
#include "gui/timeline_scene.h"

namespace pipetwin::gui {

/// Paints what a rank has on the scene: its rows, its errors, its memory.
class RowPainter {
  public:
    RowPainter(QPainter& painter, const TimelineScene& scene);

    void paint_row(const Row& row);
    void paint_errors(const Band& strip);
    void paint_memory(const Band& curve);

  private:
    const Palette& palette() const { return scene_.palette; }
    const OpStyle& style(Op op) const { return styles_[static_cast<std::size_t>(op)]; }
    ViewTransform view_of(Side side, int step) const;
    const QColor& ground() const;
    void paint_plain(const Box& box, const QRect& row, PixelCanvas& canvas);
    void paint_ground(const Row& row, const QRect& rect, int step, PixelCanvas& canvas);
    void paint_box(const Box& box, const RowIndex& row, const ViewTransform& view, const QRect& at);
    void paint_idle(const QRect& rect);
    void hatch_coalesced(const QRect& rect, const OpStyle& style, double compute);
    void paint_parting(double width, const OpStyle& style, const QRect& rect);
    QString label_for(const Action& action, const OpStyle& style, int width) const;
    void paint_label(const Action& action, const OpStyle& style, const QRect& rect);
    void paint_ghosts(const Row& row, const QRect& rect, int step);
    void paint_curve(
        const Band& band, Side side, int step, double pixels_per_byte, PixelCanvas& canvas);
    Bytes highest(int rank) const;

    QPainter& painter_;
    const TimelineScene& scene_;
    std::array<OpStyle, op_count> styles_;  ///< looked up once: their contrasts take long
    std::array<int, op_count> letter_widths_{};
    int digit_width_ = 0;
};

/// Hatching as in the rows, for the legend.
void paint_sample(QPainter& painter, const QRect& rect, const OpStyle& style);
void paint_wait(QPainter& painter, const QRect& rect, const Palette& palette);

}  // namespace pipetwin::gui
