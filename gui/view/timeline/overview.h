// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gui/view/run/twin.h"
#include "gui/view/timeline/step_places.h"

namespace pipetwin::gui {

/// Share of the time in which the ranks compute, on average: `pixels` values from 0 to 1 over the
/// whole axis of the run. O(ranks * pixels), and a little more for each step.
std::vector<float> utilisation_over_run(const Twin& twin,
                                        const StepPlaces& places,
                                        Side side,
                                        int pixels);

/// Use of the time in a stretch of the axis, on one side, as the mean over the ranks; exact.
struct RangeUse {
    Duration length{};  ///< of the stretch, as far as steps of this side lie in it
    Duration compute{};
    Duration wait{};    ///< for messages, room and stashes
    Duration update{};  ///< reductions, norms, updates
    Duration message{};
    Duration idle{};  ///< the rest

    double busy_share() const;    ///< compute / length; 0 for nothing
    double bubble_share() const;  ///< share of what is neither compute nor update
};
/// Sums up the use of the time between two times of the axis.
RangeUse use_of_range(
    const Twin& twin, const StepPlaces& places, Side side, Duration begin, Duration end);

}  // namespace pipetwin::gui
