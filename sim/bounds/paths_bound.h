// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/base/units.h"
#include "core/schedule/recompute.h"
#include "sim/bounds/layer_sums.h"
#include "sim/bounds/order_paths.h"

namespace pipetwin::sim {

/// What bounds of all partitions of an order depend on beside it.
struct PathsQuestion {
    const LayerSums& sums;
    /// What a piece may recompute, each for itself.
    std::vector<Recompute> recomputes{Recompute::None};
    /// Whether memory counts the last micro-batch of a piece that recomputes all others.
    bool counts_last = true;
    std::optional<Bytes> memory{};  ///< of a rank, for layers; none: no limit
    bool stashes_on_device = true;  ///< what is kept
};

/// A mean of ways and prices of memory.
struct WaysAndPrices {
    std::vector<double> shares{};  ///< [way] of the mean; empty: all alike
    std::vector<double> prices{};  ///< [moment] nanoseconds for each byte; empty: none
};

/// How long a mean and prices are looked for that bound well.
struct WaysSearch {
    Duration ceiling = Duration::max();  ///< the result is the smaller of bound and ceiling
    Duration enough = Duration::max();   ///< the search ends once the bound reaches this
    int turns = 24;
    /// In: where the search begins, such as what bounded best for another question about the same
    /// order. Out: what bounded best. Null: it begins with the mean of all ways.
    WaysAndPrices* from = nullptr;
};

/// What no partition goes below, with the order's rows. Any mean of ways is a bound, and so is that
/// mean with prices on memory, since all ranks together never hold more than they have room for:
///
///     step >= least over partitions of (time + sum over moments of price * memory)
///             - sum of the prices * ranks * memory of a rank
///
/// None where all ranks together lack memory with any partition, unless `enough` or `ceiling` is
/// reached before that is looked at.
std::optional<Duration> bound_of_paths(const OrderPaths& order,
                                       const PathsQuestion& question,
                                       const WaysSearch& search = {});

}  // namespace pipetwin::sim
