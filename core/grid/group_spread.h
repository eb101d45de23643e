// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/grid/device_grid.h"

namespace pipetwin {

/// What joins neighbouring nodes: fast links, in domains of so many nodes, and switches of the
/// network, below each of which are so many. A leaf has whole domains.
struct NodeLevels {
    int nodes_of_domain = 1;
    int nodes_of_leaf = 0;  ///< 0: all nodes are below one

    int domain_of(int node) const { return node / nodes_of_domain; }
    int leaf_of(int node) const { return nodes_of_leaf > 0 ? node / nodes_of_leaf : 0; }
};

/// How groups lie on nodes. Where fast links join several nodes, a domain of them is what a node is
/// without.
struct GroupSpread {
    int nodes = 1;     ///< domains of the group that lies on most
    int per_node = 1;  ///< members of a group in one domain, of the group with the smallest maximum
    /// Groups with members on one node and in other domains: they send over its network adapters at
    /// once; on the node with most of them. 0: no group leaves its domain.
    int leaving_groups = 0;
    int leaving_devices = 0;  ///< their members on a node, on the node with most of them
    int leaves = 1;           ///< of the group that lies below most
    /// Groups with members below one leaf and below others, below the leaf with most of them.
    int crossing_groups = 0;
    /// Members of these in one domain, each with a ring of its own through all domains of a group;
    /// below the leaf with most of them.
    int crossing_rings = 0;
    /// Messages from each member to every other, of equal parts of what it has: how many times what
    /// one member has goes from one leaf to others, from the leaf with most of it.
    double crossing_exchange = 0;

    bool operator==(const GroupSpread&) const = default;
};

/// The spread of groups of equal size whose members lie on these nodes. `node_of`: [device].
GroupSpread spread_of(const DeviceGroups& groups,
                      const std::vector<int>& node_of,
                      const NodeLevels& levels = {});

/// [device]: its node, where nodes take the devices in order, `per_node` to each.
std::vector<int> nodes_in_order(int devices, int per_node);

}  // namespace pipetwin
