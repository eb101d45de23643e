// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/layer_spec.h"

namespace pipetwin {

struct Layer;

/// A batch norm, wherever it stands in a model.
struct PlacedBatchNorm {
    std::string name;  ///< with those of the layers that hold it: "block3.bn1"
    LayerSpec spec;
    SampleShape input;
};

/// The batch norms of a layer, itself or inside it, in their order.
std::vector<PlacedBatchNorm> batch_norms_of(const Layer& layer);

/// Bytes that what a layer keeps from step to step beside its weights takes, as the executor has
/// it, with what that follows within a step: a bias of each expert, and their loads, in two fp64
/// numbers; and of batch norms the running statistics: mean and variance of each channel in numbers
/// of `number_bytes`, and an int32 that counts updates; then the moments of the mini-batch, two
/// fp64 numbers a channel, or, where not deferred, the running statistics once more.
std::int64_t running_bytes_of(const Layer& layer, std::int64_t number_bytes);

}  // namespace pipetwin
