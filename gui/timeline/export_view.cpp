// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/export_view.h"

#include <algorithm>
#include <string_view>

#include <QBuffer>
#include <QImage>
#include <QPainter>
#include <QPdfWriter>
#include <QSvgGenerator>
#include <fmt/format.h>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/text/json_text.h"
#include "gui/timeline/timeline_painter.h"

namespace pipetwin::gui {

namespace {

constexpr int pixel_ratio = 2;
constexpr int dots_per_inch = 96;

/// Something to be painted.
struct Painting {
    QSize size;
    const std::function<void(QPainter&)>& draw;
};

void paint(QPaintDevice& device, const Painting& painting) {
    QPainter painter(&device);
    painting.draw(painter);
}

void draw_png(const Painting& painting, QBuffer& file) {
    QImage image(painting.size * pixel_ratio, QImage::Format_RGB32);
    image.setDevicePixelRatio(pixel_ratio);
    image.fill(Qt::white);
    paint(image, painting);
    image.save(&file, "PNG");
}

void draw_svg(const Painting& painting, QBuffer& file) {
    QSvgGenerator svg;
    svg.setOutputDevice(&file);
    svg.setSize(painting.size);
    svg.setViewBox(QRect(QPoint(0, 0), painting.size));
    svg.setTitle(QStringLiteral("pipetwin"));
    paint(svg, painting);
}

void draw_pdf(const Painting& painting, QBuffer& file) {
    QPdfWriter pdf(&file);
    pdf.setResolution(dots_per_inch);
    pdf.setPageMargins({});
    constexpr double points_per_inch = 72;
    pdf.setPageSize(
        QPageSize(QSizeF(painting.size) * points_per_inch / dots_per_inch, QPageSize::Point));
    pdf.setTitle(QStringLiteral("pipetwin"));
    paint(pdf, painting);
}

}  // namespace

std::string export_painting(const QSize& size,
                            const std::function<void(QPainter&)>& draw,
                            const std::filesystem::path& file) {
    std::string ending = file.extension().string();
    std::ranges::transform(ending, ending.begin(), ascii::lower);
    if (ending != ".png" && ending != ".svg" && ending != ".pdf") {
        return fmt::format(
            "{}: '{}' is not a picture format, expected .png, .svg or .pdf", file.string(), ending);
    }
    const auto write = ending == ".png" ? &draw_png : ending == ".svg" ? &draw_svg : &draw_pdf;
    const Painting painting{.size = size, .draw = draw};
    return write_drawing(file, [&](QBuffer& drawing) { write(painting, drawing); });
}

std::string export_scene(const TimelineScene& scene,
                         const QFont& font,
                         const std::filesystem::path& file) {
    TimelineScene still = scene;  // without what follows the mouse
    still.hovered.reset();
    still.cursor_x.reset();
    return export_painting(
        scene.size,
        [&](QPainter& painter) {
            painter.setFont(font);
            paint_timeline(painter, still);
        },
        file);
}

std::string write_drawing(const std::filesystem::path& file,
                          const std::function<void(QBuffer&)>& draw) {
    QBuffer drawing;
    drawing.open(QIODevice::WriteOnly);
    draw(drawing);
    const QByteArray& bytes = drawing.data();
    try {
        write_file(file,
                   std::string_view(bytes.constData(), static_cast<std::size_t>(bytes.size())));
    } catch (const Error& error) {
        return fmt::format("{}: {}; {}", error.place(), error.text(), error.hint());
    }
    return {};
}

}  // namespace pipetwin::gui
