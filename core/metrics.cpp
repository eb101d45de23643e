#include "core/metrics.h"

#include <algorithm>

namespace pipetwin {

namespace {

double ratio(Duration numerator, Duration denominator) {
    return static_cast<double>(numerator.count()) / static_cast<double>(denominator.count());
}

/// What one rank did, of one timeline.
struct RankWork {
    Duration busy{};  ///< F, B, I, W and R
    Duration recompute{};
    Duration first_begin = Duration::max();  ///< of its compute
    Duration last_end = Duration::min();

    Duration extent() const { return last_end > first_begin ? last_end - first_begin : Duration{}; }
};

RankWork work_of(const std::vector<Span>& row) {
    RankWork work;
    for (const Span& span : row) {
        if (!is_compute(span.action.op)) {
            continue;
        }
        const Duration length = span.end - span.ready;
        work.busy += length;
        if (span.action.op == Op::Recompute) {
            work.recompute += length;
        }
        work.first_begin = std::min(work.first_begin, span.begin);
        work.last_end = std::max(work.last_end, span.end);
    }
    return work;
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
        largest_extent = std::max(largest_extent, rank.extent());
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

}  // namespace

Metrics measure(const Plan& plan, const Timeline& timeline) {
    Metrics metrics;
    metrics.makespan = pipeline_time(timeline);
    metrics.step = step_time(timeline);
    if (plan.samples() && metrics.step > Duration{}) {
        metrics.samples_per_second =
            static_cast<double>(*plan.samples()) / to_seconds(metrics.step);
    }
    std::vector<RankWork> ranks;
    for (const auto& row : timeline.ranks) {
        ranks.push_back(work_of(row));
    }
    metrics.bubble = bubble_of(ranks, metrics.makespan);

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
    const auto& row = plan->schedule.ranks.at(static_cast<std::size_t>(device.rank));
    return row.at(static_cast<std::size_t>(device.peak.cell));
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
    const RankWork work = work_of(row);
    if (work.last_end < work.first_begin) {
        return {.warm_up = last - first};
    }
    IdleTime idle{.warm_up = work.first_begin - first,
                  .steady = work.extent() - work.busy,
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
