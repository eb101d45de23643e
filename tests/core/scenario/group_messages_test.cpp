// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/cluster/group_messages.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/estimate.h"
#include "core/interop/hf_config.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/planner.h"
#include "core/scenario/settled_scenario.h"
#include "core/text/json_text.h"

namespace pipetwin {
namespace group_messages_test {

using ::testing::ElementsAre;

constexpr int sequence = 4096;
constexpr int micro_batches = 8;

Profile costs_of(const std::string& name, int blocks = 0) {
    const std::filesystem::path file = find_model(name);
    DecoderModel model = parse_hf_config(read_file(file, JsonLimits{}.max_bytes), file.string());
    model.blocks = blocks > 0 ? blocks : model.blocks;
    return estimated_profile(
        model, find_device("h100-sxm"), {.sequence = sequence, .precision = "bf16"});
}

/// A scenario with one sample for each micro-batch and replica, on nodes of eight H100.
SettledScenario scenario_with(int replicas, const std::string& keys) {
    return settle(
        parse_scenario("[model]\nkind = \"profile\"\nfile = \"none.json\"\n"
                       "[training]\noptimizer = \"adamw\"\nbatch = " +
                           std::to_string(micro_batches * replicas) +
                           "\n[cluster]\ndevice = \"h100-sxm\"\nper_node = 8\n"
                           "node_link = \"infiniband-ndr\"\nstack = \"none\"\n"
                           "[pipeline]\nschedule = \"1f1b\"\nmicro_batches = 8\n"
                           "data_parallel = " +
                           std::to_string(replicas) + "\n" + keys,
                       "s.toml"));
}

/// A plan with its groups.
struct Planned {
    Planned(const Profile& profile, int replicas, const std::string& keys)
        : scenario(scenario_with(replicas, keys)),
          model(scenario_model(scenario, &profile)),
          plan(make_plan(scenario, model, profile, RowsFrom::Generator)),
          groups(group_messages(plan, scenario, model, profile)),
          experts(expert_states(plan, scenario, model, profile)) {}

    std::optional<GroupMessages> along(GroupAxis axis) const {
        const auto found = std::ranges::find(groups, axis, &GroupMessages::axis);
        return found == groups.end() ? std::nullopt : std::optional(*found);
    }

    SettledScenario scenario;
    Model model;
    Plan plan;
    std::vector<GroupMessages> groups;
    std::vector<ExpertState> experts;
};

/// Four exchanges of a row of 4,096 numbers for each of the two experts of a token, of which seven
/// of eight parts leave the device.
TEST(GroupMessages, OfExpertsAreFourExchangesOfALayer) {
    const Planned mixtral(costs_of("mixtral-8x7b", 4), 8, "stages = 1\nexpert_parallel = 8\n");
    const GroupMessages experts = mixtral.along(GroupAxis::Expert).value();
    EXPECT_EQ(experts.members, 8);
    EXPECT_EQ(experts.nodes, 1);
    EXPECT_THAT(experts.collectives, ElementsAre(Collective::AllToAll));
    constexpr std::int64_t rows = sequence * 2;
    constexpr std::int64_t exchange = rows * 4096 * 2 * 7 / 8;
    EXPECT_EQ(experts.sent.count, 4 * exchange * 4 * micro_batches);
    EXPECT_EQ(experts.beside, Beside::Nothing);
    // All of what the rank waits for are messages of experts.
    Duration waits{};
    for (const Action& action : mixtral.plan->schedule.ranks.front()) {
        waits += mixtral.plan.tensor_sums(action);
    }
    EXPECT_EQ(experts.time, waits);
    EXPECT_FALSE(mixtral.along(GroupAxis::Tensor));
    EXPECT_FALSE(mixtral.along(GroupAxis::Pipeline));
    EXPECT_FALSE(mixtral.along(GroupAxis::ExpertData)) << "no other device has an expert";
}

/// Experts that are computed again are sent again.
TEST(GroupMessages, OfExpertsThatAreComputedAgainAreSix) {
    const Profile costs = costs_of("mixtral-8x7b", 4);
    const std::string keys = "stages = 1\nexpert_parallel = 8\n";
    const Planned kept(costs, 8, keys);
    const Planned again(costs, 8, keys + "recompute_modules = [\"moe\"]\n");
    const GroupMessages four = kept.along(GroupAxis::Expert).value();
    const GroupMessages six = again.along(GroupAxis::Expert).value();
    EXPECT_EQ(six.sent.count * 2, four.sent.count * 3);
    EXPECT_GT(six.time, four.time);
}

/// A block has two devices, which divide the sequence, and T h numbers of 2 bytes: 2 T h bytes for
/// each of 2 gathers and 2 half sums in a forward; a backward gathers both inputs once more.
TEST(GroupMessages, OfTensorParallelismAreThoseOfEachBlock) {
    const auto sent = [](int blocks) {
        const Planned llama(costs_of("llama-3-8b", blocks),
                            1,
                            "stages = 1\ntensor_parallel = 2\nsequence_parallel = true\n");
        const GroupMessages tensor = llama.along(GroupAxis::Tensor).value();
        EXPECT_THAT(tensor.collectives,
                    ElementsAre(Collective::AllGather, Collective::ReduceScatter));
        EXPECT_GT(tensor.time, Duration{});
        return tensor.sent.count;
    };
    constexpr std::int64_t numbers = std::int64_t{sequence} * 4096;
    EXPECT_EQ(sent(3) - sent(2), micro_batches * 2 * numbers * (2 + 3));
}

/// Keys and values of 8 heads of 128 numbers: half of them forward, and backward once more with
/// their gradients.
TEST(GroupMessages, OfARingAreKeysAndTheirGradients) {
    const Planned llama(costs_of("llama-3-8b", 4), 1, "stages = 1\ncontext_parallel = 2\n");
    const GroupMessages context = llama.along(GroupAxis::Context).value();
    constexpr std::int64_t keys = std::int64_t{sequence} * 2 * 8 * 128 * 2;
    EXPECT_EQ(context.sent.count, micro_batches * 4 * (keys / 2) * 3);
    EXPECT_EQ(context.beside, Beside::Attention);
    EXPECT_EQ(llama.along(GroupAxis::Data)->members, 2) << "parts of a sample share weights";
}

TEST(GroupMessages, OfReplicasAreGradientsAndWeightsOnce) {
    const Profile costs = costs_of("llama-3-8b", 2);
    const Planned whole(costs, 16, "stages = 1\n");
    const GroupMessages sums = whole.along(GroupAxis::Data).value();
    EXPECT_EQ(sums.nodes, 2);
    EXPECT_THAT(sums.collectives, ElementsAre(Collective::AllReduce));
    const std::int64_t weights = whole.plan->states.front().weights.count;
    EXPECT_EQ(sums.sent.count, 2 * (2 * weights) * 15 / 16) << "gradients have four bytes";
    EXPECT_EQ(sums.time, whole.plan.all_reduce_time(0));
    const Planned divided(costs, 16, "stages = 1\nshard = \"optimizer\"\n");
    EXPECT_EQ(divided.along(GroupAxis::Data)->sent.count, (2 * weights + weights) * 15 / 16);
}

TEST(GroupMessages, OfAPipelineAreItsBoundaries) {
    const Planned llama(costs_of("llama-3-8b", 4), 1, "stages = 2\n");
    ASSERT_EQ(llama.groups.size(), 1U);
    const GroupMessages pipeline = llama.along(GroupAxis::Pipeline).value();
    EXPECT_EQ(pipeline.members, 2);
    EXPECT_EQ(pipeline.sent.count, micro_batches * std::int64_t{sequence} * 4096 * 2);
    EXPECT_TRUE(pipeline.collectives.empty());
    EXPECT_TRUE(llama.experts.empty());
}

/// Mixtral's experts: 3 x 4,096 x 14,336 parameters each, 2 + 4 + 12 bytes without replicas.
TEST(ExpertStates, AreThoseOfTheRanksOwnExperts) {
    const Planned mixtral(costs_of("mixtral-8x7b", 4),
                          8,
                          "stages = 2\npartition = [5, 5]\nexpert_parallel = 8\n"
                          "shard = \"optimizer\"\n");
    ASSERT_EQ(mixtral.experts.size(), 2U);
    constexpr std::int64_t expert = std::int64_t{3} * 4096 * 14336;
    for (const ExpertState& state : mixtral.experts) {
        EXPECT_EQ(state.weights.count, 2 * 2 * expert);
        EXPECT_EQ(state.gradients.count, 2 * 4 * expert);
        EXPECT_EQ(state.optimizer.count, 2 * 12 * expert);
    }
}

}  // namespace group_messages_test
}  // namespace pipetwin
