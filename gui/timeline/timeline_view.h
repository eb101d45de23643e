// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <QAbstractScrollArea>
#include <QPoint>
#include <QVariantAnimation>

#include "gui/timeline/selection.h"
#include "gui/timeline/timeline_painter.h"

namespace pipetwin::gui {

/// QWheelEvent::angleDelta of one notch of a wheel, in eighths of a degree.
inline constexpr double wheel_notch = 120;
/// Factor by which times are drawn larger for each notch.
inline constexpr double zoom_per_notch = 1.2;

/// The timelines on one time axis: shows a run, and keeps what part of it is seen. What is selected
/// stands in the Selection.
///
/// Mouse: the wheel scrolls the ranks, with Ctrl it zooms at the cursor, with Shift it pans;
/// dragging selects a range, with the middle button it pans, with Ctrl it measures; a click selects
/// an action, on a rank's name folds it. Keys are the main window's: they call the functions below.
class TimelineView : public QAbstractScrollArea {
    Q_OBJECT

  public:
    /// `selection` must outlive the view.
    explicit TimelineView(Selection* selection, QWidget* parent = nullptr);

    /// Shows the main step of `run`. Null shows nothing. The selection is cleared.
    void show_run(std::shared_ptr<const RunData> run);

    /// Goes on with another state of the same run: what is seen, selected, pinned and folded stays.
    void update_run(std::shared_ptr<const RunData> run);

    void set_colors(const Palette& palette);

    Mode mode() const { return scene_.mode; }
    void set_mode(Mode mode);
    Alignment alignment() const { return scene_.alignment; }
    void set_alignment(Alignment alignment);
    bool shows_memory() const { return memory_; }
    void set_memory(bool shown);
    bool shows_links() const { return links_; }
    void set_links(bool shown);
    /// Sets whether arcs of skip messages are drawn where actions are wide enough.
    void set_skips(bool shown);
    bool shows_skips() const { return skips_; }
    bool shows_bubbles() const { return scene_.overlay.bubbles; }
    void set_bubbles(bool shown);

    const Tracks& tracks() const { return scene_.tracks; }
    void set_tracks(Tracks tracks);
    /// Pins or frees the rank of the selection, else the one under the mouse.
    void toggle_pin();
    /// Folds or unfolds the rank of the selection, else the one under the mouse.
    void toggle_fold();

    /// Sets the outlined actions and the arrows that the panels lay over the rows.
    void set_chain(std::vector<SpanRef> chain, std::vector<Arrow> arrows);
    /// Outlines the time after the last action of a rank, or no longer does.
    void outline_end(const std::optional<SpanRef>& end);
    void set_critical(std::vector<SpanRef> critical);
    void set_found(std::vector<SpanRef> found);

    /// Selects an action and brings it into sight.
    void go_to(const SpanRef& ref);
    /// Selects an action and brings it into sight; zooms in where it would be too narrow to be
    /// read.
    void show_action(const SpanRef& ref);

    /// Brings an action into sight, and leaves the selection as it is.
    void look_at(const SpanRef& ref);

    /// Sets whether changes of the view are animated, for the time that the style has for it; they
    /// are not where the style or the user wants no animation.
    void set_animated(bool animated) { animated_ = animated; }
    /// The view that is seen when it has come to rest.
    const ViewTransform& destination() const {
        return flight_.state() == QAbstractAnimation::Running ? destination_ : scene_.view;
    }

    /// Zooms at the mouse where it is over the time area, else at the middle.
    void zoom(double factor);
    /// Pans by a share of what is seen; above 0 to later times.
    void pan(double share);
    void show_whole_run();
    void show_step(int step);
    void show_range(const TimeRange& range);
    /// Shows a range without margins, and without a way back to what was seen before.
    void show_exactly(const TimeRange& range);
    /// Centres the selected action; if it is centred already, zooms so that it fills the window.
    /// Without a selection shows the whole run.
    void centre_or_fit_selection();

    /// Shows what was seen before the last jump.
    void go_back();
    /// Shows what was seen before `go_back`.
    void go_forward();

    /// Selects the next (+1) or previous (-1) action of the row, or the first one of all.
    void select_next(int direction);
    /// Selects the action that runs at the same time one row down (+1) or up (-1).
    void select_in_next_row(int direction);
    /// Goes to the same action on the other side, showing that side if it is hidden.
    void swap_to_twin();
    /// Makes the times of the selected action the selected range.
    void select_range_of_action();
    /// Adds a mark at the selected action's begin, else at the mouse, else in the middle.
    void add_mark();
    void clear_marks();
    /// Clears the selection, the range and the ruler; the marks stay.
    void clear();

    /// The step in the middle of the window.
    int current_step() const;

    const TimelineScene& scene() const { return scene_; }
    const ViewTransform& transform() const { return scene_.view; }

    /// The action at a place of the viewport.
    std::optional<SpanRef> span_at(QPoint position) const;
    /// The idle time at a place of the viewport, by the action that it ends at (gui/view/timeline/
    /// step_places.h).
    std::optional<SpanRef> idle_at(QPoint position) const;

    /// The rectangle of a span on the viewport.
    QRect place_of(const SpanRef& ref) const { return rect_of(scene_, ref); }

  signals:
    void run_changed();  ///< or where its steps stand
    void mode_changed();
    void view_changed();
    void tracks_changed();
    void overlay_changed();  ///< the critical path
    /// A click on the time after the last action of a rank: `end.cell` is the length of its row.
    void end_of_step_clicked(const SpanRef& end);

  protected:
    bool viewportEvent(QEvent* event) override;
    void paintEvent(QPaintEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void wheelEvent(QWheelEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mouseReleaseEvent(QMouseEvent* event) override;
    void changeEvent(QEvent* event) override;
    void scrollContentsBy(int dx, int dy) override;

  private:
    enum class DragKind { Select, Pan, Measure };

    /// The place where a button went down, and how far the picture has followed since.
    struct Drag {
        DragKind kind{};
        QPoint start;
        QPoint last;
        Duration from{};
        bool moving = false;
    };

    /// The part of the run that stays in sight: a step, the whole run of several, or neither.
    struct Kept {
        std::optional<int> step;
        bool whole_run = false;
    };

    bool has_run() const { return scene_.has_run(); }
    Kept what_is_kept() const;
    const Twin& twin() const { return scene_.run->twin; }
    std::optional<int> rank_at(QPoint position) const;
    std::optional<int> rank_in_question() const;
    void set_view(const ViewTransform& view);
    void show_view(const ViewTransform& view);
    /// Sets the view with an animation.
    void move_to(const ViewTransform& view);
    /// Sets the view, and remembers the one before for `go_back`.
    void jump_to(const ViewTransform& view);
    void remember_view();
    void lay_out_labels();
    void relayout();
    void replace_steps();
    void bring_into_sight(const SpanRef& ref);
    void hover(const std::optional<QPoint>& position);
    void follow_drag(QPoint position);
    void select_at(QPoint position);
    template <class Find>
    std::optional<SpanRef> find_at(QPoint position, Find ask) const;
    void find_skips();
    void find_other_end();
    void take_selection();
    void announce_selection();
    template <class Change>
    void change_track(Change change);

    Selection* selection_;
    std::shared_ptr<const RunData> run_;
    TimelineScene scene_;
    std::optional<Drag> drag_;
    std::optional<QPoint> mouse_;
    bool memory_ = true;
    bool links_ = false;
    bool skips_ = true;
    SkipArcs arcs_;
    /// Keep showing all of this when the window grows: until the user moves.
    std::optional<TimeRange> kept_in_sight_;
    bool animated_ = false;
    QVariantAnimation flight_;  ///< from 0 to 1
    ViewTransform departure_;
    ViewTransform destination_;
    std::vector<ViewTransform> back_;
    std::vector<ViewTransform> forward_;
};

}  // namespace pipetwin::gui
