// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/shard_group.h"

#include <gmock/gmock.h>

#include "core/scenario/cluster.h"
#include "tests/support/builders.h"
#include "tests/support/scenario_plans.h"

namespace pipetwin {
namespace shard_group_test {

using testing::chain_profile;
using ::testing::HasSubstr;
using testing::partitioned;
using testing::plan_error_of;
using testing::plan_of;

/// Two ranks, of 200 and 300 bytes of weights; a ring, 1 ns per byte and 1 us, between nodes 10 ns
/// per byte and 5 us.
SettledScenario sharing(int replicas, int per_node, const ShardGroup& group) {
    SettledScenario scenario = partitioned({2, 3}, 2, 2 * replicas);
    scenario.pipeline.data_parallel = replicas;
    scenario.pipeline.shard = Shard::Optimizer;
    scenario.pipeline.shard_group = group;
    scenario.pipeline.all_reduce = AllReduceKind::Ring;
    scenario.cluster.per_node = per_node;
    scenario.cluster.link_gbps = 8;
    scenario.cluster.link_latency_us = 1;
    scenario.cluster.node_link_gbps = 0.8;
    scenario.cluster.node_link_latency_us = 5;
    return scenario;
}

constexpr ShardGroup of_node{.of_node = true};

TEST(ShardGroup, DividesTheOptimizersStateInsideItAlone) {
    // 25 numbers of each layer of stage 1, of which the first of four has 7 and the first of two
    // 13; each with two of Adam's.
    EXPECT_EQ(plan_of(sharing(4, 8, {}))->states[1].optimizer_state, Bytes{2 * 4 * 3 * 7});
    EXPECT_EQ(plan_of(sharing(4, 8, {.replicas = 2}))->states[1].optimizer_state,
              Bytes{2 * 4 * 3 * 13});
    EXPECT_EQ(plan_of(sharing(4, 2, of_node))->states[1].optimizer_state, Bytes{2 * 4 * 3 * 13});
    EXPECT_EQ(plan_of(sharing(4, 8, of_node))->states[1].optimizer_state, Bytes{2 * 4 * 3 * 7});
}

/// 200 bytes: half a ring inside, then a ring of 100 between groups; weights come back inside.
TEST(ShardGroup, SumsInsideAndThenBetweenGroups) {
    const Plan one_node = plan_of(sharing(4, 8, {.replicas = 2}));
    EXPECT_EQ(one_node->all_reduce[0], Duration((1000 + 100) + 2 * (1000 + 50)));
    EXPECT_EQ(one_node->weight_gather[0], Duration(1000 + 100));
    const Plan nodes = plan_of(sharing(4, 2, of_node));
    EXPECT_EQ(nodes->all_reduce[0], Duration((1000 + 100) + 2 * (5000 + 10 * 50)));
    EXPECT_EQ(nodes->weight_gather[0], Duration(1000 + 100));
}

TEST(ShardGroup, AllReplicasOfOneNodeAreTheGroupThatNoKeySays) {
    const Plan all = plan_of(sharing(4, 8, {}));
    for (const ShardGroup& group : {ShardGroup{.replicas = 4}, of_node}) {
        const Plan plan = plan_of(sharing(4, 8, group));
        EXPECT_EQ(plan->all_reduce, all->all_reduce);
        EXPECT_EQ(plan->weight_gather, all->weight_gather);
        EXPECT_EQ(plan->states[1].optimizer_state, all->states[1].optimizer_state);
    }
}

/// 100 bytes a layer. Forward: weights of the group; backward: these, half a sum of the group, and
/// sums of 50 bytes over two nodes.
TEST(ShardGroup, LayersGatherTheWeightsOfTheirGroup) {
    SettledScenario scenario = sharing(4, 2, of_node);
    scenario.pipeline.shard = Shard::Weights;
    const Plan plan = plan_of(scenario);
    const Duration inside(1000 + 50);
    EXPECT_EQ(plan.cost(1, 0).forward, 3 * inside);
    EXPECT_EQ(plan.cost(1, 0).backward, 3 * (2 * inside + 2 * Duration(5000 + 10 * 25)));
    EXPECT_EQ(plan->states[1].weights, Bytes{3 * 13 * 4});  // 13 of each layer's 25 numbers
    EXPECT_EQ(plan->states[1].gradients, Bytes{3 * 13 * 4});
}

TEST(ShardGroup, NodesOfRoundRobinPlacementHaveReplicasThatAreNoNeighbours) {
    SettledScenario scenario = sharing(4, 4, of_node);
    scenario.cluster.placement = Placement::RoundRobin;  // rank 0: nodes 0, 0, 0, 0
    EXPECT_EQ(group_size(scenario), 4);
    scenario = sharing(4, 2, of_node);
    scenario.pipeline.stages = 1;
    scenario.pipeline.partition = std::vector{5};
    scenario.cluster.placement = Placement::RoundRobin;  // nodes 0, 1, 0, 1
    const DeviceGrid grid = DeviceGrid({.data = 4}, data_last);
    EXPECT_EQ(group_size(scenario), 2);
    EXPECT_EQ(shard_groups(of_node, scenario.cluster, grid, 0, 2), (DeviceGroups{{0, 2}, {1, 3}}));
    EXPECT_EQ(shard_groups({.replicas = 2}, scenario.cluster, grid, 0, 2),
              (DeviceGroups{{0, 1}, {2, 3}}));
    const ReplicaGroups groups = Cluster(scenario, chain_profile(), 1).replica_groups(0);
    EXPECT_EQ(groups.sharing.per_node, 2);
    EXPECT_EQ(groups.between.per_node, 1);
}

TEST(ShardGroup, RefusesWhatDoesNotDivideTheReplicas) {
    const Error uneven = plan_error_of(sharing(6, 8, {.replicas = 4}));
    EXPECT_EQ(uneven.kind(), ErrorKind::BadInput);
    EXPECT_EQ(uneven.key(), "pipeline.shard_group");
    EXPECT_THAT(uneven.text(), AllOf(HasSubstr("shard_group = 4"), HasSubstr("6 replicas")));
    EXPECT_THAT(uneven.hint(), HasSubstr("set shard_group = 3"));
    const Error nodes = plan_error_of(sharing(6, 4, of_node));  // rank 0: four and two
    EXPECT_THAT(nodes.text(), HasSubstr("\"node\""));
    EXPECT_THAT(nodes.hint(), HasSubstr("set shard_group = 2"));
    const Error alone = plan_error_of(sharing(4, 1, of_node));
    EXPECT_THAT(alone.hint(), HasSubstr("leave pipeline.shard_group out"));
    SettledScenario mended = sharing(6, 8, {.replicas = 3});
    EXPECT_NO_THROW(plan_of(mended));
}

TEST(ShardGroup, SaysNothingWhereNothingIsDivided) {
    SettledScenario scenario = sharing(6, 8, {.replicas = 4});
    scenario.pipeline.shard = Shard::None;
    EXPECT_EQ(group_size(scenario), 6);
    EXPECT_THAT(plan_of(scenario)->notes,
                Contains(HasSubstr("shard_group changes nothing: replicas divide nothing")));
    scenario = sharing(1, 8, {.replicas = 4});
    EXPECT_EQ(group_size(scenario), 1);
}

}  // namespace shard_group_test
}  // namespace pipetwin
