// SPDX-License-Identifier: Apache-2.0
#include "gui/base/pixel_canvas.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include <QImage>
#include <QPaintEngine>

#include "core/base/as_index.h"

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
    scale_ = painter.deviceTransform().m11();
    size_ = QSize(pixel(area.x() + area.width()) - pixel(area.x()),
                  pixel(area.y() + area.height()) - pixel(area.y()));
    pixels_ = scratch(static_cast<std::size_t>(size_.width()) *
                      static_cast<std::size_t>(std::max(period, size_.height())));
    if (scale_ == 1) {
        std::ranges::copy(ground, line(0));
        return;
    }
    for (int x = 0; x < area.width(); ++x) {
        const Columns columns = columns_of(area.x() + x, 1);
        std::fill(line(0) + columns.first, line(0) + columns.last, ground[as_index(x)]);
    }
}

/// The pixel of a coordinate of the painter, counted from its origin.
int PixelCanvas::pixel(int coordinate) const {
    return scale_ == 1 ? coordinate : static_cast<int>(std::lround(coordinate * scale_));
}

/// The columns of a span, as far as they are in the area.
PixelCanvas::Columns PixelCanvas::columns_of(int x, int width) const {
    const int origin = pixel(area_.x());
    return {.first = std::max(0, pixel(x) - origin),
            .last = std::min(size_.width(), pixel(x + width) - origin)};
}

/// At or above the first line, or at or below the end of the last, where it lies outside.
int PixelCanvas::line_of(int y) const {
    return std::clamp(pixel(y) - pixel(area_.y()), 0, size_.height());
}

/// The lines that repeat what is there so far.
void PixelCanvas::make_lines() {
    for (int y = lines_; y < size_.height(); ++y) {
        std::copy_n(line(y % lines_), size_.width(), line(y));
    }
    lines_ = std::max(lines_, size_.height());
}

void PixelCanvas::fill(const QRect& rect, const QColor& color) {
    if (!makes_pixels()) {
        painter_.fillRect(rect.intersected(area_), color);
        return;
    }
    make_lines();
    const Columns columns = columns_of(rect.x(), rect.width());
    for (int y = line_of(rect.y()); y < line_of(rect.y() + rect.height()); ++y) {
        std::fill(
            line(y) + columns.first, line(y) + std::max(columns.first, columns.last), color.rgb());
    }
}

void PixelCanvas::fill_columns(int x, int width, QRgb color) {
    if (!makes_pixels()) {
        fill(QRect(x, area_.top(), width, area_.height()), QColor::fromRgb(color));
        return;
    }
    const Columns columns = columns_of(x, width);
    for (int y = 0; y < lines_ && columns.first < columns.last; ++y) {
        std::fill(line(y) + columns.first, line(y) + columns.last, color);
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
        std::copy_n(line(0), size_.width(), line(lines_));
    }
    const Columns columns = columns_of(x, width);
    const auto shift = static_cast<unsigned>(pixel(area_.x()) - pixel(origin));
    const Tile& tile = tile_of(pattern);
    for (int y = 0; y < lines_; ++y) {
        const auto& of_line = tile[as_index(y % period)];
        QRgb* const pixels = line(y);
        for (int i = columns.first; i < columns.last; ++i) {
            pixels[i] = of_line[(static_cast<unsigned>(i) + shift) % period] ? color : pixels[i];
        }
    }
}

void PixelCanvas::bars(int left,
                       std::span<const int> tops,
                       std::span<const int> bottoms,
                       QRgb color) {
    if (makes_pixels() && scale_ == 1) {
        make_lines();
        const int top = line_of(*std::ranges::min_element(tops));
        const int bottom = line_of(*std::ranges::max_element(bottoms));
        const Columns columns = columns_of(left, static_cast<int>(tops.size()));
        const int* const of_top = tops.data() + area_.x() - left;
        const int* const of_bottom = bottoms.data() + area_.x() - left;
        for (int y = top; y < bottom; ++y) {
            QRgb* const pixels = line(y);
            const int place = y + area_.y();
            for (int i = columns.first; i < columns.last; ++i) {
                const bool inside =
                    static_cast<int>(of_top[i] <= place) & static_cast<int>(place < of_bottom[i]);
                pixels[i] = inside ? color : pixels[i];
            }
        }
        return;
    }
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
}

void PixelCanvas::finish() {
    if (!makes_pixels()) {
        return;
    }
    make_lines();
    QImage image(reinterpret_cast<const uchar*>(pixels_.data()),
                 size_.width(),
                 size_.height(),
                 QImage::Format_RGB32);
    image.setDevicePixelRatio(scale_);
    painter_.drawImage(QPointF(pixel(area_.x()) / scale_, pixel(area_.y()) / scale_), image);
}

/// The tile of a brush pattern, as Qt paints it.
const PixelCanvas::Tile& PixelCanvas::tile_of(Qt::BrushStyle pattern) {
    thread_local std::map<Qt::BrushStyle, Tile> known;
    const auto [found, made] = known.try_emplace(pattern);
    if (made) {
        QImage image(period, period, QImage::Format_RGB32);
        image.fill(Qt::white);
        QPainter(&image).fillRect(image.rect(), QBrush(Qt::black, pattern));
        for (int y = 0; y < period; ++y) {
            for (int x = 0; x < period; ++x) {
                found->second[as_index(y)][as_index(x)] =
                    image.pixelColor(x, y) == QColor(Qt::black);
            }
        }
    }
    return found->second;
}

}  // namespace pipetwin::gui
