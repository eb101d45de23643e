#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/json_output.h"
#include "core/error.h"
#include "core/formats/json_text.h"
#include "core/formats/schedule_csv.h"
#include "core/lower.h"
#include "core/scenario.h"
#include "core/validate.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_schedule_file = std::size_t{1} << 30;

/// The rows that a scenario would run; they need no costs.
Schedule rows_of_scenario(const CheckOptions& options) {
    const Scenario scenario = read_scenario(options.file, options.common.overrides);
    require_settled(scenario);
    return lower(scenario_schedule(scenario),
                 {.recompute = scenario.pipeline.recompute.value_or(Recompute::None)},
                 options.file.string());
}

Schedule read_schedule(const CheckOptions& options) {
    if (options.file.extension() == ".toml") {
        return rows_of_scenario(options);
    }
    return parse_schedule_csv(read_file(options.file, largest_schedule_file),
                              options.file.string());
}

/// More messages than one channel ever sees.
int unbounded(const Schedule& schedule) {
    return schedule.micro_batches + 1;
}

/// With the communication that the executor would add; that of the file stands where it has any.
Schedule with_communication(const Schedule& schedule) {
    return has_communication(schedule) ? schedule
                                       : add_communication(schedule, RecomputeTiming::Eager);
}

/// Tries a valid schedule for deadlock.
void try_for_deadlock(const Schedule& lowered, CheckResult& result) {
    result.deadlock = find_deadlock(lowered, result.capacity.value_or(unbounded(lowered)));
    const int smallest = smallest_capacity(lowered);
    result.smallest_capacity = smallest >= 0 ? std::optional(smallest) : std::nullopt;
}

std::string capacity_text(const std::optional<int>& capacity) {
    return capacity ? fmt::format("capacity {}", *capacity) : "any capacity";
}

std::string fine_text(const Schedule& schedule, const CheckResult& result) {
    return fmt::format(
        "valid and free of deadlock: {} ranks, {} stages, {} micro-batches; smallest capacity {}\n",
        schedule.rank_count(),
        schedule.stage_count(),
        schedule.micro_batches,
        *result.smallest_capacity);
}

Error deadlock_error(const std::string& place, const CheckResult& result) {
    return {ErrorKind::Infeasible,
            place,
            fmt::format("deadlock at {}: the actions above wait on each other",
                        capacity_text(result.capacity)),
            result.smallest_capacity
                ? fmt::format("the smallest capacity that works is {}", *result.smallest_capacity)
                : "no capacity helps: the order itself has to change"};
}

}  // namespace

void execute(const CheckOptions& options, Console& console) {
    const std::string place = options.file.string();
    Schedule schedule = read_schedule(options);
    CheckResult result;
    result.capacity = options.capacity;
    result.violations = validate(schedule);
    const bool valid = result.violations.empty();
    if (valid) {
        schedule = with_communication(schedule);
        try_for_deadlock(schedule, result);
    }
    const bool deadlock = valid && !result.deadlock->deadlock_free;
    if (options.common.json) {
        console.result(json_text(check_json(result)));
    } else if (valid && !deadlock) {
        console.result(fine_text(schedule, result));
    } else {
        console.result(explain(schedule, valid ? result.deadlock->waiting : result.violations) +
                       '\n');
    }
    if (!valid) {
        throw Error(ErrorKind::Infeasible,
                    place,
                    fmt::format("not a valid schedule, {} broken",
                                result.violations.size() == 1
                                    ? "1 rule"
                                    : fmt::format("{} rules", result.violations.size())));
    }
    if (deadlock) {
        throw deadlock_error(place, result);
    }
}

}  // namespace pipetwin::cli
