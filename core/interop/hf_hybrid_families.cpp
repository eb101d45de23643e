// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/interop/hf_family_table.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr int most_sizes = 1 << 20;
constexpr const char* as_published_there =
    "compare with the config.json that was published with the model";

// --- Nemotron-H: each block is one half. ---

/// What a block of Nemotron-H is.
enum class HfHalf { Mamba, Attention, FeedForward, Experts };

constexpr std::array<std::pair<string_view, HfHalf>, 6> half_words{
    {{"mamba", HfHalf::Mamba},
     {"linear_attention", HfHalf::Mamba},
     {"attention", HfHalf::Attention},
     {"full_attention", HfHalf::Attention},
     {"mlp", HfHalf::FeedForward},
     {"moe", HfHalf::Experts}}};

constexpr std::array<std::pair<char, HfHalf>, 4> half_letters{{{'M', HfHalf::Mamba},
                                                               {'*', HfHalf::Attention},
                                                               {'-', HfHalf::FeedForward},
                                                               {'E', HfHalf::Experts}}};

/// The blocks that a list of words, or a text of letters, names.
std::vector<HfHalf> read_halves(const HfConfig& config, string_view key) {
    std::vector<HfHalf> halves;
    if (config.object().is_text(key)) {
        for (const char letter : config.object().text(key)) {
            const auto found =
                std::ranges::find(half_letters, letter, &std::pair<char, HfHalf>::first);
            if (found == half_letters.end()) {
                config.refuse(
                    key,
                    fmt::format("letters M, *, - and E, one per block, found '{}'", letter),
                    "M is Mamba-2, * attention, - a feed-forward half, E one of experts");
            }
            halves.push_back(found->second);
        }
        return halves;
    }
    for (const std::string& word : config.object().texts(key)) {
        const auto found =
            std::ranges::find(half_words, word, &std::pair<string_view, HfHalf>::first);
        if (found == half_words.end()) {
            config.refuse(key,
                          fmt::format("blocks of mamba, attention, mlp or moe, found '{}'", word),
                          as_published_there);
        }
        halves.push_back(found->second);
    }
    return halves;
}

/// The key that names the blocks.
string_view halves_key(const HfConfig& config) {
    for (const string_view key : {"layers_block_type", "layer_types"}) {
        if (config.has(key)) {
            return key;
        }
    }
    return "hybrid_override_pattern";
}

std::vector<HfHalf> halves_of(const HfConfig& config) {
    const string_view key = halves_key(config);
    if (!config.has(key)) {
        config.object().missing(key, "what each block is, such as \"MEM*E\"", as_published_there);
    }
    std::vector<HfHalf> halves = read_halves(config, key);
    if (halves.empty()) {
        config.refuse(key, "at least one block", as_published_there);
    }
    return halves;
}

/// The number of blocks that the list names; `num_hidden_layers`, where it is there, says the same.
int nemotron_blocks(const HfConfig& config) {
    const int blocks = static_cast<int>(halves_of(config).size());
    constexpr string_view key = "num_hidden_layers";
    if (config.has(key) && config.size_at(key, most_sizes) != blocks) {
        config.refuse(key,
                      fmt::format("{}, as {} names", blocks, halves_key(config)),
                      "compare it with the number of blocks");
    }
    return blocks;
}

/// The first block that is one of two kinds of half.
int first_of(const std::vector<HfHalf>& halves, HfHalf one, HfHalf other) {
    const auto found =
        std::ranges::find_if(halves, [&](HfHalf half) { return half == one || half == other; });
    return found == halves.end() ? -1 : static_cast<int>(found - halves.begin());
}

/// A block that predicts a further token is an attention and a feed-forward half, as two of the
/// model's own blocks.
void read_nemotron_predictions(const HfConfig& config,
                               const std::vector<HfHalf>& halves,
                               DecoderModel& model) {
    if (model.prediction_blocks == 0) {
        return;
    }
    const string_view words = "mtp_layers_block_type";
    const string_view key = config.has(words) ? words : "mtp_hybrid_override_pattern";
    const std::vector<HfHalf> of_one =
        config.has(key) ? read_halves(config, key)
                        : std::vector<HfHalf>{HfHalf::Attention, HfHalf::Experts};
    const bool is_pair = of_one.size() == 2 &&
                         (of_one[0] == HfHalf::Mamba || of_one[0] == HfHalf::Attention) &&
                         (of_one[1] == HfHalf::FeedForward || of_one[1] == HfHalf::Experts);
    if (is_pair) {
        model.prediction_attention = first_of(halves, of_one[0], of_one[0]);
        model.prediction_feed_forward = first_of(halves, of_one[1], of_one[1]);
    }
    if (!is_pair || model.prediction_attention < 0 || model.prediction_feed_forward < 0) {
        config.refuse(config.has(key) ? key : string_view("num_nextn_predict_layers"),
                      "an attention and a feed-forward half, each of a kind that a block is",
                      "other blocks that predict further tokens are not known yet: leave "
                      "num_nextn_predict_layers out for the model without them");
    }
}

void finish_nemotron_h(const HfConfig& config, DecoderModel& model) {
    const std::vector<HfHalf> halves = halves_of(config);
    const bool bias = config.flag({{"use_bias"}, false});
    MambaShape mamba{.heads = config.size({{"mamba_num_heads"}}, most_sizes),
                     .width = config.size({{"mamba_head_dim"}}, most_sizes),
                     .state = config.size({{"ssm_state_size"}}, most_sizes),
                     .groups = config.size({{"n_groups", "mamba_n_groups"}, 8}, most_sizes),
                     .convolution = config.size({{"conv_kernel", "mamba_d_conv"}, 4}, most_sizes),
                     .chunk = config.size({{"chunk_size", "mamba_chunk_size"}, 128}, most_sizes),
                     .bias = bias,
                     .convolution_bias = config.flag({{"use_conv_bias", "mamba_conv_bias"}, true})};
    if (mamba.heads % mamba.groups != 0) {
        config.refuse("mamba_num_heads",
                      fmt::format("a multiple of n_groups, {}", mamba.groups),
                      "equal groups of heads share what reads and writes their states");
    }
    AttentionShape of_mamba = model.attention;
    of_mamba.mamba = mamba;
    model.other_attentions = {of_mamba};
    model.has_experts.clear();
    for (const HfHalf half : halves) {
        const bool reads_others = half == HfHalf::Mamba || half == HfHalf::Attention;
        model.attention_kinds.push_back(!reads_others ? no_half : half == HfHalf::Mamba ? 2 : 1);
        model.feed_forward_widths.push_back(half == HfHalf::FeedForward ? model.feed_forward
                                                                        : no_half);
        model.has_experts.push_back(half == HfHalf::Experts);
    }
    if (std::ranges::find(halves, HfHalf::Experts) == halves.end()) {
        model.experts = {};
        model.has_experts.clear();
    } else if (model.experts.count == 0) {
        config.object().missing("n_routed_experts",
                                "the number of experts of blocks that have them",
                                as_published_there);
    } else {
        model.experts.latent_width = config.size({{"moe_latent_size"}, 0}, most_sizes);
    }
    read_nemotron_predictions(config, halves, model);
}

void add_nemotrons(HfFamilyTable& table, const HfFamily& llama) {
    table.add("nemotron_h", llama, [](HfFamily& f) {
        f.count_blocks = nemotron_blocks;
        f.has_own_kinds = true;
        f.head_width = {{"head_dim", "attention_head_dim"}, 128};
        f.key_value_heads.otherwise = 8;
        f.gated = false;
        f.rotary = false;
        f.attention_norms = f.feed_forward_norms = 1;
        f.experts = {.count = {{"n_routed_experts"}, 0},
                     .shared_width = {{"moe_shared_expert_intermediate_size"}, 0},
                     .router_bias = true};
        f.prediction_blocks = {{"num_nextn_predict_layers"}, 0};
        f.known = {"n_shared_experts"};  // their width is that of all of them
        f.finish = finish_nemotron_h;
    });
}

}  // namespace

void add_hf_hybrids(HfFamilyTable& table, const HfFamily& llama) {
    add_nemotrons(table, llama);
}

}  // namespace pipetwin
