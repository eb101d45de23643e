// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "core/interop/hf_keys.h"
#include "core/model/decoder_model.h"

/// The families of language models that a config.json can name. A new family is a row of the table
/// in hf_families.cpp; hf_config.cpp reads every row the same way.
namespace pipetwin {

/// Feed-forward halves that are mixtures of experts.
struct HfExperts {
    HfSize count{};  ///< without a key the family has none; 0: this model has none
    HfSize per_token{{"num_experts_per_tok"}};
    HfSize width{{"moe_intermediate_size"}};  ///< inner width of an expert
    HfSize shared{};        ///< how many of that width every token goes through besides
    HfSize shared_width{};  ///< or the inner width of what every token goes through
    bool shared_gate = false;
    bool bias = false;
    bool router_bias = false;
    HfSize dense_first{};         ///< so many blocks at the beginning have none
    HfSize every_from_first{};    ///< n: blocks 0, n, 2 n, ... have them; or a list of 0 and 1
    HfSize every_from_nth{};      ///< n: blocks n - 1, 2 n - 1, ... have them
    std::string_view without{};   ///< key of a list of blocks that have none
    std::string_view with{};      ///< key of a list of the blocks that have them
    std::string_view by_block{};  ///< key of a list of "dense" and "sparse", one per block
};

/// Blocks whose queries see a window of the tokens before them. A list "layer_types" goes first.
struct HfWindow {
    HfSize size{};  ///< without a key the family has none
    HfFlag used{{}, true};
    HfSize first_block{{}, 0};  ///< the blocks before it see all
    HfSize full_every{{}, 0};   ///< n: blocks n - 1, 2 n - 1, ... see all
};

/// Gated delta rule in place of attention, in all blocks but each n-th.
struct HfLinearAttention {
    HfSize key_heads{};  ///< without a key the family has none
    HfSize key_width{};
    HfSize value_heads{};
    HfSize value_width{};
    HfSize convolution{};
    HfSize full_every{};
};

/// One row: what the keys of a family mean, and what is the same for all of its models. A member
/// that a row does not set is Llama's.
struct HfFamily {
    std::string_view type{};  ///< the word of "model_type"

    HfSize blocks{{"num_hidden_layers"}};
    int (*count_blocks)(const HfConfig& config) = nullptr;  ///< in place of `blocks`
    bool has_own_kinds = false;  ///< `finish` reads which block is of which kind
    HfSize width{{"hidden_size"}};
    HfSize vocabulary{{"vocab_size"}};
    HfSize context{{"max_position_embeddings"}, 0};
    HfSize feed_forward{{"intermediate_size"}};  ///< derived: 4 x width
    HfSize heads{{"num_attention_heads"}};
    HfSize key_value_heads{{"num_key_value_heads"}};  ///< derived: as many as heads
    HfSize head_width{{"head_dim"}, hf_derived};      ///< derived: width / heads
    HfFlag tied{{"tie_word_embeddings"}, false};

    HfFlag input_bias{{"attention_bias"}};   ///< queries, keys, values
    HfFlag output_bias{{"attention_bias"}};  ///< the projection behind them
    HfFlag feed_forward_bias{{"mlp_bias"}};
    HfFlag head_bias{};
    HfFlag head_norms{};       ///< of queries and keys, with gains that all heads share
    HfFlag own_norms{};        ///< of queries and keys, with a gain for every number of all heads
    bool value_norms = false;  ///< of values, without gains
    HfFlag output_gate{};
    bool sinks = false;
    bool latent = false;   ///< keys of DeepSeek-V2's attention
    bool indexer = false;  ///< and of DeepSeek-V3.2's

    bool gated = true;
    int activation_parameters = 0;
    bool norm_gain = true;
    bool norm_bias = false;
    int attention_norms = 1;             ///< as wide as the model
    int feed_forward_norms = 1;          ///< 0: both halves read the same norm
    bool norm_behind_attention = false;  ///< files call it post_attention_layernorm
    bool embedding_norm = false;

    bool rotary = true;
    bool learned_positions = false;  ///< as many as `context`
    int position_padding = 0;
    HfSize distance_buckets{};  ///< rows of a table of numbers per head; without a key none
    bool distances_in_every_block = false;  ///< else the first block's table is that of all
    std::vector<std::string_view>
        dropout{};  ///< keys of probabilities of dropout, of which one counts

    HfWindow window{};
    HfLinearAttention linear{};
    HfExperts experts{};
    HfSize prediction_blocks{};
    HfSize encoder_blocks{};  ///< of an encoder before the decoder, as in T5; without a key none

    std::vector<std::string_view> known{};  ///< keys whose meaning is in the row already

    /// What no key says alone; null: nothing. Called when everything else is read.
    void (*finish)(const HfConfig& config, DecoderModel& model) = nullptr;
};

/// The names of all keys of a row.
std::vector<std::string_view> hf_keys_of(const HfFamily& family);

/// All rows, each model_type once, in the order in which errors list them.
const std::vector<HfFamily>& hf_families();

/// The row of a model_type; null if there is none.
const HfFamily* find_hf_family(std::string_view type);

/// The model_type of the text model inside a model for text and images or sound, for files that do
/// not say it; empty if it is not known.
std::string_view hf_text_type(std::string_view type);

}  // namespace pipetwin
