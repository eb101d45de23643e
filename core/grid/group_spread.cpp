// SPDX-License-Identifier: Apache-2.0
#include "core/grid/group_spread.h"

#include <algorithm>
#include <map>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

namespace {

/// [node]: how many of the group's members lie there.
std::map<int, int> members_on_nodes(const std::vector<int>& group,
                                    const std::vector<int>& node_of) {
    std::map<int, int> members;
    for (const int device : group) {
        ++members[node_of.at(as_index(device))];
    }
    return members;
}

}  // namespace

GroupSpread spread_of(const DeviceGroups& groups, const std::vector<int>& node_of) {
    struct Leaving {
        int groups = 0;
        int devices = 0;
    };
    std::map<int, Leaving> leaving;  // [node]
    GroupSpread spread{.per_node = groups.empty() ? 1 : static_cast<int>(groups[0].size())};
    for (const std::vector<int>& group : groups) {
        int most = 0;
        const std::map<int, int> on_node = members_on_nodes(group, node_of);
        for (const auto& [node, members] : on_node) {
            most = std::max(most, members);
            if (on_node.size() > 1) {
                ++leaving[node].groups;
                leaving[node].devices += members;
            }
        }
        spread.per_node = std::min(spread.per_node, most);
        spread.nodes = std::max(spread.nodes, static_cast<int>(on_node.size()));
    }
    for (const auto& [node, of_node] : leaving) {
        spread.leaving_groups = std::max(spread.leaving_groups, of_node.groups);
        spread.leaving_devices = std::max(spread.leaving_devices, of_node.devices);
    }
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
