// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/plan/plan.h"
#include "core/timeline/timeline.h"

namespace pipetwin::sim {

/// Makes a plan whose simulation is a step that is known only by its times, so that what each
/// action waited for can be found (sim/explain/causes.h).
///
/// The rows are those of `step`; `form` says which rank has which stage, and which stages share
/// weights (its own rows are not read). Actions last from `ready` to `end`. Messages take the time
/// that `step.links` shows; where there are none, the latency of a pair of stages is the shortest
/// time from the end of a send to the arrival at a receive that waited for it. The plan has the
/// given channel capacity.
///
/// The simulation of the plan is the step to the nanosecond if that was simulated, nothing was
/// shared between ranks or messages and no stash was copied to host memory. Throws Error as
/// Plan::make: where the rows break a rule, or the step lasts too long. O(actions).
Plan plan_of_step(const Timeline& step, Schedule form, std::optional<int> channel_capacity);

}  // namespace pipetwin::sim
