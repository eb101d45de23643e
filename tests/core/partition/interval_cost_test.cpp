#include "core/partition/interval_cost.h"

#include <numeric>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "core/partition/partition.h"
#include "tests/core/partition/brute_force.h"
#include "tests/support/error_of.h"
#include "tests/support/nanoseconds.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace {

using testing::Dice;
using testing::error_of;
using testing::Sizes;
using testing::the;

template <class Cost>
std::optional<testing::BestSplit> brute_force(int layers, int stages, const Cost& cost) {
    return testing::first_best(layers, stages, [&](const Sizes& sizes) {
        std::int64_t largest = std::numeric_limits<std::int64_t>::min();
        testing::for_each_stage(sizes, [&](int stage, int first, int end) {
            largest = std::max(largest, cost(stage, first, end));
        });
        return std::optional(largest);
    });
}

std::vector<std::int64_t> prefix_of(const std::vector<int>& numbers) {
    return prefix_sums(testing::nanoseconds_of(numbers));
}

template <class Cost>
void expect_brute_force(int layers, int stages, const Cost& cost, LaterStage later) {
    const auto expected = brute_force(layers, stages, cost);
    EXPECT_EQ(least_largest(layers, stages, cost, later), the(expected).value);
    const IntervalSplit split = least_largest_split(layers, stages, cost, later);
    EXPECT_EQ(split.largest, the(expected).value);
    EXPECT_EQ(split.layers_per_stage, the(expected).sizes)
        << fmt::format("{}", split.layers_per_stage);
}

// A rank begins when the work of the layers before it has passed, and has `micro_batches` of its
// own.
TEST(IntervalCost, BoundOfAPipelineEqualsBruteForce) {
    Dice dice(tests::seed());
    for (int round = 0; round < tests::soaked(100); ++round) {
        const int layers = dice.between(1, 14);
        const int stages = dice.between(1, std::min(layers, 6));
        const auto before = prefix_of(dice.several<int>(layers, dice.between(1, 50)));
        const int micro_batches = dice.between(1, 9);
        const int hop = dice.below(5);
        const auto cost = [&](int stage, int first, int end) -> std::int64_t {
            const auto i = static_cast<std::size_t>(first);
            const auto j = static_cast<std::size_t>(end);
            return before[i] + micro_batches * (before[j] - before[i]) + std::int64_t{stage} * hop;
        };
        SCOPED_TRACE(fmt::format("round {}: {}, {} stages, {} micro-batches, hop {}",
                                 round,
                                 before,
                                 stages,
                                 micro_batches,
                                 hop));
        ASSERT_NO_FATAL_FAILURE(expect_brute_force(layers, stages, cost, LaterStage::NeverCheaper));
        ASSERT_NO_FATAL_FAILURE(expect_brute_force(layers, stages, cost, LaterStage::Any));
    }
}

// With factors in any order a layer may fit on a later stage only, so that filling from the front
// has to leave room.
TEST(IntervalCost, StagesOfAnySpeedEqualBruteForce) {
    Dice dice(tests::seed());
    for (int round = 0; round < tests::soaked(100); ++round) {
        const int layers = dice.between(1, 14);
        const int stages = dice.between(1, std::min(layers, 6));
        const auto before = prefix_of(dice.several<int>(layers, dice.between(1, 50)));
        const auto slower = dice.several<int>(stages, 9);
        const auto cost = [&](int stage, int first, int end) -> std::int64_t {
            const auto sum =
                before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(first)];
            const int factor = slower[static_cast<std::size_t>(stage)];
            return factor == 8 && sum > 20 ? never : sum * factor - 40;
        };
        SCOPED_TRACE(fmt::format("round {}: {}, slower {}", round, before, slower));
        const auto expected = brute_force(layers, stages, cost);
        if (the(expected).value < never) {
            ASSERT_NO_FATAL_FAILURE(expect_brute_force(layers, stages, cost, LaterStage::Any));
        } else {
            EXPECT_EQ(least_largest(layers, stages, cost, LaterStage::Any), the(expected).value);
            EXPECT_TRUE(least_largest_split(layers, stages, cost, LaterStage::Any)
                            .layers_per_stage.empty());
        }
    }
}

TEST(IntervalCost, AgreesWithTheBalancedPartitionOfPlainWork) {
    Dice dice(5);
    const auto numbers = dice.several<int>(300, 1000);
    const auto before = prefix_of(numbers);
    const auto cost = [&](int, int first, int end) {
        return before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(first)];
    };
    for (const int stages : {1, 2, 16, 299, 300}) {
        const auto split = least_largest_split(300, stages, cost, LaterStage::NeverCheaper);
        EXPECT_EQ(split.layers_per_stage,
                  balanced_partition(testing::nanoseconds_of(numbers), stages).layers_per_stage());
    }
}

TEST(IntervalCost, RefusesMoreStagesThanLayersNamingBoth) {
    const auto cost = [](int, int, int) { return std::int64_t{0}; };
    const Error error = error_of([&] { least_largest(3, 4, cost, LaterStage::Any); });
    EXPECT_EQ(error.text(), "3 layers cannot fill 4 stages");
}

}  // namespace
}  // namespace pipetwin
