#pragma once

#include "core/metrics.h"
#include "core/plan.h"
#include "core/timeline.h"

namespace pipetwin::sim {

/// Where a step's time went. Works on predicted and measured timelines alike: durations come from the timeline;
/// the idle time is split by replaying the plan's rows with them (a) with links free and instant, then
/// (b) with every piece at the mean of its kind. Parts sum to the step time exactly.
Breakdown breakdown(const Plan& plan, const Timeline& timeline);

}  // namespace pipetwin::sim
