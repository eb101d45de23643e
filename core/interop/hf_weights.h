// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/base/units.h"
#include "core/model/decoder_model.h"

namespace pipetwin {

/// Size of a layer's weights in files of weights.
struct LayerWeights {
    Bytes bytes{};
    std::int64_t count = 0;  ///< numbers in the tensors

    bool operator==(const LayerWeights&) const = default;
};

/// Weights of each layer that `estimated_profile` makes of the model, in its order, from headers of
/// safetensors files under the names of Hugging Face's models; a file whose name ends in .json is
/// an index of such files, which names files beneath its folder only. Buffers that are no weights
/// are left out: masks, frequencies of rotary positions, the copy of a tied head, blocks behind the
/// last, what is around a text model. Throws Error(BadInput) for a name that belongs to no layer, a
/// tensor that stands in two files or in none of those that an index names, a layer without a
/// tensor, and a model with an encoder; else as `read_safetensors_header`.
std::vector<LayerWeights> read_weights(const DecoderModel& model,
                                       const std::vector<std::filesystem::path>& files);

}  // namespace pipetwin
