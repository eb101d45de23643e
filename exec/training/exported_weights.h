// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/units.h"

namespace pipetwin {

class Model;
struct ScenarioParts;

}  // namespace pipetwin

namespace pipetwin::exec {

/// A file of weights is split where it would be larger than this: Hugging Face's own limit.
inline constexpr Bytes hf_shard_bytes{5'000'000'000};

/// What was written of a training.
struct ExportedWeights {
    int steps_done = 0;                ///< of the training, before the checkpoint
    std::filesystem::path checkpoint;  ///< the folder it was read from
    std::vector<std::string> damaged;  ///< newer ones that could not be used, and why
    std::int64_t numbers = 0;          ///< in all tensors
    std::int64_t files = 0;            ///< of weights
};

/// Writes the weights of the newest whole checkpoint in the folder `checkpoints` into the empty
/// folder `to`, as Hugging Face's models have them: config.json, and model.safetensors or, where
/// that would be larger than `most_bytes`, shards and their index. Numbers have the type of the
/// scenario's precision, and the bits of the checkpoint. Tensor by tensor: never more than one
/// parameter is in memory. Throws Error(BadInput) for a model that no family of Hugging Face's is,
/// where there is no checkpoint, or none that is whole and of this scenario, and Error(Io).
ExportedWeights export_weights(const ScenarioParts& scenario,
                               const Model& model,
                               const std::filesystem::path& checkpoints,
                               const std::filesystem::path& to,
                               Bytes most_bytes = hf_shard_bytes);

}  // namespace pipetwin::exec
