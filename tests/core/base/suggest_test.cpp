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

// "gpu" is one letter away from "cpu", and "interleaved" nearer to "interleaved-zb" than to the
// schedule that is called so elsewhere.
TEST(NearestWord, KnowsWhatWordsOfOtherProgramsMean) {
    EXPECT_EQ(nearest_word("gpu", std::array<string_view, 3>{"cpu", "paced", "cuda"}), "cuda");
    EXPECT_EQ(nearest_word("GPU", std::array<string_view, 3>{"cpu", "paced", "cuda"}), "cuda");
    EXPECT_EQ(nearest_word("gpu", std::array<string_view, 1>{"cpu"}), "cpu");
    EXPECT_EQ(
        nearest_word("interleaved",
                     std::array<string_view, 3>{"1f1b", "interleaved-1f1b", "interleaved-zb"}),
        "interleaved-1f1b");
    EXPECT_EQ(nearest_word("virtual_stages", keys), "chunks");
    EXPECT_EQ(nearest_word("bfloat16", std::array<string_view, 3>{"fp32", "fp64", "bf16"}), "bf16");
}

TEST(NearestWord, MayBeALongerOneThatBeginsAlike) {
    EXPECT_EQ(nearest_word("data", std::array<string_view, 2>{"data_parallel", "database"}),
              "data_parallel");
    EXPECT_EQ(nearest_word("da", std::array<string_view, 1>{"da_parallel_size"}), "");
}

TEST(Suggestion, SaysOfWhatIsMissingHereThatItIs) {
    const std::array<string_view, 2> known{"tensor_parallel", "stages"};
    EXPECT_EQ(suggestion("context_parallel", known),
              "'context_parallel' is not supported yet; known: tensor_parallel, stages");
    EXPECT_EQ(nearest_word("expert_parallel", known), "");
}

TEST(Suggestion, AsksOrLists) {
    EXPECT_EQ(suggestion("stagse", keys), "did you mean 'stages'?");
    EXPECT_EQ(suggestion("zzz", std::array<string_view, 2>{"cpu", "paced"}), "known: cpu, paced");
}

}  // namespace suggest_test
}  // namespace pipetwin
