#include "core/base/suggest.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

namespace pipetwin {
namespace suggest_test {

using std::string_view;

constexpr std::array<string_view, 5> keys{
    "stages", "schedule", "micro_batches", "chunks", "partition"};

TEST(NearestWord, FindsOneEditOfEachKind) {
    EXPECT_EQ(nearest_word("stage", keys), "stages");    // a letter left out
    EXPECT_EQ(nearest_word("stagess", keys), "stages");  // a letter too many
    EXPECT_EQ(nearest_word("stafes", keys), "stages");   // a wrong letter
    EXPECT_EQ(nearest_word("stagse", keys), "stages");   // two letters swapped
    EXPECT_EQ(nearest_word("STAGES", keys), "stages");   // case does not count
    EXPECT_EQ(nearest_word("microbatches", keys), "micro_batches");
}

TEST(NearestWord, FindsTheSwapThatPlainEditDistanceMisses) {
    // Without swaps "ab" is two edits away from "ba", more than the one that a short word may have.
    EXPECT_EQ(nearest_word("ab", std::array<string_view, 1>{"ba"}), "ba");
}

TEST(NearestWord, TakesTheNearestAndOfSeveralTheFirst) {
    EXPECT_EQ(nearest_word("adamw", std::array<string_view, 2>{"adam", "adamw"}), "adamw");
    EXPECT_EQ(nearest_word("fp3", std::array<string_view, 2>{"fp32", "fp31"}), "fp32");
}

TEST(NearestWord, IsEmptyWhereNothingIsNear) {
    EXPECT_EQ(nearest_word("learning_rate", keys), "");
    EXPECT_EQ(nearest_word("", keys), "");
    EXPECT_EQ(nearest_word("stages", {}), "");
    EXPECT_EQ(nearest_word(std::string(1 << 20, 's'), keys), "");
}

TEST(NearestWord, AllowsAThirdOfTheLongerWordAndAtLeastOneEdit) {
    EXPECT_EQ(nearest_word("chxxxs", keys), "");        // three of six letters wrong
    EXPECT_EQ(nearest_word("chxxks", keys), "chunks");  // two of six
    EXPECT_EQ(nearest_word("x", std::array<string_view, 1>{"y"}), "y");
}

TEST(Suggestion, AsksOrLists) {
    EXPECT_EQ(suggestion("stagse", keys), "did you mean 'stages'?");
    EXPECT_EQ(suggestion("zzz", std::array<string_view, 2>{"cpu", "paced"}), "known: cpu, paced");
}

}  // namespace suggest_test
}  // namespace pipetwin
