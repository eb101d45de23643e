// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/as_index.h"
#include "core/partition/partition.h"
#include "core/partition/rank_partition.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/cluster.h"
#include "core/scenario/rank_device.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"

/// What every layer costs at every size of a micro-batch on every kind of device.
namespace pipetwin {

/// Ranks with the same speed share their costs.
struct DeviceKinds {
    std::vector<DeviceSpeed> speeds;  ///< [kind]
    std::vector<int> of_rank;

    /// Index of the kind of a rank's device. Throws std::out_of_range if there is no such rank.
    std::size_t of(int rank) const { return static_cast<std::size_t>(of_rank.at(as_index(rank))); }
};

/// The kinds of device of a cluster, in the order in which its ranks have them.
DeviceKinds device_kinds(const Cluster& cluster);

using CostTable = std::vector<std::vector<LayerSamples>>;  ///< [size of a micro-batch][kind]

/// What the layers cost under the rules; where those of modules depend on pieces of the model, with
/// none of them. Throws Error(BadInput) as `cost_at`, or if a micro-batch would last longer than a
/// step may.
CostTable cost_table(const Model& model,
                     const Profile& profile,
                     const std::vector<int>& micro_batch_sizes,
                     const DeviceKinds& kinds,
                     const LayerRules& rules);

/// What the layers cost before anything is done with what they keep, and before messages of shards.
/// Throws as `cost_table`.
CostTable costs_of_whole_layers(const Model& model,
                                const Profile& profile,
                                const std::vector<int>& micro_batch_sizes,
                                const DeviceKinds& kinds,
                                const LayerRules& rules);

/// `costs_of_whole_layers` under the rules: a cost table. Where rules depend on pieces of the
/// model, no module and no block is computed again.
CostTable under_rules(const Model& model,
                      const Profile& profile,
                      CostTable whole,
                      const LayerRules& rules);

/// An entry of `costs_of_whole_layers` under the rules, with what is done with the modules of each
/// layer.
LayerSamples under_rules(const Model& model,
                         const Profile& profile,
                         LayerSamples samples,
                         const LayerRules& rules,
                         const std::vector<ModulesOfLayer>& modules);

/// What every rank computes for one micro-batch: forward, recompute, where the piece has one, and
/// backward. `samples_of_kind` is a row of the table, `grid` says which rank holds which piece. Two
/// ranks that both hold the same two pieces, as two pipelines of one model have them, count as one,
/// with the slower of their devices.
RankChain rank_chain(const std::vector<LayerSamples>& samples_of_kind,
                     const DeviceKinds& kinds,
                     const Schedule& grid,
                     const RecomputeRules& recompute);

/// The partition whose slowest rank takes the least of its device's time, and of several the most
/// even one that is found (core/partition/rank_partition.h). Throws Error(Infeasible), naming both
/// numbers, if there are fewer layers than pieces.
Partition partition_for(const RankChain& chain);

/// Throws Error(BadInput) if a profile is not one of this model: the text names the first layer
/// that differs, or both numbers of layers.
void require_same_layers(const Model& model, const Profile& profile);

}  // namespace pipetwin
