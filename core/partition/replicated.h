// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "core/base/units.h"
#include "core/partition/partition.h"

namespace pipetwin {

/// How long `replicas` devices take to sum up gradients of so many bytes; not less for more bytes.
using AllReduceTime = std::function<Duration(Bytes, int replicas)>;

/// A chain of layers and as many like devices. A stage of layers i to j - 1 on r devices, which
/// take its micro-batches in turn, needs for each
///
///     r = 1:   work(i, j)
///     r > 1:   max(work(i, j) / r, all_reduce(weights(i, j), r))
///
/// A boundary is a stage of its own kind: its transfer may take no longer than the largest stage.
struct ReplicationProblem {
    std::vector<Duration> work;        ///< [layer] of one micro-batch on one device
    std::vector<Bytes> weights;        ///< [layer]
    std::vector<Duration> boundary{};  ///< [layer] before it; entry 0 is not read; empty: nothing
    AllReduceTime all_reduce;
    int devices = 1;
    std::vector<int> replicas{};  ///< numbers that a stage may have; empty: all
};

/// Stages, the number of devices that each has, and the largest stage or boundary.
struct ReplicatedSplit {
    Partition partition;
    std::vector<int> replicas;  ///< [stage]
    Duration largest{};         ///< stage or boundary; rounded up to a nanosecond
    int devices_used = 0;
};

/// Chooses stages and the replicas of each so that the largest stage is as small as possible on at
/// most so many devices (PipeDream's hybrid of model and data parallelism).
///
/// Exact. Of several best answers the one with the fewest devices is returned, of those the one
/// with the lexicographically smallest list of sizes; the replicas then follow. Throws
/// Error(Infeasible) if no stage may have as few replicas as there are devices, Error(BadInput) if
/// times or bytes add up to more than an integer holds.
///
/// Bisection on the largest stage; whether a limit can be kept is asked of the fewest devices that
/// the layers from i on need, O(layers * numbers of replicas), in place of PipeDream's table over
/// pairs of boundaries and devices, O(layers^2 * devices^2).
ReplicatedSplit replicated_partition(const ReplicationProblem& problem);

}  // namespace pipetwin
