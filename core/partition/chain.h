// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"
#include "core/partition/partition.h"

/// Exact partition of chains whose boundaries cost time.
namespace pipetwin {

/// A chain of layers for a pipeline of like devices. A stage of layers i to j - 1 costs what its
/// layers do, and its share of the boundaries at i and at j; the ends of the chain are no
/// boundaries.
struct ChainProblem {
    std::vector<Duration> work;        ///< [layer] of one micro-batch
    std::vector<Duration> sender{};    ///< [layer] a boundary before it costs the stage in front
    std::vector<Duration> receiver{};  ///< [layer] a boundary before it costs the stage behind
    int stages = 1;                    ///< entry 0 of both lists is not read; empty: nothing
};

/// Stages and the cost of the largest.
struct ChainSplit {
    Partition partition;
    Duration largest{};
};

/// Splits the chain so that the largest stage is as small as possible.
///
/// Exact, though costs of cuts are not monotone. Of several best splits the lexicographically
/// smallest list of sizes is returned. Throws Error(Infeasible), naming both numbers, if there are
/// fewer layers than stages, and Error(BadInput) if times add up to more than 73 years.
/// O(stages * layers * w), w = layers that a stage near the best limit may have at most.
ChainSplit smallest_largest_stage(const ChainProblem& problem);

}  // namespace pipetwin
