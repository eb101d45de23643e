// SPDX-License-Identifier: Apache-2.0
#include "core/grid/group_spread.h"

#include <algorithm>
#include <map>
#include <numeric>
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

/// 32 devices, TP 2, DP 4, PP 4, on nodes of four: two nodes of a domain have 0 to 7, which are the
/// replicas of a rank.
TEST(GroupSpread, FastLinksJoinTheNodesOfADomain) {
    const DeviceGrid grid({.tensor = 2, .data = 4, .pipeline = 4});
    const auto in_domains = [&](AxisSet axes) {
        return spread_of(grid.groups(axes), nodes_in_order(32, 4), {.nodes_of_domain = 2});
    };
    EXPECT_EQ(in_domains(Axis::Data), (GroupSpread{.nodes = 1, .per_node = 4}));
    EXPECT_EQ(spread(grid, Axis::Data, 4).nodes, 2);
    EXPECT_EQ(in_domains(Axis::Pipeline),
              (GroupSpread{.nodes = 4, .per_node = 1, .leaving_groups = 4, .leaving_devices = 4}));
    // Adapters are those of a node: one of eight members of the domain leaves by it, or four.
    EXPECT_EQ(in_domains(Axis::Tensor | Axis::Data | Axis::Pipeline),
              (GroupSpread{.nodes = 4, .per_node = 8, .leaving_groups = 1, .leaving_devices = 4}));
}

/// 16 nodes of eight in four leaves. Replicas with TP 8: eight groups of one device on each node,
/// so that eight rings leave a leaf, which has 4 of the 16 members of each; of what one of these
/// has, 12 / 16 go to other leaves.
TEST(GroupSpread, RingsLeaveALeafOnceAndExchangesWithMostOfTheirBytes) {
    const NodeLevels leaves{.nodes_of_leaf = 4};
    const DeviceGrid rails({.tensor = 8, .data = 16});
    EXPECT_EQ(spread_of(rails.groups(Axis::Data), nodes_in_order(128, 8), leaves),
              (GroupSpread{.nodes = 16,
                           .per_node = 1,
                           .leaving_groups = 8,
                           .leaving_devices = 8,
                           .leaves = 4,
                           .crossing_groups = 8,
                           .crossing_rings = 8,
                           .crossing_exchange = 8 * 4 * 12. / 16}));
    // One group of all devices: eight rings through all nodes.
    const DeviceGrid one({.data = 128});
    EXPECT_EQ(spread_of(one.groups(Axis::Data), nodes_in_order(128, 8), leaves),
              (GroupSpread{.nodes = 16,
                           .per_node = 8,
                           .leaving_groups = 1,
                           .leaving_devices = 8,
                           .leaves = 4,
                           .crossing_groups = 1,
                           .crossing_rings = 8,
                           .crossing_exchange = 32 * 96. / 128}));
    // Groups of four nodes stay below their leaf.
    const DeviceGrid below({.expert = 32, .data = 4});
    EXPECT_EQ(spread_of(below.groups(Axis::Expert), nodes_in_order(128, 8), leaves).leaves, 1);
    EXPECT_EQ(spread_of(below.groups(Axis::Expert), nodes_in_order(128, 8), leaves).crossing_rings,
              0);
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

/// Members of a group in the domain of a device.
int beside(const std::vector<int>& group,
           int device,
           const std::vector<int>& node_of,
           int nodes_of_domain) {
    return static_cast<int>(std::ranges::count_if(group, [&](int other) {
        return node_of[as_index(other)] / nodes_of_domain ==
               node_of[as_index(device)] / nodes_of_domain;
    }));
}

/// Counts pairs of members whose messages leave the leaf.
TEST(GroupSpread, ExchangesBetweenLeavesEqualACountOfPairs) {
    for (int tensor = 1; tensor <= 4; ++tensor) {
        for (int data = 2; data <= 12; ++data) {
            const DeviceGrid grid({.tensor = tensor, .data = data});
            const std::vector<int> nodes = nodes_in_order(grid.devices(), 3);
            for (const int in_domain : {1, 2}) {
                const NodeLevels levels{.nodes_of_domain = in_domain,
                                        .nodes_of_leaf = 2 * in_domain};
                for (const AxisSet axes : {AxisSet(Axis::Data), Axis::Tensor | Axis::Data}) {
                    std::map<int, double> leaving;
                    int in_one_domain = 1 << 20;
                    const DeviceGroups groups = grid.groups(axes);
                    for (const std::vector<int>& group : groups) {
                        int most = 0;
                        for (const int from : group) {
                            most = std::max(most, beside(group, from, nodes, in_domain));
                            for (const int to : group) {
                                const int leaf = levels.leaf_of(nodes[as_index(from)]);
                                if (leaf != levels.leaf_of(nodes[as_index(to)])) {
                                    leaving[leaf] += 1. / static_cast<double>(group.size());
                                }
                            }
                        }
                        in_one_domain = std::min(in_one_domain, most);
                    }
                    double expected = 0;
                    for (const auto& [leaf, messages] : leaving) {
                        expected = std::max(expected, messages);
                    }
                    const GroupSpread spread = spread_of(groups, nodes, levels);
                    EXPECT_NEAR(spread.crossing_exchange, expected, 1e-9);
                    EXPECT_EQ(spread.per_node, in_one_domain);
                    EXPECT_EQ(spread.leaves > 1, expected > 0);
                }
            }
        }
    }
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
                        const int again =
                            std::min(std::lcm(grid.period(axes), per_node), grid.devices());
                        EXPECT_EQ(spread_of(grid.groups(axes, again), nodes),
                                  counted(groups, nodes));
                    }
                }
            }
        }
    }
}

}  // namespace group_spread_test
}  // namespace pipetwin
