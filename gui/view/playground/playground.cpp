// SPDX-License-Identifier: Apache-2.0
#include "gui/view/playground/playground.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/short_number.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/timeline/footprint.h"
#include "core/timeline/metrics.h"
#include "gui/view/what_if/what_if_settings.h"
#include "sim/explain/breakdown.h"
#include "sim/explain/rank_waits.h"
#include "sim/explain/waits.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::gui {

namespace {

/// A link that carries a byte in a nanosecond, so that a message's bytes are its time on the link.
constexpr double one_byte_per_nanosecond = 1e9;

ScheduleShape shape_of(const PlaygroundSettings& settings) {
    return {.ranks = settings.stages,
            .chunks = settings.chunks,
            .micro_batches = settings.micro_batches};
}

/// Whether the schedule has an order for the shape; the search of one is not begun.
bool takes(const PlaygroundSettings& settings) {
    const ScheduleKind kind = schedule_kind(settings.schedule);
    if (schedule_traits(kind).order_from_costs) {
        return true;
    }
    try {
        generate(kind, shape_of(settings));
        return true;
    } catch (const Error&) {
        return false;
    }
}

Duration per_stage(double ms, const PlaygroundSettings& settings, double factor) {
    return from_milliseconds(ms / settings.chunks * factor, "a time of the playground");
}

PlainCosts costs_of(const PlaygroundSettings& settings) {
    PlainCosts costs;
    costs.schedule = schedule_kind(settings.schedule);
    costs.schedule_name = settings.schedule;
    costs.shape = shape_of(settings);
    const int pieces = factor_count(settings);
    if (!settings.factors.empty() && std::cmp_not_equal(settings.factors.size(), pieces)) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("{} for {}",
                                counted(settings.factors.size(), "stage factor"),
                                counted(pieces, "stage")));
    }
    for (int piece = 0; piece < pieces; ++piece) {
        const double factor = settings.factors.empty() ? 1 : settings.factors[as_index(piece)];
        costs.forward.push_back(per_stage(settings.forward_ms, settings, factor));
        costs.backward_input.push_back(per_stage(settings.backward_input_ms, settings, factor));
        costs.backward_weight.push_back(per_stage(settings.backward_weight_ms, settings, factor));
        costs.backward.push_back(costs.backward_input.back() + costs.backward_weight.back());
    }
    costs.link.latency = from_milliseconds(settings.latency_ms, "the latency");
    costs.boundary = Bytes{from_milliseconds(settings.transfer_ms, "the transfer").count()};
    costs.link.bytes_per_second = settings.transfer_ms > 0 ? one_byte_per_nanosecond : 0;
    return costs;
}

bool is_even(const std::vector<double>& factors) {
    return std::ranges::all_of(factors, [&](double factor) { return factor == factors.front(); });
}

ClosedForm form_of(const PlaygroundSettings& settings) {
    if (!is_even(settings.factors)) {
        ClosedForm form;
        form.why_not = "No formula: the stages are uneven.";
        return form;
    }
    const PlainCosts costs = costs_of(settings);
    ClosedForm form = closed_form(costs.schedule,
                                  {.ranks = settings.stages,
                                   .micro_batches = settings.micro_batches,
                                   .chunks = settings.chunks,
                                   .forward = costs.forward.front(),
                                   .backward_input = costs.backward_input.front(),
                                   .backward_weight = costs.backward_weight.front(),
                                   .latency = costs.link.latency,
                                   .transfer = Duration{costs.boundary.count}});
    if (settings.chunks > 1 && !form.where.empty()) {
        form.where +=
            fmt::format(", and F = {}, I = {}, W = {} and B = I + W are those of one chunk",
                        short_time(costs.forward.front()),
                        short_time(costs.backward_input.front()),
                        short_time(costs.backward_weight.front()));
    }
    return form;
}

/// A cause of idle time, and its share of the step.
struct Cause {
    enum class Kind { Bubble, Imbalance, Messages } kind{};
    Duration time{};
};

std::string of_idle(Duration part, Duration idle) {
    return short_percent(to_seconds(part) / to_seconds(idle)) + " of the idle time";
}

/// The bubble with twice as many micro-batches; none where the schedule does not take them, or
/// would have to search for its order.
std::optional<double> bubble_with_more(PlaygroundSettings settings) {
    settings.micro_batches *= 2;
    if (schedule_traits(settings.schedule).order_from_costs || !takes(settings)) {
        return std::nullopt;
    }
    const Plan plan = sim::with_settled_capacity(make_plan(costs_of(settings)));
    return measure_times(plan, sim::simulate(plan)).bubble.total;
}

/// Whether a rank waits only after a forward and before a backward, but for the ends of its row.
bool waits_before_backwards(const Timeline& timeline) {
    const auto is_backward = [](Op op) { return op == Op::Backward || op == Op::BackwardInput; };
    return std::ranges::all_of(sim::waits_of(timeline), [&](const sim::Wait& wait) {
        const std::vector<Span>& row = timeline.ranks[as_index(wait.rank)];
        const auto computes = [](const Span& span) { return is_compute(span.action.op); };
        const auto at = row.begin() + wait.cell;
        const auto next = std::find_if(at, row.end(), computes);
        const auto last = std::find_if(std::make_reverse_iterator(at), row.rend(), computes);
        return next == row.end() || last == row.rend() ||
               (is_backward(next->action.op) && last->action.op == Op::Forward);
    });
}

/// "for their first micro-batch, between their actions and after their last one": where in the
/// timeline ranks wait.
std::string places_of_waits(const Timeline& timeline, const std::vector<sim::RankWaits>& waits) {
    const auto is_any = [&](auto part) {
        return std::ranges::any_of(waits,
                                   [&](const sim::RankWaits& of) { return part(of) > Duration{}; });
    };
    std::vector<std::string> places;
    if (is_any([](const sim::RankWaits& of) { return of.before_first; })) {
        places.emplace_back("for their first micro-batch");
    }
    if (is_any(
            [](const sim::RankWaits& of) { return of.wait - of.before_first - of.after_last; })) {
        places.emplace_back(waits_before_backwards(timeline)
                                ? "between their forwards and backwards"
                                : "between their actions");
    }
    if (is_any([](const sim::RankWaits& of) { return of.after_last; })) {
        places.emplace_back("after their last action");
    }
    const std::string last = places.empty() ? "" : places.back();
    return places.size() < 2
               ? last
               : fmt::format(
                     "{} and {}", fmt::join(places.begin(), std::prev(places.end()), ", "), last);
}

std::string bubble_words(const PlaygroundSettings& settings,
                         double bubble,
                         const std::string& places) {
    std::string text = fmt::format(
        "fill and drain: ranks wait {}, even with equal stages and instant messages.", places);
    if (const auto more = bubble_with_more(settings); more && *more < bubble - 0.0005) {
        text += fmt::format(" With {} micro-batches the bubble would be {}.",
                            2 * settings.micro_batches,
                            short_percent(*more));
    }
    return text;
}

std::string imbalance_words(const std::vector<PlaygroundRank>& ranks) {
    const auto busiest = std::ranges::max_element(ranks, {}, &PlaygroundRank::busy);
    Duration sum{};
    for (const PlaygroundRank& rank : ranks) {
        sum += rank.busy;
    }
    return fmt::format(
        "imbalance: rank {0} computes for {1}, the average rank for {2}, and the others wait for "
        "rank {0}.",
        busiest - ranks.begin(),
        short_time(busiest->busy),
        short_time(sum / static_cast<std::int64_t>(ranks.size())));
}

std::string message_words(const PlaygroundSettings& settings, Duration instant_step) {
    const Duration each =
        from_milliseconds(settings.latency_ms + settings.transfer_ms, "a message");
    return fmt::format(
        "communication: a message takes {} from rank to rank. If messages took no time, the step "
        "would take {}.",
        short_time(each),
        short_time(instant_step));
}

std::string headline_of(const PlaygroundSettings& settings,
                        const Plan& plan,
                        const Timeline& timeline,
                        const std::vector<sim::RankWaits>& waits,
                        PlaygroundStep& step) {
    const Breakdown parts = sim::breakdown(plan, timeline);
    const std::array<Cause, 3> causes{
        {{.kind = Cause::Kind::Bubble, .time = parts.fill_and_drain},
         {.kind = Cause::Kind::Imbalance, .time = parts.imbalance},
         {.kind = Cause::Kind::Messages, .time = parts.communication_wait}}};
    const Duration idle = parts.fill_and_drain + parts.imbalance + parts.communication_wait;
    if (idle <= Duration{}) {
        return "No rank is ever idle.";
    }
    const Cause& most = *std::ranges::max_element(causes, {}, &Cause::time);
    std::string words;
    switch (most.kind) {
        case Cause::Kind::Bubble:
            step.cause = "fill and drain";
            words = bubble_words(settings, step.bubble, places_of_waits(timeline, waits));
            break;
        case Cause::Kind::Imbalance:
            step.cause = "imbalance";
            words = imbalance_words(step.ranks);
            break;
        case Cause::Kind::Messages:
            step.cause = "communication wait";
            words = message_words(settings, step.step - parts.communication_wait);
            break;
    }
    return fmt::format("A rank is idle {} of the time on average. {} is {}",
                       short_percent(step.bubble),
                       most.time == idle
                           ? "The only cause"
                           : fmt::format("The largest cause ({})", of_idle(most.time, idle)),
                       words);
}

RunData run_of(const PlaygroundSettings& settings, const Plan& plan, const Timeline& timeline) {
    RunData run;
    run.schedule_name = settings.schedule;
    run.title = words_of(settings);
    run.micro_batches = plan.micro_batches();
    run.own_plan = std::make_shared<const Plan>(plan);
    DrawnSide drawn = drawn_side(StepRows(timeline));
    drawn.data.dispatch = plan->dispatch;
    run.twin.predicted = std::move(drawn.steps);
    run.predicted = std::move(drawn.data);
    return run;
}

void add_ranks(PlaygroundStep& step,
               const Plan& plan,
               const std::vector<sim::RankWaits>& waits_of_ranks) {
    const std::vector<int> stashed = peak_live_activations(plan->schedule);
    for (const sim::RankWaits& waits : waits_of_ranks) {
        const std::size_t rank = step.ranks.size();
        step.ranks.push_back({.busy = step.run->predicted->ranks[rank].busy,
                              .idle = waits.wait,
                              .stashed = stashed[rank],
                              .why = sim::rank_wait_sentence(waits)});
    }
}

}  // namespace

std::string words_of(const PlaygroundSettings& settings) {
    std::string text = fmt::format("{}, {}, {}",
                                   settings.schedule,
                                   counted(settings.stages, "rank"),
                                   counted(settings.micro_batches, "micro-batch"));
    if (settings.chunks > 1) {
        text += fmt::format(", {}", counted(settings.chunks, "chunk"));
    }
    const PlaygroundSettings usual;
    const bool has_usual_times = settings.forward_ms == usual.forward_ms &&
                                 settings.backward_input_ms == usual.backward_input_ms &&
                                 settings.backward_weight_ms == usual.backward_weight_ms;
    if (!has_usual_times) {
        text += fmt::format(", F {:g} I {:g} W {:g} ms",
                            settings.forward_ms,
                            settings.backward_input_ms,
                            settings.backward_weight_ms);
    }
    if (!settings.factors.empty()) {
        text += fmt::format(", factors {:g}", fmt::join(settings.factors, " "));
    }
    if (settings.latency_ms > 0 || settings.transfer_ms > 0) {
        text += fmt::format(", links {:g} + {:g} ms", settings.latency_ms, settings.transfer_ms);
    }
    return text;
}

int factor_count(const PlaygroundSettings& settings) {
    return settings.stages * settings.chunks;
}

PlaygroundSettings with_schedule(PlaygroundSettings settings, const std::string& schedule) {
    settings.schedule = schedule;
    if (schedule_traits(schedule).chunks == ChunkCounts::Several) {
        settings.chunks = std::max(settings.chunks, 2);
    }
    return fitted(std::move(settings));
}

PlaygroundSettings fitted(PlaygroundSettings settings) {
    const ChunkCounts chunks = schedule_traits(settings.schedule).chunks;
    settings.chunks = chunks == ChunkCounts::One   ? 1
                      : chunks == ChunkCounts::Two ? 2
                                                   : std::max(settings.chunks, 1);
    if (std::cmp_not_equal(settings.factors.size(), factor_count(settings))) {
        settings.factors.clear();
    }
    for (int distance = 0; distance < most_playground_micro_batches; ++distance) {
        for (const int sign : {+1, -1}) {
            PlaygroundSettings other = settings;
            other.micro_batches += sign * distance;
            const bool in_range =
                other.micro_batches >= 1 && other.micro_batches <= most_playground_micro_batches;
            if (in_range && takes(other)) {
                return other;
            }
        }
    }
    return settings;
}

PlaygroundStep play(const PlaygroundSettings& settings) {
    PlaygroundStep step;
    step.settings = settings;
    try {
        const Plan plan = sim::with_settled_capacity(make_plan(costs_of(settings)));
        const Timeline timeline = sim::simulate(plan);
        const TimeMetrics metrics = measure_times(plan, timeline);
        step.run = std::make_shared<const RunData>(run_of(settings, plan, timeline));
        step.step = metrics.step;
        step.bubble = metrics.bubble.total;
        step.form = form_of(settings);
        const std::vector<sim::RankWaits> waits = sim::rank_waits(plan, timeline);
        add_ranks(step, plan, waits);
        step.headline = headline_of(settings, plan, timeline, waits, step);
        if (plan->stale_gradients) {
            step.headline += fmt::format(
                " The picture is a training run of {} micro-batches from its start to its end: {} "
                "fills and drains the pipeline once in a whole training run. It updates weights "
                "while micro-batches are under way, so its gradients are stale.",
                settings.micro_batches,
                settings.schedule);
        }
    } catch (const std::exception& error) {
        step.run = nullptr;
        step.problem = sentence_of(error);
    }
    return step;
}

}  // namespace pipetwin::gui
