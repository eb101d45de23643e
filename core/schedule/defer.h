// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"
#include "core/schedule/schedule.h"

namespace pipetwin {

/// Costs that decide where a weight gradient fits. One entry per stage.
struct DeferralCosts {
    std::vector<Duration> forward;
    std::vector<Duration> backward_input;  ///< with the recompute before it, where there is one
    std::vector<Duration> backward_weight;
    Duration latency{};    ///< of a message between two ranks
    int most_waiting = 0;  ///< W that a rank may put off at a time; 0: as many as it likes
};

/// Splits every backward and moves each W to where its rank would wait, the oldest first; what fits
/// nowhere follows the rank's last I. The order of F and I stays as it is:
///
///     1f1b       F F F B . B . B B         B = I and W
///     deferred   F F F I W I W I I W W
///
/// Tries several widths of gap that a W may take and keeps the best order, so the pipeline never
/// takes longer than with the order that it was given. A deferred W keeps its stash: `most_waiting`
/// bounds what this costs. `schedule` has compute actions only and is valid; overlapped pairs stay
/// as they are. Throws InternalError if the costs do not have one entry per stage.
/// O(actions * log ranks).
///
/// Source: the deferral is that of Qi et al., "Zero Bubble Pipeline Parallelism" (2023), for any
/// order.
Schedule defer_weight_gradients(const Schedule& schedule, const DeferralCosts& costs);

}  // namespace pipetwin
