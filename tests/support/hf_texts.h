// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace pipetwin::testing {

/// Keys of Llama 3 8B's config.json.
inline nlohmann::json llama_config() {
    return {{"model_type", "llama"},
            {"num_hidden_layers", 32},
            {"hidden_size", 4096},
            {"intermediate_size", 14336},
            {"num_attention_heads", 32},
            {"num_key_value_heads", 8},
            {"vocab_size", 128256},
            {"max_position_embeddings", 8192},
            {"tie_word_embeddings", false},
            {"torch_dtype", "bfloat16"}};
}

/// A config.json with some keys replaced or added; null removes one.
inline nlohmann::json with(nlohmann::json config, const nlohmann::json& changes) {
    config.merge_patch(changes);
    return config;
}

/// Four blocks, 16 wide: what a test can count by hand.
inline nlohmann::json small_gpt2() {
    return {{"model_type", "gpt2"},
            {"n_layer", 4},
            {"n_head", 2},
            {"n_embd", 16},
            {"n_positions", 32},
            {"vocab_size", 100},
            {"torch_dtype", "bfloat16"}};
}

}  // namespace pipetwin::testing
