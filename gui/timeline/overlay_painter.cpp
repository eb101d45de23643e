// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/overlay_painter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <QFontMetrics>

#include "core/base/short_number.h"

namespace pipetwin::gui {

namespace {

constexpr int critical_height = 4;
constexpr int narrowest_alone = 3;
constexpr int arrow_head = 7;
constexpr int chip_padding = 6;
constexpr double skip_width = 1.3;
constexpr double selected_skip_width = 2.4;
constexpr float skip_edge_opacity = 0.75F;

/// The pen of a skip message's arc; gradients are dashed, as in the report's pictures.
QPen skip_pen(const Palette& palette, bool gradient, double width) {
    QPen pen(gradient ? palette.skip_gradient : palette.skip, width);
    if (gradient) {
        pen.setCapStyle(Qt::FlatCap);                // others reach into the gaps
        pen.setDashPattern({5 / width, 3 / width});  // in units of the width
    }
    return pen;
}

}  // namespace

void OverlayPainter::paint() {
    const Overlay& overlay = scene_.overlay;
    if (overlay.range) {
        paint_range(*overlay.range);
    }
    paint_alone();
    paint_critical(overlay.critical);
    for (const SpanRef& found : overlay.found) {
        outline(found, QPen(palette().found, 2));
    }
    for (const SpanRef& link : overlay.chain) {
        outline(link, QPen(palette().critical, 2, Qt::DashLine));
    }
    paint_selection();
    painter_.setRenderHint(QPainter::Antialiasing, true);
    for (const Arrow& arrow : overlay.arrows) {
        paint_arrow(arrow);
    }
    painter_.setRenderHint(QPainter::Antialiasing, false);
    for (const Duration mark : overlay.marks) {
        paint_mark(mark);
    }
    if (overlay.ruler) {
        paint_ruler_line(*overlay.ruler);
    }
}

void OverlayPainter::paint_range(const TimeRange& range) {
    const int left = scene_.x_of(range.begin);
    const int right = std::max(left + 1, scene_.x_of(range.end));
    QColor veil = palette().selection;
    veil.setAlphaF(0.12F);
    painter_.fillRect(left, 0, right - left, scene_.size.height(), veil);
    for (const int x : {left, right - 1}) {
        painter_.fillRect(x, 0, 1, scene_.size.height(), palette().selection);
    }
}

/// Paints actions that only one side has: hatched outlines.
void OverlayPainter::paint_alone() {
    const TimelineScene::Steps steps = scene_.steps_in_sight();
    for (int step = steps.first; step <= steps.last; ++step) {
        for (const SpanRef& ref : alone(scene_.run->twin, step)) {
            const QRect rect = rect_of(scene_, ref);
            if (rect.width() >= narrowest_alone) {
                painter_.fillRect(rect, QBrush(palette().slower, Qt::BDiagPattern));
                outline(ref, QPen(palette().slower, 2, Qt::DashLine));
            }
        }
    }
}

/// A line with its length above it, over the rows.
void OverlayPainter::paint_ruler_line(const TimeRange& ruler) {
    const int left = scene_.x_of(std::min(ruler.begin, ruler.end));
    const int right = scene_.x_of(std::max(ruler.begin, ruler.end));
    const QFontMetrics metrics = painter_.fontMetrics();
    const int y = scene_.ruler_height + metrics.height() + 2 * chip_padding;
    painter_.setPen(QPen(palette().text, 1));
    painter_.drawLine(left, y, right, y);
    for (const int x : {left, right}) {
        painter_.drawLine(x, y - 5, x, y + 5);
    }
    const Duration length = std::max(ruler.begin, ruler.end) - std::min(ruler.begin, ruler.end);
    const QString text = QString::fromStdString(short_time(length));
    const int width = metrics.horizontalAdvance(text) + 2 * chip_padding;
    const QRect chip(
        (left + right - width) / 2, y - metrics.height() - 8, width, metrics.height() + 4);
    painter_.fillRect(chip, palette().text);
    painter_.setPen(palette().background);
    painter_.drawText(chip, Qt::AlignCenter, text);
}

void OverlayPainter::paint_mark(Duration mark) {
    painter_.fillRect(scene_.x_of(mark), 0, 1, scene_.size.height(), palette().found);
}

/// Underlined, and where the chain goes on in another row, a line to it.
void OverlayPainter::paint_critical(const std::vector<SpanRef>& chain) {
    QRect last;
    std::optional<SpanRef> before;
    for (const SpanRef& ref : chain) {
        if (before && (before->side != ref.side || before->step != ref.step)) {
            last = {};  // another chain
        }
        before = ref;
        const QRect rect = rect_of(scene_, ref);
        if (rect.isEmpty()) {
            continue;
        }
        const int y = rect.bottom() - critical_height + 1;
        painter_.fillRect(rect.x(), y, rect.width(), critical_height, palette().critical);
        if (!last.isEmpty() && last.y() != rect.y()) {
            painter_.setPen(QPen(palette().critical, 1));
            painter_.drawLine(last.right(), last.bottom() - 1, rect.left(), y + 1);
        }
        last = rect;
    }
}

/// The x at which the wait of a span ends; that after the last action of a rank ends with the step.
int OverlayPainter::x_of_ready(const SpanRef& ref) const {
    const std::optional<Span> span = scene_.run->twin.span(ref);
    const StepPlace& place = scene_.places.of(ref.side, ref.step);
    return span ? scene_.x_of(place.on_axis(span->ready)) : rect_of(scene_, ref).right();
}

/// From the end of what was waited for to the end of the wait.
void OverlayPainter::paint_arrow(const Arrow& arrow) {
    const QRect from = rect_of(scene_, arrow.from);
    const QRect to = rect_of(scene_, arrow.to);
    if (from.isEmpty() || to.isEmpty()) {
        return;
    }
    const QPointF start(from.right(), from.center().y());
    const QPointF end(std::clamp(x_of_ready(arrow.to), to.left(), to.right()), to.center().y());
    const double bend = std::max(18.0, std::abs(end.x() - start.x()) / 2);
    QPainterPath path(start);
    const bool same_row = from.y() == to.y();
    if (same_row) {
        path.lineTo(end);
    } else {
        path.cubicTo(start + QPointF(bend, 0), end - QPointF(bend, 0), end);
    }
    painter_.setBrush(Qt::NoBrush);
    painter_.setPen(QPen(palette().background, 4));
    painter_.drawPath(path);
    painter_.setPen(QPen(palette().critical, 2));
    painter_.drawPath(path);
    const std::array<QPointF, 3> head{end,
                                      end + QPointF(-arrow_head, -arrow_head * 0.6),
                                      end + QPointF(-arrow_head, arrow_head * 0.6)};
    painter_.setBrush(palette().critical);
    painter_.setPen(Qt::NoPen);
    painter_.drawPolygon(head.data(), static_cast<int>(head.size()));
}

/// From row to row, with an arrow head at the receive.
QPainterPath OverlayPainter::path_of(const svg::SkipCurve& curve) const {
    const auto place = [this](const svg::Point& point) {
        return QPointF(scene_.label_width + point.x, scene_.ruler_height + point.y);
    };
    const auto [first, second] = curve.controls();
    const QPointF end = place(curve.end);
    const double back = curve.end.y > curve.begin.y ? -5 : 5;
    QPainterPath path(place(curve.begin));
    path.cubicTo(place(first), place(second), end);
    path.moveTo(end + QPointF(-3, back));
    path.lineTo(end);
    path.lineTo(end + QPointF(3, back));
    return path;
}

void OverlayPainter::paint_skips() {
    if (scene_.overlay.skips.empty()) {
        return;
    }
    painter_.save();
    painter_.setRenderHint(QPainter::Antialiasing, true);
    painter_.setBrush(Qt::NoBrush);
    QColor edge = palette().background;
    edge.setAlphaF(skip_edge_opacity);
    painter_.setPen(QPen(edge, skip_width + 2));
    for (const SkipArc& arc : scene_.overlay.skips) {
        painter_.drawPath(path_of(arc.curve));
    }
    for (const SkipArc& arc : scene_.overlay.skips) {
        painter_.setPen(skip_pen(palette(), arc.curve.gradient, skip_width));
        painter_.drawPath(path_of(arc.curve));
    }
    painter_.restore();
}

/// The arc of the selected send or receive, and its other end dashed.
void OverlayPainter::paint_selected_skip() {
    if (!scene_.selection || !scene_.other_end) {
        return;
    }
    outline(*scene_.other_end, QPen(palette().selection, 2, Qt::DashLine));
    const bool sends = is_send(scene_.run->twin.row(*scene_.selection)->op(scene_.selection->cell));
    const std::optional<SkipArc> arc = arc_between(scene_.run->twin,
                                                   scene_.places,
                                                   scene_.layout,
                                                   scene_.sight(),
                                                   sends ? *scene_.selection : *scene_.other_end,
                                                   sends ? *scene_.other_end : *scene_.selection);
    if (arc) {
        painter_.setRenderHint(QPainter::Antialiasing, true);
        painter_.setBrush(Qt::NoBrush);
        painter_.setPen(QPen(palette().background, selected_skip_width + 2));
        painter_.drawPath(path_of(arc->curve));
        painter_.setPen(skip_pen(palette(), arc->curve.gradient, selected_skip_width));
        painter_.drawPath(path_of(arc->curve));
        painter_.setRenderHint(QPainter::Antialiasing, false);
    }
}

/// The selected action, its twin (dotted) and the one under the mouse.
void OverlayPainter::paint_selection() {
    if (scene_.hovered && scene_.hovered != scene_.selection) {
        outline(*scene_.hovered, QPen(palette().selection, 1));
    }
    if (scene_.overlay.end) {
        outline(*scene_.overlay.end, QPen(palette().selection, 3));
    }
    if (!scene_.selection) {
        return;
    }
    if (const auto twin = twin_of(scene_.run->twin, *scene_.selection)) {
        outline(*twin, QPen(palette().selection, 2, Qt::DotLine));
    }
    paint_selected_skip();
    outline(*scene_.selection, QPen(palette().selection, 3));
}

void OverlayPainter::outline(const SpanRef& ref, const QPen& pen) {
    const QRect rect = rect_of(scene_, ref);
    if (!rect.isEmpty()) {
        QPen sharp = pen;
        sharp.setJoinStyle(Qt::MiterJoin);
        painter_.setPen(sharp);
        painter_.setBrush(Qt::NoBrush);
        painter_.drawRect(rect.adjusted(0, 0, -1, -1));
    }
}

void OverlayPainter::paint_in_ruler() {
    if (scene_.overlay.range) {
        const TimeRange& range = *scene_.overlay.range;
        const int left = scene_.x_of(range.begin);
        const int right = std::max(left + 1, scene_.x_of(range.end));
        QColor veil = palette().selection;
        veil.setAlphaF(0.12F);
        painter_.fillRect(left, 0, right - left, scene_.ruler_height, veil);
    }
    for (const Duration mark : scene_.overlay.marks) {
        const int x = scene_.x_of(mark);
        const std::array<QPoint, 3> flag{QPoint(x, scene_.ruler_height - 12),
                                         QPoint(x + 9, scene_.ruler_height - 8),
                                         QPoint(x, scene_.ruler_height - 4)};
        painter_.setPen(Qt::NoPen);
        painter_.setBrush(palette().found);
        painter_.drawPolygon(flag.data(), static_cast<int>(flag.size()));
        painter_.fillRect(x, scene_.ruler_height - 12, 1, 12, palette().found);
    }
}

}  // namespace pipetwin::gui
