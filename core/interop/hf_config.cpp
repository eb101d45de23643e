#include "core/interop/hf_config.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr std::array<string_view, 11> model_types{"llama",
                                                  "mistral",
                                                  "mixtral",
                                                  "qwen2",
                                                  "qwen2_moe",
                                                  "qwen3",
                                                  "qwen3_moe",
                                                  "deepseek",
                                                  "deepseek_v2",
                                                  "deepseek_v3",
                                                  "gpt2"};

/// Far above every published model, and small enough that no count of parameters of one layer
/// overflows.
constexpr int most_blocks = 49'999;
constexpr int most_width = 1 << 18;
constexpr int most_inner_width = 1 << 20;
constexpr int most_heads = 1 << 14;
constexpr int most_experts = 1 << 13;
constexpr int most_tokens = 1 << 26;
constexpr int most_vocabulary = 1 << 24;

/// Sizes of a config.json. A key that is null stands for one that is not there.
class Config {
  public:
    explicit Config(const JsonObject& object) : object_(object) {}

    bool has(string_view key) const { return object_.has(key) && !object_.is_null(key); }

    int size(string_view key, int most, int least = 1) const {
        const std::string expected = fmt::format("a whole number from {} to {}", least, most);
        if (!has(key)) {
            object_.missing(key, expected, hint_for_missing(key));
        }
        std::int64_t value = -1;
        try {
            value = object_.whole(key);
        } catch (const Error&) {
            object_.refuse(key, expected, as_published);
        }
        if (value < least || value > most) {
            object_.refuse(key, expected, as_published);
        }
        return static_cast<int>(value);
    }

    int size_or(string_view key, int otherwise, int most, int least = 1) const {
        return has(key) ? size(key, most, least) : otherwise;
    }

    bool flag_or(string_view key, bool otherwise) const {
        return has(key) ? object_.flag(key) : otherwise;
    }

    [[noreturn]] void refuse(string_view key, string_view expected, std::string hint) const {
        object_.refuse(key, expected, std::move(hint));
    }

    const JsonObject& object() const { return object_; }

  private:
    static constexpr const char* as_published =
        "compare with the config.json that was published with the model";

    std::string hint_for_missing(string_view key) const {
        const std::vector<std::string> keys = object_.keys();
        const std::vector<string_view> known(keys.begin(), keys.end());
        const string_view near = nearest_word(key, known);
        return near.empty() || near == key
                   ? "every config.json of this model_type has it; is model_type right?"
                   : fmt::format("there is a key '{}'; is that the one?", near);
    }

    const JsonObject& object_;
};

std::optional<std::string> read_precision(const Config& config) {
    const string_view key = config.has("dtype") ? "dtype" : "torch_dtype";
    if (!config.has(key)) {
        return std::nullopt;
    }
    constexpr std::array<std::pair<string_view, string_view>, 3> known{
        std::pair<string_view, string_view>{"bfloat16", "bf16"},
        {"float16", "fp16"},
        {"float32", "fp32"}};
    const std::string word = config.object().text(key);
    const auto found = std::ranges::find(known, word, [](const auto& pair) { return pair.first; });
    if (found == known.end()) {
        config.refuse(key,
                      "bfloat16, float16 or float32",
                      "write what the model is to be trained in, or leave the key out");
    }
    return std::string(found->second);
}

void read_heads(const Config& config, DecoderModel& model) {
    AttentionShape& shape = model.attention;
    shape.heads = config.size("num_attention_heads", most_heads);
    // Only Llama's and DeepSeek's code take a missing key for "as many as heads"; the others have
    // a number of their own there, which published files write out.
    const bool optional = model.family == "llama" || model.family.starts_with("deepseek");
    shape.key_value_heads = optional || config.object().is_null("num_key_value_heads")
                                ? config.size_or("num_key_value_heads", shape.heads, most_heads)
                                : config.size("num_key_value_heads", most_heads);
    if (shape.heads % shape.key_value_heads != 0) {
        config.refuse("num_key_value_heads",
                      fmt::format("a divisor of num_attention_heads, {}", shape.heads),
                      "equal groups of heads share keys and values");
    }
    if (!config.has("head_dim") && model.width % shape.heads != 0) {
        config.refuse("num_attention_heads",
                      fmt::format("a divisor of hidden_size, {}", model.width),
                      "or write the width of a head as head_dim");
    }
    shape.key_width = config.size_or("head_dim", model.width / shape.heads, most_heads);
    shape.value_width = shape.key_width;
}

void read_latent(const Config& config, DecoderModel& model) {
    AttentionShape& shape = model.attention;
    LatentShape latent;
    latent.query_rank = config.size_or("q_lora_rank", 0, most_width);
    latent.key_value_rank = config.size("kv_lora_rank", most_width);
    latent.rotary_width = config.size("qk_rope_head_dim", most_heads);
    shape.heads = config.size("num_attention_heads", most_heads);
    shape.key_value_heads = shape.heads;
    shape.key_width = config.size("qk_nope_head_dim", most_heads) + latent.rotary_width;
    shape.value_width = config.size("v_head_dim", most_heads);
    shape.latent = latent;
}

void read_window(const Config& config, DecoderModel& model) {
    const bool qwen = model.family.starts_with("qwen");
    if (!config.has("sliding_window") || (qwen && !config.flag_or("use_sliding_window", false))) {
        return;
    }
    model.attention.window = config.size("sliding_window", most_tokens);
    model.attention.first_window_block =
        qwen ? config.size_or("max_window_layers", 0, most_blocks, 0) : 0;
}

void read_attention(const Config& config, DecoderModel& model) {
    AttentionShape& shape = model.attention;
    if (model.family == "deepseek_v2" || model.family == "deepseek_v3") {
        read_latent(config, model);
    } else {
        read_heads(config, model);
    }
    shape.input_bias = config.flag_or("attention_bias", false);
    shape.output_bias = shape.input_bias;
    if (model.family.starts_with("qwen2")) {
        shape.input_bias = config.flag_or("qkv_bias", true);
        shape.output_bias = false;
    }
    shape.head_norms = model.family.starts_with("qwen3");
    read_window(config, model);
}

/// The key that holds the number of experts: each family has its own.
string_view expert_key(const Config& config) {
    for (const string_view key : {"num_local_experts", "n_routed_experts", "num_experts"}) {
        if (config.has(key)) {
            return key;
        }
    }
    return {};
}

/// Which blocks have experts; one function for the ways in which the families say it.
std::vector<bool> expert_blocks(const Config& config, const DecoderModel& model) {
    const int dense_first = config.size_or("first_k_dense_replace", 0, most_blocks, 0);
    const int every = config.size_or("moe_layer_freq", 1, most_blocks);
    const int qwen_every = config.size_or("decoder_sparse_step", 1, most_blocks);
    const std::vector<std::int64_t> dense = config.has("mlp_only_layers")
                                                ? config.object().wholes("mlp_only_layers")
                                                : std::vector<std::int64_t>{};
    std::vector<bool> blocks(as_index(model.blocks));
    for (int block = 0; block < model.blocks; ++block) {
        blocks[as_index(block)] = block >= dense_first && block % every == 0 &&
                                  (block + 1) % qwen_every == 0 &&
                                  std::ranges::find(dense, block) == dense.end();
    }
    return blocks;
}

void read_experts(const Config& config, DecoderModel& model) {
    const string_view key = expert_key(config);
    const bool dense_family = model.family == "llama" || model.family == "mistral" ||
                              model.family == "qwen2" || model.family == "qwen3";
    if (dense_family || (key.empty() && model.family.starts_with("deepseek"))) {
        return;
    }
    ExpertShape& experts = model.experts;
    const bool mixtral = model.family == "mixtral";
    experts.count = config.size(
        !key.empty() ? key : (mixtral ? "num_local_experts" : "num_experts"), most_experts);
    experts.per_token = config.size("num_experts_per_tok", most_experts);
    if (experts.per_token > experts.count) {
        config.refuse("num_experts_per_tok",
                      fmt::format("at most {}, the number of experts", experts.count),
                      "a token goes through some of the experts");
    }
    experts.width =
        mixtral ? model.feed_forward : config.size("moe_intermediate_size", most_inner_width);
    if (model.family == "qwen2_moe") {
        experts.shared_width =
            config.size_or("shared_expert_intermediate_size", 0, most_inner_width, 0);
        experts.shared_gate = experts.shared_width > 0;
    }
    const int shared = config.size_or("n_shared_experts", 0, 1 << 10, 0);
    if (shared > 0) {
        experts.shared_width = shared * experts.width;
    }
    model.has_experts = expert_blocks(config, model);
}

DecoderModel read_rotary(const Config& config, std::string family) {
    DecoderModel model{.family = std::move(family)};
    model.blocks = config.size("num_hidden_layers", most_blocks);
    model.width = config.size("hidden_size", most_width);
    model.vocabulary = config.size("vocab_size", most_vocabulary);
    model.context = config.size_or("max_position_embeddings", 0, most_tokens);
    model.feed_forward = config.size("intermediate_size", most_inner_width);
    model.feed_forward_bias = config.flag_or("mlp_bias", false);
    model.tied = config.flag_or("tie_word_embeddings", false);
    model.further_blocks = config.size_or("num_nextn_predict_layers", 0, most_blocks, 0);
    read_attention(config, model);
    read_experts(config, model);
    return model;
}

DecoderModel read_gpt2(const Config& config, std::string family) {
    DecoderModel model{.family = std::move(family)};
    model.blocks = config.size("n_layer", most_blocks);
    model.width = config.size("n_embd", most_width);
    model.vocabulary = config.size("vocab_size", most_vocabulary);
    model.context = config.size("n_positions", most_tokens);
    model.learned_positions = model.context;
    model.feed_forward = config.size_or("n_inner", 4 * model.width, most_inner_width);
    model.gated = false;
    model.feed_forward_bias = true;
    model.norm_bias = true;
    model.tied = config.flag_or("tie_word_embeddings", true);
    model.dropout = !config.has("resid_pdrop") || config.object().number_or("resid_pdrop", 0) > 0;
    AttentionShape& shape = model.attention;
    shape.heads = config.size("n_head", most_heads);
    if (model.width % shape.heads != 0) {
        config.refuse("n_head",
                      fmt::format("a divisor of n_embd, {}", model.width),
                      "all heads have the same width");
    }
    shape.key_value_heads = shape.heads;
    shape.key_width = shape.value_width = model.width / shape.heads;
    shape.input_bias = shape.output_bias = true;
    return model;
}

}  // namespace

DecoderModel parse_hf_config(std::string_view text, std::string_view place) {
    const nlohmann::json root = parse_json(text, place);
    const JsonObject object(root, place, "");
    const Config config(object);
    const std::string known = fmt::format("one of {}", fmt::join(model_types, ", "));
    if (!config.has("model_type")) {
        object.missing("model_type", known, "Hugging Face's config.json names the family there");
    }
    std::string family = object.text("model_type");
    if (std::ranges::find(model_types, family) == model_types.end()) {
        const string_view near = nearest_word(family, model_types);
        object.refuse("model_type",
                      known,
                      near.empty() ? "other models come in as costs: a profile, or a CSV by hand"
                                   : fmt::format("did you mean '{}'?", near));
    }
    DecoderModel model = family == "gpt2" ? read_gpt2(config, std::move(family))
                                          : read_rotary(config, std::move(family));
    model.precision = read_precision(config);
    return model;
}

}  // namespace pipetwin
