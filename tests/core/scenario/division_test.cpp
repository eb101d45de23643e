// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/division.h"

#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/estimate.h"
#include "core/interop/hf_config.h"
#include "core/model/model.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/cluster.h"
#include "core/scenario/planner.h"
#include "core/scenario/settled_scenario.h"
#include "core/text/json_text.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace division_test {

using testing::error_of;
using ::testing::HasSubstr;

/// A shipped model with so many of its blocks; 0: all.
DecoderModel shipped(const std::string& name, int blocks = 0) {
    const std::filesystem::path file = find_model(name);
    DecoderModel model = parse_hf_config(read_file(file, JsonLimits{}.max_bytes), file.string());
    if (blocks > 0) {
        model.blocks = blocks;
    }
    return model;
}

Profile costs_of(const DecoderModel& model, int sequence = 4096) {
    return estimated_profile(
        model, find_device("h100-sxm"), {.sequence = sequence, .precision = "bf16"});
}

/// A scenario on nodes of eight H100, with Adam's state shared out.
SettledScenario scenario_with(const std::string& keys) {
    return settle(
        parse_scenario("[model]\nkind = \"profile\"\nfile = \"none.json\"\n"
                       "[training]\noptimizer = \"adamw\"\nbatch = 512\n"
                       "[cluster]\ndevice = \"h100-sxm\"\nper_node = 8\n"
                       "node_link = \"infiniband-ndr\"\nstack = \"none\"\n"
                       "[pipeline]\nschedule = \"1f1b\"\nmicro_batches = 8\n"
                       "shard = \"optimizer\"\n" +
                           keys,
                       "s.toml"));
}

Plan plan_of(const Profile& profile, const SettledScenario& scenario) {
    return make_plan(scenario, scenario_model(scenario, &profile), profile, RowsFrom::Generator);
}

Plan plan_with(const Profile& profile, const std::string& keys) {
    return plan_of(profile, scenario_with(keys));
}

double gib(Bytes bytes) {
    return static_cast<double>(bytes.count) / (1 << 30);
}

double state_of_first(const Plan& plan) {
    return gib(kept_state(plan->states.front()));
}

/// In bf16 with sums in fp32: 6 + 12 / D bytes a parameter, D = DP x CP of dense ones, EDP of
/// experts (the distributed optimizer of Megatron-LM).
TEST(DividedState, IsThatOfEachParametersOwnGroup) {
    const Profile mixtral = costs_of(shipped("mixtral-8x7b"));
    // 32 devices: 0.467e9 dense parameters on 8 replicas, 1.409e9 of experts on one.
    EXPECT_NEAR(state_of_first(plan_with(mixtral,
                                         "stages = 4\npartition = [8, 8, 8, 8]\ndata_parallel = 8\n"
                                         "expert_parallel = 8\n")),
                26.89,
                0.01);
    // 64 devices on one stage: 1.606e9 on 64, 5.637e9 on 8.
    EXPECT_NEAR(
        state_of_first(plan_with(mixtral, "stages = 1\ndata_parallel = 64\nexpert_parallel = 8\n")),
        48.63,
        0.01);
}

TEST(DividedState, PartsOfSamplesShareTheOptimizerAsReplicasDo) {
    const Profile llama = costs_of(shipped("llama-3-70b", 12), 32768);
    const std::string two = "stages = 1\ntensor_parallel = 2\nsequence_parallel = true\n";
    EXPECT_NEAR(state_of_first(plan_with(llama, two + "data_parallel = 4\n")), 51.84, 0.01);
    EXPECT_NEAR(state_of_first(plan_with(llama, two + "context_parallel = 4\n")), 51.84, 0.01);
    EXPECT_NEAR(
        state_of_first(plan_with(llama, "stages = 1\ncontext_parallel = 8\n")), 86.40, 0.01);
}

/// Weights that are not trained take their own bytes alone, on each of the devices that share a
/// layer its part; adapters take 18 bytes each with Adam in fp32.
TEST(DividedState, FrozenWeightsHaveNeitherGradientsNorAState) {
    DecoderModel model = shipped("llama-3-8b");
    const auto state = [&](const std::string& keys) {
        const Plan plan = plan_with(costs_of(model), "stages = 1\n" + keys);
        return kept_state(plan->states.front()).count;
    };
    const std::int64_t all = parameter_count(model);
    model.adapters = AdapterShape{.rank = 16};
    const std::int64_t trained = trained_parameters(model);
    EXPECT_EQ(state(""), 2 * all + 18 * trained);
    EXPECT_NEAR(static_cast<double>(state("tensor_parallel = 2\nsequence_parallel = true\n")),
                static_cast<double>(all + 9 * trained),
                1000);
    DecoderModel experts = shipped("mixtral-8x7b", 4);
    experts.adapters = AdapterShape{.rank = 16};
    const Plan plan =
        plan_with(costs_of(experts), "stages = 1\ndata_parallel = 8\nexpert_parallel = 8\n");
    const std::int64_t routed = 4 * routed_parameters(experts, 0);
    EXPECT_NEAR(static_cast<double>(plan->states.front().running.count),
                static_cast<double>(2 * (parameter_count(experts) - routed) + 2 * routed / 8),
                1000);
}

TEST(DividedState, OnlyTheGroupsOfExpertsSumThem) {
    const Profile mixtral = costs_of(shipped("mixtral-8x7b"));
    const auto sums = [&](const std::string& experts) {
        return plan_with(mixtral, "stages = 1\ndata_parallel = 8\n" + experts)->all_reduce.front();
    };
    // With an expert on each of 8 devices no other has it: what is left are dense weights.
    const double share = 1.606e9 / (1.606e9 + 8 * 5.637e9);
    EXPECT_NEAR(to_seconds(sums("expert_parallel = 8\n")) / to_seconds(sums("")), share, 0.002);
}

TEST(DividedLayers, DevicesOfARankAreThoseOfAllPartsOfASample) {
    const Profile llama = costs_of(shipped("llama-3-8b"), 16384);
    const Plan plan = plan_with(
        llama, "stages = 2\ntensor_parallel = 2\nsequence_parallel = true\ncontext_parallel = 4\n");
    EXPECT_EQ(plan->rank_devices(), 8);
    SettledScenario too_few = scenario_with("stages = 2\ncontext_parallel = 4\n");
    too_few.cluster.count = 7;
    EXPECT_THAT(error_of([&] { plan_of(llama, too_few); }).what(), HasSubstr("cluster.count = 7"));
}

TEST(DividedLayers, MessagesOfContextMakeActionsLongerAndAreSaid) {
    const Profile llama = costs_of(shipped("llama-3-8b"), 16384);
    const Plan whole = plan_with(llama, "stages = 2\n");
    for (const std::string method : {"ring", "all-gather", "all-to-all", "ring+all-to-all"}) {
        const Plan parts = plan_with(
            llama, "stages = 2\ncontext_parallel = 4\ncontext_method = \"" + method + "\"\n");
        const StageCost& cost = parts->costs.front().front();
        const StageCost& of_all = whole->costs.front().front();
        const Duration computed = cost.forward - cost.forward_messages.tensor;
        EXPECT_GE(cost.forward_messages.tensor, Duration{}) << method;
        EXPECT_NEAR(to_seconds(computed) / to_seconds(of_all.forward), 0.25, 0.02) << method;
    }
}

/// Keys and values once each way, and their gradients from each of four devices to the next until
/// they are home, beside nothing.
TEST(DividedLayers, StepsOfContextWaitForEveryMessage) {
    LayerSample sample;
    sample.traffic.keys = Bytes{4 << 20};
    sample.traffic.key_gradients = Bytes{8 << 20};
    sample.traffic.attention_forward = sample.traffic.attention_backward = std::chrono::seconds(1);
    ContextParallel context{.devices = 4, .in_steps = true};
    context.ring = {.members = 4, .per_node = 4, .inside = {.bytes_per_second = 1e9}};
    const auto gathered = [&context](Bytes bytes) {
        return collective_time(
            Collective::AllGather, CollectiveAlgorithm::Auto, context.ring, bytes);
    };
    const Duration keys = gathered(sample.traffic.keys);
    const Duration gradients = gathered(sample.traffic.key_gradients) / 3;
    for (const ContextMethod method : {ContextMethod::Ring, ContextMethod::AllGather}) {
        context.method = method;
        const LayerSample sent = with_context_messages({sample}, context).front();
        EXPECT_EQ(sent.messages.forward_sums, keys);
        EXPECT_EQ(sent.messages.backward_sums, keys + 4 * gradients);
    }
    context.in_steps = false;
    context.method = ContextMethod::Ring;  // beside steps that last longer: but the last hop
    const LayerSample beside = with_context_messages({sample}, context).front();
    EXPECT_EQ(beside.messages.forward_sums, Duration{});
    EXPECT_EQ(beside.messages.backward_sums, gradients);
}

TEST(DividedLayers, RefuseWhatCannotBeDivided) {
    const Profile mixtral = costs_of(shipped("mixtral-8x7b"));
    const Profile llama = costs_of(shipped("llama-3-8b"));
    const auto refusal = [](const Profile& profile, const std::string& keys) {
        return error_of([&] { plan_with(profile, "stages = 1\n" + keys); });
    };
    EXPECT_EQ(refusal(mixtral, "data_parallel = 16\nexpert_parallel = 16\n").key(),
              "pipeline.expert_parallel");
    EXPECT_EQ(refusal(llama, "data_parallel = 8\nexpert_parallel = 8\n").key(),
              "pipeline.expert_parallel");
    EXPECT_EQ(refusal(llama, "context_parallel = 3\n").key(), "pipeline.context_parallel");
    EXPECT_EQ(refusal(llama, "context_parallel = 16\ncontext_method = \"all-to-all\"\n").key(),
              "pipeline.context_parallel");
    EXPECT_EQ(refusal(mixtral,
                      "tensor_parallel = 2\ndata_parallel = 8\nexpert_parallel = 8\n"
                      "expert_tensor_parallel = 1\n")
                  .key(),
              "pipeline.sequence_parallel");
    EXPECT_EQ(refusal(llama, "recompute_modules = [\"mla_up_proj\"]\n").key(),
              "pipeline.recompute_modules");
    SettledScenario loads = scenario_with("stages = 1\ndata_parallel = 8\nexpert_parallel = 8\n");
    loads.training.expert_load.shares = {0.5, 0.5};
    EXPECT_EQ(error_of([&] { plan_of(mixtral, loads); }).key(), "training.expert_load");
}

/// Costs of each stage under one list are those of the stage whose list it is.
TEST(ModulesOfStages, AreThoseOfTheirLists) {
    const Profile llama = costs_of(shipped("llama-3-8b"));
    const std::string stages = "stages = 2\npartition = [16, 16]\n";
    const Plan mlp = plan_with(llama, stages + "recompute_modules = [\"mlp\"]\n");
    const Plan norms = plan_with(llama, stages + "recompute_modules = [\"layernorm\"]\n");
    const Plan lists =
        plan_with(llama, stages + "recompute_modules = [[\"mlp\"], [\"layernorm\"]]\n");
    const Plan none = plan_with(llama, stages);
    const auto cost = [](const Plan& plan, int stage) {
        const StageCost& of = plan->costs.front().at(static_cast<std::size_t>(stage));
        return std::tuple(of.forward, of.backward, of.saved, of.backward_peak);
    };
    EXPECT_EQ(cost(lists, 0), cost(mlp, 0));
    EXPECT_EQ(cost(lists, 1), cost(norms, 1));
    EXPECT_NE(cost(mlp, 0), cost(none, 0));
    // 16 blocks, 64 samples of 4096 tokens, 3 x 14336 numbers of two bytes for each token.
    const auto kept = [](const Plan& plan) { return plan->costs.front().front().saved; };
    const Plan some = plan_with(llama, stages + "recompute_modules = [\"mlp:5\"]\n");
    EXPECT_EQ(kept(none) - kept(mlp), Bytes{16LL * 64 * 4096 * 3 * 14336 * 2});
    EXPECT_EQ(16 * (kept(none) - kept(some)), 5 * (kept(none) - kept(mlp)));
}

/// The first N of 16 equal blocks drop N sixteenths of what all drop, and take as large a part of
/// the time.
TEST(FirstBlocksOfStages, AreComputedAgainAndTheOthersKeepEverything) {
    const Profile llama = costs_of(shipped("llama-3-8b"));
    const auto of_stages = [&](const std::string& keys) {
        const Plan plan = plan_with(llama, "stages = 2\npartition = [16, 16]\n" + keys);
        const StageCost& first = plan->costs.front().front();
        const StageCost& last = plan->costs.front().back();
        return std::tuple(first.saved, first.backward, last.saved, last.backward);
    };
    const std::string block = "recompute = \"block\"\n";
    const auto [kept, time, last_kept, last_time] = of_stages("");
    const auto [least, longest, last_least, last_longest] = of_stages(block);
    const auto [some, longer, last_some, last_longer] = of_stages(block + "recompute_only = 5\n");
    EXPECT_EQ(16 * (kept - some), 5 * (kept - least));
    EXPECT_EQ(16 * (longer - time), 5 * (longest - time));
    EXPECT_EQ(16 * (last_kept - last_some), 5 * (last_kept - last_least));
    EXPECT_EQ(16 * (last_longer - last_time), 5 * (last_longest - last_time));
    EXPECT_EQ(of_stages(block + "recompute_only = 16\n"), of_stages(block));
    EXPECT_EQ(of_stages(block + "recompute_only = 100\n"), of_stages(block));
}

/// A block whose halves are on two stages counts in both.
TEST(FirstBlocksOfStages, CountABlockThatABoundaryCuts) {
    const Profile llama = costs_of(shipped("llama-3-8b", 4));
    const auto saved = [&](const std::string& keys) {
        const Plan plan = plan_with(llama, "stages = 2\npartition = [4, 6]\n" + keys);
        return std::pair(plan->costs.front().front().saved, plan->costs.front().back().saved);
    };
    const std::string block = "recompute = \"block\"\n";
    // The first stage has a block and the attention half of the next; the other the rest of that.
    EXPECT_EQ(saved(block + "recompute_only = 2\n").first, saved(block).first);
    EXPECT_GT(saved(block + "recompute_only = 1\n").first, saved(block).first);
    EXPECT_EQ(saved(block + "recompute_only = 3\n").second, saved(block).second);
    EXPECT_GT(saved(block + "recompute_only = 2\n").second, saved(block).second);
}

TEST(FirstBlocksOfStages, AreOfNoModelWithBranches) {
    DecoderModel model = shipped("gpt2-124m", 2);
    model.encoder_blocks = 2;
    const Profile pair = costs_of(model, 512);
    const Error error = error_of(
        [&] { plan_with(pair, "stages = 2\nrecompute = \"block\"\nrecompute_only = 1\n"); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(error.key(), "pipeline.recompute_only");
}

TEST(ModulesOfStages, AreReadBackAsTheyArePrinted) {
    for (const std::string keys :
         {"recompute_modules = [\"mlp\", \"core_attn\"]\n",
          "recompute_modules = [[\"mlp:3\"], [], [\"moe_act\", \"layernorm:1\"]]\n",
          "offload_modules = [[\"attn_norm\"], [\"moe_act\"], []]\noffload_fraction = 0.25\n"}) {
        const SettledScenario scenario = scenario_with("stages = 3\n" + keys);
        const std::string text = print_scenario(scenario.as_scenario());
        EXPECT_EQ(settle(parse_scenario(text, "s.toml")), scenario) << text;
    }
}

TEST(ModulesOfStages, RefuseWhatIsNoWordOrNoListOfEachStage) {
    const auto refusal = [](const std::string& keys) {
        return error_of([&] { scenario_with("stages = 2\n" + keys); });
    };
    const Error word = refusal("recompute_modules = [[\"mpl\"], []]\n");
    EXPECT_EQ(word.key(), "pipeline.recompute_modules");
    EXPECT_THAT(word.hint(), HasSubstr("'mlp'"));
    EXPECT_THAT(refusal("offload_modules = [\"atn_norm\"]\n").hint(), HasSubstr("'attn_norm'"));
    EXPECT_THAT(refusal("recompute_modules = [[\"mlp\"]]\n").text(),
                HasSubstr("1 list for 2 stages"));
    EXPECT_EQ(refusal("recompute_modules = [\"mlp:0\"]\n").key(), "pipeline.recompute_modules");
    EXPECT_EQ(refusal("offload_modules = [\"moe_act:2\"]\n").key(), "pipeline.offload_modules");
    EXPECT_EQ(refusal("offload_fraction = 1.5\n").key(), "pipeline.offload_fraction");
}

TEST(OffloadedModules, GoOverTheLinkOfTheDeviceOrTheScenarios) {
    const Profile llama = costs_of(shipped("llama-3-8b"));
    const std::string keys = "stages = 1\noffload_modules = [\"core_attn\", \"attn_norm\"]\n";
    const Plan own = plan_with(llama, keys);
    const Plan none = plan_with(llama, "stages = 1\n");
    SettledScenario slow = scenario_with(keys);
    slow.cluster.host_link_gbps = 8;  // 1 GB/s
    const Plan over_slow = plan_of(llama, slow);
    const StageCost& copied = over_slow->costs.front().front();
    const StageCost& kept = none->costs.front().front();
    const Bytes gone = kept.saved - copied.saved;
    // 64 samples of 4096 tokens; 32 heads and 2 x 8 of keys and values as wide as 128, and 4096.
    EXPECT_EQ(gone, Bytes{64LL * 32 * 2 * 4096 * (48 * 128 + 4096)});
    EXPECT_EQ(own->costs.front().front().saved, copied.saved);
    // All blocks are as wide, and copies of each take longer than it computes.
    const double copies = static_cast<double>(gone.count) / 1e9;
    EXPECT_GT(to_seconds(copied.forward), copies);
    EXPECT_LT(to_seconds(copied.forward), 1.2 * copies);
}

TEST(ExpertLoads, TheFullestDeviceHasTheLargestSumOfItsExperts) {
    const Profile mixtral = costs_of(shipped("mixtral-8x7b"));
    SettledScenario scenario =
        scenario_with("stages = 1\ndata_parallel = 8\nexpert_parallel = 4\n");
    scenario.training.expert_load.shares = {0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
    EXPECT_DOUBLE_EQ(layer_division(scenario, mixtral).load.fullest, 4 * 0.4);
    scenario.pipeline.expert_parallel = 8;
    EXPECT_DOUBLE_EQ(layer_division(scenario, mixtral).load.fullest, 8 * 0.2);
    scenario.pipeline.expert_parallel = 1;
    EXPECT_DOUBLE_EQ(layer_division(scenario, mixtral).load.fullest, 1);
}

}  // namespace division_test
}  // namespace pipetwin
