// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/schedule/schedule.h"

/// The rows of a plan: which rank has which piece, and what it does in which order.
namespace pipetwin {

struct PlanParts;
struct SettledScenario;

/// Whether the order of the actions was chosen by what they cost: the rows of one plan are then not
/// those of another.
bool rows_follow_costs(const SettledScenario& scenario);

/// The order, or the empty grid of one that is searched for: which is best there follows from the
/// costs of the stages that the grid places. Throws as `scenario_schedule`.
Schedule plan_grid(const SettledScenario& scenario);

/// The rows as they are run, made for the costs and links of `parts`. Throws Error(Infeasible) for
/// rows of a file that break a rule or come to a deadlock.
Schedule lowered_order(const SettledScenario& scenario, Schedule grid, const PlanParts& parts);

}  // namespace pipetwin
