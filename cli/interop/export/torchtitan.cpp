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
#include "core/interop/jobs/lacks.h"
#include "core/interop/jobs/torch_schedule.h"
#include "core/interop/jobs/torchtitan_job.h"
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
    Exported exported =
        of_plan(placed, print_torchtitan_modules(torchtitan_modules(placed.partition)));
    console.note(settings(placed));
    console.note(memory_settings(placed));
    const Pipeline& pipeline = placed.scenario.pipeline;
    if (pipeline.shard == Shard::Optimizer && pipeline.data_parallel > 1 && pipeline.stages > 1) {
        console.note(
            "torchtitan has no ZeRO-1: data_parallel_shard_degree is FSDP, which divides weights "
            "and gradients, too. In a pipeline it gathers weights and sums gradients once per "
            "step, as pipeline.shard = \"optimizer\" does");
    }
    for (const Lack& lack : torchtitan_lacks(placed)) {
        console.note(fmt::format("warning: {}: {}", lack.subject, lack.why));
    }
    return exported;
}

Exported export_torchtitan_toml(const ExportSource& source, const ExportOptions&, Console&) {
    const ExportSource::Placed placed = source.placed();
    return of_plan(placed, print_torchtitan_toml(placed));
}

Exported export_torchtitan_python(const ExportSource& source, const ExportOptions&, Console&) {
    const ExportSource::Placed placed = source.placed();
    return of_plan(placed, print_torchtitan_python(placed));
}

Exported export_automodel(const ExportSource& source, const ExportOptions&, Console&) {
    const ExportSource::Placed placed = source.placed();
    return of_plan(placed, print_automodel_recipe(placed));
}

}  // namespace pipetwin::cli
