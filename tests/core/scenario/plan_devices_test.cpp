// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/scenario/rank_device.h"
#include "core/timeline/footprint.h"
#include "tests/support/scenario_plans.h"

namespace pipetwin {
namespace plan_devices_test {

using testing::chain_profile;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::layer;
using testing::partitioned;
using testing::plan_error_of;
using testing::plan_of;
using testing::scenario_of;

TEST(PlanDevices, SpeedsDivideTheTimesOfTheirRanks) {
    SettledScenario scenario = partitioned({2, 3});
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

/// 1 + 0.1 sqrt(2 ln 8) = 1.2039 on eight devices, the expected largest of normal factors.
TEST(PlanDevices, TheSlowestOfManyDevicesHoldsUpAll) {
    SettledScenario scenario = partitioned({2, 3}, 2, 8);
    scenario.pipeline.data_parallel = 4;
    const Plan alike = plan_of(scenario);
    scenario.cluster.device_spread = 0.1;
    const Plan spread = plan_of(scenario);
    EXPECT_EQ(spread.cost(1, 0).forward, Duration(108));  // of 90
    EXPECT_NEAR(static_cast<double>(spread.cost(1, 0).backward.count()), 1.2039 * 270, 2);
    EXPECT_EQ(spread->all_reduce, alike->all_reduce);
    EXPECT_EQ(spread.cost(1, 0).saved, alike.cost(1, 0).saved);
    double of_fewer = 1;
    for (const int replicas : {1, 2, 8, 64, 512}) {
        scenario.pipeline.data_parallel = replicas;
        const double slowest = slowest_device(scenario, chain_profile(), 2);
        EXPECT_GT(slowest, of_fewer);
        of_fewer = slowest;
    }
}

/// 1.2 %: 2.4 % on 8 devices, 3.7 % on 128, 4.7 % on 2,048.
TEST(PlanDevices, TheSpreadIsThatOfTheStackOrOfTheScenario) {
    SettledScenario scenario = partitioned({2, 3}, 2, 8);
    Profile profile = chain_profile();
    EXPECT_EQ(slowest_device(scenario, profile, 128), 1);
    profile.stack = "nemo-2024";
    EXPECT_NEAR(slowest_device(scenario, profile, 8), 1.0245, 1e-4);
    EXPECT_NEAR(slowest_device(scenario, profile, 128), 1.0374, 1e-4);
    EXPECT_NEAR(slowest_device(scenario, profile, 2048), 1.0469, 1e-4);
    EXPECT_EQ(slowest_device(scenario, profile, 1), 1);
    scenario.cluster.device_spread = 0;
    EXPECT_EQ(slowest_device(scenario, profile, 2048), 1);
    profile.stack = "nemo-2042";
    EXPECT_THAT(plan_error_of(scenario, profile).place(), HasSubstr("the profile's stack"));
    profile.stack = "/nowhere/own.toml";
    const Error moved = plan_error_of(scenario, profile);
    EXPECT_EQ(moved.kind(), ErrorKind::BadInput);
    EXPECT_THAT(moved.text(), HasSubstr("/nowhere/own.toml"));
    EXPECT_THAT(moved.hint(), HasSubstr("--stack FILE.toml"));
}

/// Costs of a stack are combined with no other; costs of none with one that knows the devices.
TEST(PlanDevices, CostsOfAnotherStackAreRefused) {
    SettledScenario scenario = partitioned({2, 3}, 2, 8);
    Profile profile = chain_profile();
    const auto refusal = [&] { return plan_error_of(scenario, profile); };
    scenario.cluster.stack = "nemo-2024";
    plan_of(scenario, profile);
    profile.stack = "megatron-2023";
    EXPECT_EQ(refusal().key(), "cluster.stack");
    EXPECT_THAT(refusal().text(), AllOf(HasSubstr("'nemo-2024'"), HasSubstr("'megatron-2023'")));
    scenario.cluster.stack = "none";
    EXPECT_THAT(refusal().hint(), HasSubstr("--stack none"));
    profile.stack = "";
    plan_of(scenario, profile);
    EXPECT_EQ(stack_of(scenario, profile), nullptr);
    scenario.cluster.stack = "nemo-2024";
    scenario.cluster.device = "b200";
    EXPECT_THAT(refusal().text(), HasSubstr("'b200'"));
    scenario.cluster.device = "h100-sxm";
    plan_of(scenario, profile);
    profile.precision = "mxfp8";
    EXPECT_THAT(refusal().text(), HasSubstr("in mxfp8 on 'h100-sxm'"));
    EXPECT_EQ(refusal().kind(), ErrorKind::BadInput);
}

/// f + b: 40 80 120 80 160 = 480. Twice as slow in front: 120 * 2 = 240 and 360; behind: 320 and
/// 160 * 2 = 320.
TEST(PlanDevices, AutoBalancesForTheSpeedsInTheirOrder) {
    SettledScenario scenario = scenario_of(2, 2, 2);
    scenario.cluster.speeds = {0.5, 1};
    EXPECT_EQ(plan_of(scenario)->partition, Partition({2, 3}, 5));
    scenario.cluster.speeds = {1, 0.5};
    EXPECT_EQ(plan_of(scenario)->partition, Partition({4, 1}, 5));
    scenario.cluster.speeds = {2, 2};
    EXPECT_EQ(plan_of(scenario)->partition, Partition({3, 2}, 5));
}

TEST(PlanDevices, CostsOfAnotherDeviceAreRefusedNamingBoth) {
    Profile profile = chain_profile();
    profile.device = "v100-sxm2";
    SettledScenario scenario = partitioned({2, 3});
    EXPECT_THAT(
        plan_of(scenario, profile)->notes,
        ElementsAre("the times are those of the device in the profile, 'v100-sxm2', because no "
                    "cluster.device is given"));
    scenario.cluster.device = "a100-sxm-80";
    const Error error = plan_error_of(scenario, profile);
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), AllOf(HasSubstr("'v100-sxm2'"), HasSubstr("'a100-sxm-80'")));
    EXPECT_THAT(error.hint(), HasSubstr("cluster.scale_costs"));
}

/// Nothing is known of the rates here: the hint to scale such costs led to one to name a device.
TEST(PlanDevices, CostsOfThisMachineAreNotScaled) {
    Profile profile = chain_profile();
    SettledScenario scenario = partitioned({2, 3});
    scenario.cluster.device = "a100-sxm-80";
    for (const char* device : {"this-machine", "this-machine, 3.00 times slower"}) {
        profile.device = device;
        for (const ScaleCosts how : {ScaleCosts::None, ScaleCosts::Cautious}) {
            scenario.cluster.scale_costs = how;
            const Error error = plan_error_of(scenario, profile);
            EXPECT_EQ(error.kind(), ErrorKind::BadInput);
            EXPECT_THAT(error.text(), AllOf(HasSubstr(device), HasSubstr("'a100-sxm-80'")));
            EXPECT_EQ(error.hint(), "profile the model on 'a100-sxm-80'");
        }
    }
}

/// A scenario of costs that writes no training.precision has fp32 there, and trains in that of the
/// costs.
TEST(PlanDevices, CostsInAnotherNumberTypeThanTheTrainingsAreWarnedOf) {
    struct Case {
        const char* costs;
        Precision trained;
        bool warns;
    };
    SettledScenario scenario = partitioned({2, 3});
    Profile profile = chain_profile();
    for (const Case& one : {Case{"fp32", Precision::Bf16, true},
                            Case{"tf32", Precision::Bf16, true},
                            Case{"bf16", Precision::Bf16, false},
                            Case{"fp16", Precision::Bf16, false},
                            Case{"fp8", Precision::Bf16, false},
                            Case{"bf16", Precision::Fp32, false},
                            Case{"fp32", Precision::Fp32, false}}) {
        profile.precision = one.costs;
        scenario.training.precision = one.trained;
        scenario.model.kind = ModelKind::Profile;
        const auto warning = HasSubstr(fmt::format("warning: the costs are for {}", one.costs));
        EXPECT_EQ(::testing::Matches(Contains(warning))(plan_of(scenario, profile)->notes),
                  one.warns)
            << one.costs;
    }
}

/// fp32: 15.7 to 19.5 TFLOP/s; memory: 900 to 2039 GB/s.
TEST(PlanDevices, ScaledCostsAreEstimatedAndSayBySoMuch) {
    Profile profile = chain_profile();
    profile.source = CostSource::Measured;
    profile.device = "v100-sxm2";
    SettledScenario scenario = partitioned({2, 3});
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
    EXPECT_EQ(plan->links[0].bytes_per_second, 235e9);
}

TEST(PlanDevices, CostsOfTheSameDeviceStayWhatTheyAre) {
    Profile profile = chain_profile();
    profile.source = CostSource::Measured;
    profile.device = "h100-sxm";
    SettledScenario scenario = partitioned({2, 3});
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

TEST(PlanDevices, CostsOfNoDeviceAreTakenForThoseOfTheScenarioAndThatIsSaid) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.cluster.device = "h100-sxm";
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan.cost(1, 0).forward, Duration(90));
    EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("taken for those of 'h100-sxm'")));
    scenario.cluster.device = this_machine;
    scenario.cluster.devices = {"h100-sxm", "v100-sxm2"};
    EXPECT_THAT(plan_error_of(scenario).text(), HasSubstr("does not say whose costs"));
}

TEST(PlanDevices, EveryRankCanHaveADeviceOfItsOwn) {
    Profile profile = chain_profile();
    profile.device = "a100-sxm-80";
    profile.precision = "fp16";  // 312 and 125 TFLOP/s
    SettledScenario scenario = partitioned({2, 3});
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

/// 80 GB, of which the context takes 1: tensors may take what 1.25 times as much of leaves room.
TEST(PlanDevices, AMemoryPoolThatReservesMoreLeavesLessToTensors) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.cluster.device = "h100-sxm";
    scenario.cluster.allocator_reserve = 25;
    const Plan plan = plan_of(scenario);
    EXPECT_EQ(plan.memory_limit(1), Bytes{1'000'000'000 + 63'200'000'000});
    MemoryUse peak;
    peak[MemoryKind::Context] = {1'000'000'000};
    peak[MemoryKind::Stash] = {8000};
    EXPECT_EQ(beside_model(plan, 0, peak).allocator_reserve, Bytes{2000});
    scenario.cluster.device = this_machine;
    EXPECT_EQ(plan_of(scenario).memory_limit(0), std::nullopt);
    scenario.cluster.memory_limit = Bytes{1000};
    EXPECT_EQ(plan_of(scenario).memory_limit(0), Bytes{800});
}

/// A device is in a group for its pipeline, and in one for the replicas of its rank.
TEST(PlanDevices, ProcessGroupsHaveBuffers) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.cluster.device = "h100-sxm";
    const Bytes context = plan_of(scenario)->context.at(0);
    const Bytes buffers = plan_of(scenario)->communication.at(0);
    EXPECT_EQ(context, Bytes{1'000'000'000});
    EXPECT_GT(buffers, Bytes{});
    EXPECT_LT(buffers, context);
    scenario.cluster.communicator_bytes = Bytes{300'000'000};
    EXPECT_EQ(plan_of(scenario)->communication.at(1), Bytes{300'000'000});
    EXPECT_EQ(plan_of(scenario)->context.at(1), context - buffers + Bytes{300'000'000});
    scenario.pipeline.data_parallel = 2;
    scenario.cluster.node_link = "infiniband-ndr";
    EXPECT_EQ(plan_of(scenario)->communication.at(0), Bytes{600'000'000});
    scenario.cluster.device = this_machine;
    EXPECT_EQ(plan_of(scenario)->context.at(0), Bytes{600'000'000});
}

TEST(PlanDevices, LaunchesBoundTheTimesOfSmallKernels) {
    Profile profile = chain_profile();
    for (LayerCost& layer : profile.layers) {
        for (LayerSample& sample : layer.samples) {
            sample.forward_kernels = 5;
        }
    }
    SettledScenario scenario = partitioned({2, 3});
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

TEST(PlanDevices, SizesOutsideTheSamplesAreNamed) {
    Profile profile = chain_profile();
    profile.layers[1].samples.resize(1);  // 'b' at size 1 only
    EXPECT_THAT(plan_of(partitioned({2, 3}, 2, 2), profile)->notes, IsEmpty());
    const Plan plan = plan_of(partitioned({2, 3}, 2, 4), profile);
    EXPECT_THAT(plan->notes,
                ElementsAre("estimated: no costs at micro-batch size 2; those of 1 layer (b) are "
                            "scaled in proportion, 'b' from size 1"));
    EXPECT_EQ(plan->cost_source, CostSource::Estimated);
    EXPECT_THAT(plan_error_of(partitioned({2, 3}, 2, 6), profile).text(),
                HasSubstr("costs are known for micro-batches of 1 sample, but these have 3"));
}

}  // namespace plan_devices_test
}  // namespace pipetwin
