#include "cli/predict/plain_sweep.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "cli/predict/plain_numbers.h"
#include "cli/predict/schedule_source.h"
#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
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
    const bool needs_shape = !std::ranges::all_of(lists.schedules, is_schedule_file);
    if (!options.plain.schedule_file.empty() ||
        (needs_shape && (lists.stages.empty() || lists.micro_batches.empty()))) {
        throw Error(ErrorKind::Usage,
                    "",
                    "several plans are compared by their stages and micro-batches",
                    "as in --schedule gpipe,1f1b --stages 4 --micro-batches 8,16 --forward-ms 1 "
                    "--backward-ms 2");
    }
    expect_few_cells(lists.schedules.size() * std::max<std::size_t>(lists.stages.size(), 1) *
                     std::max<std::size_t>(lists.micro_batches.size(), 1));
    return lists;
}

int chunks_of(const ScheduleTraits& row, const std::optional<int>& asked) {
    switch (row.chunks) {
        case ChunkCounts::One:
            return 1;
        case ChunkCounts::Two:
            return 2;
        default:
            return asked.value_or(2);
    }
}

/// A time of a rank, in milliseconds, as one of its pieces has it.
void divide(std::optional<std::string>& text, std::string_view option, int pieces) {
    if (!text || pieces == 1) {
        return;
    }
    double value = 0;
    const char* const end = text->data() + text->size();
    const auto [rest, status] = std::from_chars(text->data(), end, value);
    if (status != std::errc{} || rest != end) {
        throw Error(ErrorKind::Usage,
                    std::string(option),
                    fmt::format("'{}', expected one number where plans are compared", *text),
                    "give the time of a rank's share of the model");
    }
    text = fmt::format("{}", value / pieces);
}

/// The options of a cell, whose pieces each take a share of the rank's times.
PlainOptions with_shares(PlainOptions plain, int pieces) {
    divide(plain.forward_ms, "--forward-ms", pieces);
    divide(plain.backward_ms, "--backward-ms", pieces);
    divide(plain.backward_input_ms, "--backward-input-ms", pieces);
    divide(plain.backward_weight_ms, "--backward-weight-ms", pieces);
    divide(plain.recompute_ms, "--recompute-ms", pieces);
    return plain;
}

PlainOptions plain_of(const SweepCell& cell, PlainOptions plain) {
    if (is_schedule_file(cell.schedule)) {
        plain.schedule_file = cell.schedule;
        plain.schedule.reset();
        plain.stages.reset();
        plain.chunks.reset();
        plain.micro_batches.reset();
        plain.group_size.reset();
        return with_shares(std::move(plain), cell.chunks);
    }
    const ScheduleTraits& row = schedule_traits(schedule_kind(cell.schedule));
    const int pieces = row.placement == StagePlacement::BothWays ? 1 : cell.chunks;
    plain.schedule = cell.schedule;
    plain.stages = cell.stages;
    plain.chunks = cell.chunks;
    plain.micro_batches = cell.micro_batches;
    if (!row.has_groups) {
        plain.group_size.reset();
    }
    return with_shares(std::move(plain), pieces);
}

void simulate_cell(SweepCell& cell, const PlainOptions& plain) {
    try {
        const PlainCosts costs = plain_costs(plain_of(cell, plain));
        cell.prediction = predict(sim::with_settled_capacity(make_plan(costs)));
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::Infeasible) {
            throw;
        }
        cell.why_not = error.text();
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

bool is_schedule_file(std::string_view schedule) {
    return schedule.ends_with(".csv");
}

int sweep_chunks(const std::string& schedule, const std::optional<int>& asked) {
    try {
        return chunks_of(schedule_traits(schedule_kind(schedule)), asked);
    } catch (const Error& error) {
        throw Error(ErrorKind::Usage, "--schedule", error.text(), error.hint());
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
        throw Error(
            ErrorKind::Infeasible,
            cells.front().scenario.empty() ? cells.front().schedule : cells.front().scenario,
            cells.front().why_not,
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
