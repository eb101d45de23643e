// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

/// What bench/cpu_training trains, and its clocks.
namespace pipetwin::bench {

struct Sizes {
    int layers = 4;
    int width = 512;
    int heads = 8;
    int key_value_heads = 8;
    int feed_forward = 2048;
    int positions = 256;
    int vocabulary = 8192;
    int batch = 8;
    bool llama = false;

    int head_size() const { return width / heads; }
    int qkv_width() const { return (heads + 2 * key_value_heads) * head_size(); }
};
/// A GPT.
inline constexpr Sizes gpt_sizes;
/// A Llama of as many layers and as wide, with as many numbers in its feed-forward layers.
inline constexpr Sizes llama_sizes{.key_value_heads = 2, .feed_forward = 1408, .llama = true};

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
