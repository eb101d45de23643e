// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/lower.h"
#include "core/schedule/render_schedule.h"
#include "core/schedule/validate.h"

namespace pipetwin {

namespace {

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

/// "; the file implies 0RECV_B0 just before file cell 1 (0B0)".
std::string place_in_file(const Action& action,
                          std::string_view where,
                          std::size_t cell,
                          const Action& neighbour) {
    return action == neighbour ? fmt::format("; {} is file cell {}", to_string(action), cell)
                               : fmt::format("; the file implies {} {} file cell {} ({})",
                                             to_string(action),
                                             where,
                                             cell,
                                             to_string(neighbour));
}

bool adds_messages(const Schedule& written, const Schedule& rows) {
    return !has_communication(written) && has_communication(rows) &&
           written.ranks.size() == rows.ranks.size();
}

std::string legend_of_file(const Schedule& written, const Schedule& rows) {
    return fmt::format(
        "\n{}ranks, cells, stages and micro-batches count from 0; the first line of a file is rank "
        "0",
        adds_messages(written, rows)
            ? "cells are places in the rows above, which have sends and receives; file cells are "
              "places in the file\n"
            : "");
}

}  // namespace

void name_cells_of_file(const Schedule& written,
                        const Schedule& rows,
                        std::vector<Violation>& violations) {
    if (!adds_messages(written, rows)) {
        return;
    }
    for (Violation& violation : violations) {
        if (violation.rank < 0 || violation.cell < 0) {
            continue;
        }
        const auto& row = rows.ranks[as_index(violation.rank)];
        const auto& own = written.ranks[as_index(violation.rank)];
        std::size_t before = 0;  // cells of the file that are before the action
        for (int cell = 0; cell < violation.cell; ++cell) {
            before += before < own.size() && own[before] == row[as_index(cell)] ? 1U : 0U;
        }
        const Action& action = row[as_index(violation.cell)];
        if (is_send(action.op) && before > 0) {
            violation.why += place_in_file(action, "just after", before - 1, own[before - 1]);
        } else if (before < own.size()) {
            violation.why += place_in_file(action, "just before", before, own[before]);
        }
    }
}

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
                    std::size_t most,
                    const Schedule* written) {
    std::vector<CellMark> marks;
    for (const Violation& violation : violations) {
        if (violation.rank >= 0) {
            marks.push_back({violation.rank, violation.cell});
        }
        if (violation.second_cell >= 0) {
            marks.push_back({violation.rank, violation.second_cell});
        }
    }
    std::string text = render_schedule(schedule, columns_of_cells, marks);
    for (std::size_t i = 0; i < std::min(most, violations.size()); ++i) {
        text += line_of(violations[i]) + '\n';
    }
    if (violations.size() > most) {
        text += fmt::format("and {} more\n", violations.size() - most);
    }
    text.pop_back();
    return written == nullptr ? text : text + legend_of_file(*written, schedule);
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

void require_valid(const Schedule& schedule,
                   std::string_view place,
                   std::size_t most,
                   const Schedule* written,
                   MessageQueues queues) {
    std::vector<Violation> violations = validate(schedule, queues);
    if (violations.empty()) {
        return;
    }
    if (written != nullptr) {
        name_cells_of_file(*written, schedule, violations);
    }
    throw Error(ErrorKind::Infeasible,
                std::string(place),
                fmt::format("not a valid schedule: {} rule{} broken\n{}",
                            violations.size(),
                            violations.size() == 1 ? " is" : "s are",
                            explain(schedule, violations, most, written)),
                hint_for(violations));
}

void require_deadlock_free(const Schedule& schedule,
                           std::optional<int> capacity,
                           std::string_view place,
                           const Schedule* written,
                           MessageQueues queues) {
    DeadlockReport report = find_deadlock(schedule, capacity, queues);
    if (report.deadlock_free) {
        return;
    }
    if (written != nullptr) {
        name_cells_of_file(*written, schedule, report.waiting);
    }
    const int smallest = smallest_capacity(schedule, queues);
    throw Error(ErrorKind::Infeasible,
                std::string(place),
                fmt::format("deadlock {}: these actions wait for each other\n{}",
                            capacity ? fmt::format("with channel capacity {}", *capacity)
                                     : "with any channel capacity",
                            explain(schedule, report.waiting, violations_shown, written)),
                smallest < 0
                    ? "change the order of the actions; no channel capacity helps"
                    : fmt::format("the smallest channel capacity that works is {}", smallest));
}

}  // namespace pipetwin
