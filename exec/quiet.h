#pragma once

#include <vector>

#include "core/units.h"

namespace pipetwin::exec {

/// Which steps nothing disturbed. Other programs and other guests of the host only ever lengthen a
/// step, and the share of steps that they lengthen changes from minute to minute, so medians of all
/// steps drift by 10 % and more. What repeats is the fast end. The profiler and the comparison
/// therefore both look at the steps
/// - that lost at most `most_stolen` of their compute time (wall time against CPU time), and
/// - that took at most `most_above_fast_end` longer than the fast end of those, the 5th percentile.
constexpr double most_stolen = 0.01;
constexpr double most_above_fast_end = 0.05;

/// The longest time of a quiet step among steps of these times; at least one time.
Duration longest_quiet_time(const std::vector<Duration>& times);

/// The value below which a share of the values lies; of none, zero.
Duration quantile(std::vector<Duration> values, double share);

/// 90th over 10th percentile, a measure of unrest: 1.02 on a quiet machine; of none, 1.
double p90_over_p10(const std::vector<Duration>& times);

}  // namespace pipetwin::exec
