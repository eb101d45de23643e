// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "core/base/median.h"
#include "exec/base/noise.h"

namespace pipetwin::accuracy {

namespace {

constexpr double least_passing_share = 0.6;

/// Medians by each word of the cells' names, and the sums of each kind of action by the number of
/// ranks.
void print_where_errors_lie(const std::vector<const CellResult*>& gated, std::ostream& out) {
    std::map<std::string, std::vector<double>> by_word;
    std::map<std::string, Pair> by_op;
    for (const CellResult* const cell : gated) {
        std::istringstream words(cell->cell);
        std::string ranks;
        for (std::string word; words >> word;) {
            ranks = ranks.empty() ? word : ranks;
            by_word[word].push_back(cell->error);
        }
        for (const auto& [name, pair] : cell->parts) {
            Pair& sum = by_op[ranks + " " + name.substr(name.find_first_not_of("0123456789"))];
            sum.predicted += pair.predicted;
            sum.measured += pair.measured;
        }
    }
    out << "  error with its sign, median by dimension:";
    for (const auto& [word, errors] : by_word) {
        fmt::print(out, "  {} {:+.2f} %", word, 100 * median(errors));
    }
    out << "\n  actions, sums:";
    for (const auto& [name, pair] : by_op) {
        fmt::print(out, "  {} {:+.2f} %", name, pair.error_percent());
    }
    out << '\n';
}

void print_goal(const char* what, double value, double limit, const char* unit, std::ostream& out) {
    fmt::print(out,
               "  {:<24} {:>6.2f} {:<2}  goal {} {:<2}  {}\n",
               what,
               value,
               unit,
               limit,
               unit,
               value <= limit ? "reached" : "missed");
}

/// In percent, without their signs.
template <class Value>
std::vector<double> sizes_of(const std::vector<const CellResult*>& cells, const Value& value) {
    std::vector<double> sizes;
    for (const CellResult* const cell : cells) {
        sizes.push_back(100 * std::abs(value(*cell)));
    }
    return sizes;
}

void print_goals(const std::vector<const CellResult*>& gated, std::ostream& out) {
    const auto errors = sizes_of(gated, [](const CellResult& cell) { return cell.error; });
    const auto replays = sizes_of(gated, [](const CellResult& cell) { return cell.replay_error; });
    const auto bubbles =
        sizes_of(gated, [](const CellResult& cell) { return cell.bubble_difference; });
    const auto floors = sizes_of(gated, [](const CellResult& cell) { return cell.noise_floor; });
    print_goal("error, median", median(errors), 2, "%", out);
    print_goal("error, largest", std::ranges::max(errors), 5, "%", out);
    print_goal("replay, median", median(replays), 0.5, "%", out);
    print_goal("replay, largest", std::ranges::max(replays), 1, "%", out);
    print_goal("bubble, median", median(bubbles), 1, "pp", out);
    print_goal("bubble, largest", std::ranges::max(bubbles), 1, "pp", out);
    fmt::print(out, "  {:<24} {:>6.2f} %\n", "floor, median", median(floors));
}

}  // namespace

void print_scalars(const Scalars& scalars, Precision precision, std::ostream& out) {
    fmt::print(out,
               "{}: interference {:.1f} % fitted; link {}\n",
               pipetwin::to_string(precision),
               100 * scalars.base.interference,
               format_duration(scalars.base.bytes.links.front().latency));
    for (std::size_t run = 0; run < scalars.short_runs.size(); ++run) {
        const RoundsVerdict& verdict = scalars.short_runs[run];
        fmt::print(out,
                   "  short run {}: {} rounds, {:.0f} % dropped, standard error {:.2f} %{}",
                   short_run_name(run),
                   verdict.clean,
                   100 * verdict.dropped_share(),
                   100 * verdict.standard_error,
                   verdict.passes() ? "" : ", beyond the gate");
        if (run < scalars.fit_error_percent.size()) {
            fmt::print(out,
                       "; {:+.2f} % with the fit, {:+.2f} % left out of it",
                       scalars.fit_error_percent[run],
                       scalars.leave_one_out_percent.at(run));
        }
        out << '\n';
    }
    out << std::flush;
}

void print_head(std::ostream& out) {
    fmt::print(out,
               "{:<44} {:>10} {:>10} {:>8} {:>7} {:>7} {:>7} {:>8} {:>8} {:>7} {:>8} {:>7}  {}\n",
               "cell",
               "predicted",
               "measured",
               "error",
               "s.e.",
               "floor",
               "rounds",
               "dropped",
               "p90/p10",
               "replay",
               "bubble",
               "memory",
               "gate");
}

void print_row(const CellResult& cell, std::ostream& out) {
    if (cell.verdict.clean == 0) {
        fmt::print(out, "{:<44} every round lost time to others\n", cell.cell);
        return;
    }
    fmt::print(out,
               "{:<44} {:>7.2f} ms {:>7.2f} ms {:>+7.2f}% {:>6.2f}% {:>6.2f}% {:>7} {:>7.1f}% "
               "{:>8.3f} {:>+6.2f}% {:>+6.2f}pp {:>5} B  {}\n",
               cell.cell,
               to_milliseconds(cell.predicted),
               to_milliseconds(cell.measured),
               100 * cell.error,
               100 * cell.verdict.standard_error,
               100 * cell.noise_floor,
               cell.verdict.clean,
               100 * cell.verdict.dropped_share(),
               cell.verdict.p90_over_p10,
               100 * cell.replay_error,
               100 * cell.bubble_difference,
               cell.memory_difference,
               cell.verdict.passes() ? "passes" : "-");
}

bool print_summary(const std::vector<CellResult>& cells, const Grid& grid, std::ostream& out) {
    std::vector<const CellResult*> gated;
    std::int64_t memory = 0;
    int calm = 0;
    for (const CellResult& cell : cells) {
        memory = std::max(memory, cell.memory_difference);
        if (cell.verdict.passes()) {
            gated.push_back(&cell);
            calm += cell.verdict.p90_over_p10 <= exec::largest_p90_over_p10 ? 1 : 0;
        }
    }
    const double passing =
        cells.empty() ? 0 : static_cast<double>(gated.size()) / static_cast<double>(cells.size());
    fmt::print(out,
               "\n{} of {} cells measured ({} void ones left out); {} pass the gate ({:.0f} %), {} "
               "of them with steps of one length (p90/p10 up to {})\n",
               cells.size(),
               grid.cells.size(),
               grid.void_cells,
               gated.size(),
               100 * passing,
               calm,
               exec::largest_p90_over_p10);
    if (!gated.empty()) {
        print_goals(gated, out);
    }
    if (!cells.empty()) {
        print_goal("memory, largest", static_cast<double>(memory), 0, "B", out);
    }
    print_where_errors_lie(gated, out);
    const bool measurable = passing >= least_passing_share;
    if (!measurable) {
        out << "not measurable on this machine today: fewer than 60 % of the cells pass the gate\n";
    }
    return measurable;
}

}  // namespace pipetwin::accuracy
