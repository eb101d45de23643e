// SPDX-License-Identifier: Apache-2.0
#include "core/costs/collectives/device_group.h"

#include <gtest/gtest.h>

#include "core/costs/collectives/collective_table.h"
#include "core/costs/collectives/collective_time.h"
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

/// 16 nodes of eight in leaves of four, adapters of 50 GB/s: 1,600 GB/s below a leaf. Eight rings
/// leave one: with 200 GB/s of uplinks (8 to 1) each has 25, with 800 (2 to 1) more than its
/// adapter. An exchange of M bytes sends 8 x 4 x 12 / 16 = 24 M out of a leaf.
TEST(DeviceGroup, RingsAndExchangesShareTheUplinksOfALeaf) {
    const DeviceGrid grid({.tensor = 8, .data = 16});
    const GroupSpread spread =
        spread_of(grid.groups(Axis::Data), nodes_in_order(128, 8), {.nodes_of_leaf = 4});
    const auto with_uplinks = [&](double rate) {
        NodePorts of = ports(8);
        of.leaf_bytes_per_second = rate;
        return group_on_nodes(16, spread, of);
    };
    EXPECT_EQ(with_uplinks(0).between, with_uplinks(1.6e12).between);
    EXPECT_EQ(with_uplinks(8e11).between.bytes_per_second, 5e10);
    EXPECT_EQ(with_uplinks(2e11).between.bytes_per_second, 2.5e10);
    EXPECT_EQ(with_uplinks(2e11).between_alone->bytes_per_second, 2.5e10);
    for (const double uplinks : {8e11, 2e11}) {
        DeviceGroup group = with_uplinks(uplinks);
        group.between_exchange->latency = {};
        const double seconds = to_seconds(collective_time(
            Collective::AllToAll, CollectiveAlgorithm::Auto, group, Bytes{1'600'000'000}));
        EXPECT_NEAR(seconds, 24 * 1.6e9 / uplinks, 1e-6);
    }
    // Without oversubscription, the adapters: 15 / 16 of the bytes.
    DeviceGroup full = with_uplinks(1.6e12);
    full.between.latency = full.between_exchange->latency = {};
    EXPECT_NEAR(to_seconds(collective_time(
                    Collective::AllToAll, CollectiveAlgorithm::Auto, full, Bytes{1'600'000'000})),
                1.5e9 / 5e10,
                1e-6);
}

TEST(DeviceGroup, ALastNodeMayBePartlyFilled) {
    const DeviceGroup group{.members = 20, .per_node = 8};
    EXPECT_EQ(members_in_node(group), 8);
    EXPECT_EQ(nodes_of(group), 3);
    EXPECT_EQ(members_in_node({.members = 4, .per_node = 8}), 4);
}

}  // namespace device_group_test
}  // namespace pipetwin
