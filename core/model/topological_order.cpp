#include "core/model/topological_order.h"

#include <cstddef>
#include <functional>

#include <boost/graph/adjacency_list.hpp>
#include <boost/range/iterator_range.hpp>
#include <queue>

#include "core/base/as_index.h"

namespace pipetwin {

TopologicalOrder topological_order(const std::vector<std::vector<int>>& inputs) {
    using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;
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
    for (std::size_t vertex = 0; vertex < missing.size(); ++vertex) {
        if (missing[vertex] > 0) {
            result.in_a_circle.push_back(static_cast<int>(vertex));
        }
    }
    return result;
}

}  // namespace pipetwin
