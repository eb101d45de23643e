// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/base/units.h"
#include "core/schedule/schedule.h"
#include "sim/bounds/layer_sums.h"

/// What the dependencies of an order say of a step, whatever the partition.
namespace pipetwin::sim {

/// How often a way through an order meets actions of one piece. Means over several ways.
struct PieceCounts {
    double forward = 0;
    double input = 0;
    double weight = 0;
    double again = 0;           ///< in the row of a rank: backwards, with their recompute
    double again_but_last = 0;  ///< of them, those of other micro-batches than the last
};

/// Ways through an order, one for each rank, as their mean.
struct MeanWay {
    std::vector<PieceCounts> of_piece;
    bool ends_with_update = false;
};

/// Micro-batches of a piece that its rank holds at a moment of its row, or in the mean of several.
struct MeanStashes {
    double live = 0;     ///< between F and the last part of their backward
    double pending = 0;  ///< of them, those whose W is still to come
    double next = 0;     ///< of them, those whose backward is the next action
};

/// [moment][piece]: in the mean of the moments at which the piece's rank holds most of all its
/// pieces together; then, for every chunk, at the moment at which its rank holds most of that.
/// `order`: of one pipeline, with as many pieces on every rank.
std::vector<std::vector<MeanStashes>> stashes_of(const Schedule& order);

/// An order of one pipeline of several pieces to a rank.
struct OrderPaths {
    int ranks = 1;
    std::vector<MeanWay> ways;
    std::vector<std::vector<MeanStashes>> stashes;  ///< `stashes_of`

    int pieces() const { return static_cast<int>(stashes.front().size()); }
};

/// The ways of every rank: the forward of one micro-batch through all pieces up to an action of
/// the rank, its row from there to another action, and the backward from there to the first piece.
/// They begin with the first F of a piece, or with the first backward, and end with the update, or
/// with the last backward of a piece.
OrderPaths order_paths(const Schedule& order);

/// What bounds of all partitions of an order depend on beside it.
struct PathsQuestion {
    const LayerSums& sums;
    bool may_keep = true;           ///< what a piece keeps from F to B
    bool may_recompute = false;     ///< a piece, for all micro-batches
    bool keeps_last = false;        ///< of a piece that is recomputed: its last micro-batch
    std::optional<Bytes> memory{};  ///< of a rank, for layers; none: no limit
    bool stashes_on_device = true;  ///< what is kept
};

/// What no partition goes below, with the order's rows. Any mean of ways is a bound, and so is that
/// mean with prices on memory, since all ranks together never hold more than they have room for:
///
///     step >= least over partitions of (time + sum over moments of price * memory)
///             - sum of the prices * ranks * memory of a rank
///
/// A mean and prices that bound well are looked for. None where all ranks together lack memory
/// with any partition. What is not below `ceiling` may be told as that.
std::optional<Duration> bound_of_paths(const OrderPaths& order,
                                       const PathsQuestion& question,
                                       Duration ceiling);

}  // namespace pipetwin::sim
