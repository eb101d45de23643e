// SPDX-License-Identifier: Apache-2.0
#include "sim/variation/goodput.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "core/base/error.h"

namespace pipetwin::sim {

namespace {

constexpr double seconds_per_hour = 3600;

/// 31 years.
constexpr Duration longest_run = std::chrono::seconds(1'000'000'000);

/// Between failures of any of the devices.
double mean_seconds(const Failures& failures) {
    return failures.mtbf_hours * seconds_per_hour / failures.devices;
}

[[noreturn]] void refuse(std::string found, std::string hint) {
    throw Error(ErrorKind::BadInput, "", std::move(found), std::move(hint));
}

/// Mean time from one checkpoint to the next; infinite where none is ever reached.
double segment_seconds(const Failures& failures, std::int64_t steps) {
    const double mean = mean_seconds(failures);
    const double work = static_cast<double>(steps) * to_seconds(failures.step);
    const double exponent = (work + to_seconds(failures.checkpoint)) / mean;
    return std::exp(to_seconds(failures.restart) / mean) * std::expm1(exponent) * mean;
}

double share_of(const Failures& failures, std::int64_t steps) {
    return static_cast<double>(steps) * to_seconds(failures.step) /
           segment_seconds(failures, steps);
}

Goodput goodput_of(const Failures& failures, int checkpoint_every) {
    const double share = share_of(failures, checkpoint_every);
    const double seconds = to_seconds(failures.step) / share;
    const bool bounded = seconds < to_seconds(longest_run);
    return {
        .checkpoint_every = checkpoint_every,
        .share = share,
        .time_per_step = bounded ? Duration{std::llround(seconds * std::nano::den)} : longest_run};
}

}  // namespace

void check_failures(const Failures& failures) {
    if (!(failures.mtbf_hours > 0 && failures.mtbf_hours <= longest_mtbf_hours)) {
        refuse(fmt::format("mean time between failures of {} hours: expected more than 0 and at "
                           "most {}",
                           failures.mtbf_hours,
                           longest_mtbf_hours),
               "50000 hours is what large clusters report for one GPU");
    }
    if (failures.devices < 1) {
        refuse(fmt::format("{} devices: expected at least 1", failures.devices),
               "count the devices of all replicas");
    }
    if (failures.step <= Duration{}) {
        refuse("a step that takes no time: nothing can be said of its failures",
               "give the actions a duration");
    }
    if (failures.checkpoint < Duration{} || failures.restart < Duration{}) {
        refuse("a checkpoint or a restart that takes less than no time", "give 0 or more");
    }
}

Goodput expected_goodput(const Failures& failures, int checkpoint_every) {
    check_failures(failures);
    if (checkpoint_every < 1) {
        refuse(fmt::format("a checkpoint every {} steps: expected at least 1", checkpoint_every),
               "leave it out to have the best number found");
    }
    return goodput_of(failures, checkpoint_every);
}

Goodput best_goodput(const Failures& failures) {
    check_failures(failures);
    // The share rises to its maximum and falls from there, so halving finds the first number of
    // steps after which one more brings nothing.
    std::int64_t low = 1;
    std::int64_t high = std::numeric_limits<int>::max();
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (share_of(failures, middle + 1) > share_of(failures, middle)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return goodput_of(failures, static_cast<int>(low));
}

}  // namespace pipetwin::sim
