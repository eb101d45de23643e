#pragma once

#include <time.h>

/// What bench/cpu_training trains, and its clocks.
namespace pipetwin::bench {

struct Sizes {
    int layers = 4;
    int width = 512;
    int heads = 8;
    int positions = 256;
    int vocabulary = 8192;
    int batch = 8;
};
inline constexpr Sizes sizes;

inline double seconds_of(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Seconds of one step.
struct Times {
    double wall = 0;
    double processor = 0;
};

}  // namespace pipetwin::bench
