// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/scenario/scenario.h"
#include "tests/cli/interop/exchange_fixture.h"

namespace pipetwin::cli {
namespace megatron_export_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(Exchange, AGptScenarioBecomesALayout) {
    EXPECT_EQ(written({"export", "megatron-layout", file("gpt.toml", gpt_scenario)}),
              "Ett|t|tt|tL\n");
}

TEST_F(Exchange, AnImportedLayoutIsTheScenariosPartition) {
    const std::string layout =
        written({"export", "megatron-layout", file("gpt.toml", gpt_scenario)});
    const std::string fragment =
        written({"import", "megatron", file("layout.txt", layout), "--chunks", "2"});
    EXPECT_THAT(fragment,
                HasSubstr("[pipeline]\nstages = 2\nchunks = 2\npartition = [2, 1, 2, 1]\n"));
    // Pasted into a scenario it means what it meant in Megatron.
    const std::string scenario =
        std::string(gpt_scenario.substr(0, gpt_scenario.find("[pipeline]"))) + fragment +
        "micro_batches = 4\nschedule = \"interleaved-1f1b\"\n";
    EXPECT_EQ(written({"export", "megatron-layout", file("pasted.toml", scenario)}), layout);
}

TEST_F(Exchange, ALayoutMayGiveTheEndsStagesOfTheirOwn) {
    const std::string fragment =
        written({"import", "megatron", file("layout.txt", "E|t*4|(tt)*1|L\n")});
    EXPECT_THAT(fragment, HasSubstr("# partition counts whole blocks, 6 in all"));
    EXPECT_THAT(fragment, HasSubstr("stages = 4\nchunks = 1\npartition = [0, 4, 2, 0]\n"));
    const std::string scenario =
        std::string(gpt_scenario.substr(0, gpt_scenario.find("[pipeline]"))) + fragment +
        "micro_batches = 4\n";
    EXPECT_EQ(written({"export", "megatron-layout", file("pasted.toml", scenario)}),
              "E|t*4|tt|L\n");
}

TEST_F(Exchange, ALayoutIsReadFromStandardInput) {
    std::istringstream input("Et*3|(tt|)*29,m|L\n");
    std::streambuf* const before = std::cin.rdbuf(input.rdbuf());
    const std::string fragment = written({"import", "megatron", "-", "--chunks", "2"});
    std::cin.rdbuf(before);
    std::cin.clear();
    EXPECT_THAT(fragment, StartsWith("# Megatron's pipeline layout Et*3|(tt|)*29m|L\n"));
    EXPECT_THAT(fragment, HasSubstr("stages = 16\nchunks = 2\npartition = [4, 2, 2,"));
}

TEST_F(Exchange, LayoutsThatDoNotFitAreRefused) {
    const Outcome huge = refused({"import", "megatron", file("huge.txt", "Et*999999999|L")});
    EXPECT_EQ(huge.code, 3);
    EXPECT_THAT(huge.err, HasSubstr("huge.txt:1:2: from here on more than 262144"));
    const Outcome empty = refused({"import", "megatron", file("empty.txt", "Et||tL")});
    EXPECT_EQ(empty.code, 4);
    EXPECT_THAT(empty.err, HasSubstr("stage 1 is empty"));
    const Outcome odd =
        refused({"import", "megatron", file("odd.txt", "Et|t|tL"), "--chunks", "2"});
    EXPECT_EQ(odd.code, 4);
    EXPECT_THAT(odd.err, HasSubstr("3 stages are not a multiple of 2 chunks"));
}

TEST_F(Exchange, PlansThatNoLayoutCanHoldAreRefused) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    const Outcome halves =
        refused({"export", "megatron-layout", gpt, "--set", "pipeline.partition=[4, 3, 4, 3]"});
    EXPECT_EQ(halves.code, 4);
    EXPECT_THAT(halves.err, HasSubstr("stage 1 begins with the second half of block 1"));
    const Outcome placed =
        refused({"export", "megatron-layout", gpt, "--set", "pipeline.schedule=zb-v"});
    EXPECT_EQ(placed.code, 4);
    EXPECT_THAT(placed.err, HasSubstr("Megatron puts it on rank 0"));
    const Outcome costs =
        refused({"export", "megatron-layout", gpt, "--set", "pipeline.partition=auto"});
    EXPECT_EQ(costs.code, 3);  // the balancer's partition follows the costs
    EXPECT_THAT(costs.err, HasSubstr("pipetwin profile"));
    const Outcome mlp = refused({"export", "megatron-layout", file("small.toml", small_scenario)});
    EXPECT_EQ(mlp.code, 4);
    EXPECT_THAT(mlp.err, HasSubstr("model.kind = \"mlp\""));
    EXPECT_EQ(refused({"export", "megatron-layout", file("x.csv", "0F0,0B0\n")}).code, 4);
}

/// Flags of the gpt that all exports below have: its sizes, and what ours leaves out.
constexpr std::string_view gpt_sizes =
    "--hidden-size 16 --ffn-hidden-size 64 --num-attention-heads 2 --seq-length 8 "
    "--max-position-embeddings 8 --vocab-size 32 --make-vocab-size-divisible-by 1 "
    "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 ";
constexpr std::string_view gpt_training =
    "--no-bias-gelu-fusion --untie-embeddings-and-output-weights --clip-grad 0 --hidden-dropout 0 "
    "--attention-dropout 0";

TEST_F(Exchange, MegatronsFlagsSayWhatLayersRecomputeAndWhatReplicasShare) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    const auto flags = [&](const std::string& setting) {
        return written({"export", "megatron-flags", gpt, "--set", setting});
    };
    EXPECT_THAT(flags("pipeline.recompute=block"),
                HasSubstr("--recompute-granularity full --recompute-method uniform "
                          "--recompute-num-layers 1"));
    const auto groups_of = [&](const char* partition, int together) {
        return std::vector<std::string>{"export",
                                        "megatron-flags",
                                        gpt,
                                        "--set",
                                        "model.layers=8",
                                        "--set",
                                        partition,
                                        "--set",
                                        "pipeline.recompute=block",
                                        "--set",
                                        fmt::format("pipeline.recompute_blocks={}", together)};
    };
    const char* const equal = "pipeline.partition=[2, 2, 2, 2]";
    EXPECT_THAT(written(groups_of(equal, 2)), HasSubstr("--recompute-num-layers 2"));
    // All blocks of a stage are its group; Megatron wants to know how many these are.
    EXPECT_THAT(written(groups_of(equal, 9)), HasSubstr("--recompute-num-layers 2"));
    const Outcome uneven = refused(groups_of("pipeline.partition=[3, 1, 2, 2]", 2));
    EXPECT_EQ(uneven.code, 4);
    EXPECT_THAT(uneven.err,
                HasSubstr("pipeline.recompute_blocks = 2, but stages have 3, 1, 2, 2 blocks"));
    EXPECT_THAT(flags("pipeline.shard=optimizer"), HasSubstr("--use-distributed-optimizer"));
    EXPECT_THAT(flags("pipeline.recompute=selective"),
                HasSubstr("--recompute-granularity selective"));
    EXPECT_THAT(flags("pipeline.shard=gradients"),
                AllOf(HasSubstr("--use-distributed-optimizer --use-megatron-fsdp"),
                      HasSubstr("--data-parallel-sharding-strategy optim_grads ")));
    // The required flags of NVIDIA's Megatron-FSDP user guide.
    EXPECT_THAT(flags("pipeline.shard=weights"),
                AllOf(HasSubstr("--use-distributed-optimizer --use-megatron-fsdp"),
                      HasSubstr("--data-parallel-sharding-strategy optim_grads_params"),
                      HasSubstr("--no-gradient-accumulation-fusion"),
                      HasSubstr("--ckpt-format fsdp_dtensor\n")));
    EXPECT_THAT(flags("training={batch=8, precision=\"bf16\", gradients=\"same\"}"),
                HasSubstr("--grad-reduce-in-bf16"));
    EXPECT_THAT(flags("training={batch=8, precision=\"bf16\", optimizer_state_bytes=8}"),
                Not(HasSubstr("--use-precision-aware-optimizer")));
    EXPECT_THAT(flags("training={batch=8, precision=\"bf16\", accumulation=\"separate\"}"),
                HasSubstr("--no-gradient-accumulation-fusion"));
}

TEST_F(Exchange, MegatronsFlagsSayWhatTheScenarioSays) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    // 8 samples in 4 micro-batches; stages of 2, 1, 2 and 1 blocks have no larger divisor than 1.
    EXPECT_EQ(written({"export", "megatron-flags", gpt, "--set", "pipeline.recompute=always"}),
              fmt::format("--num-layers 6 {}--micro-batch-size 2 --global-batch-size 8 "
                          "--pipeline-model-parallel-layout \"Ett|t|tt|tL\" {} "
                          "--recompute-granularity full --recompute-method uniform "
                          "--recompute-num-layers 1\n",
                          gpt_sizes,
                          gpt_training));
    EXPECT_EQ(written({"export",
                       "megatron-flags",
                       gpt,
                       "--set",
                       "model.layers=8",
                       "--set",
                       "pipeline.partition=[2, 2, 2, 2]"}),
              fmt::format("--num-layers 8 {}--num-layers-per-virtual-pipeline-stage 2 "
                          "--micro-batch-size 2 --global-batch-size 8 {}\n",
                          gpt_sizes,
                          gpt_training));
    EXPECT_THAT(written({"export",
                         "megatron-flags",
                         gpt,
                         "--set",
                         "pipeline.stages=4",
                         "--set",
                         "pipeline.chunks=1",
                         "--set",
                         "pipeline.schedule=1f1b",
                         "--set",
                         "pipeline.partition=[1, 2, 2, 1]"}),
                HasSubstr("--decoder-first-pipeline-num-layers 1 "
                          "--decoder-last-pipeline-num-layers 1 --micro-batch-size 2"));
    const Outcome uneven = refused({"export", "megatron-flags", gpt, "--set", "training.batch=9"});
    EXPECT_EQ(uneven.code, 4);
    EXPECT_THAT(uneven.err, HasSubstr("micro-batches of 3 and of 2 samples"));
    const Outcome last =
        refused({"export", "megatron-flags", gpt, "--set", "pipeline.recompute=except-last"});
    EXPECT_EQ(last.code, 4);
    EXPECT_THAT(last.err, HasSubstr("which Megatron has no flag for"));
    const Outcome mixed =
        refused({"export",
                 "megatron-flags",
                 gpt,
                 "--set",
                 "pipeline.recompute=[\"always\", \"none\", \"none\", \"none\"]"});
    EXPECT_EQ(mixed.code, 4);
    EXPECT_THAT(
        mixed.err,
        HasSubstr(
            "always on stage 0, none on stages 1-3, but Megatron's flags apply to all stages"));
}

// A plan reads back from them: --swiglu and others say what a Llama is in Megatron's arguments.py.
TEST_F(Exchange, MegatronsFlagsSayWhatALlamaIs) {
    const std::string llama =
        file("llama.toml",
             "[model]\nkind = \"llama\"\nlayers = 4\nd_model = 64\nheads = 8\n"
             "key_value_heads = 2\nhead_size = 16\ncontext = 32\n"
             "vocabulary = 256\nfeed_forward = 96\nepsilon = 1e-6\n"
             "rotary_base = 500000\nrotary_factor = 32\n"
             "rotary_context = 16\n"
             "[training]\nbatch = 8\n"
             "[pipeline]\nstages = 2\nmicro_batches = 4\n"
             "schedule = \"1f1b\"\npartition = [2, 2]\n");
    const std::string out = path("llama.sh");
    const Outcome exported = pipetwin({"export", "megatron-flags", llama, "--out", out});
    ASSERT_EQ(exported.code, 0) << exported.err;
    const std::string flags = content_of(out);
    for (const std::string_view flag : {"--num-layers 4 ",
                                        "--hidden-size 64 ",
                                        "--ffn-hidden-size 96 ",
                                        "--num-attention-heads 8 ",
                                        "--group-query-attention",
                                        "--num-query-groups 2 ",
                                        "--kv-channels 16 ",
                                        "--swiglu",
                                        "--disable-bias-linear",
                                        "--normalization RMSNorm",
                                        "--position-embedding-type rope",
                                        "--untie-embeddings-and-output-weights",
                                        "--hidden-dropout 0"}) {
        EXPECT_THAT(flags, HasSubstr(flag));
    }
    EXPECT_THAT(flags,
                HasSubstr(" --norm-epsilon 1e-06 --rotary-base 500000 --use-rope-scaling "
                          "--rope-scaling-factor 32\n"));
    // Megatron-LM's scaling has these three numbers in its code.
    EXPECT_THAT(exported.err,
                AllOf(HasSubstr("Megatron-LM has no flag for rope_scaling"),
                      HasSubstr("original_max_position_embeddings 16")));
}

TEST_F(Exchange, MegatronsFlagsBecomeAScenarioAndComeBack) {
    const std::string script =
        "#!/bin/bash\ntorchrun --nproc_per_node 8 pretrain_gpt.py \\\n"
        "  --num-layers 8 --hidden-size=64 --num-attention-heads 4 --seq-length 32 \\\n"
        "  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 \\\n"
        "  --num-layers-per-virtual-pipeline-stage 2 --micro-batch-size 2 --global-batch-size 16 "
        "\\\n"
        "  --lr 1e-4 --bf16\n";
    const std::string fragment = written({"import", "megatron", file("train.sh", script)});
    EXPECT_THAT(fragment, HasSubstr("# without effect on a prediction: --lr\n"));
    // Megatron's own defaults: tied ends, dropout, a clipped norm; two devices of eight each.
    EXPECT_THAT(
        fragment,
        AllOf(HasSubstr("feed_forward = 256\ntied = true\ndropout = 0.1\ngelu = \"tanh\"\n"),
              HasSubstr("precision = \"bf16\"\nclip_norm = 1\n"),
              HasSubstr("micro_batches = 2\ndata_parallel = 4\n")));
    const std::string flags = written({"export", "megatron-flags", file("pasted.toml", fragment)});
    EXPECT_EQ(flags,
              "--num-layers 8 --hidden-size 64 --ffn-hidden-size 256 --num-attention-heads 4 "
              "--seq-length 32 --max-position-embeddings 32 --vocab-size 256 "
              "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 "
              "--num-layers-per-virtual-pipeline-stage 2 --micro-batch-size 2 "
              "--global-batch-size 16 --bf16 --clip-grad 1 --hidden-dropout 0.1 "
              "--attention-dropout 0\n");
    const std::string again = written({"import", "megatron", file("flags.txt", flags)});
    EXPECT_EQ(written({"export", "megatron-flags", file("again.toml", again)}), flags);
    const Outcome variable = refused(
        {"import", "megatron", file("bad.sh", "x \\\n --pipeline-model-parallel-size $PP\n")});
    EXPECT_EQ(variable.code, 3);
    EXPECT_THAT(variable.err, AllOf(HasSubstr("bad.sh:2:33: "), HasSubstr("of the variable")));
    const Outcome odd = refused(
        {"import", "megatron", file("odd.sh", "--pipeline-model-parallel-size 2 --num-layers 7")});
    EXPECT_EQ(odd.code, 4);
    EXPECT_THAT(odd.err, HasSubstr("--num-layers 7 cannot be shared out to 2 stages"));
}

/// What Megatron cannot be told is said, and what it can be reads back without a word.
TEST_F(Exchange, WhatMegatronsFlagsReadBackOtherwiseIsNoted) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    const auto said = [&](const std::vector<std::string>& settings) {
        std::vector<std::string> args{"export", "megatron-flags", gpt};
        for (const std::string& setting : settings) {
            args.insert(args.end(), {"--set", setting});
        }
        return said_of(args, path("flags.txt"));
    };
    EXPECT_THAT(said({"training.optimizer=adam"}), HasSubstr("as adamw does"));
    EXPECT_THAT(said({"training.optimizer=adamw"}), Not(HasSubstr("adamw")));
    const std::string odd =
        said({"model.vocabulary=257", "model.heads=4", "pipeline.tensor_parallel=2"});
    EXPECT_THAT(odd, HasSubstr("it pads the 257 words to 258"));
    EXPECT_THAT(written({"import", "megatron", path("flags.txt")}),
                HasSubstr("vocabulary = 258\n"));
    EXPECT_THAT(said({"model.vocabulary=256", "pipeline.tensor_parallel=2"}),
                Not(HasSubstr("words")));
    EXPECT_THAT(said({"model.vocabulary=257"}), Not(HasSubstr("words")));
    EXPECT_THAT(written({"import", "megatron", path("flags.txt")}),
                HasSubstr("vocabulary = 257\n"));
}

/// Megatron took six in groups of four, and refused the last two.
TEST_F(Exchange, MegatronsFlagsHaveTheGroupsThatThePlanHas) {
    const std::string scenario = file("gpt.toml", gpt_scenario);
    const auto exported = [&](int micro_batches) {
        return written({"export",
                        "megatron-flags",
                        scenario,
                        "--set",
                        fmt::format("pipeline.micro_batches={}", micro_batches),
                        "--set",
                        fmt::format("training.batch={}", micro_batches)});
    };
    constexpr std::string_view flag = "--microbatch-group-size-per-virtual-pipeline-stage";
    EXPECT_THAT(exported(4), Not(HasSubstr(std::string(flag))));
    EXPECT_THAT(exported(5), HasSubstr(std::string(flag) + " 3"));
    EXPECT_THAT(said_of({"export",
                         "megatron-flags",
                         scenario,
                         "--set",
                         "pipeline.micro_batches=1",
                         "--set",
                         "training.batch=1"},
                        path("x.txt")),
                HasSubstr("Megatron refuses fewer micro-batches (1) than ranks (2)"));
}

TEST_F(Exchange, AProfileOfATransformerIsExportedAsAGptIs) {
    file("costs.csv", transformer_profile);
    const std::string scenario = file("profile.toml", transformer_scenario);
    EXPECT_EQ(
        written({"export", "torchtitan", scenario}),
        "[\n  [\"tok_embeddings\", \"layers.0\"],\n  [\"layers.1\", \"norm\", \"output\"]\n]\n");
    EXPECT_EQ(written({"export", "megatron-layout", scenario}), "Et|tL\n");
    EXPECT_EQ(written({"export", "megatron-flags", scenario}),
              "--num-layers 2 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 "
              "--micro-batch-size 1 --global-batch-size 4\n");
    EXPECT_THAT(pipetwin({"export", "megatron-flags", scenario, "--out", path("noted")}).err,
                HasSubstr("the costs do not contain the sizes of the model"));
    // A layout counts blocks, and so may the partition of a profile that has them.
    const std::string layout = file("layout.txt", "Et|tL\n");
    EXPECT_THAT(written({"import", "megatron", layout}), HasSubstr("partition = [1, 1]\n"));
    EXPECT_EQ(
        written({"export", "megatron-layout", scenario, "--set", "pipeline.partition=[1, 1]"}),
        "Et|tL\n");

    std::string other(transformer_profile);
    other.replace(other.find("block1.attention"), 16, "convolution");
    file("costs.csv", other);
    const Outcome outcome = refused({"export", "torchtitan", scenario});
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("layer 3 is 'convolution', expected 'block1.attention'"),
                      HasSubstr("import hf")));
}

// --- json. ---

}  // namespace megatron_export_test
}  // namespace pipetwin::cli
