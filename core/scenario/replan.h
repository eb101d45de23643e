#pragma once

#include "core/partition/rank_partition.h"
#include "core/plan/plan.h"

/// A plan after another that differs from it in its costs or links alone: making the rows takes
/// most of the time of a plan.
namespace pipetwin {

/// Whether the order of the actions was chosen by what they cost: the rows of one plan are then not
/// those of another.
bool rows_follow_costs(const SettledScenario& scenario);

/// What make_plan balances where the scenario leaves the partition open (`rank_chain`). Throws as
/// make_plan.
RankChain rank_chain_of(const SettledScenario& scenario,
                        const Model& model,
                        const Profile& profile);

/// As `make_plan` of core/plan/plan.h, with the rows of a plan of a scenario that differs from this
/// one in links and partition alone, and whose rows do not follow costs.
Plan make_plan_with_rows_of(const Plan& other,
                            const SettledScenario& scenario,
                            const Model& model,
                            const Profile& profile);

}  // namespace pipetwin
