#include "core/interop/torchtitan.h"

#include <fmt/format.h>

#include "cli/interop/export/exporters.h"
#include "core/base/error.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin::cli {

namespace {

/// Text of the other settings that belong to the lists.
std::string settings(const ExportSource::Placed& placed) {
    std::string text = fmt::format(
        "for torchtitan's parallelism.module_fqns_per_model_part, with pipeline_parallel_degree = "
        "{}",
        placed.schedule.rank_count());
    const std::string& schedule = placed.scenario.pipeline.schedule;
    if (has_schedule_file(placed.scenario)) {
        return text + ", pipeline_parallel_schedule_csv = \"" + schedule + '"';
    }
    for (const ScheduleName& known : known_schedules()) {
        if (known.name == schedule && !known.torch_name.empty()) {
            return text + fmt::format(", pipeline_parallel_schedule = \"{}\"", known.torch_name);
        }
    }
    return text + fmt::format(
                      "; it has no schedule of its own like {}: 'pipetwin export torch-csv' "
                      "writes the rows for pipeline_parallel_schedule_csv",
                      schedule);
}

}  // namespace

Exported export_torchtitan(const ExportSource& source, const ExportOptions&, Console& console) {
    const ExportSource::Placed placed = source.placed();
    const std::string place = placed.scenario.file.string();
    if (model_stage_count(placed.schedule) != placed.schedule.stage_count()) {
        throw Error(ErrorKind::Infeasible,
                    place,
                    "the schedule holds the model twice, but torchtitan's lists have every module "
                    "once",
                    "take a schedule with one pipeline, such as 1f1b");
    }
    Exported exported;
    try {
        exported.content = print_torchtitan_modules(torchtitan_modules(placed.partition));
    } catch (const Error& error) {
        throw error.at(place);
    }
    exported.result.ranks = placed.schedule.rank_count();
    exported.result.stages = placed.schedule.stage_count();
    console.note(settings(placed));
    return exported;
}

}  // namespace pipetwin::cli
