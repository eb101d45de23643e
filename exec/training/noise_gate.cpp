// SPDX-License-Identifier: Apache-2.0
#include "exec/training/noise_gate.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "exec/base/noise.h"

namespace pipetwin::exec {
namespace {

/// An odd number of them, at most `most_kept`, at evenly spaced quantiles of their times, so that
/// their median is that of all and the time of one of them. In the order given.
template <class Candidate>
std::vector<Candidate> representatives(std::vector<Candidate> candidates) {
    const std::size_t odd = candidates.size() - (candidates.size() % 2 == 0 ? 1 : 0);
    const std::size_t wanted = std::min<std::size_t>(NoiseGate::most_kept, odd);
    if (candidates.size() == wanted) {
        return candidates;
    }
    std::vector<std::size_t> by_time(candidates.size());
    std::iota(by_time.begin(), by_time.end(), std::size_t{0});
    std::ranges::stable_sort(
        by_time, {}, [&candidates](std::size_t index) { return candidates[index].time; });
    std::vector<std::size_t> chosen;
    for (std::size_t part = 0; part < wanted; ++part) {  // the middle of each of equal parts
        chosen.push_back(by_time[(2 * part + 1) * candidates.size() / (2 * wanted)]);
    }
    std::ranges::sort(chosen);
    std::vector<Candidate> kept;
    for (const std::size_t index : chosen) {
        kept.push_back(std::move(candidates[index]));
    }
    return kept;
}

}  // namespace

void NoiseGate::EvenlySpread::add(Candidate candidate) {
    if (added++ % stride != 0) {
        return;
    }
    candidates.push_back(std::move(candidate));
    if (candidates.size() > most_remembered) {
        for (std::size_t index = 1; 2 * index < candidates.size(); ++index) {
            candidates[index] = std::move(candidates[2 * index]);
        }
        candidates.resize((candidates.size() + 1) / 2);
        stride *= 2;
    }
}

void NoiseGate::add(const StepResult& step, int number) {
    peak_.resize(step.peak.size());
    for (std::size_t rank = 0; rank < peak_.size(); ++rank) {
        peak_[rank] = std::max(peak_[rank], step.peak[rank].total());
    }
    Candidate candidate{.number = number,
                        .time = step_time(step.timeline),
                        .stolen = step.stolen,
                        .timeline = aligned(step.timeline)};
    if (steps_++ < warm_up_steps) {
        last_warm_up_ = std::move(candidate);
        return;
    }
    times_.push_back(candidate.time);
    if (step.stolen > most_stolen) {
        disturbed_.add(std::move(candidate));
    } else {
        calm_times_.push_back(candidate.time);
        calm_.add(std::move(candidate));
    }
}

/// The remembered step whose time is nearest to the median; asked for where no step passes.
const NoiseGate::Candidate& NoiseGate::nearest_median() const {
    const Duration median = quantile(times_, 0.5);
    const Candidate* nearest = nullptr;
    for (const EvenlySpread* const steps : {&disturbed_, &calm_}) {
        for (const Candidate& step : steps->candidates) {
            if (nearest == nullptr ||
                std::chrono::abs(step.time - median) < std::chrono::abs(nearest->time - median)) {
                nearest = &step;
            }
        }
    }
    return nearest != nullptr ? *nearest : last_warm_up_;
}

TimelineSet NoiseGate::result() const {
    PIPETWIN_EXPECT(steps_ > 0, "a step to judge");
    std::vector<Candidate> kept = calm_.candidates;
    TimelineSet set;
    if (!kept.empty()) {
        // Fast steps that lost time to others still say that slower ones were not quiet.
        const Duration longest =
            std::min(longest_quiet_time(calm_times_), longest_quiet_time(times_));
        const auto is_quiet = [longest](Duration time) { return time <= longest; };
        set.noise.steps = static_cast<int>(std::ranges::count_if(calm_times_, is_quiet));
        std::erase_if(kept, [&](const Candidate& step) { return !is_quiet(step.time); });
    }
    if (kept.empty()) {
        kept.push_back(nearest_median());
        set.noise.steps = 0;
    } else {
        kept = representatives(std::move(kept));
    }
    double stolen = 0;
    for (const Candidate& candidate : kept) {
        stolen += candidate.stolen;
        set.steps.push_back(candidate.timeline);
        set.numbers.push_back(candidate.number);
    }
    set.peak_bytes = peak_;
    set.noise.stolen_percent = 100 * stolen / static_cast<double>(kept.size());
    set.noise.p90_over_p10 = p90_over_p10(times_);
    set.noise.dropped_steps = steps_ - set.noise.steps;
    return set;
}

}  // namespace pipetwin::exec
