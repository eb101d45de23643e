// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/base/units.h"
#include "sim/bounds/layer_sums.h"
#include "sim/bounds/order_paths.h"

namespace pipetwin::sim {

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
