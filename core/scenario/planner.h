// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/costs/profile.h"
#include "core/partition/rank_partition.h"
#include "core/plan/plan.h"
#include "core/scenario/cluster.h"
#include "core/scenario/layer_costs.h"

/// Plans of scenarios, and what they have in common with plans that differ in little: a search
/// makes thousands of one scenario, a what-if one for each move of a slider.
namespace pipetwin {

/// What make_plan balances where the scenario leaves the partition open (`rank_chain`). Throws as
/// make_plan.
RankChain rank_chain_of(const SettledScenario& scenario,
                        const Model& model,
                        const Profile& profile);

/// The costs for the micro-batches, ranks and pieces of a plan of the scenario.
LayerCosts layer_costs(const Plan& plan,
                       const SettledScenario& scenario,
                       const Model& model,
                       const Profile& profile);

/// Makes the plans of one scenario for any partition and recompute. What does not depend on these
/// is worked out once, in the constructor. Steps of a plan, each of which names its result:
///
///     placed --> costed --> cut ----> joined --> summed ------> lowered --> Plan
///     ranks,     layers     pieces,   links      costs and      rows
///     devices               messages             states of
///                                                stages
class Planner {
  public:
    /// What the plans take over in place of their own.
    struct Given {
        /// A plan of a scenario that differs from this one in costs, links and partition alone,
        /// which has the rows; null: rows are made. Read in the constructor and by `plan()`.
        const Plan* rows = nullptr;
        LinkFactors links{};
    };

    /// Keeps references to scenario, model and profile. Throws as make_plan for whatever no
    /// partition can mend, and for the scenario's own partition.
    Planner(const SettledScenario& scenario, const Model& model, const Profile& profile)
        : Planner(scenario, model, profile, Given()) {}
    Planner(const SettledScenario& scenario,
            const Model& model,
            const Profile& profile,
            const Given& given);
    Planner(Planner&&) noexcept;
    ~Planner();

    const LayerCosts& layer_costs() const;

    /// The scenario's plan. Throws as make_plan.
    Plan plan(RowsFrom rows) const;

    /// The scenario's plan with so many layers in each piece, and with this recompute, from
    /// generated rows. None: the partition is the scenario's, or the balanced one. It is made to be
    /// simulated: names of layers and notes are left out. Throws as make_plan.
    Plan plan(const std::optional<std::vector<int>>& layers_per_piece,
              const RecomputeRules& recompute) const;

    /// Likewise, with these modules computed again; the scenario's are `as_needed`.
    Plan plan(const std::optional<std::vector<int>>& layers_per_piece,
              const RecomputeRules& recompute,
              const ModuleLists& modules) const;

    /// The scenario's plan with so many layers in each piece, and with the rows of another of its
    /// plans; with its own where rows follow costs, or where it has other messages. It is made to
    /// be simulated: names of layers and notes are left out. Throws as make_plan.
    Plan plan_with_rows_of(const Plan& other, const std::vector<int>& layers_per_piece) const;

  private:
    struct Common;

    std::unique_ptr<const Common> common_;
};

/// Makes the plan of a scenario with the rows of another plan, whose scenario differs from this one
/// in costs, links and partition alone, and whose rows do not follow costs.
Plan make_plan_with_rows_of(const Plan& other,
                            const SettledScenario& scenario,
                            const Model& model,
                            const Profile& profile);

/// The plan of a scenario if its links were faster: with the rows and the partition of `plan`,
/// which is a plan of this scenario, and the scenario's own capacity of channels. Throws as
/// make_plan.
Plan make_plan_with_faster_links(const Plan& plan,
                                 const SettledScenario& scenario,
                                 const Model& model,
                                 const Profile& profile,
                                 const LinkFactors& factors);

}  // namespace pipetwin
