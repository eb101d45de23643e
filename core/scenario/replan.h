#pragma once

#include "core/plan/plan.h"

/// A plan after another that differs from it in its costs or links alone: making the rows takes
/// most of the time of a plan.
namespace pipetwin {

/// Whether the order of the actions was chosen by what they cost: the rows of one plan are then not
/// those of another.
bool rows_follow_costs(const SettledScenario& scenario);

/// As `make_plan` of core/plan/plan.h, with the rows of a plan of a scenario that differs from this
/// one in links alone, and whose rows do not follow costs.
Plan make_plan_with_rows_of(const Plan& other,
                            const SettledScenario& scenario,
                            const Model& model,
                            const Profile& profile);

}  // namespace pipetwin
