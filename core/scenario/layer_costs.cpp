// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/layer_costs.h"

#include <algorithm>

#include "core/model/model.h"
#include "core/plan/layer_recompute.h"
#include "core/plan/offloaded_blocks.h"
#include "core/plan/plan.h"
#include "core/scenario/division.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin {

OptimizerState optimizer_state(const ScenarioParts& scenario) {
    const int averages = scenario.training.average_decay > 0 ? 1 : 0;
    OptimizerState state{.numbers = traits(scenario.training.optimizer).state_slots + averages};
    if (const std::optional<int> written = scenario.training.optimizer_state_bytes) {
        state.bytes = *written + 4 * averages;
    }
    return state;
}

WeightRules weight_rules(const SettledScenario& scenario,
                         const Model& model,
                         const Profile& profile,
                         const LayerCosts& costs) {
    const bool tied_once = costs.counted_once.has_value();
    return {.optimizer = optimizer_state(scenario),
            .devices = scenario.pipeline.tensor_parallel,
            .fp32_gradients = has_fp32_gradients(scenario, profile),
            .gradients_beside_sums = has_gradients_beside_sums(scenario, profile),
            .shards = state_shards(scenario, profile),
            .experts = expert_rules(scenario, profile),
            .prefetch = 2 * scenario.pipeline.prefetch,  // a block has two layers
            .tied = tied_once ? Bytes{} : tied_bytes(model, profile),
            .tied_room = model.is_executable(),
            .tied_update = tied_once ? Duration{} : tied_update(model, profile)};
}

namespace {

/// True if one rank has both ends of the model in several stages. Our executor gives each stage a
/// copy of weights that the ends share; others have them once on a rank.
bool is_tied_on_one_rank(const Model& model, const Schedule& grid) {
    return !model.is_executable() && model_stage_count(grid) == grid.stage_count() &&
           grid.stage_count() > 1 && grid.rank_of_stage.front() == grid.rank_of_stage.back();
}

/// Micro-batches of a row that are alive at once, from F to B or W; at least one.
int alive_at_once(const std::vector<Action>& row) {
    int alive = 0;
    int most = 1;
    for (const Action& action : row) {
        alive += action.op == Op::Forward ? 1 : 0;
        most = std::max(most, alive);
        alive -= action.op == Op::Backward || action.op == Op::BackwardWeight ? 1 : 0;
    }
    return most;
}

/// Whether one stage with these costs fits into the memory of its device.
bool fits_on_one_stage(const SettledScenario& scenario,
                       const Model& model,
                       const Profile& profile,
                       const Cluster& cluster,
                       const LayerCosts& costs,
                       const std::vector<Action>& row) {
    const int layers = model.layer_count();
    const int others = alive_at_once(row) - 1;
    const std::vector<LayerSamples>& samples = costs.samples.front();
    const StageState state = stage_states(tied_counted_once(model, profile),
                                          samples,
                                          Partition({layers}, layers),
                                          weight_rules(scenario, model, profile, costs))
                                 .front();
    Bytes most;
    for (const LayerSamples& of_class : samples) {
        const StageCost cost = StageCosts(model, of_class).of(0, layers);
        most = std::max(
            most,
            cost.saved * others + std::max({cost.saved, cost.forward_peak, cost.backward_peak}));
    }
    const RankDevice& device = cluster.devices().front();
    return device.context + kept_state(state) + state.workspace + state.gathered + most <=
           device.memory_limit.value();
}

}  // namespace

LayerCosts costs_of_layers(const SettledScenario& scenario,
                           const Model& model,
                           const Profile& profile,
                           const std::vector<int>& micro_batch_sizes,
                           const Cluster& cluster,
                           const Schedule& grid) {
    LayerRules rules = cluster.layer_rules();
    const CostTable whole =
        costs_of_whole_layers(model, profile, micro_batch_sizes, device_kinds(cluster), rules);
    const bool tied_once = is_tied_on_one_rank(model, grid);
    const std::vector<Action>& row = grid.ranks.front();
    const auto in_host_memory = [&](int blocks) {
        rules.offloaded_blocks = 0;
        Bytes most;
        const CostTable on_device = under_rules(model, profile, whole, rules);
        for (const LayerSamples& of_class : on_device.front()) {
            most = std::max(most, offloaded_bytes(model, of_class, blocks));
        }
        return most * alive_at_once(row);
    };
    const auto costs_with = [&](int blocks) {
        rules.offloaded_blocks = blocks;
        LayerCosts costs{.samples = under_rules(model, profile, whole, rules),
                         .rules = rules,
                         .counted_once = {},
                         .offloaded_blocks = blocks,
                         .in_host_memory = {}};
        if (rules.modules.depend_on_pieces()) {
            costs.whole = whole;
        }
        if (tied_once) {
            costs.counted_once = tied_counted_once(model, profile);
        }
        return costs;
    };
    const OrAuto<int>& written = scenario.pipeline.offload_blocks;
    LayerCosts costs = costs_with(written.value_or(0));
    const auto fits = [&] {
        return fits_on_one_stage(scenario, model, profile, cluster, costs, row);
    };
    if (!written.is_auto() || !model.is_chain() || !cluster.offloads_as_needed() || fits()) {
        if (costs.offloaded_blocks > 0) {
            costs.in_host_memory = in_host_memory(costs.offloaded_blocks);
        }
        return costs;
    }
    int too_few = 0;
    int enough = static_cast<int>(recomputed_blocks(model).size());
    while (enough - too_few > 1) {
        const int blocks = too_few + (enough - too_few) / 2;
        costs = costs_with(blocks);
        (fits() ? enough : too_few) = blocks;
    }
    const std::optional<Bytes>& host_memory = scenario.cluster.host_memory;
    if (host_memory && in_host_memory(enough) > *host_memory) {
        return costs_with(0);
    }
    costs = costs_with(enough);
    costs.in_host_memory = in_host_memory(enough);
    return costs;
}

}  // namespace pipetwin
