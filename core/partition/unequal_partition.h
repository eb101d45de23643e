#pragma once

#include <vector>

#include "core/base/units.h"
#include "core/partition/partition.h"

namespace pipetwin {

/// Cost of each layer on each kind of device, and the kind of device that holds each stage.
struct UnequalCosts {
    std::vector<std::vector<Duration>> of_layer;  ///< [kind][layer]
    std::vector<int> kind_of_stage;
};

/// Splits a chain of layers into contiguous stages, in the given order of devices, so that the
/// largest stage is as small as possible on the device that holds it.
///
/// Exact. Of several best splits the one with the earliest boundaries is returned, as by
/// `balanced_partition`, which this agrees with where all devices are alike. Throws
/// Error(Infeasible) naming both numbers if there are fewer layers than stages. Costs are not
/// negative. O(stages * layers * log(total cost)). Source: dynamic programming over stages and
/// boundaries, as in PipeDream (Narayanan et al., SOSP 2019, section 3.1) without replication, for
/// each limit of a bisection on the largest stage.
Partition unequal_partition(const UnequalCosts& costs);

}  // namespace pipetwin
