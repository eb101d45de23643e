// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"
#include "core/partition/partition.h"

namespace pipetwin {

class Model;

/// Layers in an order in which the stages are contiguous; every layer comes after those it reads.
struct GraphSplit {
    std::vector<int> order;  ///< of the model's layers; inside a stage ascending
    Partition partition;     ///< of that order
    Duration largest{};
    bool is_exact = false;  ///< false: too many ideals; the best split of the model's own order
    int ideals = 0;         ///< that the search has tried; 0 where there are too many
};

/// A graph with more ideals is split along the model's order.
constexpr int most_ideals = 20'000;

/// Splits a graph with branches so that the largest stage is as small as possible. `work`: [layer]
/// its time.
///
/// Boundaries are ideals of the graph, each within the next one, so that no stage reads from a
/// later one; stages need not be connected. Exact up to `ideal_limit` ideals; beyond, the best
/// split of the model's topological order. Of several best splits the one
/// whose first stage has the fewest layers is returned, of those the one with the earliest layers,
/// and so on stage by stage. Throws Error(Infeasible), naming both numbers, if there are fewer
/// layers than stages. O(ideals^2 * stages), of which only pairs of ideals are looked at that are
/// no further apart than the largest stage of the model's own order. Source: dynamic programming
/// over ideals, Tarnawski et al., "Efficient Algorithms for Device
/// Placement of DNN Graph Operators", NeurIPS 2020, section 5.
GraphSplit graph_partition(const Model& model,
                           const std::vector<Duration>& work,
                           int stages,
                           int ideal_limit = most_ideals);

}  // namespace pipetwin
