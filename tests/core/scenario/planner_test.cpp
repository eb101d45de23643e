// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/planner.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/artifacts/plan_json.h"
#include "core/model/model.h"
#include "core/plan/plan_order.h"
#include "core/schedule/generators/generate.h"
#include "core/timeline/memory_limits.h"
#include "tests/support/builders.h"
#include "tests/support/error_of.h"
#include "tests/support/scenario_plans.h"

namespace pipetwin {
namespace planner_test {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::chain_profile;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::layer;
using ::testing::Not;
using testing::partitioned;
using testing::plan_error_of;
using testing::plan_of;
using testing::row_text;
using testing::scenario_of;

/// The rows without what `lower` has added.
std::vector<std::vector<Action>> compute_actions(const Schedule& schedule) {
    std::vector<std::vector<Action>> rows = schedule.ranks;
    for (auto& row : rows) {
        std::erase_if(row, [](const Action& action) { return !is_compute(action.op); });
    }
    return rows;
}

TEST(ScenarioPlan, StageCostsAreSumsOfTheirLayers) {
    const Plan plan = plan_of(partitioned({2, 3}));
    EXPECT_EQ(plan.cost(0, 0).forward, Duration(30));
    EXPECT_EQ(plan.cost(0, 0).recompute, Duration(30));
    EXPECT_EQ(plan.cost(0, 0).backward_input, Duration(60));
    EXPECT_EQ(plan.cost(0, 0).backward_weight, Duration(30));
    EXPECT_EQ(plan.cost(0, 0).backward, Duration(90));
    EXPECT_EQ(plan.cost(1, 0).forward, Duration(90));
    EXPECT_EQ(plan.cost(1, 0).saved, Bytes{64 + 23 + 31});
    EXPECT_EQ(plan.duration({.op = Op::Forward, .stage = 1}), Duration(91));  // with dispatch
    EXPECT_THAT(plan->layer_names, ElementsAre("a", "b", "c", "d", "e"));
}

TEST(ScenarioPlan, BoundariesAreTheOutputsThatCrossThem) {
    const Plan plan = plan_of(partitioned({2, 3}));
    EXPECT_EQ(plan.cost(0, 0).input, Bytes{3});  // the model's own input
    EXPECT_EQ(plan.cost(0, 0).output, Bytes{7});
    EXPECT_EQ(plan.cost(1, 0).input, Bytes{7});
    EXPECT_EQ(plan.cost(1, 0).output, Bytes{0});
}

/// b reads a, c reads a and b, d reads c: over the cut behind b go a's output and b's, each once.
TEST(ScenarioPlan, BoundariesOfBranchesAreCountedOncePerTensor) {
    Profile profile = chain_profile();
    profile.layers[2].inputs = {"a", "b"};
    profile.layers[3].inputs = {"c", "b"};
    const Plan plan = plan_of(partitioned({2, 1, 2}), profile);
    EXPECT_EQ(plan.cost(0, 0).output, Bytes{5 + 7});
    EXPECT_EQ(plan.cost(1, 0).input, Bytes{5 + 7});
    EXPECT_EQ(plan.cost(1, 0).output, Bytes{11 + 7});  // b's output passes by for d
    EXPECT_EQ(plan.cost(2, 0).input, Bytes{11 + 7});
}

TEST(ScenarioPlan, SaysWhereCostsOfWholeBackwardsStandForHalves) {
    const auto says_so = Contains(HasSubstr("measured in a schedule with whole backwards"));
    Profile profile = chain_profile();
    SettledScenario scenario = partitioned({2, 1, 1, 1});
    scenario.pipeline.schedule = "zb-h1";
    EXPECT_THAT(plan_of(scenario, profile)->notes, Not(says_so));
    profile.whole_backwards = true;
    EXPECT_THAT(plan_of(scenario, profile)->notes, says_so);
    scenario.pipeline.schedule = "1f1b";
    EXPECT_THAT(plan_of(scenario, profile)->notes, Not(says_so));
}

/// Costs of whole backwards with a measured factor: halves take longer by it, wholes do not.
TEST(ScenarioPlan, HalvesOfBackwardsTakeLongerByWhatWasMeasured) {
    const auto says_how_much = Contains(HasSubstr("the halves take 10.0 % longer than the whole"));
    Profile profile = chain_profile();
    profile.whole_backwards = true;
    profile.halves_over_whole = 1.1;
    SettledScenario scenario = partitioned({2, 3});
    scenario.pipeline.schedule = "zb-h1";
    const Plan divided = plan_of(scenario, profile);
    EXPECT_EQ(divided.cost(0, 0).backward_input, Duration(66));  // 60 without
    EXPECT_EQ(divided.cost(0, 0).backward_weight, Duration(33));
    EXPECT_EQ(divided.duration({.op = Op::BackwardInput, .stage = 0}), Duration(67));
    EXPECT_THAT(divided->notes, says_how_much);
    scenario.pipeline.schedule = "1f1b";
    const Plan whole = plan_of(scenario, profile);
    EXPECT_EQ(whole.duration({.op = Op::Backward, .stage = 0}), Duration(91));  // with dispatch
    EXPECT_THAT(whole->notes, Not(says_how_much));
}

TEST(ScenarioPlan, SaysWhatCostsOfRanksThatSharedAGpuAreOf) {
    const auto shared = Contains(HasSubstr("ranks share a GPU: each takes 5 to 20 % longer"));
    const auto others = Contains(HasSubstr("the costs are those of 2 ranks that shared a GPU"));
    Profile profile = chain_profile();
    profile.ranks = {{.device = 0, .interference = 0.2}, {.device = 0, .interference = 0.05}};
    SettledScenario scenario = partitioned({3, 2});
    scenario.pipeline.stages = 2;
    EXPECT_THAT(plan_of(scenario, profile)->notes, AllOf(shared, Not(others)));
    scenario.cluster.interference = 0;
    EXPECT_THAT(plan_of(scenario, profile)->notes, Not(AnyOf(shared, others)));
    scenario = partitioned({2, 1, 1, 1});
    EXPECT_THAT(plan_of(scenario, profile)->notes, AllOf(others, Not(shared)));
    profile.ranks[1].device = 1;
    EXPECT_THAT(plan_of(scenario, profile)->notes, Not(AnyOf(shared, others)))
        << "each had a GPU of its own";
}

/// A V places the first stage and the last on one rank: what e reads of a is not sent there, and
/// the plan says how much that is.
TEST(ScenarioPlan, SaysWhatStaysOnItsRankOfTheOutputsThatSkipStages) {
    Profile profile = chain_profile();
    profile.layers[4].inputs = {"d", "a"};
    SettledScenario scenario = partitioned({2, 1, 1, 1});
    const Plan sent = plan_of(scenario, profile);
    EXPECT_THAT(sent->schedule.skips, ElementsAre(StagePair{0, 3}));
    EXPECT_EQ(sent->message_bytes.front().back(), Bytes{5});
    EXPECT_THAT(sent->notes, Not(Contains(HasSubstr("skip stages"))));
    scenario.pipeline.schedule = "zb-v";
    scenario.pipeline.stages = 2;
    scenario.pipeline.chunks = 2;
    const Plan stays = plan_of(scenario, profile);
    EXPECT_THAT(stays->schedule.skips, IsEmpty());
    EXPECT_THAT(stays->notes,
                Contains("outputs that skip stages: 5 B a micro-batch stay on their rank, 0 B are "
                         "sent to another"));
    EXPECT_EQ(stays.cost(3, 0).input, sent.cost(3, 0).input);  // it is a part of it still
}

/// Layer by layer, beside the stage's input where it is not the layer's own: c 64 + 11; d 7 + 23 +
/// 2; e 7 + 31.
TEST(ScenarioPlan, AForwardThatDropsHoldsTheStageInputAndOneLayer) {
    const Plan plan = plan_of(partitioned({2, 3}));
    EXPECT_EQ(plan.cost(0, 0).forward_drop_peak, Bytes{std::max(13 + 5, 3 + 17 + 7)});
    EXPECT_EQ(plan.cost(1, 0).forward_drop_peak, Bytes{std::max({64 + 11, 7 + 23 + 2, 7 + 31})});
}

/// From the last layer to the first, with both gradients. The model's first layer makes no gradient
/// of its input.
TEST(ScenarioPlan, ABackwardHoldsWhatIsLeftOfTheStashAndTwoGradients) {
    const Plan plan = plan_of(partitioned({2, 3}));
    EXPECT_EQ(plan.cost(0, 0).backward_peak, Bytes{std::max(13 + 17 + 7 + 5, 13 + 5)});
    EXPECT_EQ(plan.cost(1, 0).backward_peak,
              Bytes{std::max({64 + 23 + 31 + 0 + 2, 64 + 23 + 2 + 11, 64 + 11 + 7})});
}

TEST(ScenarioPlan, StatesFollowFromParametersAndOptimizer) {
    SettledScenario scenario = partitioned({2, 3});
    const auto state_with = [&scenario](OptimizerKind optimizer) {
        scenario.training.optimizer = optimizer;
        return plan_of(scenario)->states[1];
    };
    EXPECT_EQ(state_with(OptimizerKind::Sgd).optimizer_state, Bytes{0});
    EXPECT_EQ(state_with(OptimizerKind::Momentum).optimizer_state, Bytes{300});
    EXPECT_EQ(state_with(OptimizerKind::RmsProp).optimizer_state, Bytes{300});
    EXPECT_EQ(state_with(OptimizerKind::Adam).optimizer_state, Bytes{600});
    const StageState state = state_with(OptimizerKind::AdamW);
    EXPECT_EQ(state.optimizer_state, Bytes{600});
    EXPECT_EQ(state.weights, Bytes{300});
    EXPECT_EQ(state.gradients, Bytes{300});
    EXPECT_EQ(state.workspace, Bytes{40});
    EXPECT_EQ(state.optimizer, Duration(21));
}

TEST(ScenarioPlan, MicroBatchesOfTwoSizesHaveTwoCostClasses) {
    const Plan plan = plan_of(partitioned({2, 3}, 4, 10));
    EXPECT_THAT(plan->micro_batch_sizes, ElementsAre(3, 3, 2, 2));
    EXPECT_THAT(plan->cost_class, ElementsAre(0, 0, 1, 1));
    EXPECT_EQ(plan.cost(0, 0).forward, Duration(90));
    EXPECT_EQ(plan.cost(0, 3).forward, Duration(60));
    EXPECT_EQ(plan.samples(), 10);
}

TEST(ScenarioPlan, ABatchSmallerThanMGivesAsManyMicroBatchesAsSamples) {
    const Plan plan = plan_of(partitioned({2, 3}, 8, 3));
    EXPECT_EQ(plan.micro_batches(), 3);
    EXPECT_EQ(plan->schedule.ranks[0].size(), 3U * 4U + 1U);
}

TEST(ScenarioPlan, ExceptLastMeansTheReallyLastMicroBatchOfASmallBatch) {
    SettledScenario scenario = partitioned({2, 3}, 8, 3);
    scenario.pipeline.recompute = Recompute::ExceptLast;
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(row_text(plan->schedule, 1),
              "1RECV_F0 1F0 1RECV_F1 1F1 1RECV_F2 1F2 1B2 1SEND_B2 1R1 1B1 1SEND_B1 1R0 1B0 "
              "1SEND_B0 1OPT");
}

TEST(ScenarioPlan, AutoIsTheBalancedPartitionOfForwardRecomputeAndBackward) {
    // f + b: 40 80 120 80 160; the best split in two is 240 and 240.
    EXPECT_EQ(plan_of(scenario_of(2, 2, 2))->partition, Partition({3, 2}, 5));
}

TEST(ScenarioPlan, AutoKnowsWhichPiecesRecompute) {
    // f + b: 40 80 120 80 160; with the recompute 50 100 150 100 200. Without any, 120, 200 and 160
    // are best. With the middle one's that would be 120, 250 and 160; 240 is the least that the
    // slowest can have: 120, 150 and 240, or 240, 100 and 160.
    SettledScenario scenario = scenario_of(3, 3, 3);
    EXPECT_EQ(plan_of(scenario)->partition, Partition({2, 2, 1}, 5));
    scenario.pipeline.recompute =
        RecomputeRules({Recompute::None, Recompute::Always, Recompute::None});
    EXPECT_THAT(plan_of(scenario)->partition->layers_per_stage(),
                AnyOf(ElementsAre(2, 1, 2), ElementsAre(3, 1, 1)));
}

TEST(ScenarioPlan, HasOneModeOfRecomputeForEachPiece) {
    SettledScenario scenario = partitioned({2, 3}, 2, 2);
    scenario.pipeline.recompute = RecomputeRules({Recompute::None, Recompute::ExceptLast});
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan->recompute, scenario.pipeline.recompute);
    EXPECT_EQ(row_text(plan->schedule, 0),
              "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B1 0B1 0RECV_B0 0B0 0OPT");
    EXPECT_EQ(row_text(plan->schedule, 1),
              "1RECV_F0 1F0 1RECV_F1 1F1 1B1 1SEND_B1 1R0 1B0 1SEND_B0 1OPT");
    scenario.pipeline.recompute =
        RecomputeRules({Recompute::None, Recompute::None, Recompute::Always});
    EXPECT_EQ(plan_error_of(scenario).text(),
              "pipeline.recompute: 3 entries for 2 stages, expected one entry per stage");
}

TEST(ScenarioPlan, ExceptLastOfOneMicroBatchIsNothingBesideOthersToo) {
    SettledScenario scenario = partitioned({2, 3}, 1, 2);
    scenario.pipeline.recompute = RecomputeRules({Recompute::ExceptLast, Recompute::Always});
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(row_text(plan->schedule, 0), "0F0 0SEND_F0 0RECV_B0 0B0 0OPT");
    EXPECT_EQ(row_text(plan->schedule, 1), "1RECV_F0 1F0 1R0 1B0 1SEND_B0 1OPT");
    EXPECT_EQ(plan->recompute, scenario.pipeline.recompute);
}

TEST(ScenarioPlan, OneStageHoldsEverything) {
    const Plan plan = plan_of(scenario_of(1, 2, 2));
    EXPECT_EQ(plan->partition, Partition({5}, 5));
    EXPECT_TRUE(plan->links.empty());
    EXPECT_EQ(row_text(plan->schedule, 0), "0F0 0F1 0B1 0B0 0OPT");
}

TEST(ScenarioPlan, LinksComeFromTheProfileUnlessTheScenarioSaysOtherwise) {
    SettledScenario scenario = partitioned({1, 2, 2});
    EXPECT_EQ(plan_of(scenario)->links[0], chain_profile().links[0]);
    scenario.cluster.link_gbps = 16;
    scenario.cluster.link_latency_us = 2.5;
    const LinkCost link = plan_of(scenario)->links[1];
    EXPECT_EQ(link.bytes_per_second, 2e9);
    EXPECT_EQ(link.latency, Duration(2500));
    EXPECT_EQ(link.half_bandwidth, Bytes{0});
}

TEST(ScenarioPlan, LinksBetweenNodesHaveTheirOwnFigures) {
    SettledScenario scenario = partitioned({1, 1, 1, 2});
    scenario.cluster.per_node = 2;
    scenario.cluster.link_gbps = 80;
    scenario.cluster.node_link_gbps = 8;
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan->links[0].bytes_per_second, 1e10);
    EXPECT_EQ(plan->links[1].bytes_per_second, 1e9);
    EXPECT_EQ(plan->links[2].bytes_per_second, 1e10);
    scenario.cluster.node_link_gbps = 0;
    EXPECT_EQ(plan_of(scenario)->links[1].bytes_per_second, 1e10);
}

TEST(ScenarioPlan, AProfileWithoutLinksMeansInstantOnes) {
    Profile profile = chain_profile();
    profile.links.clear();
    EXPECT_EQ(plan_of(partitioned({2, 3}), profile)->links[0], LinkCost{});
}

TEST(ScenarioPlan, HasALinkToHostMemoryWhereStashesAreOffloaded) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.cluster.host_link = "pcie-4";
    scenario.cluster.host_link_latency_us = 7;
    EXPECT_FALSE(plan_of(scenario)->host_link);
    scenario.pipeline.offload = Offload::Stash;
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan->host_link->bytes_per_second, 32e9);  // profiles/links.json
    EXPECT_EQ(plan->host_link->latency, Duration(7'000));
    scenario.cluster.host_link.clear();
    scenario.cluster.host_link_gbps = 80;
    EXPECT_EQ(plan_of(scenario)->host_link->bytes_per_second, 1e10);
    EXPECT_EQ(plan_of(scenario)->host_link->half_bandwidth, Bytes{});
}

TEST(ScenarioPlan, TakesTheMeasuredLinkToHostMemoryUnlessTheScenarioNamesOne) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.pipeline.offload = Offload::Stash;
    scenario.cluster.host_link_latency_us = 7;
    EXPECT_EQ(plan_error_of(scenario).kind(), ErrorKind::BadInput);
    Profile profile = chain_profile();
    profile.links.push_back({.between = "host", .bytes_per_second = 5e10});
    EXPECT_EQ(plan_of(scenario, profile)->host_link->bytes_per_second, 5e10);
    EXPECT_EQ(plan_of(scenario, profile)->host_link->latency, Duration(7'000));
    scenario.cluster.host_link = "pcie-4";
    EXPECT_EQ(plan_of(scenario, profile)->host_link->bytes_per_second, 32e9);
}

TEST(ScenarioPlan, CarriesCapacityAndMemoryLimit) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.pipeline.channel_capacity = 3;
    scenario.cluster.memory_limit = Bytes{12345};
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan->channel_capacity, 3);
    EXPECT_EQ(plan->memory_limit, Bytes{12345});
}

TEST(ScenarioPlan, ZbAutoSearchesWithTheCostsOfTheProfile) {
    SettledScenario scenario = partitioned({2, 2, 1}, 12, 12);
    scenario.pipeline.schedule = "zb-auto";
    const Plan plan = plan_of(scenario);
    const ZeroBubbleCosts costs = zero_bubble_costs(plan.parts(), plan->schedule);
    EXPECT_THAT(costs.forward, ElementsAre(Duration(31), Duration(51), Duration(41)));
    EXPECT_THAT(costs.backward_input, ElementsAre(Duration(61), Duration(101), Duration(81)));
    EXPECT_THAT(costs.backward_weight, ElementsAre(Duration(31), Duration(51), Duration(41)));
    EXPECT_THAT(costs.latency, ElementsAre(Duration(817), Duration(812)));  // 7 and 2 bytes
    EXPECT_THAT(costs.live_limit, IsEmpty());
    const ScheduleShape shape{.ranks = 3, .micro_batches = 12};
    EXPECT_EQ(compute_actions(plan->schedule),
              generate(ScheduleKind::ZbAuto, shape, {.zero_bubble = costs}).ranks);
}

TEST(ScenarioPlan, ZbAutoKnowsWhichPiecesRecompute) {
    SettledScenario scenario = partitioned({2, 2, 1}, 12, 12);
    scenario.pipeline.schedule = "zb-auto";
    scenario.pipeline.recompute =
        RecomputeRules({Recompute::None, Recompute::Always, Recompute::None});
    const Plan plan = plan_of(scenario);
    EXPECT_THAT(zero_bubble_costs(plan.parts(), plan->schedule).backward_input,
                ElementsAre(Duration(61), Duration(101 + 51), Duration(81)));
    EXPECT_EQ(recompute_of(plan->schedule), scenario.pipeline.recompute);
}

TEST(ScenarioPlan, ZbAutoKeepsTheMemoryLimit) {
    SettledScenario scenario = partitioned({2, 2, 1}, 12, 12);
    scenario.pipeline.schedule = "zb-auto";
    for (const Recompute recompute : {Recompute::None, Recompute::Always}) {
        scenario.pipeline.recompute = recompute;
        for (int room = 1; room <= 12; ++room) {
            // The stage of c and d: 4 * 200 bytes of state and 30 of workspace.
            scenario.cluster.memory_limit = Bytes{1000 + 100 * room};
            const Plan plan = plan_of(scenario);
            EXPECT_NO_THROW(check_memory(plan)) << room;
        }
    }
}

TEST(ScenarioPlan, ADeadlockAtTheStatedCapacityIsRefused) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.pipeline.schedule = "1f1b";
    scenario.pipeline.channel_capacity = 0;
    EXPECT_EQ(plan_error_of(scenario).kind(), ErrorKind::Infeasible);
}

TEST(ScenarioPlan, MoreStagesThanDevicesAreRefusedNamingBothAndTheBalancer) {
    SettledScenario scenario = scenario_of(4, 2, 2);
    scenario.cluster.count = 3;
    const Error error = plan_error_of(scenario);
    EXPECT_THAT(error.text(), AllOf(HasSubstr("stages = 4"), HasSubstr("count = 3")));
    EXPECT_THAT(error.hint(), HasSubstr("partition = \"auto\""));
}

TEST(ScenarioPlan, APartitionThatDoesNotSumToTheModelIsRefusedNamingBothAndTheBalancer) {
    const Error error = plan_error_of(partitioned({2, 4}));
    EXPECT_THAT(error.text(), AllOf(HasSubstr("6"), HasSubstr("expected 5 (units: ")));
    EXPECT_THAT(error.hint(), HasSubstr("partition = \"auto\""));
    EXPECT_EQ(plan_error_of(partitioned({5, 0})).kind(), ErrorKind::BadInput);
}

TEST(ScenarioPlan, MoreStagesThanLayersAreRefusedNamingBoth) {
    EXPECT_THAT(plan_error_of(scenario_of(6, 2, 2)).text(), AllOf(HasSubstr("6"), HasSubstr("5")));
}

TEST(ScenarioPlan, AProfileOfAnotherModelIsRefusedNamingBoth) {
    const SettledScenario scenario = partitioned({2, 3});
    const Profile profile = chain_profile();
    const Model model = scenario_model(scenario, &profile);
    const auto text_with = [&](const Profile& other) {
        try {
            make_plan(scenario, model, other);
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput);
            return error.text();
        }
        return std::string();
    };
    Profile renamed = profile;
    renamed.layers[3].name = "delta";
    EXPECT_THAT(text_with(renamed), AllOf(HasSubstr("'delta'"), HasSubstr("'d'")));
    Profile shorter = profile;
    shorter.layers.pop_back();
    EXPECT_THAT(text_with(shorter), AllOf(HasSubstr("4 layers"), HasSubstr("has 5")));
}

TEST(ScenarioPlan, NaiveTakesOneMicroBatchOnly) {
    SettledScenario scenario = partitioned({2, 3}, 2, 8);
    scenario.pipeline.schedule = "naive";
    EXPECT_EQ(plan_error_of(scenario).text(), "needs one micro-batch, got 2");
    scenario.pipeline.micro_batches = 1;
    EXPECT_EQ(plan_of(scenario).micro_batches(), 1);
}

TEST(ScenarioPlan, ClippingPutsNormsBeforeUpdatesAndEachTakesItsShareOfTheUpdatesBytes) {
    SettledScenario scenario = partitioned({2, 3}, 1, 2);
    scenario.pipeline.recompute = Recompute::None;
    scenario.training.clip_norm = 1;
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(row_text(plan->schedule, 1), "1RECV_F0 1F0 1B0 1SEND_B0 1NORM 1OPT");
    EXPECT_EQ(plan->states[1].norm, Duration(21 / 7));  // adamw: 3 numbers per weight, and 2 x 2
    EXPECT_EQ(plan.duration({.op = Op::GradientNorm, .stage = 1}), Duration(3 + 1));
    scenario.training.optimizer = OptimizerKind::Sgd;
    EXPECT_EQ(plan_of(scenario)->states[1].norm, Duration(21 / 3));
}

/// A GPT of two blocks whose layers cost the same; bytes are 4 for each number.
Profile tied_profile(const Model& model) {
    Profile profile;
    for (int i = 0; i < model.layer_count(); ++i) {
        LayerCost& cost = profile.layers.emplace_back(layer(model.layer(i).spec.name, 10, 4, 8));
        cost.parameter_bytes = Bytes{4 * model.layer(i).parameter_count};
    }
    return profile;
}

SettledScenario tied_gpt(int stages) {
    SettledScenario scenario;
    scenario.model.gpt = {
        .layers = 2, .d_model = 8, .heads = 2, .context = 4, .vocabulary = 16, .tied = true};
    scenario.training.batch = 2;
    scenario.training.optimizer = OptimizerKind::Momentum;
    scenario.pipeline.stages = stages;
    scenario.pipeline.schedule = "1f1b";
    scenario.pipeline.recompute = Recompute::None;
    return scenario;
}

TEST(ScenarioPlan, TiedEndsHandEachOtherTheirGradientsAndEitherHasRoomForTwo) {
    constexpr std::int64_t table = 16 * 8 * 4;
    SettledScenario scenario = tied_gpt(3);
    const Model model = scenario_model(scenario);
    const Plan plan = make_plan(scenario, model, tied_profile(model));
    EXPECT_EQ(row_text(plan->schedule, 0), "0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD 0OPT");
    EXPECT_EQ(plan.handed_over(0), Bytes{table});
    for (const std::size_t stage : {0U, 2U}) {
        const StageState& state = plan->states[stage];
        EXPECT_EQ(state.gradients.count, state.weights.count + table);
        EXPECT_EQ(state.optimizer_state, state.weights);
    }
    EXPECT_EQ(plan->states[1].gradients, plan->states[1].weights);

    scenario = tied_gpt(1);
    const Plan alone = make_plan(scenario, model, tied_profile(model));
    EXPECT_EQ(row_text(alone->schedule, 0), "0F0 0B0 0OPT");
    std::int64_t weights = -table;
    for (const StageState& state : plan->states) {
        weights += state.weights.count;
    }
    EXPECT_EQ(alone->states[0].weights.count, weights);
    EXPECT_EQ(alone->states[0].gradients.count, weights + table);
}

TEST(ScenarioPlan, WeightsThatTwoPipelinesShareAreNotTiedBesides) {
    SettledScenario scenario = tied_gpt(2);
    scenario.pipeline.schedule = "chimera";
    scenario.pipeline.micro_batches = 2;
    const Model model = scenario_model(scenario);
    const Profile profile = tied_profile(model);
    const Error error = testing::error_of([&] { make_plan(scenario, model, profile); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(
        error.text(),
        HasSubstr("model.tied = true, which a schedule of two pipelines with the same weights"));
}

TEST(ScenarioPlan, BlocksOfAGptCountTheEmbeddingFirstAndTheHeadLast) {
    SettledScenario scenario;
    scenario.model.gpt = {.layers = 3, .d_model = 8, .heads = 2, .context = 4, .vocabulary = 16};
    scenario.training.batch = 2;
    scenario.pipeline.stages = 2;
    scenario.pipeline.recompute = Recompute::None;
    scenario.pipeline.partition = {{1, 2}};
    const Model model = scenario_model(scenario);
    Profile profile;
    for (int i = 0; i < model.layer_count(); ++i) {
        profile.layers.push_back(layer(model.layer(i).spec.name, 10, 4, 8));
    }
    EXPECT_EQ(make_plan(scenario, model, profile)->partition, Partition({3, 5}, 8));
    scenario.pipeline.partition = {{2, 6}};
    EXPECT_EQ(make_plan(scenario, model, profile)->partition, Partition({2, 6}, 8));
}

/// With the names and notes of `alone`, which plans that are only simulated do without.
std::string named_like(const Plan& alone, const Plan& plan) {
    PlanParts parts = plan.parts();
    parts.layer_names = alone->layer_names;
    parts.notes = alone->notes;
    return print_plan(Plan::make(std::move(parts)));
}

// The last layer reads the first one, too: whether that output skips a stage depends on the cut.
TEST(Planner, GivesThePlanOfEachPartitionWhereMessagesDependOnIt) {
    Profile profile = chain_profile();
    profile.layers[4].inputs = {"d", "a"};
    SettledScenario open = scenario_of(3, 4, 4);
    const Model model = scenario_model(open, &profile);
    const Planner planner(open, model, profile);
    const Plan first = planner.plan(RowsFrom::Generator);
    for (const std::vector<int>& sizes : testing::all_partitions(5, 3)) {
        SettledScenario scenario = open;
        scenario.pipeline.partition = sizes;
        const Plan alone = make_plan(scenario, model, profile);
        EXPECT_EQ(named_like(alone, planner.plan_with_rows_of(first, sizes)), print_plan(alone));
        EXPECT_EQ(named_like(alone, planner.plan(sizes, open.pipeline.recompute)),
                  print_plan(alone));
    }
}

// Each recompute has rows of its own.
TEST(Planner, GivesThePlanOfEachRecompute) {
    const Profile profile = chain_profile();
    const SettledScenario open = scenario_of(3, 4, 4);
    const Model model = scenario_model(open, &profile);
    const Planner planner(open, model, profile);
    for (const Recompute recompute : {Recompute::None, Recompute::ExceptLast, Recompute::Always}) {
        SettledScenario scenario = open;
        scenario.pipeline.recompute = recompute;
        const Plan alone = make_plan(scenario, model, profile);
        EXPECT_EQ(named_like(alone, planner.plan(std::nullopt, recompute)), print_plan(alone));
    }
}

}  // namespace planner_test
}  // namespace pipetwin
