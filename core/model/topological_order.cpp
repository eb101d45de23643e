// SPDX-License-Identifier: Apache-2.0
#include "core/model/topological_order.h"

#include <algorithm>
#include <cstddef>
#include <functional>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/strong_components.hpp>
#include <boost/range/iterator_range.hpp>
#include <queue>

#include "core/base/as_index.h"

namespace pipetwin {

namespace {

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

/// The strongly connected parts of the graph that hold an edge, by their lowest vertex.
std::vector<std::vector<int>> circles_of(const Graph& graph) {
    std::vector<std::size_t> part_of(num_vertices(graph));
    const std::size_t count = boost::strong_components(
        graph, boost::make_iterator_property_map(part_of.begin(), get(boost::vertex_index, graph)));
    std::vector<std::vector<int>> parts(count);
    for (std::size_t vertex = 0; vertex < part_of.size(); ++vertex) {
        parts[part_of[vertex]].push_back(static_cast<int>(vertex));
    }
    std::erase_if(parts, [&graph](const std::vector<int>& part) {
        const std::size_t first = as_index(part.front());
        return part.size() == 1 && !edge(first, first, graph).second;
    });
    std::ranges::sort(parts, {}, [](const std::vector<int>& part) { return part.front(); });
    return parts;
}

}  // namespace

TopologicalOrder topological_order(const std::vector<std::vector<int>>& inputs) {
    Graph graph(inputs.size());
    for (std::size_t vertex = 0; vertex < inputs.size(); ++vertex) {
        for (const int input : inputs[vertex]) {
            add_edge(as_index(input), vertex, graph);
        }
    }
    std::vector<std::size_t> missing;  // inputs that are not placed yet, by vertex
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (const std::size_t vertex : boost::make_iterator_range(vertices(graph))) {
        missing.push_back(in_degree(vertex, graph));
        if (missing.back() == 0) {
            ready.push(vertex);
        }
    }
    TopologicalOrder result;
    while (!ready.empty()) {
        const std::size_t next = ready.top();
        ready.pop();
        result.order.push_back(static_cast<int>(next));
        for (const std::size_t reader :
             boost::make_iterator_range(adjacent_vertices(next, graph))) {
            if (--missing[reader] == 0) {
                ready.push(reader);
            }
        }
    }
    if (result.order.size() < inputs.size()) {
        result.circles = circles_of(graph);
    }
    return result;
}

}  // namespace pipetwin
