// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/timeline.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"

namespace pipetwin {

std::string_view to_string(Origin origin) {
    switch (origin) {
        case Origin::Predicted:
            return "predicted";
        case Origin::Measured:
            return "measured";
        case Origin::Emulated:
            return "emulated";
    }
    PIPETWIN_EXPECT(false, "origin out of range");
}

namespace {

/// Last end - first begin over the spans that `counts` accepts; zero if there are none.
template <class Counts>
Duration extent(const Timeline& timeline, Counts counts) {
    Duration first = Duration::max();
    Duration last = Duration::min();
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            if (counts(span.action.op)) {
                first = std::min(first, span.begin);
                last = std::max(last, span.end);
            }
        }
    }
    return first > last ? Duration{} : last - first;
}

}  // namespace

Duration pipeline_time(const Timeline& timeline) {
    return extent(timeline, [](Op op) { return has_micro_batch(op); });
}

Duration step_time(const Timeline& timeline) {
    return extent(timeline, [](Op) { return true; });
}

void note_in_groups(Timeline& timeline, std::size_t rank, std::size_t cell, Duration time) {
    if (timeline.in_groups.empty()) {
        for (const std::vector<Span>& row : timeline.ranks) {
            timeline.in_groups.emplace_back(row.size());
        }
    }
    timeline.in_groups[rank][cell] = time;
}

Timeline aligned(Timeline timeline) {
    Duration first = Duration::max();
    for (std::size_t row = 0; row < timeline.row_count(); ++row) {
        for (const Span& span : timeline.row_at(row)) {
            first = std::min(first, span.begin);
        }
    }
    if (first == Duration::max()) {
        return timeline;
    }
    const auto shift = [first](std::vector<std::vector<Span>>& rows) {
        for (auto& row : rows) {
            for (Span& span : row) {
                span.begin -= first;
                span.ready -= first;
                span.end -= first;
            }
        }
    };
    shift(timeline.ranks);
    shift(timeline.links);
    shift(timeline.host_copies);
    for (auto& rows : timeline.replicas) {
        shift(rows);
    }
    return timeline;
}

}  // namespace pipetwin
