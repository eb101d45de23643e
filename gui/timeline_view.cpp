#include "gui/timeline_view.h"

#include <algorithm>
#include <cmath>

#include <QApplication>
#include <QHelpEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QScrollBar>
#include <QToolTip>
#include <QWheelEvent>

#include "gui/action_details.h"

namespace pipetwin::gui {

namespace {

constexpr double wheel_notch = 120;
constexpr double zoom_per_notch = 1.2;
constexpr double pan_per_notch = 0.1;
constexpr int max_row_height = 72;

}  // namespace

TimelineView::TimelineView(QWidget* parent) : QAbstractScrollArea(parent) {
    scene_.palette = palette_of(Theme::Light);
    setFrameShape(QFrame::NoFrame);
    setFocusPolicy(Qt::StrongFocus);
    setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    setMinimumSize(360, 160);
    viewport()->setMouseTracking(true);
    announce_selection();
}

void TimelineView::show_run(const RunData* run) {
    scene_.run = run;
    scene_.selection.reset();
    scene_.hovered.reset();
    drag_.reset();
    verticalScrollBar()->setValue(0);
    relayout();
    show_whole_run();
    announce_selection();
    emit selection_changed();
}

void TimelineView::set_colors(const Palette& palette) {
    scene_.palette = palette;
    viewport()->update();
}

void TimelineView::set_sides(Sides sides) {
    if (sides == scene_.sides) {
        return;
    }
    scene_.sides = sides;
    if (scene_.selection && !shows(sides, scene_.selection->side)) {
        select(has_run() ? twin_of(scene_.run->twin, *scene_.selection) : std::nullopt);
    }
    relayout();
    emit sides_changed();
}

void TimelineView::select(const std::optional<SpanRef>& ref) {
    if (ref == scene_.selection) {
        return;
    }
    scene_.selection = ref;
    if (ref) {
        bring_into_sight(*ref);
    }
    announce_selection();
    viewport()->update();
    emit selection_changed();
}

void TimelineView::zoom(double factor) {
    const double x = scene_.cursor_x ? *scene_.cursor_x : scene_.time_width() / 2.0;
    whole_run_ = false;
    set_view(scene_.view.zoomed(factor, x));
}

void TimelineView::pan(double share) {
    whole_run_ = false;
    set_view(scene_.view.panned(share * scene_.time_width()));
}

void TimelineView::show_whole_run() {
    whole_run_ = true;
    const Duration length = has_run() ? scene_.run->twin.length() : Duration{0};
    set_view(fitted(Duration{0}, length, scene_.time_width()));
}

void TimelineView::fit_selection() {
    const Span* const span =
        has_run() && scene_.selection ? scene_.run->twin.span(*scene_.selection) : nullptr;
    if (span == nullptr) {
        show_whole_run();
        return;
    }
    whole_run_ = false;
    set_view(fitted(span->begin, span->end, scene_.time_width()));
}

void TimelineView::select_next(int direction) {
    if (!has_run()) {
        return;
    }
    const Twin& twin = scene_.run->twin;
    const auto target = scene_.selection ? next_in_row(twin, *scene_.selection, direction)
                                         : first_action(twin, scene_.sides);
    if (target) {
        select(target);
    }
}

void TimelineView::select_in_next_row(int direction) {
    if (!has_run()) {
        return;
    }
    const Twin& twin = scene_.run->twin;
    const auto target = scene_.selection
                            ? in_next_row(twin, scene_.sides, *scene_.selection, direction)
                            : first_action(twin, scene_.sides);
    if (target) {
        select(target);
    }
}

void TimelineView::swap_to_twin() {
    if (!has_run() || !scene_.selection) {
        return;
    }
    const auto target = twin_of(scene_.run->twin, *scene_.selection);
    if (!target) {
        return;
    }
    if (!shows(scene_.sides, target->side)) {
        // set_sides moves the selection to the twin, since the old side disappears.
        set_sides(target->side == Side::Predicted ? Sides::Predicted : Sides::Measured);
    } else {
        select(target);
    }
}

bool TimelineView::viewportEvent(QEvent* event) {
    if (event->type() == QEvent::ToolTip) {
        const auto* const help = static_cast<QHelpEvent*>(event);
        const std::optional<SpanRef> ref = span_at(help->pos());
        if (ref) {
            QToolTip::showText(
                help->globalPos(), QString::fromStdString(sentence_of(*scene_.run, *ref)), this);
        } else {
            QToolTip::hideText();
        }
        return true;
    }
    if (event->type() == QEvent::Leave) {
        hover(std::nullopt);
    }
    return QAbstractScrollArea::viewportEvent(event);
}

void TimelineView::paintEvent(QPaintEvent* /*event*/) {
    QPainter painter(viewport());
    painter.setFont(font());
    paint_timeline(painter, scene_);
}

void TimelineView::resizeEvent(QResizeEvent* /*event*/) {
    relayout();
    if (whole_run_) {
        show_whole_run();
    } else {
        set_view(scene_.view);
    }
}

void TimelineView::wheelEvent(QWheelEvent* event) {
    const QPointF position = event->position();
    const double notches = event->angleDelta().y() / wheel_notch;
    if (position.x() < scene_.label_width) {
        QAbstractScrollArea::wheelEvent(event);
        return;
    }
    event->accept();
    if (event->modifiers().testFlag(Qt::ShiftModifier)) {
        pan(-notches * pan_per_notch);
    } else if (event->angleDelta().x() != 0) {
        pan(-event->angleDelta().x() / wheel_notch * pan_per_notch);
    } else {
        whole_run_ = false;
        const double x = position.x() - scene_.label_width;
        set_view(scene_.view.zoomed(std::pow(zoom_per_notch, notches), x));
    }
    hover(position.toPoint());
}

void TimelineView::mousePressEvent(QMouseEvent* event) {
    if (event->button() == Qt::LeftButton || event->button() == Qt::MiddleButton) {
        drag_ = Drag{.start = event->pos(), .last = event->pos()};
    }
}

void TimelineView::mouseMoveEvent(QMouseEvent* event) {
    if (!drag_) {
        hover(event->pos());
        return;
    }
    const QPoint moved = event->pos() - drag_->start;
    drag_->moving = drag_->moving || moved.manhattanLength() >= QApplication::startDragDistance();
    if (!drag_->moving) {
        return;
    }
    viewport()->setCursor(Qt::ClosedHandCursor);
    const QPoint step = event->pos() - drag_->last;
    drag_->last = event->pos();
    whole_run_ = false;
    set_view(scene_.view.panned(-step.x()));
    verticalScrollBar()->setValue(verticalScrollBar()->value() - step.y());
    hover(event->pos());
}

void TimelineView::mouseReleaseEvent(QMouseEvent* event) {
    const bool click = drag_ && !drag_->moving && event->button() == Qt::LeftButton;
    drag_.reset();
    viewport()->unsetCursor();
    if (click) {
        select(span_at(event->pos()));
    }
}

void TimelineView::changeEvent(QEvent* event) {
    if (event->type() == QEvent::FontChange) {
        relayout();
    }
    QAbstractScrollArea::changeEvent(event);
}

void TimelineView::scrollContentsBy(int /*dx*/, int /*dy*/) {
    scene_.scroll = verticalScrollBar()->value();
    viewport()->update();
}

std::optional<SpanRef> TimelineView::span_at(QPoint position) const {
    const int x = position.x() - scene_.label_width;
    const int y = position.y() - scene_.ruler_height;
    if (!has_run() || x < 0 || y < 0) {
        return std::nullopt;
    }
    return hit(scene_.run->twin, scene_.layout, scene_.view, x, y + scene_.scroll);
}

void TimelineView::set_view(const ViewTransform& view) {
    const Duration length = has_run() ? scene_.run->twin.length() : Duration{0};
    scene_.view = clamped(view, length, scene_.time_width());
    viewport()->update();
}

/// Everything that depends on the run, the sides, the font and the size of the viewport.
void TimelineView::relayout() {
    const QFontMetrics metrics(font());
    scene_.size = viewport()->size();
    scene_.ruler_height = metrics.height() + 14;
    scene_.label_width = has_run() ? label_width_for(*scene_.run, font()) : 0;
    const int height = std::max(0, scene_.size.height() - scene_.ruler_height);
    if (has_run()) {
        const Twin& twin = scene_.run->twin;
        const RowHeights heights{.least = metrics.height() + 2, .most = max_row_height};
        scene_.layout =
            layout_rows(twin, scene_.sides, filling(twin, scene_.sides, height, heights));
    } else {
        scene_.layout = {};
    }
    const int content = static_cast<int>(std::ceil(scene_.layout.height));
    verticalScrollBar()->setRange(0, std::max(0, content - height));
    verticalScrollBar()->setPageStep(height);
    verticalScrollBar()->setSingleStep(metrics.height());
    scene_.scroll = verticalScrollBar()->value();
    viewport()->update();
}

void TimelineView::bring_into_sight(const SpanRef& ref) {
    const Span* const span = has_run() ? scene_.run->twin.span(ref) : nullptr;
    if (span == nullptr) {
        return;
    }
    const double width = scene_.time_width();
    const double begin = scene_.view.x_of(span->begin);
    const double end = scene_.view.x_of(span->end);
    if (end <= 0 || begin >= width) {
        whole_run_ = false;
        set_view(scene_.view.panned((begin + end) / 2 - width / 2));
    }
    if (const Row* const row = scene_.layout.row_of(ref.side, ref.rank)) {
        QScrollBar* const bar = verticalScrollBar();
        const int top = static_cast<int>(row->y);
        const int bottom = static_cast<int>(row->y + row->height) + 1;
        const int height = scene_.size.height() - scene_.ruler_height;
        bar->setValue(std::min(std::max(bar->value(), bottom - height), top));
    }
}

void TimelineView::hover(const std::optional<QPoint>& position) {
    const bool in_time_area = position && position->x() >= scene_.label_width && has_run();
    scene_.cursor_x =
        in_time_area ? std::optional(position->x() - scene_.label_width) : std::nullopt;
    scene_.hovered = in_time_area ? span_at(*position) : std::nullopt;
    viewport()->update();
}

/// Qt 6.4 has no announcements for screen readers: a change of the name is read out instead.
void TimelineView::announce_selection() {
    const bool any = has_run() && scene_.selection;
    setAccessibleName(any ? QString::fromStdString(sentence_of(*scene_.run, *scene_.selection))
                          : tr("Timeline, nothing selected"));
}

}  // namespace pipetwin::gui
