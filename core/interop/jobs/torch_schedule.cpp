// SPDX-License-Identifier: Apache-2.0
#include "core/interop/jobs/torch_schedule.h"

#include <filesystem>

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "core/interop/jobs/lacks.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/generators/torch_orders.h"

namespace pipetwin {

namespace {

/// Without a pipeline passes of the whole model are repeated.
void expect_plain_passes(const SettledScenario::PipelinePart& pipeline, std::string_view system) {
    if (pipeline.chunks > 1) {
        refuse_lack({.key = "pipeline.chunks",
                     .subject = fmt::format("pipeline.chunks = {}", pipeline.chunks),
                     .why = fmt::format("{} cuts no model on one rank", system),
                     .hint = "set pipeline.chunks to 1 and pipeline.schedule to \"1f1b\""});
    }
    const std::string_view plain = schedule_traits(ScheduleKind::OneFOneB).name;
    if (pipeline.micro_batches > 1 && pipeline.schedule != plain) {
        refuse_lack({.key = "pipeline.schedule",
                     .subject = fmt::format("pipeline.schedule = \"{}\"", pipeline.schedule),
                     .why = fmt::format("without a pipeline {} computes one micro-batch after the "
                                        "other, forward and backward",
                                        system),
                     .hint = fmt::format("set it to \"{}\"", plain)});
    }
}

/// Whether the first rank holds the first and the last stage.
bool is_v(const PlacedPlan& plan) {
    const std::vector<int>& ranks = plan.schedule.rank_of_stage;
    return plan.scenario.pipeline.chunks == 2 && ranks.front() == ranks.back();
}

[[noreturn]] void refuse_order(const SettledScenario::PipelinePart& pipeline,
                               std::string_view system) {
    const ScheduleTraits& traits = schedule_traits(pipeline.schedule);
    refuse_lack({.key = "pipeline.schedule",
                 .subject = fmt::format("pipeline.schedule = \"{}\"", pipeline.schedule),
                 .why = traits.torch_name.empty()
                            ? fmt::format("{} has no such schedule", system)
                            : fmt::format("{}'s {} has no such order of {} on {}",
                                          system,
                                          traits.torch_name,
                                          counted(pipeline.micro_batches, "micro-batch"),
                                          counted(pipeline.stages, "rank")),
                 .hint = traits.trains && !traits.stale_gradients
                             ? "write its order with 'pipetwin export torch-csv --compute-only', "
                               "and set pipeline.schedule to that file"
                             : "set it to \"1f1b\""});
}

}  // namespace

TorchSchedule torch_schedule(const PlacedPlan& plan, std::string_view system) {
    const SettledScenario::PipelinePart& pipeline = plan.scenario.pipeline;
    if (plan.prediction_layers > 0) {
        refuse_lack({.key = "model",
                     .subject = "layers that predict further tokens",
                     .why = fmt::format("{} has no module for them in a stage", system),
                     .hint = "set num_nextn_predict_layers (or mtp_num_hidden_layers) to 0 in the "
                             "config.json, and plan again without them"});
    }
    if (model_stage_count(plan.schedule) != plan.schedule.stage_count()) {
        refuse_lack(
            {.key = "pipeline.schedule",
             .subject = fmt::format("pipeline.schedule = \"{}\"", pipeline.schedule),
             .why = fmt::format("it holds the model twice, but {} has every module once", system),
             .hint = "set it to \"1f1b\", or another schedule with one pipeline"});
    }
    if (pipeline.stages == 1) {
        expect_plain_passes(pipeline, system);
        return {};
    }
    if (has_schedule_file(plan.scenario)) {
        const ScheduleKind kind = is_v(plan)            ? ScheduleKind::ZbV
                                  : pipeline.chunks > 1 ? ScheduleKind::Interleaved1F1B
                                                        : ScheduleKind::OneFOneB;
        return {.name = std::string(schedule_traits(kind).torch_name),  // of the same ranks
                .csv = pipeline.schedule,
                .remarks = {fmt::format(
                    "the schedule file has to hold F, B, I and W alone: pipetwin export torch-csv "
                    "{} --compute-only --out FILE",
                    std::filesystem::path(pipeline.schedule).filename().string())}};
    }
    if (!is_torch_order(pipeline.schedule,
                        {.ranks = pipeline.stages,
                         .chunks = pipeline.chunks,
                         .micro_batches = pipeline.micro_batches},
                        pipeline.group_size)) {
        refuse_order(pipeline, system);
    }
    return {.name = std::string(schedule_traits(pipeline.schedule).torch_name)};
}

}  // namespace pipetwin
