// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

namespace pipetwin::bench {

/// What a clock shows, in seconds.
inline double seconds_of(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace pipetwin::bench
