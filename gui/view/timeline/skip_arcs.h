// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/svg/skip_curves.h"
#include "gui/view/timeline/step_places.h"

/// Arcs of skip messages over the rows: which are drawn, and where.
namespace pipetwin::gui {

/// A skip message of a step of one side, by the places of its send and its receive.
struct SkipMessage {
    int from_rank = 0;
    int send = 0;  ///< cell
    int to_rank = 0;
    int receive = 0;        ///< cell
    bool gradient = false;  ///< it carries a gradient, to an earlier stage

    bool operator==(const SkipMessage&) const = default;
};

/// True if a row of the run has a send or receive of a skip message. O(stages).
bool has_skip_messages(const Twin& twin);

/// The skip messages of a step that are sent and received in its rows, receiver by receiver.
/// O(actions).
std::vector<SkipMessage> skip_messages(const StepRows& rows);

/// The arc of a skip message: a curve from the end of its send to the end of its receive. Its x
/// counts pixels from the left edge of the time area, its y from the top of the rows as they are
/// scrolled.
struct SkipArc {
    SpanRef send;
    SpanRef receive;
    svg::SkipCurve curve;
};

/// The part of the rows that is seen.
struct Sight {
    ViewTransform view;
    double width = 0;   ///< of the time area, in pixels
    double height = 0;  ///< of the rows, in pixels
    double scroll = 0;  ///< by how much the rows are moved up, in pixels
};

/// Width of the mean F, B, I, W or R of a step, in pixels, from which on the arcs of the step are
/// drawn: that of a letter.
inline constexpr double narrowest_with_arcs = 10;

/// The arc from a send to its receive, however narrow its actions are; none where a row of the two
/// is not shown.
std::optional<SkipArc> arc_between(const Twin& twin,
                                   const StepPlaces& places,
                                   const RowLayout& layout,
                                   const Sight& sight,
                                   const SpanRef& send,
                                   const SpanRef& receive);

/// Finds the arcs of a run, and remembers the messages of the steps in sight.
class SkipArcs {
  public:
    /// The arcs that are drawn: those of steps whose mean action is wide enough, of which one end
    /// is in sight. Of more than svg::most_curves some are left out, as svg::curves_apart says.
    std::vector<SkipArc> in_sight(const Twin& twin,
                                  const StepPlaces& places,
                                  const RowLayout& layout,
                                  const Sight& sight);

    /// Forgets the messages. Call it when the run is another one.
    void forget() {
        any_.reset();
        messages_.clear();
    }

  private:
    std::optional<bool> any_;  ///< whether the run has skip messages; none: not known yet
    std::map<const StepRows*, std::vector<SkipMessage>> messages_;
};

}  // namespace pipetwin::gui
