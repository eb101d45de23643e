// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "core/timeline/timeline.h"

/// Timelines written down by hand.
namespace pipetwin::testing {

/// Ready at its begin.
inline Span span(const Action& action, int begin_ms, int end_ms) {
    const std::chrono::milliseconds begin(begin_ms);
    return {
        .action = action, .begin = begin, .ready = begin, .end = std::chrono::milliseconds(end_ms)};
}

inline Span span(Op op, int begin_ms, int end_ms) {
    return span(Action{.op = op}, begin_ms, end_ms);
}

inline Timeline timeline_of(std::vector<std::vector<Span>> ranks) {
    Timeline timeline;
    timeline.ranks = std::move(ranks);
    return timeline;
}

/// Largest over ranks of last end - first begin of compute.
inline Duration largest_span(const Timeline& timeline) {
    Duration largest{};
    for (const auto& row : timeline.ranks) {
        Duration first = Duration::max();
        Duration last{};
        for (const Span& one : row) {
            if (is_compute(one.action.op)) {
                first = std::min(first, one.begin);
                last = std::max(last, one.end);
            }
        }
        largest = std::max(largest, last - first);
    }
    return largest;
}

}  // namespace pipetwin::testing
