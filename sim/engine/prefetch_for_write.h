// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "core/timeline/timeline.h"

namespace pipetwin::sim {

/// Prefetches the row behind `span` for writing: with many rows written in turn the hardware
/// prefetcher cannot follow.
inline void prefetch_for_write(const Span* span) {
    // What lies a visit ahead; it may be beyond the row, where nothing is fetched.
    constexpr std::size_t ahead = 6;
    constexpr int to_write = 1;
    __builtin_prefetch(span + ahead, to_write);
}

}  // namespace pipetwin::sim
