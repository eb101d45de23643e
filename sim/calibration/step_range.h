// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/base/units.h"
#include "core/costs/estimate_error.h"

namespace pipetwin {

class Plan;
struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::sim {

/// What a run of the scenario has in common with others; without a name.
MeasuredLayout layout_of_run(const SettledScenario& scenario, const Profile& profile);

/// Between what factors on the predicted `step` of a scenario's plan a measured one is to be
/// expected; none where the costs were measured or imported, and where `lacks_runs`. Names a device
/// of the plan that no published run of its kind was on. Not below `time_of_kernels`.
std::optional<ErrorRange> step_range(const Plan& plan,
                                     const SettledScenario& scenario,
                                     const Profile& profile,
                                     Duration step);

/// What the busiest rank of a plan computes in a step, without messages, times `sustained`: no step
/// is shorter where products reach what their kernels do alone, and that share of it in training.
Duration time_of_kernels(const Plan& plan, double sustained);

/// Whether there is no range because the costs are estimates without a stack of a model with routed
/// experts, of which no published run was compared, and no measured run has corrected them.
bool lacks_runs(const Plan& plan, const Profile& profile);

/// "110 to 150 ms": a predicted step times the factors of a range, in the unit that the step has.
std::string range_text(Duration step, const ErrorRange& range);

}  // namespace pipetwin::sim
