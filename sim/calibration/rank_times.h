// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace pipetwin {

struct Timeline;

}  // namespace pipetwin

namespace pipetwin::sim {

/// Times of one rank in a step that timers of training programs measure, in seconds.
struct RankTimes {
    double forward = 0;   ///< sum of its forwards
    double backward = 0;  ///< sum of its backwards, with what is computed again
    /// From the first action of the step until its gradients are summed, or until its last action
    /// in a step without an update.
    double pipeline = 0;
    double update = 0;  ///< norm of the gradients, and the optimizer's update

    bool operator==(const RankTimes&) const = default;
};

/// The times of each rank of the first replica: [rank].
std::vector<RankTimes> rank_times(const Timeline& timeline);

/// The most of each time over the ranks.
RankTimes longest_times(const Timeline& timeline);

}  // namespace pipetwin::sim
