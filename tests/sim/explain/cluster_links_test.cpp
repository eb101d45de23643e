// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/cluster_links.h"

#include <gmock/gmock.h>

#include "core/model/model.h"
#include "sim/explain/breakdown.h"
#include "sim/explain/explanation.h"
#include "sim/simulate/simulate.h"
#include "tests/support/scenario_plans.h"

/// Messages inside of actions, and faster links, over the numbers of `sharded_over_nodes`:
///
///     forward    a max( 4000, 3150)   b max(1000, 3150)   7150, waits 2150
///     backward   a max(12000, 6300)   b max(3000, 6300)  18300, waits 3300
///
/// One rank has two micro-batches and an update: 14 ns, of which each of four replicas does its
/// part. Before each action the host takes 1 ns.
namespace pipetwin::sim {
namespace cluster_links_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::long_and_short_layer;
using testing::plan_of;
using testing::sharded_over_nodes;

constexpr Duration update(1 + 14 / 4);
constexpr Duration step(2 * (7151 + 18301) + update.count());
constexpr Duration waits(2 * (2150 + 3300));

struct Known {
    SettledScenario scenario = sharded_over_nodes();
    Profile profile = long_and_short_layer();
    Plan plan = plan_of(scenario, profile);
    Timeline timeline = simulate(plan);

    std::vector<WhatIf> faster_links() const {
        return faster_cluster_links(
            plan, step_time(timeline), scenario, scenario_model(scenario, &profile), profile);
    }
};

TEST(MessagesInActions, ArePartOfTheWork) {
    const Known known;
    ASSERT_EQ(step_time(known.timeline), step);
    const MessagesInActions messages = messages_in_actions(known.plan, known.timeline);
    EXPECT_EQ(messages.shards, waits);
    EXPECT_EQ(messages.tensor, Duration{});
    EXPECT_EQ(messages.busiest, 0);
    EXPECT_EQ(messages.work, step);
    EXPECT_EQ(messages.busiest_shards, waits);
    EXPECT_TRUE(is_notable(messages.shards, step));
}

/// Layers a and b (5 and 0 bytes handed on): 2 * (1000 + 5 / 2) ns in the forward of a and in the
/// backward of b. The other rank has none.
TEST(MessagesInActions, AreMeansOverRanks) {
    SettledScenario scenario = testing::partitioned({1, 1});
    scenario.pipeline.tensor_parallel = 2;
    scenario.cluster.link_gbps = 8;
    scenario.cluster.link_latency_us = 1;
    const Plan plan = plan_of(scenario, long_and_short_layer());
    const MessagesInActions messages = messages_in_actions(plan, simulate(plan));
    EXPECT_EQ(messages.tensor, Duration(2 * (2005 + 2005) / 2));
    EXPECT_EQ(messages.busiest, 0);
    EXPECT_EQ(messages.busiest_tensor, Duration(2 * 2005));
    EXPECT_EQ(messages.shards, Duration{});
}

TEST(MessagesInActions, OnePercentIsNotable) {
    EXPECT_TRUE(is_notable(Duration(10), Duration(1000)));
    EXPECT_FALSE(is_notable(Duration(9), Duration(1000)));
    EXPECT_FALSE(is_notable(Duration{}, Duration{}));
}

/// A gather takes 3 * (500 + 25) = 1575 ns then: forward 4000 + 1575, backward 12000 + 3150.
/// Without any time for messages the layers take 5000 and 15000 ns.
TEST(ClusterLinks, BetweenNodesShortenWhatActionsWaitFor) {
    const std::vector<WhatIf> gains = Known().faster_links();
    ASSERT_EQ(gains.size(), 1);  // no message stays inside of a node
    EXPECT_EQ(gains[0].target, Target{.part = Part::NodeLinks});
    EXPECT_EQ(gains[0].step, Duration(2 * (5576 + 15151)) + update);
    EXPECT_EQ(gains[0].least_step, Duration(2 * (5001 + 15001)) + update);
}

/// All four replicas on one node: the ring has links of 10 bytes per ns and 1000 ns, so a gather
/// takes 3 * 1003 ns (2.5 ns of each are rounded up).
TEST(ClusterLinks, InsideOfANodeShortenWhatStaysThere) {
    Known known;
    known.scenario.cluster.per_node = 4;
    known.plan = plan_of(known.scenario, known.profile);
    known.timeline = simulate(known.plan);
    const std::vector<WhatIf> gains = known.faster_links();
    ASSERT_EQ(gains.size(), 1);
    EXPECT_EQ(gains[0].target, Target{.part = Part::InnerLinks});
    EXPECT_EQ(gains[0].least_step, Duration(2 * (5001 + 15001)) + update);
}

TEST(ClusterLinks, GainNothingWhereComputationHidesAllMessages) {
    Known known;
    known.profile.layers[1] = testing::layer("b", 3150, 0, 31);
    known.plan = plan_of(known.scenario, known.profile);
    known.timeline = simulate(known.plan);
    EXPECT_THAT(known.faster_links(), IsEmpty());
}

/// Where all that passes are messages from rank to rank, "links between nodes" says what "every
/// link between ranks" says.
TEST(ClusterLinks, AreNotNamedBesideTheSameLinksBetweenRanks) {
    Known known;
    known.scenario = testing::partitioned({1, 1});
    known.scenario.cluster.per_node = 1;
    known.scenario.cluster.link_gbps = 8;
    known.scenario.cluster.link_latency_us = 1;
    known.plan = plan_of(known.scenario, known.profile);
    known.timeline = simulate(known.plan);
    const std::vector<WhatIf> gains = known.faster_links();
    ASSERT_EQ(gains.size(), 1);
    const Explanation what = explain(
        known.plan, known.timeline, breakdown(known.plan, known.timeline), std::nullopt, gains);
    for (const WhatIf& each : what.what_ifs) {
        EXPECT_NE(each.target.part, Part::NodeLinks);
    }
}

/// forward max(2000, 3150) + max(500, 3150), backward max(6000, 6300) + max(1500, 6300): what is
/// computed twice as fast hides less.
TEST(ClusterLinks, FasterActionsStillWaitForShards) {
    const Known known;
    const Sensitivity sensitivity(known.plan);
    EXPECT_EQ(sensitivity.step(), step);
    EXPECT_EQ(sensitivity.step_if({.part = Part::Backward}, 2),
              step - Duration(2 * (18300 - 12600)));
    EXPECT_EQ(sensitivity.step_if({.part = Part::Backward}, infinitely),
              step - Duration(2 * (18300 - 12600)));
    EXPECT_EQ(sensitivity.step_if({.part = Part::Forward}, 2), step - Duration(2 * (7150 - 6300)));
}

/// A half of the backward that is faster hides less, and the other half waits longer.
TEST(ClusterLinks, HalvesOfABackwardThatWaitsAreNotTried) {
    Known known;
    known.scenario.pipeline.schedule = "zb-h1";
    known.plan = plan_of(known.scenario, known.profile);
    const Sensitivity sensitivity(known.plan);
    for (const Part half : {Part::BackwardInput, Part::BackwardWeight}) {
        EXPECT_FALSE(sensitivity.can_answer({.part = half}));
        EXPECT_THAT(sensitivity.targets(),
                    ::testing::Not(::testing::Contains(Target{.part = half})));
    }
    EXPECT_TRUE(sensitivity.can_answer({.part = Part::Backward}));
}

}  // namespace cluster_links_test
}  // namespace pipetwin::sim
