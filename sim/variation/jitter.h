// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/conditions.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::sim {

/// Variation of durations from step to step. Every factor has the mean 1, so each action lasts on
/// average what the plan says; the step, which waits for the latest, lasts longer than that.
struct Jitter {
    double compute = 0;   ///< standard deviation of ln(duration) of an action
    double transfer = 0;  ///< standard deviation of ln(time) of a message on its link
    double device =
        0;  ///< standard deviation of ln(a rank's own factor), which stays for a whole step
    double spike_probability = 0;  ///< of an action: something else took the rank away
    double spike_factor = 1;       ///< how much longer it lasts then; not in the mean

    bool any() const {
        return compute > 0 || transfer > 0 || device > 0 ||
               (spike_probability > 0 && spike_factor != 1);
    }
};

/// Throws Error(BadInput), naming the number, if a deviation is not in 0..2, the probability not in
/// 0..1, or the factor not in 1..1000.
void check_jitter(const Jitter& jitter);

/// Step times of a plan under jitter, ascending.
struct StepSamples {
    std::vector<Duration> steps;

    /// Mean of the samples.
    Duration mean() const;
    /// The least step time that is not exceeded by `share` of the samples; share in 0..1.
    Duration quantile(double share) const;
};

/// Number of samples that are drawn if none is given.
constexpr int fewest_samples = 256;
/// Most samples that may be drawn.
constexpr int most_samples = 1'000'000;

/// Draws step times of a plan. The same bits on every machine: draws are made by a counter - (seed,
/// sample, task) - from a table of quantiles, all in integers. Where ranks or messages share
/// something, each sample is played through by events, with the same draws. Throws as check_jitter;
/// InternalError for conditions with durations of their own.
StepSamples sample_steps(const Plan& plan,
                         const Conditions& conditions,
                         const Jitter& jitter,
                         int samples,
                         std::uint64_t seed);

}  // namespace pipetwin::sim
