// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "core/base/as_index.h"
#include "core/timeline/footprint.h"
#include "sim/explain/task_graph.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::bench {

/// The memory of every rank over time, for a step whose tasks are evaluated again and again. The
/// bytes after an action follow from the order alone, so they are found once; the times are looked
/// up in each evaluation.
class MemoryTrack {
  public:
    /// The graph is one of the plan. Throws InternalError for a plan that offloads stashes: how
    /// much is live depends on the times there.
    MemoryTrack(const Plan& plan, const sim::TaskGraph& graph);

    /// Bytes that a rank holds, [2 * cell] during an action of its row and [2 * cell + 1] after it.
    std::span<const Bytes> totals(int rank) const { return totals_[as_index(rank)].values; }

    /// Times at which the totals began to be held: the beginnings and the ends of the actions, of
    /// all ranks one after the other. `times` has room for `size` of them.
    void evaluate(std::span<const Duration> costs,
                  std::span<const Duration> ends,
                  std::span<Duration> times) const;
    std::size_t size() const { return 2 * cells_; }

  private:
    const sim::TaskGraph& graph_;
    std::size_t cells_ = 0;
    std::vector<RankTotals> totals_;  ///< [rank]
};

}  // namespace pipetwin::bench
