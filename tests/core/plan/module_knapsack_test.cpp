// SPDX-License-Identifier: Apache-2.0
#include "core/plan/module_knapsack.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace pipetwin {
namespace module_knapsack_test {

using Random = std::mt19937_64;

std::int64_t drawn(Random& random, std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

/// A class of a module in the first 0, 1, ... blocks that have it, with bytes and times of their
/// own where blocks differ.
KnapsackClass drawn_class(Random& random, std::int64_t most_blocks, std::int64_t most) {
    KnapsackClass choices{{}};
    const std::int64_t blocks = drawn(random, 1, most_blocks);
    const bool are_alike = drawn(random, 0, 2) > 0;
    KnapsackChoice block{.bytes = drawn(random, 0, most), .time = drawn(random, 0, most)};
    for (std::int64_t i = 0; i < blocks; ++i) {
        if (!are_alike) {
            block = {.bytes = drawn(random, 0, most), .time = drawn(random, 0, most)};
        }
        choices.push_back({.bytes = choices.back().bytes + block.bytes,
                           .time = choices.back().time + block.time});
    }
    return choices;
}

std::vector<KnapsackClass> drawn_classes(Random& random,
                                         std::int64_t most_classes,
                                         std::int64_t most_blocks,
                                         std::int64_t most) {
    std::vector<KnapsackClass> classes;
    for (std::int64_t left = drawn(random, 1, most_classes); left > 0; --left) {
        classes.push_back(drawn_class(random, most_blocks, most));
    }
    return classes;
}

KnapsackChoice sum_of(const std::vector<KnapsackClass>& classes,
                      const std::vector<std::size_t>& choices) {
    KnapsackChoice sum;
    for (std::size_t i = 0; i < classes.size(); ++i) {
        sum.bytes += classes[i].at(choices.at(i)).bytes;
        sum.time += classes[i].at(choices.at(i)).time;
    }
    return sum;
}

constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();

/// The least time over all choices of the classes from `first` on.
std::int64_t by_trying_all(const std::vector<KnapsackClass>& classes,
                           std::size_t first,
                           std::int64_t need) {
    if (first == classes.size()) {
        return need <= 0 ? 0 : none;
    }
    std::int64_t least = none;
    for (const KnapsackChoice& choice : classes[first]) {
        const std::int64_t rest = by_trying_all(classes, first + 1, need - choice.bytes);
        least = rest == none ? least : std::min(least, choice.time + rest);
    }
    return least;
}

std::int64_t all_bytes(const std::vector<KnapsackClass>& classes) {
    std::int64_t all = 0;
    for (const KnapsackClass& choices : classes) {
        all += std::ranges::max(choices, {}, &KnapsackChoice::bytes).bytes;
    }
    return all;
}

TEST(ModuleKnapsack, ChoosesByHand) {
    // 4 blocks of 10 bytes in 3 ns, 2 of 25 in 10: 45 bytes are 25 and twice 10 in 16 ns.
    const std::vector<KnapsackClass> classes{{{0, 0}, {10, 3}, {20, 6}, {30, 9}, {40, 12}},
                                             {{0, 0}, {25, 10}, {50, 20}}};
    EXPECT_EQ(least_time_choices(classes, 45), (std::vector<std::size_t>{2, 1}));
    EXPECT_EQ(least_time_choices(classes, 0), (std::vector<std::size_t>{0, 0}));
    EXPECT_EQ(least_time_choices(classes, -5), (std::vector<std::size_t>{0, 0}));
    EXPECT_EQ(least_time_choices(classes, 90), (std::vector<std::size_t>{4, 2}));
    EXPECT_FALSE(least_time_choices(classes, 91));
    EXPECT_TRUE(least_time_choices({}, 0)->empty());
    EXPECT_FALSE(least_time_choices({}, 1));
}

TEST(ModuleKnapsack, IsAsGoodAsAnyChoiceOfSmallQuestions) {
    Random random(59);
    for (int question = 0; question < 3000; ++question) {
        const auto classes = drawn_classes(random, 4, 5, question % 2 == 0 ? 12 : 1'000'000);
        const std::int64_t need = drawn(random, 0, all_bytes(classes) + 2);
        const std::int64_t best = by_trying_all(classes, 0, need);
        const auto choices = least_time_choices(classes, need);
        ASSERT_EQ(choices.has_value(), best != none) << question;
        if (choices) {
            const KnapsackChoice sum = sum_of(classes, *choices);
            ASSERT_GE(sum.bytes, need) << question;
            ASSERT_EQ(sum.time, best) << question;
        }
    }
}

/// One word of a list means a module in all blocks.
TEST(ModuleKnapsack, IsNeverSlowerThanTheBestSingleWord) {
    Random random(1000);
    int compared = 0;
    for (int question = 0; question < 1000; ++question) {
        const auto classes = drawn_classes(random, 7, 126, 4'000'000'000);
        const std::int64_t need = drawn(random, 0, all_bytes(classes) / 2);
        std::int64_t best_word = none;
        for (const KnapsackClass& word : classes) {
            if (word.back().bytes >= need) {
                best_word = std::min(best_word, word.back().time);
            }
        }
        const auto choices = least_time_choices(classes, need);
        ASSERT_TRUE(choices) << question;
        const KnapsackChoice sum = sum_of(classes, *choices);
        ASSERT_GE(sum.bytes, need) << question;
        ASSERT_LE(sum.time, best_word) << question;
        compared += best_word != none ? 1 : 0;
    }
    EXPECT_GT(compared, 300) << "cases in which a word is enough";
}

}  // namespace module_knapsack_test
}  // namespace pipetwin
