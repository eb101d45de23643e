// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/metrics.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"

namespace pipetwin {

namespace {

double ratio(Duration numerator, Duration denominator) {
    return static_cast<double>(numerator.count()) / static_cast<double>(denominator.count());
}

/// From the first begin to the last end.
struct Extent {
    Duration first = Duration::max();
    Duration last = Duration::min();

    void add(Duration begin, Duration end) {
        first = std::min(first, begin);
        last = std::max(last, end);
    }
    void add(const Extent& other) {
        first = std::min(first, other.first);
        last = std::max(last, other.last);
    }
    Duration length() const { return first > last ? Duration{} : last - first; }
};

/// Compute times of one rank, and the extent of its spans.
struct RankTimes {
    RankWork work;
    Extent pipeline;
    Extent step;
};

Duration extent(const RankWork& work) {
    return work.last_end > work.first_begin ? work.last_end - work.first_begin : Duration{};
}

void add(RankTimes& times, Op op, Duration begin, Duration ready, Duration end) {
    times.step.add(begin, end);
    if (has_micro_batch(op)) {
        times.pipeline.add(begin, end);
    }
    if (!is_compute(op)) {
        return;
    }
    RankWork& work = times.work;
    work.busy += end - ready;
    if (op == Op::Recompute) {
        work.recompute += end - ready;
    }
    work.first_begin = std::min(work.first_begin, begin);
    work.last_end = std::max(work.last_end, end);
}

RankTimes times_of(const std::vector<Span>& row) {
    RankTimes times;
    for (const Span& span : row) {
        add(times, span.action.op, span.begin, span.ready, span.end);
    }
    return times;
}

RankTimes times_of(const std::vector<Action>& actions, const SpanTimes& row) {
    RankTimes times;
    for (int cell = 0; cell < row.size(); ++cell) {
        add(times, actions[as_index(cell)].op, row.begin(cell), row.ready(cell), row.end(cell));
    }
    return times;
}

/// See the definitions at `Bubble`. A timeline without time has no bubble.
Bubble bubble_of(const std::vector<RankWork>& ranks, Duration time) {
    Duration work{};
    Duration recompute{};
    Duration ideal{};
    Duration largest_extent{};
    for (const RankWork& rank : ranks) {
        work += rank.busy;
        recompute += rank.recompute;
        ideal = std::max(ideal, rank.busy);
        largest_extent = std::max(largest_extent, extent(rank));
    }
    if (ideal == Duration{}) {
        return {};
    }
    // 1 - work / (p T) as idle / (p T): one rounding, so that closed forms are met to the last bit.
    const Duration area = time * static_cast<std::int64_t>(ranks.size());
    return {.total = ratio(area - work, area),
            .total_without_recompute = ratio(area - (work - recompute), area),
            .ideal = ratio(time - ideal, ideal),
            .span = ratio(largest_extent - ideal, largest_extent)};
}

struct Works {
    std::vector<RankWork> ranks;
    Extent pipeline;
    Extent step;

    void add(const RankTimes& times) {
        ranks.push_back(times.work);
        pipeline.add(times.pipeline);
        step.add(times.step);
    }
};

Works works_of(const Timeline& timeline) {
    Works works;
    works.ranks.reserve(timeline.ranks.size());
    for (const auto& row : timeline.ranks) {
        works.add(times_of(row));
    }
    return works;
}

TimeMetrics measure_times(const Plan& plan, const Works& works) {
    return measure_times(plan, works.ranks, works.pipeline.length(), works.step.length());
}

}  // namespace

TimeMetrics measure_times(const Plan& plan,
                          const std::vector<RankWork>& ranks,
                          Duration makespan,
                          Duration step) {
    TimeMetrics metrics{.makespan = makespan,
                        .step = step,
                        .samples_per_second = std::nullopt,
                        .bubble = bubble_of(ranks, makespan)};
    if (plan.samples() && step > Duration{}) {
        metrics.samples_per_second = static_cast<double>(*plan.samples()) / to_seconds(step);
    }
    return metrics;
}

TimeMetrics measure_times(const Plan& plan, const Timeline& timeline) {
    return measure_times(plan, works_of(timeline));
}

TimeMetrics measure_times(const Plan& plan, const StepTimes& times) {
    const auto& rows = plan->schedule.ranks;
    PIPETWIN_EXPECT(times.ranks.size() == rows.size(), "times of all rows");
    Works works;
    works.ranks.reserve(rows.size());
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        works.add(times_of(rows[rank], times.ranks[rank]));
    }
    return measure_times(plan, works);
}

Metrics measure(const Plan& plan, const Timeline& timeline) {
    const Works works = works_of(timeline);
    const std::vector<RankWork>& ranks = works.ranks;
    Metrics metrics{measure_times(plan, works), {}};
    const std::vector<int> live = peak_live_activations(plan->schedule);
    const std::vector<PeakInTime> peaks = memory_peaks(plan, timeline);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        metrics.devices.push_back({.rank = static_cast<int>(rank),
                                   .busy = ranks[rank].busy,
                                   .idle = metrics.makespan - ranks[rank].busy,
                                   .peak_live_activations = live.at(rank),
                                   .peak = peaks.at(rank).peak,
                                   .peak_time = peaks[rank].time});
    }
    return metrics;
}

std::optional<Action> peak_action(const Plan& plan, const DeviceMetrics& device) {
    if (device.peak.cell < 0) {
        return std::nullopt;
    }
    const auto& row = plan->schedule.ranks.at(as_index(device.rank));
    return row.at(as_index(device.peak.cell));
}

Duration Breakdown::sum() const {
    Duration sum{};
    for (const BreakdownPart& part : breakdown_parts) {
        sum += this->*part.value;
    }
    return sum;
}

namespace {

/// The idle time of one rank within a step that lasts from `first` to `last`.
IdleTime idle_time_of(const std::vector<Span>& row, Duration first, Duration last) {
    const RankWork work = times_of(row).work;
    if (work.last_end < work.first_begin) {
        return {.warm_up = last - first};
    }
    IdleTime idle{.warm_up = work.first_begin - first,
                  .steady = extent(work) - work.busy,
                  .drain = last - work.last_end};
    for (const Span& span : row) {
        const Op op = span.action.op;
        Duration& place = span.begin < work.last_end ? idle.steady : idle.drain;
        if (is_send(op)) {
            idle.back_pressure += span.ready - span.begin;
            place -= span.ready - span.begin;
        } else if (!has_micro_batch(op)) {
            place -= span.end - span.ready;
        }
    }
    return idle;
}

}  // namespace

IdleTime idle_time(const Plan& plan, const Timeline& timeline) {
    Duration first = Duration::max();
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            first = std::min(first, span.begin);
        }
    }
    const Duration last = first == Duration::max() ? first : first + step_time(timeline);
    IdleTime mean;
    for (const auto& row : timeline.ranks) {
        const IdleTime idle = idle_time_of(row, first, last);
        mean.warm_up += idle.warm_up;
        mean.steady += idle.steady;
        mean.drain += idle.drain;
        mean.back_pressure += idle.back_pressure;
    }
    const auto ranks = static_cast<std::int64_t>(std::max(1, plan.rank_count()));
    return {.warm_up = mean.warm_up / ranks,
            .steady = mean.steady / ranks,
            .drain = mean.drain / ranks,
            .back_pressure = mean.back_pressure / ranks};
}

}  // namespace pipetwin
