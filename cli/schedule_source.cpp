#include "cli/schedule_source.h"

#include <fstream>
#include <limits>
#include <utility>

#include "cli/input.h"
#include "core/formats/schedule_csv.h"
#include "core/validate.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_schedule_file = std::size_t{1} << 30;

void require_valid_listing_all(const Schedule& schedule, std::string_view place) {
    require_valid(schedule, place, std::numeric_limits<std::size_t>::max());
}

}  // namespace

Schedule scenario_rows(const Scenario& scenario) {
    require_settled(scenario);
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    return lower(scenario_schedule(scenario),
                 {.recompute = pipeline.recompute.value_or(Recompute::None),
                  .timing = pipeline.recompute_timing,
                  .messages = pipeline.message_order},
                 scenario.file.string());
}

Schedule read_schedule_file(const std::filesystem::path& file) {
    const std::string place = input_name(file);
    CellCounter counter(place);
    const auto count = [&counter](std::string_view part) { counter.count(part); };
    std::error_code ignored;
    if (std::filesystem::is_regular_file(file, ignored)) {
        std::ifstream stream(file, std::ios::binary);
        for_each_part(stream, largest_schedule_file, count);
    }
    return parse_schedule_csv(read_input(file, largest_schedule_file, count), place);
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

}  // namespace pipetwin::cli
