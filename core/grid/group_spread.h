// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/grid/device_grid.h"

namespace pipetwin {

/// How groups lie on nodes.
struct GroupSpread {
    int nodes = 1;     ///< of the group that lies on most
    int per_node = 1;  ///< members of a group on one node, of the group with the smallest maximum
    /// Groups with members on one node and on others: they send over its network adapters at once;
    /// on the node with most of them. 0: no group leaves its node.
    int leaving_groups = 0;
    int leaving_devices = 0;  ///< their members on a node, on the node with most of them

    bool operator==(const GroupSpread&) const = default;
};

/// The spread of groups of equal size whose members lie on these nodes. `node_of`: [device].
GroupSpread spread_of(const DeviceGroups& groups, const std::vector<int>& node_of);

/// [device]: its node, where nodes take the devices in order, `per_node` to each.
std::vector<int> nodes_in_order(int devices, int per_node);

}  // namespace pipetwin
