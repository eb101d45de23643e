// SPDX-License-Identifier: Apache-2.0
#include "core/costs/collectives/device_group.h"

#include <gtest/gtest.h>

#include "core/costs/collectives/collective_table.h"
#include "core/grid/device_grid.h"

namespace pipetwin {
namespace device_group_test {

/// Ports with 300 GB/s inside and 50 GB/s for each adapter.
NodePorts ports(int adapters) {
    return {.inside = {.latency = Duration(3000), .bytes_per_second = 3e11},
            .adapter = {.latency = Duration(5000), .bytes_per_second = 5e10},
            .adapters = adapters};
}

/// 64 devices on 8 nodes, TP of `tensor` first, then data: groups along data.
GroupSpread data_groups(int tensor) {
    const DeviceGrid grid({.tensor = tensor, .data = 64 / tensor}, pipeline_last);
    return spread_of(grid.groups({Axis::Data}), nodes_in_order(64, 8));
}

TEST(DeviceGroup, EveryDeviceHasTheAdapterThatIsItsOwn) {
    const DeviceGroup group = group_on_nodes(8, data_groups(8), ports(8));
    EXPECT_EQ(group.members, 8);
    EXPECT_EQ(group.per_node, 1);
    EXPECT_EQ(nodes_of(group), 8);
    EXPECT_EQ(group.between.bytes_per_second, 5e10);
    EXPECT_EQ(group.between.latency, Duration(5000));
    EXPECT_EQ(group.inside.bytes_per_second, 3e11);
}

/// 8 groups of one device on each node send over 4, 2 or 1 adapters.
TEST(DeviceGroup, GroupsOfANodeShareItsAdapters) {
    for (const int adapters : {4, 2, 1}) {
        const DeviceGroup group = group_on_nodes(8, data_groups(8), ports(adapters));
        EXPECT_EQ(group.between.bytes_per_second, 5e10 * adapters / 8);
        EXPECT_EQ(group.between_alone->bytes_per_second, 5e10 * adapters / 8);
    }
}

/// One group with all eight devices of every node: alone, one of them has an adapter.
TEST(DeviceGroup, MembersOfOneGroupShareTheAdaptersOnlyWhileAllSend) {
    const DeviceGroup group = group_on_nodes(64, data_groups(1), ports(4));
    EXPECT_EQ(group.per_node, 8);
    EXPECT_EQ(nodes_of(group), 8);
    EXPECT_EQ(group.between.bytes_per_second, 2.5e10);
    EXPECT_EQ(group.between_alone->bytes_per_second, 5e10);
}

TEST(DeviceGroup, NoMoreThanAnAdapterIsADevices) {
    const GroupSpread spread{.nodes = 2, .per_node = 1, .leaving_groups = 2, .leaving_devices = 2};
    const DeviceGroup group = group_on_nodes(2, spread, ports(8));
    EXPECT_EQ(group.between.bytes_per_second, 5e10);
    EXPECT_EQ(group_on_nodes(2, spread, ports(0)).between.bytes_per_second, 5e10);
}

TEST(DeviceGroup, ALastNodeMayBePartlyFilled) {
    const DeviceGroup group{.members = 20, .per_node = 8};
    EXPECT_EQ(members_in_node(group), 8);
    EXPECT_EQ(nodes_of(group), 3);
    EXPECT_EQ(members_in_node({.members = 4, .per_node = 8}), 4);
}

}  // namespace device_group_test
}  // namespace pipetwin
