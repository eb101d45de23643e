// SPDX-License-Identifier: Apache-2.0
#include "core/grid/group_spread.h"

#include <algorithm>
#include <functional>
#include <map>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

namespace {

/// [place]: how many of the group's members lie there. `place_of` a node.
template <class PlaceOf>
std::map<int, int> members_on(const std::vector<int>& group,
                              const std::vector<int>& node_of,
                              PlaceOf place_of) {
    std::map<int, int> members;
    for (const int device : group) {
        ++members[place_of(node_of.at(as_index(device)))];
    }
    return members;
}

int most_of(const std::map<int, int>& members) {
    return std::ranges::max_element(members, {}, &std::pair<const int, int>::second)->second;
}

/// What leaves a node, or a leaf.
struct Leaving {
    int groups = 0;
    int members = 0;
    double exchange = 0;
};

/// The largest over all places.
template <class Number>
Number most(const std::map<int, Leaving>& leaving, Number Leaving::*number) {
    Number largest = 0;
    for (const auto& [place, of] : leaving) {
        largest = std::max(largest, of.*number);
    }
    return largest;
}

}  // namespace

GroupSpread spread_of(const DeviceGroups& groups,
                      const std::vector<int>& node_of,
                      const NodeLevels& levels) {
    std::map<int, Leaving> of_nodes;
    std::map<int, Leaving> of_leaves;
    GroupSpread spread{.per_node = groups.empty() ? 1 : static_cast<int>(groups[0].size())};
    for (const std::vector<int>& group : groups) {
        const auto domains =
            members_on(group, node_of, [&](int node) { return levels.domain_of(node); });
        const int rings = most_of(domains);
        spread.per_node = std::min(spread.per_node, rings);
        spread.nodes = std::max(spread.nodes, static_cast<int>(domains.size()));
        if (domains.size() == 1) {
            continue;
        }
        for (const auto& [node, members] : members_on(group, node_of, std::identity{})) {
            ++of_nodes[node].groups;
            of_nodes[node].members += members;
        }
        const auto leaves =
            members_on(group, node_of, [&](int node) { return levels.leaf_of(node); });
        spread.leaves = std::max(spread.leaves, static_cast<int>(leaves.size()));
        const auto all = static_cast<double>(group.size());
        for (const auto& [leaf, members] : leaves) {
            if (leaves.size() > 1) {
                ++of_leaves[leaf].groups;
                of_leaves[leaf].members += std::min(rings, members);
                of_leaves[leaf].exchange += members * (all - members) / all;
            }
        }
    }
    spread.leaving_groups = most(of_nodes, &Leaving::groups);
    spread.leaving_devices = most(of_nodes, &Leaving::members);
    spread.crossing_groups = most(of_leaves, &Leaving::groups);
    spread.crossing_rings = most(of_leaves, &Leaving::members);
    spread.crossing_exchange = most(of_leaves, &Leaving::exchange);
    return spread;
}

std::vector<int> nodes_in_order(int devices, int per_node) {
    PIPETWIN_EXPECT(per_node >= 1, "a node has at least one device");
    std::vector<int> nodes;
    for (int device = 0; device < devices; ++device) {
        nodes.push_back(device / per_node);
    }
    return nodes;
}

}  // namespace pipetwin
