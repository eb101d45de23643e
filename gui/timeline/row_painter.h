// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include <QPainter>

#include "core/base/as_index.h"
#include "gui/base/pixel_canvas.h"
#include "gui/timeline/timeline_scene.h"
#include "gui/view/timeline/row_boxes.h"

namespace pipetwin::gui {

/// Paints the parts of a rank: its rows, its errors, its memory, its links.
class RowPainter {
  public:
    /// `ground`: what has been painted in the time area, the same in all lines of it.
    RowPainter(QPainter& painter, const TimelineScene& scene, std::vector<QRgb> ground);

    /// Paints a row; where there are arcs of skip messages without the names of its actions.
    void paint_row(const Row& row);
    /// Paints the names of the actions of all rows that were painted without.
    void paint_names();
    void paint_errors(const Band& strip);
    void paint_memory(const Band& curve);
    void paint_links(const Band& band);

  private:
    /// A box with room for hatching.
    struct WideBox {
        Box box;
        Action action;
        int room;  ///< for the label; boxes that are equally long have the same
    };

    /// A name that waits for what lies below it.
    struct Name {
        Action action;
        QRect seen;
        int room;
    };

    const Palette& palette() const { return scene_.palette; }
    const OpStyle& style(Op op) const { return styles_[as_index(op)]; }
    ViewTransform view_of(Side side, int step) const;
    static WideBox wide_box(const Box& box, const RowIndex& spans, const ViewTransform& view);
    const QColor& ground() const;
    const QColor& ground_hatch() const;
    QRgb faded(Op op, double compute);
    QRgb fill_of(const Box& box);
    void paint_ground(const Row& row, int step, PixelCanvas& canvas);
    void fill_box(const Box& box, int left, PixelCanvas& canvas);
    void hatch_box(const Box& box, int left, PixelCanvas& canvas);
    void paint_parting(const Box& box, int left, PixelCanvas& canvas);
    QString label_for(const Action& action, const OpStyle& style, int width) const;
    void paint_label(const Action& action, const QRect& seen, int room);
    void paint_ghosts(const Row& row, int step);
    void paint_curve(const Band& band, Side side, double pixels_per_byte, PixelCanvas& canvas);
    std::optional<Bytes> limit_of(int rank) const;
    Bytes memory_top() const;

    QPainter& painter_;
    const TimelineScene& scene_;
    std::vector<QRgb> ground_;
    std::array<OpStyle, op_count> styles_;  ///< looked up once: their contrasts take long
    std::array<int, op_count> letter_widths_{};
    int digit_width_ = 0;
    std::optional<Bytes> memory_top_{};  ///< once it is known
    static constexpr int shades = 128;
    std::array<std::vector<QRgb>, op_count> faded_;  ///< by the share of compute
    std::vector<Box> boxes_;  ///< of one row, kept for its memory, as are these
    std::vector<WideBox> wide_;
    std::vector<Name> names_;
};

/// Hatching as in the rows, for the legend.
void paint_sample(QPainter& painter, const QRect& rect, const OpStyle& style);
void paint_idle(QPainter& painter, const QRect& rect, const Palette& palette);

}  // namespace pipetwin::gui
