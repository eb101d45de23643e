// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"

namespace pipetwin::exec {

/// The share of its compute time that an undisturbed step may lose at most. Other programs and
/// other guests of the host only ever lengthen a step, and the share of steps that they lengthen
/// changes from minute to minute, so medians of all steps drift by 10 % and more. What repeats is
/// the fast end. The profiler and the comparison therefore both look at the steps
/// - that lost at most `most_stolen` of their compute time (wall time against CPU time), and
/// - that took at most `most_above_fast_end` longer than the fast end of those, the 5th percentile.
constexpr double most_stolen = 0.01;
/// The share by which an undisturbed step may be longer than the fast end, at most.
constexpr double most_above_fast_end = 0.05;

/// The gate that a series of steps has to pass before anything is said about the error of its
/// prediction, or before costs are taken from it. It looks at stolen time and spread alone: steps
/// that lost more than `most_stolen` are dropped, and of the others there are enough, of about one
/// length.
constexpr int fewest_clean_steps = 11;
/// The 90th percentile of the clean steps' times over the 10th, at most.
constexpr double largest_p90_over_p10 = 1.10;

/// One step of a series, for the gate.
struct GatedStep {
    Duration time{};
    double stolen = 0;
};

/// What the gate found in a series of steps.
struct GateVerdict {
    int clean = 0;
    int dropped = 0;
    double p90_over_p10 = 1;  ///< of the clean steps' times
    /// Whether a prediction may be compared with the series.
    bool passes() const {
        return clean >= fewest_clean_steps && p90_over_p10 <= largest_p90_over_p10;
    }
    /// Dropped steps over all steps, 0 to 1.
    double dropped_share() const {
        return clean + dropped > 0 ? static_cast<double>(dropped) / (clean + dropped) : 0;
    }
};

/// Counts the clean steps of a series and how far their times lie apart. Warm-up steps are left out
/// by the caller.
GateVerdict evaluate_gate(const std::vector<GatedStep>& steps);

/// The longest time of a quiet step among steps of these times; at least one time.
Duration longest_quiet_time(const std::vector<Duration>& times);

/// The value below which a share of the values lies; of none, zero.
Duration quantile(std::vector<Duration> values, double share);

/// 90th over 10th percentile, a measure of unrest: 1.02 on a quiet machine; of none, 1.
double p90_over_p10(const std::vector<Duration>& times);

}  // namespace pipetwin::exec
