// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/timeline/timeline.h"
#include "sim/engine/conditions.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::sim {

/// The costs of a measured step as a replay needs them: an action lasts from the end of what its
/// rank did before to its own end, waits for messages left out. So the gaps between spans (the
/// host's work around an action) are in it, which `conditions_of` leaves to the breakdown's
/// overhead. Links are the plan's. Throws InternalError if the rows differ in length.
Conditions own_conditions(const Plan& plan, const Timeline& measured);

/// The step time of a measured step simulated from its own durations. Its distance from the step
/// time that was measured is the error of the simulator alone: of the way in which rows, messages
/// and waits act on each other. The rest of a prediction's error is that of the costs.
Duration replay_of_own_durations(const Plan& plan, const Timeline& measured);

}  // namespace pipetwin::sim
