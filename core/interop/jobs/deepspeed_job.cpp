// SPDX-License-Identifier: Apache-2.0
#include "core/interop/jobs/deepspeed_job.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/number_text.h"
#include "core/costs/devices/number_type.h"
#include "core/interop/jobs/job_text.h"
#include "core/interop/jobs/lacks.h"
#include "core/scenario/division.h"
#include "core/scenario/shard_group.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"

namespace pipetwin {

namespace {

/// Writes DeepSpeed's file; one object for each.
class DeepSpeedFile {
  public:
    explicit DeepSpeedFile(const PlacedPlan& plan)
        : plan_(plan), pipeline_(plan.scenario.pipeline), training_(plan.scenario.training) {}

    DeepSpeedJob write() {
        expect_no_lack(lacks_of_every_system(plan_, "DeepSpeed"));
        expect_pipeline();
        expect_division();
        expect_shares();
        expect_memory();
        expect_training();
        write_batch();
        write_optimizer();
        write_numbers();
        write_shares();
        write_pipeline();
        say_what_code_has();
        job_.json = fmt::format("{{\n{}\n}}\n", fmt::join(members_, ",\n"));
        return std::move(job_);
    }

  private:
    bool in_pipeline() const { return pipeline_.stages > 1; }

    static void refuse_key(std::string key,
                           std::string_view value,
                           std::string why,
                           std::string hint) {
        std::string subject = value.empty() ? key : fmt::format("{} = {}", key, value);
        refuse_lack({.key = std::move(key),
                     .subject = std::move(subject),
                     .why = std::move(why),
                     .hint = std::move(hint)});
    }

    void expect_pipeline() const {
        const std::string_view plain = schedule_traits(ScheduleKind::OneFOneB).name;
        const bool matters = in_pipeline() || pipeline_.micro_batches > 1 || pipeline_.chunks > 1;
        if (matters && (pipeline_.schedule != plain || pipeline_.chunks > 1)) {
            refuse_key(
                "pipeline.schedule",
                fmt::format("\"{}\"", pipeline_.schedule),
                fmt::format("DeepSpeed's pipeline engine runs {}, with one stage on a rank", plain),
                fmt::format("set pipeline.schedule to \"{}\" and pipeline.chunks to 1, and "
                            "plan again",
                            plain));
        }
        expect_equal_stages();
        if (plan_.prediction_layers > 0) {
            refuse_key("model",
                       "",
                       "DeepSpeed's pipelines have one loss, and layers that predict further "
                       "tokens have one each",
                       "set num_nextn_predict_layers (or mtp_num_hidden_layers) to 0 in the "
                       "config.json, and plan again without them");
        }
    }

    /// PipelineModule divides layers by a rule; of those, "type:" counts the blocks.
    void expect_equal_stages() const {
        const std::vector<int> blocks = stage_blocks(plan_, "DeepSpeed");
        const auto stages = static_cast<int>(blocks.size());
        if (std::ranges::all_of(blocks, [&](int of_stage) { return of_stage == blocks.front(); })) {
            return;
        }
        const bool divides = plan_.blocks() % stages == 0;
        refuse_key(
            "pipeline.partition",
            fmt::format("[{}]", fmt::join(blocks, ", ")),
            "DeepSpeed's PipelineModule cuts a model into stages by a rule of its own, "
            "which gives each as many blocks",
            divides ? fmt::format(
                          "set it to [{}]",
                          fmt::join(std::vector<int>(blocks.size(), plan_.blocks() / stages), ", "))
                    : fmt::format("set pipeline.stages to {}, a divisor of the {}, and plan again",
                                  divisor_below(stages),
                                  counted(plan_.blocks(), "block")));
    }

    /// The largest divisor of the blocks that is at most `stages`.
    int divisor_below(int stages) const {
        while (plan_.blocks() % stages != 0) {
            --stages;
        }
        return stages;
    }

    void expect_division() const {
        if (pipeline_.tensor_parallel > 1) {
            refuse_key("pipeline.tensor_parallel",
                       fmt::to_string(pipeline_.tensor_parallel),
                       "DeepSpeed leaves it to the model's own code to divide layers",
                       "set it to 1");
        }
        if (pipeline_.context_parallel > 1 && in_pipeline()) {
            refuse_key("pipeline.context_parallel",
                       fmt::to_string(pipeline_.context_parallel),
                       "DeepSpeed's pipelines divide no samples",
                       "set it to 1");
        }
        if (pipeline_.context_parallel > 1 && pipeline_.context_method != ContextMethod::AllToAll) {
            refuse_key("pipeline.context_method",
                       fmt::format("\"{}\"", to_string(pipeline_.context_method)),
                       "DeepSpeed divides heads (Ulysses)",
                       "set it to \"all-to-all\"");
        }
        if (pipeline_.expert_parallel > 1 && in_pipeline()) {
            refuse_key("pipeline.expert_parallel",
                       fmt::to_string(pipeline_.expert_parallel),
                       "DeepSpeed's AutoEP divides experts without a pipeline",
                       "set it to 1");
        }
        if (pipeline_.expert_parallel > 1 && pipeline_.expert_dispatch != ExpertDispatch::Nccl) {
            refuse_key("pipeline.expert_dispatch",
                       fmt::format("\"{}\"", to_string(pipeline_.expert_dispatch)),
                       "DeepSpeed sends rows by all-to-all",
                       "set it to \"nccl\"");
        }
        if (axis_order(plan_.scenario) != pipeline_last && pipeline_.data_parallel > 1 &&
            in_pipeline()) {
            refuse_key("pipeline.order",
                       fmt::format("\"{}\"", to_string(axis_order(plan_.scenario))),
                       "DeepSpeed numbers all replicas of a stage before the next stage",
                       fmt::format("set it to \"{}\"", to_string(pipeline_last)));
        }
    }

    void expect_shares() const {
        const bool shares = pipeline_.data_parallel > 1;
        if (shares && in_pipeline() && pipeline_.shard > Shard::Optimizer) {
            refuse_key("pipeline.shard",
                       fmt::format("\"{}\"", to_string(pipeline_.shard)),
                       "DeepSpeed's pipelines refuse ZeRO 2 and 3",
                       "set it to \"optimizer\"");
        }
        const int group = shares && pipeline_.shard != Shard::None ? group_size(plan_.scenario)
                                                                   : pipeline_.data_parallel;
        if (group < pipeline_.data_parallel && pipeline_.shard != Shard::Weights) {
            refuse_key("pipeline.shard_group",
                       fmt::to_string(group),
                       "DeepSpeed has groups of replicas where they divide weights (MiCS)",
                       fmt::format("set it to {}", pipeline_.data_parallel));
        }
        if (pipeline_.shard == Shard::Weights && pipeline_.prefetch > 1) {
            refuse_key("pipeline.prefetch",
                       fmt::to_string(pipeline_.prefetch),
                       "DeepSpeed gathers ahead by stage3_prefetch_bucket_size, a number of "
                       "elements",
                       "set it to 1");
        }
        if (pipeline_.overlap_reduction) {
            refuse_key("pipeline.overlap_reduction",
                       "true",
                       "DeepSpeed's pipelines sum gradients behind the last backward; with ZeRO 2 "
                       "and 3 they are always summed beside it",
                       "set it to false");
        }
        if (pipeline_.overlap_gather.value_or(false)) {
            refuse_key("pipeline.overlap_gather",
                       "true",
                       "DeepSpeed gathers updated weights before the next step",
                       "set it to \"auto\"");
        }
    }

    void expect_memory() const {
        if (pipeline_.layer_recompute == LayerRecompute::Selective) {
            refuse_key("pipeline.recompute",
                       "\"selective\"",
                       "DeepSpeed computes whole blocks again",
                       "set it to \"block\"");
        }
        if (pipeline_.recompute != RecomputeRules(Recompute::None)) {
            refuse_key("pipeline.recompute",
                       fmt::format("\"{}\"", to_string(pipeline_.recompute)),
                       "DeepSpeed keeps the input of every group of blocks, like \"block\"",
                       "set it to \"block\"");
        }
        if (pipeline_.recompute_only > 0) {
            refuse_key("pipeline.recompute_only",
                       fmt::to_string(pipeline_.recompute_only),
                       "DeepSpeed computes all blocks again",
                       "set it to 0");
        }
        if (!pipeline_.recompute_modules.empty()) {
            refuse_key("pipeline.recompute_modules",
                       "",
                       "DeepSpeed computes whole blocks again, but no modules",
                       "set pipeline.recompute to \"block\" instead");
        }
        if (pipeline_.offload_blocks.value_or(0) > 0) {
            refuse_key("pipeline.offload_blocks",
                       fmt::to_string(pipeline_.offload_blocks.value_or(0)),
                       "DeepSpeed keeps the activations of blocks on the device",
                       "set it to 0");
        }
        if (!pipeline_.offload_modules.empty()) {
            refuse_key("pipeline.offload_modules",
                       "",
                       "DeepSpeed keeps the inputs of modules on the device",
                       "set it to []");
        }
        if (pipeline_.recompute_early_stop && pipeline_.layer_recompute == LayerRecompute::Block) {
            refuse_key("pipeline.recompute_early_stop",
                       "true",
                       "DeepSpeed recomputes a block to its end",
                       "set it to false");
        }
    }

    void expect_training() const {
        const OptimizerKind kind = training_.optimizer;
        if (kind != OptimizerKind::AdamW && kind != OptimizerKind::Adam &&
            kind != OptimizerKind::Momentum) {
            refuse_key("training.optimizer",
                       fmt::format("\"{}\"", to_string(kind)),
                       "DeepSpeed has Adam, AdamW, and SGD with momentum here",
                       "set it to \"adamw\"");
        }
        if (training_.weight_decay_of == WeightDecayOf::Weights) {
            refuse_key("training.weight_decay_of",
                       "\"weights\"",
                       "DeepSpeed's optimizer makes every parameter smaller, and groups are code",
                       "set it to \"all\"");
        }
        if (training_.accumulation == Accumulation::Separate) {
            refuse_key("training.accumulation",
                       "\"separate\"",
                       "DeepSpeed has no setting for what adds up gradients",
                       "set it to \"fused\"");
        }
        if (training_.expert_capacity > 0 || training_.expert_padding > 1) {
            refuse_key(training_.expert_capacity > 0 ? "training.expert_capacity"
                                                     : "training.expert_padding",
                       "",
                       "DeepSpeed's file has no word for rows of experts",
                       training_.expert_capacity > 0 ? "set it to 0" : "set it to 1");
        }
        constexpr int adam_in_fp32 = 12;
        if (training_.precision == Precision::Bf16 &&
            training_.optimizer_state_bytes.value_or(adam_in_fp32) != adam_in_fp32) {
            refuse_key("training.optimizer_state_bytes",
                       fmt::to_string(*training_.optimizer_state_bytes),
                       "DeepSpeed keeps state and copies of weights in fp32",
                       "set it to 12");
        }
        if (has_narrow_products(plan_.precision)) {
            refuse_key("training.precision",
                       "",
                       fmt::format("costs in {}: DeepSpeed has no products in fewer than 16 bits",
                                   plan_.precision),
                       "estimate the costs with --precision bf16");
        }
        if (is_fp16() && training_.gradients != GradientType::Same) {
            refuse_key("training.gradients",
                       "\"fp32\"",
                       "DeepSpeed adds up gradients of fp16 in fp16",
                       "set it to \"same\"");
        }
    }

    bool is_fp16() const { return plan_.precision == "fp16"; }

    void write_batch() {
        const int samples = samples_of_micro_batch(plan_, "DeepSpeed");
        add("\"train_batch_size\": {}", training_.batch);
        add("\"train_micro_batch_size_per_gpu\": {}", samples);
        add("\"gradient_accumulation_steps\": {}", pipeline_.micro_batches);
    }

    void write_optimizer() {
        const AdamNumbers adam = adam_numbers(plan_);
        const bool is_sgd = training_.optimizer == OptimizerKind::Momentum;
        const std::string rate = real_text(training_.learning_rate);
        constexpr double usual_momentum = 0.9;
        add("\"optimizer\": {{\n    \"type\": \"{}\",\n    \"params\": {{\n      \"lr\": {},\n{}"
            "      \"weight_decay\": {}\n    }}\n  }}",
            is_sgd                                       ? "SGD"
            : training_.optimizer == OptimizerKind::Adam ? "Adam"
                                                         : "AdamW",
            rate,
            is_sgd ? fmt::format("      \"momentum\": {},\n",
                                 real_text(training_.momentum.value_or(usual_momentum)))
                   : fmt::format("      \"betas\": [{}, {}],\n      \"eps\": {},\n",
                                 real_text(adam.beta1),
                                 real_text(adam.beta2),
                                 real_text(adam.epsilon)),
            real_text(adam.weight_decay));
        if (training_.warmup_steps > 0 ||
            training_.learning_rate_schedule != RateSchedule::Constant) {
            write_rates();
        }
        add("\"gradient_clipping\": {}", real_text(training_.clip_norm));
    }

    /// DeepSpeed's schedulers count at least one step of warm-up; the linear one ends at 0.
    void write_rates() {
        const RateSchedule kind = training_.learning_rate_schedule;
        if (kind == RateSchedule::Linear && training_.final_learning_rate > 0) {
            refuse_key("training.final_learning_rate",
                       real_text(training_.final_learning_rate),
                       "DeepSpeed's linear schedule ends at 0",
                       "set it to 0");
        }
        const int warmup = std::max(1, training_.warmup_steps);
        const bool is_cosine = kind == RateSchedule::Cosine;
        std::vector<std::string> numbers{fmt::format("\"warmup_num_steps\": {}", warmup),
                                         "\"warmup_type\": \"linear\""};
        if (kind != RateSchedule::Constant) {
            numbers.push_back(fmt::format("\"total_num_steps\": {}", training_.steps));
        }
        if (is_cosine) {
            numbers.push_back(
                fmt::format("\"cos_min_ratio\": {}",
                            real_text(training_.final_learning_rate / training_.learning_rate)));
        } else {
            numbers.push_back(
                fmt::format("\"warmup_max_lr\": {}", real_text(training_.learning_rate)));
        }
        add("\"scheduler\": {{\n    \"type\": \"{}\",\n    \"params\": {{\n      {}\n    }}\n  }}",
            is_cosine                        ? "WarmupCosineLR"
            : kind == RateSchedule::Constant ? "WarmupLR"
                                             : "WarmupDecayLR",
            fmt::join(numbers, ",\n      "));
    }

    void write_numbers() {
        if (training_.precision != Precision::Bf16) {
            return;
        }
        add("\"{}\": {{\n    \"enabled\": true\n  }}", is_fp16() ? "fp16" : "bf16");
        const bool is_narrow = training_.gradients == GradientType::Same;
        add("\"data_types\": {{\n    \"grad_accum_dtype\": \"{}\"\n  }}",
            !is_narrow  ? "fp32"
            : is_fp16() ? "fp16"
                        : "bf16");
    }

    void write_shares() {
        const bool shares = pipeline_.data_parallel > 1 && pipeline_.shard != Shard::None;
        if (shares) {
            const int stage = static_cast<int>(pipeline_.shard);
            const int group = group_size(plan_.scenario);
            std::vector<std::string> keys{
                fmt::format("\"stage\": {}", stage),
                fmt::format("\"overlap_comm\": {}", stage > 1),
            };
            if (stage == 3 && pipeline_.prefetch == 0) {
                keys.emplace_back("\"stage3_prefetch_bucket_size\": 0");
            }
            if (group < pipeline_.data_parallel) {
                keys.push_back(fmt::format("\"mics_shard_size\": {}", group));
            }
            add("\"zero_optimization\": {{\n    {}\n  }}", fmt::join(keys, ",\n    "));
        }
        if (pipeline_.context_parallel > 1) {
            add("\"data_parallel_size\": {}", pipeline_.data_parallel);
            add("\"sequence_parallel_size\": {}", pipeline_.context_parallel);
        }
        if (pipeline_.expert_parallel > 1) {
            add("\"expert_parallel\": {{\n    \"enabled\": true,\n    \"autoep_size\": {}\n  }}",
                pipeline_.expert_parallel);
        }
    }

    bool computes_again() const { return pipeline_.layer_recompute == LayerRecompute::Block; }

    void write_pipeline() {
        if (!in_pipeline() && !computes_again()) {
            return;
        }
        std::vector<std::string> keys{fmt::format("\"stages\": {}", pipeline_.stages)};
        if (computes_again()) {
            keys.push_back(
                fmt::format("\"activation_checkpoint_interval\": {}", pipeline_.recompute_blocks));
        }
        add("\"pipeline\": {{\n    {}\n  }}", fmt::join(keys, ",\n    "));
    }

    /// What DeepSpeed reads from no file.
    void say_what_code_has() {
        const JobNodes nodes = job_nodes(plan_);
        job_.remarks.push_back(
            fmt::format("the program has to run on {} with {} each, in code or by the launcher: "
                        "deepspeed --num_nodes {} --num_gpus {} train.py --deepspeed_config FILE",
                        counted(nodes.nodes, "node"),
                        counted(nodes.per_node, "GPU"),
                        nodes.nodes,
                        nodes.per_node));
        if (in_pipeline()) {
            job_.remarks.push_back(fmt::format(
                "DeepSpeed takes the stages from code: PipelineModule(layers, num_stages={}, "
                "partition_method=\"type:YourBlock\"), where YourBlock is the class of the {}",
                pipeline_.stages,
                counted(plan_.blocks(), "block")));
        } else if (computes_again()) {
            job_.remarks.emplace_back(
                "without PipelineModule blocks are computed again by the model's own code, such as "
                "gradient_checkpointing_enable()");
        }
        for (const std::string& key : keys_for_people(plan_)) {
            job_.remarks.push_back("not said in the file: " + key);
        }
    }

    template <class... Values>
    void add(fmt::format_string<Values...> form, Values&&... values) {
        members_.push_back("  " + fmt::format(form, std::forward<Values>(values)...));
    }

    const PlacedPlan& plan_;
    const SettledScenario::PipelinePart& pipeline_;
    const Scenario::TrainingPart& training_;
    std::vector<std::string> members_;
    DeepSpeedJob job_;
};

}  // namespace

DeepSpeedJob deepspeed_job(const PlacedPlan& plan) {
    return DeepSpeedFile(plan).write();
}

}  // namespace pipetwin
