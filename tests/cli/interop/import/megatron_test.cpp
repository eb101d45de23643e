#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <toml++/toml.h>

#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace import_megatron_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ImportMegatron : public InFolder {
  protected:
    Outcome import(std::string_view content, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> args{
            "import", "megatron", file("train.sh", content), "--force", "--out", path("x.toml")};
        args.insert(args.end(), more.begin(), more.end());
        return pipetwin(args);
    }

    std::string fragment(std::string_view content,
                         const std::vector<std::string>& more = {}) const {
        const Outcome outcome = import(content, more);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.code == 0 ? content_of(path("x.toml")) : "";
    }
};

/// Llama 3 8B, as its makers published it: 8,030,261,248 parameters.
constexpr std::string_view llama_8b =
    "NUM_LAYERS=${NUM_LAYERS:-32}\n"
    "MODEL_ARGS=(\n"
    "    --num-layers $NUM_LAYERS --hidden-size 4096 --ffn-hidden-size 14336\n"
    "    --num-attention-heads 32 --group-query-attention --num-query-groups 8\n"
    "    --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope\n"
    "    --normalization RMSNorm --swiglu --disable-bias-linear\n"
    "    --untie-embeddings-and-output-weights --vocab-size 128256 --bf16 --use-flash-attn\n"
    "    --hidden-dropout 0 --attention-dropout 0\n"
    ")\n"
    "torchrun --nproc_per_node 8 pretrain_gpt.py ${MODEL_ARGS[@]} \\\n"
    "    --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 \\\n"
    "    --micro-batch-size 1 --global-batch-size 128 --use-distributed-optimizer --lr 3e-4 ";

TEST_F(ImportMegatron, AGatedModelIsCountedAndItsProfileNamed) {
    const Outcome outcome = import(llama_8b);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("4 ranks, 8 stages, 8,030,261,248 parameters"));
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("warning: the model is more than a gpt (--swiglu"),
                      HasSubstr("--device NAME"),
                      HasSubstr("x.profile.json")));
    const std::string text = content_of(path("x.toml"));
    EXPECT_THAT(text,
                AllOf(HasSubstr("kind = \"profile\"\nfile = \"x.profile.json\"\n"),
                      HasSubstr("batch = 128\n"),
                      HasSubstr("stages = 4\nchunks = 2\nschedule = \"interleaved-1f1b\"\n"),
                      HasSubstr("micro_batches = 64\ndata_parallel = 2\n"),
                      HasSubstr("shard = \"optimizer\"\n"),
                      HasSubstr("partition = [4, 4, 4, 4, 4, 4, 4, 4]\n")));
    EXPECT_FALSE(std::filesystem::exists(path("x.profile.json")));
}

TEST_F(ImportMegatron, WithADeviceTheFragmentIsAWholeScenario) {
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, std::vector<std::string>{"--whole-blocks"}}) {
        std::vector<std::string> options{"--device", "h100-sxm"};
        options.insert(options.end(), more.begin(), more.end());
        fragment(llama_8b, options);
        const Outcome simulated = pipetwin({"simulate", path("x.toml"), "--json"});
        ASSERT_EQ(simulated.code, 0) << simulated.err;
        const Outcome layout = pipetwin(
            {"export", "megatron-layout", path("x.toml"), "--force", "--out", path("layout")});
        EXPECT_EQ(layout.code, 0) << layout.err;
        EXPECT_EQ(content_of(path("layout")), "Et*4|(t*4|)*6t*4L\n");
    }
    const Outcome there = pipetwin({"import",
                                    "megatron",
                                    file("train.sh", llama_8b),
                                    "--device",
                                    "h100-sxm",
                                    "--out",
                                    path("other.toml")});
    EXPECT_EQ(there.code, 0);
    std::filesystem::remove(path("other.toml"));
    const Outcome kept = pipetwin({"import",
                                   "megatron",
                                   file("train.sh", llama_8b),
                                   "--device",
                                   "h100-sxm",
                                   "--out",
                                   path("other.toml")});
    EXPECT_EQ(kept.code, 6);
    EXPECT_THAT(kept.err, HasSubstr("other.profile.json: the file is there already"));
}

/// Context parallelism: both devices of a pair have half of a sample's tokens.
TEST_F(ImportMegatron, DevicesThatShareSamplesHaveASmallerShareOfTheCosts) {
    const std::string context = std::string(llama_8b) + "--context-parallel-size 2";
    const Outcome outcome = import(context, {"--device", "h100-sxm"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("warning: --context-parallel-size 2: 2 devices share"));
    const std::string text = content_of(path("x.toml"));
    EXPECT_THAT(text, HasSubstr("micro_batches = 128\ndata_parallel = 1\n"));
}

TEST_F(ImportMegatron, FirstAndLastStagesAreAsTheFlagsSay) {
    const std::string gpt =
        "torchrun pretrain_gpt.py --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
        "--vocab-size 512 --pipeline-model-parallel-size 4 --micro-batch-size 1 "
        "--global-batch-size 32 ";
    const std::string text = fragment(gpt +
                                      "--num-layers 32 --decoder-first-pipeline-num-layers 6 "
                                      "--decoder-last-pipeline-num-layers 6");
    EXPECT_THAT(text, HasSubstr("partition = [6, 10, 10, 6]\n"));
    EXPECT_THAT(text, HasSubstr("kind = \"gpt\"\nlayers = 32\n"));
    EXPECT_EQ(pipetwin({"export", "megatron-flags", path("x.toml"), "--out", path("flags")}).code,
              0);
    EXPECT_THAT(content_of(path("flags")),
                HasSubstr("--decoder-first-pipeline-num-layers 6 "
                          "--decoder-last-pipeline-num-layers 6 "));
    EXPECT_THAT(fragment(gpt + "--num-layers 30 --account-for-embedding-in-pipeline-split "
                               "--account-for-loss-in-pipeline-split"),
                HasSubstr("partition = [7, 8, 8, 7]\n"));
}

TEST_F(ImportMegatron, WhatItCannotSayIsRefusedOrLeftOutWithAWarning) {
    const std::string experts = std::string(llama_8b) + "--expert-model-parallel-size 2";
    const Outcome refused = import(experts);
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("train.sh:12:"),
                      HasSubstr("--expert-model-parallel-size 2: replicas share the experts"),
                      HasSubstr("--ignore-unknown")));
    const Outcome warned = import(experts, {"--ignore-unknown"});
    EXPECT_EQ(warned.code, 0);
    EXPECT_THAT(warned.err,
                HasSubstr("not understood, and left out: --expert-model-parallel-size 2"));
    EXPECT_EQ(
        pipetwin({"import", "csv", file("x.csv", "name"), "--ignore-unknown", "--out", path("y")})
            .code,
        2);
}

/// Layers that predict further tokens are in no model here: they are never lost without a word.
TEST_F(ImportMegatron, PredictionLayersAreNeverLostInSilence) {
    const Outcome layout = import("Et|t|tmL\n");
    EXPECT_EQ(layout.code, 0);
    EXPECT_THAT(layout.err, HasSubstr("warning: the layout has layers m"));
    const std::string flags =
        "--num-layers 3 --mtp-num-layers 1 --pipeline-model-parallel-size 3 "
        "--pipeline-model-parallel-layout \"Et|t|tmL\"";
    EXPECT_THAT(import(flags).err, HasSubstr("--mtp-num-layers 1: adds layers behind the blocks"));
    const Outcome ignored = import(flags, {"--ignore-unknown"});
    EXPECT_EQ(ignored.code, 0);
    EXPECT_THAT(ignored.err, HasSubstr("left out: --mtp-num-layers 1"));
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("partition = [1, 1, 1]\n"));
    const Outcome alone = import(
        "--num-layers 2 --mtp-num-layers 1 --pipeline-model-parallel-size 4 "
        "--pipeline-model-parallel-layout \"Et|t|m|L\"",
        {"--ignore-unknown"});
    EXPECT_EQ(alone.code, 4);
    EXPECT_THAT(alone.err, HasSubstr("stage 2 has nothing but layers m"));
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
        most + "--tensor-model-parallel-size" + most);
    EXPECT_EQ(huge.code, 4);
    EXPECT_THAT(huge.err, HasSubstr("replicas of 8 x 1073741824 x 1073741824 devices"));
    const Outcome samples = import(
        "torchrun --nproc_per_node 8 pretrain_gpt.py "
        "--pipeline-model-parallel-size 2 --micro-batch-size" +
        most);
    EXPECT_EQ(samples.code, 4);
    EXPECT_THAT(samples.err, HasSubstr("on 4 replicas are 4294967296 samples"));
}

/// Names and paths of other systems may hold every character: the fragment stays TOML.
TEST_F(ImportMegatron, EveryTextIsQuotedInTheFragment) {
    const std::string titan =
        "[model]\nname = \"llama3\\nx = 1\"\nflavor = \"8B\"\n[parallelism]\n"
        "pipeline_parallel_schedule_csv = 'C:\\x \"y\".csv'\n"
        "[job]\n\"a\\nb\" = 1\n";
    const Outcome outcome = pipetwin(
        {"import", "torchtitan", file("t.toml", titan), "--force", "--out", path("x.toml")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::string text = content_of(path("x.toml"));
    EXPECT_THAT(text,
                AllOf(HasSubstr("schedule = \"C:\\\\x \\\"y\\\".csv\"\n"),
                      HasSubstr("model llama3 x = 1 8B\n"),
                      HasSubstr("job.a b\n")));
    const toml::table table = toml::parse(text);
    EXPECT_EQ(table["pipeline"]["schedule"].value<std::string>(), "C:\\x \"y\".csv");
    EXPECT_FALSE(table.contains("x"));
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

/// 6 micro-batches on 4 ranks: Megatron wants to be told of groups of 6.
TEST_F(ImportMegatron, GroupsOfMicroBatchesAreThoseOfTheFlags) {
    const std::string flags =
        "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 8 "
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
        "--micro-batch-size 1 --global-batch-size 6 ";
    EXPECT_THAT(import(flags).err, HasSubstr("Megatron refuses 6 micro-batches in groups of 4"));
    const std::string grouped = flags + "--microbatch-group-size-per-virtual-pipeline-stage 6";
    EXPECT_THAT(import(grouped).err, Not(HasSubstr("Megatron refuses")));
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("group_size = 6\n"));
    for (const char* size : {"3", "4", "5", "7"}) {
        const std::string refused =
            flags + "--microbatch-group-size-per-virtual-pipeline-stage " + size;
        const Outcome outcome = import(refused);
        EXPECT_EQ(outcome.code, 4) << size;
        EXPECT_THAT(
            outcome.err,
            AllOf(HasSubstr("train.sh: --microbatch-group-size-per-virtual-pipeline-stage " +
                            std::string(size)),
                  HasSubstr("hint: Megatron takes "
                            "--microbatch-group-size-per-virtual-pipeline-stage 6")));
    }
}

TEST_F(ImportMegatron, AYamlFileContinuesTheOneBesideIt) {
    file("m.yaml",
         "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 32\n"
         "vocab_size: 128\n");
    const std::string experiment =
        "modules:\n  pre_trainer:\n    framework: megatron\n    model: m.yaml\n"
        "    overrides:\n      pipeline_model_parallel_size: 2\n      micro_batch_size: 1\n"
        "      global_batch_size: 8\n";
    const std::string text = fragment(experiment);
    EXPECT_THAT(text, AllOf(HasSubstr("layers = 4\n"), HasSubstr("partition = [2, 2]\n")));
    std::filesystem::remove(path("m.yaml"));
    const Outcome missing = import(experiment);
    EXPECT_EQ(missing.code, 3);
    EXPECT_THAT(missing.err, HasSubstr("the file 'm.yaml', which it continues, is neither"));
    EXPECT_EQ(import(experiment, {"--ignore-unknown"}).code, 0);
}

TEST_F(ImportMegatron, OtherSystemsFilesBecomeTablesToo) {
    const auto imported = [this](const std::string& format, const std::string& content) {
        const Outcome outcome = pipetwin(
            {"import", format, file("config", content), "--force", "--out", path("y.toml")});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return content_of(path("y.toml"));
    };
    EXPECT_THAT(imported("torchtitan",
                         "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"
                         "pipeline_parallel_degree = 2\ndata_parallel_shard_degree = 1\n"),
                AllOf(HasSubstr("stages = 2\nchunks = 1\nschedule = \"1f1b\"\n"),
                      HasSubstr("partition = [16, 16]\n")));
    EXPECT_THAT(imported("deepspeed",
                         "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 1, "
                         "\"gradient_accumulation_steps\": 4, \"pipeline\": {\"stages\": 2}}"),
                HasSubstr("stages = 2\nchunks = 1\nschedule = \"1f1b\"\nmicro_batches = 4\n"
                          "data_parallel = 2\n"));
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

}  // namespace import_megatron_test
}  // namespace pipetwin::cli
