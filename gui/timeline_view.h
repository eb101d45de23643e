#pragma once

#include <optional>

#include <QAbstractScrollArea>
#include <QPoint>

#include "gui/timeline_painter.h"

namespace pipetwin::gui {

/// The timelines on one time axis: shows a run, keeps what is seen of it and what is selected.
///
/// Mouse: the wheel zooms at the cursor (over the labels: scrolls the ranks), with Shift it pans;
/// dragging pans, a click selects. Keys are the main window's: they call the functions below.
class TimelineView : public QAbstractScrollArea {
    Q_OBJECT

  public:
    explicit TimelineView(QWidget* parent = nullptr);

    /// Shows all of `run`, which must outlive the view or be replaced before it dies. Null shows
    /// nothing.
    void show_run(const RunData* run);
    void set_colors(const Palette& palette);

    Sides sides() const { return scene_.sides; }
    void set_sides(Sides sides);

    std::optional<SpanRef> selection() const { return scene_.selection; }
    void select(const std::optional<SpanRef>& ref);

    /// At the mouse where it is over the time area, else at the middle.
    void zoom(double factor);
    /// By a share of what is seen; above 0 to later times.
    void pan(double share);
    void show_whole_run();
    /// Without a selection the same as show_whole_run.
    void fit_selection();

    /// Selects the next (+1) or previous (-1) action of the row, or the first one of all.
    void select_next(int direction);
    /// Selects what runs at the same time one row down (+1) or up (-1).
    void select_in_next_row(int direction);
    /// Goes to the same action on the other side, showing that side if it is hidden.
    void swap_to_twin();

    const ViewTransform& transform() const { return scene_.view; }

    /// Where a span lies on the viewport.
    QRect place_of(const SpanRef& ref) const { return rect_of(scene_, ref); }

  signals:
    void selection_changed();
    void sides_changed();

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
    /// Where the left button went down, and how far the picture has followed since.
    struct Drag {
        QPoint start;
        QPoint last;
        bool moving = false;
    };

    bool has_run() const { return scene_.run != nullptr && !scene_.run->empty(); }
    std::optional<SpanRef> span_at(QPoint position) const;
    void set_view(const ViewTransform& view);
    void relayout();
    void bring_into_sight(const SpanRef& ref);
    void hover(const std::optional<QPoint>& position);
    void announce_selection();

    TimelineScene scene_;
    std::optional<Drag> drag_;
    bool whole_run_ = true;  ///< keep showing all of it when the window grows
};

}  // namespace pipetwin::gui
