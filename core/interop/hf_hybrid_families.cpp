// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
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

// --- Granite 4.0 and Bamba: Mamba-2 in place of attention in most blocks. ---

/// The blocks with Mamba-2 have `shape` in place of the model's attention.
void set_mamba_blocks(const HfConfig& config,
                      DecoderModel& model,
                      const std::vector<bool>& blocks) {
    for (const string_view key : {"mamba_n_heads",
                                  "mamba_d_head",
                                  "mamba_d_state",
                                  "mamba_n_groups",
                                  "mamba_d_conv",
                                  "mamba_chunk_size",
                                  "mamba_expand",
                                  "mamba_proj_bias",
                                  "mamba_conv_bias"}) {
        config.mark_read(key);
    }
    if (std::ranges::find(blocks, true) == blocks.end()) {
        return;
    }
    const bool bias = config.flag({{"mamba_proj_bias"}, false});
    MambaShape mamba{.heads = config.size({{"mamba_n_heads"}}, most_sizes),
                     .state = config.size({{"mamba_d_state"}, 256}, most_sizes),
                     .groups = config.size({{"mamba_n_groups"}, 1}, most_sizes),
                     .convolution = config.size({{"mamba_d_conv"}, 4}, most_sizes),
                     .chunk = config.size({{"mamba_chunk_size"}, 256}, most_sizes),
                     .bias = bias,
                     .convolution_bias = config.flag({{"mamba_conv_bias"}, true})};
    const int inner = model.width * config.size({{"mamba_expand"}, 2}, 64);
    constexpr string_view width = "mamba_d_head";
    const bool is_said = config.has(width) && !config.object().is_text(width);  // "auto"
    mamba.width = is_said ? config.size_at(width, most_sizes) : inner / mamba.heads;
    if (mamba.heads % mamba.groups != 0 || mamba.heads * mamba.width != inner) {
        config.refuse("mamba_n_heads",
                      fmt::format("a multiple of mamba_n_groups, {}, and with mamba_d_head {} "
                                  "numbers",
                                  mamba.groups,
                                  inner),
                      as_published_there);
    }
    AttentionShape of_mamba = model.attention;
    of_mamba.mamba = mamba;
    model.other_attentions = {of_mamba};
    std::ranges::transform(blocks, std::back_inserter(model.attention_kinds), [](bool is_mamba) {
        return is_mamba ? 2 : 1;
    });
}

/// A block with experts has the dense half besides; without any that is all.
void finish_granite_hybrid(const HfConfig& config, DecoderModel& model) {
    model.attention.rotary = !config.has("position_embedding_type") ||
                             config.object().text("position_embedding_type") == "rope";
    if (model.has_experts.empty()) {
        model.feed_forward = config.size_at("shared_intermediate_size", most_sizes);
    }
    constexpr string_view key = "layer_types";
    set_mamba_blocks(
        config,
        model,
        config.has(key)
            ? hf_blocks_of_word(config, key, model.blocks, "mamba", {"mamba", "attention"})
            : std::vector<bool>(as_index(model.blocks), true));
}

void finish_bamba(const HfConfig& config, DecoderModel& model) {
    constexpr string_view key = "attn_layer_indices";
    std::vector<bool> blocks(as_index(model.blocks), true);
    if (config.has(key)) {
        for (const std::int64_t block : config.object().wholes(key)) {
            if (block >= model.blocks) {
                config.refuse(
                    key, fmt::format("blocks below {}", model.blocks), as_published_there);
            }
            blocks[static_cast<std::size_t>(block)] = false;
        }
    }
    set_mamba_blocks(config, model, blocks);
}

// --- DeepSeek-V4: further rows stand for several tokens, and the residual is a few streams. ---

constexpr int sparse_ratio = 4;   ///< of rows among which an indexer chooses
constexpr int heavy_ratio = 128;  ///< of rows that all queries see

/// Tokens that a further row of each block stands for; 0: it has none. Blocks that predict further
/// tokens may follow.
std::vector<int> compressed_ratios(const HfConfig& config, const DecoderModel& model) {
    constexpr string_view numbers = "compress_ratios";
    constexpr string_view words = "layer_types";
    std::vector<int> ratios;
    if (config.has(words)) {
        for (const std::string& word : config.object().texts(words)) {
            ratios.push_back(word == "compressed_sparse_attention"    ? sparse_ratio
                             : word == "heavily_compressed_attention" ? heavy_ratio
                             : word == "sliding_attention"            ? 0
                                                                      : -1);
        }
    } else if (config.has(numbers)) {
        for (const std::int64_t ratio : config.object().wholes(numbers)) {
            const bool is_known = ratio == 0 || ratio == sparse_ratio || ratio == heavy_ratio;
            ratios.push_back(is_known ? static_cast<int>(ratio) : -1);
        }
    } else {
        config.object().missing(numbers, "0, 4 or 128 for each block", as_published_there);
    }
    const string_view key = config.has(words) ? words : numbers;
    const auto entries = std::ssize(ratios);
    if (std::ranges::find(ratios, -1) != ratios.end() ||
        (entries != model.blocks && entries != model.blocks + model.prediction_blocks)) {
        config.refuse(key,
                      fmt::format("{} of 0, 4 and 128 (sliding_attention, "
                                  "compressed_sparse_attention, heavily_compressed_attention)",
                                  counted(model.blocks, "entry")),
                      as_published_there);
    }
    return ratios;
}

/// The first blocks, whose experts follow from the token.
int blocks_of_fixed_experts(const HfConfig& config, int blocks) {
    constexpr string_view words = "mlp_layer_types";
    if (!config.has(words)) {
        return config.size({{"num_hash_layers"}, 3}, blocks, 0);
    }
    const std::vector<std::string> kinds = config.object().texts(words);
    const auto first = std::ranges::find(kinds, "moe");
    if (std::ssize(kinds) != blocks ||
        std::count(first, kinds.end(), "moe") != kinds.end() - first ||
        std::count(kinds.begin(), first, "hash_moe") != first - kinds.begin()) {
        config.refuse(words,
                      fmt::format("hash_moe for some blocks and then moe, {} in all", blocks),
                      as_published_there);
    }
    return static_cast<int>(first - kinds.begin());
}

void finish_deepseek_v4(const HfConfig& config, DecoderModel& model) {
    AttentionShape& near = model.attention;
    constexpr string_view rates = "compress_rates";
    if (config.has(rates)) {
        const JsonObject object = config.object().object(rates);
        const HfConfig of_words(object);
        for (const auto& [word, ratio] : {std::pair("compressed_sparse_attention", sparse_ratio),
                                          std::pair("heavily_compressed_attention", heavy_ratio)}) {
            if (of_words.has(word)) {
                of_words.size_at(word, ratio, ratio);
            }
        }
    }
    if (near.key_value_heads != 1) {
        config.refuse(
            "num_key_value_heads", "1: all heads share keys and values", as_published_there);
    }
    near.window = config.size({{"sliding_window"}}, 1 << 26);
    CompressedShape compressed{
        .query_rank = config.size({{"q_lora_rank"}}, most_sizes),
        .rotary_width = config.size({{"qk_rope_head_dim"}, 64}, near.key_width),
        .output_groups = config.size({{"o_groups"}}, near.heads),
        .output_rank = config.size({{"o_lora_rank"}}, most_sizes)};
    if (near.heads % compressed.output_groups != 0) {
        config.refuse("o_groups",
                      fmt::format("a divisor of num_attention_heads, {}", near.heads),
                      "equal groups of heads go into narrow rows");
    }
    near.compressed = compressed;
    AttentionShape sparse = near;
    sparse.compressed->ratio = sparse_ratio;
    sparse.compressed->overlaps = true;
    sparse.compressed->indexer = IndexerShape{.heads = config.size({{"index_n_heads"}}, 1 << 14),
                                              .width = config.size({{"index_head_dim"}}, 1 << 14),
                                              .keys = config.size({{"index_topk"}}, 1 << 26)};
    AttentionShape heavy = near;
    heavy.compressed->ratio = heavy_ratio;
    model.other_attentions = {sparse, heavy};
    for (const int ratio : compressed_ratios(config, model)) {
        model.attention_kinds.push_back(ratio == 0 ? 1 : ratio == sparse_ratio ? 2 : 3);
    }
    const auto blocks = as_index(model.blocks);
    if (model.prediction_blocks > 0) {
        const bool is_said = model.attention_kinds.size() > blocks;
        const int kind = is_said ? model.attention_kinds[blocks] : 1;
        model.attention_kinds.resize(blocks);
        model.attention_kinds.push_back(kind);
        model.prediction_attention = model.blocks;
    }
    model.streams = config.size({{"hc_mult"}}, 64);
    model.experts.fixed_blocks = blocks_of_fixed_experts(config, model.blocks);
}

// --- Kimi Linear: delta attention that decays number by number, and latent attention. ---

/// Blocks, counted from 1, with the attention of Kimi; all others have latent attention.
std::vector<bool> kimi_linear_blocks(const HfConfig& linear, int blocks) {
    std::vector<int> of(as_index(blocks), 0);
    for (const auto& [key, kind] :
         {std::pair<string_view, int>("kda_layers", 2), {"full_attn_layers", 1}}) {
        for (const std::int64_t block : linear.object().wholes(key)) {
            if (block < 1 || block > blocks || of[static_cast<std::size_t>(block - 1)] != 0) {
                linear.refuse(
                    key,
                    fmt::format("blocks from 1 to {}, each in one of the two lists", blocks),
                    as_published_there);
            }
            of[static_cast<std::size_t>(block - 1)] = kind;
        }
    }
    if (std::ranges::find(of, 0) != of.end()) {
        linear.refuse("full_attn_layers",
                      fmt::format("blocks from 1 to {}, each in one of the two lists", blocks),
                      as_published_there);
    }
    std::vector<bool> result;
    std::ranges::transform(of, std::back_inserter(result), [](int kind) { return kind == 2; });
    return result;
}

void finish_kimi_linear(const HfConfig& config, DecoderModel& model) {
    if (config.size({{"num_nextn_predict_layers"}, 0}, 1 << 10, 0) > 0) {
        config.refuse("num_nextn_predict_layers",
                      "0",
                      "blocks of this family that predict further tokens are not known yet");
    }
    AttentionShape& full = model.attention;
    full.gated = config.flag({{"mla_use_output_gate"}, false});
    full.rotary = !config.flag({{"mla_use_nope"}, false});
    config.mark_read("linear_attn_config");
    const JsonObject object = config.object().object("linear_attn_config");
    const HfConfig linear(object);
    const int heads = linear.size({{"num_heads"}}, 1 << 14);
    const int width = linear.size({{"head_dim"}}, 1 << 14);
    AttentionShape kimi = full;
    kimi.latent.reset();
    kimi.gated = false;
    kimi.linear =
        LinearAttentionShape{.key_heads = heads,
                             .key_width = width,
                             .value_heads = heads,
                             .value_width = width,
                             .convolution = linear.size({{"short_conv_kernel_size"}, 4}, 1 << 10),
                             .decay_rank = width,
                             .gate_rank = linear.flag({{"use_full_rank_gate"}, false}) ? 0 : width};
    model.other_attentions = {kimi};
    for (const bool is_linear : kimi_linear_blocks(linear, model.blocks)) {
        model.attention_kinds.push_back(is_linear ? 2 : 1);
    }
    model.residual_blocks = config.size({{"attn_res_block_size"}, 0}, most_sizes, 0);
    if (model.experts.count > 0) {
        model.experts.latent_width = config.size({{"routed_expert_hidden_size"}, 0}, most_sizes);
        model.experts.latent_norm =
            model.experts.latent_width > 0 && config.flag({{"latent_moe_use_norm"}, false});
    }
}

}  // namespace

void add_hf_hybrids(HfFamilyTable& table, const HfFamily& llama) {
    add_nemotrons(table, llama);
}

void add_hf_mamba_blocks(HfFamilyTable& table, const HfFamily& llama, const HfFamily& granite) {
    table.add("granitemoehybrid", granite, [](HfFamily& f) {
        f.has_own_kinds = true;
        f.experts.count = {{"num_local_experts"}, 0};
        f.experts.per_token.otherwise = 1;
        f.finish = finish_granite_hybrid;
    });
    table.add("bamba", llama, [](HfFamily& f) {
        f.has_own_kinds = true;
        f.finish = finish_bamba;
    });
}

void add_hf_compressed(HfFamilyTable& table, const HfFamily& v3) {
    const HfFamily& v4 = table.add("deepseek_v4", v3, [](HfFamily& f) {
        f.latent = false;
        f.has_own_kinds = true;
        f.feed_forward.otherwise = 1;  // no block has a dense half
        f.key_value_heads = {{"num_key_value_heads"}, 1};
        f.head_width.otherwise = hf_required;
        f.sinks = true;
        f.experts.dense_first = {};
        f.experts.every_from_first = {};
        f.experts.by_block = {};
        f.finish = finish_deepseek_v4;
    });
    table.add("deepseek_ref", v4);  // files that name it are of DeepSeek-V4, in fp8
    table.add("kimi_linear", v3, [](HfFamily& f) {
        f.has_own_kinds = true;
        f.experts.count = {{"num_experts"}, 0};
        f.experts.per_token = {{"num_experts_per_token", "num_experts_per_tok"}};
        f.experts.shared = {{"num_shared_experts"}, 0};
        f.experts.by_block = {};
        f.prediction_blocks = {};
        f.finish = finish_kimi_linear;
    });
}

}  // namespace pipetwin
