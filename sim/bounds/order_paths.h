// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "core/schedule/schedule.h"

/// What the dependencies of an order say of a step, whatever the partition.
namespace pipetwin::sim {

/// How often a way through an order meets actions of one piece. Means over several ways; of the two
/// parts of a way that have the same actions too many and too few.
struct PieceCounts {
    double forward = 0;
    double input = 0;
    double weight = 0;
    double again = 0;           ///< in the row of a rank: backwards, with their recompute
    double again_but_last = 0;  ///< of them, those of other micro-batches than the last
};

/// Micro-batches of a piece that its rank holds at a moment of its row, or in the mean of several.
struct MeanStashes {
    double live = 0;     ///< between F and the last part of their backward
    double pending = 0;  ///< of them, those whose W is still to come
    double next = 0;     ///< of them, those whose backward is the next action
    double last = 0;     ///< of them, the step's last micro-batch, if neither pending nor next

    void add(const MeanStashes& other, double share) {
        live += share * other.live;
        pending += share * other.pending;
        next += share * other.next;
        last += share * other.last;
    }
};

/// [moment][piece]: in the mean of the moments at which the piece's rank holds most of all its
/// pieces together; then, for every chunk, at the moment at which its rank holds most of that; then
/// when most of its pieces hold the last micro-batch; then, for every chunk, when its rank holds
/// most and a backward of that chunk is the next action. `order`: of one pipeline, with as many
/// pieces on every rank.
std::vector<std::vector<MeanStashes>> stashes_of(const Schedule& order);

/// An order of one pipeline of several pieces to a rank, and ways through it, one for each rank, as
/// their mean.
struct OrderPaths {
    /// A beginning and an end.
    struct Way {
        std::size_t from = 0;
        std::size_t to = 0;
    };
    int ranks = 1;
    std::vector<Way> ways;
    /// [from][piece]: what lies before the beginning, less the row's actions before it.
    std::vector<std::vector<PieceCounts>> begins;
    /// [to][piece]: the row's actions before the end, and what lies behind it.
    std::vector<std::vector<PieceCounts>> ends;
    std::vector<std::vector<MeanStashes>> stashes;  ///< `stashes_of`

    int pieces() const { return static_cast<int>(stashes.front().size()); }
    bool ends_with_update(const Way& way) const { return way.to + 1 == ends.size(); }
};

/// The ways of every rank: the forward of one micro-batch through all pieces up to an action of
/// the rank, its row from there to another action, and the backward from there to the first piece.
/// They begin with the first F of each of its pieces, or with the first backward, and end with the
/// last backward of each of them, or with the update.
OrderPaths order_paths(const Schedule& order);

}  // namespace pipetwin::sim
