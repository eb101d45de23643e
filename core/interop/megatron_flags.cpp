// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/interop/launch/setting_sections.h"
#include "core/interop/launch/shell_script.h"
#include "core/interop/launch/yaml_settings.h"
#include "core/interop/megatron_flag_table.h"
#include "core/interop/megatron_memory.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr int largest = 1 << 30;

struct NumberFlag {
    string_view name;
    std::optional<int> MegatronFlags::*value;
    int least = 1;
};

/// In the order in which they are written.
constexpr std::array number_flags{
    NumberFlag{"num-layers", &MegatronFlags::layers},
    NumberFlag{"hidden-size", &MegatronFlags::hidden_size},
    NumberFlag{"ffn-hidden-size", &MegatronFlags::feed_forward},
    NumberFlag{"num-attention-heads", &MegatronFlags::heads},
    NumberFlag{"num-query-groups", &MegatronFlags::query_groups},
    NumberFlag{"kv-channels", &MegatronFlags::head_width},
    NumberFlag{"seq-length", &MegatronFlags::sequence},
    NumberFlag{"max-position-embeddings", &MegatronFlags::positions},
    NumberFlag{"vocab-size", &MegatronFlags::vocabulary},
    NumberFlag{"vocab-extra-ids", &MegatronFlags::extra_vocabulary, 0},
    NumberFlag{"padded-vocab-size", &MegatronFlags::padded_vocabulary},
    NumberFlag{"make-vocab-size-divisible-by", &MegatronFlags::vocabulary_divisor},
    NumberFlag{"q-lora-rank", &MegatronFlags::query_rank},
    NumberFlag{"kv-lora-rank", &MegatronFlags::key_value_rank},
    NumberFlag{"qk-head-dim", &MegatronFlags::key_width},
    NumberFlag{"qk-pos-emb-head-dim", &MegatronFlags::rotary_width},
    NumberFlag{"v-head-dim", &MegatronFlags::value_width},
    NumberFlag{"num-experts", &MegatronFlags::experts, 0},
    NumberFlag{"moe-router-topk", &MegatronFlags::experts_per_token},
    NumberFlag{"moe-ffn-hidden-size", &MegatronFlags::expert_width},
    NumberFlag{"moe-shared-expert-intermediate-size", &MegatronFlags::shared_width, 0},
    NumberFlag{"mtp-num-layers", &MegatronFlags::prediction_layers, 0},
    NumberFlag{"tensor-model-parallel-size", &MegatronFlags::tensor_size},
    NumberFlag{"expert-tensor-parallel-size", &MegatronFlags::expert_tensor_size},
    NumberFlag{"context-parallel-size", &MegatronFlags::context_size},
    NumberFlag{"pipeline-model-parallel-size", &MegatronFlags::pipeline_size},
    NumberFlag{"decoder-first-pipeline-num-layers", &MegatronFlags::first_layers},
    NumberFlag{"decoder-last-pipeline-num-layers", &MegatronFlags::last_layers},
    NumberFlag{"num-layers-per-virtual-pipeline-stage", &MegatronFlags::virtual_stage_layers},
    NumberFlag{"num-virtual-stages-per-pipeline-rank", &MegatronFlags::virtual_stages},
    NumberFlag{"microbatch-group-size-per-virtual-pipeline-stage", &MegatronFlags::group_size},
    NumberFlag{"micro-batch-size", &MegatronFlags::micro_batch_size},
    NumberFlag{"global-batch-size", &MegatronFlags::global_batch_size},
    NumberFlag{"recompute-num-layers", &MegatronFlags::recompute_layers, 0},
};

struct SwitchFlag {
    string_view name;
    bool MegatronFlags::*value;
};

/// In the order in which they are written; of several with one member the first is.
constexpr std::array switch_flags{
    SwitchFlag{"group-query-attention", &MegatronFlags::grouped},
    SwitchFlag{"swiglu", &MegatronFlags::gated},
    SwitchFlag{"quick-geglu", &MegatronFlags::gated},
    SwitchFlag{"squared-relu", &MegatronFlags::squared_relu},
    SwitchFlag{"no-bias-gelu-fusion", &MegatronFlags::no_gelu_fusion},
    SwitchFlag{"openai-gelu", &MegatronFlags::openai_gelu},
    SwitchFlag{"disable-bias-linear", &MegatronFlags::no_bias},
    SwitchFlag{"add-qkv-bias", &MegatronFlags::query_bias},
    SwitchFlag{"untie-embeddings-and-output-weights", &MegatronFlags::untied},
    SwitchFlag{"qk-layernorm", &MegatronFlags::head_norms},
    SwitchFlag{"multi-latent-attention", &MegatronFlags::latent},
    SwitchFlag{"moe-shared-expert-gate", &MegatronFlags::shared_gate},
    SwitchFlag{"moe-use-shared-expert-gate", &MegatronFlags::shared_gate},
    SwitchFlag{"use-rotary-position-embeddings", &MegatronFlags::no_positions},
    SwitchFlag{"no-position-embedding", &MegatronFlags::no_positions},
    SwitchFlag{"account-for-embedding-in-pipeline-split", &MegatronFlags::account_for_embedding},
    SwitchFlag{"account-for-loss-in-pipeline-split", &MegatronFlags::account_for_loss},
    SwitchFlag{"use-distributed-optimizer", &MegatronFlags::shard_optimizer},
    SwitchFlag{"use-megatron-fsdp", &MegatronFlags::megatron_fsdp},
    SwitchFlag{"use-custom-fsdp", &MegatronFlags::megatron_fsdp},
    SwitchFlag{"use-torch-fsdp2", &MegatronFlags::torch_fsdp},
    SwitchFlag{"torch-fsdp2-no-reshard-after-forward", &MegatronFlags::torch_fsdp_keeps},
    SwitchFlag{"overlap-grad-reduce", &MegatronFlags::overlap_reduction},
    SwitchFlag{"overlap-param-gather", &MegatronFlags::overlap_gather},
    SwitchFlag{"sequence-parallel", &MegatronFlags::sequence_parallel},
    SwitchFlag{"no-scatter-gather-tensors-in-pipeline", &MegatronFlags::whole_boundaries},
    SwitchFlag{"accumulate-allreduce-grads-in-fp32", &MegatronFlags::gradients_fp32},
    SwitchFlag{"grad-reduce-in-bf16", &MegatronFlags::gradients_narrow},
    SwitchFlag{"no-gradient-accumulation-fusion", &MegatronFlags::separate_accumulation},
    SwitchFlag{"recompute-activations", &MegatronFlags::recompute_selective},
    SwitchFlag{"use-flash-attn", &MegatronFlags::flash_attention},
    SwitchFlag{"use-legacy-models", &MegatronFlags::legacy_models},
    SwitchFlag{"bf16", &MegatronFlags::bf16},
    SwitchFlag{"fp16", &MegatronFlags::fp16},
};

/// Flags of 2021 and of the first months of 2022, which Megatron no longer takes.
constexpr std::array<string_view, 4> flags_before_2023{"checkpoint-activations",
                                                       "checkpoint-num-layers",
                                                       "activations-checkpoint-method",
                                                       "activations-checkpoint-num-layers"};

/// Further flags that Megatron no longer took when its core models became the default, in June
/// 2024.
constexpr std::array<string_view, 12> flags_before_core_models{"DDP-impl",
                                                               "data-impl",
                                                               "img-dim",
                                                               "layernorm-epsilon",
                                                               "mmap-warmup",
                                                               "model-spec",
                                                               "no-contiguous-buffers-in-local-ddp",
                                                               "no-query-key-layer-scaling",
                                                               "override-lr-scheduler",
                                                               "use-checkpoint-lr-scheduler",
                                                               "use-contiguous-buffers-in-ddp",
                                                               "fp8-hybrid"};

/// Flags that came with the core models or after them.
constexpr std::array<string_view, 30> flags_after_core_models{
    "ckpt-format",
    "ckpt-convert-format",
    "ckpt-fully-parallel-load",
    "ckpt-assume-constant-structure",
    "cp-comm-type",
    "config-logger-dir",
    "cuda-graph-impl",
    "cross-entropy-fusion-impl",
    "data-args-path",
    "decoder-first-pipeline-num-layers",
    "decoder-last-pipeline-num-layers",
    "deterministic-mode",
    "dist-ckpt-strictness",
    "enable-experimental",
    "expert-tensor-parallel-size",
    "exp-avg-dtype",
    "microbatch-group-size-per-virtual-pipeline-stage",
    "moe-ffn-hidden-size",
    "moe-layer-freq",
    "moe-token-dispatcher-type",
    "multi-latent-attention",
    "no-ckpt-fully-parallel-save",
    "num-virtual-stages-per-pipeline-rank",
    "pipeline-model-parallel-layout",
    "qk-layernorm",
    "step-batch-size-schedule",
    "use-custom-fsdp",
    "use-megatron-fsdp",
    "use-precision-aware-optimizer",
    "use-torch-fsdp2"};

/// Written by other flags than those of the table above.
constexpr bool is_written_apart(bool MegatronFlags::*value) {
    return value == &MegatronFlags::no_positions || value == &MegatronFlags::recompute_selective;
}

std::string lower(string_view text) {
    std::string result(text);
    std::ranges::transform(result, result.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return result;
}

/// Reads the settings of a file; one object for each.
class FlagReader {
  public:
    explicit FlagReader(LeaveOut leave_out) : leave_out_(leave_out) {}

    MegatronFlags read(const LaunchFile& file) {
        flags_.warnings = file.notes;
        if (file.processes && file.nodes && *file.nodes <= largest / *file.processes) {
            flags_.processes = *file.processes * *file.nodes;
        }
        flags_.per_node = file.processes;
        flags_.unseen = file.unseen;
        flags_.forbids_fused_attention =
            is_set_to_zero(file, "NVTE_FLASH_ATTN") && is_set_to_zero(file, "NVTE_FUSED_ATTN");
        expect_decoder(file.program);
        find_off_tables(file);
        for (const Setting& setting : file.settings) {
            take(setting);
        }
        expect_tensor_size_of_experts(file);
        expect_one_precision(file);
        take_defaults_of_trainer(file);
        take_defaults_of_verl(file);
        settle_recompute(file);
        expect_precision_beside_eight_bits(file);
        settle_batch(file);
        warn_of_gathers(file);
        if (!flags_.tokenizer && find(file, "merge-file") != nullptr) {
            flags_.tokenizer = "GPT2BPETokenizer";  // of its kind: words and merges
            flags_.warnings.emplace_back(
                "--merge-file without --tokenizer-type: taken for GPT-2's words");
        }
        problems_.settle(leave_out_, flags_.warnings, flags_.left_out);
        return std::move(flags_);
    }

  private:
    [[noreturn]] static void refuse(const std::string& place,
                                    std::string what,
                                    std::string hint = {}) {
        throw Error(ErrorKind::BadInput, place, std::move(what), std::move(hint));
    }

    static bool is_set_to_zero(const LaunchFile& file, string_view variable) {
        const auto found = file.environment.find(variable);
        return found != file.environment.end() && found->second == "0";
    }

    /// Whether a word of a program's name names another kind of model than a decoder of text; a
    /// number may follow, as in "mamba2".
    static bool is_other_model(string_view word) {
        constexpr std::array<string_view, 17> others{"bert",
                                                     "roberta",
                                                     "t5",
                                                     "ict",
                                                     "retro",
                                                     "mamba",
                                                     "hybrid",
                                                     "vision",
                                                     "vlm",
                                                     "realm",
                                                     "mimo",
                                                     "biencoder",
                                                     "diffusion",
                                                     "flux",
                                                     "multimodal",
                                                     "llava",
                                                     "orm"};
        return std::ranges::any_of(others, [word](string_view other) {
            return word.starts_with(other) &&
                   word.find_first_not_of("0123456789", other.size()) == string_view::npos;
        });
    }

    /// Megatron's programs for other models than decoders say so in a word of their names.
    void expect_decoder(string_view program) {
        const std::string name = lower(program.substr(program.find_last_of('/') + 1));
        for (std::size_t begin = 0; begin < name.size();) {
            const std::size_t end = std::min(name.find_first_of("_-.", begin), name.size());
            if (is_other_model(string_view(name).substr(begin, end - begin))) {
                const std::string file(program.substr(program.find_last_of('/') + 1));
                problems_.add(
                    file, file, "the program trains another kind of model than a decoder of text");
                return;
            }
            begin = end + 1;
        }
    }

    /// The file that a Primus module's `config` names has the trainer's defaults. In those of
    /// Primus bf16 is on (primus/configs/modules/megatron/pre_trainer.yaml).
    void take_defaults_of_trainer(const LaunchFile& file) {
        const auto is_config = [](const Setting& setting) {
            return setting.is_key && setting.name == "config" && setting.sections.size() == 2 &&
                   setting.sections.front() == "modules";
        };
        const auto config = std::ranges::find_if(file.settings, is_config);
        if (config == file.settings.end()) {
            return;
        }
        const bool says_precision = std::ranges::any_of(file.settings, [](const Setting& setting) {
            return setting.name == "bf16" || setting.name == "fp16" ||
                   setting.name == "mixed-precision";
        });
        flags_.bf16 = flags_.bf16 || !says_precision;
        flags_.warnings.push_back(
            fmt::format("{}: {}: the trainer's defaults are in that file, which is not read{}; "
                        "write what else it "
                        "says of batch, sequence and optimizer into the overrides",
                        config->place,
                        config->written,
                        says_precision ? "" : ": bf16 is taken, as in Primus's own"));
    }

    /// verl/trainer/config/engine/megatron.yaml: what an override does not say.
    void take_defaults_of_verl(const LaunchFile& file) {
        const bool is_verl = std::ranges::any_of(file.settings, [](const Setting& setting) {
            return setting.is_key && setting.sections.size() > 1 &&
                   (setting.sections.front() == "actor_rollout_ref" ||
                    setting.sections.front() == "actor") &&
                   setting.sections.back() == "megatron";
        });
        if (!is_verl) {
            return;
        }
        flags_.bf16 = flags_.bf16 || !flags_.fp16;
        flags_.attention_backend = flags_.attention_backend.value_or("flash");
        if (find(file, "use-distributed-optimizer") == nullptr) {
            flags_.shard_optimizer = true;
        }
        if (find(file, "sequence-parallel") == nullptr && flags_.tensor_size.value_or(1) > 1) {
            flags_.sequence_parallel = true;
        }
        flags_.warnings.emplace_back(
            "where the settings say nothing, verl's defaults are taken: bf16, flash attention, the "
            "optimizer shared by the replicas, and with tensor parallelism a divided sequence; its "
            "other files are not read");
    }

    void expect_tensor_size_of_experts(const LaunchFile& file) {
        const int size = flags_.tensor_size.value_or(1);
        const auto given =
            std::ranges::find(file.settings, "expert-tensor-parallel-size", &Setting::name);
        if (given != file.settings.end() && flags_.experts.value_or(0) > 0 &&
            flags_.expert_tensor_size != size) {
            problem(*given,
                    fmt::format("other devices share an expert than the {} of a layer", size));
        }
    }

    /// Megatron refuses two half precisions at once (megatron/training/arguments.py).
    void expect_one_precision(const LaunchFile& file) const {
        if (!flags_.fp16 || !flags_.bf16) {
            return;
        }
        std::vector<std::string> written;
        std::string place;
        for (const Setting& setting : file.settings) {
            if (setting.name == "fp16" || setting.name == "bf16" ||
                setting.name == "mixed-precision") {
                written.push_back(setting.written);
                place = setting.place;
            }
        }
        refuse(place,
               fmt::format("{} at once, expected fp16 or bf16", fmt::join(written, " and ")),
               "Megatron refuses both, too: take one of them out");
    }

    /// What is not in 8 bits is in bf16 here.
    void expect_precision_beside_eight_bits(const LaunchFile& file) {
        const Setting* const given =
            find(file, "fp8-format") != nullptr ? find(file, "fp8-format") : find(file, "fp8");
        if (given != nullptr && flags_.fp8 && !flags_.bf16) {
            problem(*given, "products in 8 bits beside another precision than bf16");
        }
    }

    /// Tables that train something else have a key that turns them off.
    void find_off_tables(const LaunchFile& file) {
        for (const Setting& setting : file.settings) {
            const RefusedFlag* const table = refused_table(setting.sections);
            const std::string text =
                setting.values.empty() ? std::string() : lower(setting.values.front().text);
            const bool is_switch = setting.name == "enabled" || setting.name == "enable" ||
                                   setting.name == "rank" || setting.name == "dim";
            if (table != nullptr && is_switch && (text == "false" || text == "0")) {
                off_tables_.insert(table->name);
            }
        }
    }

    void take(const Setting& setting) {
        if (const RefusedFlag* const table = refused_table(setting.sections)) {
            if (!off_tables_.contains(table->name) && refused_tables_.insert(table->name).second) {
                problem(setting, table->why);
            }
            return;
        }
        const bool is_in_module =
            setting.is_key && !setting.sections.empty() && setting.sections.front() == "modules";
        const bool is_in_model =
            setting.sections.size() == 1 && setting.sections.front() == "model";
        if ((setting.name == "config" && is_in_module) ||
            (setting.name == "-target-" && !is_in_model)) {
            flags_.unused.push_back(setting.written);
            return;
        }
        string_view name = setting.name;
        bool is_inverted = false;
        flags_.is_before_2023 = flags_.is_before_2023 ||
                                (!setting.is_key && std::ranges::find(flags_before_2023, name) !=
                                                        flags_before_2023.end());
        flags_.is_before_core_models = flags_.is_before_core_models || flags_.is_before_2023 ||
                                       (!setting.is_key && lists(flags_before_core_models, name));
        flags_.is_after_core_models =
            flags_.is_after_core_models || setting.is_key || lists(flags_after_core_models, name);
        if (const std::optional<FlagAlias> alias = flag_alias(name)) {
            name = alias->name;
            is_inverted = alias->is_inverted;
        }
        string_view table;
        if (owner_of(setting.sections, table) == SettingOwner::Unknown && decides(name)) {
            problem(setting,
                    fmt::format("whether '{}' is about the model that is trained is not known "
                                "here",
                                table));
            return;
        }
        const auto* const number = std::ranges::find(number_flags, name, &NumberFlag::name);
        const auto* const flag = std::ranges::find(switch_flags, name, &SwitchFlag::name);
        if (number != number_flags.end()) {
            once(setting, name);
            flags_.*(number->value) = whole(setting, number->least);
            // Only Megatron's command line needs a flag besides to group queries.
            const bool is_bridge = setting.is_key && !setting.sections.empty() &&
                                   setting.sections.front() != "modules" &&
                                   setting.sections.front() != "MODEL_ARGS";
            flags_.grouped = flags_.grouped || (is_bridge && name == "num-query-groups");
            if (name == "mtp-num-layers" && *flags_.prediction_layers > 0) {
                problem(setting, "adds layers behind the blocks that predict further tokens");
            }
        } else if (flag != switch_flags.end()) {
            flags_.*(flag->value) = flags_.*(flag->value) || answer(setting) != is_inverted;
            if (!setting.is_key && !setting.values.empty() &&
                !setting.values.front().unknown.empty()) {
                flags_.unseen.push_back(setting.values.front().unknown);
                flags_.warnings.push_back(
                    fmt::format("{}: {} has no value in this file, or one under a condition: flags "
                                "that it holds are not seen",
                                setting.values.front().place,
                                setting.values.front().unknown));
            }
        } else if (!take_word(setting, name)) {
            take_other(setting, name);
        }
    }

    static bool lists(std::span<const string_view> list, string_view name) {
        return std::ranges::find(list, name) != list.end();
    }

    /// Whether a flag of this name decides what a fragment says.
    static bool decides(string_view name) {
        constexpr std::array<string_view, 20> words{"pipeline-model-parallel-layout",
                                                    "num-layer-list",
                                                    "noop-layers",
                                                    "step-batch-size-schedule",
                                                    "recompute-granularity",
                                                    "recompute-method",
                                                    "recompute-modules",
                                                    "data-parallel-sharding-strategy",
                                                    "grad-reduce-in-fp32",
                                                    "normalization",
                                                    "position-embedding-type",
                                                    "optimizer",
                                                    "moe-layer-freq",
                                                    "window-size",
                                                    "clip-grad",
                                                    "hidden-dropout",
                                                    "attention-dropout",
                                                    "params-dtype",
                                                    "fp8-format",
                                                    "mixed-precision"};
        return std::ranges::find(number_flags, name, &NumberFlag::name) != number_flags.end() ||
               std::ranges::find(switch_flags, name, &SwitchFlag::name) != switch_flags.end() ||
               lists(words, name);
    }

    /// Flags whose value is a word.
    bool take_word(const Setting& setting, string_view name) {
        if (name == "pipeline-model-parallel-layout") {
            once(setting, name);
            flags_.layout = layout(setting);
        } else if (name == "num-layer-list") {
            once(setting, name);
            flags_.rank_layers = numbers(setting, 1);
        } else if (name == "noop-layers") {
            once(setting, name);
            flags_.empty_layers = numbers(setting, 0);
        } else if (name == "step-batch-size-schedule") {
            once(setting, name);
            take_batches(setting);
        } else if (name == "fp8-format" || name == "fp8") {
            const std::string format =
                choice(setting, {"hybrid", "e4m3", "none", "false", "False", "null"});
            flags_.fp8 = format == "hybrid" || format == "e4m3";
        } else if (name == "attention-backend") {
            flags_.attention_backend = backend(setting);
        } else if (name == "transformer-impl") {
            flags_.transformer_kernels = value(setting).text;
        } else if (name == "params-dtype" && setting.is_key) {
            take_type_of_weights(setting);
        } else if (name == "recompute-granularity") {
            once(setting, name);
            const std::string how = choice(setting, {"full", "selective"});
            flags_.recompute_full = how == "full";
            flags_.recompute_selective = flags_.recompute_selective || how == "selective";
        } else if (name == "recompute-method" || name == "activations-checkpoint-method") {
            flags_.recompute_first = choice(setting, {"uniform", "block"}) == "block";
        } else if (name == "checkpoint-activations") {
            checkpoints_activations_ = answer(setting);
        } else if (name == "recompute-modules") {
            const auto texts = setting.values | std::views::transform(&SettingWord::text);
            flags_.recompute_modules.assign(texts.begin(), texts.end());
        } else if (name == "data-parallel-sharding-strategy") {
            once(setting, name);
            flags_.sharding =
                choice(setting, {"no_shard", "optim", "optim_grads", "optim_grads_params"});
        } else if (name == "grad-reduce-in-fp32" && setting.is_key) {
            (answer(setting) ? flags_.gradients_fp32 : flags_.gradients_narrow) = true;
        } else if (name == "normalization") {
            flags_.rms_norm = choice(setting, {"LayerNorm", "RMSNorm"}) == "RMSNorm";
        } else if (name == "position-embedding-type") {
            const std::string type =
                choice(setting, {"learned_absolute", "rope", "mrope", "yarn", "none", "relative"});
            flags_.no_positions = type != "learned_absolute";
            if (type == "relative") {
                problem(setting, "adds a table of distances to each block");
            }
        } else if (name == "optimizer") {
            flags_.optimizer = lower(value(setting).text);
            if (flags_.optimizer != "adam" && flags_.optimizer != "sgd") {
                problem(setting, "keeps another state than adam or sgd");
            }
        } else if (name == "pp-algorithm") {
            if (lower(value(setting).text) != to_string(ScheduleKind::OneFOneB)) {
                problem(setting, "another schedule takes Megatron's place");
            }
        } else if (name == "moe-layer-freq") {
            flags_.expert_pattern = pattern(setting);
        } else if (name == "tokenizer-type") {
            flags_.tokenizer = value(setting).text;
        } else if (name == "window-size") {
            flags_.window = window(setting);
        } else if (name == "clip-grad") {
            flags_.clip_norm = real(setting);
        } else if (name == "hidden-dropout") {
            flags_.hidden_dropout = real(setting);
        } else if (name == "attention-dropout") {
            flags_.attention_dropout = real(setting);
        } else if (name == "mixed-precision" && setting.is_key) {
            take_mixed_precision(setting);
        } else {
            return false;
        }
        return true;
    }

    static const Setting* find(const LaunchFile& file, string_view name) {
        const auto found = std::ranges::find(file.settings, name, &Setting::name);
        return found == file.settings.end() ? nullptr : &*found;
    }

    /// What flags of recompute mean together: those of 2021 say no granularity, and
    /// --recompute-activations goes before any. A method that leaves layers out is a problem.
    void settle_recompute(const LaunchFile& file) {
        const Setting* const old_method = find(file, "activations-checkpoint-method");
        const bool says_granularity = find(file, "recompute-granularity") != nullptr ||
                                      find(file, "activations-checkpoint-granularity") != nullptr;
        const bool is_old = old_method != nullptr || checkpoints_activations_;
        flags_.recompute_full =
            (flags_.recompute_full || (is_old && !says_granularity)) && !flags_.recompute_selective;
        const Setting* const method =
            old_method != nullptr ? old_method : find(file, "recompute-method");
        if (flags_.recompute_layers == 0) {
            if (flags_.recompute_full && !flags_.recompute_first) {
                refuse(find(file, "recompute-num-layers") != nullptr
                           ? find(file, "recompute-num-layers")->place
                           : file.settings.front().place,
                       "groups of 0 layers to recompute, expected at least 1",
                       "leave --recompute-granularity full out to recompute nothing");
            }
            flags_.recompute_full = false;  // the first 0 layers of each stage
            flags_.recompute_layers.reset();
        }
        if (!flags_.recompute_full || !flags_.recompute_first || method == nullptr) {
            return;
        }
        const std::optional<int> layers = largest_stage(flags_, method->place);
        if (!layers || flags_.recompute_layers.value_or(1) < *layers) {
            problem(*method,
                    "recomputes some layers of a stage and keeps the others, which has no word "
                    "here");
        }
    }

    /// The weights that replicas hand to each other after the update; a model whose weights are
    /// gathered layer by layer has no such messages.
    void warn_of_gathers(const LaunchFile& file) {
        const Setting* const gather = find(file, "overlap-param-gather");
        if (gather != nullptr && flags_.overlap_gather &&
            megatron_shard(flags_) != Shard::Weights) {
            flags_.warnings.push_back(
                fmt::format("{}: {}: the prediction waits for the weights that replicas hand to "
                            "each other; overlapped, a step is at most as long",
                            gather->place,
                            gather->written));
        }
    }

    /// A recipe of Megatron-Bridge by its name: "bf16_mixed", "fp16_with_mxfp8_mixed", ...
    void take_mixed_precision(const Setting& setting) {
        const std::string recipe = lower(value(setting).text);
        const auto has = [&recipe](string_view part) {
            return recipe.find(part) != std::string::npos;
        };
        const bool is_bf16 = has("bf16");
        const bool is_fp16 = !is_bf16 && (has("fp16") || recipe.starts_with("16"));
        flags_.bf16 = flags_.bf16 || is_bf16;
        flags_.fp16 = flags_.fp16 || is_fp16;
        const bool is_known = is_bf16 || is_fp16 || has("fp32") || recipe.starts_with("32") ||
                              recipe == "none" || recipe == "no" || recipe == "false";
        if (has("fp8") || has("int8")) {
            problem(setting, "products in 8 bits take other time and memory");
        } else if (has("fp4")) {
            problem(setting, "products in 4 bits take other time and memory");
        } else if (!is_known) {
            problem(setting, "not a known recipe, expected one such as bf16_mixed or fp16_mixed");
        }
    }

    void take_other(const Setting& setting, string_view name) {
        const std::string text =
            setting.values.empty() ? std::string() : lower(setting.values.front().text);
        if (const RefusedFlag* const flag = refused_flag(name)) {
            if (setting.values.empty() || !is_harmless_value(*flag, text)) {
                problem(setting, flag->why);
            }
        } else if (is_noted_flag(name)) {
            if (const string_view note = flag_note(name, text); !note.empty()) {
                flags_.warnings.push_back(
                    fmt::format("{}: {}: {}", setting.place, setting.written, note));
            }
        } else if (is_harmless_flag(name) || is_harmless_key(setting.written)) {
            flags_.unused.push_back(setting.written);
        } else {
            const std::vector<string_view> known = all_names();
            const string_view near = nearest_word(name, known);
            problems_.add_unknown(
                setting.place,
                shown(setting),
                name,
                near.empty() ? std::string("no flag that is known here")
                             : fmt::format("no flag that is known here, did you mean '{}{}'?",
                                           setting.is_key ? "" : "--",
                                           near));
        }
    }

    static std::vector<string_view> all_names() {
        std::vector<string_view> names = known_flags();
        std::ranges::transform(number_flags, std::back_inserter(names), &NumberFlag::name);
        std::ranges::transform(switch_flags, std::back_inserter(names), &SwitchFlag::name);
        return names;
    }

    /// Reports a setting that changes the run in a way that no scenario can say.
    void problem(const Setting& setting, string_view what) {
        problems_.add(setting.place, shown(setting), what);
    }

    static std::string shown(const Setting& setting) {
        const auto texts = setting.values | std::views::transform(&SettingWord::text);
        const std::string values = fmt::format("{}", fmt::join(texts, " "));
        return fmt::format(
            "{}{}{}", setting.written, values.empty() ? "" : " ", values.substr(0, 60));
    }

    /// Whole numbers, apart by commas or blanks.
    static std::vector<int> numbers(const Setting& setting, int least) {
        std::vector<int> found;
        for (const SettingWord& word : setting.values) {
            value(setting);
            for (string_view rest = word.text; !rest.empty();) {
                const std::size_t end = std::min(rest.find_first_of(", []"), rest.size());
                const string_view digits = rest.substr(0, end);
                rest.remove_prefix(std::min(end + 1, rest.size()));
                if (digits.empty()) {
                    continue;
                }
                const std::optional<int> number = whole_in(digits);
                if (!number || *number < least || *number > largest) {
                    refuse(word.place,
                           fmt::format("{} has '{}', expected whole numbers of at least {}, as in "
                                       "4,5,7,8",
                                       setting.written,
                                       digits.substr(0, 60),
                                       least));
                }
                found.push_back(*number);
            }
        }
        if (found.empty()) {
            value(setting);
            refuse(
                setting.place,
                fmt::format("{} has no numbers, expected a list as in 4,5,7,8", setting.written));
        }
        return found;
    }

    /// "0:16 2.4B:32 4.8B:64": samples of a batch from a number of tokens on. Megatron wants the
    /// numbers of tokens in order.
    void take_batches(const Setting& setting) {
        std::optional<int> last;
        for (const SettingWord& word : setting.values) {
            value(setting);
            for (string_view rest = word.text; !rest.empty();) {
                const std::size_t end = std::min(rest.find_first_of(", "), rest.size());
                const string_view step = rest.substr(0, end);
                rest.remove_prefix(std::min(end + 1, rest.size()));
                if (step.empty()) {
                    continue;
                }
                const std::size_t colon = std::min(step.find(':'), step.size());
                const std::optional<int> samples =
                    whole_in(step.substr(std::min(colon + 1, step.size())));
                if (colon == 0 || !samples || *samples < 1 || *samples > largest) {
                    refuse(word.place,
                           fmt::format("{} has '{}', expected tokens:samples, as in 2.4B:32",
                                       setting.written,
                                       step.substr(0, 60)));
                }
                last = samples;
            }
        }
        if (!last) {
            refuse(setting.place,
                   fmt::format("{} has no steps, expected tokens:samples, as in 2.4B:32",
                               setting.written));
        }
        scheduled_batch_ = last;
        flags_.warnings.push_back(
            fmt::format("{}: {}: the prediction is of steps with the last batch, {} samples",
                        setting.place,
                        setting.written,
                        *last));
    }

    /// Megatron takes one of the two, and a batch that grows must be told how far.
    void settle_batch(const LaunchFile& file) {
        if (scheduled_batch_ && flags_.global_batch_size) {
            refuse(find(file, "step-batch-size-schedule")->place,
                   "--step-batch-size-schedule beside --global-batch-size",
                   "Megatron refuses both, too: take one of them out");
        }
        const Setting* const growth = find(file, "rampup-batch-size");
        if (growth != nullptr && !scheduled_batch_ && !flags_.global_batch_size) {
            refuse(growth->place,
                   fmt::format("{} without --global-batch-size, up to which the batch grows",
                               growth->written),
                   "add --global-batch-size N");
        }
        if (scheduled_batch_) {
            flags_.global_batch_size = scheduled_batch_;
        }
    }

    /// The word of a backend; Megatron-Core's files write "AttnBackend.flash", too.
    static std::string backend(const Setting& setting) {
        std::string word = lower(value(setting).text);
        word.erase(0, word.find_last_of('.') + 1);
        for (const string_view known : {"flash", "fused", "unfused", "local", "auto"}) {
            if (word == known) {
                return word;
            }
        }
        refuse(value(setting).place,
               fmt::format("{} = '{}', expected flash, fused, unfused, local or auto",
                           setting.written,
                           string_view(value(setting).text).substr(0, 60)));
    }

    /// "torch.bfloat16", where no key says the precision otherwise.
    void take_type_of_weights(const Setting& setting) {
        const std::string type = lower(value(setting).text);
        flags_.bf16 = flags_.bf16 || type.find("bf16") != std::string::npos ||
                      type.find("bfloat16") != std::string::npos;
        flags_.fp16 = flags_.fp16 || (!flags_.bf16 && (type.find("fp16") != std::string::npos ||
                                                       type.find("float16") != std::string::npos));
    }

    /// Refuses a flag that stands twice, and two keys with one meaning but for equal values.
    void once(const Setting& setting, string_view name) {
        const auto [entry, is_first] = given_.emplace(name, &setting);
        if (is_first) {
            return;
        }
        const Setting& other = *entry->second;
        const auto same = [](const SettingWord& a, const SettingWord& b) {
            return a.text == b.text && a.unknown == b.unknown;
        };
        if (!setting.is_key || !other.is_key) {
            refuse(setting.place,
                   fmt::format("{} a second time", setting.written),
                   "keep one of them");
        }
        if (!std::ranges::equal(setting.values, other.values, same)) {
            refuse(setting.place,
                   fmt::format("{} = {}, but {} = {} at {}",
                               setting.written,
                               words_of(setting),
                               other.written,
                               words_of(other),
                               other.place),
                   "both keys mean the same: give them one value");
        }
    }

    static std::string words_of(const Setting& setting) {
        const auto texts = setting.values | std::views::transform([](const SettingWord& word) {
                               return word.unknown.empty() ? word.text : word.text + word.unknown;
                           });
        return fmt::format("{}", fmt::join(texts, " ")).substr(0, 60);
    }

    static const SettingWord& value(const Setting& setting) {
        if (setting.values.empty()) {
            refuse(setting.place, fmt::format("{} without a value", setting.written));
        }
        const SettingWord& word = setting.values.front();
        if (!word.unknown.empty()) {
            refuse(
                word.place,
                fmt::format("{} = '{}', which has no value in this file, or one under a condition",
                            setting.written,
                            word.unknown),
                "write the value in place of the variable");
        }
        return word;
    }

    static std::string choice(const Setting& setting, std::initializer_list<string_view> words) {
        const SettingWord& word = value(setting);
        if (std::ranges::find(words, word.text) == words.end()) {
            refuse(word.place,
                   fmt::format("{} = '{}', expected {}",
                               setting.written,
                               string_view(word.text).substr(0, 60),
                               fmt::join(words, " or ")));
        }
        return word.text;
    }

    static int whole(const Setting& setting, int least) {
        const SettingWord& word = value(setting);
        const std::optional<int> number = whole_in(word.text);
        if (!number || *number < least || *number > largest) {
            refuse(word.place,
                   fmt::format("{} = '{}', expected a whole number of at least {}",
                               setting.written,
                               string_view(word.text).substr(0, 60),
                               least));
        }
        return *number;
    }

    static std::optional<int> whole_in(string_view text) {
        int number = 0;
        const char* const end = text.data() + text.size();
        const auto [rest, status] = std::from_chars(text.data(), end, number);
        return status == std::errc{} && rest == end ? std::optional(number) : std::nullopt;
    }

    static double real(const Setting& setting) {
        const SettingWord& word = value(setting);
        double number = 0;
        const char* const end = word.text.data() + word.text.size();
        const auto [rest, status] = std::from_chars(word.text.data(), end, number);
        if (status != std::errc{} || rest != end || !std::isfinite(number) || number < 0) {
            refuse(word.place,
                   fmt::format("{} = '{}', expected a number of 0 or more",
                               setting.written,
                               string_view(word.text).substr(0, 60)));
        }
        return number;
    }

    /// A flag alone is a yes; a key has an answer.
    static bool answer(const Setting& setting) {
        if (!setting.is_key) {
            return true;
        }
        const SettingWord& word = value(setting);
        const std::string text = lower(word.text);
        if (text == "1" || text == "0") {  // as Python takes them
            return text == "1";
        }
        if (text != "true" && text != "false") {
            refuse(word.place,
                   fmt::format("{} = '{}', expected true or false",
                               setting.written,
                               string_view(word.text).substr(0, 60)));
        }
        return text == "true";
    }

    /// A number, a formula of Python's, or a list.
    static std::string pattern(const Setting& setting) {
        const std::string& first = value(setting).text;
        if (setting.values.size() == 1) {
            return first;
        }
        const auto texts = setting.values | std::views::transform(&SettingWord::text);
        return fmt::format("[{}]", fmt::join(texts, ","));
    }

    /// A string of letters, or a list of lists of words.
    static MegatronLayout layout(const Setting& setting) {
        const SettingWord& first = value(setting);
        const std::string place = fmt::format("{}: {}", first.place, setting.written);
        if (!first.text.starts_with('[')) {
            return parse_megatron_layout(first.text, place);
        }
        std::string lists;
        for (const SettingWord& word : setting.values) {
            lists += word.text;
        }
        return parse_megatron_layout_lists(lists, place);
    }

    /// "(4095, 0)" or "4095,0": tokens before a token, and behind it; -1: all.
    static std::optional<int> window(const Setting& setting) {
        const SettingWord& word = value(setting);
        string_view text = word.text;
        if (text.find('-') != string_view::npos) {
            return std::nullopt;
        }
        text.remove_prefix(std::min(text.find_first_of("0123456789"), text.size()));
        const string_view digits =
            text.substr(0, std::min(text.find_first_not_of("0123456789"), text.size()));
        const std::optional<int> tokens = whole_in(digits);
        if (!tokens || *tokens >= largest) {
            refuse(word.place,
                   fmt::format("{} = '{}', expected two numbers of tokens, as in 4095,0",
                               setting.written,
                               string_view(word.text).substr(0, 60)));
        }
        return tokens;
    }

    LeaveOut leave_out_;
    MegatronFlags flags_;
    std::optional<int> scheduled_batch_;    ///< the last of --step-batch-size-schedule
    std::set<string_view> off_tables_;      ///< of LoRA and the like, turned off
    std::set<string_view> refused_tables_;  ///< those with a problem
    bool checkpoints_activations_ = false;  ///< --checkpoint-activations, of 2021
    std::map<std::string, const Setting*, std::less<>> given_;
    SettingProblems problems_;
};

/// Names of members that stand in a file as flags of their own.
void add_switches(const MegatronFlags& flags, std::vector<std::string>& words) {
    for (auto flag = switch_flags.begin(); flag != switch_flags.end(); ++flag) {
        const auto same = [&](const SwitchFlag& other) { return other.value == flag->value; };
        const bool is_first = std::find_if(switch_flags.begin(), flag, same) == flag;
        if (flags.*(flag->value) && is_first && !is_written_apart(flag->value)) {
            words.push_back(fmt::format("--{}", flag->name));
        }
    }
}

/// Takes the settings of other models and programs out, with a note for each of these, and returns
/// them as written.
std::vector<std::string> erase_of_others(LaunchFile& file) {
    std::vector<std::string> written;
    std::map<std::string, int> counts;
    std::erase_if(file.settings, [&](const Setting& setting) {
        string_view other;
        if (!setting.is_key || owner_of(setting.sections, other) != SettingOwner::Other) {
            return false;
        }
        written.push_back(setting.written);
        ++counts[std::string(other)];
        return true;
    });
    for (const auto& [other, count] : counts) {
        file.notes.push_back(fmt::format(
            "'{}' is another model or program than the one that is trained: {} of it {} no effect "
            "on the prediction, which is of a training step alone",
            other,
            counted(count, "setting"),
            count == 1 ? "has" : "have"));
    }
    return written;
}

}  // namespace

bool are_megatron_flags(string_view text) {
    // A layout has neither a minus nor a colon.
    return text.find("--") != string_view::npos || is_yaml(text) ||
           text.find(".py") != string_view::npos;
}

LaunchFile parse_launch_file(string_view text, string_view place) {
    return is_yaml(text) ? parse_yaml_settings(text, place) : parse_shell_script(text, place);
}

void add_base_settings(LaunchFile& file, const LaunchFile& base) {
    const auto name_of = [](const Setting& setting) {
        const std::optional<FlagAlias> alias = flag_alias(setting.name);
        return alias ? std::string(alias->name) : setting.name;
    };
    std::set<std::string> names;
    std::set<std::string> unset;  // as written: null takes away one key, not what means the same
    for (const Setting& setting : file.settings) {
        if (setting.is_unset) {
            unset.insert(setting.name);
        } else {
            names.insert(name_of(setting));
        }
    }
    for (const Setting& setting : base.settings) {
        if (!names.contains(name_of(setting)) && !unset.contains(setting.name)) {
            file.settings.push_back(setting);
        }
    }
    std::ranges::copy(base.notes, std::back_inserter(file.notes));
}

MegatronFlags megatron_flags(const LaunchFile& file, LeaveOut leave_out) {
    LaunchFile kept = file;
    std::erase_if(kept.settings, &Setting::is_unset);
    const std::vector<std::string> others = erase_of_others(kept);
    MegatronFlags flags = FlagReader(leave_out).read(kept);
    flags.unused.insert(flags.unused.end(), others.begin(), others.end());
    return flags;
}

MegatronFlags parse_megatron_flags(string_view text, string_view place, LeaveOut leave_out) {
    return megatron_flags(parse_launch_file(text, place), leave_out);
}

std::string print_megatron_flags(const MegatronFlags& flags) {
    std::vector<std::string> words;
    for (const NumberFlag& flag : number_flags) {
        if (flags.*(flag.value) && flag.value != &MegatronFlags::recompute_layers) {
            words.push_back(fmt::format("--{} {}", flag.name, *(flags.*(flag.value))));
        }
    }
    if (flags.layout) {
        words.push_back(fmt::format("--pipeline-model-parallel-layout \"{}\"",
                                    print_megatron_layout(*flags.layout)));
    }
    if (!flags.rank_layers.empty()) {
        words.push_back(fmt::format("--num-layer-list {}", fmt::join(flags.rank_layers, ",")));
    }
    if (!flags.empty_layers.empty()) {
        words.push_back(fmt::format("--noop-layers {}", fmt::join(flags.empty_layers, ",")));
    }
    if (flags.attention_backend) {
        words.push_back(fmt::format("--attention-backend {}", *flags.attention_backend));
    }
    if (flags.fp8) {
        words.emplace_back("--fp8-format hybrid");
    }
    if (flags.transformer_kernels) {
        words.push_back(fmt::format("--transformer-impl {}", *flags.transformer_kernels));
    }
    if (flags.rms_norm) {
        words.emplace_back("--normalization RMSNorm");
    }
    if (flags.no_positions) {
        words.emplace_back("--position-embedding-type rope");
    }
    if (flags.window) {
        words.push_back(fmt::format("--window-size {},0", *flags.window));
    }
    if (flags.expert_pattern) {
        words.push_back(fmt::format("--moe-layer-freq \"{}\"", *flags.expert_pattern));
    }
    add_switches(flags, words);
    if (flags.optimizer) {
        words.push_back(fmt::format("--optimizer {}", *flags.optimizer));
    }
    if (flags.clip_norm) {
        words.push_back(fmt::format("--clip-grad {}", *flags.clip_norm));
    }
    if (flags.hidden_dropout) {
        words.push_back(fmt::format("--hidden-dropout {}", *flags.hidden_dropout));
    }
    if (flags.attention_dropout) {
        words.push_back(fmt::format("--attention-dropout {}", *flags.attention_dropout));
    }
    if (flags.sharding) {
        words.push_back(fmt::format("--data-parallel-sharding-strategy {}", *flags.sharding));
    }
    if (flags.recompute_selective) {
        words.emplace_back("--recompute-granularity selective");
    }
    if (!flags.recompute_modules.empty()) {
        words.push_back(
            fmt::format("--recompute-modules {}", fmt::join(flags.recompute_modules, " ")));
    }
    if (flags.recompute_full) {
        words.push_back(fmt::format("--recompute-granularity full --recompute-method {}",
                                    flags.recompute_first ? "block" : "uniform"));
    }
    if (flags.recompute_layers) {
        words.push_back(fmt::format("--recompute-num-layers {}", *flags.recompute_layers));
    }
    return fmt::format("{}\n", fmt::join(words, " "));
}

}  // namespace pipetwin
