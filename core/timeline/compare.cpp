// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/compare.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/number_text.h"
#include "core/schedule/recompute.h"

namespace pipetwin {

namespace {

double percent_off(double predicted, double measured) {
    if (predicted == measured) {
        return 0;
    }
    return 100 * (predicted - measured) / measured;
}

/// The median over the steps of what `value` says about one.
template <class Value>
auto median_over(const TimelineSet& set, Value value) {
    std::vector<decltype(value(set.steps.front()))> values;
    for (const Timeline& step : set.steps) {
        values.push_back(value(step));
    }
    return median(std::move(values));
}

Duration total_of(const Timeline& timeline, Op op) {
    Duration total{};
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            total += span.action.op == op ? span.end - span.ready : Duration{};
        }
    }
    return total;
}

/// Whether compute spans begin with the host time before the action; measured ones begin after it.
bool has_overhead_in_spans(const Timeline& timeline) {
    return timeline.origin != Origin::Measured;
}

/// Whether a clock measured the steps, so that they can have noise.
bool is_measured(const TimelineSet& set) {
    return set.steps.front().origin != Origin::Predicted;
}

[[noreturn]] void refuse(std::string place, std::string text) {
    throw Error(ErrorKind::BadInput,
                std::move(place),
                std::move(text),
                "compare two timelines of the same plan: same stages, micro-batches, schedule and "
                "recompute");
}

/// Throws unless both timelines have the same rows.
void require_same_rows(const Timeline& predicted, const Timeline& measured) {
    if (predicted.ranks.size() != measured.ranks.size()) {
        refuse("ranks",
               fmt::format(
                   "{} predicted, {} measured", predicted.ranks.size(), measured.ranks.size()));
    }
    for (std::size_t rank = 0; rank < predicted.ranks.size(); ++rank) {
        const auto& expected = predicted.ranks[rank];
        const auto& found = measured.ranks[rank];
        const std::size_t cells = std::max(expected.size(), found.size());
        const auto text = [](const std::vector<Span>& row, std::size_t cell) {
            return cell < row.size() ? to_string(row[cell].action) : std::string("nothing");
        };
        for (std::size_t cell = 0; cell < cells; ++cell) {
            const bool same = cell < expected.size() && cell < found.size() &&
                              expected[cell].action == found[cell].action;
            if (!same) {
                refuse(fmt::format("rank {}, action number {}", rank, cell + 1),
                       fmt::format(
                           "predicted {}, measured {}", text(expected, cell), text(found, cell)));
            }
        }
    }
}

void require_comparable(const TimelineSet& predicted, const TimelineSet& measured) {
    PIPETWIN_EXPECT(!predicted.steps.empty() && !measured.steps.empty(),
                    "a set of timelines has at least one step");
    for (const TimelineSet* set : {&predicted, &measured}) {
        for (const Timeline& step : set->steps) {
            require_same_rows(predicted.steps.front(), step);
        }
    }
}

std::vector<ActionDelta> action_deltas(const TimelineSet& predicted, const TimelineSet& measured) {
    std::vector<ActionDelta> deltas;
    const auto& rows = predicted.steps.front().ranks;
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        for (std::size_t cell = 0; cell < rows[rank].size(); ++cell) {
            const auto length = [rank, cell](const Timeline& step) {
                const Span& span = step.ranks[rank][cell];
                return span.end - span.ready;
            };
            const auto begin = [rank, cell](const Timeline& step) {
                return step.ranks[rank][cell].begin;
            };
            deltas.push_back({.rank = static_cast<int>(rank),
                              .cell = static_cast<int>(cell),
                              .action = rows[rank][cell].action,
                              .duration = {.predicted = median_over(predicted, length),
                                           .measured = median_over(measured, length)},
                              .begin = {.predicted = median_over(predicted, begin),
                                        .measured = median_over(measured, begin)}});
        }
    }
    return deltas;
}

std::vector<Comparison::ByOp> op_totals(const TimelineSet& predicted, const TimelineSet& measured) {
    const auto occurs = [&rows = predicted.steps.front().ranks](Op op) {
        return std::any_of(rows.begin(), rows.end(), [op](const std::vector<Span>& row) {
            return std::any_of(
                row.begin(), row.end(), [op](const Span& span) { return span.action.op == op; });
        });
    };
    std::vector<Comparison::ByOp> totals;
    for (const Op op :
         {Op::Forward, Op::Backward, Op::BackwardInput, Op::BackwardWeight, Op::Recompute}) {
        if (occurs(op)) {
            const auto total = [op](const Timeline& step) { return total_of(step, op); };
            totals.push_back({.op = op,
                              .total = {.predicted = median_over(predicted, total),
                                        .measured = median_over(measured, total)}});
        }
    }
    return totals;
}

std::vector<PeakDelta> peak_deltas(const TimelineSet& predicted, const TimelineSet& measured) {
    std::vector<PeakDelta> deltas;
    if (predicted.peak_bytes.size() != measured.peak_bytes.size()) {
        return deltas;  // one side does not know them
    }
    for (std::size_t rank = 0; rank < predicted.peak_bytes.size(); ++rank) {
        deltas.push_back({.rank = static_cast<int>(rank),
                          .predicted = predicted.peak_bytes[rank],
                          .measured = measured.peak_bytes[rank]});
    }
    return deltas;
}

std::optional<Pair> replay_of(const TimelineSet& set) {
    if (!set.replayed_step) {
        return std::nullopt;
    }
    return Pair{.predicted = *set.replayed_step, .measured = step_time(median_step(set))};
}

}  // namespace

double Pair::error_percent() const {
    return percent_off(static_cast<double>(predicted.count()),
                       static_cast<double>(measured.count()));
}

double PeakDelta::error_percent() const {
    return percent_off(static_cast<double>(predicted.count), static_cast<double>(measured.count));
}

std::optional<std::string> Noise::not_measurable() const {
    if (!is_known()) {
        return std::nullopt;
    }
    if (sharing_ranks > 0) {
        return fmt::format("{} shared {}, and the prediction gives each one of its own",
                           counted(sharing_ranks, "rank"),
                           counted(shared_cores, "core"));
    }
    if (steps == 0 && dropped_steps > 0) {
        return fmt::format("none of the {} was quiet", counted(dropped_steps, "step"));
    }
    if (steps < fewest_steps) {
        return fmt::format("fewer than {} steps were quiet ({})", fewest_steps, steps);
    }
    if (costs_apart.value_or(1) > most_costs_apart) {
        return fmt::format(
            "the machine was up to {:.2f} times as slow between some steps as between others",
            *costs_apart);
    }
    return std::nullopt;
}

bool Noise::machine_was_busy() const {
    constexpr double most_stolen_percent = 1;  // of one step, beyond which the gate drops it
    constexpr int enough_steps = 40;  // of a run; some of so many are quiet on an idle machine
    const bool has_few_quiet = steps < fewest_steps && (stolen_percent > most_stolen_percent ||
                                                        steps + dropped_steps >= enough_steps);
    return sharing_ranks == 0 && (has_few_quiet || costs_apart.value_or(1) > most_costs_apart);
}

std::string_view Noise::verdict() const {
    return sharing_ranks > 0    ? "Ranks shared cores"
           : machine_was_busy() ? "The machine was busy"
                                : "The run is too short to be compared";
}

std::string noise_sentence(const Noise& noise) {
    const std::optional<std::string> why = noise.not_measurable();
    return why ? fmt::format("{}: the errors say nothing about the prediction, as {}.",
                             noise.verdict(),
                             *why)
               : "";
}

Duration overhead_beside(const Timeline& timeline, Duration overhead) {
    return has_overhead_in_spans(timeline) ? Duration{} : overhead;
}

double bubble_beside(const Timeline& timeline, Duration overhead) {
    const auto ranks = static_cast<std::int64_t>(timeline.ranks.size());
    Duration work = overhead_beside(timeline, overhead) * ranks;
    for (const Op op :
         {Op::Forward, Op::Backward, Op::BackwardInput, Op::BackwardWeight, Op::Recompute}) {
        work += total_of(timeline, op);
    }
    const Duration area = pipeline_time(timeline) * ranks;
    return area == Duration{} ? 0
                              : static_cast<double>((area - std::min(work, area)).count()) /
                                    static_cast<double>(area.count());
}

/// Mean over ranks, of the median step.
std::optional<Duration> time_in_groups(const TimelineSet& set) {
    const Timeline& step = median_step(set);
    if (step.in_groups.empty()) {
        return std::nullopt;
    }
    Duration sum{};
    for (const std::vector<Duration>& row : step.in_groups) {
        sum = std::accumulate(row.begin(), row.end(), sum);
    }
    return sum / static_cast<int>(step.in_groups.size());
}

std::optional<Pair> in_groups_of(const TimelineSet& predicted, const TimelineSet& measured) {
    const std::optional<Duration> planned = time_in_groups(predicted);
    const std::optional<Duration> taken = time_in_groups(measured);
    return planned && taken ? std::optional(Pair{.predicted = *planned, .measured = *taken})
                            : std::nullopt;
}

Comparison compare(const TimelineSet& predicted, const TimelineSet& measured) {
    require_comparable(predicted, measured);
    const auto bubble = [overhead = predicted.breakdown.value_or(Breakdown{}).overhead](
                            const Timeline& timeline) { return bubble_beside(timeline, overhead); };
    return {.origin = median_step(measured).origin,
            .makespan = {.predicted = median_over(predicted, pipeline_time),
                         .measured = median_over(measured, pipeline_time)},
            .step = {.predicted = step_time(median_step(predicted)),
                     .measured = step_time(median_step(measured))},
            .predicted_bubble_total = median_over(predicted, bubble),
            .measured_bubble_total = median_over(measured, bubble),
            .peaks = peak_deltas(predicted, measured),
            .by_op = op_totals(predicted, measured),
            .in_groups = in_groups_of(predicted, measured),
            .actions = action_deltas(predicted, measured),
            .predicted_breakdown = predicted.breakdown,
            .measured_breakdown = measured.breakdown,
            .replay = replay_of(measured),
            .noise = is_measured(measured) ? measured.noise : Noise{}};
}

const Timeline& median_step(const TimelineSet& set) {
    const Duration middle = median_over(set, step_time);
    return *std::min_element(
        set.steps.begin(), set.steps.end(), [middle](const Timeline& a, const Timeline& b) {
            return std::chrono::abs(step_time(a) - middle) <
                   std::chrono::abs(step_time(b) - middle);
        });
}

}  // namespace pipetwin
