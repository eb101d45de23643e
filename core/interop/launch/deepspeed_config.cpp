// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/word_list.h"
#include "core/costs/layer_division.h"
#include "core/interop/launch/training_run.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin {

namespace {

/// Settings that change no size, split, message or kernel of a step, or that only another setting,
/// which is refused, would make do so (those of offload).
constexpr std::string_view harmless_deepspeed =
    "scheduler.type scheduler.params.warmup_min_lr scheduler.params.warmup_max_lr "
    "scheduler.params.warmup_num_steps scheduler.params.warmup_type "
    "scheduler.params.total_num_steps scheduler.params.cos_min_ratio "
    "scheduler.params.warmup_min_ratio scheduler.params.last_batch_iteration "
    "scheduler.params.lr_range_test_min_lr scheduler.params.lr_range_test_step_size "
    "scheduler.params.lr_range_test_step_rate scheduler.params.lr_range_test_staircase "
    "scheduler.params.cycle_min_lr scheduler.params.cycle_max_lr "
    "scheduler.params.cycle_first_step_size scheduler.params.cycle_second_step_size "
    "scheduler.params.decay_step_size scheduler.params.decay_lr_rate "
    "tensorboard.enabled tensorboard.output_path tensorboard.job_name "
    "wandb.enabled wandb.group wandb.team wandb.project "
    "csv_monitor.enabled csv_monitor.output_path csv_monitor.job_name "
    "comet.enabled comet.samples_log_interval comet.project comet.workspace comet.api_key "
    "comet.experiment_name comet.experiment_key comet.online comet.mode "
    "flops_profiler.enabled flops_profiler.profile_step flops_profiler.module_depth "
    "flops_profiler.top_modules flops_profiler.detailed flops_profiler.output_file "
    "flops_profiler.recompute_fwd_factor "
    "comms_logger.enabled comms_logger.verbose comms_logger.prof_all comms_logger.debug "
    "comms_logger.prof_ops "
    "aio.block_size aio.queue_depth aio.thread_count aio.single_submit aio.overlap_events "
    "aio.intra_op_parallelism aio.use_gds "
    "checkpoint.tag_validation checkpoint.load_universal checkpoint.use_node_local_storage "
    "checkpoint.parallel_write.pipeline_stage checkpoint.writer checkpoint.async_io "
    "nebula.enabled nebula.persistent_storage_path nebula.persistent_time_interval "
    "nebula.num_of_version_in_retention nebula.enable_nebula_load nebula.load_path "
    "eigenvalue.verbose eigenvalue.max_iter eigenvalue.tol "
    "eigenvalue.stability eigenvalue.gas_boundary_resolution eigenvalue.layer_name "
    "eigenvalue.layer_num "
    "activation_checkpointing.contiguous_memory_optimization "
    "activation_checkpointing.number_checkpoints activation_checkpointing.profile "
    "activation_checkpointing.synchronize_checkpoint_boundary "
    "zero_optimization.offload_optimizer.pin_memory "
    "zero_optimization.offload_optimizer.nvme_path "
    "zero_optimization.offload_optimizer.buffer_count "
    "zero_optimization.offload_optimizer.fast_init zero_optimization.offload_optimizer.ratio "
    "zero_optimization.offload_optimizer.pipeline "
    "zero_optimization.offload_optimizer.pipeline_read "
    "zero_optimization.offload_optimizer.pipeline_write "
    "zero_optimization.offload_param.pin_memory zero_optimization.offload_param.nvme_path "
    "zero_optimization.offload_param.buffer_count zero_optimization.offload_param.buffer_size "
    "zero_optimization.offload_param.max_in_cpu "
    "zero_optimization.cpu_offload_use_pin_memory "
    "zero_optimization.leaf_module.classes zero_optimization.leaf_module.names "
    "zero_optimization.leaf_module.name_suffixes "
    "steps_per_print wall_clock_breakdown dump_state prescale_gradients memory_breakdown "
    "gradient_predivide_factor seq_parallel_communication_data_type seed "
    "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer disable_allgather "
    "dataloader_drop_last load_universal_checkpoint use_node_local_storage "
    "checkpoint_tag_validation_enabled timers.throughput.enabled "
    "timers.throughput.synchronized "
    "fp16.loss_scale fp16.loss_scale_window fp16.initial_scale_power fp16.hysteresis "
    "fp16.min_loss_scale fp16.auto_cast fp16.consecutive_hysteresis fp16.opt_level "
    "bf16.loss_scale bf16.initial_scale_power bf16.auto_cast "
    "bf16.check_grad_overflow bf16.immediate_grad_update bfloat16.immediate_grad_update "
    "zero_optimization.allgather_partitions zero_optimization.allgather_bucket_size "
    "zero_optimization.reduce_bucket_size "
    "zero_optimization.contiguous_gradients zero_optimization.round_robin_gradients "
    "zero_optimization.ignore_unused_parameters zero_optimization.elastic_checkpoint "
    "zero_optimization.sub_group_size zero_optimization.load_from_fp32_weights "
    "zero_optimization.use_multi_rank_bucket_allreduce zero_optimization.legacy_stage1 "
    "zero_optimization.stage3_max_live_parameters "
    "zero_optimization.stage3_max_reuse_distance "
    "zero_optimization.stage3_param_persistence_threshold "
    "zero_optimization.stage3_model_persistence_threshold "
    "zero_optimization.stage3_gather_16bit_weights_on_model_save "
    "zero_optimization.stage3_gather_fp16_weights_on_model_save "
    "zero_optimization.gather_16bit_weights_on_model_save "
    "zero_optimization.stage3_module_granularity_threshold "
    "zero_optimization.stage3_use_all_reduce_for_fetch_params "
    "zero_optimization.stage3_allgather_sequential "
    "zero_optimization.memory_efficient_linear zero_optimization.override_module_apply "
    "zero_optimization.pipeline_loading_checkpoint zero_optimization.log_trace_cache_warnings "
    "zero_optimization.enable_sanity_checks "
    "pipeline.seed_layers pipeline.pipe_partitioned pipeline.grad_partitioned "
    "expert_parallel.preset_model expert_parallel.moe_layer_pattern "
    "expert_parallel.expert_pattern expert_parallel.router_pattern "
    "expert_parallel.use_grouped_mm expert_parallel.grouped_mm_backend "
    "expert_parallel.route_norm expert_parallel.route_scale expert_parallel.score_apply";

/// Switches that make the run another one than a plain training with mixed precision, shares of
/// groups of replicas, messages with fewer bits (ZeRO++), and state that is not on the device.
constexpr auto refused_deepspeed = std::to_array<SettingGroup>({
    {"optimizer.params.amsgrad", "the optimizer keeps one more number", off_values},
    {"amp.enabled", "another library (Apex) chooses the precision", off_values},
    {"elasticity.enabled", "the batch follows the machines", off_values},
    {"curriculum_learning.enabled", "samples have different lengths", off_values},
    {"progressive_layer_drop.enabled", "blocks are left out at random", off_values},
    {"sparse_attention.mode", "attention is another one", "dense"},
    {"sparse_gradients", "gradients of the embedding are sparse", off_values},
    {"eigenvalue.enabled", "a step computes eigenvalues, too", off_values},
    {"hybrid_engine.enabled", "a step generates samples, too", off_values},
    {"graph_harvesting", "kernels are launched as graphs", off_values},
    {"fp16.fp16_master_weights_and_grads bf16.bf16_master_weights_and_grads "
     "bf16.bf16_optimizer_states zero_optimization.zenflow",
     "the optimizer's state has another width",
     off_values},
    {"zero_optimization.zero_quantized_weights "
     "zero_optimization.zero_quantized_nontrainable_weights "
     "zero_optimization.zero_quantized_gradients",
     "messages have fewer bits"},
    {"zero_optimization.offload_optimizer.device zero_optimization.offload_param.device",
     "state is in host memory",
     "none"},
    {"zero_optimization.cpu_offload", "state is in host memory"},
    {"activation_checkpointing.partition_activations activation_checkpointing.cpu_checkpointing",
     "what is kept is shared out, or goes to host memory"},
});

/// Tables whose switches make the run another one; without them nothing in them has an effect.
constexpr auto refused_deepspeed_tables = std::to_array<SettingGroup>({
    {"data_efficiency", "samples have different lengths in a step or in a block"},
    {"compression_training", "weights have fewer bits, or are left out"},
    {"autotuning", "a program chooses the settings"},
});

/// Reads a file of DeepSpeed; one object for each.
class DeepSpeedReader {
  public:
    DeepSpeedReader(const LaunchFile& file, LeaveOut leave_out)
        : reader_(file), leave_out_(leave_out), all_devices_(file.all_processes) {}

    TrainingRun read() {
        run_.schedule = to_string(ScheduleKind::OneFOneB);  // of DeepSpeed's pipeline engine
        read_batch();
        read_zero();
        read_numbers();
        read_gradients();
        read_pipeline();
        read_division();
        read_recompute();
        expect_plain_run();
        warn_of_open_settings();
        reader_.finish(harmless_deepspeed, leave_out_, run_);
        return std::move(run_);
    }

  private:
    /// What sets the run apart from a plain training.
    void expect_plain_run() {
        reader_.refuse(refused_deepspeed);
        refuse_tables();
        const std::string type =
            reader_.text("communication_data_type").value_or(is_open_ ? "" : run_.precision);
        const bool is_wide = type == "fp32" || type == "fp64";
        if (!type.empty() && type != "none" && !is_open_ && is_wide != (run_.precision == "fp32")) {
            run_.warnings.push_back(fmt::format(
                "communication_data_type = {}: the prediction sends gradients as wide as it keeps "
                "them",
                type));
        }
    }

    /// Tables that are switched on; the parts of `data_efficiency` have switches of their own.
    void refuse_tables() {
        for (const SettingGroup& table : refused_deepspeed_tables) {
            const std::string own = fmt::format("{}.enabled", table.names);
            const bool has_own_switch = reader_.has(own);
            std::vector<std::string> on = reader_.take_below(table.names, "enabled");
            const bool is_own_on = std::erase(on, own) > 0;
            const bool is_on = table.names == "autotuning"    ? is_own_on
                               : !has_own_switch || is_own_on ? !on.empty()
                                                              : false;
            if (is_on) {
                reader_.problem(on.empty() ? own : on.front(), table.why);
            }
        }
    }

    /// What the file calls "auto" is filled in by the program that starts DeepSpeed, such as
    /// Hugging Face's Trainer from its own arguments.
    void warn_of_open_settings() {
        for (const std::string& setting : reader_.open_settings()) {
            if (!setting.starts_with("optimizer.params.") && setting != "gradient_clipping" &&
                !is_of_precision(setting) && !is_of_batch(setting) &&
                setting != "zero_optimization.stage3_prefetch_bucket_size") {
                run_.warnings.push_back(
                    fmt::format("{} = auto: another program fills it in; the fragment has what "
                                "DeepSpeed takes without it",
                                setting));
            }
        }
    }

    static bool is_of_precision(std::string_view setting) {
        return setting == "bf16.enabled" || setting == "bfloat16.enabled" ||
               setting == "fp16.enabled";
    }

    static bool is_of_batch(std::string_view setting) {
        return setting == "train_batch_size" || setting == "train_micro_batch_size_per_gpu" ||
               setting == "gradient_accumulation_steps";
    }

    /// batch = samples of a micro-batch x steps of accumulation x replicas: two of the three beside
    /// one of them say the last.
    void read_batch() {
        run_.batch = reader_.whole("train_batch_size", 1);
        const std::optional<int> size = reader_.whole("train_micro_batch_size_per_gpu", 1);
        run_.micro_batches = reader_.whole("gradient_accumulation_steps", 1);
        if (!run_.batch || !size) {
            if (run_.micro_batches && size) {
                const int replicas = replicas_of_all();
                const std::int64_t samples = std::int64_t{*size} * *run_.micro_batches * replicas;
                run_.batch = static_cast<int>(std::min<std::int64_t>(samples, 1 << 30));
            } else {
                run_.has_open_devices = true;
                warn_of_open_batch();
            }
            return;
        }
        const std::int64_t pass = std::int64_t{*size} * run_.micro_batches.value_or(1);
        if (*run_.batch % pass != 0) {
            reader_.infeasible("train_batch_size",
                               fmt::format("{} {} no multiple of the {} of a replica",
                                           counted(*run_.batch, "sample"),
                                           verb_for(*run_.batch, "is", "are"),
                                           pass),
                               "DeepSpeed refuses this, too");
        }
        if (run_.micro_batches) {
            run_.data_parallel = static_cast<int>(*run_.batch / pass);
        } else {
            run_.micro_batches = static_cast<int>(*run_.batch / pass);
            run_.warnings.emplace_back(
                "no gradient_accumulation_steps: the fragment has one replica of the pipeline");
        }
    }

    /// Devices that share layers by AutoTP.
    int tensor_devices() {
        return std::max(1, reader_.whole("tensor_parallel.autotp_size", 0).value_or(1));
    }

    /// Replicas where the file does not say how many there are: by the number of devices, or one.
    int replicas_of_all() {
        if (!all_devices_) {
            run_.has_open_devices = true;
            run_.warnings.emplace_back(
                "no train_batch_size: the fragment has one replica of the pipeline; --devices N "
                "says how many devices there are");
            return 1;
        }
        const std::int64_t of_replica =
            std::int64_t{reader_.whole("pipeline.stages", 1).value_or(1)} *
            reader_.whole("sequence_parallel_size", 1).value_or(1) * tensor_devices();
        if (*all_devices_ % of_replica != 0) {
            reader_.infeasible("pipeline.stages",
                               fmt::format("{} cannot be shared out to the {} of a replica",
                                           counted(*all_devices_, "device"),
                                           of_replica),
                               "compare the stages with the number of devices");
        }
        run_.data_parallel = static_cast<int>(*all_devices_ / of_replica);
        return *run_.data_parallel;
    }

    /// Two of the three settings of the batch are missing, or "auto".
    void warn_of_open_batch() {
        std::vector<std::string_view> open;
        for (const std::string_view setting : {"train_batch_size",
                                               "train_micro_batch_size_per_gpu",
                                               "gradient_accumulation_steps"}) {
            if (reader_.is_auto(setting)) {
                open.push_back(setting);
            }
        }
        run_.warnings.push_back(fmt::format(
            "{}: what the fragment does not say of batch and micro_batches are a scenario's "
            "defaults, 32 and 1: set training.batch and pipeline.micro_batches",
            open.empty()
                ? std::string("of train_batch_size, train_micro_batch_size_per_gpu and "
                              "gradient_accumulation_steps too few are written down")
                : fmt::format("{} = auto, which another program fills in", fmt::join(open, ", "))));
    }

    void read_zero() {
        // Older files switch stage 1 on with true.
        const bool is_on = reader_.answer("zero_optimization").value_or(false);
        zero_stage_ = reader_.whole("zero_optimization.stage", 0).value_or(is_on ? 1 : 0);
        if (reader_.is_auto("zero_optimization.stage")) {
            reader_.problem("zero_optimization.stage", "what replicas share is not in the file");
        }
        constexpr std::array<std::string_view, 4> shards{"", "optimizer", "gradients", "weights"};
        if (zero_stage_ >= static_cast<int>(shards.size())) {
            throw Error(
                ErrorKind::BadInput,
                reader_.place("zero_optimization.stage"),
                fmt::format("zero_optimization.stage = {}, expected 0, 1, 2 or 3", zero_stage_),
                "compare with the documentation of the program that reads the file");
        }
        run_.shard = shards.at(as_index(zero_stage_));
        if (reader_.real("zero_optimization.stage3_prefetch_bucket_size") == 0 &&
            zero_stage_ == 3) {
            run_.prefetch = 0;
        }
        if (zero_stage_ > 0 && !run_.data_parallel) {
            run_.warnings.push_back(fmt::format(
                "the file does not say how many replicas there are, which share by shard = \"{}\": "
                "set pipeline.data_parallel",
                run_.shard));
        }
        expect_plain_shares();
        read_overlap();
        read_sums();
    }

    /// Shares of all replicas, not of groups of them (ZeRO++, MiCS).
    void expect_plain_shares() {
        if (reader_.whole("zero_optimization.zero_hpz_partition_size", 0).value_or(1) > 1) {
            reader_.problem("zero_optimization.zero_hpz_partition_size",
                            "weights are shared once more by groups of replicas");
        }
        read_mics();
    }

    /// MiCS (deepspeed/runtime/zero/mics.py): replicas that follow each other divide all state,
    /// and sum their gradients between groups.
    void read_mics() {
        constexpr std::string_view size_key = "zero_optimization.mics_shard_size";
        const int size = reader_.whole(size_key, -1).value_or(-1);
        if (size < 1) {
            return;
        }
        const bool divides =
            !run_.data_parallel || (*run_.data_parallel % size == 0 && *run_.data_parallel >= size);
        if (zero_stage_ != 3) {
            reader_.problem(size_key, "groups of replicas divide weights without ZeRO 3");
        } else if (size == 1) {
            reader_.problem(size_key, "a group has one replica, and divides nothing");
        } else if (!divides) {
            reader_.problem(
                size_key,
                fmt::format("no divisor of the {}", counted(*run_.data_parallel, "replica")));
        } else {
            run_.shard_group = size;
            if (run_.micro_batches != 1) {
                run_.warnings.emplace_back(
                    "zero_optimization.mics_shard_size: MiCS sums gradients between groups once a "
                    "step, the prediction with every micro-batch; a step is at most as long");
            }
        }
        if (reader_.answer("zero_optimization.mics_hierarchical_params_gather").value_or(false)) {
            reader_.problem("zero_optimization.mics_hierarchical_params_gather",
                            "weights are gathered in two steps");
        }
    }

    /// With sums by all-reduce each replica gets all gradients.
    void read_sums() {
        if (!reader_.answer("zero_optimization.reduce_scatter").value_or(true) && zero_stage_ > 0) {
            run_.warnings.emplace_back(
                "zero_optimization.reduce_scatter is off: the prediction sums gradients by "
                "reduce-scatter; all-reduce sends twice as many bytes");
        }
    }

    /// Sums of gradients beside the backward: in stages 2 and 3 the prediction has them so.
    void read_overlap() {
        const bool overlaps =
            reader_.answer("zero_optimization.overlap_comm").value_or(zero_stage_ == 3);
        if (zero_stage_ < 2 && overlaps) {
            run_.warnings.emplace_back(
                "zero_optimization.overlap_comm: the prediction waits for the sum of the "
                "gradients; "
                "overlapped, a step is at most as long");
        } else if (zero_stage_ >= 2 && !overlaps) {
            run_.warnings.emplace_back(
                "zero_optimization.overlap_comm is off: the prediction sums gradients beside the "
                "backward; one after the other, a step is at least as long");
        }
    }

    void read_numbers() {
        const std::optional<bool> newer = reader_.answer("bf16.enabled");
        const std::optional<bool> older = reader_.answer("bfloat16.enabled");
        // DeepSpeed looks at the older name only where there is no newer one.
        const bool has_newer = newer || reader_.is_auto("bf16.enabled");
        const bool bf16 = has_newer ? newer.value_or(false) : older.value_or(false);
        const bool fp16 = reader_.answer("fp16.enabled").value_or(false);
        if (bf16 && fp16) {
            reader_.infeasible(
                "fp16.enabled",
                fmt::format("fp16.enabled and {} are both true, expected one of them at most",
                            newer ? "bf16.enabled" : "bfloat16.enabled"),
                "DeepSpeed refuses both at once, too: set one of them to false");
        }
        read_precision(bf16, fp16, has_newer);
        const std::optional<double> norm = reader_.real("gradient_clipping");
        if (reader_.is_auto("gradient_clipping")) {
            run_.warnings.emplace_back(
                "gradient_clipping = auto: another program fills it in (Hugging Face's Trainer by "
                "max_grad_norm, 1 by default); the fragment has no clip_norm: set "
                "training.clip_norm");
        } else {
            run_.clip_norm = norm.value_or(0);
        }
        const std::string optimizer = lower_case(reader_.text("optimizer.type").value_or("AdamW"));
        run_.optimizer = optimizer == "sgd" ? "momentum" : optimizer == "adam" ? "adam" : "adamw";
        if (optimizer != "adam" && optimizer != "adamw" && optimizer != "sgd") {
            reader_.problem("optimizer.type", "keeps another state than Adam or SGD");
        }
        for (const std::string_view number :
             words_in("optimizer.params.lr optimizer.params.betas optimizer.params.eps "
                      "optimizer.params.weight_decay optimizer.params.momentum "
                      "optimizer.params.adam_w_mode optimizer.params.torch_adam "
                      "optimizer.params.fused optimizer.params.bias_correction")) {
            reader_.texts(number);  // they change nothing, and need no word
        }
    }

    /// The precision stays open where a switch that decides it is "auto".
    void read_precision(bool bf16, bool fp16, bool is_newer_given) {
        const bool has_older = !is_newer_given && !reader_.is_auto("bf16.enabled");
        const bool is_bf16_open =
            reader_.is_auto("bf16.enabled") || (has_older && reader_.is_auto("bfloat16.enabled"));
        is_open_ = !bf16 && !fp16 && (is_bf16_open || reader_.is_auto("fp16.enabled"));
        if (is_open_) {
            run_.warnings.push_back(fmt::format(
                "{} = auto: another program fills it in (Hugging Face's Trainer by --bf16 or "
                "--fp16); the fragment has no precision: set training.precision",
                is_bf16_open ? "bf16.enabled" : "fp16.enabled"));
            return;
        }
        run_.precision = bf16 || fp16 ? "bf16" : "fp32";
        if (fp16) {
            run_.warnings.emplace_back("fp16: the fragment says bf16, whose sizes are the same");
        }
    }

    /// data_types.grad_accum_dtype; where it is not there, what DeepSpeed's engine takes
    /// (deepspeed/runtime/engine.py, get_data_types).
    void read_gradients() {
        const std::optional<std::string> type = reader_.word(
            "data_types.grad_accum_dtype", "fp32 float32 fp16 float16 bf16 bfloat16 auto");
        if (run_.precision != "bf16") {
            return;
        }
        if (type && *type != "auto") {
            run_.gradients = type->ends_with("32") ? "fp32" : "same";
            return;
        }
        const bool is_fp16 = reader_.answer("fp16.enabled").value_or(false);
        run_.gradients = is_fp16 || zero_stage_ > 0 ? "same" : "fp32";
        if (run_.gradients == "fp32") {
            run_.warnings.emplace_back(
                "no data_types.grad_accum_dtype: the fragment says gradients = \"fp32\", as "
                "DeepSpeed sums those of bf16 without ZeRO up to 0.17.5; later versions sum them "
                "in "
                "bf16, gradients = \"same\"");
        }
    }

    void read_pipeline() {
        run_.stages = reader_.whole("pipeline.stages", 1);
        if (zero_stage_ >= 2 && run_.stages.value_or(1) > 1) {
            run_.shard = "optimizer";
            reader_.problem("zero_optimization.stage",
                            "replicas share gradients or weights, which DeepSpeed's pipelines do "
                            "not take");
        }
        if (!run_.stages && (zero_stage_ >= 2 || tensor_devices() > 1)) {
            run_.stages = 1;  // DeepSpeed has no pipelines then
        }
        if (!run_.stages) {
            run_.warnings.emplace_back(
                "the file does not say how many stages there are: PipelineModule(num_stages=...) "
                "does; set pipeline.stages");
        }
        const std::string partition = reader_.text("pipeline.partition").value_or("parameters");
        if (partition != "uniform" && run_.stages != 1) {
            run_.warnings.push_back(
                fmt::format("DeepSpeed cuts the model by '{}'; the fragment leaves the partition "
                            "to the balancer",
                            partition));
        }
    }

    /// AutoTP of training (deepspeed/module_inject/auto_tp.py): columns, then rows, of the products
    /// of each block, with sums between devices and no division of the sequence.
    void read_tensor_parallel() {
        constexpr std::string_view key = "tensor_parallel.autotp_size";
        const int devices = tensor_devices();
        if (reader_.is_auto(key)) {
            reader_.problem(key, "how many devices share layers is not in the file");
        } else if (devices > 1 && zero_stage_ == 3) {
            reader_.problem(key,
                            "devices share layers beside ZeRO 3, which DeepSpeed refuses, too");
        } else if (devices > 1 && run_.stages.value_or(1) > 1) {
            reader_.problem(key,
                            "devices share layers in a pipeline, which DeepSpeed does not have");
        } else if (devices > 1) {
            run_.tensor_parallel = devices;
            run_.warnings.emplace_back(
                "tensor_parallel.autotp_size: the prediction divides embedding and head, too, as "
                "Megatron does; DeepSpeed divides the products of blocks");
        }
    }

    /// Ulysses, by which each device has whole samples of some heads, and AutoEP, by which replicas
    /// share whole experts (deepspeed/module_inject/auto_ep.py). A layer that the program makes
    /// itself says its `ep_size` there.
    void read_division() {
        read_tensor_parallel();
        const int experts = reader_.whole("expert_parallel.autoep_size", 1).value_or(1);
        if (reader_.answer("expert_parallel.enabled").value_or(false) && experts > 1) {
            run_.expert_parallel = experts;
            run_.expert_tensor_parallel = 1;
        }
        const int devices = reader_.whole("sequence_parallel_size", 1).value_or(1);
        if (devices > 1) {
            run_.context_parallel = devices;
            run_.context_method = to_string(ContextMethod::AllToAll);
        }
        const std::optional<int> replicas = reader_.whole("data_parallel_size", 1);  // of a mesh
        if (replicas && run_.data_parallel && devices > 1 && *replicas != *run_.data_parallel) {
            reader_.infeasible("data_parallel_size",
                               fmt::format("{}, but the batch is that of {}",
                                           counted(*replicas, "replica"),
                                           *run_.data_parallel),
                               "compare it with train_batch_size");
        }
    }

    void read_recompute() {
        const int interval =
            reader_.whole("pipeline.activation_checkpoint_interval", 0).value_or(0);
        if (interval > 0) {
            run_.recompute = "block";
            run_.recompute_blocks = interval;
            return;
        }
        run_.recompute = "none";
        if (zero_stage_ >= 2) {
            run_.warnings.emplace_back(
                "the file does not say whether blocks are computed again, the program does: where "
                "it calls gradient_checkpointing_enable() or deepspeed.checkpointing, set "
                "recompute = \"block\"");
        }
    }

    SettingReader reader_;
    LeaveOut leave_out_;
    std::optional<int> all_devices_;  ///< of the run; none: not known
    int zero_stage_ = 0;
    bool is_open_ = false;  ///< the precision: "auto"
    TrainingRun run_;
};

}  // namespace

TrainingRun deepspeed_run(const LaunchFile& file, LeaveOut leave_out) {
    return DeepSpeedReader(file, leave_out).read();
}

}  // namespace pipetwin
