#include "core/partition/feasible_splits.h"

#include <limits>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "tests/core/partition/brute_force.h"
#include "tests/support/error_of.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace {

using testing::all_splits;
using testing::Dice;
using testing::error_of;
using testing::Sizes;

std::size_t place_of(int stage, int first) {
    return static_cast<std::size_t>(stage) * 13 + static_cast<std::size_t>(first);
}

const auto anything = [](int, int, int) { return true; };

std::vector<Sizes> walked(const FeasibleSplits& splits, int stages) {
    std::vector<Sizes> whole;
    EXPECT_TRUE(splits.walk([&](std::span<const int> sizes) {
        if (static_cast<int>(sizes.size()) == stages) {
            whole.emplace_back(sizes.begin(), sizes.end());
        }
        return Walk::Into;
    }));
    return whole;
}

template <class Feasible>
std::vector<Sizes> brute_force(int layers, int stages, const Feasible& feasible) {
    std::vector<Sizes> kept;
    for (const Sizes& sizes : all_splits(layers, stages)) {
        bool all = true;
        testing::for_each_stage(sizes, [&](int stage, int first, int end) {
            all = all && feasible(stage, first, end);
        });
        if (all) {
            kept.push_back(sizes);
        }
    }
    return kept;
}

TEST(FeasibleSplits, AreThoseOfBruteForceInLexicographicOrder) {
    Dice dice(tests::seed());
    for (int round = 0; round < tests::soaked(100); ++round) {
        const int layers = dice.between(1, 12);
        const int stages = dice.between(1, std::min(layers, 6));
        const int shares = dice.between(1, 4);
        const auto coins = dice.several<int>(stages * 13 * 13, 4);
        const auto feasible = [&](int stage, int first, int end) {
            return coins.at(place_of(stage, first) * 13 + static_cast<std::size_t>(end)) < shares;
        };
        const FeasibleSplits splits(layers, stages, feasible, LongerStage::MayFit);
        const std::vector<Sizes> expected = brute_force(layers, stages, feasible);
        SCOPED_TRACE(fmt::format("round {}", round));
        ASSERT_EQ(splits.count(), expected.size());
        ASSERT_EQ(walked(splits, stages), expected);
    }
}

TEST(FeasibleSplits, KnowThatLongerStagesNeverFit) {
    Dice dice(tests::seed());
    for (int round = 0; round < tests::soaked(100); ++round) {
        const int layers = dice.between(1, 12);
        const int stages = dice.between(1, std::min(layers, 6));
        const auto longest = dice.several<int>(stages * 13, 7);
        const auto feasible = [&](int stage, int first, int end) {
            return end - first <= longest.at(place_of(stage, first));
        };
        const FeasibleSplits splits(layers, stages, feasible, LongerStage::NeverFits);
        ASSERT_EQ(walked(splits, stages), brute_force(layers, stages, feasible)) << round;
    }
}

TEST(FeasibleSplits, BeginOnlyWhatCanBeCompleted) {
    // Stage 1 holds 3 layers or none, so of six layers stage 0 gets 1 or 2.
    const auto feasible = [](int stage, int first, int end) {
        return stage != 1 || end - first == 3;
    };
    const FeasibleSplits splits(6, 3, feasible, LongerStage::MayFit);
    std::vector<Sizes> visited;
    splits.walk([&](std::span<const int> sizes) {
        visited.emplace_back(sizes.begin(), sizes.end());
        return Walk::Into;
    });
    const std::vector<Sizes> expected{{1}, {1, 3}, {1, 3, 2}, {2}, {2, 3}, {2, 3, 1}};
    EXPECT_EQ(visited, expected);
    EXPECT_EQ(splits.count_from(1, 3), 0U);
    EXPECT_EQ(splits.count_from(1, 2), 1U);
}

TEST(FeasibleSplits, AWalkCanPassByABeginningAndStop) {
    const FeasibleSplits splits(5, 3, anything, LongerStage::NeverFits);
    std::vector<Sizes> visited;
    const bool finished = splits.walk([&](std::span<const int> sizes) {
        visited.emplace_back(sizes.begin(), sizes.end());
        if (sizes.size() == 1 && sizes[0] == 1) {
            return Walk::Past;
        }
        return sizes.size() == 3 ? Walk::Stop : Walk::Into;
    });
    EXPECT_FALSE(finished);
    EXPECT_EQ(visited, (std::vector<Sizes>{{1}, {2}, {2, 1}, {2, 1, 2}}));
}

TEST(FeasibleSplits, AreCountedByTheBinomialAndNeverOverflow) {
    // k - 1 boundaries among n - 1 places.
    EXPECT_EQ(FeasibleSplits(30, 4, anything, LongerStage::NeverFits).count(), 3654U);
    EXPECT_EQ(FeasibleSplits(64, 32, anything, LongerStage::NeverFits).count(),
              916'312'070'471'295'267U);  // 63 over 31
    EXPECT_EQ(FeasibleSplits(200, 100, anything, LongerStage::NeverFits).count(),
              std::numeric_limits<std::uint64_t>::max());
}

TEST(FeasibleSplits, NoneAtAllIsAnAnswerAndMoreStagesThanLayersAreRefused) {
    const auto nothing = [](int, int, int) { return false; };
    const FeasibleSplits splits(5, 2, nothing, LongerStage::NeverFits);
    EXPECT_EQ(splits.count(), 0U);
    EXPECT_TRUE(walked(splits, 2).empty());
    const Error error = error_of([] { FeasibleSplits(5, 6, anything, LongerStage::NeverFits); });
    EXPECT_EQ(error.text(), "5 layers cannot fill 6 stages");
}

}  // namespace
}  // namespace pipetwin
