// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/timeline_view.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <QPainter>
#include <QScrollBar>
#include <QStyle>

#include "gui/timeline/timeline_accessible.h"
#include "gui/view/analysis/action_details.h"

namespace pipetwin::gui {

namespace {

constexpr int max_row_height = 72;
constexpr std::size_t most_views = 100;   // that can be gone back to
constexpr double narrowest_to_read = 24;  // an action, in pixels
constexpr double actions_around = 20;     // of its length, in the window

constexpr int longest_flight = 150;  // ms

/// A time that stands at the same pixel in both does so all the way.
ViewTransform between(const ViewTransform& from, const ViewTransform& to, double share) {
    if (share >= 1) {
        return to;
    }
    const double way = share * static_cast<double>((to.origin - from.origin).count());
    return {.origin = from.origin + Duration{std::llround(way)},
            .ns_per_pixel = from.ns_per_pixel + share * (to.ns_per_pixel - from.ns_per_pixel)};
}

}  // namespace

TimelineView::TimelineView(Selection* selection, QWidget* parent)
    : QAbstractScrollArea(parent), selection_(selection) {
    TimelineAccessible::install();  // before the first request, whose answer is kept
    scene_.palette = palette_of(Theme::Light);
    setFrameShape(QFrame::NoFrame);
    setFocusPolicy(Qt::StrongFocus);
    setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    setMinimumSize(360, 160);
    viewport()->setMouseTracking(true);
    connect(selection_, &Selection::span_changed, this, &TimelineView::take_selection);
    connect(selection_, &Selection::range_changed, this, [this] {
        scene_.overlay.range = selection_->range();
        viewport()->update();
    });
    flight_.setStartValue(0.0);
    flight_.setEndValue(1.0);
    flight_.setEasingCurve(QEasingCurve::OutCubic);
    connect(&flight_, &QVariantAnimation::valueChanged, this, [this](const QVariant& value) {
        show_view(between(departure_, destination_, value.toDouble()));
    });
    announce_selection();
}

void TimelineView::show_run(std::shared_ptr<const RunData> run) {
    selection_->clear();
    run_ = std::move(run);
    scene_.run = run_.get();
    scene_.places = StepPlaces();
    arcs_.forget();
    scene_.hovered.reset();
    scene_.overlay = {.bubbles = scene_.overlay.bubbles};
    drag_.reset();
    back_.clear();
    forward_.clear();
    verticalScrollBar()->setValue(0);
    scene_.tracks = has_run() ? tracks_of(twin().rank_count()) : Tracks{};
    relayout();
    replace_steps();
    show_step(has_run() ? scene_.run->main_step() : 0);
    back_.clear();
    announce_selection();
    emit tracks_changed();
}

void TimelineView::update_run(std::shared_ptr<const RunData> run) {
    const ViewTransform seen = destination();
    const Kept kept = what_is_kept();
    const int steps = scene_.places.step_count();
    Tracks tracks = scene_.tracks;
    run_ = std::move(run);
    scene_.run = run_.get();
    scene_.places = StepPlaces();
    arcs_.forget();
    scene_.overlay.chain.clear();
    scene_.overlay.end.reset();
    scene_.overlay.arrows.clear();
    scene_.overlay.critical.clear();
    scene_.overlay.found.clear();
    scene_.hovered.reset();
    const int ranks = has_run() ? twin().rank_count() : 0;
    if (static_cast<int>(tracks.size()) != ranks) {
        tracks = tracks_of(ranks);
    }
    scene_.tracks = std::move(tracks);
    if (selection_->span() && (!has_run() || !twin().span(*selection_->span()))) {
        selection_->set_span(std::nullopt);
    }
    find_other_end();
    relayout();
    replace_steps();
    // Of another plan there may be one step where there were many, and back.
    const bool has_grown = steps > 1 && scene_.places.step_count() >= steps;
    if (kept.whole_run) {
        show_whole_run();
    } else if (kept.step) {
        show_step(has_grown ? *kept.step : has_run() ? scene_.run->main_step() : 0);
    } else {
        set_view(seen);
    }
    emit tracks_changed();
}

TimelineView::Kept TimelineView::what_is_kept() const {
    const StepPlaces& places = scene_.places;
    if (!kept_in_sight_ || places.step_count() == 0) {
        return {};
    }
    const int step = places.step_at(kept_in_sight_->begin);
    const bool is_step =
        *kept_in_sight_ == TimeRange{.begin = places.begin(step), .end = places.end(step)};
    const bool is_whole =
        *kept_in_sight_ == TimeRange{.begin = Duration{0}, .end = places.length()};
    return {.step = is_step ? std::optional(step) : std::nullopt,
            .whole_run = is_whole && !is_step};
}

void TimelineView::set_colors(const Palette& palette) {
    scene_.palette = palette;
    viewport()->update();
}

void TimelineView::set_mode(Mode mode) {
    if (mode == scene_.mode) {
        return;
    }
    scene_.mode = mode;
    relayout();
    if (scene_.selection &&
        scene_.layout.row_of(scene_.selection->side, scene_.selection->rank) == nullptr) {
        selection_->set_span(has_run() ? twin_of(twin(), *scene_.selection) : std::nullopt);
    }
    emit mode_changed();
}

void TimelineView::set_alignment(Alignment alignment) {
    scene_.alignment = alignment;
    replace_steps();
}

void TimelineView::set_memory(bool shown) {
    memory_ = shown;
    relayout();
}

void TimelineView::set_links(bool shown) {
    links_ = shown;
    relayout();
}

void TimelineView::set_skips(bool shown) {
    skips_ = shown;
    find_skips();
    viewport()->update();
}

void TimelineView::set_bubbles(bool shown) {
    scene_.overlay.bubbles = shown;
    viewport()->update();
}

void TimelineView::set_tracks(Tracks tracks) {
    if (tracks != scene_.tracks) {
        scene_.tracks = std::move(tracks);
        relayout();
        emit tracks_changed();
    }
}

template <class Change>
void TimelineView::change_track(Change change) {
    const std::optional<int> rank = rank_in_question();
    Tracks tracks = scene_.tracks;
    for (Track& track : tracks) {
        if (track.rank == rank) {
            change(track);
        }
    }
    set_tracks(std::move(tracks));
}

void TimelineView::toggle_pin() {
    change_track([](Track& track) { track.pinned = !track.pinned; });
}

void TimelineView::toggle_fold() {
    change_track([](Track& track) { track.folded = !track.folded; });
}

std::optional<int> TimelineView::rank_in_question() const {
    if (scene_.selection) {
        return scene_.selection->rank;
    }
    return mouse_ ? rank_at(*mouse_) : std::nullopt;
}

void TimelineView::set_chain(std::vector<SpanRef> chain, std::vector<Arrow> arrows) {
    scene_.overlay.chain = std::move(chain);
    scene_.overlay.arrows = std::move(arrows);
    viewport()->update();
}

void TimelineView::outline_end(const std::optional<SpanRef>& end) {
    scene_.overlay.end = end;
    viewport()->update();
}

void TimelineView::set_critical(std::vector<SpanRef> critical) {
    scene_.overlay.critical = std::move(critical);
    viewport()->update();
    emit overlay_changed();
}

void TimelineView::set_found(std::vector<SpanRef> found) {
    scene_.overlay.found = std::move(found);
    viewport()->update();
}

void TimelineView::go_to(const SpanRef& ref) {
    if (has_run() && scene_.layout.row_of(ref.side, ref.rank) == nullptr) {
        set_mode(Mode::Both);
    }
    selection_->set_span(ref);
    bring_into_sight(ref);
}

void TimelineView::look_at(const SpanRef& ref) {
    if (has_run() && scene_.layout.row_of(ref.side, ref.rank) == nullptr) {
        set_mode(Mode::Both);
    }
    bring_into_sight(ref);
}

void TimelineView::show_action(const SpanRef& ref) {
    go_to(ref);
    const std::optional<TimeRange> range = range_of(scene_, ref);
    if (!range) {
        return;
    }
    const double length = std::max(1.0, static_cast<double>((range->end - range->begin).count()));
    if (length / destination().ns_per_pixel >= narrowest_to_read) {
        return;
    }
    const int width = scene_.time_width();
    const ViewTransform closer{.origin = range->begin,
                               .ns_per_pixel = length * actions_around / std::max(1, width)};
    const double middle = closer.x_of(range->end) / 2;
    jump_to(closer.panned(middle - width / 2.0));
}

void TimelineView::zoom(double factor) {
    const double x = scene_.cursor_x ? *scene_.cursor_x : scene_.time_width() / 2.0;
    kept_in_sight_.reset();
    move_to(destination().zoomed(factor, x));
}

void TimelineView::pan(double share) {
    kept_in_sight_.reset();
    move_to(destination().panned(share * scene_.time_width()));
}

void TimelineView::show_whole_run() {
    show_range({.begin = Duration{0}, .end = scene_.places.length()});
}

void TimelineView::show_step(int step) {
    if (step < 0 || step >= scene_.places.step_count()) {
        show_whole_run();
        return;
    }
    show_range({.begin = scene_.places.begin(step), .end = scene_.places.end(step)});
}

void TimelineView::show_range(const TimeRange& range) {
    jump_to(fitted(range.begin, range.end, scene_.time_width()));
    kept_in_sight_ = range;
}

void TimelineView::show_exactly(const TimeRange& range) {
    kept_in_sight_.reset();
    const auto length = static_cast<double>((range.end - range.begin).count());
    set_view({.origin = range.begin, .ns_per_pixel = length / std::max(1, scene_.time_width())});
}

void TimelineView::centre_or_fit_selection() {
    const std::optional<TimeRange> range =
        scene_.selection ? range_of(scene_, *scene_.selection) : std::nullopt;
    if (!range) {
        show_whole_run();
        return;
    }
    const ViewTransform& seen = destination();
    const double middle = (seen.x_of(range->begin) + seen.x_of(range->end)) / 2;
    const ViewTransform centred = clamped(seen.panned(middle - scene_.time_width() / 2.0),
                                          scene_.places.length(),
                                          scene_.time_width());
    const bool is_centred = std::abs(centred.x_of(seen.origin)) < 2;
    if (is_centred) {
        show_range(*range);
    } else {
        jump_to(centred);
    }
}

void TimelineView::remember_view() {
    if (back_.empty() || back_.back() != destination()) {
        back_.push_back(destination());
    }
    if (back_.size() > most_views) {
        back_.erase(back_.begin());
    }
    forward_.clear();
}

void TimelineView::jump_to(const ViewTransform& view) {
    remember_view();
    kept_in_sight_.reset();
    move_to(view);
}

void TimelineView::go_back() {
    if (!back_.empty()) {
        forward_.push_back(destination());
        kept_in_sight_.reset();
        move_to(std::exchange(back_.back(), {}));
        back_.pop_back();
    }
}

void TimelineView::go_forward() {
    if (!forward_.empty()) {
        back_.push_back(destination());
        kept_in_sight_.reset();
        move_to(std::exchange(forward_.back(), {}));
        forward_.pop_back();
    }
}

int TimelineView::current_step() const {
    return scene_.places.step_count() == 0
               ? 0
               : scene_.places.step_at(scene_.view.time_at(scene_.time_width() / 2.0));
}

void TimelineView::select_next(int direction) {
    if (!has_run()) {
        return;
    }
    const auto target = scene_.selection ? next_in_row(twin(), *scene_.selection, direction)
                                         : first_action(twin(), scene_.mode, current_step());
    if (target) {
        go_to(*target);
    }
}

void TimelineView::select_in_next_row(int direction) {
    if (!has_run()) {
        return;
    }
    const auto target = scene_.selection
                            ? in_next_row(twin(), scene_.mode, *scene_.selection, direction)
                            : first_action(twin(), scene_.mode, current_step());
    if (target) {
        go_to(*target);
    }
}

void TimelineView::swap_to_twin() {
    if (!has_run() || !scene_.selection) {
        return;
    }
    const auto target = twin_of(twin(), *scene_.selection);
    if (!target) {
        return;
    }
    if (scene_.layout.row_of(target->side, target->rank) == nullptr) {
        // set_mode moves the selection to the twin, since the old side disappears.
        set_mode(target->side == Side::Predicted ? Mode::Predicted : Mode::Measured);
    } else {
        go_to(*target);
    }
}

void TimelineView::select_range_of_action() {
    if (scene_.selection) {
        selection_->set_range(range_of(scene_, *scene_.selection));
    }
}

void TimelineView::add_mark() {
    if (!has_run()) {
        return;
    }
    const std::optional<TimeRange> selected =
        scene_.selection ? range_of(scene_, *scene_.selection) : std::nullopt;
    const double x = scene_.cursor_x ? *scene_.cursor_x : scene_.time_width() / 2.0;
    scene_.overlay.marks.push_back(selected ? selected->begin : scene_.view.time_at(x));
    viewport()->update();
}

void TimelineView::clear_marks() {
    scene_.overlay.marks.clear();
    viewport()->update();
}

void TimelineView::clear() {
    scene_.overlay.ruler.reset();
    scene_.overlay.found.clear();
    scene_.overlay.end.reset();
    selection_->clear();
    viewport()->update();
}

void TimelineView::paintEvent(QPaintEvent* /*event*/) {
    QPainter painter(viewport());
    painter.setFont(font());
    paint_timeline(painter, scene_);
}

void TimelineView::resizeEvent(QResizeEvent* /*event*/) {
    relayout();
    if (kept_in_sight_) {
        set_view(fitted(kept_in_sight_->begin, kept_in_sight_->end, scene_.time_width()));
    } else {
        set_view(destination());
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
    find_skips();
    viewport()->update();
}

template <class Find>
std::optional<SpanRef> TimelineView::find_at(QPoint position, Find ask) const {
    const int x = position.x() - scene_.label_width;
    const int y = position.y() - scene_.ruler_height;
    if (!has_run() || x < 0 || y < 0) {
        return std::nullopt;
    }
    return ask(twin(),
               scene_.places,
               scene_.layout,
               scene_.view,
               x,
               scene_.layout.from_screen(y, scene_.scroll));
}

std::optional<SpanRef> TimelineView::span_at(QPoint position) const {
    return find_at(position, hit);
}

std::optional<SpanRef> TimelineView::idle_at(QPoint position) const {
    return find_at(position, pipetwin::gui::idle_at);
}

std::optional<int> TimelineView::rank_at(QPoint position) const {
    const int y = position.y() - scene_.ruler_height;
    return y < 0 ? std::nullopt
                 : scene_.layout.rank_at(scene_.layout.from_screen(y, scene_.scroll));
}

void TimelineView::set_view(const ViewTransform& view) {
    flight_.stop();
    show_view(clamped(view, scene_.places.length(), scene_.time_width()));
}

void TimelineView::move_to(const ViewTransform& view) {
    const ViewTransform target = clamped(view, scene_.places.length(), scene_.time_width());
    const int duration = style()->styleHint(QStyle::SH_Widget_Animation_Duration, nullptr, this);
    flight_.stop();
    if (!animated_ || duration <= 0 || target == scene_.view) {
        show_view(target);
        return;
    }
    departure_ = scene_.view;
    destination_ = target;
    flight_.setDuration(std::min(duration, longest_flight));
    flight_.start();
}

void TimelineView::show_view(const ViewTransform& view) {
    scene_.view = view;
    find_skips();
    viewport()->update();
    emit view_changed();
}

/// Computes the places of the steps, which depend on the run, the alignment and, with
/// Alignment::Selected, on the selection.
void TimelineView::replace_steps() {
    scene_.places =
        has_run() ? StepPlaces(twin(), scene_.alignment, scene_.selection) : StepPlaces();
    find_skips();
    viewport()->update();
}

/// Leaves the figures of the rows out where the labels would take too much of the width.
void TimelineView::lay_out_labels() {
    constexpr double most = 0.45;  // of the width
    const int whole = has_run() ? label_width_for(*scene_.run, font()) : 0;
    scene_.has_figures = whole <= most * scene_.size.width();
    scene_.label_width = scene_.has_figures ? whole : label_width_for(*scene_.run, font(), false);
}

/// Everything that depends on the run, the mode, the tracks, the font and the size of the viewport.
void TimelineView::relayout() {
    const QFontMetrics metrics(font());
    scene_.size = viewport()->size();
    scene_.ruler_height = ruler_height_for(scene_.run, font());
    lay_out_labels();
    const int height = std::max(0, scene_.size.height() - scene_.ruler_height);
    if (has_run()) {
        const RowHeights heights{.least = metrics.height() + 2, .most = max_row_height};
        const auto& measured = scene_.run->measured;
        const auto& predicted = scene_.run->predicted;
        const bool memory = memory_ && ((predicted && !predicted->memory.empty()) ||
                                        (measured && !measured->memory.empty()));
        const bool links = links_ && linked_side(twin()).has_value();
        const RowMetrics rows = filling(twin(),
                                        scene_.mode,
                                        scene_.tracks,
                                        {.memory = memory, .links = links},
                                        height,
                                        heights);
        scene_.layout = layout_rows(twin(), scene_.mode, scene_.tracks, rows);
    } else {
        scene_.layout = {};
    }
    const int content = static_cast<int>(std::ceil(scene_.layout.height));
    verticalScrollBar()->setRange(0, std::max(0, content - height));
    verticalScrollBar()->setPageStep(height);
    verticalScrollBar()->setSingleStep(metrics.height());
    scene_.scroll = verticalScrollBar()->value();
    find_skips();
    viewport()->update();
}

/// The arcs in sight, which depend on the run, the places of its steps, the layout and the view.
void TimelineView::find_skips() {
    scene_.overlay.skips =
        skips_ && has_run() ? arcs_.in_sight(twin(), scene_.places, scene_.layout, scene_.sight())
                            : std::vector<SkipArc>();
}

/// The other end of the selected action, where that is a skip message's. O(actions).
void TimelineView::find_other_end() {
    const std::optional<Span> span =
        has_run() && scene_.selection ? twin().span(*scene_.selection) : std::nullopt;
    scene_.other_end =
        span && span->action.hop != 0 ? partner_of(twin(), *scene_.selection) : std::nullopt;
}

void TimelineView::bring_into_sight(const SpanRef& ref) {
    const std::optional<TimeRange> range = range_of(scene_, ref);
    if (!range) {
        return;
    }
    const double width = scene_.time_width();
    const ViewTransform& seen = destination();
    const double begin = seen.x_of(range->begin);
    const double end = seen.x_of(range->end);
    if (end <= 0 || begin >= width) {
        jump_to(seen.panned((begin + end) / 2 - width / 2));
    }
    const Row* const row = scene_.layout.row_of(ref.side, ref.rank);
    if (row != nullptr && row->y >= scene_.layout.pinned_height) {
        QScrollBar* const bar = verticalScrollBar();
        const int top = static_cast<int>(row->y - scene_.layout.pinned_height);
        const int bottom = static_cast<int>(row->y + row->height) + 1;
        const int height = scene_.size.height() - scene_.ruler_height;
        bar->setValue(std::min(std::max(bar->value(), bottom - height), top));
    }
}

void TimelineView::take_selection() {
    scene_.selection = selection_->span();
    scene_.overlay.end.reset();
    find_other_end();
    if (scene_.alignment == Alignment::Selected) {
        replace_steps();
    }
    announce_selection();
    viewport()->update();
}

/// Qt 6.4 has no announcements for screen readers: a change of the name is read out instead.
void TimelineView::announce_selection() {
    const bool any = has_run() && scene_.selection;
    setAccessibleName(any ? QString::fromStdString(sentence_of(*scene_.run, *scene_.selection))
                          : tr("Timeline, nothing selected"));
}

}  // namespace pipetwin::gui
