// SPDX-License-Identifier: Apache-2.0
#include "core/costs/collectives/device_group.h"

#include <algorithm>

namespace pipetwin {

int members_in_node(const DeviceGroup& group) {
    return std::min(group.members, group.per_node);
}

int nodes_of(const DeviceGroup& group) {
    const int in_node = members_in_node(group);
    return (group.members + in_node - 1) / in_node;
}

namespace {

/// What each of so many senders has of the adapters of a node.
LinkCost shared_adapter(const NodePorts& ports, int senders) {
    LinkCost link = ports.adapter;
    if (ports.adapters > 0 && senders > ports.adapters) {
        link.bytes_per_second *= static_cast<double>(ports.adapters) / senders;
    }
    return link;
}

}  // namespace

LinkCost within_share(LinkCost link, double bytes_per_second) {
    if (bytes_per_second > 0 &&
        (link.bytes_per_second == 0 || bytes_per_second < link.bytes_per_second)) {
        link.bytes_per_second = bytes_per_second;
    }
    return link;
}

void share_leaf(DeviceGroup& group, const GroupSpread& spread, double leaf_bytes_per_second) {
    if (spread.leaves == 1 || leaf_bytes_per_second == 0) {
        return;
    }
    const double nodes = spread.nodes;
    group.between_exchange = within_share(
        group.between, leaf_bytes_per_second * (nodes - 1) / nodes / spread.crossing_exchange);
    group.between_alone = within_share(group.between_alone.value_or(group.between),
                                       leaf_bytes_per_second / spread.crossing_groups);
    group.between = within_share(group.between, leaf_bytes_per_second / spread.crossing_rings);
}

DeviceGroup group_on_nodes(int members, const GroupSpread& spread, const NodePorts& ports) {
    DeviceGroup group{.members = members,
                      .per_node = spread.per_node,
                      .inside = ports.inside,
                      .between = shared_adapter(ports, spread.leaving_devices),
                      .between_alone = shared_adapter(ports, spread.leaving_groups),
                      .latency = ports.latency,
                      .table = ports.table};
    share_leaf(group, spread, ports.leaf_bytes_per_second);
    return group;
}

}  // namespace pipetwin
