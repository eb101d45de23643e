// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/interop/hf_family_table.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr int most_heads_of_kind = 1 << 14;
constexpr int most_inner_of_kind = 1 << 20;
constexpr const char* to_compare = "compare with the config.json that was published with the model";

/// Heads in equal groups, or a refusal.
void expect_groups(const HfConfig& config, string_view key, const AttentionShape& shape) {
    if (shape.heads % shape.key_value_heads != 0) {
        config.refuse(key,
                      fmt::format("a divisor of the number of heads, {}", shape.heads),
                      "equal groups of heads share keys and values");
    }
}

/// One number, 0 or 1, per block.
std::vector<bool> read_block_flags(const HfConfig& config, string_view key, int blocks) {
    const std::vector<std::int64_t> numbers = config.object().wholes(key);
    if (std::ssize(numbers) != blocks) {
        config.refuse(
            key,
            fmt::format(
                "a list of {}, one per block, found {}", counted(blocks, "number"), numbers.size()),
            "compare it with the number of blocks");
    }
    std::vector<bool> flags;
    std::ranges::transform(
        numbers, std::back_inserter(flags), [](std::int64_t number) { return number != 0; });
    return flags;
}

/// Blocks with `other` where the list says so, the rest with the model's first attention.
void set_other_attention(DecoderModel& model,
                         const std::vector<bool>& blocks,
                         AttentionShape other) {
    if (std::ranges::find(blocks, true) == blocks.end()) {
        return;
    }
    model.other_attentions = {std::move(other)};
    std::ranges::transform(blocks, std::back_inserter(model.attention_kinds), [](bool is_other) {
        return is_other ? 2 : 1;
    });
}

// --- Gemma 4: heads of blocks that see all are wider and fewer. ---

void finish_gemma4(const HfConfig& config, DecoderModel& model) {
    for (const string_view key : {"num_kv_shared_layers", "hidden_size_per_layer_input"}) {
        if (config.size({{key}, 0}, most_inner_of_kind, 0) > 0) {
            config.refuse(key,
                          "0: every block makes its own keys, and no block has rows of its own",
                          "such models have no estimate yet: bring their costs as a measured "
                          "profile");
        }
    }
    AttentionShape& all = model.attention;
    const std::vector<bool> windows = std::exchange(all.window_blocks, {});
    AttentionShape near = all;
    all.window = 0;
    all.key_width = config.size({{"global_head_dim"}, 512}, most_heads_of_kind);
    all.value_width = all.key_width;
    all.values_are_keys = config.flag({{"attention_k_eq_v"}, false});
    if (all.values_are_keys && config.has("num_global_key_value_heads")) {
        all.key_value_heads = config.size_at("num_global_key_value_heads", most_heads_of_kind);
        expect_groups(config, "num_global_key_value_heads", all);
    }
    set_other_attention(model, windows, std::move(near));
    model.block_numbers = 1;
    if (config.flag({{"enable_moe_block"}, false})) {
        if (model.experts.count == 0) {
            config.object().missing("num_experts", "the number of experts", to_compare);
        }
        // Every token goes through the dense half, too; five norms stand around both.
        model.experts.shared_width = model.feed_forward;
        model.experts.router_gain = true;
        model.feed_forward_norms = 5;
    } else {
        model.experts = {};
        model.has_experts.clear();
    }
}

// --- MiMo-V2: blocks with a window have other heads, and sinks. ---

void finish_mimo_v2(const HfConfig& config, DecoderModel& model) {
    AttentionShape& all = model.attention;
    constexpr string_view pattern = "hybrid_layer_pattern";
    all.value_width = config.size({{"v_head_dim"}, all.key_width}, most_heads_of_kind);
    AttentionShape near = all;
    near.heads = config.size({{"swa_num_attention_heads"}, all.heads}, most_heads_of_kind);
    near.key_value_heads =
        config.size({{"swa_num_key_value_heads"}, all.key_value_heads}, most_heads_of_kind);
    expect_groups(config, "swa_num_key_value_heads", near);
    near.key_width = config.size({{"swa_head_dim"}, all.key_width}, most_heads_of_kind);
    near.value_width = config.size({{"swa_v_head_dim"}, all.value_width}, most_heads_of_kind);
    near.window = config.size({{"sliding_window_size", "sliding_window"}}, 1 << 26);
    near.sinks = config.flag({{"add_swa_attention_sink_bias"}, false});
    all.sinks = config.flag({{"add_full_attention_sink_bias"}, false});
    if (!config.has(pattern)) {
        config.object().missing(pattern, "a list of 0 and 1, one per block", to_compare);
    }
    set_other_attention(model, read_block_flags(config, pattern, model.blocks), std::move(near));
    model.remarks.emplace_back(
        "files of this family have blocks that predict further tokens, of which config.json says "
        "nothing: they are left out");
}

// --- Step 3.5: blocks with a window have more heads. ---

/// Blocks that have a window; what follows for blocks that predict further tokens, if anything.
std::vector<bool> step_windows(const HfConfig& config, const DecoderModel& model) {
    constexpr string_view key = "layer_types";
    config.mark_read(key);
    std::vector<bool> windows;
    for (const std::string& word : config.object().texts(key)) {
        if (word != "full_attention" && word != "sliding_attention") {
            config.refuse(key,
                          fmt::format("full_attention or sliding_attention, found '{}'", word),
                          to_compare);
        }
        windows.push_back(word == "sliding_attention");
    }
    const auto entries = std::ssize(windows);
    if (entries != model.blocks && entries != model.blocks + model.prediction_blocks) {
        config.refuse(
            key,
            fmt::format(
                "a list of {}, one per block, found {}", counted(model.blocks, "word"), entries),
            "compare it with the number of blocks");
    }
    return windows;
}

void read_step_experts(const HfConfig& config, DecoderModel& model) {
    constexpr string_view key = "moe_layers_enum";
    if (!config.has(key)) {
        return;  // first_k_dense_replace has said it
    }
    std::vector<std::int64_t> with;
    if (config.object().is_text(key)) {
        std::string text = config.object().text(key);
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = std::min(text.find(',', begin), text.size());
            const std::string number = text.substr(begin, end - begin);
            if (number.empty() || number.size() > 6 ||
                number.find_first_not_of("0123456789 ") != std::string::npos) {
                config.refuse(key, "numbers of blocks, as in \"3,4,5\"", to_compare);
            }
            with.push_back(std::stoi(number));
            begin = end + 1;
        }
    } else {
        with = config.object().wholes(key);
    }
    model.has_experts.assign(as_index(model.blocks), false);
    for (const std::int64_t block : with) {
        if (block < model.blocks) {
            model.has_experts[static_cast<std::size_t>(block)] = true;
        }
    }
}

/// A block that predicts a further token has a dense half.
void set_step_predictions(const HfConfig& config,
                          const std::vector<bool>& windows,
                          DecoderModel& model) {
    if (model.prediction_blocks == 0) {
        return;
    }
    const std::vector<bool> own(
        windows.begin() + std::min<std::ptrdiff_t>(model.blocks, std::ssize(windows)),
        windows.end());
    const bool has_window = own.empty() || own.front();
    if (std::ranges::count(own, has_window) != std::ssize(own)) {
        config.refuse("layer_types",
                      "one word for all blocks that predict further tokens",
                      "others are not known yet: set num_nextn_predict_layers to 0");
    }
    const auto attention = std::ranges::find(model.attention_kinds, has_window ? 2 : 1);
    const auto dense = std::ranges::find(model.has_experts, false);
    if (attention == model.attention_kinds.end() || dense == model.has_experts.end()) {
        config.refuse("num_nextn_predict_layers",
                      "blocks with such an attention, and without experts, in the model",
                      "set it to 0 for the model without them");
    }
    model.prediction_attention = static_cast<int>(attention - model.attention_kinds.begin());
    model.prediction_feed_forward = static_cast<int>(dense - model.has_experts.begin());
}

void finish_step(const HfConfig& config, DecoderModel& model) {
    AttentionShape& all = model.attention;
    all.head_gate = config.flag({{"use_head_wise_attn_gate"}, true});
    AttentionShape near = all;
    near.window = config.size({{"sliding_window"}, 512}, 1 << 26);
    constexpr string_view key = "attention_other_setting";
    near.heads = 96;
    near.key_value_heads = 8;
    near.key_width = 128;
    if (config.has(key)) {
        const JsonObject object = config.object().object(key);
        const HfConfig other(object);
        near.heads = other.size({{"num_attention_heads"}, 96}, most_heads_of_kind);
        near.key_value_heads = other.size({{"num_attention_groups"}, 8}, most_heads_of_kind);
        near.key_width = other.size({{"head_dim"}, 128}, most_heads_of_kind);
    } else {
        model.remarks.emplace_back(
            "the file has no 'attention_other_setting': heads of blocks with a window are taken as "
            "in Step-3.5-Flash, 96 of 128 numbers in 8 groups");
    }
    near.value_width = near.key_width;
    expect_groups(config, config.has(key) ? key : string_view("num_attention_heads"), near);
    std::vector<bool> windows = step_windows(config, model);
    set_other_attention(model, {windows.begin(), windows.begin() + model.blocks}, std::move(near));
    if (model.attention_kinds.empty()) {
        model.attention_kinds.assign(as_index(model.blocks), 1);
    }
    model.experts.router_bias = config.flag({{"use_moe_router_bias"}, true});
    read_step_experts(config, model);
    set_step_predictions(config, windows, model);
}

// --- MiniMax-M3: an indexer chooses blocks of keys. ---

/// Blocks that have the indexer.
std::vector<bool> sparse_blocks(const HfConfig& config,
                                const std::optional<HfConfig>& sparse,
                                int blocks) {
    constexpr string_view words = "layer_types";
    constexpr string_view flags = "sparse_attention_freq";
    if (config.has(words)) {
        return hf_blocks_of_word(
            config, words, blocks, "minimax_m3_sparse", {"minimax_m3_sparse", "full_attention"});
    }
    const bool is_used = sparse && sparse->flag({{"use_sparse_attention"}, true});
    return is_used && sparse->has(flags) ? read_block_flags(*sparse, flags, blocks)
                                         : std::vector<bool>(as_index(blocks), false);
}

void finish_minimax_m3(const HfConfig& config, DecoderModel& model) {
    AttentionShape& all = model.attention;
    all.gated = config.flag({{"attention_output_gate"}, false});
    model.experts.router_bias = config.flag({{"use_routing_bias"}, true});
    for (const string_view key : {"moe_intermediate_size", "first_k_dense_replace"}) {
        config.mark_read(key);  // as intermediate_size and moe_layer_freq say
    }
    constexpr string_view kind = "qk_norm_type";
    if (config.has(kind) && config.object().text(kind) != "per_head") {
        config.refuse(kind, "\"per_head\"", to_compare);
    }
    if (config.size({{"n_shared_experts"}, 1}, 1 << 10, 0) > 1) {
        config.refuse(
            "n_shared_experts", "0 or 1, as wide as shared_intermediate_size says", to_compare);
    }
    constexpr string_view key = "sparse_attention_config";
    std::optional<JsonObject> object;
    std::optional<HfConfig> sparse;
    if (config.has(key)) {
        object.emplace(config.object().object(key));
        sparse.emplace(*object);
    }
    const auto size = [&](string_view inside, string_view flat, int otherwise) {
        return sparse && sparse->has(inside) ? sparse->size_at(inside, most_heads_of_kind)
                                             : config.size({{flat}, otherwise}, most_heads_of_kind);
    };
    AttentionShape chosen = all;
    chosen.indexer = IndexerShape{.heads = size("sparse_num_index_heads", "index_n_heads", 4),
                                  .width = size("sparse_index_dim", "index_head_dim", 128),
                                  .keys = size("sparse_topk_blocks", "index_topk_blocks", 16) *
                                          size("sparse_block_size", "index_block_size", 128)};
    const std::vector<bool> blocks = sparse_blocks(config, sparse, model.blocks);
    constexpr string_view without_values = "sparse_disable_index_value";
    if (sparse && sparse->has(without_values)) {
        const std::vector<bool> none = read_block_flags(*sparse, without_values, model.blocks);
        for (std::size_t block = 0; block < blocks.size(); ++block) {
            if (blocks[block] && !none[block]) {
                sparse->refuse(without_values,
                               "1 for every block with an indexer: it has no values",
                               "values of an indexer are not known yet");
            }
        }
    }
    set_other_attention(model, blocks, std::move(chosen));
}

// --- Nemotron-NAS: blocks that a search has made narrower, or has left out. ---

/// The inner width that a multiple of the model's stands for, as in Llama: two thirds of it, up to
/// the next multiple of 256.
int nas_inner_width(const HfConfig& config, string_view key, double multiple, int width) {
    const double exact = 2 * multiple * width / 3;
    if (!(exact >= 1 && exact <= most_inner_of_kind)) {
        config.refuse(key, "a multiple of the width", to_compare);
    }
    constexpr int step = 256;
    const int whole = static_cast<int>(exact);
    return (whole + step - 1) / step * step;
}

/// The kind of a block's attention with so many groups of heads: a new one, where no block before
/// has had it.
int nas_kind(DecoderModel& model, int groups) {
    if (model.attention.key_value_heads == groups) {
        return 1;
    }
    const auto found = std::ranges::find(
        model.other_attentions, groups, [](const auto& other) { return other.key_value_heads; });
    const auto kind = static_cast<int>(found - model.other_attentions.begin()) + 2;
    if (found == model.other_attentions.end()) {
        AttentionShape other = model.attention;
        other.key_value_heads = groups;
        model.other_attentions.push_back(std::move(other));
    }
    return kind;
}

/// Refuses what a search may put in place of a half, or beside it.
void expect_plain_half(const HfConfig& half) {
    for (const string_view key : {"replace_with_linear",
                                  "sparsify",
                                  "num_sink_tokens",
                                  "window_length",
                                  "use_prefill_window_in_sink_attention",
                                  "unshifted_sink"}) {
        const std::string value = half.object().shown(key);
        if (half.has(key) && value != "false" && value != "0") {
            half.refuse(key,
                        "null or false: attention, a feed-forward half, or none",
                        "such halves are not known yet: bring their costs as a measured profile");
        }
    }
}

void finish_nas(const HfConfig& config, DecoderModel& model) {
    constexpr string_view key = "block_configs";
    config.mark_read(key);
    const std::vector<JsonObject> blocks = config.object().objects(key);
    if (std::ssize(blocks) != model.blocks) {
        config.refuse(key,
                      fmt::format("a list of {}, one per block, found {}",
                                  counted(model.blocks, "object"),
                                  blocks.size()),
                      to_compare);
    }
    for (const JsonObject& block : blocks) {
        const JsonObject attention_object = block.object("attention");
        const HfConfig attention(attention_object);
        const JsonObject inner_object = block.object("ffn");
        const HfConfig inner(inner_object);
        expect_plain_half(attention);
        expect_plain_half(inner);
        if (attention.flag({{"no_op"}, false})) {
            model.attention_kinds.push_back(no_half);
        } else {
            constexpr string_view in_group = "n_heads_in_group";
            const int size = attention.size_at(in_group, model.attention.heads);
            if (model.attention.heads % size != 0) {
                attention.refuse(in_group,
                                 fmt::format("a divisor of {} heads", model.attention.heads),
                                 to_compare);
            }
            model.attention_kinds.push_back(nas_kind(model, model.attention.heads / size));
        }
        constexpr string_view multiple = "ffn_mult";
        model.feed_forward_widths.push_back(
            inner.flag({{"no_op"}, false})
                ? no_half
                : nas_inner_width(
                      inner, multiple, inner.object().number_or(multiple, 0), model.width));
    }
}

// --- GLM 5.2: blocks without an indexer take the choice of a block before. ---

/// Per block: whether it takes the choice of a block before it.
std::vector<bool> shared_choices(const HfConfig& config, int blocks) {
    constexpr string_view words = "indexer_types";
    if (config.has(words)) {
        return hf_blocks_of_word(config, words, blocks, "shared", {"full", "shared"});
    }
    constexpr string_view letters = "index_topk_pattern";
    std::vector<bool> shared(as_index(blocks), false);
    if (config.has(letters)) {
        const std::string pattern = config.object().text(letters);
        if (std::ssize(pattern) != blocks || pattern.find_first_not_of("FS") != std::string::npos) {
            config.refuse(letters, "a letter F or S for each block", to_compare);
        }
        for (std::size_t block = 0; block < pattern.size(); ++block) {
            shared[block] = pattern[block] == 'S';
        }
        return shared;
    }
    // Blocks 0 to `offset` - 1 choose their keys. From there on every `frequency`-th block chooses,
    // and each other block takes the choice of the block before it.
    const int frequency = config.size({{"index_topk_freq"}, 1}, blocks);
    const int offset = config.size({{"index_skip_topk_offset"}, 2}, blocks, 0);
    for (int block = 0; block < blocks; ++block) {
        shared[as_index(block)] = std::max(block - offset + 1, 0) % frequency != 0;
    }
    return shared;
}

void finish_glm_dsa(const HfConfig& config, DecoderModel& model) {
    const std::vector<bool> shared = shared_choices(config, model.blocks);
    for (const string_view key : {"index_topk_freq", "index_skip_topk_offset"}) {
        config.mark_read(key);  // where indexer_types or index_topk_pattern say the same
    }
    if (!shared.empty() && shared.front()) {
        config.refuse(config.has("indexer_types") ? "indexer_types" : "index_topk_pattern",
                      "a choice of its own in the first block",
                      to_compare);
    }
    AttentionShape other = model.attention;
    if (other.latent && other.latent->indexer) {
        other.latent->indexer->shared = true;
    }
    set_other_attention(model, shared, std::move(other));
    model.prediction_attention = model.attention_kinds.empty() ? -1 : 0;
}

}  // namespace

std::vector<bool> hf_blocks_of_word(const HfConfig& config,
                                    string_view key,
                                    int blocks,
                                    string_view word,
                                    const std::vector<string_view>& words) {
    const std::vector<std::string> entries = config.object().texts(key);
    if (std::ssize(entries) != blocks) {
        config.refuse(
            key,
            fmt::format(
                "a list of {}, one per block, found {}", counted(blocks, "word"), entries.size()),
            "compare it with the number of blocks");
    }
    std::vector<bool> result;
    for (const std::string& entry : entries) {
        if (std::ranges::find(words, entry) == words.end()) {
            config.refuse(key,
                          fmt::format("{}, found '{}'", fmt::join(words, " or "), entry),
                          "compare with the config.json that was published with the model");
        }
        result.push_back(entry == word);
    }
    return result;
}

void add_hf_mixed_heads(HfFamilyTable& table, const HfFamily& llama, const HfFamily& gemma3) {
    table.add("gemma4_text", gemma3, [](HfFamily& f) {
        f.heads.otherwise = f.key_value_heads.otherwise = hf_required;
        f.vocabulary.otherwise = 262144;
        f.experts = {.count = {{"num_experts"}, 0},
                     .per_token = {{"top_k_experts"}},
                     .width = {{"moe_intermediate_size", "expert_intermediate_size"}}};
        f.value_norms = true;
        f.finish = finish_gemma4;
    });
    table.add("mimo_v2_flash", llama, [](HfFamily& f) {
        f.output_bias = f.feed_forward_bias = HfFlag{{}, false};
        f.has_own_kinds = true;
        f.experts = {.count = {{"n_routed_experts"}, 0},
                     .shared = {{"n_shared_experts"}, 0},
                     .router_bias = true,
                     .every_from_first = {{"moe_layer_freq"}, 1}};
        f.known = {"sliding_window", "attention_chunk_size"};  // as sliding_window_size
        f.finish = finish_mimo_v2;
    });
    const HfFamily& step = table.add("step3p5", llama, [](HfFamily& f) {
        f.input_bias = f.output_bias = f.feed_forward_bias = HfFlag{{}, false};
        f.has_own_kinds = true;
        f.context = {{"max_position_embeddings", "max_seq_len"}, 0};
        f.key_value_heads = {{"num_attention_groups", "num_key_value_heads"}};
        f.head_norms = {{"use_qk_norm"}, true};
        f.experts = {.count = {{"moe_num_experts", "num_experts"}},
                     .per_token = {{"moe_top_k", "num_experts_per_tok"}},
                     .shared_width = {{"share_expert_dim", "share_expert_dims"}, 0},
                     .router_bias = true,
                     .dense_first = {{"first_k_dense_replace"}, 3}};
        f.prediction_blocks = {{"num_nextn_predict_layers"}, 0};
        f.known = {"n_shared_experts"};  // as wide as share_expert_dim says
        f.finish = finish_step;
    });
    table.add("step3p7", step);
    const HfFamily& m3 = table.add("minimax_m3", llama, [](HfFamily& f) {
        f.input_bias = f.output_bias = f.feed_forward_bias = HfFlag{{}, false};
        f.has_own_kinds = true;
        f.feed_forward = {{"dense_intermediate_size"}, 12288};
        f.key_value_heads.otherwise = hf_required;
        f.head_norms = {{"use_qk_norm"}, true};
        f.experts = {.count = {{"num_local_experts"}},
                     .width = {{"intermediate_size"}},
                     .shared_width = {{"shared_intermediate_size"}, 0},
                     .router_bias = true,
                     .every_from_first = {{"moe_layer_freq"}, 1},
                     .by_block = "mlp_layer_types"};
        f.finish = finish_minimax_m3;
    });
    table.add("minimax_m3_vl_text", m3);
    table.add("nemotron-nas", llama, [](HfFamily& f) {
        f.feed_forward.otherwise = hf_derived;
        f.finish = finish_nas;
    });
}

void add_hf_shared_indexers(HfFamilyTable& table, const HfFamily& v32) {
    table.add("glm_moe_dsa", v32, [](HfFamily& f) { f.finish = finish_glm_dsa; });
}

}  // namespace pipetwin
