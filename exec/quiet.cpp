#include "exec/quiet.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace pipetwin::exec {

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
    return values[static_cast<std::size_t>(std::lround(last * share))];
}

double p90_over_p10(const std::vector<Duration>& times) {
    const Duration fast = quantile(times, 0.1);
    return fast > Duration{} ? to_seconds(quantile(times, 0.9)) / to_seconds(fast) : 1;
}

}  // namespace pipetwin::exec
