#include "core/interop/megatron_flags.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace pipetwin {
namespace megatron_flags_test {

using ::testing::ElementsAre;
using testing::error_of;

MegatronFlags parse(std::string_view text) {
    return parse_megatron_flags(text, "x.sh");
}

TEST(ParseMegatronFlags, ReadsALaunchScript) {
    const MegatronFlags flags = parse(
        "GPUS=8  # --num-layers 99 in a comment\n"
        "torchrun --nproc_per_node 8 pretrain_gpt.py \\\n"
        "    --num-layers 61 --hidden-size=7168 \\\r\n"
        "    --pipeline-model-parallel-size 16 --tensor-model-parallel-size 2 \\\n"
        "    --pipeline-model-parallel-layout \"Et*3|(tt|)*29,m|L\" \\\n"
        "    --micro-batch-size '4' --global-batch-size 1024 --bf16 \\\n"
        "    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
        "\\\n");
    EXPECT_EQ(flags.layers, 61);
    EXPECT_EQ(flags.hidden_size, 7168);
    EXPECT_EQ(flags.pipeline_size, 16);
    EXPECT_EQ(flags.tensor_size, 2);
    ASSERT_TRUE(flags.layout);
    EXPECT_EQ(flags.layout->stages.size(), 32U);
    EXPECT_EQ(flags.micro_batch_size, 4);
    EXPECT_EQ(flags.global_batch_size, 1024);
    EXPECT_TRUE(flags.recompute_full);
    EXPECT_EQ(flags.recompute_layers, 1);
    EXPECT_THAT(flags.unused, ElementsAre("--nproc_per_node", "--bf16"));
}

TEST(ParseMegatronFlags, PrintedFlagsReadBack) {
    MegatronFlags flags;
    flags.layers = 8;
    flags.pipeline_size = 2;
    flags.virtual_stage_layers = 2;
    flags.micro_batch_size = 1;
    flags.global_batch_size = 64;
    flags.recompute_full = true;
    flags.recompute_layers = 2;
    EXPECT_EQ(parse(print_megatron_flags(flags)), flags);
    flags.recompute_full = false;
    flags.recompute_selective = true;
    flags.shard_optimizer = true;
    flags.virtual_stage_layers.reset();
    flags.layout = parse_megatron_layout("Et*3|(tt|)*2tL", "x");
    EXPECT_EQ(parse(print_megatron_flags(flags)), flags);
}

TEST(ParseMegatronFlags, ALayoutIsNoFlags) {
    EXPECT_FALSE(are_megatron_flags("Et*3|(tt|)*29,m|L\n"));
    EXPECT_TRUE(are_megatron_flags("  --num-layers 8"));
}

struct Breach {
    std::string text;
    std::string what;  ///< the whole message
};

TEST(ParseMegatronFlags, RefusesWithLineAndColumn) {
    const std::vector<Breach> breaches{
        {"--num-layers", "x.sh:1:1: --num-layers without a value"},
        {"a\n--num-layers --bf16", "x.sh:2:1: --num-layers without a value"},
        {"--num-layers 1.5",
         "x.sh:1:14: --num-layers = '1.5', expected a whole number of at least 1"},
        {"--num-layers=0", "x.sh:1:14: --num-layers = '0', expected a whole number of at least 1"},
        {"--num-layers 8\n --num-layers 8", "x.sh:2:2: --num-layers a second time"},
        {"--seq-length \"8", "x.sh:1:14: the quote is not closed"},
        {"--recompute-granularity all", "x.sh:1:25: 'all', expected full or selective"},
        {"--recompute-method x", "x.sh:1:20: 'x', expected uniform or block"},
    };
    for (const Breach& breach : breaches) {
        const Error error = error_of([&] { parse(breach.text); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(std::string(error.what()), breach.what);
    }
    EXPECT_EQ(error_of([] { parse("--num-layers $L"); }).hint(),
              "write the value in place of the shell's variable");
    EXPECT_EQ(error_of([] { parse("--pipeline-model-parallel-layout t|L"); }).place(),
              "x.sh: --pipeline-model-parallel-layout");
}

}  // namespace megatron_flags_test
}  // namespace pipetwin
