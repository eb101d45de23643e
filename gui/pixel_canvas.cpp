#include "gui/pixel_canvas.h"

#include <algorithm>
#include <map>

#include <QImage>
#include <QPaintEngine>

namespace pipetwin::gui {

namespace {

/// Memory for the pixels of one canvas at a time, kept from frame to frame: new memory costs more
/// than what is written to it.
std::span<QRgb> scratch(std::size_t pixels) {
    thread_local std::vector<QRgb> memory;
    if (memory.size() < pixels) {
        memory.resize(pixels);
    }
    return std::span(memory).first(pixels);
}

}  // namespace

PixelCanvas::PixelCanvas(QPainter& painter, const QRect& area, const QColor& ground)
    : painter_(painter), area_(area) {
    const QPaintEngine* const engine = painter.paintEngine();
    if (engine == nullptr || engine->type() != QPaintEngine::Raster || area.isEmpty()) {
        painter.fillRect(area, ground);
        return;
    }
    const auto width = static_cast<std::size_t>(area.width());
    pixels_ = scratch(width * static_cast<std::size_t>(area.height()));
    row_.resize(width * period);
    std::ranges::fill(pixels_, ground.rgb());
}

void PixelCanvas::fill(const QRect& rect, const QColor& color) {
    const QRect seen = rect.intersected(area_);
    if (seen.isEmpty()) {
        return;
    }
    if (!makes_pixels()) {
        painter_.fillRect(seen, color);
        return;
    }
    for (int y = seen.top(); y <= seen.bottom(); ++y) {
        std::fill_n(line(y - area_.top()) + (seen.left() - area_.left()), seen.width(), color.rgb());
    }
}

void PixelCanvas::begin_row(int y, int height) {
    at_ = QRect(area_.left(), y, area_.width(), height).intersected(area_);
    row_top_ = y;
    row_lines_ = 1;
    if (makes_pixels() && !at_.isEmpty()) {
        // What lies below is the same in all lines of a row: its ground, and the grid.
        std::copy_n(line(at_.top() - area_.top()), area_.width(), row_line(0));
    }
}

void PixelCanvas::fill_in_row(int x, int width, QRgb color) {
    if (!makes_pixels()) {
        fill(QRect(x, at_.top(), width, at_.height()), QColor::fromRgb(color));
        return;
    }
    const int left = std::max(0, x - area_.left());
    const int right = std::min(area_.width(), x - area_.left() + width);
    for (int y = 0; y < row_lines_ && left < right; ++y) {
        std::fill(row_line(y) + left, row_line(y) + right, color);
    }
}

void PixelCanvas::hatch_in_row(int x, int width, QRgb color, Qt::BrushStyle pattern, int origin) {
    if (pattern == Qt::NoBrush) {
        return;
    }
    if (!makes_pixels()) {
        painter_.setBrushOrigin(origin, row_top_);
        painter_.fillRect(QRect(x, at_.top(), width, at_.height()).intersected(area_),
                          QBrush(QColor::fromRgb(color), pattern));
        return;
    }
    for (; row_lines_ < period; ++row_lines_) {
        std::copy_n(row_line(0), area_.width(), row_line(row_lines_));
    }
    const int left = std::max(0, x - area_.left());
    const int right = std::min(area_.width(), x - area_.left() + width);
    const auto shift = static_cast<unsigned>(area_.left() - origin);
    const Tile& tile = tile_of(pattern);
    for (int y = 0; y < period; ++y) {
        const auto& of_line = tile[static_cast<std::size_t>(y)];
        QRgb* const pixels = row_line(y);
        for (int i = left; i < right; ++i) {
            pixels[i] = of_line[(static_cast<unsigned>(i) + shift) % period] ? color : pixels[i];
        }
    }
}

void PixelCanvas::end_row() {
    if (!makes_pixels()) {
        return;
    }
    for (int y = at_.top(); y <= at_.bottom(); ++y) {
        std::copy_n(row_line((y - row_top_) % row_lines_), area_.width(), line(y - area_.top()));
    }
}

void PixelCanvas::bars(int left,
                       std::span<const int> tops,
                       std::span<const int> bottoms,
                       QRgb color) {
    if (!makes_pixels()) {
        // Neighbours that look alike are one rectangle.
        for (std::size_t i = 0; i < tops.size();) {
            std::size_t next = i + 1;
            while (next < tops.size() && tops[next] == tops[i] && bottoms[next] == bottoms[i]) {
                ++next;
            }
            if (tops[i] < bottoms[i]) {
                fill(QRect(left + static_cast<int>(i),
                           tops[i],
                           static_cast<int>(next - i),
                           bottoms[i] - tops[i]),
                     QColor::fromRgb(color));
            }
            i = next;
        }
        return;
    }
    const int first = std::max(0, area_.left() - left);
    const int last = std::min(static_cast<int>(tops.size()), area_.right() + 1 - left);
    if (first >= last) {
        return;
    }
    const int top = std::max(area_.top(), *std::ranges::min_element(tops));
    const int bottom = std::min(area_.bottom() + 1, *std::ranges::max_element(bottoms));
    for (int y = top; y < bottom; ++y) {
        QRgb* const pixels = line(y - area_.top()) + (left - area_.left());
        const int* const of_top = tops.data();
        const int* const of_bottom = bottoms.data();
        for (int i = first; i < last; ++i) {
            const bool inside = static_cast<int>(of_top[i] <= y) & static_cast<int>(y < of_bottom[i]);
            pixels[i] = inside ? color : pixels[i];
        }
    }
}

void PixelCanvas::finish() {
    if (makes_pixels()) {
        const QImage image(reinterpret_cast<const uchar*>(pixels_.data()),
                           area_.width(),
                           area_.height(),
                           QImage::Format_RGB32);
        painter_.drawImage(area_.topLeft(), image);
    }
}

/// As Qt paints it.
const PixelCanvas::Tile& PixelCanvas::tile_of(Qt::BrushStyle pattern) {
    thread_local std::map<Qt::BrushStyle, Tile> known;
    const auto [found, made] = known.try_emplace(pattern);
    if (made) {
        QImage image(period, period, QImage::Format_RGB32);
        image.fill(Qt::white);
        QPainter(&image).fillRect(image.rect(), QBrush(Qt::black, pattern));
        for (int y = 0; y < period; ++y) {
            for (int x = 0; x < period; ++x) {
                found->second[static_cast<std::size_t>(y)][static_cast<std::size_t>(x)] =
                    image.pixelColor(x, y) == QColor(Qt::black);
            }
        }
    }
    return found->second;
}

}  // namespace pipetwin::gui
