// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_trainable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/interop/hf_config.h"
#include "core/interop/hf_names.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr double gpt_epsilon = 1e-5;
constexpr string_view no_value = "none";  ///< of a key of which nothing may be said
/// Words of "activation_function" for one function, the usual one first.
constexpr std::array<string_view, 2> exact_gelus{"gelu", "gelu_python"};
constexpr std::array<string_view, 5> tanh_gelus{
    "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate", "gelu_python_tanh"};

constexpr string_view word_of_no(bool answer) {
    return answer ? "true" : "false";
}

int key_value_heads_of(const LlamaSizes& sizes) {
    return sizes.key_value_heads > 0 ? sizes.key_value_heads : sizes.heads;
}

int head_size_of(const LlamaSizes& sizes) {
    return sizes.head_size > 0 ? sizes.head_size : sizes.d_model / std::max(1, sizes.heads);
}

/// Reads what `parse_hf_config` does not: keys that change no size.
class FurtherKeys {
  public:
    FurtherKeys(const JsonObject& object, HfTrainable& found) : object_(object), found_(found) {}

    /// A key that may have one value alone, which it also has where it is missing.
    void expect(string_view key, bool only) {
        if (has(key) && (!is_flag(key) || object_.flag(key) != only)) {
            lack(key, word_of_no(only));
        }
    }
    void expect(string_view key, double only) {
        if (has(key) && object_.number_or(key, only) != only) {
            lack(key, fmt::format("{}", only));
        }
    }
    /// A key of which nothing may be said.
    void expect_none(string_view key) {
        if (has(key) && object_.says_something(key)) {
            lack(key, no_value);
        }
    }
    void lack(string_view key, string_view expected) {
        found_.lacks.push_back(
            {.where = std::string(key),
             .what = fmt::format("{}, expected {}: the executor trains only models {}",
                                 object_.shown(key),
                                 expected,
                                 expected == no_value ? "without it" : "like that")});
    }
    bool has(string_view key) const { return object_.has(key) && !object_.is_null(key); }

  private:
    bool is_flag(string_view key) const {
        const std::string word = object_.shown(key);
        return word == "true" || word == "false";
    }

    const JsonObject& object_;
    HfTrainable& found_;
};

/// Probabilities of dropout; those of attention have none here.
double dropout_of_gpt2(const JsonObject& object, std::vector<std::string>& notes) {
    const double dropout = object.number_or("resid_pdrop", 0.1);
    const double of_attention = object.number_or("attn_pdrop", 0.1);
    if (of_attention > 0 && dropout > 0) {
        notes.push_back(fmt::format(
            "attn_pdrop is {}, but probabilities of attention are not dropped here", of_attention));
    }
    if (object.number_or("embd_pdrop", 0.1) != dropout) {
        notes.push_back(fmt::format("embd_pdrop is {}, but one dropout is that of all places: {}",
                                    object.number_or("embd_pdrop", 0.1),
                                    dropout));
    }
    return dropout;
}

void read_gpt2(const DecoderModel& sizes, const JsonObject& object, HfTrainable& found) {
    GptSizes& gpt = found.model.gpt;
    gpt = {.layers = sizes.blocks,
           .d_model = sizes.width,
           .heads = sizes.attention.heads,
           .context = sizes.context,
           .vocabulary = sizes.vocabulary,
           .feed_forward = sizes.feed_forward,
           .tied = sizes.tied,
           .dropout = dropout_of_gpt2(object, found.notes)};
    FurtherKeys keys(object, found);
    constexpr string_view activation = "activation_function";
    const std::string function = object.text_or(activation, std::string(tanh_gelus.front()));
    if (std::ranges::find(tanh_gelus, function) != tanh_gelus.end()) {
        gpt.gelu = GeluForm::Tanh;
    } else if (std::ranges::find(exact_gelus, function) == exact_gelus.end()) {
        keys.lack(activation, "\"gelu\" or \"gelu_new\"");
    }
    keys.expect("layer_norm_epsilon", gpt_epsilon);
    keys.expect("scale_attn_weights", true);
    keys.expect("scale_attn_by_inverse_layer_idx", false);
    keys.expect("add_cross_attention", false);
}

nlohmann::ordered_json gpt2_config(const GptSizes& sizes) {
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"vocab_size", sizes.vocabulary},
            {"n_positions", sizes.context},
            {"n_embd", sizes.d_model},
            {"n_layer", sizes.layers},
            {"n_head", sizes.heads},
            {"n_inner", sizes.feed_forward > 0 ? sizes.feed_forward : 4 * sizes.d_model},
            {"activation_function",
             sizes.gelu == GeluForm::Tanh ? tanh_gelus.front() : exact_gelus.front()},
            {"layer_norm_epsilon", gpt_epsilon},
            {"resid_pdrop", sizes.dropout},
            {"embd_pdrop", sizes.dropout},
            {"attn_pdrop", 0.0},
            {"scale_attn_weights", true},
            {"tie_word_embeddings", sizes.tied}};
}

std::vector<HfModelKey> gpt_model_keys(const GptSizes& sizes) {
    const auto number = [](int value) { return fmt::to_string(value); };
    return {{"layers", number(sizes.layers), "n_layer"},
            {"d_model", number(sizes.d_model), "n_embd"},
            {"heads", number(sizes.heads), "n_head"},
            {"context", number(sizes.context), "n_positions"},
            {"vocabulary", number(sizes.vocabulary), "vocab_size"},
            {"feed_forward",
             number(sizes.feed_forward > 0 ? sizes.feed_forward : 4 * sizes.d_model),
             "n_inner"},
            {"tied", std::string(word_of_no(sizes.tied)), "tie_word_embeddings"},
            {"dropout", fmt::format("{}", sizes.dropout), "resid_pdrop"},
            {"gelu",
             sizes.gelu == GeluForm::Tanh ? "\"tanh\"" : "\"exact\"",
             "activation_function (its form of GELU)"}};
}

/// Turned positions: "rope_theta" and "rope_scaling", or "rope_parameters" with both.
void read_rotary(const JsonObject& object, FurtherKeys& keys, double base, Rotary& rotary) {
    constexpr string_view together = "rope_parameters";
    const string_view scaling = keys.has(together) ? together : "rope_scaling";
    rotary.base = object.number_or("rope_theta", base);
    if (!keys.has(scaling)) {
        return;
    }
    const JsonObject scaled = object.object(scaling);
    rotary.base = scaled.number_or("rope_theta", rotary.base);
    const std::string type = scaled.text_or("rope_type", scaled.text_or("type", "default"));
    if (type == "default") {
        return;
    }
    if (type != "linear" && type != "llama3") {
        keys.lack(scaling, "rope_type \"default\", \"linear\" or \"llama3\"");
        return;
    }
    rotary.factor = scaled.number_or("factor", 1);
    if (type == "llama3") {
        rotary.context = static_cast<int>(std::min<std::int64_t>(
            scaled.whole("original_max_position_embeddings"), std::numeric_limits<int>::max()));
        rotary.low_frequency = scaled.number_or("low_freq_factor", rotary.low_frequency);
        rotary.high_frequency = scaled.number_or("high_freq_factor", rotary.high_frequency);
    }
}

/// A Llama, or a family that is like it but for what it has where a file says nothing: what its
/// norms add, and the base of its positions.
void read_as_llama(const DecoderModel& sizes,
                   const JsonObject& object,
                   double epsilon,
                   double rotary_base,
                   HfTrainable& found) {
    LlamaSizes& llama = found.model.llama;
    llama = {.layers = sizes.blocks,
             .d_model = sizes.width,
             .heads = sizes.attention.heads,
             .key_value_heads = sizes.attention.key_value_heads,
             .head_size = sizes.attention.key_width,
             .context = sizes.context > 0 ? sizes.context : 2048,
             .vocabulary = sizes.vocabulary,
             .feed_forward = sizes.feed_forward,
             .tied = sizes.tied,
             .epsilon = object.number_or("rms_norm_eps", epsilon)};
    FurtherKeys keys(object, found);
    if (object.text_or("hidden_act", "silu") != "silu") {
        keys.lack("hidden_act", "\"silu\"");
    }
    keys.expect("attention_bias", false);
    keys.expect("mlp_bias", false);
    keys.expect("partial_rotary_factor", 1.0);
    keys.expect_none("sliding_window");
    keys.expect_none("quantization_config");
    read_rotary(object, keys, rotary_base, llama.rotary);
    if (object.number_or("attention_dropout", 0) > 0) {
        found.notes.push_back(
            fmt::format("attention_dropout is {}, but probabilities of attention are not dropped "
                        "here",
                        object.number_or("attention_dropout", 0)));
    }
}

void read_llama(const DecoderModel& sizes, const JsonObject& object, HfTrainable& found) {
    read_as_llama(sizes, object, 1e-6, LlamaSizes{}.rotary.base, found);
}

void read_mixtral(const DecoderModel& sizes, const JsonObject& object, HfTrainable& found) {
    read_as_llama(sizes, object, 1e-5, 1e6, found);
    LlamaSizes& llama = found.model.llama;
    llama.feed_forward = 0;
    llama.expert_feed_forward = sizes.experts.width;
    llama.routing = {.experts = sizes.experts.count, .per_row = sizes.experts.per_token};
    FurtherKeys keys(object, found);
    keys.expect("router_jitter_noise", 0.0);
    if ((keys.has("output_router_logits") && object.flag("output_router_logits"))) {
        found.notes.push_back(
            "output_router_logits is true, but no loss of unequal loads is added: Hugging Face's "
            "is "
            "one of all blocks together, and auxiliary_loss one of each");
    }
}

nlohmann::ordered_json llama_config(const LlamaSizes& sizes) {
    nlohmann::ordered_json config{{"architectures", {"LlamaForCausalLM"}},
                                  {"model_type", "llama"},
                                  {"vocab_size", sizes.vocabulary},
                                  {"max_position_embeddings", sizes.context},
                                  {"hidden_size", sizes.d_model},
                                  {"num_hidden_layers", sizes.layers},
                                  {"num_attention_heads", sizes.heads},
                                  {"num_key_value_heads", key_value_heads_of(sizes)},
                                  {"head_dim", head_size_of(sizes)},
                                  {"intermediate_size", sizes.feed_forward},
                                  {"hidden_act", "silu"},
                                  {"rms_norm_eps", sizes.epsilon},
                                  {"attention_bias", false},
                                  {"mlp_bias", false},
                                  {"attention_dropout", 0.0},
                                  {"rope_theta", sizes.rotary.base},
                                  {"rope_scaling", nullptr},
                                  {"tie_word_embeddings", sizes.tied}};
    const Rotary& rotary = sizes.rotary;
    if (rotary.factor != 1 && rotary.context > 0) {
        config["rope_scaling"] = {{"rope_type", "llama3"},
                                  {"factor", rotary.factor},
                                  {"low_freq_factor", rotary.low_frequency},
                                  {"high_freq_factor", rotary.high_frequency},
                                  {"original_max_position_embeddings", rotary.context}};
    } else if (rotary.factor != 1) {
        config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", rotary.factor}};
    }
    if (const Routing& routing = sizes.routing; routing.experts > 0) {
        config["architectures"] = {"MixtralForCausalLM"};
        config["model_type"] = "mixtral";
        config["intermediate_size"] = sizes.expert_feed_forward;
        config["num_local_experts"] = routing.experts;
        config["num_experts_per_tok"] = routing.per_row;
        config["output_router_logits"] = false;
        config["sliding_window"] = nullptr;
    }
    return config;
}

std::vector<HfModelKey> llama_model_keys(const LlamaSizes& sizes) {
    const auto number = [](auto value) { return fmt::format("{}", value); };
    std::vector<HfModelKey> keys{
        {"layers", number(sizes.layers), "num_hidden_layers"},
        {"d_model", number(sizes.d_model), "hidden_size"},
        {"heads", number(sizes.heads), "num_attention_heads"},
        {"key_value_heads", number(key_value_heads_of(sizes)), "num_key_value_heads"},
        {"head_size", number(head_size_of(sizes)), "head_dim"},
        {"context", number(sizes.context), "max_position_embeddings"},
        {"vocabulary", number(sizes.vocabulary), "vocab_size"},
        {"feed_forward", number(sizes.feed_forward), "intermediate_size"},
        {"tied", std::string(word_of_no(sizes.tied)), "tie_word_embeddings"},
        {"epsilon", number(sizes.epsilon), "rms_norm_eps"},
        {"rotary_base", number(sizes.rotary.base), "rope_theta"}};
    if (sizes.routing.experts > 0) {
        std::erase_if(keys, [](const HfModelKey& key) { return key.name == "feed_forward"; });
        keys.push_back({"experts", number(sizes.routing.experts), "num_local_experts"});
        keys.push_back({"experts_per_token", number(sizes.routing.per_row), "num_experts_per_tok"});
        keys.push_back(
            {"expert_feed_forward", number(sizes.expert_feed_forward), "intermediate_size"});
    }
    const Rotary& rotary = sizes.rotary;
    keys.push_back({"rotary_factor", number(rotary.factor), "rope_scaling/factor"});
    const bool is_gradual = rotary.factor != 1 && rotary.context > 0;
    const Rotary used = is_gradual ? rotary : Rotary{};
    keys.push_back(
        {"rotary_context", number(used.context), "rope_scaling/original_max_position_embeddings"});
    keys.push_back(
        {"rotary_low_frequency", number(used.low_frequency), "rope_scaling/low_freq_factor"});
    keys.push_back(
        {"rotary_high_frequency", number(used.high_frequency), "rope_scaling/high_freq_factor"});
    return keys;
}

/// A family that is a kind of model here.
struct TrainedFamily {
    string_view family{};
    ModelKind kind{};
    void (*read)(const DecoderModel& sizes, const JsonObject& object, HfTrainable& found) = nullptr;
};

constexpr std::array trained_families{
    TrainedFamily{.family = "gpt2", .kind = ModelKind::Gpt, .read = read_gpt2},
    TrainedFamily{.family = "llama", .kind = ModelKind::Llama, .read = read_llama},
    TrainedFamily{.family = "mistral", .kind = ModelKind::Llama, .read = read_llama},
    TrainedFamily{.family = "mixtral", .kind = ModelKind::Moe, .read = read_mixtral}};

}  // namespace

std::vector<HfModelKey> hf_model_keys(const ScenarioParts::ModelPart& model) {
    if (model.kind == ModelKind::Gpt) {
        return gpt_model_keys(model.gpt);
    }
    if (model.has_llama_sizes()) {
        return llama_model_keys(model.llama);
    }
    return {};
}

HfTrainable parse_hf_trainable(string_view text, string_view place) {
    const DecoderModel sizes = parse_hf_config(text, place);
    const nlohmann::json root = parse_python_json(text, place);
    const JsonObject object(root, place, "");
    const auto* const family =
        std::ranges::find(trained_families, sizes.family, &TrainedFamily::family);
    if (family == trained_families.end() || sizes.is_part) {
        std::vector<string_view> known;
        for (const TrainedFamily& one : trained_families) {
            known.push_back(one.family);
        }
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}: /model_type", place),
                    fmt::format("\"{}\", expected {}, the families whose models are trained here",
                                sizes.family,
                                fmt::join(known, " or ")),
                    "'pipetwin import hf' makes a profile of it, to plan and to simulate with");
    }
    HfTrainable found{.family = sizes.family, .precision = sizes.precision};
    found.model.kind = family->kind;
    family->read(sizes, object, found);
    return found;
}

std::string print_hf_config(const ScenarioParts::ModelPart& model, string_view dtype) {
    static_cast<void>(hf_names(model));
    nlohmann::ordered_json config =
        model.kind == ModelKind::Gpt ? gpt2_config(model.gpt) : llama_config(model.llama);
    config["torch_dtype"] = dtype;
    return config.dump(2) + '\n';
}

}  // namespace pipetwin
