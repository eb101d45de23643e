#pragma once

#include <cstddef>

#include "core/timeline/timeline.h"

namespace pipetwin::sim {

/// Rows of spans are written in turns, so many of them that the processor does not see that each
/// goes on: tells it that a row goes on at `span`.
inline void write_soon(const Span* span) {
    // What lies a visit ahead; it may be beyond the row, where nothing is fetched.
    constexpr std::size_t ahead = 6;
    constexpr int to_write = 1;
    __builtin_prefetch(span + ahead, to_write);
}

}  // namespace pipetwin::sim
