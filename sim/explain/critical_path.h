// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/timeline/timeline.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::sim {

/// One piece of the chain: an action on its rank, or a send's message on its way (then `end` is its
/// arrival, or the moment at which the message behind it could leave), or the copy of the stash
/// that an F has made to host memory, of that which another action needs back.
struct CriticalStep {
    Action action;
    int rank = 0;
    Duration begin{};
    Duration end{};
    bool host_copy = false;
};

/// One longest chain from the start of the step to its end, through row order, messages,
/// back-pressure and copies of stashes: each piece begins when the one before ends, so their
/// lengths sum to the step time. Pieces without length are left out. Of several chains the one that
/// stays in its row wherever it can; it ends on the lowest rank that ends last. For timelines of
/// `simulate(plan)`.
std::vector<CriticalStep> critical_path(const Plan& plan, const Timeline& timeline);

}  // namespace pipetwin::sim
