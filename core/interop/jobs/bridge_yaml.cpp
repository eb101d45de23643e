// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/word_list.h"
#include "core/costs/devices/number_type.h"
#include "core/interop/jobs/job_text.h"
#include "core/interop/jobs/lacks.h"
#include "core/interop/jobs/megatron_job.h"
#include "core/interop/jobs/megatron_words.h"

namespace pipetwin {

namespace {

/// Writes the tables of a ConfigContainer (src/megatron/bridge/training/config.py) that a plan
/// changes of a recipe; one object for each file.
class BridgeTables {
  public:
    BridgeTables(const PlacedPlan& plan, const MegatronJob& job)
        : plan_(plan), job_(job), flags_(job.plan.flags) {
        for (const std::string& flag : flags_of_line(job.plan.line())) {
            const std::size_t blank = flag.find(' ');
            values_[flag.substr(2, blank - 2)] =
                blank == std::string::npos ? "" : flag.substr(blank + 1);
        }
    }

    std::string write() {
        expect_words();
        write_heading();
        write_model();
        write_memory();
        write_training();
        write_replicas();
        return std::move(text_);
    }

  private:
    template <class... Values>
    void line(fmt::format_string<Values...> form, Values&&... values) {
        text_ += fmt::format(form, std::forward<Values>(values)...) + '\n';
    }

    /// A key with the value of a flag, where the flag is given.
    void key(std::string_view name, const std::string& flag) {
        if (const auto found = values_.find(flag); found != values_.end()) {
            line("  {}: {}", name, found->second.empty() ? "true" : found->second);
        }
    }

    /// A key with a list, where a flag has one.
    void list(std::string_view name, const std::string& flag) {
        if (const auto found = values_.find(flag); found != values_.end()) {
            std::string words = found->second;
            std::ranges::replace(words, ',', ' ');
            line("  {}: [{}]", name, fmt::join(words_in(words), ", "));
        }
    }

    /// What its flags say and a file of YAML cannot, because types are no words there.
    void expect_words() const {
        const auto& training = plan_.scenario.training;
        if (flags_.state_types) {
            refuse_lack({.key = "training.optimizer_state_bytes",
                         .subject = fmt::format("training.optimizer_state_bytes = {}",
                                                training.optimizer_state_bytes.value_or(0)),
                         .why = "types of the optimizer's state are Python in Megatron-Bridge, and "
                                "an override cannot name them",
                         .hint = "set it to 12"});
        }
        const bool sums_narrow = training.gradients == GradientType::Same;
        if (has_narrow_products(plan_.precision) && sums_narrow) {
            refuse_lack(
                {.key = "training.gradients",
                 .subject = "training.gradients = \"same\"",
                 .why = fmt::format("Megatron-Bridge's recipes for {} sum gradients in fp32",
                                    plan_.precision),
                 .hint = "set it to \"fp32\""});
        }
        if (flags_.fp16 && !sums_narrow) {
            refuse_lack({.key = "training.gradients",
                         .subject = "training.gradients = \"fp32\"",
                         .why = "Megatron-Bridge's recipe for fp16 sums gradients in fp16",
                         .hint = "set it to \"same\""});
        }
    }

    void write_heading() {
        line("# Megatron-Bridge, overrides of a recipe");
        line("# {}", plan_in_words(plan_));
        line("# FILL IN a recipe whose model has {}, and give it this file:",
             model_in_words(plan_, sizes_of_model(plan_)));
        line("# torchrun --nnodes {} --nproc-per-node {} ... RECIPE.py --config-file THIS_FILE",
             job_.nodes.nodes,
             job_.nodes.per_node);
        line("# For scripts/training/run_recipe.py write each key as model.num_layers=...");
        text_ += comment_lines(job_.remarks);
    }

    void write_model() {
        line("\nmodel:");
        line("  num_layers: {}  # of the recipe's model", plan_.blocks());
        line("  seq_length: {}", plan_.sequence);
        key("tensor_model_parallel_size", "tensor-model-parallel-size");
        line("  sequence_parallel: {}", flags_.sequence_parallel);
        key("tp_comm_overlap", "tp-comm-overlap");
        key("pipeline_model_parallel_size", "pipeline-model-parallel-size");
        const int chunks = plan_.schedule.stage_count() / plan_.schedule.rank_count();
        line("  virtual_pipeline_model_parallel_size: {}",
             chunks > 1 && !flags_.layout ? fmt::to_string(chunks) : "null");
        const auto or_null = [](const std::optional<int>& layers) {
            return layers ? fmt::to_string(*layers) : std::string("null");
        };
        line("  num_layers_in_first_pipeline_stage: {}", or_null(flags_.first_layers));
        line("  num_layers_in_last_pipeline_stage: {}", or_null(flags_.last_layers));
        line("  pipeline_model_parallel_layout: {}",
             flags_.layout ? fmt::format("\"{}\"", print_megatron_layout(*flags_.layout)) : "null");
        key("microbatch_group_size_per_vp_stage",
            "microbatch-group-size-per-virtual-pipeline-stage");
        line("  context_parallel_size: {}", flags_.context_size.value_or(1));
        key("cp_comm_type", "cp-comm-type");
        list("hierarchical_context_parallel_sizes", "hierarchical-context-parallel-sizes");
        key("expert_model_parallel_size", "expert-model-parallel-size");
        key("expert_tensor_parallel_size", "expert-tensor-parallel-size");
        key("moe_token_dispatcher_type", "moe-token-dispatcher-type");
        key("moe_flex_dispatcher_backend", "moe-flex-dispatcher-backend");
        key("moe_expert_capacity_factor", "moe-expert-capacity-factor");
        key("moe_pad_expert_input_to_capacity", "moe-pad-expert-input-to-capacity");
        key("moe_router_padding_for_quantization", "moe-router-padding-for-quantization");
    }

    void write_memory() {
        const bool recomputes = values_.contains("recompute-granularity");
        line("  recompute_granularity: {}",
             recomputes ? values_.at("recompute-granularity") : "null");
        line("  recompute_method: {}",
             !flags_.recompute_full   ? "null"
             : flags_.recompute_first ? "block"
                                      : "uniform");
        line("  recompute_num_layers: {}",
             flags_.recompute_full ? fmt::to_string(flags_.recompute_layers.value_or(1)) : "null");
        list("recompute_modules", "recompute-modules");
        key("fine_grained_activation_offloading", "fine-grained-activation-offloading");
        list("offload_modules", "offload-modules");
        key("activation_offload_fraction", "activation-offload-fraction");
        if (flags_.offloaded_layers.value_or(0) > 0) {
            line("  cpu_offloading: true");
            key("cpu_offloading_num_layers", "cpu-offloading-num-layers");
        }
        if (flags_.separate_accumulation) {
            line("  gradient_accumulation_fusion: false");
        }
    }

    void write_training() {
        const auto& training = plan_.scenario.training;
        line("\ntrain:\n  micro_batch_size: {}\n  global_batch_size: {}\n  train_iters: {}",
             *flags_.micro_batch_size,
             *flags_.global_batch_size,
             training.steps);
        line("\ndataset:\n  seq_length: {}", plan_.sequence);
        const AdamNumbers adam = adam_numbers(plan_);
        line("\noptimizer:\n  optimizer: {}\n  lr: {}\n  min_lr: {}\n  weight_decay: {}",
             flags_.optimizer.value_or("adam"),
             real_text(training.learning_rate),
             real_text(training.final_learning_rate),
             real_text(adam.weight_decay));
        if (traits(training.optimizer).has_betas) {
            line("  adam_beta1: {}\n  adam_beta2: {}\n  adam_eps: {}",
                 real_text(adam.beta1),
                 real_text(adam.beta2),
                 real_text(adam.epsilon));
        } else if (training.momentum) {
            line("  sgd_momentum: {}", real_text(*training.momentum));
        }
        key("clip_grad", "clip-grad");
        line("  use_distributed_optimizer: {}", flags_.shard_optimizer);
        line("\nscheduler:\n  lr_decay_style: {}\n  lr_warmup_iters: {}",
             to_string(training.learning_rate_schedule),
             training.warmup_steps);
        line("\nrng:\n  seed: {}", training.seed);
        write_precision();
    }

    void write_precision() {
        if (!flags_.bf16 && !flags_.fp16) {
            line("\nmixed_precision: null");
        } else if (flags_.gradients_narrow) {
            line("\n# For a recipe whose mixed_precision is no name, as those of perf_recipes.");
            line("mixed_precision:\n  bf16: true\n  grad_reduce_in_fp32: false");
        } else {
            line("\nmixed_precision: {}",
                 flags_.fp16                      ? "fp16_mixed"
                 : plan_.precision == "fp8"       ? "bf16_with_fp8_delayed_scaling_mixed"
                 : plan_.precision == "fp8-block" ? "bf16_with_fp8_subchannel_scaling_mixed"
                 : plan_.precision == "mxfp8"     ? "bf16_with_mxfp8_mixed"
                 : plan_.precision == "nvfp4"     ? "bf16_with_nvfp4_mixed"
                                                  : "bf16_mixed");
        }
    }

    void write_replicas() {
        line(
            "\nddp:\n  use_distributed_optimizer: {}\n  overlap_grad_reduce: {}\n"
            "  overlap_param_gather: {}",
            flags_.shard_optimizer,
            flags_.overlap_reduction,
            flags_.overlap_gather);
        key("num_distributed_optimizer_instances", "num-distributed-optimizer-instances");
        if (flags_.megatron_fsdp) {
            line("  use_megatron_fsdp: true");
            key("data_parallel_sharding_strategy", "data-parallel-sharding-strategy");
        }
        line("\ndist:\n  use_tp_pp_dp_mapping: {}", flags_.pipeline_before_data);
        if (flags_.megatron_fsdp) {
            line("  use_megatron_fsdp: true");
            line("\ncheckpoint:\n  ckpt_format: fsdp_dtensor");
        }
    }

    const PlacedPlan& plan_;
    const MegatronJob& job_;
    const MegatronFlags& flags_;
    std::map<std::string, std::string> values_;  ///< of flags, by their names
    std::string text_;
};

}  // namespace

std::string print_bridge_overrides(const PlacedPlan& plan) {
    const MegatronJob job = megatron_job(plan);
    return BridgeTables(plan, job).write();
}

}  // namespace pipetwin
