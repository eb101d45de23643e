#include "cli/predict/plain_sweep.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "cli/predict/plain_numbers.h"
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
    if (!options.plain.schedule_file.empty() || lists.stages.empty() ||
        lists.micro_batches.empty()) {
        throw Error(ErrorKind::Usage,
                    "",
                    "several plans are compared by their stages and micro-batches",
                    "as in --schedule gpipe,1f1b --stages 4 --micro-batches 8,16 --forward-ms 1 "
                    "--backward-ms 2");
    }
    const std::size_t cells =
        lists.schedules.size() * lists.stages.size() * lists.micro_batches.size();
    expect_few_cells(cells);
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

PlainOptions plain_of(const SweepCell& cell, PlainOptions plain) {
    const ScheduleTraits& row = schedule_traits(schedule_kind(cell.schedule));
    const int pieces = row.placement == StagePlacement::BothWays ? 1 : cell.chunks;
    plain.schedule = cell.schedule;
    plain.stages = cell.stages;
    plain.chunks = cell.chunks;
    plain.micro_batches = cell.micro_batches;
    divide(plain.forward_ms, "--forward-ms", pieces);
    divide(plain.backward_ms, "--backward-ms", pieces);
    divide(plain.backward_input_ms, "--backward-input-ms", pieces);
    divide(plain.backward_weight_ms, "--backward-weight-ms", pieces);
    divide(plain.recompute_ms, "--recompute-ms", pieces);
    if (!row.has_groups) {
        plain.group_size.reset();
    }
    return plain;
}

void simulate_cell(SweepCell& cell, const PlainOptions& plain) {
    const PlainCosts costs = plain_costs(plain_of(cell, plain));
    try {
        cell.prediction = predict(sim::with_settled_capacity(make_plan(costs)));
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::Infeasible) {
            throw;
        }
        cell.why_not = error.text();
    }
}

}  // namespace

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
            "none of the plans is one; other stages or micro-batches may be");
    }
}

std::vector<SweepCell> sweep(const SimulateOptions& options) {
    const Lists lists = lists_of(options);
    std::vector<SweepCell> cells;
    for (const std::string& schedule : lists.schedules) {
        for (const int stages : lists.stages) {
            for (const int micro_batches : lists.micro_batches) {
                SweepCell& cell = cells.emplace_back(SweepCell{
                    .schedule = schedule, .stages = stages, .micro_batches = micro_batches});
                cell.chunks = sweep_chunks(schedule, options.plain.chunks);
                simulate_cell(cell, options.plain);
            }
        }
    }
    expect_any_plan(cells);
    return cells;
}

}  // namespace pipetwin::cli
