#include "gui/pixel_canvas.h"

#include <algorithm>

#include <QPaintEngine>

namespace pipetwin::gui {

PixelCanvas::PixelCanvas(QPainter& painter, const QRect& area) : painter_(painter), area_(area) {
    const QPaintEngine* const engine = painter.paintEngine();
    if (engine == nullptr || engine->type() != QPaintEngine::Raster || area.isEmpty()) {
        return;
    }
    image_ = QImage(area.size(), QImage::Format_ARGB32_Premultiplied);
    image_.fill(Qt::transparent);
    bytes_per_line_ = static_cast<int>(image_.bytesPerLine());
    bits_ = image_.bits();
}

void PixelCanvas::fill(int x, int y, int width, int height, const QColor& color) {
    const QRect rect = QRect(x, y, width, height).intersected(area_);
    if (rect.isEmpty()) {
        return;
    }
    if (bits_ == nullptr) {
        painter_.fillRect(rect, color);
        return;
    }
    anything_ = true;
    const QRgb value = color.rgb();
    for (int line = rect.top() - area_.top(); line <= rect.bottom() - area_.top(); ++line) {
        auto* const pixels =
            reinterpret_cast<QRgb*>(bits_ + static_cast<std::ptrdiff_t>(line) * bytes_per_line_) +
            (rect.left() - area_.left());
        std::fill_n(pixels, rect.width(), value);
    }
}

void PixelCanvas::finish() {
    if (anything_) {
        painter_.drawImage(area_.topLeft(), image_);
    }
}

}  // namespace pipetwin::gui
