// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/interop/hf_config.h"
#include "core/model/decoder_model.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using std::string_view;

/// Blocks after which a list begins again; all of them where it does not.
std::size_t period_of(const std::vector<bool>& blocks) {
    for (std::size_t period = 1; period < blocks.size(); ++period) {
        const auto later = blocks.begin() + static_cast<std::ptrdiff_t>(period);
        if (blocks.size() % period == 0 && std::equal(later, blocks.end(), blocks.begin())) {
            return period;
        }
    }
    return blocks.size();
}

/// "([0]*3+[1]*58)", one number per block, or "([1]*3+[0])*12" where they begin again.
std::string pattern_of(const std::vector<bool>& blocks) {
    const std::size_t period = period_of(blocks);
    const auto stop = blocks.begin() + static_cast<std::ptrdiff_t>(period);
    std::vector<std::string> runs;
    for (auto begin = blocks.begin(); begin != stop;) {
        const auto end = std::find(begin, stop, !*begin);
        runs.push_back(fmt::format("[{}]", *begin ? 1 : 0));
        runs.back() += end - begin > 1 ? fmt::format("*{}", end - begin) : "";
        begin = end;
    }
    return fmt::format("({})", fmt::join(runs, "+")) +
           (period < blocks.size() ? fmt::format("*{}", blocks.size() / period) : "");
}

bool all(const std::vector<bool>& blocks) {
    return std::ranges::find(blocks, false) == blocks.end();
}

class ConfigFlags {
  public:
    ConfigFlags(const DecoderModel& model, const JsonObject& config)
        : model_(model), config_(config) {}

    MegatronModelFlags read(int sequence) {
        set_sizes(sequence);
        set_attention();
        set_biases();
        set_activation();
        set_norms();
        set_positions();
        set_windows();
        set_experts();
        set_dropout();
        note_blocks();
        note_scales();
        return std::move(result_);
    }

  private:
    bool has(string_view key) const { return config_.has(key) && !config_.is_null(key); }

    /// The number under the first of the keys that is there; none: there is none of them.
    std::optional<double> number(std::initializer_list<string_view> keys) const {
        for (const string_view key : keys) {
            if (has(key)) {
                return config_.number_or(key, 0);
            }
        }
        return std::nullopt;
    }

    bool flag(string_view key, bool otherwise) const {
        return has(key) ? config_.flag(key) : otherwise;
    }

    bool is_family(std::initializer_list<string_view> families) const {
        return std::ranges::find(families, string_view(model_.family)) != families.end();
    }

    /// True if the family's name begins with the word: "gemma2" and "gemma3_text" with "gemma".
    bool begins(string_view word) const { return model_.family.starts_with(word); }

    template <class... Values>
    void add(fmt::format_string<Values...> words, Values&&... values) {
        result_.further.push_back(fmt::format(words, std::forward<Values>(values)...));
    }

    void lack(bool is_lacking, std::string what) {
        if (is_lacking) {
            result_.missing.push_back(std::move(what));
        }
    }

    /// Notes that Megatron-LM has no flag for a key, with the key's value.
    void lack_key(string_view key, string_view why) {
        result_.missing.push_back(fmt::format("{} = {}: {}", key, config_.shown(key), why));
    }

    void set_sizes(int sequence) {
        flags_.layers = model_.blocks;
        flags_.hidden_size = model_.width;
        flags_.feed_forward = model_.feed_forward;
        flags_.sequence = sequence;
        flags_.positions = std::max(sequence, model_.context);
        flags_.vocabulary = model_.vocabulary;
        flags_.untied = !model_.tied;
        if (model_.prediction_blocks > 0) {
            flags_.prediction_layers = model_.prediction_blocks;
        }
    }

    void set_attention() {
        const AttentionShape& shape = model_.attention;
        flags_.heads = shape.heads;
        if (shape.latent) {
            set_latent(shape, *shape.latent);
        } else {
            if (shape.key_value_heads != shape.heads) {
                flags_.grouped = true;
                flags_.query_groups = shape.key_value_heads;
            }
            if (model_.learned_positions == 0 || shape.key_width * shape.heads != model_.width) {
                flags_.head_width = shape.key_width;
            }
            flags_.head_norms = shape.head_norms;
        }
        if (shape.gated) {
            add("--attention-output-gate");
        }
        if (shape.sinks) {
            add("--softmax-type learnable");
        }
        if (shape.linear) {
            const LinearAttentionShape& linear = *shape.linear;
            add("--experimental-attention-variant gated_delta_net --linear-attention-freq \"{}\"",
                pattern_of(shape.linear_blocks));
            add("--linear-num-key-heads {} --linear-key-head-dim {} --linear-num-value-heads {} "
                "--linear-value-head-dim {} --linear-conv-kernel-dim {}",
                linear.key_heads,
                linear.key_width,
                linear.value_heads,
                linear.value_width,
                linear.convolution);
        }
        lack(shape.own_norms,
             "norms of queries and keys over all heads: --qk-layernorm has one gain for each head");
    }

    void set_latent(const AttentionShape& shape, const LatentShape& latent) {
        flags_.latent = true;
        flags_.head_norms = true;  // those of the narrow rows
        if (latent.query_rank > 0) {
            flags_.query_rank = latent.query_rank;
        }
        flags_.key_value_rank = latent.key_value_rank;
        flags_.rotary_width = latent.rotary_width;
        flags_.key_width = shape.key_width - latent.rotary_width;
        flags_.value_width = shape.value_width;
        if (latent.indexer) {
            add("--experimental-attention-variant dsa --dsa-indexer-n-heads {} "
                "--dsa-indexer-head-dim {} --dsa-indexer-topk {}",
                latent.indexer->heads,
                latent.indexer->width,
                latent.indexer->keys);
        }
    }

    /// Biases of the matrices behind attention's; where every block has experts, those of experts.
    bool has_feed_forward_bias() const {
        return !model_.has_experts.empty() && all(model_.has_experts) ? model_.experts.bias
                                                                      : model_.feed_forward_bias;
    }

    void set_biases() {
        const AttentionShape& shape = model_.attention;
        const bool inner = has_feed_forward_bias();
        flags_.no_bias = !inner && !shape.output_bias;
        flags_.query_bias = flags_.no_bias && shape.input_bias;
        lack(!flags_.no_bias && (!inner || !shape.output_bias || !shape.input_bias),
             fmt::format("biases of queries, keys and values {}, of attention's output {}, of the "
                         "feed-forward half {}: Megatron has all, none, or --add-qkv-bias",
                         shape.input_bias,
                         shape.output_bias,
                         inner));
        lack(model_.head_bias, "a bias of the head's matrix");
    }

    /// The word for the function between the matrices of a feed-forward half.
    std::string activation() const {
        for (const string_view key : {"hidden_act",
                                      "hidden_activation",
                                      "activation_function",
                                      "mlp_hidden_act",
                                      "activation"}) {
            if (has(key) && config_.is_text(key)) {
                return config_.text(key);
            }
        }
        if (is_family({"apertus"})) {
            return "xielu";
        }
        return is_family({"gpt2", "gpt_bigcode", "gpt_neo", "gptj", "codegen", "phi"}) ||
                       begins("gemma") || begins("vaultgemma")
                   ? "gelu_new"
               : is_family({"opt"})                                        ? "relu"
               : is_family({"persimmon", "nemotron", "nanochat", "arcee"}) ? "relu2"
               : begins("bloom")                                           ? "gelu_new"
               : model_.gated                                              ? "silu"
                                                                           : "gelu";
    }

    void set_activation() {
        if (is_family({"gpt_oss"})) {  // its own gate, whatever hidden_act says
            add("--quick-geglu --glu-linear-offset 1.0 --activation-func-clamp-value {}",
                number({"swiglu_limit"}).value_or(7));
            return;
        }
        const std::string word = activation();
        flags_.gated = model_.gated;
        if (model_.gated) {
            lack(word != "silu" && word != "swish" && word != "swiglu",
                 fmt::format("activation {}: the gate of --swiglu is that of silu", word));
            return;
        }
        const bool is_tanh = word.starts_with("gelu_new") || word == "gelu_pytorch_tanh" ||
                             word == "gelu_fast" || word == "gelu_accurate" ||
                             word == "gelu_python_tanh";
        const bool is_exact = word == "gelu" || word == "gelu_python";
        flags_.squared_relu = word == "relu2";
        flags_.no_gelu_fusion = !flags_.no_bias && !is_tanh;
        flags_.openai_gelu = flags_.no_bias && is_tanh;
        lack(!is_tanh && !is_exact && !flags_.squared_relu,
             fmt::format("activation {}: Megatron has gelu, --squared-relu and --swiglu", word));
        lack(model_.activation_parameters > 0, "parameters of the activation");
    }

    void set_norms() {
        flags_.rms_norm = !model_.norm_bias;
        constexpr double default_epsilon = 1e-5;
        const double epsilon = number({"rms_norm_eps",
                                       "layer_norm_eps",
                                       "layer_norm_epsilon",
                                       "layernorm_epsilon",
                                       "norm_epsilon",
                                       "norm_eps"})
                                   .value_or(flags_.rms_norm ? 1e-6 : default_epsilon);
        if (epsilon != default_epsilon) {
            add("--norm-epsilon {}", epsilon);
        }
        if (begins("gemma") || is_family({"vaultgemma", "nemotron", "qwen3_next"}) ||
            begins("qwen3_5")) {
            add("--apply-layernorm-1p");
        }
        const bool is_layer_norm = is_family({"cohere", "cohere2", "dbrx", "mpt", "olmo"});
        lack(is_layer_norm && flags_.rms_norm && model_.norm_gain,
             "layer norms without a bias: Megatron's LayerNorm has one, and RMSNorm subtracts no "
             "mean");
        lack(!model_.norm_gain, "norms without parameters");
        lack(model_.embedding_norm, "a norm behind the embedding");
        lack(!model_.final_norm, "no norm in front of the head's matrix");
        lack(model_.attention_norms > 1 || model_.feed_forward_norms > 1 ||
                 model_.norm_behind_attention,
             "norms behind the halves of a block: Megatron's are in front of them");
    }

    /// "rope_theta" and "rope_scaling", or "rope_parameters" with both.
    void set_positions() {
        flags_.no_positions = model_.learned_positions == 0;
        lack(model_.position_padding > 0,
             fmt::format("{} rows of the table of positions that no token has",
                         model_.position_padding));
        if (!flags_.no_positions) {
            return;
        }
        if (!model_.attention.rotary) {
            lack(true,
                 begins("granite") ? "no positions: replace rope by --position-embedding-type none"
                                   : "positions as a bias of the scores (ALiBi): the flags say "
                                     "rope");
            return;
        }
        const string_view together = "rope_parameters";
        const bool is_together = config_.is_object(together) && has(together);
        const JsonObject inside = is_together ? config_.object(together) : config_;
        const double base = is_together && inside.has("rope_theta")
                                ? inside.number_or("rope_theta", 0)
                                : number({"rope_theta", "rotary_emb_base"}).value_or(10'000);
        if (base != 10'000) {
            add("--rotary-base {}", base);
        }
        set_rotated_part();
        if (is_family({"gptj", "codegen", "cohere", "cohere2", "glm", "glm4", "chatglm"}) ||
            begins("llama4") || begins("ernie4_5")) {
            add("--rotary-interleaved");
        }
        const string_view scaling = is_together ? together : string_view("rope_scaling");
        if (has(scaling) && config_.is_object(scaling)) {
            set_scaling(scaling);
        } else if (model_.attention.latent) {
            add("--rope-type rope");
        }
        if (has("rope_local_base_freq")) {
            lack_key("rope_local_base_freq", "the blocks with a window rotate otherwise");
        }
    }

    /// The part of a head's numbers that is rotated.
    void set_rotated_part() {
        const double otherwise =
            is_family({"gpt_neox"}) ? 0.25
            : is_family({"phi", "persimmon", "nemotron", "glm", "glm4", "glm4_moe", "chatglm"})
                ? 0.5
            : is_family({"stablelm", "qwen3_next"}) ? 0.25
                                                    : 1;
        double share =
            number({"rotary_pct", "partial_rotary_factor", "rope_pct"}).value_or(otherwise);
        if (is_family({"gptj", "codegen"})) {
            share = number({"rotary_dim"}).value_or(64) / model_.attention.key_width;
        }
        if (share != 1) {
            add("--rotary-percent {}", share);
        }
    }

    void set_scaling(string_view key) {
        const JsonObject scaling = config_.object(key);
        const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
        const double factor = scaling.number_or("factor", 1);
        if (model_.attention.latent && type == "yarn") {
            add("--rotary-scaling-factor {} --mscale {} --mscale-all-dim {}",
                factor,
                scaling.number_or("mscale", 1),
                scaling.number_or("mscale_all_dim", 0));
            return;
        }
        if (model_.attention.latent) {
            add("--rope-type rope");
        }
        if (type == "linear") {
            add("--rotary-seq-len-interpolation-factor {}", factor);
        } else if (type == "llama3") {
            add("--use-rope-scaling --rope-scaling-factor {}", factor);
            // megatron/core/models/common/embeddings/rotary_pos_embedding.py has these as numbers.
            lack(scaling.number_or("low_freq_factor", 1) != 1 ||
                     scaling.number_or("high_freq_factor", 4) != 4 ||
                     scaling.number_or("original_max_position_embeddings", 8192) != 8192,
                 fmt::format("{} with low_freq_factor {}, high_freq_factor {} and "
                             "original_max_position_embeddings {}: --use-rope-scaling has 1, 4 and "
                             "8192",
                             key,
                             scaling.number_or("low_freq_factor", 1),
                             scaling.number_or("high_freq_factor", 4),
                             scaling.number_or("original_max_position_embeddings", 8192)));
        } else if (type != "default" && type != "mrope") {
            lack(true, fmt::format("{} of type {}, factor {}", key, type, factor));
        }
    }

    void set_windows() {
        const AttentionShape& shape = model_.attention;
        if (shape.window == 0) {
            return;
        }
        if (begins("llama4")) {
            lack(true, fmt::format("attention within chunks of {} tokens", shape.window));
            return;
        }
        flags_.window = shape.window - 1;
        std::vector<bool> windows;
        for (int block = 0; block < model_.blocks; ++block) {
            windows.push_back(window_of(model_, block) > 0);
        }
        if (std::ranges::find(windows, true) == windows.end()) {
            flags_.window.reset();
        } else if (!all(windows)) {
            add("--window-attn-skip-freq \"{}\"", pattern_of(windows));
        }
    }

    void set_experts() {
        const ExpertShape& experts = model_.experts;
        if (experts.count == 0) {
            return;
        }
        flags_.experts = experts.count;
        flags_.experts_per_token = experts.per_token;
        flags_.expert_width = experts.width;
        if (experts.shared_width > 0) {
            flags_.shared_width = experts.shared_width;
        }
        flags_.shared_gate = experts.shared_gate;
        if (experts.latent_width > 0) {
            add("--moe-latent-size {}", experts.latent_width);
        }
        if (!all(model_.has_experts)) {
            flags_.expert_pattern = pattern_of(model_.has_experts);
        }
        set_router();
    }

    /// How experts are chosen, which changes no size.
    void set_router() {
        const bool has_sigmoid =
            model_.experts.router_bias && !is_family({"gpt_oss", "ernie4_5_moe", "hunyuan_v1_moe"});
        std::string scores = has("scoring_func")               ? config_.text("scoring_func")
                             : has_sigmoid || begins("llama4") ? "sigmoid"
                                                               : "softmax";
        const bool normalizes =
            flag("norm_topk_prob",
                 scores == "sigmoid" || is_family({"mixtral", "phimoe", "gpt_oss", "dbrx"}) ||
                     begins("granitemoe") || begins("ernie") || begins("hunyuan"));
        if (scores != "softmax") {
            add("--moe-router-score-function {}", scores);
            lack(!normalizes && !begins("llama4"),
                 "norm_topk_prob = false: with sigmoid Megatron divides by the sum");
        } else if (!normalizes) {
            add("--moe-router-pre-softmax");
        }
        if (has_sigmoid) {
            add("--moe-router-enable-expert-bias");
        }
        if (begins("llama4")) {
            add("--moe-apply-probs-on-input");
        }
        const double groups = number({"n_group"}).value_or(1);
        if (groups > 1 && config_.text_or("topk_method", "") != "greedy") {
            add("--moe-router-num-groups {} --moe-router-group-topk {}",
                groups,
                number({"topk_group"}).value_or(1));
        }
        if (const double factor = number({"routed_scaling_factor"}).value_or(1); factor != 1) {
            add("--moe-router-topk-scaling-factor {}", factor);
        }
        if (const double loss = number({"router_aux_loss_coef", "aux_loss_alpha"}).value_or(0);
            loss > 0) {
            add("--moe-aux-loss-coeff {}", loss);
        }
    }

    /// Probabilities of dropout. Those of GPT-2's class where its file says none.
    void set_dropout() {
        const double otherwise = is_family({"gpt2", "gpt_bigcode"}) ? 0.1 : 0;
        flags_.hidden_dropout =
            number({"resid_pdrop", "hidden_dropout", "resid_dropout", "dropout"})
                .value_or(otherwise);
        flags_.attention_dropout = number({"attn_pdrop", "attention_dropout"}).value_or(otherwise);
    }

    void note_blocks() {
        const bool is_parallel =
            model_.feed_forward_norms == 0 ||
            (is_family({"gpt_neox"}) && flag("use_parallel_residual", true)) ||
            (is_family({"falcon"}) &&
             (flag("parallel_attn", true) || flag("new_decoder_architecture", false)));
        lack(is_parallel,
             "attention and feed-forward half side by side (a parallel residual): Megatron has "
             "them one after the other");
        lack(model_.embedding_width > 0,
             fmt::format("rows of the embedding of {} numbers", model_.embedding_width));
        const bool has_mamba = std::ranges::any_of(
            model_.other_attentions, [](const auto& other) { return other.mamba.has_value(); });
        lack(has_mamba,
             "blocks of Mamba-2, and each block one half: pretrain_mamba.py trains such models, "
             "with --hybrid-override-pattern");
        lack(model_.streams > 1, fmt::format("a residual of {} streams", model_.streams));
        lack(model_.residual_blocks > 0, "halves that read what earlier blocks have kept");
        lack(!has_mamba && !model_.other_attentions.empty(),
             "blocks whose attentions have other sizes");
        lack(!has_mamba && !model_.feed_forward_widths.empty(),
             "blocks whose feed-forward halves have other widths, or none");
        lack(model_.encoder_blocks > 0,
             fmt::format("an encoder of {} blocks: pretrain_t5.py trains such models",
                         model_.encoder_blocks));
    }

    /// Factors that no flag has.
    void note_scales() {
        for (const string_view key : {"attn_logit_softcapping",
                                      "final_logit_softcapping",
                                      "embedding_multiplier",
                                      "attention_multiplier",
                                      "residual_multiplier",
                                      "logits_scaling",
                                      "logit_scale",
                                      "scale_emb",
                                      "scale_depth",
                                      "dim_model_base",
                                      "clip_qkv"}) {
            if (config_.has(key) && config_.says_something(key)) {
                lack_key(key, "a factor or limit that no flag has");
            }
        }
        constexpr string_view scalar = "query_pre_attn_scalar";
        if (has(scalar) && config_.number_or(scalar, 0) != model_.attention.key_width) {
            lack_key(scalar, "Megatron divides scores by the root of --kv-channels");
        }
        lack(begins("gemma") || is_family({"vaultgemma"}),
             fmt::format("the embedding's rows times {:.6g}, the root of the width",
                         std::sqrt(static_cast<double>(model_.width))));
    }

    const DecoderModel& model_;
    const JsonObject& config_;
    MegatronModelFlags result_{};
    MegatronFlags& flags_ = result_.flags;
};

}  // namespace

MegatronModelFlags megatron_model_flags(std::string_view config,
                                        std::string_view place,
                                        int sequence) {
    const DecoderModel model = parse_hf_config(config, place);
    const nlohmann::json root = parse_python_json(config, place);
    const JsonObject object(root, place, "");
    return ConfigFlags(model, hf_text_part(object).value_or(object)).read(sequence);
}

}  // namespace pipetwin
