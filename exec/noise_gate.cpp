#include "exec/noise_gate.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace pipetwin::exec {
namespace {

/// Twice as many steps as are kept are remembered, so that outliers leave enough.
constexpr std::size_t most_candidates = 2 * NoiseGate::most_kept;

/// Of the steps' times, sorted.
template <class Candidates>
std::vector<Duration> sorted_times(const Candidates& candidates) {
    std::vector<Duration> times;
    for (const auto& candidate : candidates) {
        times.push_back(candidate.time);
    }
    std::ranges::sort(times);
    return times;
}

Duration quantile(const std::vector<Duration>& sorted, double share) {
    const auto last = static_cast<double>(sorted.size() - 1);
    return sorted[static_cast<std::size_t>(std::lround(last * share))];
}

double seconds_apart(Duration a, Duration b) {
    return std::abs(to_seconds(a - b));
}

}  // namespace

void NoiseGate::add(const StepResult& step) {
    peak_.resize(step.peak.size());
    for (std::size_t rank = 0; rank < peak_.size(); ++rank) {
        peak_[rank] = std::max(peak_[rank], step.peak[rank].total());
    }
    Candidate candidate{.index = steps_++,
                        .time = step_time(step.timeline),
                        .stolen = step.stolen,
                        .timeline = aligned(step.timeline)};
    if (candidate.index < warm_up_steps) {
        last_warm_up_ = std::move(candidate);
        return;
    }
    candidates_.push_back(std::move(candidate));
    if (candidates_.size() > most_candidates) {
        candidates_.erase(std::ranges::max_element(candidates_, {}, &Candidate::stolen));
    }
}

/// The calm steps without outliers.
std::vector<NoiseGate::Candidate> NoiseGate::near_median() const {
    std::vector<Candidate> kept;
    std::ranges::copy_if(candidates_, std::back_inserter(kept), [](const Candidate& candidate) {
        return candidate.stolen <= most_stolen;
    });
    if (kept.empty()) {
        return kept;
    }
    const Duration median = quantile(sorted_times(kept), 0.5);
    std::erase_if(kept, [median](const Candidate& candidate) {
        return seconds_apart(candidate.time, median) > most_off_median * to_seconds(median);
    });
    std::ranges::stable_sort(kept, {}, &Candidate::stolen);
    kept.resize(std::min(kept.size(), static_cast<std::size_t>(most_kept)));
    std::ranges::sort(kept, {}, &Candidate::index);
    return kept;
}

const NoiseGate::Candidate& NoiseGate::nearest_median() const {
    if (candidates_.empty()) {
        return last_warm_up_;
    }
    const Duration median = quantile(sorted_times(candidates_), 0.5);
    return *std::ranges::min_element(candidates_, {}, [median](const Candidate& candidate) {
        return seconds_apart(candidate.time, median);
    });
}

TimelineSet NoiseGate::result() const {
    PIPETWIN_EXPECT(steps_ > 0, "a step to judge");
    std::vector<Candidate> kept = near_median();
    TimelineSet set;
    set.peak_bytes = peak_;
    set.noise.steps = static_cast<int>(kept.size());
    set.noise.dropped_steps = steps_ - set.noise.steps;
    if (kept.empty()) {
        kept.push_back(nearest_median());
    }
    double stolen = 0;
    for (const Candidate& candidate : kept) {
        stolen += candidate.stolen;
        set.steps.push_back(candidate.timeline);
    }
    set.noise.stolen_percent = 100 * stolen / static_cast<double>(kept.size());
    const bool passed = set.noise.steps > 0 || candidates_.empty();
    const std::vector<Duration> times = passed ? sorted_times(kept) : sorted_times(candidates_);
    set.noise.p90_over_p10 = to_seconds(quantile(times, 0.9)) / to_seconds(quantile(times, 0.1));
    return set;
}

}  // namespace pipetwin::exec
