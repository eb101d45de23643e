// SPDX-License-Identifier: Apache-2.0
#include "cli/predict/plain_sweep.h"

#include <algorithm>
#include <array>
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

/// The lists, each with at least one entry.
struct Lists {
    std::vector<std::string> schedules;
    std::vector<int> stages;
    std::vector<int> micro_batches;
};

template <class Value>
std::vector<Value> or_one(const std::vector<Value>& list, const std::optional<Value>& one) {
    return !list.empty() ? list : one ? std::vector{*one} : std::vector<Value>{};
}

Lists lists_of(const SimulateOptions& options) {
    Lists lists{.schedules = or_one(options.sweep.schedules, options.plain.schedule),
                .stages = or_one(options.sweep.stages, options.plain.stages),
                .micro_batches = or_one(options.sweep.micro_batches, options.plain.micro_batches)};
    if (lists.schedules.empty()) {
        lists.schedules.emplace_back(to_string(PlainCosts{}.schedule));
    }
    if (!options.plain.schedule_file.empty()) {
        throw Error(ErrorKind::Usage,
                    "--schedule-file",
                    "it names the only schedule, but several plans are to be compared",
                    fmt::format("name the file in the list of schedules: --schedule 1f1b,{}",
                                options.plain.schedule_file.string()));
    }
    const bool needs_shape = !std::ranges::all_of(lists.schedules, is_schedule_file);
    if (needs_shape && (lists.stages.empty() || lists.micro_batches.empty())) {
        const std::string_view missing = lists.stages.empty() ? "--stages" : "--micro-batches";
        throw Error(ErrorKind::Usage,
                    "",
                    fmt::format("{} is missing", missing),
                    fmt::format("add {} N, or a list of numbers", missing));
    }
    expect_few_cells(lists.schedules.size() * std::max<std::size_t>(lists.stages.size(), 1) *
                     std::max<std::size_t>(lists.micro_batches.size(), 1));
    return lists;
}

int chunks_of(const ScheduleTraits& row, const std::optional<int>& asked) {
    return row.chunks == ChunkCounts::Several ? asked.value_or(default_chunks(row))
                                              : default_chunks(row);
}

PlainOptions plain_of(const SweepCell& cell, PlainOptions plain) {
    if (is_schedule_file(cell.schedule)) {
        plain.schedule_file = cell.schedule;
        plain.schedule.reset();
        plain.stages.reset();
        plain.chunks.reset();
        plain.micro_batches.reset();
        plain.group_size.reset();
        return plain;
    }
    plain.schedule = cell.schedule;
    plain.stages = cell.stages;
    plain.chunks = cell.chunks;
    plain.micro_batches = cell.micro_batches;
    if (!schedule_traits(schedule_kind(cell.schedule)).has_groups) {
        plain.group_size.reset();
    }
    return plain;
}

void simulate_cell(SweepCell& cell, const PlainOptions& plain) {
    try {
        const PlainCosts costs = plain_costs(plain_of(cell, plain));
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

SweepCell generated_cell(const std::string& schedule,
                         int stages,
                         int micro_batches,
                         const std::optional<int>& chunks) {
    return {.schedule = schedule,
            .stages = stages,
            .chunks = sweep_chunks(schedule, chunks),
            .micro_batches = micro_batches};
}

std::vector<SweepCell> cells_of(const Lists& lists, const std::optional<int>& chunks) {
    std::vector<SweepCell> cells;
    for (const std::string& schedule : lists.schedules) {
        if (is_schedule_file(schedule)) {
            cells.push_back(file_cell(schedule));
            continue;
        }
        for (const int stages : lists.stages) {
            for (const int micro_batches : lists.micro_batches) {
                cells.push_back(generated_cell(schedule, stages, micro_batches, chunks));
            }
        }
    }
    return cells;
}

}  // namespace

int sweep_chunks(const std::string& schedule, const std::optional<int>& asked) {
    return chunks_of(schedule_traits(asked_schedule(schedule)), asked);
}

std::string costs_words(const PlainOptions& plain) {
    std::string text;
    const auto add = [&text](std::string_view what,
                             const std::optional<std::string>& value,
                             std::string_view unit) {
        text += value ? fmt::format("{}{} {}{}", text.empty() ? "" : ", ", what, *value, unit) : "";
    };
    add("forward", plain.forward_ms, " ms");
    add("backward", plain.backward_ms, " ms");
    add("input gradient", plain.backward_input_ms, " ms");
    add("weight gradient", plain.backward_weight_ms, " ms");
    add("recompute", plain.recompute_ms, " ms");
    add("forward of a rank", plain.rank_forward_ms, " ms");
    add("backward of a rank", plain.rank_backward_ms, " ms");
    add("input gradient of a rank", plain.rank_backward_input_ms, " ms");
    add("weight gradient of a rank", plain.rank_backward_weight_ms, " ms");
    add("recompute of a rank", plain.rank_recompute_ms, " ms");
    add("latency", plain.latency_ms, " ms");
    add("messages of", plain.boundary_bytes, " B");
    add("at", plain.bandwidth_gbps, " Gbit/s");
    return text;
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

std::vector<SweepCell> sweep(const SimulateOptions& options) {
    std::vector<SweepCell> cells = cells_of(lists_of(options), options.plain.chunks);
    for (SweepCell& cell : cells) {
        simulate_cell(cell, options.plain);
    }
    expect_any_plan(cells);
    return cells;
}

}  // namespace pipetwin::cli
