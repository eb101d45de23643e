// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/timeline/compare.h"

namespace pipetwin {

class Model;
class Plan;
struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::accuracy {

/// A plan made from a fresh profile, and its settled capacity.
Plan profiled_plan(const SettledScenario& scenario, const Model& model);

/// Predicts a step of the plan, then runs `steps` of them on random data through the noise gate.
Comparison predicted_against_measured(const Plan& plan,
                                      const Model& model,
                                      const SettledScenario& scenario,
                                      int steps);

}  // namespace pipetwin::accuracy
