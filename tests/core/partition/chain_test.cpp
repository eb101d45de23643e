// SPDX-License-Identifier: Apache-2.0
#include "core/partition/chain.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "core/partition/partition_search.h"
#include "tests/core/partition/brute_force.h"
#include "tests/support/error_of.h"
#include "tests/support/nanoseconds.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace chain_test {

using testing::Dice;
using testing::error_of;
using testing::nanoseconds_of;
using testing::Sizes;
using testing::the;

ChainProblem plain(const std::vector<int>& work, int stages) {
    return {.work = nanoseconds_of(work), .stages = stages};
}

/// The definition of chain.h, layer by layer.
Duration largest_stage(const ChainProblem& problem, const Sizes& sizes) {
    const auto boundary = [](const std::vector<Duration>& costs, int at) {
        return costs.empty() ? Duration{} : costs.at(static_cast<std::size_t>(at));
    };
    Duration largest{};
    testing::for_each_stage(sizes, [&](int stage, int first, int end) {
        Duration cost =
            std::accumulate(problem.work.begin() + first, problem.work.begin() + end, Duration{});
        cost += stage > 0 ? boundary(problem.receiver, first) : Duration{};
        cost += stage + 1 < problem.stages ? boundary(problem.sender, end) : Duration{};
        largest = std::max(largest, cost);
    });
    return largest;
}

/// The answer is the first best split.
void expect_brute_force(const ChainProblem& problem, const ChainSplit& answer) {
    const auto layers = static_cast<int>(problem.work.size());
    const auto best = the(testing::first_best(layers, problem.stages, [&](const Sizes& sizes) {
        return std::optional(largest_stage(problem, sizes).count());
    }));
    const Sizes& sizes = answer.partition.layers_per_stage();
    EXPECT_EQ(sizes, best.sizes) << fmt::format("{} beside {}", sizes, best.sizes);
    EXPECT_EQ(answer.largest.count(), best.value);
}

class RandomChains : public ::testing::TestWithParam<bool> {};

TEST_P(RandomChains, EqualBruteForce) {
    const bool has_cuts = GetParam();
    Dice dice(tests::seed());
    for (int round = 0; round < tests::soaked(200); ++round) {
        const int layers = dice.between(1, 14);
        const int bound = std::vector<int>{1, 4, 100}.at(static_cast<std::size_t>(dice.below(3)));
        ChainProblem problem{.work = dice.several<Duration>(layers, bound),
                             .stages = dice.between(1, std::min(layers, 6))};
        if (has_cuts) {
            problem.sender = dice.several<Duration>(layers, bound + 5);
            problem.receiver = dice.several<Duration>(layers, bound + 5);
        }
        SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}, round {}", tests::seed(), round));
        expect_brute_force(problem, smallest_largest_stage(problem));
        if (HasFailure()) {
            return;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cuts, RandomChains, ::testing::Bool());

TEST(ChainPartition, ChecksEveryBoundaryAndNotOnlyTheLatest) {
    // Boundaries before layers 1 and 3 cost 100, the one before layer 2 nothing.
    ChainProblem problem = plain({10, 10, 10, 40}, 2);
    problem.sender = nanoseconds_of({0, 100, 0, 100});
    problem.receiver = problem.sender;
    const ChainSplit answer = smallest_largest_stage(problem);
    EXPECT_EQ(answer.partition.layers_per_stage(), (std::vector<int>{2, 2}));
    EXPECT_EQ(answer.largest, Duration{50});
}

TEST(ChainPartition, WithoutBoundariesAgreesWithTheBalancedPartition) {
    Dice dice(3);
    for (const int stages : {1, 2, 7, 60}) {
        const ChainProblem problem{.work = dice.several<Duration>(60, 1000), .stages = stages};
        EXPECT_EQ(smallest_largest_stage(problem).partition,
                  balanced_partition(problem.work, stages));
    }
}

// Too many splits for brute force; the textbook's recurrence looks at all pairs of boundaries.
TEST(ChainPartition, ThreeHundredLayersEqualTheRecurrence) {
    Dice dice(11);
    constexpr std::size_t layers = 300;
    constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
    for (const int stages : {2, 20, 75}) {
        const ChainProblem problem{.work = dice.several<Duration>(layers, 1'000'000),
                                   .sender = dice.several<Duration>(layers, 2'000'000),
                                   .receiver = dice.several<Duration>(layers, 2'000'000),
                                   .stages = stages};
        const std::vector<std::int64_t> before = prefix_sums(problem.work);
        std::vector<std::int64_t> best(layers + 1, none);
        best[layers] = 0;
        for (int stage = stages; stage-- > 0;) {
            std::vector<std::int64_t> next(layers + 1, none);
            for (std::size_t i = 0; i < (stage == 0 ? 1 : layers); ++i) {
                const std::int64_t in = stage > 0 ? problem.receiver[i].count() : 0;
                for (std::size_t j = i + 1; j <= layers; ++j) {
                    const std::int64_t out = j < layers ? problem.sender[j].count() : 0;
                    const std::int64_t cost = in + before[j] - before[i] + out;
                    next[i] = std::min(next[i], std::max(best[j], cost));
                }
            }
            best = std::move(next);
        }
        EXPECT_EQ(smallest_largest_stage(problem).largest.count(), best[0]) << stages;
    }
}

TEST(ChainPartition, OneStagePaysForNoBoundary) {
    ChainProblem problem = plain({1, 2, 3}, 1);
    problem.sender = nanoseconds_of({9, 9, 9});
    problem.receiver = problem.sender;
    EXPECT_EQ(smallest_largest_stage(problem).largest, Duration{6});
}

TEST(ChainPartition, AsManyStagesAsLayersLeaveNoChoice) {
    const ChainSplit answer = smallest_largest_stage(plain({5, 0, 7}, 3));
    EXPECT_EQ(answer.partition.layers_per_stage(), (std::vector<int>{1, 1, 1}));
    EXPECT_EQ(answer.largest, Duration{7});
}

TEST(ChainPartition, MoreStagesThanLayersAreRefusedNamingBoth) {
    for (const int stages : {0, 4}) {
        const Error error = error_of([&] { smallest_largest_stage(plain({1, 2, 3}, stages)); });
        EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
        EXPECT_EQ(error.text(), fmt::format("3 units cannot fill {} stages", stages));
    }
}

TEST(ChainPartition, NothingCostsNothingAndCoversEveryLayer) {
    EXPECT_EQ(smallest_largest_stage(plain({0, 0, 0, 0, 0}, 3)).partition.layers_per_stage(),
              (std::vector<int>{1, 1, 3}));
}

TEST(ChainPartition, OneHugeLayerIsTheLargestStageAlone) {
    const ChainSplit answer = smallest_largest_stage(plain({1, 1, 1'000'000'000, 1, 1}, 3));
    EXPECT_EQ(answer.largest, Duration{1'000'000'000});
    EXPECT_EQ(answer.partition.layers_per_stage(), (std::vector<int>{2, 1, 2}));
}

TEST(ChainPartition, TimesThatAddUpToMoreThanAnIntegerHoldsAreRefused) {
    const Duration long_time{4'000'000'000'000'000'000};
    EXPECT_THROW(smallest_largest_stage({.work = {long_time, long_time}}), Error);
    EXPECT_THROW(smallest_largest_stage({.work = {long_time}}), Error);
}

}  // namespace chain_test
}  // namespace pipetwin
