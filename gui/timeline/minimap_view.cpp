// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/minimap_view.h"

#include <algorithm>
#include <cmath>

#include <QMouseEvent>
#include <QPainter>
#include <QWheelEvent>

#include "core/base/as_index.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/view/analysis/action_details.h"
#include "gui/view/timeline/overview.h"

namespace pipetwin::gui {

namespace {

constexpr int strip_height = 56;
constexpr int margin = 6;
constexpr int edge_width = 5;

}  // namespace

MinimapView::MinimapView(TimelineView* timeline, QWidget* parent)
    : QWidget(parent), timeline_(timeline), palette_(palette_of(Theme::Light)) {
    setAccessibleName(tr("Minimap: utilisation over the whole run"));
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    setMouseTracking(true);
    connect(timeline_, &TimelineView::view_changed, this, qOverload<>(&QWidget::update));
    connect(timeline_, &TimelineView::run_changed, this, [this] {
        const auto& run = scene().run;
        const bool lacks_steps = run != nullptr && run->measured && run->measured->left_out() > 0;
        set_tip(*this,
                lacks_steps ? tr("The trace contains only %1.").arg(text_of(steps_words(*run)))
                            : QString());
        forget_picture();
    });
    connect(timeline_, &TimelineView::overlay_changed, this, &MinimapView::forget_picture);
}

void MinimapView::set_colors(const Palette& palette) {
    palette_ = palette;
    forget_picture();
}

QSize MinimapView::sizeHint() const {
    return {400, strip_height};
}

QSize MinimapView::minimumSizeHint() const {
    return {200, strip_height};
}

void MinimapView::forget_picture() {
    picture_ = {};
    update();
}

/// Below the timeline's own time area, so that both begin at the same place.
QRect MinimapView::area() const {
    const int left = scene().label_width;
    return {left, margin, std::max(1, width() - left), height() - 2 * margin};
}

double MinimapView::x_of(Duration time) const {
    const double length = std::max(1e-9, to_seconds(scene().places.length()));
    return area().left() + to_seconds(time) / length * area().width();
}

Duration MinimapView::time_at(double x) const {
    const double share = (x - area().left()) / area().width();
    return Duration{std::llround(share * static_cast<double>(scene().places.length().count()))};
}

QRect MinimapView::window_rect() const {
    const double left = x_of(scene().view.time_at(0));
    const double right = x_of(scene().view.time_at(scene().time_width()));
    const int from = static_cast<int>(std::lround(std::max<double>(area().left(), left)));
    const int to = static_cast<int>(std::lround(std::min<double>(area().right(), right)));
    return {from, 1, std::max(4, to - from), height() - 2};
}

void MinimapView::draw_picture() {
    const qreal ratio = devicePixelRatioF();
    picture_ = QImage((QSizeF(size()) * ratio).toSize(), QImage::Format_RGB32);
    picture_.setDevicePixelRatio(ratio);
    picture_.fill(palette_.window);
    drawn_ = area();
    if (!scene().has_run()) {
        return;
    }
    QPainter painter(&picture_);
    const QRect rect = area();
    painter.fillRect(rect, palette_.idle_fill);
    painter.fillRect(rect, QBrush(palette_.idle_hatch, Qt::FDiagPattern));
    const Twin& twin = scene().run->twin;
    const auto y_of = [&](float share) {
        return rect.bottom() + 1 -
               static_cast<int>(std::lround(share * static_cast<float>(rect.height())));
    };
    // The area is what was measured, or, of a run that was not, what is predicted.
    const Side area_side = twin.has(Side::Measured) ? Side::Measured : Side::Predicted;
    const auto busy = utilisation_over_run(twin, scene().places, area_side, rect.width());
    for (int x = 0; x < rect.width() && twin.has(area_side); ++x) {
        const int top = y_of(busy[as_index(x)]);
        painter.fillRect(rect.left() + x, top, 1, rect.bottom() + 1 - top, palette_.memory_fill);
    }
    const auto predicted =
        utilisation_over_run(twin, scene().places, Side::Predicted, rect.width());
    int last = rect.bottom();
    for (int x = 0; x < rect.width() && twin.has(Side::Predicted); ++x) {
        const int y = std::min(rect.bottom(), y_of(predicted[as_index(x)]));
        const int top = std::min(y, last);
        painter.fillRect(
            rect.left() + x, top, 1, std::max(1, std::abs(y - last)), palette_.memory_line);
        last = y;
    }
    for (int step = 1; step < scene().places.step_count(); ++step) {
        const int x = static_cast<int>(std::lround(x_of(scene().places.begin(step))));
        painter.fillRect(x, rect.top(), 1, 5, palette_.faint_text);
    }
    for (const SpanRef& ref : scene().overlay.critical) {
        if (const auto range = range_of(scene(), ref)) {
            const int left = static_cast<int>(std::lround(x_of(range->begin)));
            const int right = static_cast<int>(std::lround(x_of(range->end)));
            painter.fillRect(
                left, rect.bottom() - 1, std::max(1, right - left), 3, palette_.critical);
        }
    }
    painter.setPen(palette_.faint_text);
    painter.setFont(font());
    const std::optional<SideData>& measured = scene().run->measured;
    painter.drawText(QRect(0, 0, rect.left() - 12, height()),
                     Qt::AlignRight | Qt::AlignVCenter,
                     !measured || measured->left_out() == 0 ? tr("whole run")
                     : measured->noise.steps > 0            ? tr("quiet steps")
                                                            : tr("1 step, not quiet"));
}

void MinimapView::paintEvent(QPaintEvent* /*event*/) {
    if (picture_.isNull() || drawn_ != area()) {
        draw_picture();
    }
    QPainter painter(this);
    painter.drawImage(0, 0, picture_);
    if (!scene().has_run()) {
        return;
    }
    const QRect window = window_rect();
    QColor veil = palette_.background;
    veil.setAlphaF(0.6F);
    const QRect rect = area();
    painter.fillRect(rect.left(), rect.top(), window.left() - rect.left(), rect.height(), veil);
    painter.fillRect(
        window.right() + 1, rect.top(), rect.right() - window.right(), rect.height(), veil);
    painter.setPen(QPen(palette_.selection, 1));
    painter.drawRect(window.adjusted(0, 0, -1, -1));
    const int middle = height() / 2;
    for (const int x : {window.left() - 1, window.right() - 2}) {
        painter.fillRect(x, middle - 8, 3, 16, palette_.selection);
    }
}

void MinimapView::resizeEvent(QResizeEvent* /*event*/) {
    forget_picture();
}

std::optional<MinimapView::Grip> MinimapView::grip_at(QPoint position) const {
    const QRect window = window_rect();
    if (std::abs(position.x() - window.left()) <= edge_width) {
        return Grip::Left;
    }
    if (std::abs(position.x() - window.right()) <= edge_width) {
        return Grip::Right;
    }
    return window.contains(position.x(), window.center().y()) ? std::optional(Grip::Window)
                                                              : std::nullopt;
}

void MinimapView::mousePressEvent(QMouseEvent* event) {
    if (!scene().has_run() || event->button() != Qt::LeftButton) {
        return;
    }
    const Duration time = time_at(event->position().x());
    grip_ = grip_at(event->pos());
    if (!grip_) {
        const Duration half =
            (scene().view.time_at(scene().time_width()) - scene().view.origin) / 2;
        timeline_->show_exactly({.begin = time - half, .end = time + half});
        grip_ = Grip::Window;
    }
    held_at_ = time;
    held_ = {.begin = scene().view.origin, .end = scene().view.time_at(scene().time_width())};
}

void MinimapView::mouseMoveEvent(QMouseEvent* event) {
    if (!grip_) {
        const std::optional<Grip> grip = scene().has_run() ? grip_at(event->pos()) : std::nullopt;
        const bool edge = grip == Grip::Left || grip == Grip::Right;
        setCursor(edge ? Qt::SizeHorCursor : grip ? Qt::OpenHandCursor : Qt::ArrowCursor);
        return;
    }
    const Duration moved = time_at(event->position().x()) - held_at_;
    TimeRange range = held_;
    if (*grip_ != Grip::Right) {
        range.begin += moved;
    }
    if (*grip_ != Grip::Left) {
        range.end += moved;
    }
    if (range.end > range.begin) {
        timeline_->show_exactly(range);
    }
}

void MinimapView::mouseReleaseEvent(QMouseEvent* /*event*/) {
    grip_.reset();
}

void MinimapView::wheelEvent(QWheelEvent* event) {
    event->accept();
    timeline_->zoom(std::pow(zoom_per_notch, event->angleDelta().y() / wheel_notch));
}

}  // namespace pipetwin::gui
