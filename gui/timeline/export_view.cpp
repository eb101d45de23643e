// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/export_view.h"

#include <string_view>

#include <QBuffer>
#include <QImage>
#include <QPainter>
#include <QPdfWriter>
#include <QSvgGenerator>
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/text/json_text.h"
#include "gui/timeline/timeline_painter.h"

namespace pipetwin::gui {

namespace {

constexpr int pixel_ratio = 2;
constexpr int dots_per_inch = 96;

void paint(QPaintDevice& device, const TimelineScene& scene, const QFont& font) {
    TimelineScene still = scene;  // without what follows the mouse
    still.hovered.reset();
    still.cursor_x.reset();
    QPainter painter(&device);
    painter.setFont(font);
    paint_timeline(painter, still);
}

void draw_png(const TimelineScene& scene, const QFont& font, QBuffer& file) {
    QImage image(scene.size * pixel_ratio, QImage::Format_RGB32);
    image.setDevicePixelRatio(pixel_ratio);
    paint(image, scene, font);
    image.save(&file, "PNG");
}

void draw_svg(const TimelineScene& scene, const QFont& font, QBuffer& file) {
    QSvgGenerator svg;
    svg.setOutputDevice(&file);
    svg.setSize(scene.size);
    svg.setViewBox(QRect(QPoint(0, 0), scene.size));
    svg.setTitle(QStringLiteral("pipetwin"));
    paint(svg, scene, font);
}

void draw_pdf(const TimelineScene& scene, const QFont& font, QBuffer& file) {
    QPdfWriter pdf(&file);
    pdf.setResolution(dots_per_inch);
    pdf.setPageMargins({});
    constexpr double points_per_inch = 72;
    pdf.setPageSize(
        QPageSize(QSizeF(scene.size) * points_per_inch / dots_per_inch, QPageSize::Point));
    pdf.setTitle(QStringLiteral("pipetwin"));
    paint(pdf, scene, font);
}

}  // namespace

std::string export_scene(const TimelineScene& scene,
                         const QFont& font,
                         const std::filesystem::path& file) {
    const std::string ending = file.extension().string();
    if (ending != ".png" && ending != ".svg" && ending != ".pdf") {
        return fmt::format(
            "{}: '{}' is not a picture format, expected .png, .svg or .pdf", file.string(), ending);
    }
    const auto draw = ending == ".png" ? &draw_png : ending == ".svg" ? &draw_svg : &draw_pdf;
    return write_drawing(file, [&](QBuffer& drawing) { draw(scene, font, drawing); });
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
