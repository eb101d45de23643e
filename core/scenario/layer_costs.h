// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/plan/stage_costs.h"
#include "core/scenario/cost_table.h"

/// What the layers of a plan cost, whatever its partition.
namespace pipetwin {

/// Costs of the layers, which plans of one scenario with different partitions have in common.
struct LayerCosts {
    CostTable samples;
    /// Where what is done with modules depends on the pieces of the model: as
    /// `costs_of_whole_layers`, with the rules; else empty.
    CostTable whole{};
    LayerRules rules{};
    /// The weights, with those that both ends share counted once; none where the ends are on
    /// different ranks.
    std::optional<ModelParameters> counted_once;
    int offloaded_blocks = 0;  ///< whose activations are in host memory
    Bytes in_host_memory{};    ///< of a device, at most
};

/// Costs of the layers for micro-batches of these sizes, on the devices of the cluster and with the
/// pieces of `grid`. As few blocks as needed are offloaded, and no more than `cluster.host_memory`
/// holds, where the stack does that and the scenario says "auto". Throws as `cost_table`.
LayerCosts costs_of_layers(const SettledScenario& scenario,
                           const Model& model,
                           const Profile& profile,
                           const std::vector<int>& micro_batch_sizes,
                           const Cluster& cluster,
                           const Schedule& grid);

/// What the training of a scenario keeps of each weight beside the gradient: the slots of its
/// optimizer, one more where it averages the weights, and their bytes, where the scenario says
/// them.
OptimizerState optimizer_state(const ScenarioParts& scenario);

/// What decides how much the stages keep of their weights and how long updates take. Throws as
/// `stack_of`.
WeightRules weight_rules(const SettledScenario& scenario,
                         const Model& model,
                         const Profile& profile,
                         const LayerCosts& costs);

}  // namespace pipetwin
