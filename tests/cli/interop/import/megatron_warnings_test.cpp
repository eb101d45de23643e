// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>

#include "tests/cli/interop/import/megatron_import.h"

namespace pipetwin::cli {
namespace megatron_warnings_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ImportMegatron, WhatItCannotSayIsRefusedOrLeftOutWithAWarning) {
    const std::string experts = std::string(llama_8b) + "--overlap-moe-expert-parallel-comm";
    const Outcome refused = import(experts);
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("train.sh:12:"),
                      HasSubstr("--overlap-moe-expert-parallel-comm: messages of experts"),
                      HasSubstr("--insist")));
    EXPECT_EQ(import(experts, {"--ignore-unknown"}).code, 3);
    const Outcome warned = import(experts, {"--insist"});
    EXPECT_EQ(warned.code, 0);
    EXPECT_THAT(warned.err,
                HasSubstr("changes the run, and is left out: --overlap-moe-expert-parallel-comm"));
    EXPECT_EQ(
        pipetwin({"import", "csv", file("x.csv", "name"), "--ignore-unknown", "--out", path("y")})
            .code,
        2);
}

/// Layers that predict further tokens are never lost without a word.
TEST_F(ImportMegatron, PredictionLayersAreNeverLostInSilence) {
    const Outcome layout = import("Et|t|tmL\n");
    EXPECT_EQ(layout.code, 0);
    EXPECT_THAT(layout.err, HasSubstr("warning: the layout has layers m"));
    const Outcome alone = import(
        "--num-layers 2 --mtp-num-layers 1 --pipeline-model-parallel-size 4 "
        "--pipeline-model-parallel-layout \"Et|t|m|L\"",
        {"--insist"});
    EXPECT_EQ(alone.code, 4);
    EXPECT_THAT(alone.err, HasSubstr("stage 2 has a layer m"));
}

TEST_F(ImportMegatron, DevicesThatCannotBeSharedOutAreRefused) {
    const Outcome outcome =
        import("torchrun --nproc_per_node 6 pretrain_gpt.py --pipeline-model-parallel-size 4");
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.err,
                HasSubstr("6 processes cannot be shared out to replicas of 4 x 1 x 1 devices"));
    const std::string most = " 1073741824 ";
    const Outcome huge = import(
        "torchrun --nproc_per_node 8 pretrain_gpt.py "
        "--pipeline-model-parallel-size 8 --context-parallel-size" +
        most + "--tensor-model-parallel-size 4096");
    EXPECT_EQ(huge.code, 4);
    EXPECT_THAT(huge.err, HasSubstr("replicas of 8 x 4096 x 1073741824 devices"));
    const Outcome samples = import(
        "torchrun --nproc_per_node 8 pretrain_gpt.py "
        "--pipeline-model-parallel-size 2 --micro-batch-size" +
        most);
    EXPECT_EQ(samples.code, 4);
    EXPECT_THAT(samples.err, HasSubstr("on 4 replicas are 4294967296 samples"));
}

/// An array that a branch fills may make a model of experts of a dense one.
TEST_F(ImportMegatron, FlagsOfABranchAreWarnedOf) {
    const Outcome outcome = import(
        "if [ \"$MOE\" = 1 ]; then MOE_ARGS=(--num-experts 8); fi\n"
        "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 1 "
        "--seq-length 8 --vocab-size 128 --pipeline-model-parallel-size 2 \"${MOE_ARGS[@]}\"\n");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("warning: "),
                      HasSubstr("${MOE_ARGS[@]} has no value in this file, or one under a "
                                "condition: flags that it holds are not seen")));
}

/// Measured costs of a gpt do not tell core attention from the rest: such a fragment would not
/// simulate, so the model becomes a profile.
TEST_F(ImportMegatron, SelectiveRecomputeNeedsCostsOfCoreAttention) {
    const std::string gpt =
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 128 "
        "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 ";
    EXPECT_THAT(fragment(gpt), HasSubstr("kind = \"gpt\"\n"));
    const std::string selective = gpt + "--recompute-granularity selective";
    EXPECT_THAT(
        import(selective).err,
        AllOf(HasSubstr("more than a gpt (selective recompute"), HasSubstr("--device NAME")));
    EXPECT_THAT(fragment(selective, {"--device", "h100-sxm"}),
                AllOf(HasSubstr("kind = \"profile\"\n"), HasSubstr("recompute = \"selective\"\n")));
    EXPECT_EQ(pipetwin({"simulate", path("x.toml")}).code, 0);
}

TEST_F(ImportMegatron, SharesThatMegatronRefusesOrLeavesOpenAreTold) {
    const Outcome pipeline = import(llama_in(2) + "--use-torch-fsdp2");
    EXPECT_EQ(pipeline.code, 4);
    EXPECT_THAT(pipeline.err,
                HasSubstr("--use-torch-fsdp2 beside --pipeline-model-parallel-size 2"));
    EXPECT_THAT(import(llama_in(1) + "--use-megatron-fsdp").err,
                HasSubstr("warning: no --data-parallel-sharding-strategy"));
    EXPECT_EQ(import(llama_in(1) + "--outer-dp-sharding-strategy optim").code, 3);
}

/// Another model's layers came out as a transformer of another size, with exit code 0.
TEST_F(ImportMegatron, AnotherModelIsAskedForTwiceAndTheAnswerSaysSo) {
    const std::string flags = "torchrun --nproc_per_node 8 pretrain_vlm.py " +
                              std::string(small_gpt) +
                              "--global-batch-size 64 --perform-rl-step "
                              "--spec megatron.core.models.mamba.mamba_layer_specs x "
                              "--new-logging-flag 3";
    EXPECT_EQ(import(flags).code, 3);
    const Outcome refused = import(flags, {"--ignore-unknown"});
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("pretrain_vlm.py"),
                      HasSubstr("--perform-rl-step: a step generates samples"),
                      Not(HasSubstr("--new-logging-flag")),
                      HasSubstr("hint: "),
                      HasSubstr("--insist")));
    const Outcome insisted = import(flags, {"--insist"});
    EXPECT_EQ(insisted.code, 0) << insisted.err;
    EXPECT_THAT(insisted.out,
                AllOf(HasSubstr("another run than that of "), HasSubstr("; --perform-rl-step")));
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("# ANOTHER RUN than the file's"));
    const nlohmann::json json = import(flags, {"--insist", "--json"}).json();
    EXPECT_EQ(json["left_out"].size(), 3U);
    const Outcome known = import("torchrun --nproc_per_node 8 pretrain_gpt.py " +
                                     std::string(small_gpt) + "--new-logging-flag 3",
                                 {"--ignore-unknown"});
    EXPECT_EQ(known.code, 0);
    EXPECT_THAT(known.err, HasSubstr("left out: --new-logging-flag 3"));
    EXPECT_THAT(known.out, Not(HasSubstr("another run")));
}

/// A name that is not known but speaks of the split is not left out either.
TEST_F(ImportMegatron, AnUnknownNameThatSpeaksOfTheRunStaysRefused) {
    for (const std::string flag : {"--my-pipeline-cuts 3,5",
                                   "--use-new-fp8",
                                   "--batch-growth 2",
                                   "--my-spec x",
                                   "--freeze-llm",
                                   "--gradient-checkpointing",
                                   "--new-schedule v"}) {
        EXPECT_EQ(import(std::string(small_gpt) + flag, {"--ignore-unknown"}).code, 3) << flag;
    }
}

/// bigscience's tr7b-extrapolation-law.slurm: a loop fills the variable with all flags.
TEST_F(ImportMegatron, WhatIsNotSeenHasNoDefault) {
    const std::string flags = "pretrain_gpt.py " + std::string(small_gpt);
    const std::string loop = "for N in 1 2; do\n  export CMD=\"" + flags + "\"\ndone\n";
    for (const std::string start : {"python -m torch.distributed.launch --nproc_per_node 4 $CMD",
                                    "torchrun --nproc_per_node 4 $CMD",
                                    "eval torchrun $CMD",
                                    "srun bash -c \"torchrun --nnodes 2 $CMD\""}) {
        const Outcome outcome = import(loop + start, {"--ignore-unknown"});
        EXPECT_EQ(outcome.code, 3) << start;
        EXPECT_THAT(outcome.err, HasSubstr("$CMD")) << start;
    }
    // Outside of the loop the variable has one value.
    EXPECT_THAT(fragment("CMD=\"" + flags + "\"\neval torchrun --nproc_per_node 8 $CMD"),
                HasSubstr("stages = 4\n"));
    const std::string more =
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 "
        "--hidden-size 64 --num-attention-heads 4 --seq-length 32 "
        "--vocab-size 128 $EXTRA_ARGS";
    const Outcome extra = import(more);
    EXPECT_EQ(extra.code, 3);
    EXPECT_THAT(extra.err,
                HasSubstr("no --pipeline-model-parallel-size among the flags that are seen"));
    EXPECT_EQ(import(more, {"--insist"}).code, 0);
    EXPECT_THAT(fragment(more + " --pipeline-model-parallel-size 2"),
                HasSubstr("# flags that $EXTRA_ARGS holds were not seen"));
}

TEST_F(ImportMegatron, OptionsThatMeanNothingAreRefused) {
    const std::string flags = "--num-layers 8";
    EXPECT_EQ(import(flags, {"--chunks", "2"}).code, 2);
    EXPECT_EQ(import(flags, {"--sequence", "2"}).code, 2);
    EXPECT_EQ(import(flags, {"--precision", "bf16"}).code, 2);
    EXPECT_EQ(import("Et|tL", {"--device", "h100-sxm"}).code, 2);
    EXPECT_EQ(import("echo x.py\n").code, 3);
    EXPECT_THAT(import("{\"train_batch_size\": 8}").err, HasSubstr("import deepspeed"));
    EXPECT_THAT(import("[model]\nname = \"llama3\"\n").err, HasSubstr("import torchtitan"));
}

}  // namespace megatron_warnings_test
}  // namespace pipetwin::cli
