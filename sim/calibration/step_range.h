#pragma once

#include <optional>
#include <string>

#include "core/base/units.h"
#include "core/costs/estimate_error.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin::sim {

/// Between what factors on the predicted step of a scenario's plan a measured one is to be
/// expected; none where the costs were measured or imported, and for estimates of a model with
/// routed experts, as no published run of one was compared.
std::optional<ErrorRange> step_range(const Plan& plan,
                                     const SettledScenario& scenario,
                                     const Profile& profile);

/// "110 to 150 ms": a predicted step times the factors of a range, in the unit that the step has.
std::string range_text(Duration step, const ErrorRange& range);

}  // namespace pipetwin::sim
