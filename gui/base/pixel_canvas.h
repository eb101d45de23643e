// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>

#include <QPainter>
#include <QSize>

namespace pipetwin::gui {

/// Many small rectangles of plain or hatched colours within an area. For a painter that makes
/// pixels they are written into memory, which is drawn once: a tenth of the time of as many
/// fillRect, and less still for rows and bars. For any other painter they are rectangles.
///
/// Coordinates are the painter's own; what lies outside the area is cut off; colours are opaque.
/// One at a time: their memory, small enough for a cache, is the same.
class PixelCanvas {
  public:
    /// `ground`: what the painter has painted there, the same in all lines; as wide as the area.
    PixelCanvas(QPainter& painter, const QRect& area, std::span<const QRgb> ground);

    void fill(const QRect& rect, const QColor& color);

    /// Fills columns from top to bottom; must come before anything that does not.
    void fill_columns(int x, int width, QRgb color);

    /// Hatches columns from top to bottom; the pattern begins at `origin` and at the top.
    void hatch_columns(int x, int width, QRgb color, Qt::BrushStyle pattern, int origin);

    /// Column `left` + i from tops[i] up to bottoms[i], which are of the same number; none where
    /// bottoms[i] is not above tops[i].
    void bars(int left, std::span<const int> tops, std::span<const int> bottoms, QRgb color);

    /// Draws all of it.
    void finish();

  private:
    /// Pixels that repeat every `period` lines, as Qt's patterns do.
    static constexpr int period = 8;
    using Tile = std::array<std::array<bool, period>, period>;

    /// Columns from `first` up to `last`, in pixels of the canvas.
    struct Columns {
        int first = 0;
        int last = 0;
    };

    bool makes_pixels() const { return !pixels_.empty(); }
    QRgb* line(int y) { return pixels_.data() + static_cast<std::ptrdiff_t>(y) * size_.width(); }
    int pixel(int coordinate) const;
    Columns columns_of(int x, int width) const;
    int line_of(int y) const;
    void make_lines();
    static const Tile& tile_of(Qt::BrushStyle pattern);

    QPainter& painter_;
    QRect area_;
    double scale_ = 1;        ///< pixels to a unit of the painter
    QSize size_;              ///< of the canvas, in pixels
    std::span<QRgb> pixels_;  ///< line by line; empty where rectangles are drawn
    int lines_ = 1;           ///< that are made so far; the others repeat them
};

}  // namespace pipetwin::gui
