// SPDX-License-Identifier: Apache-2.0
#include "bench/support/memory_track.h"

#include "core/base/error.h"
#include "core/plan/plan.h"

namespace pipetwin::bench {

MemoryTrack::MemoryTrack(const Plan& plan, const sim::TaskGraph& graph)
    : graph_(graph), totals_(memory_totals(plan)) {
    PIPETWIN_EXPECT(!plan->host_link, "what is live follows from the order alone");
    for (const auto& row : plan->schedule.ranks) {
        cells_ += row.size();
    }
}

void MemoryTrack::evaluate(std::span<const Duration> costs,
                           std::span<const Duration> ends,
                           std::span<Duration> times) const {
    PIPETWIN_EXPECT(times.size() == size(), "room for every beginning and end");
    const std::span<const sim::Task> tasks = graph_.tasks();
    Duration* time = times.data();
    for (std::size_t rank = 0; rank < totals_.size(); ++rank) {
        Duration before{};
        for (const sim::CellEnd& cell : graph_.cells(static_cast<int>(rank))) {
            *time++ = before;
            before = ends[cell.task] - (cell.at_begin ? costs[tasks[cell.task].cost] : Duration{});
            *time++ = before;
        }
    }
}

}  // namespace pipetwin::bench
