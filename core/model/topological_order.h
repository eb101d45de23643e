#pragma once

#include <vector>

namespace pipetwin {

/// Vertices of a directed graph, each behind all that it reads.
struct TopologicalOrder {
    std::vector<int> order{};
    /// Ascending: the vertices that could not be placed, as they are part of a circle or read one.
    /// Empty if the graph has none.
    std::vector<int> in_a_circle{};
};

/// `inputs[vertex]`: the vertices that it reads. Where several vertices could come next, the one of
/// the lowest number does, so vertices that are in order already keep it (Kahn's algorithm).
TopologicalOrder topological_order(const std::vector<std::vector<int>>& inputs);

}  // namespace pipetwin
