// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_flag_rows.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/word_list.h"
#include "core/interop/launch/setting_values.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin {

namespace {

using std::string_view;

[[noreturn]] void refuse_flag(const std::string& place, std::string what) {
    throw Error(ErrorKind::BadInput, place, std::move(what));
}

// --- The split. ---

/// A string of letters, or a list of lists of words.
void take_layout(const Setting& setting, MegatronReading& reading) {
    const SettingWord& first = first_word(setting);
    const std::string place = fmt::format("{}: {}", first.place, setting.written);
    if (!first.text.starts_with('[')) {
        reading.flags.layout = parse_megatron_layout(first.text, place);
        return;
    }
    std::string lists;
    for (const SettingWord& word : setting.values) {
        lists += word.text;
    }
    reading.flags.layout = parse_megatron_layout_lists(lists, place);
}

std::string print_layout(const MegatronFlags& flags) {
    return flags.layout ? fmt::format("\"{}\"", print_megatron_layout(*flags.layout))
                        : std::string();
}

/// Words of Megatron-LM's --cp-comm-type, and of MindSpeed's --context-parallel-algo.
constexpr auto context_words = std::to_array<std::pair<string_view, ContextMethod>>({
    {"p2p", ContextMethod::Ring},
    {"all_gather", ContextMethod::AllGather},
    {"a2a", ContextMethod::AllToAll},
    {"a2a+p2p", ContextMethod::RingAllToAll},
    {"allgather", ContextMethod::AllGather},
    {"megatron_cp_algo", ContextMethod::Ring},
    {"kvallgather_cp_algo", ContextMethod::AllGather},
    {"ulysses_cp_algo", ContextMethod::AllToAll},
    {"hybrid_cp_algo", ContextMethod::RingAllToAll},
});

/// One word for all layers, or one for each.
void take_context_method(const Setting& setting, MegatronReading& reading) {
    const std::string first = first_word(setting).text;
    const auto is_first = [&first](const SettingWord& word) { return word.text == first; };
    const auto* const found = std::ranges::find(
        context_words, lower_case(first), &std::pair<string_view, ContextMethod>::first);
    if (!std::ranges::all_of(setting.values, is_first)) {
        add_problem(reading, setting, "layers exchange keys and values in different ways");
    } else if (found == context_words.end()) {
        add_problem(reading,
                    setting,
                    "not a way of exchanging keys and values that is known here: p2p, all_gather, "
                    "a2a, a2a+p2p");
    } else {
        reading.flags.context_method = found->second;
    }
}

std::string print_context_method(const MegatronFlags& flags) {
    if (!flags.context_method) {
        return {};
    }
    return std::string(std::ranges::find(context_words,
                                         *flags.context_method,
                                         &std::pair<string_view, ContextMethod>::second)
                           ->first);
}

void take_context_sizes(const Setting& setting, MegatronReading& reading) {
    reading.flags.context_sizes = whole_list(setting, 1);
}

std::string print_context_sizes(const MegatronFlags& flags) {
    return fmt::format("{}", fmt::join(flags.context_sizes, " "));
}

// --- The step. ---

/// "0:16 2.4B:32 4.8B:64": samples of a batch from a number of tokens on. Megatron wants the
/// numbers of tokens in order.
void take_batches(const Setting& setting, MegatronReading& reading) {
    for (const SettingWord& word : setting.values) {
        first_word(setting);
        std::string text = word.text;
        std::ranges::replace(text, ',', ' ');
        for (const string_view step : words_in(text)) {
            const std::size_t colon = std::min(step.find(':'), step.size());
            const std::optional<int> samples =
                whole_in(step.substr(std::min(colon + 1, step.size())));
            if (colon == 0 || !samples || *samples < 1 || *samples > largest_setting) {
                refuse_flag(word.place,
                            fmt::format("{} has '{}', expected tokens:samples, as in 2.4B:32",
                                        setting.written,
                                        step.substr(0, 60)));
            }
            reading.scheduled_batch = samples;
        }
    }
    if (!reading.scheduled_batch) {
        refuse_flag(setting.place,
                    fmt::format("{} has no steps, expected tokens:samples, as in 2.4B:32",
                                setting.written));
    }
    reading.flags.warnings.push_back(
        fmt::format("{}: {}: the prediction is of steps with the last batch, {} samples",
                    setting.place,
                    setting.written,
                    *reading.scheduled_batch));
}

void take_granularity(const Setting& setting, MegatronReading& reading) {
    MegatronFlags& flags = reading.flags;
    flags.recompute_full = chosen_word(setting, "full selective") == "full";
    flags.recompute_selective = flags.recompute_selective || !flags.recompute_full;
}

std::string print_granularity(const MegatronFlags& flags) {
    return flags.recompute_full ? fmt::format("full --recompute-method {}",
                                              flags.recompute_first ? "block" : "uniform")
                                : std::string(flags.recompute_selective ? "selective" : "");
}

template <std::vector<std::string> MegatronFlags::*list>
void take_modules(const Setting& setting, MegatronReading& reading) {
    (reading.flags.*list).clear();
    for (const SettingWord& word : setting.values) {
        (reading.flags.*list).push_back(word.text);
    }
}

template <std::vector<std::string> MegatronFlags::*list>
std::string print_modules(const MegatronFlags& flags) {
    return fmt::format("{}", fmt::join(flags.*list, " "));
}

void take_old_checkpoints(const Setting& setting, MegatronReading& reading) {
    reading.checkpoints_activations = answer_value(setting);
}

void take_wide_gradients(const Setting& setting, MegatronReading& reading) {
    (answer_value(setting) ? reading.flags.gradients_fp32 : reading.flags.gradients_narrow) = true;
}

/// Also in small letters, as programs that grew out of Megatron have it.
void take_norm(const Setting& setting, MegatronReading& reading) {
    const std::string norm = lower_case(first_word(setting).text);
    if (!has_word("layernorm rmsnorm layernorm1p", norm)) {
        refuse_flag(first_word(setting).place,
                    fmt::format("{} = '{}', expected LayerNorm or RMSNorm",
                                setting.written,
                                string_view(first_word(setting).text).substr(0, 60)));
    }
    reading.flags.rms_norm = norm == "rmsnorm";
}

std::string print_norm(const MegatronFlags& flags) {
    return flags.rms_norm ? "RMSNorm" : "";
}

/// A function by its name or its path in Python, as "fast-swiglu" of NeMo and
/// "torch.nn.functional.silu"; gated linear units have a matrix more.
void take_activation(const Setting& setting, MegatronReading& reading) {
    const std::string name = lower_case(first_word(setting).text);
    const auto has = [&name](string_view part) { return name.find(part) != std::string::npos; };
    reading.flags.gated = reading.flags.gated || has("glu");
    reading.flags.squared_relu =
        reading.flags.squared_relu || has("squared") || has("relu2") || has("squared-relu");
}

/// A name that matters only where the file says it.
template <std::optional<std::string> MegatronFlags::*name>
void take_name(const Setting& setting, MegatronReading& reading) {
    if (!setting.values.empty() && setting.values.front().unknown.empty()) {
        reading.flags.*name = setting.values.front().text;
    }
}

/// Gradients of bf16 are summed in bf16 where their type is not fp32
/// (megatron/training/arguments.py).
void take_type_of_gradients(const Setting& setting, MegatronReading& reading) {
    const string_view type = first_word(setting).text;
    reading.flags.gradients_narrow =
        reading.flags.gradients_narrow || has_word("bf16 bfloat16 torch.bfloat16", type);
    if (!has_word("fp32 float32 torch.float32 bf16 bfloat16 torch.bfloat16", type)) {
        add_problem(reading, setting, "gradients have another width");
    }
}

/// What replicas share in Megatron-DeepSpeed.
void take_zero_stage(const Setting& setting, MegatronReading& reading) {
    const int stage = whole_value(setting, 0);
    reading.flags.shard_optimizer = reading.flags.shard_optimizer || stage == 1;
    if (stage > 1) {
        add_problem(reading, setting, "replicas share gradients, too, as DeepSpeed does");
    }
}

/// "torch.bfloat16", where no key says the precision otherwise.
void take_type_of_weights(const Setting& setting, MegatronReading& reading) {
    MegatronFlags& flags = reading.flags;
    const std::string type = lower_case(first_word(setting).text);
    const auto has = [&type](string_view part) { return type.find(part) != std::string::npos; };
    flags.bf16 = flags.bf16 || has("bf16") || has("bfloat16");
    flags.fp16 = flags.fp16 || (!flags.bf16 && (has("fp16") || has("float16")));
}

/// A recipe of Megatron-Bridge by its name: "bf16_mixed", "fp16_with_mxfp8_mixed", ...
void take_recipe(const Setting& setting, MegatronReading& reading) {
    const std::string recipe = lower_case(first_word(setting).text);
    const auto has = [&recipe](string_view part) { return recipe.find(part) != std::string::npos; };
    const bool is_bf16 = has("bf16");
    const bool is_fp16 = !is_bf16 && (has("fp16") || recipe.starts_with("16"));
    reading.flags.bf16 = reading.flags.bf16 || is_bf16;
    reading.flags.fp16 = reading.flags.fp16 || is_fp16;
    const bool is_known = is_bf16 || is_fp16 || has("fp32") || recipe.starts_with("32") ||
                          has_word("none no false", recipe);
    if (has("fp8") || has("int8")) {
        add_problem(reading, setting, "products in 8 bits take other time and memory");
    } else if (has("fp4")) {
        add_problem(reading, setting, "products in 4 bits take other time and memory");
    } else if (!is_known) {
        add_problem(
            reading, setting, "not a known recipe, expected one such as bf16_mixed or fp16_mixed");
    }
}

void take_optimizer(const Setting& setting, MegatronReading& reading) {
    reading.flags.optimizer = lower_case(first_word(setting).text);
    if (!has_word("adam sgd", *reading.flags.optimizer)) {
        add_problem(reading, setting, "keeps another state than adam or sgd");
    }
}

std::string print_optimizer(const MegatronFlags& flags) {
    return flags.optimizer.value_or("");
}

// --- The model and its kernels. ---

void take_positions(const Setting& setting, MegatronReading& reading) {
    const std::string type = chosen_word(setting, "learned_absolute rope mrope yarn none relative");
    reading.flags.no_positions = type != "learned_absolute";
    if (type == "relative") {
        add_problem(reading, setting, "adds a table of distances to each block");
    }
}

std::string print_positions(const MegatronFlags& flags) {
    return flags.no_positions ? "rope" : "";
}

/// "(4095, 0)" or "4095,0": tokens before a token, and behind it; -1: all.
void take_window(const Setting& setting, MegatronReading& reading) {
    const SettingWord& word = first_word(setting);
    string_view text = word.text;
    reading.flags.window.reset();
    if (text.find('-') != string_view::npos) {
        return;
    }
    text.remove_prefix(std::min(text.find_first_of("0123456789"), text.size()));
    const std::optional<int> tokens =
        whole_in(text.substr(0, text.find_first_not_of("0123456789")));
    if (!tokens || *tokens >= largest_setting) {
        refuse_flag(word.place,
                    fmt::format("{} = '{}', expected two numbers of tokens, as in 4095,0",
                                setting.written,
                                string_view(word.text).substr(0, 60)));
    }
    reading.flags.window = tokens;
}

std::string print_window(const MegatronFlags& flags) {
    return flags.window ? fmt::format("{},0", *flags.window) : std::string();
}

/// A number, a formula of Python's, or a list.
template <std::optional<std::string> MegatronFlags::*pattern>
void take_pattern(const Setting& setting, MegatronReading& reading) {
    std::vector<std::string> texts{first_word(setting).text};
    for (std::size_t i = 1; i < setting.values.size(); ++i) {
        texts.push_back(setting.values[i].text);
    }
    // A launcher that writes the keys of a YAML file into a command quotes the pattern there.
    if (std::string& only = texts.front(); setting.is_key && texts.size() == 1 && only.size() > 2 &&
                                           only.starts_with('\'') && only.ends_with('\'')) {
        only = only.substr(1, only.size() - 2);
    }
    const bool is_list = texts.size() > 1 || setting.is_list;
    const bool is_written_out = texts.front().starts_with('[');
    reading.flags.*pattern =
        is_list && !is_written_out ? fmt::format("[{}]", fmt::join(texts, ",")) : texts.front();
}

template <std::optional<std::string> MegatronFlags::*pattern>
std::string print_pattern(const MegatronFlags& flags) {
    return flags.*pattern ? fmt::format("\"{}\"", *(flags.*pattern)) : std::string();
}

/// Kinds of attention by their names in Megatron-LM, old and new.
void take_variant(const Setting& setting, MegatronReading& reading) {
    const std::string variant = lower_case(first_word(setting).text);
    if (has_word("gated_delta_net gdn", variant)) {
        reading.flags.attention_variant = "gated_delta_net";
    } else if (variant == "dsa") {
        reading.flags.attention_variant = variant;
    } else if (!has_word("null none", variant)) {
        add_problem(reading, setting, "attention is another one");
    }
}

std::string print_variant(const MegatronFlags& flags) {
    return flags.attention_variant.value_or("");
}

/// The module and the name of a specification in Python: Megatron's own stack with state spaces,
/// and Primus's copy of it.
void take_specification(const Setting& setting, MegatronReading& reading) {
    std::string words = all_words(setting);
    std::erase_if(words, [](char c) { return string_view("[],'\"").find(c) != string_view::npos; });
    const bool is_known = words.starts_with("megatron.core.models.") ||
                          words.starts_with("primus.backends.megatron.core.models.mamba.");
    const bool is_stack =
        is_known && (words.ends_with(" hybrid_stack_spec") || words.ends_with(" mamba_stack_spec"));
    reading.flags.state_spaces = reading.flags.state_spaces || is_stack;
    if (!is_stack && !has_word("local null none", lower_case(words))) {
        add_problem(reading, setting, "Python code describes the model");
    }
}

/// What the model is, in words of Megatron-LM's relatives.
void take_kind(const Setting& setting, MegatronReading& reading) {
    const std::string kind = lower_case(first_word(setting).text);
    reading.flags.state_spaces = reading.flags.state_spaces || has_word("mamba hybrid", kind);
    if (!has_word("gpt decoder null none mamba hybrid", kind)) {
        add_problem(reading, setting, "the model is not a language model");
    }
}

/// What ms-swift trains: the weights, or adapters beside them.
void take_tuner(const Setting& setting, MegatronReading& reading) {
    const std::string tuner = lower_case(first_word(setting).text);
    reading.flags.adapters = tuner == "lora";
    if (!has_word("full lora null none", tuner)) {
        add_problem(reading, setting, "something else than the weights is trained");
    }
}

std::string print_tuner(const MegatronFlags& flags) {
    return flags.adapters ? "lora" : "";
}

/// One of the flags that only versions since April 2026 have.
void take_end(const Setting&, MegatronReading& reading) {
    reading.flags.ends_inside = true;
}

/// The word of a backend; Megatron-Core's files write "AttnBackend.flash", too.
void take_backend(const Setting& setting, MegatronReading& reading) {
    std::string word = lower_case(first_word(setting).text);
    word.erase(0, word.find_last_of('.') + 1);
    if (!has_word("flash fused unfused local auto", word)) {
        refuse_flag(first_word(setting).place,
                    fmt::format("{} = '{}', expected flash, fused, unfused, local or auto",
                                setting.written,
                                string_view(first_word(setting).text).substr(0, 60)));
    }
    reading.flags.attention_backend = word;
}

std::string print_backend(const MegatronFlags& flags) {
    return flags.attention_backend.value_or("");
}

using Flags = MegatronFlags;

/// In the order in which they are written. Sizes of a model have the bounds of
/// core/interop/hf_config.cpp: far above every published one, and small enough that no count of
/// parameters overflows.
constexpr auto megatron_rows = std::to_array<MegatronFlagRow>({
    // The model.
    {"num-layers", WholeFlag{&Flags::layers, 1, 49'999}},
    {"hidden-size", WholeFlag{&Flags::hidden_size, 1, 1 << 18}},
    {"ffn-hidden-size", WholeFlag{&Flags::feed_forward, 1, 1 << 20}},
    {"num-attention-heads", WholeFlag{&Flags::heads, 1, 1 << 14}},
    {"num-query-groups", WholeFlag{&Flags::query_groups, 1, 1 << 14}},
    {"kv-channels", WholeFlag{&Flags::head_width, 1, 1 << 14}},
    {"seq-length", WholeFlag{&Flags::sequence, 1, 1 << 26}},
    {"max-position-embeddings", WholeFlag{&Flags::positions, 1, 1 << 26}},
    {"vocab-size", WholeFlag{&Flags::vocabulary, 1, 1 << 24}},
    {"vocab-extra-ids", WholeFlag{&Flags::extra_vocabulary, 0, 1 << 24}},
    {"padded-vocab-size", WholeFlag{&Flags::padded_vocabulary, 1, 1 << 24}},
    {"make-vocab-size-divisible-by", WholeFlag{&Flags::vocabulary_divisor, 1, 1 << 16}},
    {"q-lora-rank", WholeFlag{&Flags::query_rank, 1, 1 << 18}},
    {"kv-lora-rank", WholeFlag{&Flags::key_value_rank, 1, 1 << 18}},
    {"qk-head-dim", WholeFlag{&Flags::key_width, 1, 1 << 13}},
    {"qk-pos-emb-head-dim", WholeFlag{&Flags::rotary_width, 1, 1 << 13}},
    {"v-head-dim", WholeFlag{&Flags::value_width, 1, 1 << 14}},
    {"num-experts", WholeFlag{&Flags::experts, 0, 1 << 13}},
    {"moe-router-topk", WholeFlag{&Flags::experts_per_token}},
    {"moe-ffn-hidden-size", WholeFlag{&Flags::expert_width, 1, 1 << 20}},
    {"moe-shared-expert-intermediate-size", WholeFlag{&Flags::shared_width, 0, 1 << 20}},
    {"moe-latent-size", WholeFlag{&Flags::latent_experts, 1, 1 << 18}},
    {"mtp-num-layers", WholeFlag{&Flags::prediction_layers, 0, 16}},
    {"linear-conv-kernel-dim", WholeFlag{&Flags::linear_convolution, 1, 1 << 10}},
    {"linear-num-key-heads", WholeFlag{&Flags::linear_key_heads, 1, 1 << 14}},
    {"linear-key-head-dim", WholeFlag{&Flags::linear_key_width, 1, 1 << 14}},
    {"linear-num-value-heads", WholeFlag{&Flags::linear_value_heads, 1, 1 << 14}},
    {"linear-value-head-dim", WholeFlag{&Flags::linear_value_width, 1, 1 << 14}},
    {"dsa-indexer-n-heads", WholeFlag{&Flags::indexer_heads, 1, 1 << 14}},
    {"dsa-indexer-head-dim", WholeFlag{&Flags::indexer_width, 1, 1 << 14}},
    {"dsa-indexer-topk", WholeFlag{&Flags::indexer_keys, 1, 1 << 26}},
    {"mamba-num-heads", WholeFlag{&Flags::mamba_heads, 1, 1 << 14}},
    {"mamba-head-dim", WholeFlag{&Flags::mamba_width, 1, 1 << 14}},
    {"mamba-state-dim", WholeFlag{&Flags::mamba_state, 1, 1 << 14}},
    {"mamba-num-groups", WholeFlag{&Flags::mamba_groups, 1, 1 << 14}},
    // The split.
    {"tensor-model-parallel-size", WholeFlag{&Flags::tensor_size, 1, 1 << 12}},
    {"context-parallel-size", WholeFlag{&Flags::context_size}},
    {"cp-comm-type context-parallel-algo", OwnFlag{take_context_method, print_context_method}},
    {"hierarchical-context-parallel-sizes", OwnFlag{take_context_sizes, print_context_sizes}},
    {"expert-model-parallel-size", WholeFlag{&Flags::expert_size}},
    {"expert-tensor-parallel-size", WholeFlag{&Flags::expert_tensor_size}},
    {"moe-token-dispatcher-type",
     WordFlag{&Flags::dispatcher, "alltoall flex allgather alltoall_seq"}},
    {"moe-flex-dispatcher-backend", WordFlag{&Flags::flex_backend, "deepep hybridep"}},
    {"moe-expert-capacity-factor", &Flags::expert_capacity},
    {"pipeline-model-parallel-size", WholeFlag{&Flags::pipeline_size}},
    {"decoder-first-pipeline-num-layers", WholeFlag{&Flags::first_layers}},
    {"decoder-last-pipeline-num-layers", WholeFlag{&Flags::last_layers}},
    {"num-layers-per-virtual-pipeline-stage", WholeFlag{&Flags::virtual_stage_layers}},
    {"num-virtual-stages-per-pipeline-rank", WholeFlag{&Flags::virtual_stages}},
    {"microbatch-group-size-per-virtual-pipeline-stage", WholeFlag{&Flags::group_size}},
    {"micro-batch-size", WholeFlag{&Flags::micro_batch_size}},
    {"global-batch-size", WholeFlag{&Flags::global_batch_size}},
    {"num-distributed-optimizer-instances", WholeFlag{&Flags::optimizer_groups}},
    {"pipeline-model-parallel-layout", OwnFlag{take_layout, print_layout}, FlagRule::Once},
    {"num-layer-list", WholesFlag{&Flags::rank_layers}},
    {"noop-layers", WholesFlag{&Flags::empty_layers, 0}},
    // Kernels, and what else the model is.
    {"attention-backend", OwnFlag{take_backend, print_backend}, FlagRule::Plain, false},
    {"fp8-format", ChoiceFlag{&Flags::fp8, "hybrid e4m3 none false False null", "hybrid e4m3"}},
    {"fp8-recipe", WordFlag{&Flags::fp8_recipe}, FlagRule::Plain, false},
    {"transformer-impl", WordFlag{&Flags::transformer_kernels}, FlagRule::Plain, false},
    {"normalization", OwnFlag{take_norm, print_norm}},
    {"position-embedding-type", OwnFlag{take_positions, print_positions}},
    {"window-size", OwnFlag{take_window, print_window}},
    {"window-attn-skip-freq",
     OwnFlag{take_pattern<&Flags::window_pattern>, print_pattern<&Flags::window_pattern>}},
    {"softmax-type",
     ChoiceFlag{&Flags::sinks, "vanilla off-by-one learnable null none", "learnable"}},
    {"attention-output-gate", &Flags::output_gate},
    {"experimental-attention-variant linear-attention-type", OwnFlag{take_variant, print_variant}},
    {"linear-attention-freq",
     OwnFlag{take_pattern<&Flags::linear_pattern>, print_pattern<&Flags::linear_pattern>}},
    {"hybrid-layer-pattern hybrid-override-pattern", WordFlag{&Flags::hybrid_pattern}},
    {"hybrid-attention-ratio", &Flags::attention_ratio},
    {"hybrid-mlp-ratio", &Flags::feed_forward_ratio},
    {"is-hybrid-model", &Flags::state_spaces, FlagRule::Unprinted},
    {"spec", OwnFlag{take_specification}, FlagRule::Unprinted},
    {"model-type", OwnFlag{take_kind}, FlagRule::Unprinted},
    {"null-tokenizer-eod-id null-tokenizer-pad-id", OwnFlag{take_end}, FlagRule::Unprinted, false},
    {"moe-layer-freq",
     OwnFlag{take_pattern<&Flags::expert_pattern>, print_pattern<&Flags::expert_pattern>}},
    {"tokenizer-type", OwnFlag{take_name<&Flags::tokenizer>}, FlagRule::Unprinted, false},
    {"tokenizer-model tokenizer-name-or-path",
     OwnFlag{take_name<&Flags::tokenizer_model>},
     FlagRule::Unprinted,
     false},
    {"group-query-attention", &Flags::grouped},
    {"swiglu quick-geglu", &Flags::gated},
    {"squared-relu", &Flags::squared_relu},
    {"no-bias-gelu-fusion", &Flags::no_gelu_fusion},
    {"openai-gelu", &Flags::openai_gelu},
    {"disable-bias-linear", &Flags::no_bias},
    {"add-qkv-bias", &Flags::query_bias},
    {"untie-embeddings-and-output-weights", &Flags::untied},
    {"qk-layernorm", &Flags::head_norms},
    {"multi-latent-attention", &Flags::latent},
    {"moe-shared-expert-gate moe-use-shared-expert-gate", &Flags::shared_gate},
    {"use-rotary-position-embeddings no-position-embedding",
     &Flags::no_positions,
     FlagRule::Unprinted},
    {"moe-enable-deepep use-turbo-deepep", &Flags::deepep, FlagRule::Unprinted},
    {"moe-pad-expert-input-to-capacity", &Flags::fills_capacity},
    {"moe-router-padding-for-quantization moe-router-padding-for-fp8", &Flags::fills_rows},
    {"moe-router-force-load-balancing", &Flags::balances_experts},
    {"use-tp-pp-dp-mapping", &Flags::pipeline_before_data},
    // Shares of the replicas, numbers, and the step.
    {"account-for-embedding-in-pipeline-split", &Flags::account_for_embedding},
    {"account-for-loss-in-pipeline-split", &Flags::account_for_loss},
    {"use-distributed-optimizer", &Flags::shard_optimizer},
    {"use-megatron-fsdp use-custom-fsdp", &Flags::megatron_fsdp},
    {"use-torch-fsdp2", &Flags::torch_fsdp},
    {"torch-fsdp2-no-reshard-after-forward", &Flags::torch_fsdp_keeps},
    {"overlap-grad-reduce", &Flags::overlap_reduction},
    {"overlap-param-gather", &Flags::overlap_gather},
    {"sequence-parallel", &Flags::sequence_parallel},
    {"tp-comm-overlap", &Flags::tensor_overlap},
    {"no-scatter-gather-tensors-in-pipeline", &Flags::whole_boundaries},
    {"accumulate-allreduce-grads-in-fp32", &Flags::gradients_fp32},
    {"grad-reduce-in-bf16", &Flags::gradients_narrow},
    {"use-precision-aware-optimizer", &Flags::state_types},
    {"main-params-dtype", WordFlag{&Flags::main_type, "fp32 fp16"}},
    {"exp-avg-dtype", WordFlag{&Flags::mean_type, "fp32 fp16 bf16 fp8"}},
    {"exp-avg-sq-dtype", WordFlag{&Flags::square_type, "fp32 fp16 bf16 fp8"}},
    {"no-gradient-accumulation-fusion", &Flags::separate_accumulation},
    {"recompute-activations", &Flags::recompute_selective, FlagRule::Unprinted},
    {"use-flash-attn", &Flags::flash_attention},
    {"use-legacy-models", &Flags::legacy_models},
    {"bf16", &Flags::bf16},
    {"fp16", &Flags::fp16},
    {"zero-stage", OwnFlag{take_zero_stage}},
    {"main-grads-dtype", OwnFlag{take_type_of_gradients}, FlagRule::Unprinted},
    {"activation activation-func", OwnFlag{take_activation}, FlagRule::Keys},
    {"params-dtype", OwnFlag{take_type_of_weights}, FlagRule::Keys},
    {"mixed-precision", OwnFlag{take_recipe}, FlagRule::Keys},
    {"grad-reduce-in-fp32", OwnFlag{take_wide_gradients}, FlagRule::Keys},
    {"step-batch-size-schedule", OwnFlag{take_batches}, FlagRule::Once},
    {"optimizer", OwnFlag{take_optimizer, print_optimizer}},
    {"clip-grad", &Flags::clip_norm},
    {"hidden-dropout", &Flags::hidden_dropout},
    {"attention-dropout", &Flags::attention_dropout},
    {"tuner-type", OwnFlag{take_tuner, print_tuner}, FlagRule::Once},
    {"lora-rank", WholeFlag{&Flags::adapter_rank, 1, 1 << 14}},
    {"lora-dropout", &Flags::adapter_dropout},
    {"target-modules",
     OwnFlag{take_modules<&Flags::adapter_targets>, print_modules<&Flags::adapter_targets>}},
    {"modules-to-save",
     OwnFlag{take_modules<&Flags::trained_modules>, print_modules<&Flags::trained_modules>}},
    {"data-parallel-sharding-strategy",
     WordFlag{&Flags::sharding, "no_shard optim optim_grads optim_grads_params"},
     FlagRule::Once},
    {"checkpoint-activations", OwnFlag{take_old_checkpoints}, FlagRule::Plain, false},
    {"recompute-modules",
     OwnFlag{take_modules<&Flags::recompute_modules>, print_modules<&Flags::recompute_modules>}},
    {"fine-grained-activation-offloading", &Flags::offloads_inputs},
    {"offload-modules",
     OwnFlag{take_modules<&Flags::offload_modules>, print_modules<&Flags::offload_modules>}},
    {"activation-offload-fraction", &Flags::offload_fraction},
    {"cpu-offloading-num-layers", WholeFlag{&Flags::offloaded_layers, 0}},
    {"recompute-method",
     ChoiceFlag{&Flags::recompute_first, "uniform block", "block"},
     FlagRule::Unprinted},
    {"recompute-granularity", OwnFlag{take_granularity, print_granularity}, FlagRule::Once},
    {"recompute-num-layers", WholeFlag{&Flags::recompute_layers, 0}},
});

/// Calls the function among several that fits the kind of a target.
template <typename... Functions>
struct ForTarget : Functions... {
    using Functions::operator()...;
};
template <typename... Functions>
ForTarget(Functions...) -> ForTarget<Functions...>;

/// The value of a flag as it is written: none where it is not, empty for a switch.
std::optional<std::string> printed_value(const MegatronTarget& target, const MegatronFlags& flags) {
    const auto given = [](std::string text) {
        return text.empty() ? std::nullopt : std::optional(std::move(text));
    };
    const auto number = [](const auto& value) {
        return value ? std::optional(fmt::to_string(*value)) : std::nullopt;
    };
    return std::visit(
        ForTarget{[&](const WholeFlag& whole) { return number(flags.*whole.member); },
                  [&](const WholesFlag& list) {
                      return given(fmt::format("{}", fmt::join(flags.*list.member, ",")));
                  },
                  [&](bool Flags::*member) {
                      return flags.*member ? std::optional(std::string()) : std::nullopt;
                  },
                  [&](std::optional<double> Flags::*member) { return number(flags.*member); },
                  [&](const ChoiceFlag& choice) {
                      return flags.*choice.member
                                 ? std::optional(std::string(words_in(choice.on).front()))
                                 : std::nullopt;
                  },
                  [&](const WordFlag& word) { return flags.*word.member; },
                  [&](const OwnFlag& own) {
                      return own.print != nullptr ? given(own.print(flags)) : std::nullopt;
                  }},
        target);
}

}  // namespace

std::string shown_setting(const Setting& setting) {
    const std::string values = all_words(setting).substr(0, 60);
    return setting.written + (values.empty() ? "" : " ") + values;
}

void add_problem(MegatronReading& reading, const Setting& setting, std::string_view why) {
    reading.problems.add(setting.place, shown_setting(setting), why);
}

const MegatronFlagRow* megatron_flag_row(std::string_view name) {
    const auto* const found = std::ranges::find_if(
        megatron_rows, [name](const MegatronFlagRow& row) { return has_word(row.names, name); });
    return found == megatron_rows.end() ? nullptr : found;
}

void take_flag(const MegatronFlagRow& row,
               const Setting& setting,
               bool is_inverted,
               MegatronReading& reading) {
    MegatronFlags& flags = reading.flags;
    std::visit(
        ForTarget{
            [&](const WholeFlag& whole) {
                flags.*whole.member = whole_value(setting, whole.least, {}, whole.most);
            },
            [&](const WholesFlag& list) { flags.*list.member = whole_list(setting, list.least); },
            [&](bool Flags::*member) {
                flags.*member = flags.*member || answer_value(setting) != is_inverted;
            },
            [&](std::optional<double> Flags::*member) { flags.*member = real_value(setting); },
            [&](const ChoiceFlag& choice) {
                flags.*choice.member = has_word(choice.on, chosen_word(setting, choice.words));
            },
            [&](const WordFlag& word) {
                flags.*word.member = word.words.empty() ? first_word(setting).text
                                                        : chosen_word(setting, word.words);
            },
            [&](const OwnFlag& own) { own.take(setting, reading); }},
        row.target);
}

std::vector<std::string_view> megatron_row_names() {
    std::vector<std::string_view> names;
    for (const MegatronFlagRow& row : megatron_rows) {
        const bool is_list = std::holds_alternative<WholesFlag>(row.target);  // MindSpeed's alone
        std::ranges::copy(words_in(is_list ? "" : row.names), std::back_inserter(names));
    }
    return names;
}

std::string print_megatron_flags(const MegatronFlags& flags) {
    std::string line;
    for (const MegatronFlagRow& row : megatron_rows) {
        const std::optional<std::string> value =
            row.rule == FlagRule::Unprinted ? std::nullopt : printed_value(row.target, flags);
        if (value) {
            line += fmt::format("{}--{}{}{}",
                                line.empty() ? "" : " ",
                                words_in(row.names).front(),
                                value->empty() ? "" : " ",
                                *value);
        }
    }
    return line + '\n';
}

}  // namespace pipetwin
