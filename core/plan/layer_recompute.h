// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/as_index.h"
#include "core/costs/profile.h"
#include "core/schedule/recompute.h"

/// Recompute of parts of a stage, as Megatron-LM and PyTorch have it.
namespace pipetwin {

class Model;

/// Layers `first` to `end` - 1 of a model.
struct LayerRange {
    int first = 0;
    int end = 0;
};

/// The blocks of a model, without one that has its first or its last layer: the layers that share
/// one numbered name (core/partition/model_blocks.h). Of a model with branches also every layer
/// without such a name, as a block of its own. Throws Error(Infeasible) where the names of a chain
/// tell no blocks.
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
/// In a model with branches all that a layer of a block saves is `rebuilt`; which outputs stay for
/// that, StageTensors (core/plan/stage_tensors.h) says. A block of one layer that saves nothing but
/// what it reads is computed again only in a group of several.
///
/// `keeps` [layer]: the layer's block keeps everything; empty: no block does. It is of chains
/// alone.
///
/// Throws Error(Infeasible) where the model has no blocks.
LayerSamples with_layer_recompute(const Model& model,
                                  LayerSamples samples,
                                  const LayerRecomputeRules& rules,
                                  const std::vector<bool>& keeps = {});

/// Keeps `kept` bytes of what a layer saves; the rest is there again in its backward, which takes
/// `again` longer.
void rebuild(LayerSample& sample, Bytes kept, Duration again);

/// The parts of `blocks` that a stage of layers `first` to `end` - 1 has, in groups of so many from
/// its first one on; the last group may have fewer. Layers count from `first`.
std::vector<LayerRange> block_groups(const std::vector<LayerRange>& blocks,
                                     LayerRange stage,
                                     int blocks_per_group);

/// Place of a layer among the blocks that are computed again together; Alone: it is in none.
enum class InGroup { Alone, Begins, GoesOn };

/// Goes through the layers of a stage, from its first one on, and counts its blocks.
class Groups {
  public:
    Groups(const LayerSamples& samples, int first)
        : samples_(samples), first_(first), layer_(first) {}

    /// The place of the next layer.
    InGroup next() {
        const int layer = layer_++;
        const int together = samples_[as_index(layer)].rebuilt_blocks;
        if (together == 0) {
            return InGroup::Alone;
        }
        if (layer > first_ && samples_[as_index(layer - 1)].rebuilt_with_next) {
            return InGroup::GoesOn;
        }
        return blocks_++ % together == 0 ? InGroup::Begins : InGroup::GoesOn;
    }

  private:
    const LayerSamples& samples_;
    int first_;
    int layer_;
    int blocks_ = 0;  ///< begun in this stage
};

}  // namespace pipetwin
