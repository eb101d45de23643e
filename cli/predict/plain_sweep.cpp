// SPDX-License-Identifier: Apache-2.0
#include "cli/predict/plain_sweep.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "cli/base/schedule_file.h"
#include "cli/predict/plain_numbers.h"
#include "cli/predict/rank_times.h"
#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule_csv.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t most_cells = 1000;

/// Throws Error(Usage) for lists that name no plans.
void expect_plans(const PlainOptions& options) {
    if (const auto file = options.value("--schedule-file")) {
        throw Error(
            ErrorKind::Usage,
            "--schedule-file",
            "it names the only schedule, but several plans are to be compared",
            fmt::format("name the file in the list of schedules: --schedule 1f1b,{}", *file));
    }
    const std::vector<std::string> schedules = options.values("--schedule");
    const bool needs_shape = schedules.empty() || !std::ranges::all_of(schedules, is_schedule_file);
    for (const std::string_view option : {"--stages", "--micro-batches"}) {
        if (needs_shape && !options.has(option)) {
            throw Error(ErrorKind::Usage,
                        "",
                        fmt::format("{} is missing", option),
                        fmt::format("add {} N, or a list of numbers", option));
        }
    }
    expect_few_cells(combinations(options));
}

/// The options of each plan: of a schedule with what it takes, of a schedule file without what that
/// says itself.
std::vector<PlainOptions> plans_of(PlainOptions options) {
    if (!options.has("--schedule")) {
        options.set("--schedule", std::string(default_schedule));
    }
    const std::optional<int> chunks = options.number("--chunks");
    std::vector<PlainOptions> plans = one_for_each({options}, "--schedule");
    for (PlainOptions& plan : plans) {
        const std::string schedule = *plan.value("--schedule");
        const bool is_file = is_schedule_file(schedule);
        if (is_file || !schedule_traits(asked_schedule(schedule)).has_groups) {
            plan.erase("--group-size");
        }
        if (is_file) {
            std::ranges::for_each(plan_options, [&plan](auto option) { plan.erase(option); });
            plan.set("--schedule-file", schedule);
        } else {
            plan.set("--chunks", fmt::to_string(sweep_chunks(schedule, chunks)));
        }
    }
    return one_for_each(one_for_each(plans, "--stages"), "--micro-batches");
}

void simulate_cell(SweepCell& cell, const PlainOptions& plan) {
    try {
        const PlainCosts costs = plain_costs(plan);
        cell.prediction = sim::predict(sim::with_settled_capacity(make_plan(costs)));
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::Infeasible) {
            throw;
        }
        cell.why_not = first_line(error.text());
        if (!error.hint().empty()) {
            cell.why_not += fmt::format(" ({})", error.advice().text(as_option));
        }
    }
}

/// The plan of a schedule file, which says its own shape.
SweepCell file_cell(const std::string& file) {
    const Schedule schedule = read_schedule_file(file);
    const int ranks = std::max(1, schedule.rank_count());
    return {.schedule = file,
            .stages = ranks,
            .chunks = std::max(1, schedule.stage_count() / ranks),
            .micro_batches = schedule.micro_batches};
}

SweepCell cell_of(const PlainOptions& plan) {
    if (const auto file = plan.value("--schedule-file")) {
        return file_cell(*file);
    }
    return {.schedule = *plan.value("--schedule"),
            .stages = *plan.number("--stages"),
            .chunks = *plan.number("--chunks"),
            .micro_batches = *plan.number("--micro-batches")};
}

}  // namespace

int sweep_chunks(const std::string& schedule, const std::optional<int>& asked) {
    const ScheduleTraits& row = schedule_traits(asked_schedule(schedule));
    return row.chunks == ChunkCounts::Several ? asked.value_or(default_chunks(row))
                                              : default_chunks(row);
}

std::string costs_words(const PlainOptions& plain) {
    std::string text;
    for (const CostOption& cost : cost_options()) {
        const std::optional<std::string> value = plain.value(cost.name);
        if (value && !cost.words.empty()) {
            text +=
                fmt::format("{}{} {}{}", text.empty() ? "" : ", ", cost.words, *value, cost.unit);
        }
    }
    return text;
}

void fill_cell(SweepCell& cell, const std::function<void()>& simulate) {
    try {
        simulate();
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::Infeasible && error.kind() != ErrorKind::BadInput) {
            throw;
        }
        cell.why_not = first_line(error.text());
    }
}

void expect_few_cells(std::size_t cells) {
    if (cells > most_cells) {
        throw Error(ErrorKind::Usage,
                    "",
                    fmt::format("{} plans, expected at most {}", cells, most_cells),
                    "shorten one of the lists");
    }
}

void expect_any_plan(const std::vector<SweepCell>& cells) {
    if (std::ranges::none_of(cells,
                             [](const SweepCell& cell) { return cell.prediction.has_value(); })) {
        const SweepCell& first = cells.front();
        throw Error(ErrorKind::Infeasible,
                    first.scenario.empty() ? first.schedule : first.scenario,
                    first.why_not,
                    "no plan of the list is possible; try other stages or micro-batches");
    }
}

std::vector<SweepCell> sweep(const PlainOptions& options) {
    expect_plans(options);
    const std::vector<PlainOptions> plans = plans_of(options);
    std::vector<SweepCell> cells;
    std::ranges::transform(plans, std::back_inserter(cells), cell_of);
    for (std::size_t i = 0; i < cells.size(); ++i) {
        simulate_cell(cells[i], plans[i]);
    }
    expect_any_plan(cells);
    return cells;
}

}  // namespace pipetwin::cli
