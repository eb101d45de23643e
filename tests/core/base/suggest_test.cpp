// SPDX-License-Identifier: Apache-2.0
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

// Words for recompute and for what replicas share: Megatron-LM's --recompute-granularity and
// --recompute-method, torchtitan's activation_checkpoint.mode, DeepSpeed's zero_optimization.stage,
// PyTorch's sharding strategies, Megatron's --data-parallel-sharding-strategy.
TEST(NearestWord, KnowsWordsForRecomputeAndShares) {
    constexpr std::array<string_view, 5> recomputes{
        "none", "always", "except-last", "selective", "block"};
    for (const string_view word : {"full", "uniform", "checkpoint", "true", "Full"}) {
        EXPECT_EQ(nearest_word(word, recomputes), "block") << word;
    }
    for (const string_view word : {"selective_block", "core_attn", "selectiv"}) {
        EXPECT_EQ(nearest_word(word, recomputes), "selective") << word;
    }
    EXPECT_EQ(nearest_word("false", recomputes), "none");
    EXPECT_EQ(nearest_word("off", recomputes), "none");
    // Where blocks have no word, as in a list of modes for stages, a whole stage is nearest.
    EXPECT_EQ(nearest_word("full", std::array<string_view, 3>{"none", "always", "except-last"}),
              "always");
    constexpr std::array<string_view, 4> shards{"none", "optimizer", "gradients", "weights"};
    for (const string_view word : {"1", "zero1", "optim"}) {
        EXPECT_EQ(nearest_word(word, shards), "optimizer") << word;
    }
    for (const string_view word : {"2", "zero-2", "optim_grads", "SHARD_GRAD_OP"}) {
        EXPECT_EQ(nearest_word(word, shards), "gradients") << word;
    }
    for (const string_view word : {"3", "zero3", "fsdp", "FULL_SHARD", "optim_grads_params"}) {
        EXPECT_EQ(nearest_word(word, shards), "weights") << word;
    }
    EXPECT_EQ(nearest_word("no_shard", shards), "none");
    constexpr std::array<string_view, 2> gradients{"fp32", "same"};
    EXPECT_EQ(nearest_word("bf16", gradients), "same");
    EXPECT_EQ(nearest_word("float32", gradients), "fp32");
    // A key that is called so elsewhere.
    constexpr std::array<string_view, 3> names{"recompute", "shard", "scatter_boundaries"};
    EXPECT_EQ(nearest_word("recompute_granularity", names), "recompute");
    EXPECT_EQ(nearest_word("use_distributed_optimizer", names), "shard");
    EXPECT_EQ(nearest_word("scatter_gather_tensors_in_pipeline", names), "scatter_boundaries");
}

TEST(NearestWord, MayBeALongerOneThatBeginsAlike) {
    EXPECT_EQ(nearest_word("data", std::array<string_view, 2>{"data_parallel", "database"}),
              "data_parallel");
    EXPECT_EQ(nearest_word("da", std::array<string_view, 1>{"da_parallel_size"}), "");
}

TEST(Suggestion, SaysOfWhatIsMissingHereThatItIs) {
    const std::array<string_view, 2> known{"tensor_parallel", "stages"};
    EXPECT_EQ(suggestion("context_parallel", known).text(),
              "'context_parallel' is not supported yet; known: tensor_parallel, stages");
    EXPECT_EQ(nearest_word("expert_parallel", known), "");
}

TEST(Suggestion, AsksOrLists) {
    EXPECT_EQ(suggestion("stagse", keys).text(), "did you mean 'stages'?");
    EXPECT_EQ(suggestion("zzz", std::array<string_view, 2>{"cpu", "paced"}).text(),
              "known: cpu, paced");
}

}  // namespace suggest_test
}  // namespace pipetwin
