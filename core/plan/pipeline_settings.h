// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/base/or_auto.h"
#include "core/costs/collectives/all_reduce.h"
#include "core/costs/layer_division.h"
#include "core/grid/device_grid.h"
#include "core/schedule/lower.h"
#include "core/schedule/receives.h"
#include "core/schedule/recompute.h"

namespace pipetwin {

/// What goes to host memory between a forward and its backward.
enum class Offload { None, Stash };

/// Replicas that divide among them what pipeline.shard says; each group has a whole copy.
struct ShardGroup {
    bool of_node = false;  ///< those of a rank that are on one node
    int replicas = 0;      ///< else so many; 0: all

    bool is_all() const { return !of_node && replicas == 0; }
    bool operator==(const ShardGroup&) const = default;
};

/// The keys of [pipeline] that no search has to settle: they have a value from the start, or, as
/// partition and channel capacity, every plan finds its own.
struct PipelineSettings {
    int group_size = 0;        ///< interleaved-1f1b; 0: as many as ranks
    int deferred_weights = 0;  ///< W that a rank may put off into its waits; 0: as scheduled
    MessageOrder message_order = MessageOrder::AsScheduled;
    Receives receives = Receives::Posted;  ///< that a schedule file has
    int file_pieces = 0;  ///< of a schedule file: pieces of the model; 0: stages x chunks
    LayerRecompute layer_recompute = LayerRecompute::None;  ///< "selective" and "block"
    int recompute_blocks = 1;           ///< "block": of a stage, that are computed again together
    bool recompute_early_stop = false;  ///< "block": as LayerRecomputeRules::stops_early
    int recompute_only = 0;  ///< "block": so many first blocks of each stage alone; 0: all
    Offload offload = Offload::None;
    /// Blocks, from the first one on, whose activations go to host memory; auto: as the stack does.
    OrAuto<int> offload_blocks;
    OrAuto<std::vector<int>> partition;  ///< as written: layers or whole blocks
    OrAuto<int> channel_capacity;
    AllReduceKind all_reduce = AllReduceKind::Fastest;
    bool overlap_reduction = false;  ///< reductions go on beside later actions of the rank
    OrAuto<bool> overlap_gather;     ///< weights are gathered beside the next step's forwards
    ShardGroup shard_group{};
    OrAuto<bool>
        tensor_overlap;  ///< messages of devices that share a layer; auto: as the costs say
    ContextMethod context_method = ContextMethod::Ring;
    ExpertDispatch expert_dispatch = ExpertDispatch::Nccl;
    std::vector<OffloadModules> offload_modules{};  ///< none, of all stages, or of each piece
    double offload_fraction = 1;                    ///< of the blocks of a stage, its first ones
    /// By which devices are numbered; none: as the placement of the cluster says.
    std::optional<AxisOrder> order{};
    int prefetch = 1;  ///< Shard::Weights: blocks whose weights are gathered before they are needed

    bool operator==(const PipelineSettings&) const = default;
};

}  // namespace pipetwin
