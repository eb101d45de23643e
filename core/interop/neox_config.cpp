// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/ascii.h"
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
constexpr std::string_view harmless_neox =
    "checkpoint_factor checkpoint_scale checkpoint_validation_with_forward_pass comment "
    "data_impl data_path debug decay_lr_to deepspeed_extra_args deepspeed_mpi deepspeed_slurm "
    "distributed_backend eval_interval eval_iters eval_results_prefix eval_tasks extra_save_iters "
    "finetune gpt_j_tied hostfile include init_method init_method_std iteration "
    "keep_last_n_checkpoints launcher layernorm_epsilon load log_dir log_grad_norm log_interval "
    "log_param_norm log_optimizer_states lr_decay_fraction lr_decay_iters lr_decay_style "
    "master_addr master_port max_position_embeddings merge_file min_lr mmap_warmup "
    "mup_init_scale no_load_optim no_load_rng no_save_optim no_save_rng no_ssh_check num_workers "
    "num_samples output_layer_init_method output_layer_parallelism override_lr_scheduler "
    "profile profile_backward profile_step_start profile_step_stop memory_profiling "
    "memory_profiling_path prompt_end recompute rms_norm_epsilon rotary_emb_base rotary_pct "
    "sample_input_file sample_output_file save save_base_shapes seed split steps_per_print "
    "temperature tensorboard_dir tensorboard_writer test_data_paths "
    "test_data_weights text_gen_type tokenizer_vocab_file top_k top_p train_data_paths "
    "train_data_weights train_iters train_epochs use_mup use_wandb use_comet valid_data_paths "
    "valid_data_weights verbose vocab_file wall_clock_breakdown wandb_group wandb_host "
    "wandb_project wandb_team wandb_run_name wandb_init_all_ranks comet_project comet_tags "
    "comet_others comet_workspace comet_experiment_name warmup warmup_iters "
    "weight_by_num_documents "
    "weight_decay weighted_sampler_alpha maximum_tokens user_script config_files "
    "use_checkpoint_lr_scheduler use_distributed_sampler use_shared_fs return_logits "
    "fp16.fp16 fp16.auto_cast fp16.hysteresis fp16.initial_scale_power fp16.loss_scale "
    "fp16.loss_scale_window fp16.min_loss_scale fp16.consecutive_hysteresis "
    "optimizer.params.lr optimizer.params.betas optimizer.params.eps "
    "optimizer.params.weight_decay optimizer.params.momentum optimizer.params.freeze_step "
    "zero_optimization.allgather_partitions zero_optimization.allgather_bucket_size "
    "zero_optimization.overlap_comm zero_optimization.reduce_scatter "
    "zero_optimization.reduce_bucket_size zero_optimization.contiguous_gradients "
    "zero_optimization.load_from_fp32_weights comms_logger.enabled comms_logger.verbose "
    "comms_logger.prof_all comms_logger.debug zero_allow_untested_optimizer "
    "flops_profiler.enabled eod_mask_loss "
    "mamba_selective_scan_fusion mamba_causal_conv_fusion mamba_inner_func_fusion "
    "mamba_use_bias_in_conv mamba_use_bias_in_linears ";

/// Settings that change the run in a way that no flag says.
constexpr auto refused_neox = std::to_array<SettingGroup>({
    {"moe_num_experts", "blocks have experts, which GPT-NeoX divides in its own way", "0 1"},
    {"sparsity_config gmlp_attn_dim", "attention is another one", off_values},
    {"te_columnparallel te_rowparallel te_layernorm_mlp te_mha te_fp8_format te_fp8_mha",
     "layers are those of Transformer Engine, which may compute in 8 bits",
     off_values},
    {"use_bnb_optimizer", "the optimizer keeps another state", off_values},
    {"zero_optimization.cpu_offload zero_optimization.offload_optimizer.device "
     "zero_optimization.offload_param.device",
     "state is in the memory of the host",
     off_values},
    {"soft_prompt_tuning.enabled", "the weights are not trained", off_values},
    {"train_impl rwkv_chunk_len", "another objective or model is trained", "normal none null"},
    {"curriculum_learning.enabled", "samples have different lengths", off_values},
    {"sliding_window_width", "attention sees a window of a sample", off_values},
    {"model_arch", "the model has an encoder, too", "gpt2"},
    {"feedforward_size", "the inner width is another one", off_values},
    {"opt_pos_emb_offset extra_sentinel_tokens", "tables have more rows", off_values},
    {"checkpoint_in_cpu", "inputs of blocks are in the memory of the host", off_values},
    {"autotuning.enabled", "DeepSpeed tries other settings and takes the fastest", off_values},
});

/// Reads a file of GPT-NeoX; one object for each.
class NeoxReader {
  public:
    NeoxReader(const LaunchFile& file, LeaveOut leave_out)
        : reader_(file), leave_out_(leave_out), processes_(file.all_processes) {
        flags_.warnings = file.notes;
    }

    MegatronFlags read() {
        read_model();
        read_feed_forward();
        read_attention();
        read_parallelism();
        read_batch();
        read_optimizer();
        read_kernels();
        TrainingRun rest;
        reader_.refuse(refused_neox);
        reader_.finish(harmless_neox, leave_out_, rest);
        flags_.unused = rest.harmless;
        flags_.left_out = rest.left_out;
        flags_.warnings.insert(flags_.warnings.end(), rest.warnings.begin(), rest.warnings.end());
        flags_.program = "GPT-NeoX";
        return std::move(flags_);
    }

  private:
    /// A number with the bounds that Megatron's flag for the same has.
    std::optional<int> bounded(std::string_view written, std::string_view flag) {
        const auto& bounds = std::get<WholeFlag>(megatron_flag_row(flag)->target);
        return reader_.whole(written, bounds.least, bounds.most);
    }

    bool is_on(std::string_view written, bool otherwise) {
        return reader_.answer(written).value_or(otherwise);
    }

    void read_model() {
        flags_.layers = bounded("num_layers", "num-layers");
        flags_.hidden_size = bounded("hidden_size", "hidden-size");
        flags_.heads = bounded("num_attention_heads", "num-attention-heads");
        flags_.query_groups = bounded("num_kv_heads", "num-query-groups");
        flags_.grouped = flags_.query_groups.has_value();
        expect_equal_heads();
        flags_.sequence = bounded("seq_length", "seq-length");
        flags_.positions = bounded("max_position_embeddings", "max-position-embeddings");
        flags_.vocabulary_divisor =
            bounded("make_vocab_size_divisible_by", "make-vocab-size-divisible-by").value_or(128);
        flags_.padded_vocabulary = bounded("padded_vocab_size", "padded-vocab-size");
        flags_.untied = is_on("no_weight_tying", false);
        flags_.head_norms = is_on("use_qk_layernorm", false);
        const std::string norm = reader_.text("norm").value_or("layernorm");
        flags_.rms_norm = norm == "rmsnorm";
        if (!has_word("layernorm rmsnorm", norm)) {
            reader_.problem("norm", "expected layernorm or rmsnorm");
        }
        const std::string positions = reader_.text("pos_emb").value_or("learned");
        flags_.no_positions = positions != "learned";
        if (!has_word("learned rotary alibi sinusoidal none", positions)) {
            reader_.problem("pos_emb", "positions have weights of their own");
        }
        if (is_on("gpt_j_residual", false)) {
            flags_.warnings.emplace_back(
                "gpt_j_residual: the prediction computes the halves of a block one after the "
                "other; side by side they send half as many messages of tensor parallelism");
        }
        read_words();
    }

    void expect_equal_heads() {
        if (flags_.heads && flags_.hidden_size && *flags_.hidden_size % *flags_.heads != 0) {
            reader_.infeasible("num_attention_heads",
                               fmt::format("num_attention_heads {} does not divide hidden_size {}",
                                           *flags_.heads,
                                           *flags_.hidden_size),
                               "take a divisor of hidden_size");
        }
        if (flags_.heads && flags_.query_groups && *flags_.heads % *flags_.query_groups != 0) {
            reader_.infeasible("num_kv_heads",
                               fmt::format("num_kv_heads {} does not divide num_attention_heads {}",
                                           *flags_.query_groups,
                                           *flags_.heads),
                               "take a divisor of num_attention_heads");
        }
    }

    void read_words() {
        const std::string type = reader_.text("tokenizer_type").value_or("");
        const std::string file = reader_.text("vocab_file").value_or("");
        if (type == "GPT2BPETokenizer") {
            flags_.tokenizer = type;
        } else if (file.find("20B_tokenizer") != std::string::npos) {
            flags_.tokenizer = "HuggingFaceTokenizer";
            flags_.tokenizer_model = "gpt-neox-20b";
        }
    }

    /// Four times the width of the blocks where the file says nothing else.
    std::optional<int> inner_width() {
        const std::optional<int> width = bounded("intermediate_size", "ffn-hidden-size");
        const std::optional<double> factor = reader_.real("expansion_factor");
        if (width && factor) {
            reader_.infeasible("expansion_factor",
                               fmt::format("expansion_factor {} beside intermediate_size {}: both "
                                           "say the inner width",
                                           *factor,
                                           *width),
                               "take one of them out");
        }
        if (width || !flags_.hidden_size) {
            return width;
        }
        constexpr double usual_factor = 4;
        const double times = factor.value_or(0) > 0 ? *factor : usual_factor;
        const double product = times * *flags_.hidden_size;
        if (product < 1 || product > largest_setting) {
            reader_.infeasible(
                factor ? "expansion_factor" : "hidden_size",
                fmt::format(
                    "an inner width of {:.0f}, expected from 1 to {}", product, largest_setting),
                "is there a digit too many?");
        }
        return static_cast<int>(product);
    }

    /// megatron/model/transformer.py, ParallelMLP: with a gate both halves together have two thirds
    /// of the inner width.
    void read_feed_forward() {
        const std::optional<int> width = inner_width();
        const int multiple = reader_.whole("mlp_multiple_of", 1).value_or(1);
        const std::string function = reader_.text("activation").value_or("gelu");
        flags_.gated = has_word("swiglu geglu", function);
        if (!has_word("gelu swiglu geglu", function)) {
            reader_.problem("activation", "another function than GELU, SwiGLU and GEGLU");
        }
        flags_.no_gelu_fusion = !is_on("bias_gelu_fusion", false);
        if (!width) {
            return;
        }
        const std::int64_t both = std::int64_t{*width} * 2 / 3;
        const std::int64_t inner = flags_.gated ? both / 2 : *width;
        const std::int64_t padded = (inner + multiple - 1) / multiple * multiple;
        if (inner < 1 || padded > largest_setting) {
            reader_.infeasible("mlp_multiple_of",
                               fmt::format("an inner width of {}", padded),
                               "is there a digit too many?");
        }
        flags_.feed_forward = static_cast<int>(padded);
    }

    /// "[[flash], 32]" for each part of the blocks: "flash" is fused, "global" is not.
    void read_attention() {
        const bool has_mlp_bias = is_on("use_bias_in_mlp", true);
        const bool has_attention_bias = is_on("use_bias_in_attn_linear", true);
        flags_.no_bias = !has_mlp_bias;
        if (has_mlp_bias != has_attention_bias) {
            flags_.warnings.push_back(fmt::format(
                "use_bias_in_mlp and use_bias_in_attn_linear differ: the prediction has biases {}",
                has_mlp_bias ? "in both halves of a block" : "in neither half of a block"));
        }
        is_on("use_bias_in_norms", true);
        std::set<std::string> kinds;
        for (const std::string& part :
             reader_.texts("attention_config").value_or(std::vector<std::string>{"global"})) {
            std::string word;
            for (const char c : part + " ") {
                if (ascii::is_letter(c) || (c == '_' && !word.empty())) {
                    word += c;
                } else if (!word.empty()) {
                    kinds.insert(std::exchange(word, {}));
                }
            }
        }
        kinds.erase("all");
        if (kinds.size() != 1 || !has_word("flash global", *kinds.begin())) {
            reader_.problem("attention_config",
                            fmt::format("blocks have attention of kinds {}, expected flash or "
                                        "global alone",
                                        fmt::join(kinds, ", ")));
        }
        flags_.attention_backend = kinds.contains("flash") ? "flash" : "unfused";
        expect_kinds_of_all_blocks();
        flags_.hidden_dropout = dropout("hidden_dropout");
        flags_.attention_dropout = dropout("attention_dropout");
    }

    double dropout(std::string_view key) {
        const double share = reader_.real(key).value_or(0);
        if (share >= 1) {
            reader_.infeasible(
                key,
                fmt::format("{} = {}, expected a share from 0 to below 1", key, share),
                "write 0.1 for a tenth");
        }
        return share;
    }

    /// megatron/neox_arguments/arguments.py: "[[global, local], 6]" stands for twelve blocks.
    void expect_kinds_of_all_blocks() {
        const std::optional<std::vector<std::string>> parts = reader_.texts("attention_config");
        if (!parts || !flags_.layers) {
            return;
        }
        std::int64_t blocks = 0;
        std::int64_t kinds = 0;  // in front of the next number
        const auto take = [&](std::string_view word) {
            const std::optional<int> times = whole_in(word);
            if (!times && word != "all") {
                ++kinds;
                return;
            }
            const std::int64_t all = kinds > 0 ? *flags_.layers / kinds : 0;
            blocks += std::exchange(kinds, 0) * (times ? std::int64_t{*times} : all);
        };
        for (const std::string& part : *parts) {
            std::string word;
            for (const char c : part + " ") {
                if (ascii::is_letter(c) || ascii::is_digit(c) || c == '_') {
                    word += c;
                } else if (!word.empty()) {
                    take(std::exchange(word, {}));
                }
            }
        }
        blocks += kinds;  // a list of one kind for each block
        if (blocks != *flags_.layers) {
            reader_.infeasible("attention_config",
                               fmt::format("attention_config says the attention of {}, num_layers "
                                           "is {}",
                                           counted(blocks, "block"),
                                           *flags_.layers),
                               "make the numbers behind the kinds add up to num_layers");
        }
    }

    void read_parallelism() {
        const int stages =
            reader_.whole("pipe_parallel_size", 0, static_cast<int>(largest_layout)).value_or(0);
        flags_.pipeline_size = std::max(1, stages);
        flags_.tensor_size =
            bounded("model_parallel_size", "tensor-model-parallel-size").value_or(1);
        flags_.sequence_parallel = is_on("sequence_parallel", false) && *flags_.tensor_size > 1;
        flags_.context_size = reader_.whole("context_parallel_size", 1).value_or(1);
        const std::string method =
            reader_.text("pipe_partition_method").value_or("type:transformer|mlp");
        const bool is_even = !flags_.layers || *flags_.layers % *flags_.pipeline_size == 0;
        if (*flags_.pipeline_size > 1 && method != "type:transformer|mlp") {
            reader_.problem("pipe_partition_method", "stages have other blocks");
        } else if (!is_even) {
            reader_.infeasible(
                "num_layers",
                fmt::format("{} in {} stages, which GPT-NeoX shares out unevenly",
                            counted(*flags_.layers, "block"),
                            *flags_.pipeline_size),
                "take a multiple of the stages, or write the blocks of each stage as "
                "pipeline.partition");
        }
        std::string_view source = "--devices";
        for (const std::string_view key : {"global_num_gpus", "world_size"}) {
            if (const std::optional<int> said = reader_.whole(key, 1)) {
                if (processes_ && *processes_ != *said) {
                    reader_.infeasible(
                        key,
                        fmt::format("{} = {} beside {} {}", key, *said, source, *processes_),
                        fmt::format("leave {} out, or write the same number of devices", source));
                }
                processes_ = said;
                source = key;
            }
        }
        if (is_on("checkpoint_activations", false)) {
            flags_.recompute_full = true;
            flags_.recompute_layers =
                bounded("checkpoint_num_layers", "recompute-num-layers").value_or(1);
            if (is_on("synchronize_each_layer", false)) {
                flags_.warnings.emplace_back(
                    "synchronize_each_layer: the prediction does not wait for the device at the "
                    "ends of each block; with the waits a step is longer");
            }
        } else {
            reader_.whole("checkpoint_num_layers", 0);
            is_on("synchronize_each_layer", false);  // of recomputed blocks alone
        }
        if (is_on("partition_activations", false) && *flags_.tensor_size > 1) {
            flags_.warnings.emplace_back(
                "partition_activations: the prediction keeps the inputs of blocks whole on every "
                "device; divided they take less memory and more messages");
        }
    }

    /// The samples of a step follow from the number of replicas (megatron/neox_arguments,
    /// calculate_batch_parameters).
    void read_batch() {
        const std::optional<int> whole = reader_.whole("train_batch_size", 1);
        const std::optional<int> micro = reader_.whole("train_micro_batch_size_per_gpu", 1);
        const std::optional<int> passes = reader_.whole("gradient_accumulation_steps", 1);
        const std::optional<int> copy = reader_.whole("gas", 1);
        if (copy && copy != passes) {
            reader_.problem("gas", "another number than gradient_accumulation_steps");
        }
        const std::int64_t of_model =
            std::int64_t{*flags_.pipeline_size} * *flags_.tensor_size * *flags_.context_size;
        if (!processes_ && whole && micro && passes) {
            const std::int64_t replicas = *whole / (std::int64_t{*micro} * *passes);
            if (replicas < 1 || replicas * *micro * *passes != *whole ||
                replicas * of_model > largest_setting) {
                reader_.infeasible("train_batch_size",
                                   fmt::format("{} samples are no whole number of replicas with {} "
                                               "micro-batches of {}",
                                               *whole,
                                               *passes,
                                               *micro),
                                   "leave train_batch_size out");
            }
            processes_ = static_cast<int>(replicas * of_model);
        }
        if (!processes_) {
            throw Error(ErrorKind::BadInput,
                        reader_.place("train_micro_batch_size_per_gpu"),
                        "GPT-NeoX takes as many replicas as there are devices for, and the file "
                        "does not say how many there are",
                        "add --devices N to the command, all of the run");
        }
        if (*processes_ % of_model != 0) {
            reader_.infeasible(
                "pipe_parallel_size",
                fmt::format(
                    "{} devices are no multiple of {}, those of a replica", *processes_, of_model),
                "take a multiple as the number of devices");
        }
        flags_.processes = processes_;
        const std::int64_t replicas = *processes_ / of_model;
        if (!whole && !micro) {
            return;
        }
        // Batch, micro-batch and passes: two of them give the third; beside one alone there is one
        // pass.
        std::int64_t samples = micro.value_or(0);
        if (!micro) {
            samples = *whole / (replicas * passes.value_or(1));
        }
        const std::int64_t all = whole ? *whole : samples * passes.value_or(1) * replicas;
        const bool is_whole = samples >= 1 && all % (samples * replicas) == 0 &&
                              (!passes || all == samples * replicas * *passes);
        if (!is_whole || all > largest_setting) {
            reader_.infeasible(whole ? "train_batch_size" : "train_micro_batch_size_per_gpu",
                               fmt::format("{} samples of a step, {} of a micro-batch and {} do "
                                           "not fit together",
                                           all,
                                           samples,
                                           counted(static_cast<int>(replicas), "replica")),
                               "leave train_batch_size out");
        }
        flags_.micro_batch_size = static_cast<int>(samples);
        flags_.global_batch_size = static_cast<int>(all);
    }

    void read_optimizer() {
        const int stage = reader_.whole("zero_optimization.stage", 0, 3).value_or(0);
        flags_.shard_optimizer = stage == 1;
        if (stage > 1) {
            reader_.problem("zero_optimization.stage",
                            "gradients are shared out, too, which no flag says");
        }
        flags_.clip_norm = reader_.real("gradient_clipping").value_or(1);
        const std::string name = lower_case(reader_.text("optimizer.type").value_or("adam"));
        if (!has_word("adam adamw sgd", name)) {
            reader_.problem("optimizer.type", "keeps another state than Adam");
        }
        flags_.optimizer = name == "sgd" ? "sgd" : "adam";
        const std::string precision = reader_.text("precision").value_or("");
        const std::string type = reader_.text("fp16.type").value_or("");
        const bool is_half = is_on("fp16.enabled", false);
        const bool is_bfloat = is_on("bf16.enabled", false);
        const bool sums_wide = is_on("fp32_allreduce", false);
        if (is_half && type != "bfloat16" && (precision == "bfloat16" || is_bfloat)) {
            reader_.infeasible("fp16.enabled",
                               fmt::format("fp16.enabled beside {}: numbers have one type",
                                           is_bfloat ? "bf16.enabled" : "precision bfloat16"),
                               "take one of them out");
        }
        flags_.bf16 = precision == "bfloat16" || is_bfloat || (is_half && type == "bfloat16");
        flags_.fp16 = !flags_.bf16 && (precision == "fp16" || is_half);
        const std::string sums = reader_.text("data_types.grad_accum_dtype").value_or("");
        // DeepSpeed's optimizer for bf16 adds gradients up in fp32.
        flags_.gradients_fp32 = sums == "fp32" || sums_wide || (sums.empty() && flags_.bf16);
    }

    void read_kernels() {
        constexpr std::array<std::string_view, 3> keys{
            "scaled_upper_triang_masked_softmax_fusion", "rope_fusion", "layernorm_fusion"};
        for (const std::string_view key : keys) {
            const bool is_separate = !is_on(key, false);
            const bool matters = key != keys[0] || flags_.attention_backend == "unfused";
            if (is_separate && matters && reader_.has(key)) {
                flags_.warnings.push_back(
                    fmt::format("{} = false: the prediction has this kernel fused; as separate "
                                "ones a step is longer",
                                key));
            }
        }
    }

    SettingReader reader_;
    LeaveOut leave_out_;
    std::optional<int> processes_{};
    MegatronFlags flags_;
};

}  // namespace

namespace {

/// "40" of "FILE:40:3"; empty: the place has no line.
std::string_view line_in(std::string_view place) {
    place = place.substr(0, place.rfind(':'));
    const std::size_t at = place.rfind(':');
    const std::string_view line =
        at == std::string_view::npos ? std::string_view() : place.substr(at + 1);
    return whole_in(line) ? line : std::string_view();
}

/// Throws Error(BadInput) for a key that the file has with either spelling.
void refuse_second_spellings(const std::vector<Setting>& settings) {
    std::map<std::string, const Setting*> seen;
    for (const Setting& setting : settings) {
        std::string key = setting.written;
        std::ranges::replace(key, '-', '_');
        const auto [first, is_new] = seen.emplace(key, &setting);
        if (is_new) {
            continue;
        }
        const std::string_view line = line_in(first->second->place);
        const std::string_view second = line_in(setting.place);
        const bool has_lines = !line.empty() && !second.empty();
        throw Error(ErrorKind::BadInput,
                    setting.place,
                    fmt::format("{} is there twice{}",
                                key,
                                has_lines ? fmt::format(" (lines {} and {})", line, second) : ""),
                    "take one out");
    }
}

}  // namespace

bool is_neox(std::string_view text) {
    constexpr std::array<std::string_view, 4> marks{"pipe_parallel_size\":",
                                                    "pipe-parallel-size\":",
                                                    "pipe_parallel_size:",
                                                    "pipe-parallel-size:"};
    return std::ranges::any_of(
        marks, [text](std::string_view mark) { return text.find(mark) != std::string_view::npos; });
}

bool has_neox_keys(const LaunchFile& file) {
    return std::ranges::any_of(file.settings, [](const Setting& setting) {
        return setting.name == "pipe-parallel-size" && setting.sections.empty();
    });
}

MegatronFlags neox_flags(const LaunchFile& file, LeaveOut leave_out) {
    LaunchFile kept = file;
    std::erase_if(kept.settings, &Setting::is_unset);
    refuse_second_spellings(kept.settings);
    for (Setting& setting : kept.settings) {  // keys have either
        std::ranges::replace(setting.written, '-', '_');
    }
    return NeoxReader(kept, leave_out).read();
}

}  // namespace pipetwin
