// SPDX-License-Identifier: Apache-2.0
#include "core/interop/torchtitan.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/interop/export/exporters.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/number_type.h"
#include "core/scenario/division.h"
#include "core/scenario/shard_group.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/generators/torch_orders.h"

namespace pipetwin::cli {

namespace {

using Pipeline = SettledScenario::PipelinePart;

/// Text of the other settings that belong to the lists.
std::string settings(const ExportSource::Placed& placed) {
    std::string text = fmt::format(
        "the file is the value of torchtitan's parallelism.module_fqns_per_model_part; it goes "
        "with "
        "parallelism.pipeline_parallel_degree = {}",
        placed.schedule.rank_count());
    const std::string& schedule = placed.scenario.pipeline.schedule;
    if (has_schedule_file(placed.scenario)) {
        return text + ", parallelism.pipeline_parallel_schedule_csv = \"" + schedule + '"';
    }
    const Pipeline& pipeline = placed.scenario.pipeline;
    const ScheduleTraits& traits = schedule_traits(schedule);
    if (is_torch_order(schedule,
                       {.ranks = pipeline.stages,
                        .chunks = pipeline.chunks,
                        .micro_batches = pipeline.micro_batches},
                       pipeline.group_size)) {
        return text +
               fmt::format(", parallelism.pipeline_parallel_schedule = \"{}\"", traits.torch_name);
    }
    text += traits.torch_name.empty()
                ? fmt::format("; torchtitan has no schedule {}", schedule)
                : fmt::format("; torchtitan's {} has no such order of {} on {}",
                              traits.torch_name,
                              counted(placed.scenario.pipeline.micro_batches, "micro-batch"),
                              counted(placed.schedule.rank_count(), "rank"));
    text +=
        ": 'pipetwin export torch-csv --compute-only' writes a file for "
        "parallelism.pipeline_parallel_schedule_csv";
    if (traits.placement == StagePlacement::V) {
        text +=
            ", with parallelism.pipeline_parallel_schedule = \"ZBVZeroBubble\", whose ranks hold "
            "the same stages";
    }
    return text;
}

/// Degrees of data parallelism, and when weights are given back.
std::vector<std::string> replica_settings(const SettledScenario& scenario) {
    const Pipeline& pipeline = scenario.pipeline;
    const int replicas = pipeline.data_parallel;
    const bool shares =
        pipeline.shard != Shard::None && (replicas > 1 || pipeline.context_parallel > 1);
    std::vector<std::string> settings;
    const int sharing = shares ? group_size(scenario) : 1;
    if (sharing < replicas) {
        settings.push_back(
            fmt::format("parallelism.data_parallel_replicate_degree = {}", replicas / sharing));
    }
    settings.push_back(fmt::format("parallelism.data_parallel_shard_degree = {}", sharing));
    const bool in_pipeline = pipeline.stages > 1;
    if (shares && in_pipeline && pipeline.shard == Shard::Weights) {
        settings.emplace_back("parallelism.fsdp_reshard_after_forward = \"always\"");
    } else if (shares && !in_pipeline && pipeline.shard != Shard::Weights) {
        settings.emplace_back("parallelism.fsdp_reshard_after_forward = \"never\"");
    }
    return settings;
}

/// Degrees by which devices divide samples and experts.
std::vector<std::string> division_settings(const Pipeline& pipeline) {
    std::vector<std::string> settings;
    if (pipeline.context_parallel > 1) {
        const bool gathers = pipeline.context_method == ContextMethod::AllGather;
        settings.push_back(
            fmt::format("parallelism.context_parallel_degree = {}, "
                        "parallelism.context_parallel_rotate_method = \"{}\"",
                        pipeline.context_parallel,
                        gathers ? "allgather" : "alltoall"));
    }
    if (pipeline.expert_parallel > 1) {
        settings.push_back(
            fmt::format("parallelism.expert_parallel_degree = {}, "
                        "parallelism.expert_tensor_parallel_degree = {}",
                        pipeline.expert_parallel,
                        pipeline.expert_tensor_devices()));
        if (pipeline.expert_dispatch != ExpertDispatch::Nccl) {
            settings.push_back(fmt::format("parallelism.expert_parallel_comm_backend = \"{}\"",
                                           to_string(pipeline.expert_dispatch)));
        }
    }
    return settings;
}

/// The settings that say what a device keeps, computes again and shares.
std::string memory_settings(const ExportSource::Placed& placed) {
    const Pipeline& pipeline = placed.scenario.pipeline;
    std::vector<std::string> settings = replica_settings(placed.scenario);
    if (pipeline.tensor_parallel > 1) {
        settings.push_back(
            fmt::format("parallelism.tensor_parallel_degree = {}", pipeline.tensor_parallel));
    }
    std::ranges::copy(division_settings(pipeline), std::back_inserter(settings));
    if (pipeline.tensor_parallel > 1 && pipeline.sequence_parallel && placed.hides_tensor) {
        // torchtitan/distributed/tensor_parallel.py refuses it without the compiler.
        settings.emplace_back(
            "parallelism.enable_async_tensor_parallel = true, compile.enable = true");
    }
    if (pipeline.layer_recompute == LayerRecompute::Selective) {
        settings.emplace_back(
            "activation_checkpoint.mode = \"selective\", "
            "activation_checkpoint.selective_ac_option = \"op\"");
    } else {
        const bool recomputes = pipeline.layer_recompute == LayerRecompute::Block ||
                                pipeline.recompute != RecomputeRules(Recompute::None);
        settings.push_back(
            fmt::format("activation_checkpoint.mode = \"{}\"", recomputes ? "full" : "none"));
    }
    if (has_narrow_products(placed.precision)) {
        settings.push_back(fmt::format("model.converters = [\"{}\"]",
                                       placed.precision == "mxfp8" ? "mx" : "float8"));
    }
    return fmt::format("set in torchtitan, too: {}", fmt::join(settings, ", "));
}

/// How replicas share otherwise in torchtitan; empty: as the scenario says.
std::string_view shard_lack(const Pipeline& pipeline) {
    const bool in_pipeline = pipeline.stages > 1;
    switch (pipeline.shard) {
        case Shard::None:
            return in_pipeline || pipeline.rank_devices() > 1
                       ? "torchtitan has replicas that keep everything (DDP) only without other "
                         "parallelism; in a pipeline it has \"optimizer\""
                       : "";
        case Shard::Optimizer:
            return in_pipeline
                       ? ""
                       : "without a pipeline torchtitan divides gradients, too, like \"gradients\"";
        case Shard::Gradients:
            return in_pipeline ? "in a pipeline torchtitan sums gradients once a step, and keeps "
                                 "them whole until then, like \"optimizer\""
                               : "";
        case Shard::Weights:
            return in_pipeline ? "in a pipeline torchtitan sums gradients once a step, and keeps "
                                 "them whole until then: it needs more memory"
                               : "";
    }
    return "";
}

/// What torchtitan has no setting for of how devices divide samples and experts.
void add_division_lacks(const SettledScenario& scenario, std::vector<std::string>& found) {
    const Pipeline& pipeline = scenario.pipeline;
    const int tensor = pipeline.expert_tensor_devices();
    const bool has_groups = pipeline.expert_parallel > 1;
    if (pipeline.context_parallel > 1 && (pipeline.context_method == ContextMethod::AllToAll ||
                                          pipeline.context_method == ContextMethod::RingAllToAll)) {
        found.push_back(
            fmt::format("pipeline.context_method = \"{}\": torchtitan divides no heads; its keys "
                        "and values go round, like \"ring\", or are gathered, like "
                        "\"all-gather\"",
                        to_string(pipeline.context_method)));
    }
    if (tensor != pipeline.tensor_parallel && (!has_groups || tensor != 1)) {
        found.push_back(fmt::format(
            "pipeline.expert_tensor_parallel = {}: torchtitan takes {}",
            tensor,
            has_groups ? fmt::format("1 or the {} of tensor_parallel", pipeline.tensor_parallel)
                       : fmt::format("the {} of tensor_parallel where expert_parallel "
                                     "is 1",
                                     pipeline.tensor_parallel)));
    }
    const int sharing =
        (pipeline.shard == Shard::None ? 1 : group_size(scenario)) * pipeline.rank_devices();
    if (has_groups && sharing % (pipeline.expert_parallel * tensor) != 0) {
        found.push_back(
            fmt::format("pipeline.expert_parallel = {}: torchtitan divides experts among the {} "
                        "of a stage that shard weights, and refuses this",
                        pipeline.expert_parallel,
                        counted(sharing, "device")));
    }
    if (has_groups && tensor > 1 && pipeline.expert_dispatch != ExpertDispatch::Nccl) {
        found.push_back(
            fmt::format("pipeline.expert_dispatch = \"{}\": torchtitan has it where each expert is "
                        "on one device (pipeline.expert_tensor_parallel = 1)",
                        to_string(pipeline.expert_dispatch)));
    }
    if (axis_order(scenario) != pipeline_last && pipeline.data_parallel > 1 &&
        pipeline.stages > 1) {
        found.push_back(
            fmt::format("devices in the order {}: torchtitan numbers them like "
                        "pipeline.order = \"{}\"",
                        to_string(axis_order(scenario)),
                        to_string(pipeline_last)));
    }
    if (scenario.training.expert_capacity > 0) {
        found.push_back(
            fmt::format("training.expert_capacity = {}: torchtitan's experts take all rows, like 0",
                        scenario.training.expert_capacity));
    }
}

/// What a plan has and torchtitan has no setting for, each with what torchtitan has.
std::vector<std::string> lacks(const ExportSource::Placed& placed) {
    const SettledScenario& scenario = placed.scenario;
    const Pipeline& pipeline = scenario.pipeline;
    std::vector<std::string> found;
    const auto lack = [&found](bool is_asked, std::string_view key, std::string_view what) {
        if (is_asked && !what.empty()) {
            found.push_back(fmt::format("{}: {}", key, what));
        }
    };
    lack(pipeline.layer_recompute == LayerRecompute::Selective,
         "pipeline.recompute = \"selective\"",
         "torchtitan's selective recompute repeats single operators. Only costs that 'import hf' "
         "estimates with FlashAttention describe that; other costs assume that core attention is "
         "repeated, and that more is kept");
    lack(!pipeline.recompute_modules.empty(),
         "pipeline.recompute_modules",
         "torchtitan computes whole blocks or single operators again, but no modules");
    lack(!pipeline.offload_modules.empty(),
         "pipeline.offload_modules",
         "torchtitan keeps the inputs of modules on the device");
    lack(pipeline.layer_recompute == LayerRecompute::Block && pipeline.recompute_blocks > 1,
         fmt::format("pipeline.recompute_blocks = {}", pipeline.recompute_blocks),
         "torchtitan keeps the input of every block, like 1");
    lack(pipeline.layer_recompute == LayerRecompute::Block && pipeline.recompute_early_stop,
         "pipeline.recompute_early_stop = true",
         "torchtitan recomputes a block to its end");
    lack(pipeline.recompute != RecomputeRules(Recompute::None),
         fmt::format("pipeline.recompute, {}", to_string(pipeline.recompute)),
         "torchtitan keeps the input of every block, like \"block\"");
    lack(pipeline.tensor_parallel > 1 && !pipeline.sequence_parallel,
         "pipeline.sequence_parallel = false",
         "torchtitan's tensor parallelism divides the sequence, like true; only versions after "
         "March 2026 have parallelism.enable_sequence_parallel = false");
    lack(pipeline.scatter_boundaries && !pipeline.sequence_parallel &&
             pipeline.tensor_parallel > 1 && pipeline.stages > 1,
         "pipeline.scatter_boundaries = true",
         "torchtitan has no such setting; dividing the sequence divides boundaries, too");
    lack(pipeline.data_parallel > 1 || pipeline.context_parallel > 1,
         fmt::format("pipeline.shard = \"{}\"", to_string(pipeline.shard)),
         shard_lack(pipeline));
    add_division_lacks(scenario, found);
    lack(pipeline.data_parallel > 1 && pipeline.shard == Shard::Weights && pipeline.prefetch != 1,
         fmt::format("pipeline.prefetch = {}", pipeline.prefetch),
         "torchtitan gathers one block ahead, like 1");
    lack(placed.precision == "fp16", "costs in fp16", "torchtitan trains in bf16");
    lack(scenario.training.precision == Precision::Bf16 &&
             scenario.training.gradients == GradientType::Same,
         "training.gradients = \"same\"",
         "torchtitan sums gradients in fp32");
    lack(scenario.training.precision == Precision::Bf16 &&
             scenario.training.optimizer_state_bytes.has_value(),
         fmt::format("training.optimizer_state_bytes = {}",
                     scenario.training.optimizer_state_bytes.value_or(0)),
         "torchtitan keeps state and copies in fp32, or, with training.dtype = bfloat16, 4 bytes");
    return found;
}

}  // namespace

Exported export_torchtitan(const ExportSource& source, const ExportOptions&, Console& console) {
    const ExportSource::Placed placed = source.placed();
    const std::string place = placed.scenario.file.string();
    if (placed.prediction_layers > 0) {
        throw Error(ErrorKind::Infeasible,
                    place,
                    fmt::format("the model has {} further tokens (multi-token prediction), for "
                                "which torchtitan has no module",
                                placed.prediction_layers == 1 ? "a layer that predicts"
                                                              : "layers that predict"),
                    "set num_nextn_predict_layers (or mtp_num_hidden_layers) to 0 in the "
                    "config.json, and plan again without them");
    }
    if (model_stage_count(placed.schedule) != placed.schedule.stage_count()) {
        throw Error(ErrorKind::Infeasible,
                    place,
                    "the schedule holds the model twice, but torchtitan's lists have every module "
                    "once",
                    "use a schedule with one pipeline, such as 1f1b");
    }
    Exported exported{.content = print_torchtitan_modules(torchtitan_modules(placed.partition)),
                      .result = {}};
    exported.result.ranks = placed.schedule.rank_count();
    exported.result.stages = placed.schedule.stage_count();
    exported.result.devices = placed.devices();
    console.note(settings(placed));
    console.note(memory_settings(placed));
    const Pipeline& pipeline = placed.scenario.pipeline;
    if (pipeline.shard == Shard::Optimizer && pipeline.data_parallel > 1 && pipeline.stages > 1) {
        console.note(
            "torchtitan has no ZeRO-1: data_parallel_shard_degree is FSDP, which divides weights "
            "and gradients, too. In a pipeline it gathers weights and sums gradients once per "
            "step, as pipeline.shard = \"optimizer\" does");
    }
    for (const std::string& lack : lacks(placed)) {
        console.note("warning: " + lack);
    }
    return exported;
}

}  // namespace pipetwin::cli
