// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace pipetwin {

/// Vertices of a directed graph, each behind all that it reads.
struct TopologicalOrder {
    std::vector<int> order{};
    /// Vertices that wait for each other, each list ascending, and a vertex that reads itself
    /// alone. They, and what reads them, are not in the order.
    std::vector<std::vector<int>> circles{};
};

/// `inputs[vertex]`: the vertices that it reads. Where several vertices could come next, the one of
/// the lowest number does, so vertices that are in order already keep it (Kahn's algorithm).
TopologicalOrder topological_order(const std::vector<std::vector<int>>& inputs);

}  // namespace pipetwin
