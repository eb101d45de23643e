// SPDX-License-Identifier: Apache-2.0
#include "core/partition/feasible_splits.h"

#include <limits>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "tests/core/partition/brute_force.h"
#include "tests/support/error_of.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace feasible_splits_test {

using testing::all_splits;
using testing::Dice;
using testing::error_of;
using testing::Sizes;

std::size_t place_of(int stage, int first) {
    return static_cast<std::size_t>(stage) * 13 + static_cast<std::size_t>(first);
}

const auto anything = [](int, int, int) { return true; };

std::vector<Sizes> all_of(const FeasibleSplits& splits) {
    std::vector<Sizes> all;
    splits.for_each(
        [&](std::span<const int> sizes) { all.emplace_back(sizes.begin(), sizes.end()); });
    return all;
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
    for (int round = 0; round < tests::soaked(200); ++round) {
        const int layers = dice.between(1, 12);
        const int stages = dice.between(1, std::min(layers, 6));
        const auto longest = dice.several<int>(stages * 13, 7);
        const auto feasible = [&](int stage, int first, int end) {
            return end - first <= longest.at(place_of(stage, first));
        };
        const FeasibleSplits splits(layers, stages, feasible);
        const std::vector<Sizes> expected = brute_force(layers, stages, feasible);
        ASSERT_EQ(splits.count(), expected.size()) << round;
        ASSERT_EQ(all_of(splits), expected) << round;
    }
}

TEST(FeasibleSplits, KnowDeadEnds) {
    // Stage 0 holds at most 2 of six layers, and stage 1 at most 2: stage 2 has the rest.
    const auto feasible = [](int stage, int first, int end) {
        return end - first <= (stage == 2 ? 3 : 2);
    };
    const FeasibleSplits splits(6, 3, feasible);
    EXPECT_EQ(all_of(splits), (std::vector<Sizes>{{1, 2, 3}, {2, 1, 3}, {2, 2, 2}}));
    EXPECT_EQ(splits.count_from(1, 0), 0U);
    EXPECT_EQ(splits.count_from(1, 1), 1U);
    EXPECT_EQ(splits.count_from(1, 2), 2U);
}

TEST(FeasibleSplits, AreCountedByTheBinomialAndNeverOverflow) {
    // k - 1 boundaries among n - 1 places.
    EXPECT_EQ(FeasibleSplits(30, 4, anything).count(), 3654U);
    EXPECT_EQ(FeasibleSplits(64, 32, anything).count(),
              916'312'070'471'295'267U);  // 63 over 31
    EXPECT_EQ(FeasibleSplits(200, 100, anything).count(),
              std::numeric_limits<std::uint64_t>::max());
}

TEST(FeasibleSplits, NoneAtAllIsAnAnswerAndMoreStagesThanLayersAreRefused) {
    const auto nothing = [](int, int, int) { return false; };
    const FeasibleSplits splits(5, 2, nothing);
    EXPECT_EQ(splits.count(), 0U);
    EXPECT_TRUE(all_of(splits).empty());
    const Error error = error_of([] { FeasibleSplits(5, 6, anything); });
    EXPECT_EQ(error.text(), "5 units cannot fill 6 stages");
}

}  // namespace feasible_splits_test
}  // namespace pipetwin
