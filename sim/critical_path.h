#pragma once

#include <vector>

#include "core/plan.h"
#include "core/timeline.h"

namespace pipetwin::sim {

struct CriticalStep {
    Action action;
    int rank = 0;
    Duration begin{};
    Duration end{};
};

/// One longest chain of actions from the start of the step to its end, through row order and messages: each step's end is
/// what its successor waited for. Ties: the row's own predecessor first. Predicted timelines.
std::vector<CriticalStep> critical_path(const Plan& plan, const Timeline& timeline);

}  // namespace pipetwin::sim
