#pragma once

#include <vector>

#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/schedule/recompute.h"

/// Recompute of parts of a stage, as Megatron-LM and PyTorch have it.
namespace pipetwin {

/// Layers `first` to `end` - 1 of a model.
struct LayerRange {
    int first = 0;
    int end = 0;
};

/// The blocks of a model, without one that has its first or its last layer: the layers that share
/// one numbered name (core/partition/model_blocks.h). Throws Error(Infeasible) where no names tell
/// blocks.
std::vector<LayerRange> recomputed_blocks(const Model& model);

/// The samples of all layers with what they keep under the rules. Selective: without `core_saved`.
/// Block: the first layer of a block keeps its input, the others nothing, and all of the block is
/// computed again before its last layer's backward:
///
///     saved            what is kept
///     rebuilt          the rest
///     backward_input   + the forward of what is rebuilt; where recompute stops early, without the
///                      `tail_forward` of a block's last layer
///
/// With several blocks to a group the first layer of a group keeps its input alone. As groups count
/// from the first block of a stage, StageCosts (core/plan/stage_costs.h) adds these inputs.
///
/// Throws Error(Infeasible) where the model has no blocks.
LayerSamples with_layer_recompute(const Model& model,
                                  LayerSamples samples,
                                  const LayerRecomputeRules& rules);

/// The parts of `blocks` that a stage of layers `first` to `end` - 1 has, in groups of so many from
/// its first one on; the last group may have fewer. Layers count from `first`.
std::vector<LayerRange> block_groups(const std::vector<LayerRange>& blocks,
                                     LayerRange stage,
                                     int blocks_per_group);

}  // namespace pipetwin
