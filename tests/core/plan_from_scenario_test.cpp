#include <algorithm>
#include <array>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "core/footprint.h"
#include "core/plan.h"
#include "core/plan_order.h"
#include "core/scenario.h"
#include "tests/support/builders.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::row_text;

/// A layer whose costs grow with the micro-batch: `forward` ns, `output` and `saved` bytes per
/// sample.
LayerCost layer(const std::string& name,
                int forward,
                int output,
                int saved,
                std::vector<std::string> inputs = {}) {
    LayerCost cost{.name = name, .inputs = std::move(inputs)};
    cost.parameter_bytes = Bytes{100};
    cost.optimizer = Duration(7);
    for (const int size : {1, 16}) {
        cost.samples.push_back({.micro_batch_size = size,
                                .forward = Duration(forward * size),
                                .backward_input = Duration(2 * forward * size),
                                .backward_weight = Duration(forward * size),
                                .input = Bytes{3 * size},
                                .output = Bytes{output * size},
                                .saved = Bytes{saved * size},
                                .workspace = Bytes{forward}});
    }
    return cost;
}

/// Five layers in a row; every size is a different prime or power, so that no sum is right by
/// accident.
Profile chain_profile() {
    return {.dispatch = Duration(1),
            .layers = {layer("a", 10, 5, 13),
                       layer("b", 20, 7, 17),
                       layer("c", 30, 11, 64),
                       layer("d", 20, 2, 23),
                       layer("e", 40, 0, 31)},
            .links = {
                {.latency = Duration(800), .bytes_per_second = 1e9, .half_bandwidth = Bytes{10}}}};
}

Scenario scenario_of(int stages, int micro_batches, int batch) {
    Scenario scenario;
    scenario.file = "x.toml";
    scenario.model.kind = ModelKind::Profile;
    scenario.training.batch = batch;
    scenario.pipeline.stages = stages;
    scenario.pipeline.micro_batches = micro_batches;
    scenario.pipeline.recompute = Recompute::None;
    return scenario;
}

Plan plan_of(const Scenario& scenario, const Profile& profile = chain_profile()) {
    return make_plan(scenario, scenario_model(scenario, &profile), profile);
}

Error error_of(const Scenario& scenario, const Profile& profile = chain_profile()) {
    try {
        plan_of(scenario, profile);
    } catch (const Error& error) {
        return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {ErrorKind::Other, "", ""};
}

Scenario partitioned(std::vector<int> pieces, int micro_batches = 2, int batch = 2) {
    Scenario scenario = scenario_of(static_cast<int>(pieces.size()), micro_batches, batch);
    scenario.pipeline.partition = std::move(pieces);
    return scenario;
}

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
    Scenario scenario = partitioned({2, 3});
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

TEST(ScenarioPlan, C17ABatchSmallerThanMGivesAsManyMicroBatchesAsSamples) {
    const Plan plan = plan_of(partitioned({2, 3}, 8, 3));
    EXPECT_EQ(plan.micro_batches(), 3);
    EXPECT_EQ(plan->schedule.ranks[0].size(), 3U * 4U + 1U);
}

TEST(ScenarioPlan, C16ExceptLastMeansTheReallyLastMicroBatchOfASmallBatch) {
    Scenario scenario = partitioned({2, 3}, 8, 3);
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

TEST(ScenarioPlan, OneStageHoldsEverything) {
    const Plan plan = plan_of(scenario_of(1, 2, 2));
    EXPECT_EQ(plan->partition, Partition({5}, 5));
    EXPECT_TRUE(plan->links.empty());
    EXPECT_EQ(row_text(plan->schedule, 0), "0F0 0F1 0B1 0B0 0OPT");
}

TEST(ScenarioPlan, LinksComeFromTheProfileUnlessTheScenarioSaysOtherwise) {
    Scenario scenario = partitioned({1, 2, 2});
    EXPECT_EQ(plan_of(scenario)->links[0], chain_profile().links[0]);
    scenario.cluster.link_gbps = 16;
    scenario.cluster.link_latency_us = 2.5;
    const LinkCost link = plan_of(scenario)->links[1];
    EXPECT_EQ(link.bytes_per_second, 2e9);
    EXPECT_EQ(link.latency, Duration(2500));
    EXPECT_EQ(link.half_bandwidth, Bytes{0});
}

TEST(ScenarioPlan, LinksBetweenNodesHaveTheirOwnFigures) {
    Scenario scenario = partitioned({1, 1, 1, 2});
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
    Scenario scenario = partitioned({2, 3});
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

TEST(ScenarioPlan, CarriesCapacityAndMemoryLimit) {
    Scenario scenario = partitioned({2, 3});
    scenario.pipeline.channel_capacity = 3;
    scenario.cluster.memory_limit = Bytes{12345};
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan->channel_capacity, 3);
    EXPECT_EQ(plan->memory_limit, Bytes{12345});
}

TEST(ScenarioPlan, ZbAutoSearchesWithTheCostsOfTheProfile) {
    Scenario scenario = partitioned({2, 2, 1}, 12, 12);
    scenario.pipeline.schedule = "zb-auto";
    const Plan plan = plan_of(scenario);
    const ZeroBubbleCosts costs = zero_bubble_costs(plan.parts());
    EXPECT_THAT(costs.forward, ElementsAre(Duration(31), Duration(51), Duration(41)));
    EXPECT_THAT(costs.backward_input, ElementsAre(Duration(61), Duration(101), Duration(81)));
    EXPECT_THAT(costs.backward_weight, ElementsAre(Duration(31), Duration(51), Duration(41)));
    EXPECT_THAT(costs.latency, ElementsAre(Duration(817), Duration(812)));  // 7 and 2 bytes
    EXPECT_THAT(costs.live_limit, IsEmpty());
    const ScheduleShape shape{.ranks = 3, .micro_batches = 12};
    EXPECT_EQ(compute_actions(plan->schedule),
              generate(ScheduleKind::ZbAuto, shape, {.zero_bubble = costs}).ranks);
}

TEST(ScenarioPlan, ZbAutoKeepsTheMemoryLimit) {
    Scenario scenario = partitioned({2, 2, 1}, 12, 12);
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
    Scenario scenario = partitioned({2, 3});
    scenario.pipeline.schedule = "1f1b";
    scenario.pipeline.channel_capacity = 0;
    EXPECT_EQ(error_of(scenario).kind(), ErrorKind::Infeasible);
}

TEST(ScenarioPlan, C26MoreStagesThanDevicesAreRefusedNamingBothAndTheBalancer) {
    Scenario scenario = scenario_of(4, 2, 2);
    scenario.cluster.count = 3;
    const Error error = error_of(scenario);
    EXPECT_THAT(error.text(), AllOf(HasSubstr("stages = 4"), HasSubstr("count = 3")));
    EXPECT_THAT(error.hint(), HasSubstr("partition = \"auto\""));
}

TEST(ScenarioPlan, C26APartitionThatDoesNotSumToTheModelIsRefusedNamingBothAndTheBalancer) {
    const Error error = error_of(partitioned({2, 4}));
    EXPECT_THAT(error.text(), AllOf(HasSubstr("6"), HasSubstr("5 layers")));
    EXPECT_THAT(error.hint(), HasSubstr("partition = \"auto\""));
    EXPECT_EQ(error_of(partitioned({5, 0})).kind(), ErrorKind::BadInput);
}

TEST(ScenarioPlan, MoreStagesThanLayersAreRefusedNamingBoth) {
    EXPECT_THAT(error_of(scenario_of(6, 2, 2)).text(), AllOf(HasSubstr("6"), HasSubstr("5")));
}

TEST(ScenarioPlan, AProfileOfAnotherModelIsRefusedNamingBoth) {
    const Scenario scenario = partitioned({2, 3});
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
    Scenario scenario = partitioned({2, 3}, 2, 8);
    scenario.pipeline.schedule = "naive";
    EXPECT_EQ(error_of(scenario).text(), "naive: one micro-batch, got 2");
    scenario.pipeline.micro_batches = 1;
    EXPECT_EQ(plan_of(scenario).micro_batches(), 1);
}

TEST(ScenarioPlan, BlocksOfAGptCountTheEmbeddingFirstAndTheHeadLast) {
    Scenario scenario;
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

// --- Devices. ---

TEST(ScenarioPlan, SpeedsDivideTheTimesOfTheirRanks) {
    Scenario scenario = partitioned({2, 3});
    scenario.cluster.speeds = {1, 0.5};
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan.cost(0, 0).forward, Duration(30));
    EXPECT_EQ(plan.cost(1, 0).forward, Duration(2 * 90));
    EXPECT_EQ(plan.cost(1, 0).backward_input, Duration(2 * 180));
    EXPECT_EQ(plan.cost(1, 0).backward, Duration(2 * 270));
    EXPECT_EQ(plan.cost(1, 0).saved, Bytes{64 + 23 + 31});
    EXPECT_EQ(plan->states[1].optimizer, Duration(2 * 21));
    EXPECT_EQ(plan.duration({.op = Op::Forward, .stage = 1}),
              Duration(181));  // the host's own time
}

/// f + b: 40 80 120 80 160 = 480. Twice as slow in front: 120 * 2 = 240 and 360; behind: 320 and
/// 160 * 2 = 320.
TEST(ScenarioPlan, AutoBalancesForTheSpeedsInTheirOrder) {
    Scenario scenario = scenario_of(2, 2, 2);
    scenario.cluster.speeds = {0.5, 1};
    EXPECT_EQ(plan_of(scenario)->partition, Partition({2, 3}, 5));
    scenario.cluster.speeds = {1, 0.5};
    EXPECT_EQ(plan_of(scenario)->partition, Partition({4, 1}, 5));
    scenario.cluster.speeds = {2, 2};
    EXPECT_EQ(plan_of(scenario)->partition, Partition({3, 2}, 5));
}

TEST(ScenarioPlan, CostsOfAnotherDeviceAreRefusedNamingBoth) {
    Profile profile = chain_profile();
    profile.device = "v100-sxm2";
    Scenario scenario = partitioned({2, 3});
    EXPECT_THAT(plan_of(scenario, profile)->notes, IsEmpty());
    scenario.cluster.device = "a100-sxm-80";
    const Error error = error_of(scenario, profile);
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), AllOf(HasSubstr("'v100-sxm2'"), HasSubstr("'a100-sxm-80'")));
    EXPECT_THAT(error.hint(), HasSubstr("cluster.scale_costs"));
}

/// fp32: 15.7 to 19.5 TFLOP/s; memory: 900 to 2039 GB/s.
TEST(ScenarioPlan, ScaledCostsAreEstimatedAndSayBySoMuch) {
    Profile profile = chain_profile();
    profile.source = CostSource::Measured;
    profile.device = "v100-sxm2";
    Scenario scenario = partitioned({2, 3});
    scenario.cluster.device = "a100-sxm-80";
    const auto forward_with = [&](ScaleCosts how) {
        scenario.cluster.scale_costs = how;
        return plan_of(scenario, profile).cost(1, 0).forward.count();
    };
    // Layers of 30, 20 and 40 ns, each rounded.
    EXPECT_EQ(forward_with(ScaleCosts::Compute), 24 + 16 + 32);  // x 0.8051
    EXPECT_EQ(forward_with(ScaleCosts::Memory), 13 + 9 + 18);    // x 0.4414
    EXPECT_EQ(forward_with(ScaleCosts::Cautious), 24 + 16 + 32);
    const Plan plan = plan_of(scenario, profile);
    EXPECT_EQ(plan->cost_source, CostSource::Estimated);
    EXPECT_THAT(plan->notes,
                ElementsAre(AllOf(HasSubstr("estimated"),
                                  HasSubstr("'v100-sxm2' x 0.8051"),
                                  HasSubstr("'a100-sxm-80'"))));
    // Links of the other device count for nothing.
    EXPECT_EQ(plan->links[0].bytes_per_second, 300e9);
}

TEST(ScenarioPlan, CostsOfTheSameDeviceStayWhatTheyAre) {
    Profile profile = chain_profile();
    profile.source = CostSource::Measured;
    profile.device = "h100-sxm";
    Scenario scenario = partitioned({2, 3});
    scenario.cluster.device = "h100-sxm";
    const Plan plan = plan_of(scenario, profile);
    EXPECT_EQ(plan.cost(1, 0).forward, Duration(90));
    EXPECT_EQ(plan->cost_source, CostSource::Measured);
    EXPECT_THAT(plan->notes, IsEmpty());
    EXPECT_EQ(plan->links[0], profile.links[0]);
    // What it has, and what its runtime takes.
    EXPECT_EQ(plan.memory_limit(0), Bytes{80'000'000'000});
    EXPECT_EQ(resident_memory(plan, 1)[MemoryKind::Context], Bytes{1'000'000'000});
    scenario.cluster.memory_limit = Bytes{5};
    EXPECT_EQ(plan_of(scenario, profile).memory_limit(1), Bytes{5});
}

TEST(ScenarioPlan, CostsOfNoDeviceAreTakenForThoseOfTheScenarioAndThatIsSaid) {
    Scenario scenario = partitioned({2, 3});
    scenario.cluster.device = "h100-sxm";
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan.cost(1, 0).forward, Duration(90));
    EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("taken for those of 'h100-sxm'")));
    scenario.cluster.device = this_machine;
    scenario.cluster.devices = {"h100-sxm", "v100-sxm2"};
    EXPECT_THAT(error_of(scenario).text(), HasSubstr("does not say whose costs"));
}

TEST(ScenarioPlan, EveryRankCanHaveADeviceOfItsOwn) {
    Profile profile = chain_profile();
    profile.device = "a100-sxm-80";
    profile.precision = "fp16";  // 312 and 125 TFLOP/s
    Scenario scenario = partitioned({2, 3});
    scenario.cluster.devices = {"a100-sxm-80", "v100-sxm2"};
    scenario.cluster.scale_costs = ScaleCosts::Compute;
    const Plan plan = plan_of(scenario, profile);
    EXPECT_EQ(plan.cost(0, 0).forward, Duration(30));
    EXPECT_EQ(plan.cost(1, 0).forward, Duration(75 + 50 + 100));  // x 2.496
    EXPECT_EQ(plan.memory_limit(0), Bytes{80'000'000'000});
    EXPECT_EQ(plan.memory_limit(1), Bytes{32'000'000'000});
    EXPECT_EQ(plan->links[0].bytes_per_second, 50e9);  // the slower end
    scenario.cluster.memory_limits = {Bytes{7}, Bytes{8}};
    EXPECT_EQ(plan_of(scenario, profile).memory_limit(1), Bytes{8});
}

TEST(ScenarioPlan, LaunchesBoundTheTimesOfSmallKernels) {
    Profile profile = chain_profile();
    for (LayerCost& layer : profile.layers) {
        for (LayerSample& sample : layer.samples) {
            sample.forward_kernels = 5;
        }
    }
    Scenario scenario = partitioned({2, 3});
    EXPECT_EQ(plan_of(scenario, profile).cost(0, 0).forward, Duration(10 + 20));
    profile.launch = Duration(3);
    EXPECT_EQ(plan_of(scenario, profile).cost(0, 0).forward, Duration(15 + 20));
    scenario.cluster.speeds = {10, 1};  // the host is not faster
    EXPECT_EQ(plan_of(scenario, profile).cost(0, 0).forward, Duration(15 + 15));
    profile.launch = {};
    scenario.cluster.speeds.clear();
    scenario.cluster.device = "h100-sxm";  // 5 us a launch
    EXPECT_EQ(plan_of(scenario, profile).cost(0, 0).forward, Duration(2 * 25'000));
}

TEST(ScenarioPlan, SizesOutsideTheSamplesAreNamed) {
    Profile profile = chain_profile();
    profile.layers[1].samples.resize(1);  // 'b' at size 1 only
    EXPECT_THAT(plan_of(partitioned({2, 3}, 2, 2), profile)->notes, IsEmpty());
    const Plan plan = plan_of(partitioned({2, 3}, 2, 4), profile);
    EXPECT_THAT(plan->notes,
                ElementsAre("estimated: no costs at micro-batch size 2; those of 1 layer (b) are "
                            "scaled in proportion, 'b' from size 1"));
    EXPECT_EQ(plan->cost_source, CostSource::Estimated);
    EXPECT_THAT(error_of(partitioned({2, 3}, 2, 6), profile).text(),
                HasSubstr("no cost at micro-batch size 3: the only sample is of size 1"));
}

// --- Placement and links. ---

std::vector<double> rates_with(const Scenario& scenario) {
    const Plan plan = plan_of(scenario);
    std::vector<double> rates;
    for (const LinkCost& link : plan->links) {
        rates.push_back(link.bytes_per_second / 1e9);
    }
    return rates;
}

TEST(ScenarioPlan, RanksGoToNodesAsThePlacementSays) {
    Scenario scenario = partitioned({1, 1, 1, 2});
    scenario.cluster.per_node = 2;
    scenario.cluster.link_gbps = 80;
    scenario.cluster.node_link_gbps = 8;
    EXPECT_THAT(rates_with(scenario), ElementsAre(10, 1, 10));
    scenario.cluster.placement = Placement::RoundRobin;
    EXPECT_THAT(rates_with(scenario), ElementsAre(1, 1, 1));
    scenario.cluster.placement = Placement::Written;
    scenario.cluster.nodes = {3, 3, 3, 0};
    EXPECT_THAT(rates_with(scenario), ElementsAre(10, 10, 1));
    scenario.cluster.nodes = {3, 3};
    EXPECT_THAT(error_of(scenario).text(), HasSubstr("2 entries for 4 devices"));
}

TEST(ScenarioPlan, LinksHaveNamesThatTheirFiguresOverride) {
    Scenario scenario = partitioned({1, 1, 3});
    scenario.cluster.per_node = 2;
    scenario.cluster.link = "nvlink-4";
    scenario.cluster.node_link = "infiniband-ndr";
    EXPECT_THAT(rates_with(scenario), ElementsAre(450, 50));
    scenario.cluster.node_link_gbps = 100;
    scenario.cluster.node_link_latency_us = 9;
    const LinkCost link = plan_of(scenario)->links[1];
    EXPECT_EQ(link.bytes_per_second, 12.5e9);
    EXPECT_EQ(link.latency, Duration(9000));
}

TEST(ScenarioPlan, NodesOfNamedDevicesNeedALinkThatIsNamed) {
    Scenario scenario = partitioned({1, 1, 3});
    scenario.cluster.device = "h100-sxm";
    EXPECT_NO_THROW(plan_of(scenario));
    scenario.cluster.per_node = 2;
    const Error error = error_of(scenario);
    EXPECT_THAT(error.text(), HasSubstr("ranks 1 and 2 are on two nodes"));
    EXPECT_THAT(error.hint(), HasSubstr("node_link"));
    scenario.cluster.node_link = "ethernet-100";
    EXPECT_NO_THROW(plan_of(scenario));
}

// --- Replicas. ---

Scenario replicated(int replicas, int batch) {
    Scenario scenario = partitioned({2, 3}, 2, batch);
    scenario.pipeline.data_parallel = replicas;
    scenario.cluster.link_gbps = 8;  // a byte per nanosecond
    scenario.cluster.link_latency_us = 1;
    return scenario;
}

TEST(ScenarioPlan, ReplicasShareOutTheMiniBatch) {
    const Plan plan = plan_of(replicated(4, 16));
    EXPECT_THAT(plan->micro_batch_sizes, ElementsAre(2, 2));
    EXPECT_EQ(plan.samples(), 16);
    EXPECT_EQ(plan->replicas, 4);
    const Error error = error_of(replicated(4, 18));
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), AllOf(HasSubstr("batch = 18"), HasSubstr("data_parallel = 4")));
    EXPECT_THAT(error.hint(), HasSubstr("such as 20"));
}

/// 200 and 300 bytes of weights; a ring of 4 takes 6 messages of a quarter.
TEST(ScenarioPlan, ReplicasSumTheGradientsOfEveryStage) {
    const Plan plan = plan_of(replicated(4, 8));
    EXPECT_THAT(plan->all_reduce,
                ElementsAre(Duration(6 * (1000 + 50)), Duration(6 * (1000 + 75))));
    EXPECT_EQ(row_text(plan->schedule, 1),
              "1RECV_F0 1F0 1RECV_F1 1F1 1B1 1SEND_B1 1B0 1SEND_B0 1REDUCE_GRAD 1OPT");
    EXPECT_EQ(plan.duration({.op = Op::ReduceGradient, .stage = 1}), Duration(6 * 1075));
    Scenario overlapped = replicated(4, 8);
    overlapped.pipeline.overlap_reduction = true;
    EXPECT_TRUE(plan_of(overlapped)->overlap_reduction);
    EXPECT_THAT(plan_of(replicated(1, 8))->all_reduce, IsEmpty());
}

/// Two ranks and four replicas fill nodes of 4 with two replicas each; of 2 with one each.
TEST(ScenarioPlan, ReplicasAreWhereThePlacementPutsThem) {
    Scenario scenario = replicated(4, 8);
    scenario.pipeline.all_reduce = AllReduceKind::TwoLevel;
    scenario.cluster.per_node = 4;
    scenario.cluster.node_link_gbps = 0.8;  // ten nanoseconds a byte
    scenario.cluster.node_link_latency_us = 5;
    EXPECT_EQ(plan_of(scenario)->all_reduce[0], Duration(2 * (1000 + 100) + 2 * (5000 + 10 * 50)));
    EXPECT_EQ(plan_of(scenario)->links[0].bytes_per_second, 1e9);
    scenario.cluster.per_node = 3;  // replica 1 lies on two nodes: its boundary is the slowest
    EXPECT_EQ(plan_of(scenario)->links[0].bytes_per_second, 1e8);
}

TEST(ScenarioPlan, ReplicasCountAgainstTheDevices) {
    Scenario scenario = replicated(4, 8);
    scenario.cluster.count = 7;
    EXPECT_THAT(error_of(scenario).text(), HasSubstr("data_parallel = 4"));
    scenario.cluster.count = 8;
    EXPECT_NO_THROW(plan_of(scenario));
}

TEST(ScenarioPlan, TwoPipelinesOfOneModelHaveNoReplicas) {
    Scenario scenario = replicated(2, 8);
    scenario.pipeline.schedule = "chimera";
    EXPECT_THAT(error_of(scenario).text(), HasSubstr("both at once are not built yet"));
}

/// Scenarios of any cluster: some fit together, others do not.
class RandomCluster {
  public:
    explicit RandomCluster(std::uint64_t seed) : random_(seed) {}

    Scenario next() {
        Scenario scenario = scenario_of(1 + below(4), 1 + below(6), 1 + below(32));
        const int stages = *scenario.pipeline.stages;
        scenario.pipeline.data_parallel = 1 + below(4);
        scenario.pipeline.all_reduce = static_cast<AllReduceKind>(below(3));
        scenario.pipeline.overlap_reduction = below(2) == 0;
        constexpr std::array schedules{"gpipe", "1f1b", "zb-h1", "zb-auto", "chimera"};
        scenario.pipeline.schedule = schedules.at(static_cast<std::size_t>(below(5)));
        scenario.pipeline.recompute = static_cast<Recompute>(below(2));
        scenario.cluster.per_node = 1 + below(4);
        scenario.cluster.placement = static_cast<Placement>(below(2));
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
    int below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }

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

TEST(ScenarioPlan, AnyClusterGivesAPlanThatIsWholeOrSaysWhyNot) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomCluster clusters(seed);
    int plans = 0;
    for (int round = 0; round < tests::soaked(500); ++round) {
        const Scenario scenario = clusters.next();
        try {
            const Plan plan = plan_of(scenario);
            const int replicas = *scenario.pipeline.data_parallel;
            ASSERT_EQ(plan.samples(), scenario.training.batch);
            ASSERT_EQ(plan->all_reduce.empty(), replicas == 1);
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
TEST(ScenarioPlan, MessagesBetweenNodesShareWhatLeavesAndEntersANode) {
    Scenario scenario = scenario_of(2, 4, 8);
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

TEST(ScenarioPlan, MessagesInsideANodeShareNothing) {
    Scenario scenario = scenario_of(2, 4, 8);
    scenario.cluster.link_sharing = LinkSharing::Fifo;
    EXPECT_FALSE(plan_of(scenario)->contention.any());
}

TEST(ScenarioPlan, RanksThatShareProcessorsDisturbEachOther) {
    Scenario scenario = scenario_of(2, 4, 8);
    scenario.cluster.cores = 1;
    scenario.cluster.interference = 0.5;
    scenario.cluster.transfer = TransferMode::Blocking;
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan->contention.cores, 1);
    EXPECT_EQ(plan->contention.interference,
              (std::vector<std::vector<double>>(2, std::vector<double>(2, 0.5))));
    EXPECT_EQ(plan->transfer, TransferMode::Blocking);
}

TEST(ScenarioPlan, RanksDisturbEachOtherPairByPair) {
    Scenario scenario = scenario_of(2, 4, 8);
    scenario.cluster.pair_interference = {{0, 0.3}, {0.1, 0}};
    EXPECT_EQ(plan_of(scenario)->contention.interference, scenario.cluster.pair_interference);
}

}  // namespace
}  // namespace pipetwin
