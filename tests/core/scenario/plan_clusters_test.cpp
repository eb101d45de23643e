// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/costs/collectives/collective_table.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/scenario/cluster.h"
#include "tests/support/builders.h"
#include "tests/support/scenario_plans.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace plan_clusters_test {

using testing::chain_profile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::partitioned;
using testing::plan_error_of;
using testing::plan_of;
using testing::row_text;
using testing::scenario_of;

std::vector<double> rates_with(const SettledScenario& scenario) {
    const Plan plan = plan_of(scenario);
    std::vector<double> rates;
    for (const LinkCost& link : plan->links) {
        rates.push_back(link.bytes_per_second / 1e9);
    }
    return rates;
}

TEST(PlanClusters, RanksGoToNodesAsThePlacementSays) {
    SettledScenario scenario = partitioned({1, 1, 1, 2});
    scenario.cluster.per_node = 2;
    scenario.cluster.link_gbps = 80;
    scenario.cluster.node_link_gbps = 8;
    EXPECT_THAT(rates_with(scenario), ElementsAre(10, 1, 10));
    scenario.cluster.placement = Placement::RoundRobin;
    EXPECT_THAT(rates_with(scenario), ElementsAre(1, 1, 1));
    scenario.cluster.placement = Placement::Written;
    scenario.cluster.nodes = {3, 3, 3, 0};
    EXPECT_THAT(rates_with(scenario), ElementsAre(10, 10, 1));
    scenario.pipeline.tensor_parallel = 2;  // a rank's devices are on its node
    EXPECT_THAT(rates_with(scenario), ElementsAre(10, 10, 1));
    scenario.pipeline.tensor_parallel = 1;
    scenario.cluster.nodes = {3, 3};
    EXPECT_THAT(plan_error_of(scenario).text(), HasSubstr("2 entries for 4 devices"));
}

/// Megatron-LM, docs of parallel_state.py: of 16 devices with tensor size 2 and pipeline size 4,
/// the first data-parallel groups are [0, 2], [1, 3], [4, 6], ...: neighbours are replicas of one
/// stage.
TEST(PlanClusters, NodesTakeTheReplicasOfARankFirst) {
    SettledScenario scenario = partitioned({1, 1, 1, 2}, 2, 4);
    scenario.pipeline.data_parallel = 2;
    scenario.cluster.per_node = 2;
    scenario.cluster.link_gbps = 80;
    scenario.cluster.node_link_gbps = 8;
    scenario.cluster.link_latency_us = 100;  // long beside the few bytes of these layers
    scenario.cluster.node_link_latency_us = 1000;
    EXPECT_THAT(rates_with(scenario), ElementsAre(1, 1, 1));
    const Duration inside = plan_of(scenario)->all_reduce.front();
    scenario.cluster.placement = Placement::Fill;
    EXPECT_THAT(rates_with(scenario), ElementsAre(10, 1, 10));
    const Duration between = plan_of(scenario)->all_reduce.front();
    EXPECT_NEAR(to_seconds(between) / to_seconds(inside), 10, 0.01);
}

TEST(PlanClusters, LinksHaveNamesThatTheirFiguresOverride) {
    SettledScenario scenario = partitioned({1, 1, 3});
    scenario.cluster.per_node = 2;
    scenario.cluster.link = "nvlink-4";
    scenario.cluster.node_link = "infiniband-ndr";
    EXPECT_THAT(rates_with(scenario), ElementsAre(365, 50));
    scenario.cluster.node_link_gbps = 100;
    scenario.cluster.node_link_latency_us = 9;
    const LinkCost link = plan_of(scenario)->links[1];
    EXPECT_EQ(link.bytes_per_second, 12.5e9);
    EXPECT_EQ(link.latency, Duration(9000));
}

TEST(PlanClusters, NodesOfNamedDevicesNeedALinkThatIsNamed) {
    SettledScenario scenario = partitioned({1, 1, 3});
    scenario.cluster.device = "h100-sxm";
    EXPECT_NO_THROW(plan_of(scenario));
    scenario.cluster.per_node = 2;
    const Error error = plan_error_of(scenario);
    EXPECT_THAT(error.text(), HasSubstr("ranks 1 and 2 are on two nodes"));
    EXPECT_THAT(error.hint(), HasSubstr("node_link"));
    scenario.cluster.node_link = "ethernet-100";
    EXPECT_NO_THROW(plan_of(scenario));
}

// --- Replicas. ---

SettledScenario replicated(int replicas, int batch) {
    SettledScenario scenario = partitioned({2, 3}, 2, batch);
    scenario.pipeline.data_parallel = replicas;
    scenario.cluster.link_gbps = 8;  // a byte per nanosecond
    scenario.cluster.link_latency_us = 1;
    scenario.pipeline.all_reduce = AllReduceKind::Ring;
    return scenario;
}

TEST(PlanClusters, ReplicasShareOutTheMiniBatch) {
    const Plan plan = plan_of(replicated(4, 16));
    EXPECT_THAT(plan->micro_batch_sizes, ElementsAre(2, 2));
    EXPECT_EQ(plan.samples(), 16);
    EXPECT_EQ(plan->replicas, 4);
    const Error error = plan_error_of(replicated(4, 18));
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), AllOf(HasSubstr("batch = 18"), HasSubstr("data_parallel = 4")));
    EXPECT_THAT(error.hint(), HasSubstr("such as 20"));
}

/// 200 and 300 bytes of weights; a ring of 4 takes 6 messages of a quarter.
TEST(PlanClusters, ReplicasSumTheGradientsOfEveryStage) {
    const Plan plan = plan_of(replicated(4, 8));
    EXPECT_THAT(plan->all_reduce,
                ElementsAre(Duration(6 * (1000 + 50)), Duration(6 * (1000 + 75))));
    EXPECT_EQ(row_text(plan->schedule, 1),
              "1RECV_F0 1F0 1RECV_F1 1F1 1B1 1SEND_B1 1B0 1SEND_B0 1REDUCE_GRAD 1OPT");
    EXPECT_EQ(plan.duration({.op = Op::ReduceGradient, .stage = 1}), Duration(6 * 1075));
    SettledScenario overlapped = replicated(4, 8);
    overlapped.pipeline.overlap_reduction = true;
    EXPECT_TRUE(plan_of(overlapped)->overlap_reduction);
    EXPECT_THAT(plan_of(replicated(1, 8))->all_reduce, IsEmpty());
}

/// With a stack sums begin beside the last backward, where the rank does not wait for them.
TEST(PlanClusters, SumsGoOnBesideTheLastBackwardAsTheStackHasThem) {
    SettledScenario scenario = replicated(4, 8);
    scenario.cluster.stack = "nemo-2024";
    EXPECT_THAT(plan_of(scenario)->bucketed_sums, IsEmpty());
    scenario.pipeline.overlap_reduction = true;
    const Plan plan = plan_of(scenario);
    ASSERT_EQ(plan->bucketed_sums.size(), 2U);
    for (int stage = 0; stage < 2; ++stage) {
        const BucketedSums& sums = plan->bucketed_sums.at(static_cast<std::size_t>(stage));
        // So few numbers are one bucket, which sets out behind the backward.
        EXPECT_EQ(sums.head, Duration{});
        EXPECT_EQ(sums.tail, plan.all_reduce_time(stage));
        EXPECT_EQ(plan.duration({.op = Op::ReduceGradient, .stage = stage}), sums.slowed);
    }
    scenario.cluster.stack.clear();
    EXPECT_THAT(plan_of(scenario)->bucketed_sums, IsEmpty());
}

/// 2 and 3 layers of 25 numbers, of which the first of four replicas has 7, each with two of
/// Adam's.
TEST(PlanClusters, ReplicasMayShareTheOptimizerState) {
    SettledScenario scenario = replicated(4, 8);
    EXPECT_EQ(plan_of(scenario)->states[1].optimizer_state, Bytes{2 * 4 * 75});
    EXPECT_THAT(plan_of(scenario)->weight_gather, IsEmpty());
    scenario.pipeline.shard = Shard::Optimizer;
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan->states[0].optimizer_state, Bytes{2 * 4 * 2 * 7});
    EXPECT_EQ(plan->states[1].optimizer_state, Bytes{2 * 4 * 3 * 7});
    EXPECT_EQ(plan->states[1].weights, Bytes{300});
    // Half of a ring sums the shares, the other half passes the weights on.
    EXPECT_THAT(plan->all_reduce,
                ElementsAre(Duration(3 * (1000 + 50)), Duration(3 * (1000 + 75))));
    EXPECT_EQ(plan->weight_gather, plan->all_reduce);
    EXPECT_EQ(plan.duration({.op = Op::Optimizer, .stage = 1}),
              plan->dispatch + plan->states[1].optimizer + Duration(3 * 1075));
    scenario.pipeline.data_parallel = 1;
    EXPECT_EQ(plan_of(scenario)->states[1].optimizer_state, Bytes{2 * 4 * 75});
}

/// Stage 1: 300 bytes of weights in three layers, which are 75 numbers; 40 bytes of workspace.
/// Rajbhandari et al., section 5: gradients, then weights are divided as well. Each layer is
/// divided by itself: of its 25 numbers the first of four replicas has 7.
TEST(PlanClusters, ReplicasMayShareGradientsAndWeights) {
    SettledScenario scenario = replicated(4, 8);
    const auto state_under = [&scenario](Shard shard) {
        scenario.pipeline.shard = shard;
        return plan_of(scenario)->states[1];
    };
    const StageState whole = state_under(Shard::None);
    EXPECT_EQ(whole.weights, Bytes{300});
    EXPECT_EQ(whole.gradients, Bytes{300});
    EXPECT_EQ(whole.optimizer_state, Bytes{600});
    EXPECT_EQ(whole.workspace, Bytes{40});
    const StageState optimizer = state_under(Shard::Optimizer);
    EXPECT_EQ(optimizer.gradients, Bytes{300});
    EXPECT_EQ(optimizer.workspace, Bytes{40});
    // One layer's gradient is there before it is summed.
    const StageState gradients = state_under(Shard::Gradients);
    EXPECT_EQ(gradients.weights, Bytes{300});
    EXPECT_EQ(gradients.gradients, Bytes{4 * 3 * 7});
    EXPECT_EQ(gradients.optimizer_state, Bytes{2 * 4 * 3 * 7});
    EXPECT_EQ(gradients.workspace, Bytes{40});
    EXPECT_EQ(gradients.gathered, Bytes{100});
    // The layer that is computed is gathered, and with prefetch a block before it: two layers more.
    scenario.pipeline.prefetch = 0;
    EXPECT_EQ(state_under(Shard::Weights).gathered, Bytes{100 + 100});
    for (const int prefetch : {1, 5}) {
        scenario.pipeline.prefetch = prefetch;
        const StageState weights = state_under(Shard::Weights);
        EXPECT_EQ(weights.weights, Bytes{4 * 3 * 7});
        EXPECT_EQ(weights.gradients, Bytes{4 * 3 * 7});
        EXPECT_EQ(weights.optimizer_state, Bytes{2 * 4 * 3 * 7});
        EXPECT_EQ(weights.gathered, Bytes{100 + 300}) << prefetch;  // never more than all
    }
}

/// 150 numbers of two bytes: fp32 gradients and 12 bytes of AdamW each. The first of four replicas
/// has 13 of each of three layers.
TEST(PlanClusters, SharesOfHalfPrecisionHaveGradientsAsWrittenDown) {
    SettledScenario scenario = replicated(4, 8);
    scenario.training.optimizer = OptimizerKind::AdamW;
    Profile profile = chain_profile();
    profile.precision = "bf16";
    EXPECT_EQ(plan_of(scenario, profile)->states[1].gradients, Bytes{600});
    EXPECT_EQ(plan_of(scenario, profile)->states[1].optimizer_state, Bytes{150 * 12});
    scenario.training.gradients = GradientType::Same;
    EXPECT_EQ(plan_of(scenario, profile)->states[1].gradients, Bytes{300});
    scenario.pipeline.shard = Shard::Gradients;
    const StageState same = plan_of(scenario, profile)->states[1];
    EXPECT_EQ(same.gradients, Bytes{2 * 39});
    EXPECT_EQ(same.optimizer_state, Bytes{39 * 12});
    EXPECT_EQ(same.gathered, Bytes{100});
    scenario.training.gradients = GradientType::Fp32;
    EXPECT_EQ(plan_of(scenario, profile)->states[1].gradients, Bytes{4 * 39});
    EXPECT_EQ(plan_of(scenario, profile)->states[1].gathered, Bytes{200});
}

/// An update reads a gradient of four bytes, and reads and writes the state: 28 bytes with 12 of
/// state, 16 with 6. The norm reads gradients alone, and an average of weights takes four more.
TEST(PlanClusters, ANarrowerOptimizerStateTakesLessRoomAndLessTime) {
    SettledScenario scenario = replicated(4, 8);
    scenario.training.optimizer = OptimizerKind::AdamW;
    Profile profile = chain_profile();
    profile.precision = "bf16";
    for (LayerCost& layer : profile.layers) {
        layer.optimizer = Duration(2800);
    }
    const StageState wide = plan_of(scenario, profile)->states[1];
    scenario.training.optimizer_state_bytes = 6;
    const StageState narrow = plan_of(scenario, profile)->states[1];
    EXPECT_EQ(narrow.optimizer_state, Bytes{150 * 6});
    EXPECT_EQ(narrow.optimizer, wide.optimizer * 16 / 28);
    EXPECT_EQ(narrow.norm, wide.norm);
    scenario.pipeline.shard = Shard::Optimizer;
    EXPECT_EQ(plan_of(scenario, profile)->states[1].optimizer_state, Bytes{39 * 6});
    scenario.pipeline.shard = Shard::None;
    scenario.training.average_decay = 0.9;
    EXPECT_EQ(plan_of(scenario, profile)->states[1].optimizer_state, Bytes{150 * 10});
    scenario.training.optimizer_state_bytes = 12;
    EXPECT_EQ(plan_of(scenario, profile)->states[1].optimizer_state, Bytes{150 * 16});
    scenario.training.average_decay = 0;
    EXPECT_EQ(plan_of(scenario, profile)->states[1].optimizer_state, wide.optimizer_state);
    EXPECT_EQ(plan_of(scenario, profile)->states[1].optimizer, wide.optimizer);
    profile.precision = "fp32";  // weights of four bytes have no copies
    scenario.training.optimizer_state_bytes = 6;
    EXPECT_EQ(plan_of(scenario, profile)->states[1].optimizer_state, Bytes{75 * 8});
}

/// For each 8 bytes of a weight's time a kernel that adds up gradients moves 2 + 2 x 2 bytes where
/// they are as wide as the weights, and 2 + 2 x 4 where their sums are in fp32.
TEST(PlanClusters, AddingUpGradientsTakesTimeWhereKernelsOfTheirOwnDoIt) {
    SettledScenario scenario = replicated(4, 8);
    scenario.training.optimizer = OptimizerKind::AdamW;
    Profile profile = chain_profile();
    profile.precision = "bf16";
    for (LayerCost& layer : profile.layers) {
        layer.samples.front().accumulation = Duration(800);
    }
    const auto backward = [&] { return plan_of(scenario, profile).cost(1, 0).backward; };
    const Duration fused = backward();
    scenario.training.accumulation = Accumulation::Separate;
    EXPECT_EQ(backward(), fused + 3 * Duration(1000));  // of three layers
    scenario.training.gradients = GradientType::Same;
    EXPECT_EQ(backward(), fused + 3 * Duration(600));
    scenario.pipeline.micro_batches = 1;  // then there is nothing to add to
    const Duration of_one = backward();
    scenario.training.accumulation = Accumulation::Fused;
    EXPECT_EQ(backward(), of_one);
}

/// They are summed over replicas with every micro-batch, and added up as shares.
TEST(PlanClusters, GradientsOfAMicroBatchThatAreSharedAreNotAddedUpWhole) {
    SettledScenario scenario = replicated(4, 8);
    scenario.pipeline.shard = Shard::Gradients;
    Profile profile = chain_profile();
    const Duration fused = plan_of(scenario, profile).cost(1, 0).backward;
    for (LayerCost& layer : profile.layers) {
        layer.samples.front().accumulation = Duration(800);
    }
    scenario.training.accumulation = Accumulation::Separate;
    EXPECT_EQ(plan_of(scenario, profile).cost(1, 0).backward, fused);
}

/// ZeRO-2 sums with every micro-batch and hands the updated weights round; ZeRO-3 has nothing left
/// to do at the end.
TEST(PlanClusters, SharedGradientsAreSummedWithEveryMicroBatch) {
    SettledScenario scenario = replicated(4, 8);
    const Plan whole = plan_of(scenario);
    scenario.pipeline.shard = Shard::Gradients;
    const Plan gradients = plan_of(scenario);
    EXPECT_THAT(gradients->all_reduce, ElementsAre(Duration{}, Duration{}));
    EXPECT_THAT(gradients->weight_gather,
                ElementsAre(Duration(3 * (1000 + 50)), Duration(3 * (1000 + 75))));
    EXPECT_EQ(gradients.cost(1, 0).forward, whole.cost(1, 0).forward);
    // Each layer's 100 bytes take three quarters of a ring: three messages of 25 ns and 1 us.
    EXPECT_EQ(gradients.cost(1, 0).backward, 3 * Duration(3 * 1025));
    scenario.pipeline.shard = Shard::Weights;
    const Plan weights = plan_of(scenario);
    EXPECT_THAT(weights->all_reduce, ElementsAre(Duration{}, Duration{}));
    EXPECT_THAT(weights->weight_gather, ElementsAre(Duration{}, Duration{}));
    EXPECT_EQ(weights.cost(1, 0).forward, 3 * Duration(3 * 1025));
    EXPECT_EQ(weights.cost(1, 0).backward, 3 * Duration(6 * 1025));
}

TEST(PlanClusters, TheUpdateOfAShareTakesItsShareOfTheTime) {
    SettledScenario scenario = replicated(4, 8);
    Profile profile = chain_profile();
    for (LayerCost& layer : profile.layers) {
        layer.optimizer = Duration(4000);
    }
    const Duration whole = plan_of(scenario, profile)->states[1].optimizer;
    scenario.pipeline.shard = Shard::Optimizer;
    EXPECT_EQ(plan_of(scenario, profile)->states[1].optimizer, whole / 4);
}

/// Two ranks and four replicas fill nodes of 4 with two replicas each; of 2 with one each.
TEST(PlanClusters, ReplicasAreWhereThePlacementPutsThem) {
    SettledScenario scenario = replicated(4, 8);
    scenario.cluster.placement = Placement::Fill;
    scenario.pipeline.all_reduce = AllReduceKind::TwoLevel;
    scenario.cluster.per_node = 4;
    scenario.cluster.node_link_gbps = 0.8;  // ten nanoseconds a byte
    scenario.cluster.node_link_latency_us = 5;
    EXPECT_EQ(plan_of(scenario)->all_reduce[0], Duration(2 * (1000 + 100) + 2 * (5000 + 10 * 50)));
    EXPECT_EQ(plan_of(scenario)->links[0].bytes_per_second, 1e9);
    scenario.cluster.per_node = 3;  // replica 1 lies on two nodes: its boundary is the slowest
    EXPECT_EQ(plan_of(scenario)->links[0].bytes_per_second, 1e8);
}

TEST(PlanClusters, ReplicasCountAgainstTheDevices) {
    SettledScenario scenario = replicated(4, 8);
    scenario.cluster.count = 7;
    EXPECT_THAT(plan_error_of(scenario).text(), HasSubstr("data_parallel = 4"));
    scenario.cluster.count = 8;
    EXPECT_NO_THROW(plan_of(scenario));
}

TEST(PlanClusters, TwoPipelinesOfOneModelHaveNoReplicas) {
    SettledScenario scenario = replicated(2, 8);
    scenario.pipeline.schedule = "chimera";
    EXPECT_THAT(plan_error_of(scenario).text(),
                HasSubstr("a schedule of two pipelines with the same weights does not support"));
}

/// b waits for the rest of what goes on beside it, and a for nothing.
TEST(PlanClusters, APlanKnowsHowLongItWaitsForShards) {
    const Plan plan =
        testing::plan_of(testing::sharded_over_nodes(), testing::long_and_short_layer());
    const Action forward{.op = Op::Forward};
    const Action backward{.op = Op::Backward};
    EXPECT_EQ(plan.duration(forward), Duration(1 + 4000 + 3150));
    EXPECT_EQ(plan.duration(backward), Duration(1 + 12000 + 6300));
    EXPECT_EQ(plan.shard_wait(forward), Duration(3150 - 1000));
    EXPECT_EQ(plan.shard_wait(backward), Duration(6300 - 3000));
    EXPECT_EQ(plan.tensor_sums(forward), Duration{});
    EXPECT_EQ(plan.shard_wait({.op = Op::Optimizer}), Duration{});
}

/// Layers that compute longer than their messages take hide them, as do links that take no time.
TEST(PlanClusters, MessagesOfShardsThatAreHiddenAreNotWaitedFor) {
    Profile profile = testing::long_and_short_layer();
    profile.layers[1] = testing::layer("b", 3150, 0, 31);
    SettledScenario scenario = testing::sharded_over_nodes();
    const Plan hidden = testing::plan_of(scenario, profile);
    scenario.pipeline.prefetch = 0;  // a gather has nothing to hide behind
    const Plan gathered_before = testing::plan_of(scenario, profile);
    scenario.pipeline.shard = Shard::None;
    const Plan whole = testing::plan_of(scenario, profile);
    for (const Op op : {Op::Forward, Op::Backward}) {
        EXPECT_EQ(hidden.shard_wait({.op = op}), Duration{});
        EXPECT_EQ(gathered_before.shard_wait({.op = op}), Duration(2 * 3150));
        EXPECT_EQ(whole.shard_wait({.op = op}), Duration{});
    }
}

/// The parts of a backward in two halves: the half of the weights waits.
TEST(PlanClusters, TheHalfOfTheWeightsWaitsForShards) {
    SettledScenario scenario = testing::sharded_over_nodes();
    scenario.pipeline.schedule = "zb-h1";
    const Plan plan = testing::plan_of(scenario, testing::long_and_short_layer());
    EXPECT_EQ(plan.shard_wait({.op = Op::BackwardInput}), Duration{});
    EXPECT_EQ(plan.shard_wait({.op = Op::BackwardWeight}), Duration(6300 - 3000));
    scenario.pipeline.prefetch = 0;  // both gathers of a backward, then the sums beside it
    const Plan before = testing::plan_of(scenario, testing::long_and_short_layer());
    EXPECT_EQ(before.shard_wait({.op = Op::BackwardInput}), Duration(2 * 3150));
    EXPECT_EQ(before.shard_wait({.op = Op::BackwardWeight}), Duration(3150 - 3000));
}

/// A device that computes twice as fast hides less: forward max(2000, 3150) + max(500, 3150),
/// backward max(6000, 6300) + max(1500, 6300).
TEST(PlanClusters, FasterComputationLeavesMessagesAsTheyAre) {
    const Plan plan =
        testing::plan_of(testing::sharded_over_nodes(), testing::long_and_short_layer());
    const OtherTime half = [](Duration time) { return time / 2; };
    const OtherTime nothing = [](Duration) { return Duration{}; };
    const OtherTime twice = [](Duration time) { return 2 * time; };
    const Action forward{.op = Op::Forward};
    const Action backward{.op = Op::Backward};
    EXPECT_EQ(plan.with_computation(forward, half), Duration(3150 + 3150));
    EXPECT_EQ(plan.with_computation(backward, half), Duration(6300 + 6300));
    EXPECT_EQ(plan.with_computation(forward, nothing), Duration(3150 + 3150));
    EXPECT_EQ(plan.with_computation(forward, twice), Duration(8000 + 3150));
    EXPECT_EQ(plan.with_computation(backward, twice), Duration(24000 + 6300));
    const ActionMessages messages = with_computation(plan.cost(0, 0).forward_messages, half);
    EXPECT_EQ(messages.shards, Duration((3150 - 2000) + (3150 - 500)));
    EXPECT_EQ(with_computation(messages, twice), plan.cost(0, 0).forward_messages);
}

/// The gather at the end of an update is no computation.
TEST(PlanClusters, AFasterUpdateGathersAsLong) {
    SettledScenario scenario = testing::sharded_over_nodes();
    scenario.pipeline.shard = Shard::Optimizer;
    const Plan plan = testing::plan_of(scenario, testing::long_and_short_layer());
    const Action update{.op = Op::Optimizer};
    ASSERT_GT(plan.weight_gather_time(0), Duration{});
    EXPECT_EQ(plan.with_computation(update, [](Duration) { return Duration{}; }),
              plan.weight_gather_time(0));
}

/// Two devices to a rank, a byte per nanosecond between them and 1 us. Around a ring of two, n
/// bytes take 2 * (1000 + n / 2): 2005 ns for the 5 that layer a hands on, 2007 for the 7 of layer
/// b.
TEST(PlanClusters, DevicesOfARankShareItsLayersAndSumTheirResults) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.pipeline.tensor_parallel = 2;
    scenario.cluster.link_gbps = 8;
    scenario.cluster.link_latency_us = 1;
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan.cost(0, 0).forward, Duration(5 + 2005 + 10 + 2007));
    EXPECT_EQ(plan.cost(0, 0).backward_input, Duration(10 + 20 + 2005));  // none for the data
    EXPECT_EQ(plan.cost(0, 0).backward_weight, Duration(5 + 10));
    EXPECT_EQ(plan.cost(0, 0).saved, Bytes{(3 + 5) + (5 + 6)});  // inputs are whole
    EXPECT_EQ(plan.cost(0, 0).output, Bytes{7});
    EXPECT_EQ(plan->states[0].weights, Bytes{50 + 50});
    EXPECT_EQ(plan->tensor_parallel, 2);
    const Action forward{.op = Op::Forward};
    EXPECT_EQ(plan.tensor_sums(forward), Duration(2005 + 2007));
    EXPECT_EQ(plan.tensor_sums({.op = Op::Recompute}), Duration(2005 + 2007));
    EXPECT_EQ(plan.tensor_sums({.op = Op::Backward}), Duration(2005));
    EXPECT_EQ(plan.tensor_sums({.op = Op::BackwardWeight}), Duration{});
    EXPECT_EQ(plan.shard_wait(forward), Duration{});
    EXPECT_EQ(plan.with_computation(forward, [](Duration time) { return time / 5; }),
              Duration(1 + 2005 + 2 + 2007));
}

/// A block that is computed again sums its outputs again.
TEST(PlanClusters, RecomputeOfLayersRepeatsTheirSums) {
    SettledScenario scenario = partitioned({3});
    scenario.pipeline.tensor_parallel = 2;
    scenario.cluster.link_gbps = 8;
    scenario.cluster.link_latency_us = 1;
    Profile profile = chain_profile();
    profile.layers.resize(3);
    const char* const names[]{"embedding", "block0", "head"};
    for (std::size_t layer = 0; layer < 3; ++layer) {
        profile.layers[layer].name = names[layer];
        profile.layers[layer].inputs.clear();
    }
    const Action backward{.op = Op::Backward};
    const Duration once = plan_of(scenario, profile).tensor_sums(backward);
    scenario.pipeline.layer_recompute = LayerRecompute::Block;
    EXPECT_EQ(plan_of(scenario, profile).tensor_sums(backward), once + Duration(2007));
}

/// The stack says whether messages are hidden, and the scenario may say otherwise.
TEST(PlanClusters, SumsAreHiddenAsTheStackOrTheScenarioSays) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.pipeline.tensor_parallel = 2;
    scenario.pipeline.sequence_parallel = true;
    scenario.cluster.link_gbps = 8;
    const Action forward{.op = Op::Forward};
    const auto sums = [&](const std::string& stack, OrAuto<bool> overlap) {
        Profile profile = chain_profile();
        profile.stack = stack;
        scenario.pipeline.tensor_overlap = overlap;
        return plan_of(scenario, profile).tensor_sums(forward);
    };
    for (const auto& [stack, hides] :
         {std::pair("", false), {"megatron-2021", false}, {"nemo-2024", true}}) {
        EXPECT_LT(sums(stack, true), sums(stack, false)) << stack;
        EXPECT_EQ(sums(stack, {}), sums(stack, hides)) << stack;
    }
    const Duration of_costs = sums("nemo-2024", {});
    scenario.cluster.stack = "nemo-2024";
    EXPECT_EQ(sums("", {}), of_costs);
}

/// Weights are gathered beside the next step where the stack does so and gradients overlap, too.
TEST(PlanClusters, GathersAreHiddenAsTheStackOrTheScenarioSays) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.pipeline.data_parallel = 2;
    scenario.pipeline.shard = Shard::Optimizer;
    scenario.cluster.link_gbps = 8;
    const auto gather = [&](const std::string& stack, bool gradients, OrAuto<bool> overlap) {
        scenario.cluster.stack = stack;
        scenario.pipeline.overlap_reduction = gradients;
        scenario.pipeline.overlap_gather = overlap;
        return plan_of(scenario).weight_gather_time(0);
    };
    for (const auto& [stack, hides] : {std::pair("deepspeed", false), {"nemo-2024", true}}) {
        EXPECT_LE(gather(stack, true, true), gather(stack, true, false)) << stack;
        EXPECT_EQ(gather(stack, true, {}), gather(stack, true, hides)) << stack;
        EXPECT_EQ(gather(stack, false, {}), gather(stack, false, false)) << stack;
    }
    EXPECT_LT(gather("", true, true), gather("", true, {}));
}

TEST(PlanClusters, DevicesOfARankSitOnOneNodeAndCountAgainstTheDevices) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.pipeline.tensor_parallel = 4;
    scenario.cluster.count = 7;
    EXPECT_THAT(plan_error_of(scenario).text(),
                HasSubstr("pipeline.stages = 2 of pipeline.tensor_parallel = 4 devices each, but "
                          "cluster.count = 7"));
    scenario.cluster.count = 8;
    EXPECT_NO_THROW(plan_of(scenario));
    scenario.cluster.per_node = 6;
    EXPECT_THAT(plan_error_of(scenario).text(),
                HasSubstr("expected a divisor or a multiple of that"));
    // Each rank fills a node: the boundary lies between two.
    scenario.cluster.per_node = 4;
    scenario.cluster.link_gbps = 80;
    scenario.cluster.node_link_gbps = 8;
    EXPECT_THAT(rates_with(scenario), ElementsAre(1));
    scenario.cluster.per_node = 8;
    EXPECT_THAT(rates_with(scenario), ElementsAre(10));
}

/// 100 bytes of weights are 50 weights of 2 bytes: 4 bytes of gradient each, a copy of 4, and two
/// slots of 4 for adamw.
TEST(PlanClusters, WeightsOfHalfPrecisionHaveACopyAndGradientsInFull) {
    Profile profile = chain_profile();
    profile.precision = "bf16";
    const Plan plan = plan_of(partitioned({2, 3}), profile);
    EXPECT_EQ(plan->states[0].weights, Bytes{200});
    EXPECT_EQ(plan->states[0].gradients, Bytes{100 * 4});
    EXPECT_EQ(plan->states[0].optimizer_state, Bytes{100 * (4 + 8)});
}

/// Scenarios of any cluster: some fit together, others do not.
class RandomCluster {
  public:
    explicit RandomCluster(std::uint64_t seed) : random_(seed) {}

    SettledScenario next() {
        SettledScenario scenario = scenario_of(1 + below(4), 1 + below(6), 1 + below(32));
        const int stages = scenario.pipeline.stages;
        scenario.pipeline.data_parallel = 1 + below(4);
        scenario.pipeline.all_reduce = static_cast<AllReduceKind>(below(3));
        scenario.pipeline.overlap_reduction = below(2) == 0;
        scenario.pipeline.shard = static_cast<Shard>(below(4));
        constexpr std::array schedules{"gpipe", "1f1b", "zb-h1", "zb-auto", "chimera"};
        scenario.pipeline.schedule = schedules.at(static_cast<std::size_t>(below(5)));
        scenario.pipeline.recompute = static_cast<Recompute>(below(2));
        scenario.cluster.per_node = 1 + below(4);
        scenario.cluster.placement = static_cast<Placement>(below(3));
        for (int rank = 0; rank < stages && below(4) > 0; ++rank) {
            scenario.cluster.speeds.push_back(0.25 * (1 + below(8)));
        }
        if (below(3) == 0) {
            scenario.cluster.device = "h100-sxm";
            scenario.cluster.node_link = below(2) == 0 ? "" : "ethernet-25";
        }
        return scenario;
    }

  private:
    int below(int end) { return testing::below(random_, end); }

    std::mt19937_64 random_;
};

int reductions_of(const Plan& plan, int stage) {
    int count = 0;
    for (const auto& row : plan->schedule.ranks) {
        count += static_cast<int>(
            std::ranges::count(row, Action{.op = Op::ReduceGradient, .stage = stage}));
    }
    return count;
}

TEST(PlanClusters, AnyClusterGivesAPlanThatIsWholeOrSaysWhyNot) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomCluster clusters(seed);
    int plans = 0;
    for (int round = 0; round < tests::soaked(500); ++round) {
        const SettledScenario scenario = clusters.next();
        try {
            const Plan plan = plan_of(scenario);
            const int replicas = scenario.pipeline.data_parallel;
            ASSERT_EQ(plan.samples(), scenario.training.batch);
            ASSERT_EQ(plan->all_reduce.empty(), replicas == 1);
            ASSERT_EQ(plan->weight_gather.empty(),
                      replicas == 1 || scenario.pipeline.shard == Shard::None);
            for (int stage = 0; stage < plan.stage_count() && replicas > 1; ++stage) {
                ASSERT_EQ(reductions_of(plan, stage), 1);
            }
            ++plans;
        } catch (const Error& error) {
            ASSERT_FALSE(error.text().empty());
            ASSERT_FALSE(error.hint().empty()) << error.what();
        }
    }
    EXPECT_GT(plans, 20);
}

/// Ranks 0 and 1 on nodes of their own, with four pieces that go round them.
TEST(PlanClusters, MessagesBetweenNodesShareWhatLeavesAndEntersANode) {
    SettledScenario scenario = scenario_of(2, 4, 8);
    scenario.pipeline.chunks = 2;
    scenario.pipeline.schedule = "interleaved-1f1b";
    scenario.cluster.per_node = 1;
    scenario.cluster.node_link_gbps = 8;
    scenario.cluster.link_sharing = LinkSharing::Fair;
    const Contention shared = plan_of(scenario)->contention;
    EXPECT_EQ(shared.sharing, LinkSharing::Fair);
    ASSERT_EQ(shared.shared_links, std::vector<double>(4, 1e9));
    ASSERT_EQ(shared.way_of_edge.size(), 6U);
    // Boundaries 0 and 2 lead from rank 0 to rank 1, boundary 1 back; so do their gradients.
    EXPECT_EQ(shared.way_of_edge[0], shared.way_of_edge[4]);
    EXPECT_EQ(shared.way_of_edge[0], shared.way_of_edge[3]);
    EXPECT_EQ(shared.way_of_edge[1], shared.way_of_edge[2]);
    EXPECT_NE(shared.way_of_edge[0], shared.way_of_edge[1]);
}

/// Two devices to a rank, each of which sends its half, and gathers the other inside the node at
/// no cost: a message that is alone is not slowed down by what it shares with none.
TEST(PlanClusters, ScatteredMessagesAreAsFastAsTheirSharedLink) {
    SettledScenario scenario = scenario_of(2, 4, 8);
    scenario.pipeline.tensor_parallel = 2;
    scenario.cluster.per_node = 2;
    scenario.cluster.node_link_gbps = 8;
    scenario.cluster.link_sharing = LinkSharing::Fifo;
    Profile profile = chain_profile();
    profile.links = {};
    EXPECT_EQ(plan_of(scenario, profile)->links[0].bytes_per_second, 1e9);
    scenario.pipeline.scatter_boundaries = true;
    const Plan scattered = plan_of(scenario, profile);
    EXPECT_DOUBLE_EQ(scattered->links[0].bytes_per_second, 2e9);
    EXPECT_EQ(scattered->contention.shared_links,
              std::vector<double>(4, scattered->links[0].bytes_per_second));
    // Parts of a sequence are half as large as it is.
    scenario.pipeline.sequence_parallel = true;
    EXPECT_EQ(plan_of(scenario, profile)->links[0].bytes_per_second, 1e9);
}

TEST(PlanClusters, MessagesInsideANodeShareNothing) {
    SettledScenario scenario = scenario_of(2, 4, 8);
    scenario.cluster.link_sharing = LinkSharing::Fifo;
    EXPECT_FALSE(plan_of(scenario)->contention.any());
}

NodeLink shared_by(std::vector<int> devices, double bytes_per_second, SharedLinkKind kind) {
    return {.devices = std::move(devices), .bytes_per_second = bytes_per_second, .kind = kind};
}

/// Devices 0 and 1 are the ranks of one replica, 2 and 3 those of the other. Both replicas send at
/// once, up and down over one link: each has half of it.
TEST(PlanClusters, MessagesOfAllReplicasShareTheLinksOfTheirNode) {
    SettledScenario scenario = partitioned({2, 3}, 2, 4);
    scenario.pipeline.data_parallel = 2;
    scenario.cluster.placement = Placement::Fill;
    scenario.cluster.link_gbps = 8;
    scenario.cluster.shared_links = {shared_by({0, 1, 2, 3}, 1e9, SharedLinkKind::Host)};
    const Contention shared = plan_of(scenario)->contention;
    EXPECT_EQ(shared.sharing, LinkSharing::Fair);
    EXPECT_EQ(shared.shared_links, std::vector<double>{0.5e9});
    EXPECT_THAT(shared.link_names, ElementsAre("host link out of devices 0 to 3"));
    EXPECT_EQ(shared.way_of_edge, (std::vector<std::vector<int>>(2, {0})));
    scenario.cluster.per_node = 2;  // a node of its own for each replica, both alike
    scenario.cluster.shared_links = {shared_by({0, 1}, 0.5e9, SharedLinkKind::Host)};
    const Contention apart = plan_of(scenario)->contention;
    EXPECT_EQ(apart.shared_links, std::vector<double>{0.5e9});
    EXPECT_THAT(apart.link_names, ElementsAre("host link out of devices 0, 1 of node 0"));
}

/// A rank has devices 0 and 1. Each sends all of a message over the switch of both, or its half.
TEST(PlanClusters, DevicesOfARankSendTheirPartsOverTheLinksThatTheyShare) {
    SettledScenario scenario = scenario_of(2, 4, 8);
    scenario.pipeline.tensor_parallel = 2;
    scenario.cluster.link_gbps = 8;
    scenario.cluster.shared_links = {shared_by({0, 1}, 0.5e9, SharedLinkKind::Switch)};
    Profile profile = chain_profile();
    profile.links = {};
    EXPECT_EQ(plan_of(scenario, profile)->contention.shared_links, std::vector<double>(2, 0.25e9));
    scenario.pipeline.scatter_boundaries = true;
    EXPECT_EQ(plan_of(scenario, profile)->contention.shared_links, std::vector<double>(2, 0.5e9));
}

/// Two ranks with a replica on either side of a switch. A sum over two replicas is two messages of
/// half the gradients, each way. Both ranks sum at once, so that either has half of the switch.
TEST(PlanClusters, SumsOfGradientsHaveTheirShareOfASharedLink) {
    SettledScenario scenario = partitioned({2, 3}, 2, 4);
    scenario.pipeline.data_parallel = 2;
    scenario.pipeline.all_reduce = AllReduceKind::Ring;
    scenario.cluster.placement = Placement::Fill;
    scenario.cluster.link_gbps = 8;
    const auto latency = 2 * Duration(800);
    const Duration alone = plan_of(scenario)->all_reduce.front() - latency;
    EXPECT_EQ(alone, Duration(200)) << "2 layers with 100 bytes of weights, at 1 ns each";
    scenario.cluster.shared_links = {shared_by({0, 1}, 1e9, SharedLinkKind::Switch)};
    EXPECT_EQ(plan_of(scenario)->all_reduce.front() - latency, 2 * alone);
    scenario.cluster.placement = Placement::ReplicasFirst;  // replicas on one side
    EXPECT_EQ(plan_of(scenario)->all_reduce.front() - latency, alone);
    scenario.cluster.shared_links = {shared_by({0, 1}, 0.5e9, SharedLinkKind::Host)};
    EXPECT_EQ(plan_of(scenario)->all_reduce.front() - latency, 4 * alone)
        << "to and fro between the two at once";
}

/// One adapter for two devices. A ring through both nodes leaves each of them once; two rings, one
/// for each replica of a node, share the adapter.
TEST(PlanClusters, ReplicasOfANodeShareItsUplink) {
    SettledScenario scenario = partitioned({5}, 1, 4);
    scenario.pipeline.data_parallel = 4;
    scenario.cluster.per_node = 2;
    scenario.cluster.link_gbps = 8e6;
    scenario.cluster.node_link_gbps = 8;
    const auto sum = [&](AllReduceKind kind) {
        scenario.pipeline.all_reduce = kind;
        return plan_of(scenario)->all_reduce.front() - 6 * Duration(800);
    };
    EXPECT_EQ(sum(AllReduceKind::Ring), Duration(6 * 125)) << "500 bytes";
    EXPECT_EQ(sum(AllReduceKind::Rings), Duration(6 * 125 / 2));
    scenario.cluster.shared_links = {shared_by({0, 1}, 1e9, SharedLinkKind::Uplink)};
    EXPECT_EQ(sum(AllReduceKind::Ring), Duration(6 * 125));
    EXPECT_EQ(sum(AllReduceKind::Rings), Duration(6 * 125));
}

/// The stack has 22 us, 2.5 us for each of two devices, and 10 us for the second node, there and
/// back; what the scenario says of links goes before that.
TEST(PlanClusters, SumsOfAStackHaveItsLatenciesAndTheRatesOfTheLinks) {
    SettledScenario scenario = partitioned({5}, 1, 4);
    scenario.pipeline.data_parallel = 4;
    scenario.pipeline.all_reduce = AllReduceKind::Rings;
    scenario.cluster.per_node = 2;
    scenario.cluster.link_gbps = 8e6;
    scenario.cluster.node_link_gbps = 8;
    Profile profile = chain_profile();
    profile.stack = "nemo-2024";
    const auto sum = [&] { return plan_of(scenario, profile)->all_reduce.front(); };
    EXPECT_EQ(sum(), Duration(6 * 125 / 2 + 2 * (22'000 + 2 * 2500 + 10'000)));
    scenario.cluster.shared_links = {shared_by({0, 1}, 1e9, SharedLinkKind::Uplink)};
    EXPECT_EQ(sum(), Duration(6 * 125 + 2 * (22'000 + 2 * 2500 + 10'000)));
    scenario.cluster.link_latency_us = 1;
    scenario.cluster.node_link_latency_us = 5;
    EXPECT_EQ(sum(), Duration(6 * 125 + 2 * (22'000 + 2 * 1000 + 5000)));
    profile.stack = "";
    scenario.cluster.stack = "nemo-2024";
    EXPECT_EQ(sum(), Duration(6 * 125 + 2 * (22'000 + 2 * 1000 + 5000)));
}

/// What replicas of one machine took says nothing of replicas on several nodes, nor of links that
/// the scenario names.
TEST(PlanClusters, MessagesThatWereMeasuredAreThoseOfOneNode) {
    SettledScenario scenario = partitioned({5}, 1, 4);
    scenario.pipeline.data_parallel = 2;
    scenario.pipeline.shard = Shard::Weights;
    Profile profile = chain_profile();
    profile.groups = {.devices = 1, .replicas = 2, .shard = "weights"};
    const auto is_measured = [&] { return Cluster(scenario, profile, 1).has_measured_replicas(); };
    EXPECT_TRUE(is_measured());
    profile.links.clear();
    EXPECT_TRUE(is_measured()) << "whatever links the profile has";
    scenario.cluster.per_node = 2;
    EXPECT_TRUE(is_measured());
    scenario.cluster.per_node = 1;
    scenario.cluster.node_link_gbps = 1;
    EXPECT_FALSE(is_measured());
    scenario.cluster.per_node = 2;
    scenario.cluster.link_gbps = 1;
    EXPECT_FALSE(is_measured());
}

/// 64 H100 in nodes of eight, expert groups of 16 devices: what lies inside is as measured.
TEST(PlanClusters, GroupsOfDevicesShareTheAdaptersOfTheirNodes) {
    SettledScenario scenario = partitioned({5}, 1, 4);
    scenario.cluster.device = "h100-sxm";
    scenario.cluster.node_link_gbps = 400;
    Profile profile = chain_profile();
    profile.device = "h100-sxm";
    profile.links.clear();
    const DeviceGrid grid({.expert = 16, .data = 4}, pipeline_last);
    const DeviceGroups groups = grid.groups({Axis::Expert});
    const auto group = [&](int per_node) {
        return Cluster(scenario, profile, 1)
            .group_of_devices(0, groups, nodes_in_order(64, per_node));
    };
    EXPECT_EQ(group(8).members, 16);
    EXPECT_EQ(group(8).per_node, 8);
    EXPECT_EQ(group(8).between.bytes_per_second, 50e9);
    EXPECT_EQ(group(8).inside.bytes_per_second, 365e9);
    ASSERT_TRUE(group(8).table);
    EXPECT_EQ(*group(8).table, find_device("h100-sxm").collectives->value);
    EXPECT_EQ(group(8).latency, std::nullopt);
    // Four adapters of 50 GB/s for eight devices; a device has no more than its own link carries.
    for (const int first : {0, 2, 4, 6}) {
        scenario.cluster.shared_links.push_back(
            shared_by({first, first + 1}, 50e9, SharedLinkKind::Uplink));
    }
    EXPECT_EQ(group(8).between.bytes_per_second, 25e9);
    EXPECT_EQ(group(8).between_alone->bytes_per_second, 50e9);
    scenario.cluster.node_link_gbps = 80;
    EXPECT_EQ(group(8).between.bytes_per_second, 10e9);
    EXPECT_EQ(group(16).between.bytes_per_second, 0);  // no group leaves its node
    // Links of the scenario's own, and latencies: not what was measured.
    scenario.cluster.link_latency_us = 2;
    EXPECT_FALSE(group(8).table);
    scenario.cluster.link_latency_us = 0;
    scenario.cluster.link_gbps = 100;
    EXPECT_FALSE(group(8).table);
    EXPECT_EQ(group(8).inside.bytes_per_second, 12.5e9);
}

/// A stack's latencies scale with the links: the answer to "what would help" assumes faster links.
TEST(PlanClusters, FasterLinksHaveShorterLatenciesOfAStack) {
    SettledScenario scenario = partitioned({5}, 1, 4);
    scenario.pipeline.data_parallel = 4;
    scenario.pipeline.all_reduce = AllReduceKind::Rings;
    scenario.cluster.link_gbps = 8;
    Profile profile = chain_profile();
    profile.stack = "nemo-2024";
    const auto with = [&](const LinkFactors& factors) {
        const Cluster cluster(scenario, profile, 1, factors);
        return all_reduce_time(AllReduceKind::Rings, cluster.replicas_of(0), Bytes{500});
    };
    EXPECT_EQ(with({}), Duration(6 * 125 + 2 * (22'000 + 4 * 2500)));
    EXPECT_EQ(with({.inside = 2}), with({}) / 2);
    EXPECT_EQ(with({.inside = std::numeric_limits<double>::infinity()}), Duration{});
}

TEST(PlanClusters, AnUplinkTakesThePlaceOfTheNetworkOfItsNode) {
    SettledScenario scenario = scenario_of(4, 4, 8);
    scenario.cluster.per_node = 2;
    scenario.cluster.node_link_gbps = 8;
    scenario.cluster.link_sharing = LinkSharing::Fifo;
    EXPECT_THAT(plan_of(scenario)->contention.link_names,
                ElementsAre("network out of node 0",
                            "network into node 1",
                            "network out of node 1",
                            "network into node 0"));
    scenario.cluster.shared_links = {shared_by({1}, 1e9, SharedLinkKind::Uplink)};
    const Contention contention = plan_of(scenario)->contention;
    EXPECT_EQ(contention.sharing, LinkSharing::Fifo);
    EXPECT_THAT(contention.link_names,
                ElementsAre("uplink out of device 1", "uplink into device 1"))
        << "device 1 of node 0 sends to device 0 of node 1, which has none";
}

TEST(PlanClusters, RanksThatShareProcessorsDisturbEachOther) {
    SettledScenario scenario = scenario_of(2, 4, 8);
    scenario.cluster.cores = 1;
    scenario.cluster.interference = 0.5;
    scenario.cluster.transfer = TransferMode::Blocking;
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan->contention.cores, 1);
    EXPECT_EQ(plan->contention.interference,
              (std::vector<std::vector<double>>(2, std::vector<double>(2, 0.5))));
    EXPECT_EQ(plan->transfer, TransferMode::Blocking);
}

TEST(PlanClusters, RanksDisturbEachOtherPairByPair) {
    SettledScenario scenario = scenario_of(2, 4, 8);
    scenario.cluster.pair_interference = {{0, 0.3}, {0.1, 0}};
    EXPECT_EQ(plan_of(scenario)->contention.interference, scenario.cluster.pair_interference);
}

TEST(PlanClusters, RanksDisturbEachOtherAsMeasuredWhereTheScenarioDoesNotSay) {
    SettledScenario scenario = scenario_of(3, 4, 8);
    Profile profile = chain_profile();
    profile.ranks = {{.device = 0, .interference = 0.25},
                     {.device = 0, .interference = 0.5},
                     {.device = 1, .interference = 0.75}};
    using Shares = std::vector<std::vector<double>>;
    EXPECT_EQ(plan_of(scenario, profile)->contention.interference,
              (Shares{{0, 0.25, 0}, {0.5, 0, 0}, {0, 0, 0}}))
        << "only those on one device";
    profile.ranks[0].interference = 0;
    profile.ranks[1].interference = 0;
    profile.ranks[2].interference = 0;
    EXPECT_FALSE(plan_of(scenario, profile)->contention.any());

    profile.ranks.resize(2);
    profile.ranks[0].interference = 0.25;
    profile.ranks[1].interference = 0.75;
    EXPECT_EQ(plan_of(scenario, profile)->contention.interference,
              (Shares{{0, 0.5, 0.5}, {0.5, 0, 0.5}, {0.5, 0.5, 0}}))
        << "of another number of ranks each has the mean";

    scenario.cluster.pair_interference = Shares(3, std::vector<double>(3, 0));
    EXPECT_EQ(plan_of(scenario, profile)->contention.interference,
              scenario.cluster.pair_interference)
        << "what the scenario says counts";
    scenario.cluster.pair_interference.clear();
    scenario.cluster.interference = 0;
    EXPECT_FALSE(plan_of(scenario, profile)->contention.any());
}

}  // namespace plan_clusters_test
}  // namespace pipetwin
