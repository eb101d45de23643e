// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/timeline/timeline.h"
#include "sim/engine/conditions.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::sim {

/// The copies of stashes to host memory and back, as a rank goes through its row. Its link to host
/// memory has two directions, and each carries one copy after the other, which occupies it for its
/// bytes and is complete one latency later. All is local to the rank, and known at once, where that
/// link is its own; where it is shared with others, the caller carries the copies
/// and says when each ends.
///
///     out    begins when its F has ended
///     in     begins when the compute action before the one that needs it has begun to compute, so
///            that two stashes are on their way or in use at most; and not before it is out
class HostCopies {
  public:
    /// Prepares the copies of all ranks; none if the conditions have no link to host memory. Keeps
    /// references to both.
    HostCopies(const Plan& plan, const Conditions& conditions);

    /// Time at which the stash that a compute action needs has come back; 0 where it never left,
    /// `unknown` while others still share its way. Call it when the rank has begun all that is
    /// before the action in its row.
    Duration came(int rank, std::size_t cell) const;

    static constexpr Duration unknown = Duration::max();

    /// A copy that may set out, at `earliest`, over a way of Contention::way_of_copies.
    struct Wish {
        int way = 0;
        Action action;
        std::int64_t units = 0;
        Duration earliest{};
    };
    /// The copies to carry over shared links that are new since the last call.
    std::vector<Wish> take_wishes() { return std::exchange(wishes_, {}); }
    /// The first copy of those handed out for this way is through: it set out at `begin`, and
    /// leaves the link at `now`. Returns when it is complete.
    Duration through(int way, Duration begin, Duration now);

    /// A compute action of the row begins to compute.
    void begins(int rank, std::size_t cell, Duration now);
    /// A compute action of the row ends.
    void ends(int rank, std::size_t cell, Duration now);

    /// The copies as rows of a timeline, Timeline::host_copies.
    std::vector<std::vector<Span>> take_rows();

  private:
    static constexpr std::int32_t none = -1;

    /// The copies of its rank that a cell makes, lets in, and needs.
    struct Cell {
        std::int32_t makes = none;
        std::int32_t lets_in = none;
        std::int32_t needs = none;
    };
    struct Copy {
        std::size_t forward = 0;  ///< cell
        std::size_t user = 0;     ///< cell
        Bytes bytes{};
        Duration out_occupation{};
        Duration in_occupation{};
        Duration out = unknown;     ///< when it has left the device
        Duration in = unknown;      ///< when it is back
        Duration let_in = unknown;  ///< from when on it may come back
    };

    const Cell& cell_at(int rank, std::size_t cell) const { return cells_[as_index(rank)][cell]; }
    Copy& copy_at(int rank, std::int32_t number) {
        return copies_[as_index(rank)][as_index(number)];
    }

    /// Carries a copy over a direction of a rank's link; returns when it is complete.
    Duration carry(std::size_t direction,
                   const Action& action,
                   Duration earliest,
                   Duration occupation);
    void wish(int way, std::int32_t number, Duration earliest);
    double factor_of(std::size_t rank, std::size_t cell) const;

    const Plan& plan_;
    const Conditions& conditions_;
    bool shares_;
    Duration latency_{};
    std::vector<std::vector<Cell>> cells_;   ///< [rank][cell]
    std::vector<std::vector<Copy>> copies_;  ///< [rank]
    std::vector<std::vector<Span>> rows_;    ///< [2 * rank] out, [2 * rank + 1] in
    std::vector<Wish> wishes_;
    std::vector<std::deque<std::int32_t>> carried_;  ///< [way]: copies that were handed out
};

}  // namespace pipetwin::sim
