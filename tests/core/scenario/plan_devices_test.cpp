// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/estimate.h"
#include "core/interop/hf_config.h"
#include "core/model/model.h"
#include "core/scenario/planner.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/scenario.h"
#include "core/text/json_text.h"
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
    EXPECT_EQ(plan.memory_limit(0), find_device("h100-sxm").memory.value);
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
    EXPECT_EQ(plan.memory_limit(0), find_device("a100-sxm-80").memory.value);
    EXPECT_EQ(plan.memory_limit(1), Bytes{32'000'000'000});
    EXPECT_EQ(plan->links[0].bytes_per_second, 50e9);  // the slower end
    scenario.cluster.memory_limits = {Bytes{7}, Bytes{8}};
    EXPECT_EQ(plan_of(scenario, profile).memory_limit(1), Bytes{8});
}

/// What the context of 1 GB leaves of the memory holds 1.25 times the tensors.
TEST(PlanDevices, AMemoryPoolThatReservesMoreLeavesLessToTensors) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.cluster.device = "h100-sxm";
    scenario.cluster.allocator_reserve = 25;
    const Plan plan = plan_of(scenario);
    const Bytes left = find_device("h100-sxm").memory.value - Bytes{1'000'000'000};
    EXPECT_EQ(plan.memory_limit(1), Bytes{1'000'000'000 + left.count * 4 / 5});
    MemoryUse peak;
    peak[MemoryKind::Context] = {1'000'000'000};
    peak[MemoryKind::Stash] = {8000};
    EXPECT_EQ(beside_model(plan, 0, peak).allocator_reserve, Bytes{2000});
    scenario.cluster.device = this_machine;
    EXPECT_EQ(plan_of(scenario).memory_limit(0), std::nullopt);
    scenario.cluster.memory_limit = Bytes{1000};
    EXPECT_EQ(plan_of(scenario).memory_limit(0), Bytes{800});
}

/// Libraries of a stack hold workspaces of products and its own buffers for each process group, and
/// its memory pool reserves a share of the tensors. What the cluster writes goes before.
TEST(PlanDevices, StacksSayWhatLibrariesHold) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.cluster.device = "h100-sxm";
    const Plan without = plan_of(scenario);
    const Stack::Memory says = find_stack("megatron-bridge-2026")->memory;
    scenario.cluster.stack = "megatron-bridge-2026";
    const Plan with = plan_of(scenario);
    const ContextParts& parts = with->context_parts.at(0);
    EXPECT_EQ(parts.product_workspace, says.products_workspace.value);
    EXPECT_EQ(parts.communication, says.communicator.value);  // of the pipeline
    EXPECT_EQ(parts.tensor_buffers, Bytes{});                 // a rank has one device
    EXPECT_EQ(with->context.at(0) - parts.total(),
              without->context.at(0) - without->context_parts.at(0).total());
    EXPECT_EQ(with->allocator_reserve, says.allocator_reserve.value);
    scenario.cluster.communicator_bytes = Bytes{1000};
    scenario.cluster.allocator_reserve = 0;
    EXPECT_EQ(plan_of(scenario)->context_parts.at(0).communication, Bytes{1000});
    EXPECT_EQ(plan_of(scenario)->allocator_reserve, 0);
}

/// DeepSpeed has communicators of the world and of the model's devices, of a pipeline and of each
/// pair of neighbours in it.
TEST(PlanDevices, StacksSayHowManyCommunicatorsADeviceHas) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.cluster.device = "a100-sxm-80";
    scenario.cluster.stack = "deepspeed";
    const Stack::Memory says = find_stack("deepspeed")->memory;
    const auto parts_of = [&scenario] { return plan_of(scenario)->context_parts.at(0); };
    EXPECT_EQ(parts_of().communication, says.communicator.value * 5);
    EXPECT_EQ(plan_of(scenario)->context.at(0) - parts_of().total(), says.runtime->value);
    scenario.pipeline.data_parallel = 2;
    scenario.training.batch = 4;
    EXPECT_EQ(parts_of().communication, says.communicator.value * 6);
    scenario.cluster.communicator_bytes = Bytes{1000};
    EXPECT_EQ(parts_of().communication, Bytes{6000});
}

/// A weight of two bytes has a sum of gradients of four. DeepSpeed adds the gradients of a whole
/// backward to the sums, so those of two bytes are there as well: 6 in all; without sums in fp32
/// there is one copy.
TEST(PlanDevices, GradientsStayBesideTheirSums) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.pipeline.data_parallel = 2;
    scenario.training.batch = 4;
    Profile profile = chain_profile();
    profile.precision = "bf16";
    const auto per_weight = [&](const char* stack, Shard shard) {
        scenario.cluster.stack = stack;
        scenario.pipeline.shard = shard;
        const StageState state = plan_of(scenario, profile)->states[0];
        return 2.0 * static_cast<double>(state.gradients.count) /
               static_cast<double>(state.weights.count);
    };
    EXPECT_EQ(per_weight("megatron-2023", Shard::None), 4);
    EXPECT_EQ(per_weight("deepspeed", Shard::None), 6);
    EXPECT_EQ(per_weight("deepspeed", Shard::Optimizer), 6);
    EXPECT_EQ(per_weight("deepspeed", Shard::Gradients), 4 / 2);
    scenario.training.gradients = GradientType::Same;
    EXPECT_EQ(per_weight("deepspeed", Shard::None), 2);
}

Bytes kept_messages_of(const Plan& plan, int rank) {
    return beside_model(plan, rank, memory_peaks(plan).at(as_index(rank)).use).kept_messages;
}

/// Outputs of the layers from `first` up to `end` of `chain_profile`.
Bytes outputs_of(const Profile& profile, std::size_t first, std::size_t end) {
    Bytes sum;
    for (std::size_t layer = first; layer < end; ++layer) {
        sum += profile.layers[layer].samples.front().output;
    }
    return sum;
}

/// nanotron's two replicas gather weights through two flat copies of all of a device's. Its pool
/// keeps them while nothing else needs the place; when it is full it frees all that it only keeps.
TEST(PlanDevices, PoolsKeepMessagesIfThereIsRoomForAll) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.cluster.device = "h100-sxm";
    scenario.cluster.stack = "nanotron-2025";
    scenario.cluster.allocator_reserve = 0;
    scenario.pipeline.data_parallel = 2;
    scenario.pipeline.shard = Shard::Optimizer;
    scenario.training.batch = 4;
    Profile profile = chain_profile();
    profile.precision = "bf16";
    const auto kept = [&] { return kept_messages_of(plan_of(scenario, profile), 1); };
    const Plan plan = plan_of(scenario, profile);
    const Bytes both = plan->states.at(1).weights * 2;
    EXPECT_EQ(kept(), both);
    const Bytes peak = memory_peaks(plan).at(1).use.total();
    scenario.cluster.memory_limit = peak + both;
    EXPECT_EQ(kept(), both);
    scenario.cluster.memory_limit = peak + both - Bytes{1};
    EXPECT_EQ(kept(), Bytes{});
    scenario.cluster.memory_limit.reset();
    scenario.pipeline.shard = Shard::None;
    EXPECT_EQ(kept(), Bytes{});
}

/// Two devices that divide sequences sum a whole output of each layer. Of nanotron's all stay that
/// the host launches before the device has run them: those of the forwards up to the first backward
/// or up to a message, three of the first rank and one of the others; no more than 1,024 kernels.
TEST(PlanDevices, PoolsKeepSumsOfForwardsThatTheHostIsAhead) {
    SettledScenario scenario = partitioned({2, 1, 2}, 4, 4);
    scenario.pipeline.schedule = "1f1b";
    scenario.cluster.stack = "nanotron-2025";
    scenario.pipeline.tensor_parallel = 2;
    Profile profile = chain_profile();
    const auto kept = [&](int rank) { return kept_messages_of(plan_of(scenario, profile), rank); };
    EXPECT_EQ(kept(1), Bytes{});  // their sums are whole on either device, and stay
    scenario.pipeline.sequence_parallel = true;
    EXPECT_EQ(kept(0), outputs_of(profile, 0, 2) * 3);
    EXPECT_EQ(kept(1), outputs_of(profile, 2, 3));
    EXPECT_EQ(kept(2), outputs_of(profile, 3, 5));
    for (LayerCost& layer : profile.layers) {
        layer.samples.front().forward_kernels = 400;
    }
    EXPECT_EQ(kept(0), outputs_of(profile, 0, 2));
    scenario.cluster.stack = "torchtitan-2024";  // waits for its messages, and lays them out anew
    EXPECT_EQ(kept(0), Bytes{});
    EXPECT_EQ(kept(2), outputs_of(profile, 0, 1) * 2);
}

/// PyTorch's FSDP keeps what a pipeline has gathered up to the last micro-batch, and sums gradients
/// behind it: the replicas divide the optimizer's state alone. One stage gathers each time.
TEST(PlanDevices, StacksKeepWeightsGatheredInAPipeline) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.pipeline.data_parallel = 2;
    scenario.training.batch = 4;
    const auto states = [&scenario](const char* stack, Shard shard) {
        scenario.cluster.stack = stack;
        scenario.pipeline.shard = shard;
        const Plan plan = plan_of(scenario);
        return std::pair(kept_state(plan->states[0]), plan->all_reduce[0]);
    };
    EXPECT_EQ(states("torchtitan-2024", Shard::Weights),
              states("torchtitan-2024", Shard::Optimizer));
    EXPECT_LT(states("", Shard::Weights).first, states("", Shard::Optimizer).first);
    EXPECT_LT(states("megatron-bridge-2025", Shard::Weights),
              states("megatron-bridge-2025", Shard::Optimizer));
    scenario = partitioned({5});
    scenario.pipeline.data_parallel = 2;
    scenario.training.batch = 4;
    EXPECT_EQ(states("torchtitan-2024", Shard::Weights).first, states("", Shard::Weights).first);
}

/// Llama 3's FSDP divides gradients, and sums those of a stage behind each run of its micro-batches
/// (Grattafiori et al., section 3.3.2). So a rank has its part of all gradients, and whole those of
/// the stage whose run goes on; with several stages also of the one whose sums are on their way.
TEST(PlanDevices, GradientsStandWholeForARunOfMicroBatches) {
    SettledScenario scenario = partitioned({2, 3}, 4, 8);
    scenario.pipeline.data_parallel = 2;
    scenario.pipeline.shard = Shard::Weights;
    const auto plan_with = [&scenario](const char* stack) {
        scenario.cluster.stack = stack;
        return plan_of(scenario);
    };
    const auto expect_whole = [&](int stages) {
        const Plan once = plan_with("torchtitan-2024");
        const Plan runs = plan_with("meta-2024");
        for (std::size_t stage = 0; stage < once->states.size(); ++stage) {
            const StageState& all = once->states[stage];
            const StageState& own = runs->states[stage];
            EXPECT_EQ(own.weights, all.weights);
            EXPECT_EQ(own.gradients, Bytes{all.gradients.count / 100 * 4 * 13});  // of 25 each
            EXPECT_EQ(own.gathered, stages * all.gradients);
            EXPECT_GT(runs->all_reduce[stage], Duration{});
        }
    };
    expect_whole(1);
    scenario.pipeline.schedule = "interleaved-1f1b";
    scenario.pipeline.chunks = 2;
    scenario.pipeline.partition = std::vector<int>{1, 1, 1, 2};
    expect_whole(2);
    scenario.pipeline.data_parallel = 1;
    EXPECT_EQ(kept_state(plan_with("meta-2024")->states[0]),
              kept_state(plan_with("torchtitan-2024")->states[0]));
}

/// NVIDIA's recipes of Llama 3 70B on 64 devices hand the activations of 40 of 80 blocks to host
/// memory on GB200 and of 20 on GB300 (Megatron-Bridge, perf_recipes/llama, fp8_cs, two samples).
TEST(PlanDevices, BlocksAreOffloadedAsRecipesDo) {
    const std::filesystem::path file = find_model("llama-3-70b");
    const DecoderModel model =
        parse_hf_config(read_file(file, JsonLimits{}.max_bytes), file.string());
    EstimateOptions options{.sequence = 8192, .precision = "fp8"};
    options.micro_batch_size = 2;
    options.stack = find_stack("megatron-bridge-2026");
    for (const auto& [device, recipe] : {std::pair("gb200", 40), std::pair("gb300", 20)}) {
        const Profile profile = estimated_profile(model, find_device(device), options);
        const Scenario scenario = parse_scenario(
            "[model]\nkind = \"profile\"\nfile = \"none.json\"\n[training]\nbatch = 256\n"
            "optimizer = \"adamw\"\n[pipeline]\nstages = 1\nschedule = \"1f1b\"\nmicro_batches = "
            "2\n"
            "data_parallel = 64\nshard = \"weights\"\nrecompute = \"none\"\n[cluster]\ncount = 64\n"
            "profile = \"" +
                std::string(device) + "-nvl72\"\nstack = \"megatron-bridge-2026\"\n",
            "x.toml");
        SettledScenario settled = settle(scenario);
        settled.cluster.host_link_gbps = 10'000;  // copies are hidden
        const Model layers = scenario_model(scenario, &profile);
        const Plan plan = make_plan(settled, layers, profile);
        const LayerCosts costs = layer_costs(plan, settled, layers, profile);
        EXPECT_NEAR(costs.offloaded_blocks, recipe, 0.3 * recipe) << device;
        EXPECT_LE(peak_totals(plan).front(), plan.memory_limit(0)) << device;
        EXPECT_THAT(plan->notes,
                    Contains(::testing::AllOf(HasSubstr("in host memory until their backward"),
                                              HasSubstr(format_bytes(costs.in_host_memory)))));
        SettledScenario fewer = settled;
        fewer.pipeline.offload_blocks = costs.offloaded_blocks - 1;
        const Plan too_large = make_plan(fewer, layers, profile);
        EXPECT_GT(peak_totals(too_large).front(), too_large.memory_limit(0)) << device;
        EXPECT_EQ(too_large.cost(0, 0).forward, plan.cost(0, 0).forward);
        SettledScenario slow = settled;
        slow.cluster.host_link_gbps = 80;  // 10 GB/s
        const Plan waits = make_plan(slow, layers, profile);
        const LayerCosts of_slow = layer_costs(waits, slow, layers, profile);
        EXPECT_EQ(of_slow.in_host_memory, costs.in_host_memory);
        const double copies = static_cast<double>(of_slow.in_host_memory.count) / 10e9;
        EXPECT_GT(to_seconds(waits.cost(0, 0).forward), copies);
        EXPECT_GT(to_seconds(waits.cost(0, 0).backward), copies);
        slow.cluster.host_memory = costs.in_host_memory - Bytes{1};
        const Plan alone = make_plan(slow, layers, profile);
        EXPECT_EQ(layer_costs(alone, slow, layers, profile).offloaded_blocks, 0);
        EXPECT_GT(peak_totals(alone).front(), alone.memory_limit(0));
    }
}

/// A device is in a group for its pipeline, and in one for the replicas of its rank.
TEST(PlanDevices, ProcessGroupsHaveBuffers) {
    SettledScenario scenario = partitioned({2, 3});
    scenario.cluster.device = "h100-sxm";
    const Bytes context = plan_of(scenario)->context.at(0);
    const Bytes buffers = plan_of(scenario)->context_parts.at(0).communication;
    EXPECT_EQ(context, Bytes{1'000'000'000});
    EXPECT_GT(buffers, Bytes{});
    EXPECT_LT(buffers, context);
    scenario.cluster.communicator_bytes = Bytes{300'000'000};
    EXPECT_EQ(plan_of(scenario)->context_parts.at(1).communication, Bytes{300'000'000});
    EXPECT_EQ(plan_of(scenario)->context.at(1), context - buffers + Bytes{300'000'000});
    scenario.pipeline.data_parallel = 2;
    scenario.cluster.node_link = "infiniband-ndr";
    EXPECT_EQ(plan_of(scenario)->context_parts.at(0).communication, Bytes{600'000'000});
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
