#include "gui/pixel_canvas.h"

#include <algorithm>
#include <map>

#include <QImage>
#include <QPaintEngine>

namespace pipetwin::gui {

namespace {

/// Memory for the pixels of one canvas at a time, kept: new memory costs more than what is written
/// to it.
std::span<QRgb> scratch(std::size_t pixels) {
    thread_local std::vector<QRgb> memory;
    if (memory.size() < pixels) {
        memory.resize(pixels);
    }
    return std::span(memory).first(pixels);
}

}  // namespace

PixelCanvas::PixelCanvas(QPainter& painter, const QRect& area, std::span<const QRgb> ground)
    : painter_(painter), area_(area) {
    const QPaintEngine* const engine = painter.paintEngine();
    if (engine == nullptr || engine->type() != QPaintEngine::Raster || area.isEmpty()) {
        return;
    }
    pixels_ = scratch(static_cast<std::size_t>(area.width()) *
                      static_cast<std::size_t>(std::max(period, area.height())));
    std::ranges::copy(ground, pixels_.begin());
}

/// The lines that repeat what is there so far.
void PixelCanvas::make_lines() {
    for (int y = lines_; y < area_.height(); ++y) {
        std::copy_n(line(y % lines_), area_.width(), line(y));
    }
    lines_ = std::max(lines_, area_.height());
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
    make_lines();
    for (int y = seen.top(); y <= seen.bottom(); ++y) {
        std::fill_n(
            line(y - area_.top()) + (seen.left() - area_.left()), seen.width(), color.rgb());
    }
}

void PixelCanvas::fill_columns(int x, int width, QRgb color) {
    if (!makes_pixels()) {
        fill(QRect(x, area_.top(), width, area_.height()), QColor::fromRgb(color));
        return;
    }
    const int left = std::max(0, x - area_.left());
    const int right = std::min(area_.width(), x - area_.left() + width);
    for (int y = 0; y < lines_ && left < right; ++y) {
        std::fill(line(y) + left, line(y) + right, color);
    }
}

void PixelCanvas::hatch_columns(int x, int width, QRgb color, Qt::BrushStyle pattern, int origin) {
    if (pattern == Qt::NoBrush) {
        return;
    }
    if (!makes_pixels()) {
        painter_.setBrushOrigin(origin, area_.top());
        painter_.fillRect(QRect(x, area_.top(), width, area_.height()).intersected(area_),
                          QBrush(QColor::fromRgb(color), pattern));
        return;
    }
    for (; lines_ < period; ++lines_) {
        std::copy_n(line(0), area_.width(), line(lines_));
    }
    const int left = std::max(0, x - area_.left());
    const int right = std::min(area_.width(), x - area_.left() + width);
    const auto shift = static_cast<unsigned>(area_.left() - origin);
    const Tile& tile = tile_of(pattern);
    for (int y = 0; y < lines_; ++y) {
        const auto& of_line = tile[static_cast<std::size_t>(y % period)];
        QRgb* const pixels = line(y);
        for (int i = left; i < right; ++i) {
            pixels[i] = of_line[(static_cast<unsigned>(i) + shift) % period] ? color : pixels[i];
        }
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
    make_lines();
    const int top = std::max(area_.top(), *std::ranges::min_element(tops));
    const int bottom = std::min(area_.bottom() + 1, *std::ranges::max_element(bottoms));
    for (int y = top; y < bottom; ++y) {
        QRgb* const pixels = line(y - area_.top()) + (left - area_.left());
        const int* const of_top = tops.data();
        const int* const of_bottom = bottoms.data();
        for (int i = first; i < last; ++i) {
            const bool inside =
                static_cast<int>(of_top[i] <= y) & static_cast<int>(y < of_bottom[i]);
            pixels[i] = inside ? color : pixels[i];
        }
    }
}

void PixelCanvas::finish() {
    if (makes_pixels()) {
        make_lines();
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
