// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <QApplication>
#include <QHelpEvent>
#include <QMouseEvent>
#include <QNativeGestureEvent>
#include <QScrollBar>
#include <QToolTip>
#include <QWheelEvent>

#include "gui/base/plain_text.h"
#include "gui/timeline/timeline_view.h"
#include "gui/view/analysis/action_details.h"

/// Mouse events of the timeline.
namespace pipetwin::gui {

namespace {

constexpr double pan_per_notch = 0.1;

}  // namespace

bool TimelineView::viewportEvent(QEvent* event) {
    if (event->type() == QEvent::ToolTip) {
        const auto* const help = static_cast<QHelpEvent*>(event);
        const std::optional<SpanRef> ref = span_at(help->pos());
        if (ref) {
            show_tip(
                help->globalPos(), QString::fromStdString(sentence_of(*scene_.run, *ref)), this);
        } else {
            QToolTip::hideText();
        }
        return true;
    }
    if (event->type() == QEvent::NativeGesture) {
        const auto* const gesture = static_cast<QNativeGestureEvent*>(event);
        if (gesture->gestureType() == Qt::ZoomNativeGesture) {
            zoom(1 + gesture->value());
            return true;
        }
    }
    if (event->type() == QEvent::Leave) {
        hover(std::nullopt);
    }
    return QAbstractScrollArea::viewportEvent(event);
}

void TimelineView::wheelEvent(QWheelEvent* event) {
    const QPointF position = event->position();
    const double notches = event->angleDelta().y() / wheel_notch;
    const bool zooms = event->modifiers().testFlag(Qt::ControlModifier);
    const bool pans = event->modifiers().testFlag(Qt::ShiftModifier);
    if (!zooms && !pans && event->angleDelta().x() == 0) {
        QAbstractScrollArea::wheelEvent(event);
        return;
    }
    event->accept();
    if (zooms) {
        kept_in_sight_.reset();
        const double x = std::max(0.0, position.x() - scene_.label_width);
        set_view(scene_.view.zoomed(std::pow(zoom_per_notch, notches), x));
    } else if (pans) {
        pan(-notches * pan_per_notch);
    } else {
        pan(-event->angleDelta().x() / wheel_notch * pan_per_notch);
    }
    hover(position.toPoint());
}

void TimelineView::mousePressEvent(QMouseEvent* event) {
    const bool left = event->button() == Qt::LeftButton;
    if (!left && event->button() != Qt::MiddleButton) {
        return;
    }
    const DragKind kind = !left                                              ? DragKind::Pan
                          : event->modifiers().testFlag(Qt::ControlModifier) ? DragKind::Measure
                                                                             : DragKind::Select;
    drag_ = Drag{.kind = kind,
                 .start = event->pos(),
                 .last = event->pos(),
                 .from = scene_.view.time_at(event->pos().x() - scene_.label_width)};
}

void TimelineView::mouseMoveEvent(QMouseEvent* event) {
    if (!drag_) {
        hover(event->pos());
        return;
    }
    const QPoint moved = event->pos() - drag_->start;
    drag_->moving = drag_->moving || moved.manhattanLength() >= QApplication::startDragDistance();
    if (drag_->moving) {
        follow_drag(event->pos());
    }
}

void TimelineView::follow_drag(QPoint position) {
    const Duration to = scene_.view.time_at(position.x() - scene_.label_width);
    const auto [begin, end] = std::minmax(drag_->from, to);
    switch (drag_->kind) {
        case DragKind::Select:
            if (drag_->start.x() >= scene_.label_width && has_run()) {
                selection_->set_range(TimeRange{.begin = begin, .end = end});
            }
            break;
        case DragKind::Measure:
            scene_.overlay.ruler = TimeRange{.begin = begin, .end = end};
            break;
        case DragKind::Pan: {
            viewport()->setCursor(Qt::ClosedHandCursor);
            const QPoint step = position - drag_->last;
            kept_in_sight_.reset();
            set_view(scene_.view.panned(-step.x()));
            verticalScrollBar()->setValue(verticalScrollBar()->value() - step.y());
            break;
        }
    }
    drag_->last = position;
    hover(position);
}

void TimelineView::mouseReleaseEvent(QMouseEvent* event) {
    const bool click = drag_ && !drag_->moving && event->button() == Qt::LeftButton;
    drag_.reset();
    viewport()->unsetCursor();
    if (!click) {
        return;
    }
    const bool on_label = event->pos().x() < scene_.label_width;
    if (on_label) {
        const std::optional<int> rank = rank_at(event->pos());
        Tracks tracks = scene_.tracks;
        for (Track& track : tracks) {
            track.folded = track.rank == rank ? !track.folded : track.folded;
        }
        set_tracks(std::move(tracks));
        return;
    }
    select_at(event->pos());
}

/// Selects the action under the mouse, or the one that idle time ends at.
void TimelineView::select_at(QPoint position) {
    std::optional<SpanRef> ref = span_at(position);
    const std::optional<SpanRef> idle = ref ? std::nullopt : idle_at(position);
    const bool at_end = idle && !twin().span(*idle);
    ref = at_end || !idle ? ref : idle;
    selection_->set_span(ref);
    selection_->set_range(std::nullopt);
    outline_end(at_end ? idle : std::nullopt);
    if (at_end) {
        emit end_of_step_clicked(*idle);
    }
}

void TimelineView::hover(const std::optional<QPoint>& position) {
    mouse_ = position;
    const bool in_time_area = position && position->x() >= scene_.label_width && has_run();
    scene_.cursor_x =
        in_time_area ? std::optional(position->x() - scene_.label_width) : std::nullopt;
    scene_.hovered = in_time_area ? span_at(*position) : std::nullopt;
    viewport()->update();
}

}  // namespace pipetwin::gui
