// SPDX-License-Identifier: Apache-2.0
#include "core/grid/group_spread.h"

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "core/base/as_index.h"

namespace pipetwin {
namespace group_spread_test {

using ::testing::ElementsAre;

/// Spread of groups on nodes that take the devices in order.
GroupSpread spread(const DeviceGrid& grid, AxisSet axes, int per_node) {
    return spread_of(grid.groups(axes), nodes_in_order(grid.devices(), per_node));
}

TEST(GroupSpread, NodesTakeTheDevicesInOrder) {
    EXPECT_THAT(nodes_in_order(5, 2), ElementsAre(0, 0, 1, 1, 2));
}

/// 16 devices, TP 2, CP 2, DP 2, PP 2, on nodes of four: 0 to 3, 4 to 7, 8 to 11, 12 to 15.
TEST(GroupSpread, SaysHowManyGroupsShareANodesAdapters) {
    const DeviceGrid grid({.tensor = 2, .context = 2, .data = 2, .pipeline = 2});
    EXPECT_EQ(spread(grid, Axis::Tensor, 4), (GroupSpread{.nodes = 1, .per_node = 2}));
    EXPECT_EQ(spread(grid, Axis::Tensor | Axis::Context, 4),
              (GroupSpread{.nodes = 1, .per_node = 4}));
    EXPECT_EQ(spread(grid, Axis::Data, 4),
              (GroupSpread{.nodes = 2, .per_node = 1, .leaving_groups = 4, .leaving_devices = 4}));
    EXPECT_EQ(spread(grid, Axis::Data | Axis::Context, 4),
              (GroupSpread{.nodes = 2, .per_node = 2, .leaving_groups = 2, .leaving_devices = 4}));
    EXPECT_EQ(spread(grid, Axis::Pipeline, 8),
              (GroupSpread{.nodes = 2, .per_node = 1, .leaving_groups = 8, .leaving_devices = 8}));
}

/// 64 experts' groups over eight nodes of eight, as DeepSeek-V3's on H800: one group has all
/// adapters of its nodes.
TEST(GroupSpread, OneGroupOverManyNodesHasAllTheirAdapters) {
    const DeviceGrid grid({.expert = 64, .data = 2, .pipeline = 16});
    EXPECT_EQ(spread(grid, Axis::Expert, 8),
              (GroupSpread{.nodes = 8, .per_node = 8, .leaving_groups = 1, .leaving_devices = 8}));
    EXPECT_EQ(spread(grid, Axis::Expert, 72).nodes, 2);
}

/// Nodes of three under groups of two: devices 2 and 3 are on two nodes, and alone send.
TEST(GroupSpread, GroupsThatLieUnevenlyCountByTheOneThatIsSpreadMost) {
    const DeviceGrid grid({.tensor = 2, .data = 3});
    EXPECT_EQ(spread(grid, Axis::Tensor, 3),
              (GroupSpread{.nodes = 2, .per_node = 1, .leaving_groups = 1, .leaving_devices = 1}));
    EXPECT_EQ(spread_of({{0, 1, 2}}, {0, 0, 1}).per_node, 2);
    EXPECT_EQ(spread_of({}, {}), GroupSpread{});
}

/// Counts for each node which groups it has a part of, one device at a time.
GroupSpread counted(const DeviceGroups& groups, const std::vector<int>& node_of) {
    std::map<int, int> group_of;
    std::map<int, std::set<int>> nodes_of_group;
    std::map<std::pair<int, int>, int> on_node;  // [group, node]
    for (std::size_t group = 0; group < groups.size(); ++group) {
        for (const int device : groups[group]) {
            group_of[device] = static_cast<int>(group);
            nodes_of_group[static_cast<int>(group)].insert(node_of[as_index(device)]);
            ++on_node[{static_cast<int>(group), node_of[as_index(device)]}];
        }
    }
    std::map<int, std::set<int>> leaving;
    std::map<int, int> devices;
    GroupSpread spread{.per_node = 1 << 20};
    for (const auto& [group, nodes] : nodes_of_group) {
        int most = 0;
        for (const int node : nodes) {
            most = std::max(most, on_node[{group, node}]);
        }
        spread.per_node = std::min(spread.per_node, most);
        spread.nodes = std::max(spread.nodes, static_cast<int>(nodes.size()));
    }
    for (const auto& [device, group] : group_of) {
        if (nodes_of_group[group].size() > 1) {
            const int node = node_of[as_index(device)];
            leaving[node].insert(group);
            spread.leaving_devices = std::max(spread.leaving_devices, ++devices[node]);
            spread.leaving_groups =
                std::max(spread.leaving_groups, static_cast<int>(leaving[node].size()));
        }
    }
    return spread;
}

TEST(GroupSpread, EqualsACountOfDevicesOnNodesOfEverySize) {
    for (int tensor = 1; tensor <= 4; ++tensor) {
        for (int data = 1; data <= 4; ++data) {
            for (int pipeline = 1; pipeline <= 4; ++pipeline) {
                const DeviceGrid grid({.tensor = tensor, .data = data, .pipeline = pipeline});
                for (int per_node = 1; per_node <= 9; ++per_node) {
                    const std::vector<int> nodes = nodes_in_order(grid.devices(), per_node);
                    for (const AxisSet axes : {AxisSet(Axis::Tensor),
                                               AxisSet(Axis::Data),
                                               AxisSet(Axis::Pipeline),
                                               Axis::Tensor | Axis::Pipeline}) {
                        const DeviceGroups groups = grid.groups(axes);
                        EXPECT_EQ(spread_of(groups, nodes), counted(groups, nodes));
                    }
                }
            }
        }
    }
}

}  // namespace group_spread_test
}  // namespace pipetwin
