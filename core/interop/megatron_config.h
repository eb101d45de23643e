// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/interop/megatron_flags.h"

namespace pipetwin {

/// A model in the flags of Megatron-LM (megatron/training/arguments.py and the fields of
/// megatron/core/transformer/transformer_config.py).
struct MegatronModelFlags {
    MegatronFlags flags{};               ///< sizes, norms, biases, experts; no split, no batch
    std::vector<std::string> further{};  ///< whole flags that `MegatronFlags` has no member for
    std::vector<std::string> missing{};  ///< "key = value: why", where Megatron-LM has no flag
};

/// The flags of the model of a Hugging Face config.json, with samples of `sequence` tokens. Where
/// `missing` is empty, Megatron-LM builds a model with as many parameters. The vocabulary is that
/// of the file, which Megatron pads. Throws Error(BadInput) as `parse_hf_config`, and for a key
/// whose value is none.
MegatronModelFlags megatron_model_flags(std::string_view config,
                                        std::string_view place,
                                        int sequence);

}  // namespace pipetwin
