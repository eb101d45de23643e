// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "core/costs/profile.h"
#include "core/plan/plan.h"

namespace pipetwin {

class Model;
struct SettledScenario;

}  // namespace pipetwin

/// The plan with twice as many micro-batches, which shows what more of them would bring.
namespace pipetwin::sim {

/// Returns what `make` makes of twice the micro-batches of `plan`; null where there is no such
/// plan, or where making it would take long: more than 200,000 actions, or an order that is
/// searched for.
std::optional<Plan> with_doubled_micro_batches(const Plan& plan,
                                               const std::function<Plan(int)>& make);

/// Doubles the micro-batches of a scenario's plan, cut as `plan` is. Null as above, and where the
/// schedule comes from a file.
std::optional<Plan> with_doubled_micro_batches(const Plan& plan,
                                               const SettledScenario& scenario,
                                               const Model& model,
                                               const Profile& profile);

}  // namespace pipetwin::sim
