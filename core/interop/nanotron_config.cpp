// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/word_list.h"
#include "core/interop/launch/setting_values.h"
#include "core/interop/launch/training_run.h"
#include "core/interop/megatron_flag_rows.h"
#include "core/interop/megatron_layout.h"
#include "core/interop/program_flags.h"

namespace pipetwin {

namespace {

/// Settings that change no size, split, message or kernel of a step.
constexpr std::string_view harmless_nanotron =
    "checkpoints.checkpoint_interval checkpoints.checkpoints_path "
    "checkpoints.checkpoints_path_is_shared_file_system checkpoints.load_lr_scheduler "
    "checkpoints.load_optimizer checkpoints.resume_checkpoint_path checkpoints.save_final_state "
    "checkpoints.save_initial_state "
    "general.benchmark_csv_path general.consumed_train_samples general.ignore_sanity_checks "
    "general.project general.run general.seed general.step general.entity "
    "logging.iteration_step_info_interval logging.log_level logging.log_level_replica "
    "metrics_logging.log_level metrics_logging.log_detail_interval "
    "model.ddp_bucket_cap_mb model.init_method.std model.init_method.scaling_method "
    "model.init_method.path model.init_method.use_mup "
    "model.model_config.bos_token_id model.model_config.eos_token_id "
    "model.model_config.pad_token_id model.model_config.initializer_range "
    "model.model_config.rms_norm_eps model.model_config.rope_theta "
    "model.model_config.rope_interleaved model.model_config.rope_seq_len_interpolation_factor "
    "model.model_config.rope_scaling.factor model.model_config.rope_scaling.high_freq_factor "
    "model.model_config.rope_scaling.low_freq_factor model.model_config.rope_scaling.rope_type "
    "model.model_config.rope_scaling.original_max_position_embeddings "
    "model.model_config.use_cache model.model_config.z_loss_enabled "
    "model.model_config.z_loss_coefficient model.model_config.no_rope_layer "
    "model.model_config._use_qkv_packed model.model_config.log_attn_probs "
    "model.model_config.is_llama_config model.model_config.is_qwen2_config "
    "optimizer.learning_rate_scheduler.learning_rate "
    "optimizer.learning_rate_scheduler.lr_decay_starting_step "
    "optimizer.learning_rate_scheduler.lr_decay_steps "
    "optimizer.learning_rate_scheduler.lr_decay_style "
    "optimizer.learning_rate_scheduler.lr_warmup_steps "
    "optimizer.learning_rate_scheduler.lr_warmup_style "
    "optimizer.learning_rate_scheduler.min_decay_lr "
    "optimizer.optimizer_factory.adam_beta1 optimizer.optimizer_factory.adam_beta2 "
    "optimizer.optimizer_factory.adam_eps optimizer.optimizer_factory.torch_adam_is_fused "
    "optimizer.adam_beta1 optimizer.adam_beta2 optimizer.adam_eps optimizer.torch_adam_is_fused "
    "data.dataset.dataset_overwrite_cache data.dataset.dataset_processing_num_proc_per_process "
    "data.dataset.hf_dataset_config_name data.dataset.hf_dataset_or_datasets "
    "data.dataset.hf_dataset_splits data.dataset.text_column_name data.num_loading_workers "
    "data.seed optimizer.weight_decay optimizer.weight_decay_exclude_named_params "
    "tokenizer.tokenizer_max_length tokenizer.tokenizer_name_or_path "
    "tokenizer.tokenizer_revision "
    "tokens.limit_test_batches tokens.limit_val_batches tokens.train_steps "
    "tokens.val_check_interval ";

/// Settings that change the run in a way that no flag says.
constexpr auto refused_nanotron = std::to_array<SettingGroup>({
    {"model.model_config.is_llamoe_config model.model_config.is_mamba_config "
     "model.model_config.is_starcoder2_config model.model_config.is_gpt2_config",
     "the model is another one than Llama and Qwen 2",
     off_values},
    {"model.model_config.moe_num_experts model.model_config.moe_config.num_experts",
     "blocks have experts, which nanotron divides in its own way",
     off_values},
    {"parallelism.expert_parallel_size", "experts have devices of their own", "0 1"},
    {"model.model_config.pretraining_tp", "products are cut in parts", "0 1"},
});

constexpr std::string_view model_key = "model.model_config.";

/// Reads a file of nanotron; one object for each.
class NanotronReader {
  public:
    NanotronReader(const LaunchFile& file, LeaveOut leave_out)
        : reader_(file), leave_out_(leave_out) {
        flags_.warnings = file.notes;
    }

    MegatronFlags read() {
        read_model();
        read_parallelism();
        read_tokens();
        read_optimizer();
        set_layout();
        TrainingRun rest;
        reader_.refuse(refused_nanotron);
        take_other_tables();
        reader_.finish(harmless_nanotron, leave_out_, rest);
        flags_.unused = rest.harmless;
        flags_.left_out = rest.left_out;
        flags_.warnings.insert(flags_.warnings.end(), rest.warnings.begin(), rest.warnings.end());
        flags_.program = "nanotron";
        flags_.is_after_core_models = true;
        return std::move(flags_);
    }

  private:
    /// A number with the bounds that Megatron's flag for the same has.
    std::optional<int> bounded(std::string_view written, std::string_view flag) {
        const auto& bounds = std::get<WholeFlag>(megatron_flag_row(flag)->target);
        return reader_.whole(written, bounds.least, bounds.most);
    }

    std::optional<int> size(std::string_view key, std::string_view flag) {
        return bounded(fmt::format("{}{}", model_key, key), flag);
    }

    bool is_on(std::string_view written, bool otherwise) {
        return reader_.answer(written).value_or(otherwise);
    }

    void read_model() {
        flags_.layers = size("num_hidden_layers", "num-layers");
        flags_.hidden_size = size("hidden_size", "hidden-size");
        flags_.feed_forward = size("intermediate_size", "ffn-hidden-size");
        flags_.heads = size("num_attention_heads", "num-attention-heads");
        flags_.query_groups = size("num_key_value_heads", "num-query-groups");
        flags_.grouped = flags_.query_groups.has_value();
        flags_.positions = size("max_position_embeddings", "max-position-embeddings");
        flags_.vocabulary = size("vocab_size", "vocab-size");
        flags_.window = size("sliding_window_size", "seq-length");
        flags_.vocabulary_divisor =
            bounded("model.make_vocab_size_divisible_by", "make-vocab-size-divisible-by")
                .value_or(1);
        flags_.untied = !is_on(fmt::format("{}tie_word_embeddings", model_key), false);
        flags_.query_bias = is_on(fmt::format("{}attention_bias", model_key), false);
        const std::string function =
            reader_.text(fmt::format("{}hidden_act", model_key)).value_or("silu");
        if (function != "silu") {
            reader_.problem(fmt::format("{}hidden_act", model_key),
                            "another function than SiLU, with which halves are gated");
        }
        flags_.gated = true;
        flags_.no_bias = true;
        flags_.rms_norm = true;
        flags_.no_positions = true;
        flags_.hidden_dropout = 0;
        flags_.attention_dropout = 0;
        const std::string kernels = reader_.text(fmt::format("{}_attn_implementation", model_key))
                                        .value_or("flash_attention_2");
        flags_.attention_backend = kernels == "eager" ? "unfused" : "flash";
        if (is_on(fmt::format("{}_use_doc_masking", model_key), false)) {
            flags_.warnings.emplace_back(
                "model.model_config._use_doc_masking: the prediction has attention over whole "
                "samples; within documents it takes less time");
        }
        for (const std::string_view key : {"_fused_rms_norm", "_fused_rotary_emb"}) {
            if (!is_on(fmt::format("{}{}", model_key, key), true)) {
                flags_.warnings.push_back(
                    fmt::format("{}{} = false: the prediction has fused kernels; separate ones "
                                "take more time and memory",
                                model_key,
                                key));
            }
        }
        const std::string type = reader_.text("model.dtype").value_or("bfloat16");
        flags_.bf16 = type == "bfloat16";
        flags_.fp16 = type == "float16";
        if (!has_word("bfloat16 float16 float32", type)) {
            reader_.problem("model.dtype", "numbers of another width");
        }
    }

    void read_parallelism() {
        replicas_ = reader_.whole("parallelism.dp", 1).value_or(1);
        flags_.pipeline_size =
            reader_.whole("parallelism.pp", 1, static_cast<int>(largest_layout)).value_or(1);
        flags_.tensor_size = bounded("parallelism.tp", "tensor-model-parallel-size").value_or(1);
        flags_.context_size = reader_.whole("parallelism.context_parallel_size", 1).value_or(1);
        std::int64_t devices = replicas_;
        for (const int size : {*flags_.pipeline_size, *flags_.tensor_size, *flags_.context_size}) {
            devices *= size;
            if (devices > largest_setting) {
                throw Error(ErrorKind::BadInput,
                            reader_.place("parallelism.dp"),
                            fmt::format("more than {} devices", largest_setting),
                            "is there a digit too many?");
            }
        }
        flags_.processes = static_cast<int>(devices);
        const std::string engine =
            reader_.word("parallelism.pp_engine", "1f1b afab").value_or("afab");
        flags_.all_forwards_first = engine == "afab";
        std::string mode = reader_.text("parallelism.tp_mode").value_or("ALL_REDUCE");
        mode = lower_case(mode);
        if (!has_word("all_reduce reduce_scatter", mode)) {
            reader_.problem("parallelism.tp_mode", "expected ALL_REDUCE or REDUCE_SCATTER");
        }
        flags_.sequence_parallel = mode == "reduce_scatter" && *flags_.tensor_size > 1;
        if (!is_on("parallelism.tp_recompute_allgather", true) && flags_.sequence_parallel) {
            flags_.warnings.emplace_back(
                "parallelism.tp_recompute_allgather = false: the prediction gathers the inputs of "
                "matrix products a second time for the backward; a run that keeps them whole "
                "takes more memory and sends less");
        }
        flags_.tensor_overlap = is_on("parallelism.tp_linear_async_communication", false);
        if (is_on("parallelism.recompute_layer", false)) {
            flags_.recompute_full = true;
            flags_.recompute_layers = 1;
        }
    }

    void read_tokens() {
        flags_.sequence = bounded("tokens.sequence_length", "seq-length");
        flags_.positions = std::max(flags_.positions.value_or(1), flags_.sequence.value_or(1));
        flags_.micro_batch_size = reader_.whole("tokens.micro_batch_size", 1);
        if (!flags_.micro_batch_size) {
            throw Error(ErrorKind::BadInput,
                        reader_.place("tokens.batch_accumulation_per_replica"),
                        "no tokens.micro_batch_size, expected the number of samples",
                        "nanotron requires the key, too: write micro_batch_size below tokens");
        }
        const int passes = reader_.whole("tokens.batch_accumulation_per_replica", 1).value_or(1);
        const std::int64_t micro_batches = std::int64_t{replicas_} * passes;
        if (micro_batches > largest_setting / *flags_.micro_batch_size) {
            throw Error(ErrorKind::BadInput,
                        reader_.place("tokens.batch_accumulation_per_replica"),
                        fmt::format("more than {} samples of a step", largest_setting),
                        "is there a digit too many?");
        }
        flags_.global_batch_size = static_cast<int>(micro_batches * *flags_.micro_batch_size);
    }

    void read_optimizer() {
        const int stage = reader_.whole("optimizer.zero_stage", 0).value_or(0);
        flags_.shard_optimizer = stage == 1;
        if (stage > 1) {
            reader_.problem("optimizer.zero_stage", "nanotron has ZeRO up to stage 1");
        }
        flags_.clip_norm = reader_.real("optimizer.clip_grad").value_or(0);
        const std::string name =
            lower_case(reader_.text("optimizer.optimizer_factory.name").value_or("adamW"));
        if (name != "adamw") {
            reader_.problem("optimizer.optimizer_factory.name", "keeps another state than AdamW");
        }
        const bool sums_wide = is_on("optimizer.accumulate_grad_in_fp32", false);
        flags_.gradients_fp32 = sums_wide;
        flags_.gradients_narrow = !sums_wide && flags_.bf16;
        if (!sums_wide && flags_.bf16) {
            reader_.problem("optimizer.accumulate_grad_in_fp32",
                            "without it weights, gradients and state of the optimizer are in "
                            "bfloat16 alone");
        }
    }

    /// Takes the parts of a file that change no step: a list of what samples hold, and plain values
    /// in the place of tests, a profiler and a store for checkpoints.
    void take_other_tables() {
        for (const std::string_view table : {"data_stages", "lighteval", "profiler", "s3_upload"}) {
            static_cast<void>(reader_.texts(table));
        }
    }

    /// Blocks go to a stage until the costs up to one are more than its share of all: a decoder
    /// layer has 4 width^2 + 3 width x inner width, the head width x words, all others none
    /// (nanotron/models/llama.py, get_block_compute_costs).
    void set_layout() {
        const int ranks = *flags_.pipeline_size;
        if (ranks == 1 || !flags_.layers || !flags_.hidden_size || !flags_.feed_forward ||
            !flags_.heads || !flags_.vocabulary) {
            return;
        }
        const std::int64_t width = *flags_.hidden_size;
        const std::int64_t multiple =
            std::int64_t{*flags_.vocabulary_divisor} * *flags_.tensor_size;
        const std::int64_t words = (*flags_.vocabulary + multiple - 1) / multiple * multiple;
        const std::int64_t heads = width / *flags_.heads * *flags_.heads;
        // In units of the width, so that no product is too large.
        const std::int64_t layer = 4 * heads + 3 * std::int64_t{*flags_.feed_forward};
        const std::int64_t all = layer * *flags_.layers + words;
        MegatronLayout layout;
        layout.stages.resize(as_index(ranks));
        std::int64_t sum = 0;
        std::size_t stage = 0;
        const auto add = [&](char letter, std::int64_t cost) {
            layout.stages[stage] += letter;
            sum += cost;
            const std::int64_t share = all * (static_cast<std::int64_t>(stage) + 1);
            if (sum * ranks > share && stage + 1 < layout.stages.size()) {
                ++stage;
            }
        };
        add('E', 0);
        for (int i = 0; i < *flags_.layers; ++i) {
            add('t', layer);
        }
        layout.stages[stage] += 'L';
        if (stage + 1 < layout.stages.size()) {
            throw Error(ErrorKind::Infeasible,
                        reader_.place("parallelism.pp"),
                        fmt::format("{} of costs leave {} without a layer",
                                    counted(*flags_.layers, "block"),
                                    counted(ranks - static_cast<int>(stage) - 1, "stage")),
                        "nanotron gives them none, too: take fewer stages");
        }
        flags_.layout = std::move(layout);
    }

    SettingReader reader_;
    LeaveOut leave_out_;
    int replicas_ = 1;
    MegatronFlags flags_;
};

}  // namespace

bool is_nanotron(std::string_view text) {
    const auto has = [text](std::string_view part) {
        return text.find(part) != std::string_view::npos;
    };
    return has("pp_engine:") ||
           (has("parallelism:") && has("model_config:") && has("batch_accumulation_per_replica:"));
}

bool has_nanotron_keys(const LaunchFile& file) {
    return std::ranges::any_of(file.settings, [](const Setting& setting) {
        return setting.written.starts_with("parallelism.") ||
               setting.written.starts_with("tokens.") || setting.written.starts_with(model_key);
    });
}

MegatronFlags nanotron_flags(const LaunchFile& file, LeaveOut leave_out) {
    LaunchFile kept = file;
    std::erase_if(kept.settings, &Setting::is_unset);
    return NanotronReader(kept, leave_out).read();
}

}  // namespace pipetwin
