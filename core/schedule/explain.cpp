#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/schedule/render_schedule.h"
#include "core/schedule/validate.h"

namespace pipetwin {

namespace {

constexpr int cells_shown = 24;

/// "rank 1, cell 4"; empty where no rank is to blame.
std::string place_of(const Violation& violation) {
    std::string place;
    if (violation.rank >= 0) {
        place += fmt::format("rank {}", violation.rank);
    }
    if (violation.cell >= 0) {
        place += fmt::format(", cell {}", violation.cell);
    }
    return place;
}

}  // namespace

std::string line_of(const Violation& violation) {
    const std::string line = place_of(violation);
    return fmt::format("{}{}{}{}{}",
                       line,
                       line.empty() ? "" : ": ",
                       violation.action,
                       violation.action.empty() ? "" : " ",
                       violation.why);
}

std::string explain(const Schedule& schedule,
                    const std::vector<Violation>& violations,
                    std::size_t most) {
    std::vector<CellMark> marks;
    for (const Violation& violation : violations) {
        if (violation.rank >= 0) {
            marks.push_back({violation.rank, violation.cell});
        }
        if (violation.second_cell >= 0) {
            marks.push_back({violation.rank, violation.second_cell});
        }
    }
    std::string text = render_schedule(schedule, cells_shown, marks);
    for (std::size_t i = 0; i < std::min(most, violations.size()); ++i) {
        text += line_of(violations[i]) + '\n';
    }
    if (violations.size() > most) {
        text += fmt::format("and {} more\n", violations.size() - most);
    }
    text.pop_back();
    return text;
}

std::string hint_for(const std::vector<Violation>& violations) {
    const Violation& first = violations.front();
    const std::string place = place_of(first);
    const bool is_alone = violations.size() == 1;
    std::string what = first.action;
    if (!place.empty()) {
        what = what.empty() ? place : fmt::format("{} ({})", place, what);
    } else if (what.empty()) {
        what = is_alone ? "the schedule" : "the first of these mistakes";
    }
    return fmt::format("{}{}",
                       first.mend.empty() ? fmt::format("correct {}", what) : first.mend,
                       is_alone ? " and try again" : " first: one mistake may break several rules");
}

void require_valid(const Schedule& schedule, std::string_view place, std::size_t most) {
    const std::vector<Violation> violations = validate(schedule);
    if (violations.empty()) {
        return;
    }
    throw Error(ErrorKind::Infeasible,
                std::string(place),
                fmt::format("not a valid schedule: {} rule{} broken\n{}",
                            violations.size(),
                            violations.size() == 1 ? " is" : "s are",
                            explain(schedule, violations, most)),
                hint_for(violations));
}

void require_deadlock_free(const Schedule& schedule,
                           std::optional<int> capacity,
                           std::string_view place) {
    const DeadlockReport report =
        find_deadlock(schedule, capacity.value_or(std::max(1, schedule.micro_batches)));
    if (report.deadlock_free) {
        return;
    }
    const int smallest = smallest_capacity(schedule);
    throw Error(ErrorKind::Infeasible,
                std::string(place),
                fmt::format("deadlock at {}: these actions wait for each other\n{}",
                            capacity ? fmt::format("channel capacity {}", *capacity)
                                     : "any channel capacity",
                            explain(schedule, report.waiting)),
                smallest < 0
                    ? "change the order of the actions; no channel capacity helps"
                    : fmt::format("the smallest channel capacity that works is {}", smallest));
}

}  // namespace pipetwin
