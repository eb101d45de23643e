// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/costs/profile.h"
#include "core/partition/rank_partition.h"
#include "core/plan/plan.h"
#include "core/scenario/cluster.h"
#include "core/scenario/cost_table.h"

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

/// Costs of the layers, which plans of one scenario with different partitions have in common.
struct LayerCosts {
    CostTable samples;
    /// The weights, with those that both ends share counted once; none where the ends are on
    /// different ranks.
    std::optional<ModelParameters> counted_once;
};
/// The costs for the micro-batches, ranks and pieces of a plan of the scenario.
LayerCosts layer_costs(const Plan& plan,
                       const SettledScenario& scenario,
                       const Model& model,
                       const Profile& profile);

/// Makes the plan of a scenario with the rows of another plan, whose scenario differs from this
/// one in links and partition alone, and whose rows do not follow costs. `costs`: those of the
/// layers, where the two scenarios differ in the partition alone; null: they are computed.
Plan make_plan_with_rows_of(const Plan& other,
                            const SettledScenario& scenario,
                            const Model& model,
                            const Profile& profile,
                            const LayerCosts* costs = nullptr);

/// The plan of a scenario if its links were faster: with the rows and the partition of `plan`,
/// which is a plan of this scenario, and the scenario's own capacity of channels. Throws as
/// make_plan.
Plan make_plan_with_faster_links(const Plan& plan,
                                 const SettledScenario& scenario,
                                 const Model& model,
                                 const Profile& profile,
                                 const LinkFactors& factors);

}  // namespace pipetwin
