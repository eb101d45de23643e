// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "core/interop/jobs/lacks.h"
#include "core/scenario/division.h"
#include "core/scenario/shard_group.h"

namespace pipetwin {

namespace {

using TitanPipeline = SettledScenario::PipelinePart;

/// A way of sharing that torchtitan does not have, and the one to set.
struct OtherShares {
    std::string_view why{};  ///< empty: torchtitan has it
    std::string_view hint{};
};

OtherShares other_shares(const TitanPipeline& pipeline) {
    const bool in_pipeline = pipeline.stages > 1;
    switch (pipeline.shard) {
        case Shard::None:
            return in_pipeline || pipeline.rank_devices() > 1
                       ? OtherShares{"torchtitan has replicas that keep everything (DDP) only "
                                     "without other parallelism; in a pipeline it has "
                                     "\"optimizer\"",
                                     in_pipeline ? "set it to \"optimizer\""
                                                 : "set it to \"weights\""}
                       : OtherShares{};
        case Shard::Optimizer:
            return in_pipeline ? OtherShares{}
                               : OtherShares{
                                     "without a pipeline torchtitan divides gradients, "
                                     "too, like \"gradients\"",
                                     "set it to \"gradients\""};
        case Shard::Gradients:
            return in_pipeline ? OtherShares{"in a pipeline torchtitan sums gradients once a step, "
                                             "and keeps them whole until then, like \"optimizer\"",
                                             "set it to \"optimizer\""}
                               : OtherShares{};
        case Shard::Weights:
            return in_pipeline ? OtherShares{"in a pipeline torchtitan sums gradients once a step, "
                                             "and keeps them whole until then: it needs more "
                                             "memory",
                                             "set it to \"optimizer\""}
                               : OtherShares{};
    }
    return {};
}

/// What torchtitan has no setting for of how devices divide samples and experts.
void add_division_lacks(const SettledScenario& scenario, std::vector<Lack>& found) {
    const TitanPipeline& pipeline = scenario.pipeline;
    const int tensor = pipeline.expert_tensor_devices();
    const bool has_groups = pipeline.expert_parallel > 1;
    if (pipeline.context_parallel > 1 && (pipeline.context_method == ContextMethod::AllToAll ||
                                          pipeline.context_method == ContextMethod::RingAllToAll)) {
        found.push_back({.key = "pipeline.context_method",
                         .subject = fmt::format("pipeline.context_method = \"{}\"",
                                                to_string(pipeline.context_method)),
                         .why = "torchtitan divides no heads; its keys and values go round, like "
                                "\"ring\", or are gathered, like \"all-gather\"",
                         .hint = "set it to \"all-gather\""});
    }
    if (tensor != pipeline.tensor_parallel && (!has_groups || tensor != 1)) {
        found.push_back(
            {.key = "pipeline.expert_tensor_parallel",
             .subject = fmt::format("pipeline.expert_tensor_parallel = {}", tensor),
             .why = fmt::format(
                 "torchtitan takes {}",
                 has_groups
                     ? fmt::format("1 or the {} of tensor_parallel", pipeline.tensor_parallel)
                     : fmt::format("the {} of tensor_parallel where expert_parallel is 1",
                                   pipeline.tensor_parallel)),
             .hint = fmt::format("set it to {}", pipeline.tensor_parallel)});
    }
    const int sharing =
        (pipeline.shard == Shard::None ? 1 : group_size(scenario)) * pipeline.rank_devices();
    if (has_groups && sharing % (pipeline.expert_parallel * tensor) != 0) {
        found.push_back(
            {.key = "pipeline.expert_parallel",
             .subject = fmt::format("pipeline.expert_parallel = {}", pipeline.expert_parallel),
             .why = fmt::format("torchtitan divides experts among the {} of a stage that shard "
                                "weights, and refuses this",
                                counted(sharing, "device")),
             .hint = fmt::format("set it to {}", std::gcd(sharing, pipeline.expert_parallel))});
    }
    if (has_groups && tensor > 1 && pipeline.expert_dispatch != ExpertDispatch::Nccl) {
        found.push_back({.key = "pipeline.expert_dispatch",
                         .subject = fmt::format("pipeline.expert_dispatch = \"{}\"",
                                                to_string(pipeline.expert_dispatch)),
                         .why = "torchtitan has it where each expert is on one device "
                                "(pipeline.expert_tensor_parallel = 1)",
                         .hint = "set pipeline.expert_tensor_parallel to 1"});
    }
    if (axis_order(scenario) != pipeline_last && pipeline.data_parallel > 1 &&
        pipeline.stages > 1) {
        found.push_back(
            {.key = "pipeline.order",
             .subject = fmt::format("devices in the order {}", to_string(axis_order(scenario))),
             .why = fmt::format("torchtitan numbers them like pipeline.order = \"{}\"",
                                to_string(pipeline_last)),
             .hint = fmt::format("set it to \"{}\"", to_string(pipeline_last))});
    }
    if (scenario.training.expert_capacity > 0) {
        found.push_back({.key = "training.expert_capacity",
                         .subject = fmt::format("training.expert_capacity = {}",
                                                scenario.training.expert_capacity),
                         .why = "torchtitan's experts take all rows, like 0",
                         .hint = "set it to 0"});
    }
}

/// What torchtitan has no setting for of what is kept and computed again.
void add_memory_lacks(const PlacedPlan& plan, std::vector<Lack>& found) {
    const TitanPipeline& pipeline = plan.scenario.pipeline;
    if (pipeline.layer_recompute == LayerRecompute::Selective) {
        found.push_back(
            {.key = "pipeline.recompute",
             .subject = "pipeline.recompute = \"selective\"",
             .why = "torchtitan's selective recompute repeats single operators. Only costs that "
                    "'import hf' estimates with FlashAttention describe that; other costs assume "
                    "that core attention is repeated, and that more is kept",
             .hint = "set it to \"block\"",
             .is_remark = true});
    }
    if (!pipeline.recompute_modules.empty()) {
        found.push_back(
            {.key = "pipeline.recompute_modules",
             .subject = "pipeline.recompute_modules",
             .why = "torchtitan computes whole blocks or single operators again, but no modules",
             .hint = "set pipeline.recompute to \"block\" instead"});
    }
    if (const int blocks = pipeline.offload_blocks.value_or(0); blocks > 0) {
        found.push_back({.key = "pipeline.offload_blocks",
                         .subject = fmt::format("pipeline.offload_blocks = {}", blocks),
                         .why = "torchtitan keeps the activations of blocks on the device",
                         .hint = "set it to 0"});
    }
    if (!pipeline.offload_modules.empty()) {
        found.push_back({.key = "pipeline.offload_modules",
                         .subject = "pipeline.offload_modules",
                         .why = "torchtitan keeps the inputs of modules on the device",
                         .hint = "set it to []"});
    }
    if (pipeline.layer_recompute == LayerRecompute::Block && pipeline.recompute_blocks > 1) {
        found.push_back(
            {.key = "pipeline.recompute_blocks",
             .subject = fmt::format("pipeline.recompute_blocks = {}", pipeline.recompute_blocks),
             .why = "torchtitan keeps the input of every block, like 1",
             .hint = "set it to 1"});
    }
    if (pipeline.recompute_only > 0) {
        found.push_back(
            {.key = "pipeline.recompute_only",
             .subject = fmt::format("pipeline.recompute_only = {}", pipeline.recompute_only),
             .why = "torchtitan computes all blocks again",
             .hint = "set it to 0"});
    }
    if (pipeline.layer_recompute == LayerRecompute::Block && pipeline.recompute_early_stop) {
        found.push_back({.key = "pipeline.recompute_early_stop",
                         .subject = "pipeline.recompute_early_stop = true",
                         .why = "torchtitan recomputes a block to its end",
                         .hint = "set it to false"});
    }
    if (pipeline.recompute != RecomputeRules(Recompute::None)) {
        found.push_back(
            {.key = "pipeline.recompute",
             .subject = fmt::format("pipeline.recompute, {}", to_string(pipeline.recompute)),
             .why = "torchtitan keeps the input of every block, like \"block\"",
             .hint = "set it to \"block\" or \"none\""});
    }
}

void add_number_lacks(const PlacedPlan& plan, std::vector<Lack>& found) {
    const auto& training = plan.scenario.training;
    if (plan.precision == "fp16") {
        found.push_back({.key = "training.precision",
                         .subject = "costs in fp16",
                         .why = "torchtitan trains in bf16",
                         .hint = "estimate the costs with --precision bf16"});
    }
    if (training.precision == Precision::Bf16 && training.gradients == GradientType::Same) {
        found.push_back({.key = "training.gradients",
                         .subject = "training.gradients = \"same\"",
                         .why = "torchtitan sums gradients in fp32",
                         .hint = "set it to \"fp32\""});
    }
    constexpr int adam_in_fp32 = 12;
    if (training.precision == Precision::Bf16 &&
        training.optimizer_state_bytes.value_or(adam_in_fp32) != adam_in_fp32) {
        found.push_back({.key = "training.optimizer_state_bytes",
                         .subject = fmt::format("training.optimizer_state_bytes = {}",
                                                training.optimizer_state_bytes.value_or(0)),
                         .why =
                             "torchtitan keeps state and copies in fp32, or, with training.dtype = "
                             "bfloat16, 4 bytes",
                         .hint = "set it to 12"});
    }
}

}  // namespace

std::vector<Lack> torchtitan_lacks(const PlacedPlan& plan) {
    const TitanPipeline& pipeline = plan.scenario.pipeline;
    std::vector<Lack> found;
    add_memory_lacks(plan, found);
    if (pipeline.tensor_parallel > 1 && !pipeline.sequence_parallel) {
        found.push_back(
            {.key = "pipeline.sequence_parallel",
             .subject = "pipeline.sequence_parallel = false",
             .why = "torchtitan's tensor parallelism divides the sequence, like true; only "
                    "versions after March 2026 have parallelism.enable_sequence_parallel = false",
             .hint = "set it to true"});
    }
    if (pipeline.scatter_boundaries && !pipeline.sequence_parallel &&
        pipeline.tensor_parallel > 1 && pipeline.stages > 1) {
        found.push_back(
            {.key = "pipeline.scatter_boundaries",
             .subject = "pipeline.scatter_boundaries = true",
             .why = "torchtitan has no such setting; dividing the sequence divides boundaries, too",
             .hint = "set pipeline.sequence_parallel to true instead"});
    }
    const OtherShares shares = other_shares(pipeline);
    if ((pipeline.data_parallel > 1 || pipeline.context_parallel > 1) && !shares.why.empty()) {
        found.push_back(
            {.key = "pipeline.shard",
             .subject = fmt::format("pipeline.shard = \"{}\"", to_string(pipeline.shard)),
             .why = std::string(shares.why),
             .hint = std::string(shares.hint)});
    }
    add_division_lacks(plan.scenario, found);
    if (pipeline.data_parallel > 1 && pipeline.shard == Shard::Weights && pipeline.prefetch != 1) {
        found.push_back({.key = "pipeline.prefetch",
                         .subject = fmt::format("pipeline.prefetch = {}", pipeline.prefetch),
                         .why = "torchtitan gathers one block ahead, like 1",
                         .hint = "set it to 1"});
    }
    add_number_lacks(plan, found);
    return found;
}

}  // namespace pipetwin
