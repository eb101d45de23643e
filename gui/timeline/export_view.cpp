#include "gui/timeline/export_view.h"

#include <QFile>
#include <QImage>
#include <QPainter>
#include <QPdfWriter>
#include <QSvgGenerator>
#include <fmt/format.h>

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

bool write_png(const TimelineScene& scene, const QFont& font, const QString& file) {
    QImage image(scene.size * pixel_ratio, QImage::Format_RGB32);
    image.setDevicePixelRatio(pixel_ratio);
    paint(image, scene, font);
    return image.save(file, "PNG");
}

bool write_svg(const TimelineScene& scene, const QFont& font, QFile& file) {
    QSvgGenerator svg;
    svg.setOutputDevice(&file);
    svg.setSize(scene.size);
    svg.setViewBox(QRect(QPoint(0, 0), scene.size));
    svg.setTitle(QStringLiteral("pipetwin"));
    paint(svg, scene, font);
    return file.error() == QFileDevice::NoError;
}

bool write_pdf(const TimelineScene& scene, const QFont& font, QFile& file) {
    QPdfWriter pdf(&file);
    pdf.setResolution(dots_per_inch);
    pdf.setPageMargins({});
    constexpr double points_per_inch = 72;
    pdf.setPageSize(
        QPageSize(QSizeF(scene.size) * points_per_inch / dots_per_inch, QPageSize::Point));
    pdf.setTitle(QStringLiteral("pipetwin"));
    paint(pdf, scene, font);
    return file.error() == QFileDevice::NoError;
}

}  // namespace

std::string export_scene(const TimelineScene& scene,
                         const QFont& font,
                         const std::filesystem::path& file) {
    const std::string ending = file.extension().string();
    if (ending != ".png" && ending != ".svg" && ending != ".pdf") {
        return fmt::format(
            "{}: '{}' is no format of pictures that can be written, expected .png, "
            ".svg or .pdf",
            file.string(),
            ending);
    }
    const QString name = QFile::decodeName(QByteArray::fromStdString(file.string()));
    if (ending == ".png") {
        return write_png(scene, font, name)
                   ? ""
                   : fmt::format("{}: cannot be written; is its folder there, and not full?",
                                 file.string());
    }
    QFile out(name);
    const bool written =
        out.open(QIODevice::WriteOnly | QIODevice::Truncate) &&
        (ending == ".svg" ? write_svg(scene, font, out) : write_pdf(scene, font, out)) &&
        out.flush();
    return written
               ? ""
               : fmt::format(
                     "{}: cannot be written: {}", file.string(), out.errorString().toStdString());
}

}  // namespace pipetwin::gui
