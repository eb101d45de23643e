// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_config.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/interop/hf_families.h"
#include "core/interop/hf_keys.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using std::string_view;

/// Far above every published model, and small enough that no count of parameters of one layer
/// overflows.
constexpr int most_blocks = 49'999;
constexpr int most_width = 1 << 18;
constexpr int most_inner_width = 1 << 20;
constexpr int most_heads = 1 << 14;
constexpr int most_experts = 1 << 13;
constexpr int most_tokens = 1 << 26;
constexpr int most_vocabulary = 1 << 24;
constexpr int most_prediction_blocks = 16;
constexpr int most_convolution = 1 << 10;
constexpr double most_parameters = 9007199254740992.0;  // 2^53, as in a profile

/// The size, or what it follows from.
int size_or(const HfConfig& config, const HfSize& size, int derived, int most, int least = 1) {
    const int value = config.size(size, most, least);
    return value == hf_derived ? derived : value;
}

// --- Attention. ---

void read_heads(const HfConfig& config, const HfFamily& family, DecoderModel& model) {
    AttentionShape& shape = model.attention;
    shape.heads = config.size(family.heads, most_heads);
    const HfSize& pairs = family.key_value_heads;
    // A null means "as many as heads" in every family.
    const bool is_null = std::ranges::any_of(
        pairs.keys, [&](string_view key) { return config.object().is_null(key); });
    shape.key_value_heads = is_null && !config.has(config.name(pairs))
                                ? shape.heads
                                : size_or(config, pairs, shape.heads, most_heads);
    if (shape.heads % shape.key_value_heads != 0) {
        config.refuse(pairs.is_read() ? config.name(pairs) : config.name(family.heads),
                      fmt::format("a divisor of {}, {}", config.name(family.heads), shape.heads),
                      "equal groups of heads share keys and values");
    }
    const int derived = model.width / shape.heads;
    shape.key_width = size_or(config, family.head_width, hf_derived, most_heads);
    if (shape.key_width == hf_derived) {
        if (model.width % shape.heads != 0) {
            config.refuse(
                config.name(family.heads),
                fmt::format("a divisor of {}, {}", config.name(family.width), model.width),
                family.head_width.is_read() ? fmt::format("or write the width of a head as {}",
                                                          config.name(family.head_width))
                                            : "all heads have the same width");
        }
        shape.key_width = derived;
    }
    shape.value_width = shape.key_width;
}

void read_latent(const HfConfig& config, const HfFamily& family, DecoderModel& model) {
    AttentionShape& shape = model.attention;
    for (const string_view key : {"num_key_value_heads", "head_dim", "qk_head_dim"}) {
        config.mark_read(key);  // all heads have keys of their own, of the width of both parts
    }
    LatentShape latent;
    latent.query_rank = config.size({{"q_lora_rank"}, 0}, most_width, 0);
    latent.key_value_rank = config.size_at("kv_lora_rank", most_width);
    latent.rotary_width = config.size_at("qk_rope_head_dim", most_heads);
    shape.heads = config.size(family.heads, most_heads);
    shape.key_value_heads = shape.heads;
    shape.key_width = config.size_at("qk_nope_head_dim", most_heads, 0) + latent.rotary_width;
    shape.value_width = config.size_at("v_head_dim", most_heads);
    if (family.indexer) {
        if (latent.query_rank == 0) {
            config.refuse("q_lora_rank",
                          fmt::format("a whole number from 1 to {}", most_width),
                          "the indexer's queries come out of that row");
        }
        latent.indexer = IndexerShape{.heads = config.size_at("index_n_heads", most_heads),
                                      .width = config.size_at("index_head_dim", most_heads),
                                      .keys = config.size({{"index_topk"}, 2048}, most_tokens)};
    }
    shape.latent = latent;
}

// --- Which blocks are of which kind. ---

/// Block by block: true but for each n-th.
std::vector<bool> all_but_each(int n, int blocks) {
    std::vector<bool> kinds(as_index(blocks));
    for (int block = 0; block < blocks; ++block) {
        kinds[as_index(block)] = (block + 1) % n != 0;
    }
    return kinds;
}

/// A pattern of L for a window and G for none, which starts again where it ends: "LLLG". The last
/// block sees all.
std::vector<bool> windows_of_pattern(const HfConfig& config, string_view key, int blocks) {
    const std::string pattern = config.object().text(key);
    if (pattern.empty() || pattern.find_first_not_of("LG") != pattern.npos) {
        config.refuse(key, "letters L and G, as in LLLG, or a whole number", "");
    }
    std::vector<bool> kinds(as_index(blocks));
    for (std::size_t block = 0; block < kinds.size(); ++block) {
        kinds[block] = pattern[block % pattern.size()] == 'L';
    }
    kinds.back() = false;
    return kinds;
}

/// "layer_types": one word per block.
void read_layer_types(const HfConfig& config, const HfFamily& family, DecoderModel& model) {
    constexpr string_view key = "layer_types";
    const std::vector<std::string> words = config.object().texts(key);
    if (std::ssize(words) != model.blocks) {
        config.refuse(key,
                      fmt::format("a list of {}, one per block, found {}",
                                  counted(model.blocks, "word"),
                                  words.size()),
                      "compare it with the number of blocks");
    }
    std::vector<bool> windows;
    std::vector<bool> linear;
    for (const std::string& word : words) {
        const bool is_linear = word == "linear_attention";
        const bool is_window = word == "sliding_attention" || word == "chunked_attention";
        const bool is_full = word == "full_attention" || word == "attention" ||
                             (word == "deepseek_sparse_attention" && family.indexer);
        if (!is_full && !is_window && (!is_linear || !family.linear.key_heads.is_read())) {
            config.refuse(key,
                          fmt::format("blocks of attention, found '{}'", word),
                          fmt::format("such blocks are not known for '{}': bring the costs as a "
                                      "profile, measured or written by hand",
                                      family.type));
        }
        windows.push_back(is_window);
        linear.push_back(is_linear);
    }
    if (std::ranges::find(windows, true) != windows.end()) {
        if (!family.window.size.is_read()) {
            config.refuse(
                key,
                fmt::format("blocks that see all tokens: '{}' has no window", family.type),
                "is model_type right?");
        }
        // A window of null or 0 is none.
        model.attention.window = std::max(
            0,
            config.size({family.window.size.keys, std::max(0, family.window.size.otherwise)},
                        most_tokens,
                        0));
        model.attention.window_blocks = std::move(windows);
    }
    if (std::ranges::find(linear, true) != linear.end()) {
        model.attention.linear_blocks = std::move(linear);
    }
}

/// Reads the kinds of blocks from the family's pattern, where there is no list of them.
void read_kinds_of_blocks(const HfConfig& config, const HfFamily& family, DecoderModel& model) {
    AttentionShape& shape = model.attention;
    if (family.linear.key_heads.is_read()) {
        const int every = config.size(family.linear.full_every, most_blocks);
        shape.linear_blocks = all_but_each(every, model.blocks);
    }
    const HfWindow& window = family.window;
    if (!window.size.is_read() || !config.flag(window.used)) {
        return;
    }
    const int otherwise = std::max(0, window.size.otherwise);
    shape.window = config.size({window.size.keys, otherwise}, most_tokens, 0);
    if (shape.window == 0) {
        return;
    }
    shape.first_window_block = config.size(window.first_block, most_blocks, 0);
    const string_view pattern =
        window.full_every.is_read() ? config.name(window.full_every) : string_view{};
    if (!pattern.empty() && config.object().is_text(pattern)) {
        shape.window_blocks = windows_of_pattern(config, pattern, model.blocks);
    } else if (const int every = config.size(window.full_every, most_blocks, 0); every > 0) {
        shape.window_blocks = all_but_each(every, model.blocks);
    }
}

void read_linear(const HfConfig& config, const HfFamily& family, DecoderModel& model) {
    const HfLinearAttention& linear = family.linear;
    if (model.attention.linear_blocks.empty()) {
        return;
    }
    model.attention.linear =
        LinearAttentionShape{.key_heads = config.size(linear.key_heads, most_heads),
                             .key_width = config.size(linear.key_width, most_heads),
                             .value_heads = config.size(linear.value_heads, most_heads),
                             .value_width = config.size(linear.value_width, most_heads),
                             .convolution = config.size(linear.convolution, most_convolution)};
}

void read_attention(const HfConfig& config, const HfFamily& family, DecoderModel& model) {
    AttentionShape& shape = model.attention;
    if (family.latent) {
        read_latent(config, family, model);
    } else {
        read_heads(config, family, model);
    }
    shape.input_bias = config.flag(family.input_bias);
    shape.output_bias = config.flag(family.output_bias);
    shape.head_norms = config.flag(family.head_norms);
    shape.own_norms = config.flag(family.own_norms);
    shape.value_norms = family.value_norms;
    shape.gated = config.flag(family.output_gate);
    shape.sinks = family.sinks;
    shape.rotary = family.rotary;
    if (family.distance_buckets.is_read()) {
        shape.distance_buckets = config.size(family.distance_buckets, most_tokens);
        shape.distances_in_every_block = family.distances_in_every_block;
    }
    if (family.has_own_kinds) {
        return;
    }
    if (config.has("layer_types")) {
        read_layer_types(config, family, model);
    } else {
        read_kinds_of_blocks(config, family, model);
    }
    read_linear(config, family, model);
}

// --- Experts. ---

/// Indices of blocks in a list; empty where there is no list.
std::vector<std::int64_t> blocks_in(const HfConfig& config, string_view key) {
    return !key.empty() && config.has(key) ? config.object().wholes(key)
                                           : std::vector<std::int64_t>{};
}

/// A list of one entry per block that says which have experts: "sparse", or 1.
std::optional<std::vector<bool>> listed_expert_blocks(const HfConfig& config,
                                                      const HfExperts& rule,
                                                      int blocks) {
    std::vector<bool> kinds;
    string_view key;
    if (!rule.by_block.empty() && config.has(rule.by_block)) {
        key = rule.by_block;
        for (const std::string& word : config.object().texts(key)) {
            kinds.push_back(word == "sparse");
        }
    } else if (rule.every_from_first.is_read() && config.has(rule.every_from_first.keys[0]) &&
               config.object().is_list(rule.every_from_first.keys[0])) {
        key = rule.every_from_first.keys[0];
        for (const std::int64_t one : config.object().wholes(key)) {
            kinds.push_back(one != 0);
        }
    } else {
        return std::nullopt;
    }
    if (std::ssize(kinds) != blocks) {
        config.refuse(
            key,
            fmt::format(
                "a list of {}, one per block, found {}", counted(blocks, "entry"), kinds.size()),
            "compare it with the number of blocks");
    }
    return kinds;
}

/// Which blocks have experts; one function for the ways in which the families say it.
std::vector<bool> expert_blocks(const HfConfig& config, const HfExperts& rule, int blocks) {
    if (auto listed = listed_expert_blocks(config, rule, blocks)) {
        return std::move(*listed);
    }
    const auto number = [&](const HfSize& size, int otherwise, int least) {
        return size.is_read() ? config.size(size, most_blocks, least) : otherwise;
    };
    const int dense_first = number(rule.dense_first, 0, 0);
    const int from_first = number(rule.every_from_first, 1, 1);
    const int from_nth = number(rule.every_from_nth, 1, 1);
    const std::vector<std::int64_t> without = blocks_in(config, rule.without);
    const bool has_list = !rule.with.empty() && config.has(rule.with);
    const std::vector<std::int64_t> with = blocks_in(config, rule.with);
    std::vector<bool> kinds(as_index(blocks));
    for (int block = 0; block < blocks; ++block) {
        const bool by_rule = block >= dense_first && block % from_first == 0 &&
                             (block + 1) % from_nth == 0 &&
                             std::ranges::find(without, block) == without.end();
        kinds[as_index(block)] = has_list ? std::ranges::find(with, block) != with.end() : by_rule;
    }
    return kinds;
}

void read_experts(const HfConfig& config, const HfFamily& family, DecoderModel& model) {
    const HfExperts& rule = family.experts;
    const int count = rule.count.is_read() ? config.size(rule.count, most_experts, 0) : 0;
    if (count == 0) {
        return;
    }
    ExpertShape& experts = model.experts;
    experts.count = count;
    experts.per_token = config.size(rule.per_token, most_experts);
    if (experts.per_token > experts.count) {
        config.refuse(config.name(rule.per_token),
                      fmt::format("at most {}, the number of experts", experts.count),
                      "a token goes through some of the experts");
    }
    experts.width = config.size(rule.width, most_inner_width);
    if (rule.shared_width.is_read()) {
        experts.shared_width = config.size(rule.shared_width, most_inner_width, 0);
    }
    if (rule.shared.is_read()) {
        experts.shared_width = config.size(rule.shared, 1 << 10, 0) * experts.width;
    }
    experts.shared_gate = rule.shared_gate && experts.shared_width > 0;
    experts.bias = rule.bias;
    experts.router_bias = rule.router_bias;
    model.has_experts = expert_blocks(config, rule, model.blocks);
}

// --- The whole. ---

/// Keys that change a model where a family's code knows them.
const std::vector<string_view>& keys_of_structure() {
    static const std::vector<string_view> keys{"num_experts",
                                               "num_local_experts",
                                               "n_routed_experts",
                                               "moe_num_experts",
                                               "n_shared_experts",
                                               "shared_expert_intermediate_size",
                                               "kv_lora_rank",
                                               "num_nextn_predict_layers",
                                               "mtp_num_hidden_layers",
                                               "num_mtp_modules",
                                               "attention_bias",
                                               "mlp_bias",
                                               "qkv_bias",
                                               "use_qk_norm",
                                               "qk_layernorm",
                                               "is_encoder_decoder",
                                               "add_cross_attention",
                                               "parallel_attn",
                                               "num_kv_shared_layers",
                                               "hidden_size_per_layer_input",
                                               "use_mamba",
                                               "mamba_d_state",
                                               "mamba_num_heads",
                                               "ssm_cfg",
                                               "full_attention_interval"};
    return keys;
}

void add_remarks(const HfConfig& config, const HfFamily& family, DecoderModel& model) {
    for (const string_view key : family.known) {
        config.mark_read(key);
    }
    if (model.encoder_blocks > 0) {
        config.mark_read("is_encoder_decoder");
    }
    if (model.attention.head_norms || model.attention.own_norms) {
        config.mark_read("use_qk_norm");
        config.mark_read("qk_layernorm");
    }
    for (const string_view key : config.unread(keys_of_structure())) {
        model.remarks.push_back(
            fmt::format("the file's '{}' is not read for model_type '{}': what it changes is not "
                        "in the costs",
                        key,
                        family.type));
    }
    for (const auto& [there, meant] : config.misspelt()) {
        model.remarks.push_back(fmt::format(
            "the file's '{}' is not read, and it has no '{}': is that key meant?", there, meant));
    }
    std::vector<std::string> unknown = config.unknown();
    const std::vector<string_view> own = hf_keys_of(family);
    const std::vector<HfConfig::Misspelt> others = config.misspelt();
    std::erase_if(unknown, [&](const std::string& key) {
        return std::ranges::find(own, key) != own.end() ||
               std::ranges::find(keys_of_structure(), key) != keys_of_structure().end() ||
               std::ranges::find(others, key, &HfConfig::Misspelt::there) != others.end();
    });
    if (!unknown.empty()) {
        model.remarks.push_back(
            fmt::format("keys that are neither read nor known to be harmless for model_type '{}': "
                        "{}; what they change, if anything, is not in the costs",
                        family.type,
                        fmt::join(unknown, ", ")));
    }
    for (const char* other : {"vision_config", "audio_config"}) {
        if (config.object().has(other) && !config.object().is_null(other)) {
            model.remarks.push_back(
                fmt::format("the text model alone: what {} describes is left out", other));
        }
    }
}

/// Counts of parameters have to fit into a profile.
void check_count(const HfConfig& config, const HfFamily& family, const DecoderModel& model) {
    double most_of_a_block = 0;
    for (int block = 0; block < model.blocks; ++block) {
        most_of_a_block = std::max(most_of_a_block,
                                   static_cast<double>(attention_parameters(model, block)) +
                                       static_cast<double>(feed_forward_parameters(model, block)));
    }
    const double blocks =
        static_cast<double>(model.blocks) + model.encoder_blocks + model.prediction_blocks;
    if (blocks * most_of_a_block > most_parameters) {
        config.refuse(config.name(family.blocks),
                      "a model of at most 2^53 parameters",
                      "compare with the config.json that was published with the model");
    }
}

DecoderModel read_model(const HfConfig& config, const HfFamily& family) {
    DecoderModel model{.family = std::string(family.type)};
    model.blocks = family.count_blocks != nullptr ? family.count_blocks(config)
                                                  : config.size(family.blocks, most_blocks);
    model.blocks_key = config.name(family.blocks);
    model.width = config.size(family.width, most_width);
    model.vocabulary = config.size(family.vocabulary, most_vocabulary);
    model.context = config.size(family.context, most_tokens, 0);
    if (family.learned_positions) {
        model.learned_positions = model.context;
        model.positions_key = config.name(family.context);
        model.position_padding = family.position_padding;
    }
    model.gated = family.gated;
    model.activation_parameters = family.activation_parameters;
    model.norm_gain = family.norm_gain;
    model.norm_bias = family.norm_bias;
    model.attention_norms = family.attention_norms;
    model.feed_forward_norms = family.feed_forward_norms;
    model.norm_behind_attention = family.norm_behind_attention;
    model.embedding_norm = family.embedding_norm;
    model.feed_forward = size_or(
        config, family.feed_forward, std::min(4 * model.width, most_inner_width), most_inner_width);
    model.feed_forward_bias = config.flag(family.feed_forward_bias);
    model.head_bias = config.flag(family.head_bias);
    model.tied = config.flag(family.tied);
    for (const string_view key : family.dropout) {
        model.dropout = model.dropout || (config.has(key) && config.object().number_or(key, 0) > 0);
    }
    if (family.encoder_blocks.is_read()) {
        model.encoder_blocks = config.size(family.encoder_blocks, most_blocks / 2);
    }
    read_attention(config, family, model);
    read_experts(config, family, model);
    if (family.prediction_blocks.is_read()) {
        model.prediction_blocks = config.size(family.prediction_blocks, most_prediction_blocks, 0);
        model.further_blocks = model.prediction_blocks;
    }
    if (family.finish != nullptr) {
        family.finish(config, model);
    }
    check_count(config, family, model);
    add_remarks(config, family, model);
    return model;
}

// --- Precision. ---

/// The precision of a word of a file; none for words that name none that weights are trained in.
std::optional<std::string> precision_of(string_view word) {
    if (word.starts_with("torch.")) {
        word.remove_prefix(6);
    }
    constexpr std::array<std::pair<string_view, string_view>, 8> known{{{"bfloat16", "bf16"},
                                                                        {"bf16", "bf16"},
                                                                        {"float16", "fp16"},
                                                                        {"fp16", "fp16"},
                                                                        {"half", "fp16"},
                                                                        {"float32", "fp32"},
                                                                        {"fp32", "fp32"},
                                                                        {"float", "fp32"}}};
    const auto found = std::ranges::find(known, word, [](const auto& pair) { return pair.first; });
    return found == known.end() ? std::nullopt : std::optional(std::string(found->second));
}

/// The first of the objects that says a precision counts.
void read_precision(const std::vector<const JsonObject*>& objects, DecoderModel& model) {
    for (const JsonObject* object : objects) {
        for (const char* key : {"dtype", "torch_dtype"}) {
            if (!object->has(key) || object->is_null(key) || !model.precision_key.empty()) {
                continue;
            }
            model.precision_key = key;
            model.precision_word = object->is_text(key) ? object->text(key) : "";
            model.precision_value = object->shown(key);
            model.precision = precision_of(model.precision_word);
        }
        constexpr const char* key = "quantization_config";
        if (object->has(key) && !object->is_null(key) && model.quantization.empty()) {
            const JsonObject quantization = object->object(key);
            model.quantization = quantization.is_text("quant_method")
                                     ? quantization.text("quant_method")
                                     : "of an unknown kind";
        }
    }
}

// --- Which family. ---

/// The family's word, with small letters and digits alone.
std::string letters_of(string_view word) {
    std::string letters;
    for (const char c : word) {
        const bool is_upper = c >= 'A' && c <= 'Z';
        if (is_upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
            letters += static_cast<char>(is_upper ? c - 'A' + 'a' : c);
        }
    }
    return letters;
}

/// The parts of a family's word between its signs, with small letters.
std::vector<std::string> parts_of(string_view word) {
    std::vector<std::string> parts(1);
    for (const char c : word) {
        if (c == '_' || c == '-' || c == '.' || c == ' ') {
            parts.emplace_back();
        } else {
            parts.back() += letters_of(string_view(&c, 1));
        }
    }
    return parts;
}

/// Whether one part of a word is another one that is misspelt. Parts with a digit have to be of one
/// length: "glm4v" is not "glm4".
bool is_misspelt(const std::string& part, const std::string& known) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto letters = [&is_digit](std::string text) {
        std::erase_if(text, is_digit);
        return text;
    };
    const auto digits = [&is_digit](std::string text) {
        std::erase_if(text, [&is_digit](char c) { return !is_digit(c); });
        return text;
    };
    const bool has_digit = std::ranges::any_of(known, is_digit);
    const std::size_t length = letters(known).size();
    return length >= 4 && digits(part) == digits(known) &&
           (!has_digit || part.size() == known.size()) &&
           edit_distance(part, known) <= (length >= 9 ? 2U : 1U);
}

/// A word of the table is suggested where it is the same but for signs and capitals, or has the
/// same parts, of which one is misspelt. Words that share a part alone are other models: neither
/// "gemma4_text" is "llama4_text" nor "nemotron-nas" "nemotron".
std::string hint_for_unknown(string_view type) {
    const std::string letters = letters_of(type);
    const auto same = std::ranges::find_if(hf_families(), [&letters](const HfFamily& family) {
        return letters_of(family.type) == letters;
    });
    if (same != hf_families().end()) {
        return fmt::format("did you mean '{}'?", same->type);
    }
    const std::vector<std::string> parts = parts_of(type);
    for (const HfFamily& family : hf_families()) {
        const std::vector<std::string> known = parts_of(family.type);
        const auto [part, other] = std::ranges::mismatch(parts, known);
        const bool is_near = parts.size() == known.size() && part != parts.end() &&
                             std::equal(part + 1, parts.end(), other + 1) &&
                             is_misspelt(*part, *other);
        if (is_near) {
            return fmt::format("did you mean '{}'?", family.type);
        }
    }
    return "other models come in as costs: a profile that tools/profile_torch.py measures, or a "
           "CSV by hand";
}

/// The family that the class of the model is named after: "LlamaForCausalLM" is a llama's,
/// "GPT2LMHeadModel" a gpt2's. Null
/// where the file names no class, or one of no family here.
const HfFamily* family_of_class(const JsonObject& object) {
    constexpr const char* key = "architectures";
    if (!object.is_list(key)) {
        return nullptr;
    }
    for (const std::string& name : object.texts(key)) {
        const std::size_t end = std::min(name.find("For"), name.find("LMHead"));
        const std::string letters = letters_of(name.substr(0, end));
        const auto same = std::ranges::find_if(hf_families(), [&letters](const HfFamily& family) {
            return letters_of(family.type) == letters;
        });
        if (same != hf_families().end()) {
            return &*same;
        }
    }
    return nullptr;
}

const HfFamily& family_of(const JsonObject& object, string_view otherwise) {
    std::vector<string_view> types;
    std::ranges::transform(hf_families(), std::back_inserter(types), &HfFamily::type);
    const std::string known = fmt::format("one of {}", fmt::join(types, ", "));
    constexpr const char* key = "model_type";
    if ((!object.has(key) || object.is_null(key)) && otherwise.empty()) {
        if (const HfFamily* const family = family_of_class(object)) {
            return *family;
        }
        if (object.has("quantization") && object.has("producer")) {
            object.missing(key,
                           "that of a config.json: this is ModelOpt's file on the quantization",
                           "import the config.json of the model, which stands beside it");
        }
        object.missing(key,
                       known,
                       "write \"model_type\": \"llama\" into the config.json, or the word of the "
                       "model's own family");
    }
    const std::string type =
        object.has(key) && !object.is_null(key) ? object.text(key) : std::string(otherwise);
    const HfFamily* family = find_hf_family(type);
    if (family == nullptr) {
        object.refuse(key, known, hint_for_unknown(type));
    }
    return *family;
}

}  // namespace

std::vector<std::string_view> hf_model_types() {
    std::vector<string_view> types;
    std::ranges::transform(hf_families(), std::back_inserter(types), &HfFamily::type);
    return types;
}

std::optional<JsonObject> hf_text_part(const JsonObject& object) {
    for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config"}) {
        if (object.is_object(key)) {
            const JsonObject inside = object.object(key);
            return inside.is_object("text_config") ? inside.object("text_config") : inside;
        }
    }
    return std::nullopt;
}

DecoderModel parse_hf_config(std::string_view text, std::string_view place) {
    const nlohmann::json root = parse_python_json(text, place);
    const JsonObject object(root, place, "");
    const std::optional<JsonObject> part = hf_text_part(object);
    if (!part) {
        const HfConfig config(object);
        DecoderModel model = read_model(config, family_of(object, ""));
        read_precision({&object}, model);
        return model;
    }
    const std::string outer =
        object.is_text("model_type") ? object.text("model_type") : std::string{};
    const HfFamily& family = family_of(*part, hf_text_type(outer));
    const HfConfig config(*part);
    DecoderModel model = read_model(config, family);
    if (!config.has("tie_word_embeddings") && !family.tied.keys.empty()) {
        model.tied = HfConfig(object).flag({{"tie_word_embeddings"}, family.tied.otherwise});
    }
    read_precision({&*part, &object}, model);
    model.is_part = true;
    model.remarks.push_back(
        fmt::format("the text model '{}' inside a {}: everything else of it is left out",
                    family.type,
                    outer.empty() ? "larger model" : fmt::format("'{}'", outer)));
    return model;
}

}  // namespace pipetwin
