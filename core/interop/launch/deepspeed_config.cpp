#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/launch/training_run.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin {

namespace {

/// Reads a file of DeepSpeed; one object for each.
class DeepSpeedReader {
  public:
    DeepSpeedReader(const LaunchFile& file, bool warns) : reader_(file), warns_(warns) {}

    TrainingRun read() {
        run_.schedule = to_string(ScheduleKind::OneFOneB);  // of DeepSpeed's pipeline engine
        read_batch();
        read_zero();
        read_numbers();
        read_gradients();
        read_pipeline();
        read_recompute();
        reader_.finish(
            "scheduler tensorboard wandb csv_monitor comet monitor_config flops_profiler "
            "comms_logger aio checkpoint nebula eigenvalue activation_checkpointing "
            "offload_optimizer offload_param leaf_module",
            "steps_per_print wall_clock_breakdown dump_state prescale_gradients memory_breakdown "
            "gradient_predivide_factor communication_data_type "
            "seq_parallel_communication_data_type "
            "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer disable_allgather "
            "graph_harvesting dataloader_drop_last "
            "fp16.loss_scale fp16.loss_scale_window fp16.initial_scale_power fp16.hysteresis "
            "fp16.min_loss_scale fp16.auto_cast fp16.consecutive_hysteresis "
            "fp16.fp16_master_weights_and_grads bf16.immediate_grad_update "
            "bfloat16.immediate_grad_update "
            "zero_optimization.allgather_partitions zero_optimization.allgather_bucket_size "
            "zero_optimization.reduce_bucket_size zero_optimization.reduce_scatter "
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
            "zero_optimization.stage3_module_granularity_threshold "
            "zero_optimization.stage3_use_all_reduce_for_fetch_params "
            "zero_optimization.stage3_allgather_sequential "
            "zero_optimization.memory_efficient_linear zero_optimization.override_module_apply "
            "zero_optimization.pipeline_loading_checkpoint "
            "zero_optimization.log_trace_cache_warnings zero_optimization.enable_sanity_checks "
            "pipeline.seed_layers pipeline.pipe_partitioned pipeline.grad_partitioned",
            warns_,
            run_);
        return std::move(run_);
    }

  private:
    [[noreturn]] void refuse(std::string_view written, std::string what, std::string hint) const {
        throw Error(
            ErrorKind::Infeasible, reader_.place(written), std::move(what), std::move(hint));
    }

    /// batch = samples of a micro-batch x steps of accumulation x replicas: two of the three beside
    /// one of them say the last.
    void read_batch() {
        run_.batch = reader_.whole("train_batch_size", 1);
        const std::optional<int> size = reader_.whole("train_micro_batch_size_per_gpu", 1);
        run_.micro_batches = reader_.whole("gradient_accumulation_steps", 1);
        if (!run_.batch || !size) {
            if (run_.micro_batches && size) {
                run_.warnings.emplace_back(
                    "no train_batch_size: the fragment has one replica of the pipeline");
                const std::int64_t samples = std::int64_t{*size} * *run_.micro_batches;
                run_.batch = static_cast<int>(std::min<std::int64_t>(samples, 1 << 30));
            } else {
                run_.warnings.emplace_back(
                    "of train_batch_size, train_micro_batch_size_per_gpu and "
                    "gradient_accumulation_steps too few are written down: what the fragment does "
                    "not say of batch and micro_batches are a scenario's defaults, 32 and 1");
            }
            return;
        }
        const std::int64_t pass = std::int64_t{*size} * run_.micro_batches.value_or(1);
        if (*run_.batch % pass != 0) {
            refuse("train_batch_size",
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

    void read_zero() {
        // Older files switch stage 1 on with true.
        const bool is_on = reader_.answer("zero_optimization").value_or(false);
        zero_stage_ = reader_.whole("zero_optimization.stage", 0).value_or(is_on ? 1 : 0);
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
    }

    /// Shares of all replicas, and messages with whole numbers (ZeRO++, MiCS); state on the device.
    void expect_plain_shares() {
        if (reader_.whole("zero_optimization.zero_hpz_partition_size", 0).value_or(1) > 1) {
            reader_.problem("zero_optimization.zero_hpz_partition_size",
                            "weights are shared once more by groups of replicas");
        }
        if (reader_.whole("zero_optimization.mics_shard_size", -1).value_or(-1) > 0) {
            reader_.problem("zero_optimization.mics_shard_size",
                            "weights are shared in groups of replicas");
        }
        for (const std::string_view narrow :
             {"zero_optimization.zero_quantized_weights",
              "zero_optimization.zero_quantized_nontrainable_weights",
              "zero_optimization.zero_quantized_gradients"}) {
            if (reader_.answer(narrow).value_or(false)) {
                reader_.problem(narrow, "messages have fewer bits");
            }
        }
        for (const std::string_view device : {"zero_optimization.offload_optimizer.device",
                                              "zero_optimization.offload_param.device"}) {
            if (reader_.text(device).value_or("none") != "none") {
                reader_.problem(device, "state is in host memory");
            }
        }
        if (reader_.answer("zero_optimization.cpu_offload").value_or(false)) {
            reader_.problem("zero_optimization.cpu_offload", "state is in host memory");
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
        const bool bf16 = newer ? *newer : older.value_or(false);  // as DeepSpeed chooses
        const bool fp16 = reader_.answer("fp16.enabled").value_or(false);
        if (bf16 && fp16) {
            refuse("fp16.enabled",
                   fmt::format("fp16.enabled and {} are both true, expected one of them at most",
                               newer ? "bf16.enabled" : "bfloat16.enabled"),
                   "DeepSpeed refuses both at once, too: set one of them to false");
        }
        run_.precision = bf16 || fp16 ? "bf16" : "fp32";
        if (fp16) {
            run_.warnings.emplace_back("fp16: the fragment says bf16, whose sizes are the same");
        }
        run_.clip_norm = reader_.real("gradient_clipping").value_or(0);
        std::string optimizer = reader_.text("optimizer.type").value_or("AdamW");
        std::ranges::transform(optimizer, optimizer.begin(), [](char c) {
            return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        });
        run_.optimizer = optimizer == "sgd" ? "momentum" : optimizer == "adam" ? "adam" : "adamw";
        if (optimizer != "adam" && optimizer != "adamw" && optimizer != "sgd") {
            reader_.problem("optimizer.type", "keeps another state than Adam or SGD");
        }
        for (const std::string_view number : {"optimizer.params.lr",
                                              "optimizer.params.betas",
                                              "optimizer.params.eps",
                                              "optimizer.params.weight_decay",
                                              "optimizer.params.momentum",
                                              "optimizer.params.adam_w_mode",
                                              "optimizer.params.torch_adam",
                                              "optimizer.params.bias_correction"}) {
            reader_.texts(number);
        }
    }

    /// data_types.grad_accum_dtype; where it is not there, what DeepSpeed's engine takes
    /// (deepspeed/runtime/engine.py, get_data_types).
    void read_gradients() {
        const std::optional<std::string> type =
            reader_.word("data_types.grad_accum_dtype",
                         {"fp32", "float32", "fp16", "float16", "bf16", "bfloat16", "auto"});
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
        for (const std::string_view key : {"activation_checkpointing.partition_activations",
                                           "activation_checkpointing.cpu_checkpointing"}) {
            if (reader_.answer(key).value_or(false)) {
                reader_.problem(key, "what is kept is shared out, or goes to host memory");
            }
        }
        run_.stages = reader_.whole("pipeline.stages", 1);
        if (zero_stage_ >= 2 && run_.stages.value_or(1) > 1) {
            run_.shard = "optimizer";
            reader_.problem("zero_optimization.stage",
                            "replicas share gradients or weights, which DeepSpeed's pipelines do "
                            "not take");
        }
        if (!run_.stages && zero_stage_ >= 2) {
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
    bool warns_;
    int zero_stage_ = 0;
    TrainingRun run_;
};

}  // namespace

TrainingRun deepspeed_run(const LaunchFile& file, bool warns) {
    return DeepSpeedReader(file, warns).read();
}

}  // namespace pipetwin
