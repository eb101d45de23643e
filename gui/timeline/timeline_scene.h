// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include <QFont>
#include <QRect>
#include <QSize>
#include <QString>

#include "gui/base/palette.h"
#include "gui/view/run/run_data.h"
#include "gui/view/timeline/skip_arcs.h"
#include "gui/view/timeline/step_places.h"
#include "gui/view/timeline/timeline_layout.h"

namespace pipetwin::gui {

/// A stretch of the run's time axis.
struct TimeRange {
    Duration begin{};
    Duration end{};

    bool operator==(const TimeRange&) const = default;
};

/// An arrow from an action to the one that waited for it.
struct Arrow {
    SpanRef from;
    SpanRef to;

    bool operator==(const Arrow&) const = default;
};

/// Marks that lie over the rows.
struct Overlay {
    std::vector<Arrow> arrows{};
    std::vector<SkipArc> skips{};     ///< skip messages, below the names of the actions
    std::vector<SpanRef> chain{};     ///< outlined: what the selection waited for
    std::vector<SpanRef> critical{};  ///< underlined: the longest chain of a step
    std::vector<SpanRef> found{};     ///< outlined: what a search has found
    std::vector<Duration> marks{};    ///< of the axis
    std::optional<SpanRef> end{};     ///< outlined: the time after the last action of a rank
    std::optional<TimeRange> range{};
    std::optional<TimeRange> ruler{};  ///< a distance that was measured
    bool bubbles = false;              ///< idle time stands out
};

/// Everything that decides what the timeline looks like. The same scene gives the same pixels.
///
///     +--------------+------------------------------------------+
///     | utilisation  | step 3                        | step 4    |  ruler_height
///     |              | 0 ms        10 ms        20 ms           |
///     +--------------+------------------------------------------+
///     |      predicted| F0 F1 F2 F3 ///////// B3 B2 B1 B0        |  rows, moved up by `scroll`
///     | rank 0        | errors                                   |  but for those of pinned ranks
///     |      measured | F0 F1  F2 F3 ////////  B3 B2  B1 B0      |
///     |      memory   |  __--~~~~~~~~~~~~~~~~~~~~~~--__          |
///     +--------------+------------------------------------------+
///       label_width
struct TimelineScene {
    const RunData* run = nullptr;  ///< null paints an empty area
    Palette palette;
    Mode mode{};
    Alignment alignment{};
    Tracks tracks;
    StepPlaces places;
    ViewTransform view;
    RowLayout layout;
    Overlay overlay;
    std::optional<SpanRef> selection;
    std::optional<SpanRef> other_end;  ///< of the selection, where that is a skip message's
    std::optional<SpanRef> hovered;
    std::optional<int> cursor_x;  ///< of the time area: a line with the time at the mouse
    QSize size;
    int label_width = 0;
    bool has_figures = true;  ///< whether the labels show utilisation and memory
    int ruler_height = 0;
    int scroll = 0;

    int time_width() const { return size.width() - label_width; }
    bool has_run() const { return run != nullptr && !run->empty(); }

    /// The steps that are seen in the time area, first to last; at least one in a run.
    struct Steps {
        int first = 0;
        int last = -1;
    };
    Steps steps_in_sight() const;

    /// The part of the rows that is seen.
    Sight sight() const;

    /// The rectangle of a place of the layout, in pixels of the scene.
    QRect rect_at(double y, double height) const;
    int x_of(Duration on_axis) const;  ///< a little outside the scene where it is far outside
};

/// The rectangle of a span on the scene, at least a pixel wide; empty where its row is not shown.
/// The cell after the last one of a row is the time that is left of the step.
QRect rect_of(const TimelineScene& scene, const SpanRef& ref);

/// Begin and end of a span on the axis, or of the time after the last one of a row; none where
/// there is no such span.
std::optional<TimeRange> range_of(const TimelineScene& scene, const SpanRef& ref);

}  // namespace pipetwin::gui
