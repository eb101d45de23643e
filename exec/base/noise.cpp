// SPDX-License-Identifier: Apache-2.0
#include "exec/base/noise.h"

#include <algorithm>
#include <cmath>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin::exec {

GateVerdict evaluate_gate(const std::vector<GatedStep>& steps) {
    GateVerdict verdict;
    std::vector<Duration> clean;
    for (const GatedStep& step : steps) {
        if (step.stolen <= most_stolen) {
            clean.push_back(step.time);
        }
    }
    verdict.clean = static_cast<int>(clean.size());
    verdict.dropped = static_cast<int>(steps.size()) - verdict.clean;
    verdict.p90_over_p10 = p90_over_p10(clean);
    return verdict;
}

Duration longest_quiet_time(const std::vector<Duration>& times) {
    PIPETWIN_EXPECT(!times.empty(), "a step to judge");
    constexpr double fast_end = 0.05;
    const auto nanoseconds = static_cast<double>(quantile(times, fast_end).count());
    return Duration(std::llround((1 + most_above_fast_end) * nanoseconds));
}

Duration quantile(std::vector<Duration> values, double share) {
    if (values.empty()) {
        return {};
    }
    std::ranges::sort(values);
    const auto last = static_cast<double>(values.size() - 1);
    return values[as_index(std::lround(last * share))];
}

double p90_over_p10(const std::vector<Duration>& times) {
    const Duration fast = quantile(times, 0.1);
    return fast > Duration{} ? to_seconds(quantile(times, 0.9)) / to_seconds(fast) : 1;
}

}  // namespace pipetwin::exec
