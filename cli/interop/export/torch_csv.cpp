// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/interop/export/exporters.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/lower.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/torch_rows.h"

namespace pipetwin::cli {

namespace {

/// Throws Error(Infeasible) for rows that PyTorch's runtime refuses to load, with messages or
/// without.
void refuse_unloadable(const ExportSource& source, const Schedule& rows) {
    if (model_stage_count(rows) != rows.stage_count()) {
        throw Error(ErrorKind::Infeasible,
                    source.path().string(),
                    "the schedule has two pipelines of one model, and PyTorch has no stages that "
                    "share weights",
                    "export a schedule with one copy of each stage, such as 1f1b");
    }
    if (is_forward_only(rows)) {
        throw Error(ErrorKind::Infeasible,
                    source.path().string(),
                    "the schedule has no backward, and PyTorch loads none without",
                    "export a schedule that trains, such as 1f1b: its eval() in PyTorch runs the "
                    "forwards alone");
    }
}

/// Whether the first layer and the last have a weight in common, as far as is known.
bool has_tied_weights(const ExportSource& source, const SettledScenario& scenario) {
    if (scenario.model.kind != ModelKind::Profile) {
        return scenario_model(scenario).tied_count() > 0;
    }
    const std::optional<sim::FoundProfile> found = source.profile_of(scenario);
    return found && found->profile.tied_bytes > Bytes{};
}

/// What the scenario asks for and PyTorch's rows do not say.
void note_what_is_left_out(const ExportSource& source,
                           const Schedule& rows,
                           const ExportOptions& options,
                           Console& console) {
    const std::optional<SettledScenario> scenario = source.settled();
    const auto has = [&rows](Op op) {
        for (const auto& row : rows.ranks) {
            for (const Action& action : row) {
                if (action.op == op) {
                    return true;
                }
            }
        }
        return false;
    };
    if (has(Op::Recompute) ||
        (scenario && scenario->pipeline.recompute != RecomputeRules(Recompute::None))) {
        console.note(
            "PyTorch's rows have no recompute: torch.utils.checkpoint in a stage's module does it");
    }
    if (options.compute_only && !rows.skips.empty()) {
        console.note(fmt::format(
            "stage {} sends to stage {}, which is not the next one, and PyTorch sends to the next "
            "stage only: let the stages between hand the tensor on",
            rows.skips.front().from,
            rows.skips.front().to));
    }
    if (!scenario) {
        return;
    }
    const SettledScenario::PipelinePart& pipeline = scenario->pipeline;
    if (source.kind() == ExportSource::Kind::Scenario &&
        (pipeline.deferred_weights > 0 || schedule_traits(pipeline.schedule).order_from_costs)) {
        console.note(fmt::format(
            "the order of these rows depends on costs, and this is that of {}: 'pipetwin simulate "
            "{} --out FOLDER' writes the one of your costs, and 'export torch-csv FOLDER' takes it",
            pipeline.deferred_weights > 0 ? "no deferred_weights" : "equal stages",
            source.path().string()));
    }
    if (has_stale_gradients(*scenario)) {
        console.note(fmt::format(
            "PyTorch keeps one version of the weights: in it these rows of {} train as 1f1b does",
            pipeline.schedule));
    }
    if (!options.compute_only && pipeline.shard != Shard::None && pipeline.data_parallel > 1) {
        console.note(
            "the rows have no UNSHARD: for stages with FSDP take --compute-only, and PyTorch adds "
            "them");
    }
    if (has_tied_weights(source, *scenario) && rows.stage_count() > 1) {
        console.note(
            "the first stage and the last have a weight in common: in PyTorch, add its two "
            "gradients before the optimizer's step");
    }
}

}  // namespace

Exported export_torch_csv(const ExportSource& source,
                          const ExportOptions& options,
                          Console& console) {
    const Schedule order = source.order();
    refuse_unloadable(source, order);
    std::string content;
    if (options.compute_only) {
        content = print_schedule_csv(order, CsvContent::ComputeOnly);
    } else {
        const TorchRows rows = torch_rows(order);
        content = print_schedule_csv(rows.schedule, CsvContent::ComputeComms);
        if (rows.reordered) {
            console.note(
                "the messages are in another order than in the source: PyTorch has one queue from "
                "each rank to each other");
        }
    }
    note_what_is_left_out(source, order, options, console);
    return of_schedule(order, std::move(content));
}

}  // namespace pipetwin::cli
