// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/span_times.h"

#include <algorithm>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

SpanTimes::SpanTimes(std::span<const Span> row) : cells_(row.size()) {
    Duration last = Duration::min();
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
        const Span& span = row[cell];
        PIPETWIN_EXPECT(span.ready >= span.begin && span.end >= span.ready, "a span goes forward");
        PIPETWIN_EXPECT(span.begin >= last, "spans follow each other");
        last = span.end;
        set(cell, span.begin, span.ready, span.end);
    }
}

std::uint32_t SpanTimes::remembered(std::int64_t length, std::size_t place) {
    long_ones_.emplace(place, length);
    return too_long;
}

int SpanTimes::first_beginning_after(Duration time, int first, int last) const {
    const auto next =
        std::upper_bound(cells_.begin() + first,
                         cells_.begin() + last,
                         time.count(),
                         [](std::int64_t wanted, const Cell& cell) { return wanted < cell.begin; });
    return static_cast<int>(next - cells_.begin());
}

void SpanTimes::subtract(Duration zero) {
    if (zero == Duration{0}) {
        return;
    }
    for (Cell& cell : cells_) {
        cell.begin -= zero.count();
    }
}

std::size_t SpanTimes::bytes() const {
    return cells_.capacity() * sizeof(Cell) +
           long_ones_.size() * (sizeof(std::size_t) + sizeof(std::int64_t));
}

StepTimes step_times(Timeline timeline) {
    StepTimes times{.ranks = {},
                    .links = std::move(timeline.links),
                    .host_copies = std::move(timeline.host_copies)};
    times.ranks.reserve(timeline.ranks.size());
    for (const std::vector<Span>& row : timeline.ranks) {
        times.ranks.emplace_back(row);
    }
    return times;
}

Timeline timeline_of(const std::vector<std::vector<Action>>& rows, StepTimes times) {
    PIPETWIN_EXPECT(rows.size() == times.ranks.size(), "times of all rows");
    Timeline timeline;
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        const SpanTimes& row = times.ranks[rank];
        PIPETWIN_EXPECT(std::cmp_equal(rows[rank].size(), row.size()), "times of all actions");
        std::vector<Span>& spans = timeline.ranks.emplace_back();
        spans.reserve(rows[rank].size());
        for (int cell = 0; cell < row.size(); ++cell) {
            spans.push_back({.action = rows[rank][as_index(cell)],
                             .begin = row.begin(cell),
                             .ready = row.ready(cell),
                             .end = row.end(cell)});
        }
    }
    timeline.links = std::move(times.links);
    timeline.host_copies = std::move(times.host_copies);
    return timeline;
}

}  // namespace pipetwin
