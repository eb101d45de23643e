#include "cli/predict/schedule_source.h"

#include <limits>
#include <utility>

#include "cli/base/input.h"
#include "core/plan/shape_notes.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/validate.h"

namespace pipetwin::cli {

namespace {

void require_valid_listing_all(const Schedule& schedule, std::string_view place) {
    require_valid(schedule, place, std::numeric_limits<std::size_t>::max());
}

}  // namespace

Schedule scenario_rows(const SettledScenario& scenario) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    return lower(scenario_schedule(scenario),
                 {.recompute = pipeline.recompute,
                  .timing = pipeline.recompute_timing,
                  .messages = pipeline.message_order},
                 scenario.file.string());
}

Schedule read_schedule_file(const std::filesystem::path& file) {
    const std::string place = input_name(file);
    CellCounter counter(place);
    return parse_schedule_csv(
        read_input(file,
                   largest_schedule_file,
                   [&counter](std::string_view part) { counter.count(part); }),
        place);
}

RecomputeTiming timing_of_files() {
    return schedule_traits(ScheduleKind::FromFile).recompute_timing;
}

Schedule with_communication(Schedule schedule, RecomputeTiming timing) {
    return has_communication(schedule) ? std::move(schedule)
                                       : add_communication(std::move(schedule), timing);
}

Schedule runnable(Schedule schedule, RecomputeTiming timing, std::string_view place) {
    require_valid_listing_all(schedule, place);
    schedule = with_communication(std::move(schedule), timing);
    require_valid_listing_all(schedule, place);
    require_deadlock_free(schedule, std::nullopt, place);
    return schedule;
}

std::vector<std::string> notes_on_rows(const SettledScenario& scenario) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    return shape_notes({.schedule = pipeline.schedule,
                        .chunks = pipeline.chunks,
                        .group_size = pipeline.group_size,
                        .micro_batches = pipeline.micro_batches,
                        .samples = replica_batch(scenario),
                        .data_parallel = pipeline.data_parallel});
}

}  // namespace pipetwin::cli
