// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "core/base/units.h"
#include "core/costs/collectives/link_cost.h"
#include "core/grid/group_spread.h"

namespace pipetwin {

struct CollectiveTable;

/// How long a message of a process group takes beside its bytes, as training software has it
/// (core/costs/devices/stack.h).
struct GroupLatency {
    Duration fixed{};
    Duration per_device{};  ///< of the group on one node
    Duration per_node{};    ///< behind the first

    bool operator==(const GroupLatency&) const = default;
};

/// Devices that send each other messages of a collective: their places on nodes, and the links
/// between them.
struct DeviceGroup {
    int members = 1;   ///< n
    int per_node = 1;  ///< of them on one node; the last node may have fewer
    LinkCost inside{};
    LinkCost between{};  ///< of each member of a node while all of them send to other nodes
    /// While one member of the node alone sends to another node; none: as `between`.
    std::optional<LinkCost> between_alone{};
    /// What `between` is while each member sends to every other one; none: the same.
    std::optional<LinkCost> between_exchange{};
    /// In place of the links' own latencies and half bandwidths; none: those of the links.
    std::optional<GroupLatency> latency{};
    /// Measured collectives of the devices of a node; null: none are known.
    std::shared_ptr<const CollectiveTable> table{};

    bool operator==(const DeviceGroup&) const = default;
};

/// Members on a full node, g.
int members_in_node(const DeviceGroup& group);

/// Nodes on which the members lie, N.
int nodes_of(const DeviceGroup& group);

/// Links of a node's devices, before groups share them. A node is a domain of fast links here, but
/// for its adapters.
struct NodePorts {
    LinkCost inside{};   ///< between two devices of the node
    LinkCost adapter{};  ///< of one network adapter
    int adapters = 0;    ///< of the node, shared by all of its devices; 0: each device has one
    std::optional<GroupLatency> latency{};
    std::shared_ptr<const CollectiveTable> table{};
    double leaf_bytes_per_second = 0;  ///< of the uplinks of a leaf; 0: as fast as all below send
};

/// The link, where shared links give less than its own rate; 0: nothing is shared.
LinkCost within_share(LinkCost link, double bytes_per_second);

/// Lets groups of such a spread share the uplinks of a leaf (see group_on_nodes).
void share_leaf(DeviceGroup& group, const GroupSpread& spread, double leaf_bytes_per_second);

/// One of several groups of `members` devices that send at the same time. A device of a node has
/// its adapter's rate, or, where more devices leave the node than it has adapters, adapters /
/// devices of that; while one member of each group sends, adapters / groups. Where groups lie below
/// several leaves, a ring has leaf / rings, while one member of each group sends leaf / groups, and
/// an exchange of M, of which each of N nodes keeps M / N, takes crossing_exchange M / leaf.
DeviceGroup group_on_nodes(int members, const GroupSpread& spread, const NodePorts& ports);

}  // namespace pipetwin
