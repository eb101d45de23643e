// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/costs/collectives/link_cost.h"
#include "core/costs/profile.h"

namespace pipetwin {

class Model;

/// The samples of the layers of a chain where the first `blocks` blocks
/// (core/plan/layer_recompute.h) hand what they keep for their backward to host memory, as
/// Transformer Engine's offloading does: two of these blocks are on the device at a time, the one
/// that computes and the one whose copy is on its way. A forward or backward of a block takes the
/// longer of its computation and its copy. `host_link`: none: copies take no time. Throws
/// Error(Infeasible) where the names of the layers tell no blocks.
LayerSamples with_offloaded_blocks(const Model& model,
                                   LayerSamples samples,
                                   int blocks,
                                   const std::optional<LinkCost>& host_link);

/// What these blocks hand to host memory for one micro-batch; `samples` as before.
Bytes offloaded_bytes(const Model& model, const LayerSamples& samples, int blocks);

}  // namespace pipetwin
