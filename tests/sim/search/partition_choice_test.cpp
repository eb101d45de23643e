// SPDX-License-Identifier: Apache-2.0
#include "sim/search/partition_choice.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/schedule/generators/generate.h"
#include "core/timeline/footprint.h"
#include "core/timeline/metrics.h"
#include "sim/explain/explanation.h"
#include "sim/search/partition_descent.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"
#include "tests/support/scenario_plans.h"
#include "tests/support/soak.h"

namespace pipetwin::sim {
namespace partition_choice_test {

using testing::all_partitions;
using testing::layer;

/// What makes one plan better than another: bytes above the limits, step, peak.
using Score = std::tuple<std::int64_t, Duration, Bytes>;

Score score_of(const Plan& plan) {
    std::int64_t excess = 0;
    Bytes peak{};
    int rank = 0;
    for (const MemoryUse& use : peak_memory(plan)) {
        peak = std::max(peak, use.total());
        const Bytes limit = plan.memory_limit(rank++).value_or(use.total());
        excess += std::max<std::int64_t>((use.total() - limit).count, 0);
    }
    return {excess, step_time(simulate(plan)), peak};
}

Score score_of(SettledScenario scenario, const Profile& profile, const std::vector<int>& sizes) {
    scenario.pipeline.partition = sizes;
    return score_of(with_settled_capacity(testing::plan_of(scenario, profile)));
}

// At most 10 layers, 3 ranks and 2 chunks: every partition is tried here, too.
TEST(PartitionChoice, IsNeverWorseThanAnyOtherPartition) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    testing::RandomPipelines question(seed);
    constexpr std::array all{testing::AskedSchedule{"1f1b", 1},
                             testing::AskedSchedule{"zb-v", 2},
                             testing::AskedSchedule{"dualpipe-v", 2},
                             testing::AskedSchedule{"interleaved-1f1b", 2},
                             testing::AskedSchedule{"hanayo", 2},
                             testing::AskedSchedule{"chimera", 1}};
    int judged = 0;
    for (int round = 0; round < tests::soaked(100); ++round) {
        const testing::AskedSchedule& asked =
            all.at(as_index(question.below(static_cast<int>(all.size()))));
        const int ranks = asked.schedule == "chimera" ? 2 : 2 + question.below(2);
        const int pieces = ranks * asked.chunks;
        const int layers = pieces + question.below(11 - pieces);
        const Profile profile = question.profile(layers);
        const SettledScenario scenario = question.scenario_with_limit(asked, ranks);
        SCOPED_TRACE(fmt::format("round {}: {}, {} layers", round, asked.schedule, layers));
        const Model model = scenario_model(scenario, &profile);
        std::optional<Score> best;
        try {
            for (const std::vector<int>& sizes : all_partitions(layers, pieces)) {
                const Score score = score_of(scenario, profile, sizes);
                best = std::min(best.value_or(score), score);
            }
        } catch (const Error&) {
            EXPECT_THROW(make_settled_plan(scenario, model, profile), Error);
            continue;  // no such schedule
        }
        ++judged;
        EXPECT_EQ(score_of(make_settled_plan(scenario, model, profile)), *best);
    }
    EXPECT_GT(judged, tests::soaked(50));
}

// With so few tries that most partitions are left out, it begins where memory is balanced.
TEST(PartitionChoice, FindsAPartitionThatFitsWhereFewDo) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    testing::RandomPipelines question(seed);
    for (int round = 0; round < tests::soaked(20); ++round) {
        const bool in_v = question.below(2) == 0;
        const int layers = 12 + question.below(3);
        const Profile profile = question.profile(layers);
        SettledScenario scenario =
            question.scenario_with_limit({in_v ? "zb-v" : "interleaved-1f1b", 2}, 3);
        scenario.cluster.memory_limit.reset();
        SCOPED_TRACE(fmt::format("round {}: {}, {} layers", round, in_v, layers));
        Bytes least{std::numeric_limits<std::int64_t>::max()};
        for (const std::vector<int>& sizes : all_partitions(layers, 6)) {
            least = std::min(least, std::get<Bytes>(score_of(scenario, profile, sizes)));
        }
        scenario.cluster.memory_limit = least + Bytes{least.count / 20};
        const Model model = scenario_model(scenario, &profile);
        const auto actions =
            static_cast<std::int64_t>(action_count(testing::plan_of(scenario, profile)));
        const ChosenPartition chosen = chosen_partition(scenario, model, profile, 200 * actions);
        EXPECT_EQ(std::get<std::int64_t>(score_of(scenario, profile, chosen.layers_per_piece)), 0);
    }
}

// The actions of what is known count as if they had been simulated, so searches end where they
// would have ended.
TEST(PartitionChoice, IsTheSameWhereEarlierSearchesAreKnown) {
    testing::RandomPipelines question(tests::seed());
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", tests::seed()));
    for (int round = 0; round < tests::soaked(10); ++round) {
        const int layers = 14 + question.below(6);
        const Profile profile = question.profile(layers);
        const SettledScenario scenario =
            question.scenario_with_limit({"interleaved-1f1b", 1 + question.below(2)}, 3);
        const Model model = scenario_model(scenario, &profile);
        const Plan plan = testing::plan_of(scenario, profile);
        const auto actions = 100 * static_cast<std::int64_t>(action_count(plan));
        const std::vector<int>& balanced = plan->partition->layers_per_stage();
        KnownPartitions known;
        for (const std::vector<int>& first : {std::vector<int>(), balanced, std::vector<int>()}) {
            const ChosenPartition fresh =
                chosen_partition(scenario, model, profile, actions, first);
            const ChosenPartition again =
                chosen_partition(scenario, model, profile, actions, first, &known);
            EXPECT_EQ(again.layers_per_piece, fresh.layers_per_piece) << round;
            EXPECT_EQ(again.actions, fresh.actions) << round;
        }
    }
}

// Too many to try them all: 40 like layers and a heavy last one. Balanced pieces would leave the
// rank with the first and the last piece a head more than the others.
TEST(PartitionChoice, BalancesTheRanksOfAV) {
    Profile profile;
    constexpr int layers = 41;
    for (int i = 0; i < layers; ++i) {
        profile.layers.push_back(
            layer(fmt::format("l{}", i), i + 1 < layers ? 1000 : 5000, i + 1 < layers ? 1 : 0, 1));
    }
    SettledScenario scenario = testing::scenario_of(4, 16, 16);
    scenario.pipeline.schedule = "zb-v";
    scenario.pipeline.chunks = 2;
    const Model model = scenario_model(scenario, &profile);
    const Plan plan = make_settled_plan(scenario, model, profile);
    std::vector<int> of_rank(4);
    for (int stage = 0; stage < 8; ++stage) {
        of_rank[as_index(plan->schedule.rank_of_stage[as_index(stage)])] +=
            plan->partition->layers_in(stage) + (stage == 7 ? 4 : 0);
    }
    for (const int work : of_rank) {
        EXPECT_THAT(work, ::testing::AllOf(::testing::Ge(10), ::testing::Le(12)));
    }
}

// Ten like layers on four ranks: short last stages let the last backward come home sooner.
TEST(PartitionChoice, TakesTheSplitWithTheShortestStepOfThoseThatAreBalanced) {
    Profile profile;
    for (int i = 0; i < 10; ++i) {
        profile.layers.push_back(layer(fmt::format("l{}", i), 1000, i < 9 ? 1 : 0, 1));
    }
    SettledScenario scenario = testing::scenario_of(4, 8, 8);
    scenario.pipeline.schedule = "1f1b";
    const Model model = scenario_model(scenario, &profile);
    const Plan chosen = make_settled_plan(scenario, model, profile);
    for (const std::vector<int>& sizes : all_partitions(10, 4)) {
        EXPECT_LE(std::get<Duration>(score_of(chosen)),
                  std::get<Duration>(score_of(scenario, profile, sizes)));
    }
}

TEST(PartitionChoice, LeavesAWrittenPartitionAlone) {
    const Profile profile = testing::chain_profile();
    const SettledScenario scenario = testing::partitioned({1, 4});
    const Plan plan = make_settled_plan(scenario, scenario_model(scenario, &profile), profile);
    EXPECT_EQ(plan->partition->layers_per_stage(), (std::vector{1, 4}));
}

}  // namespace partition_choice_test
}  // namespace pipetwin::sim
