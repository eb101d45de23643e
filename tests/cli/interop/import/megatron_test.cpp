// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>
#include <string>
#include <string_view>
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

/// What no flag says.
const std::string between_nodes = "cluster.node_link=infiniband-ndr";

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

/// Weights are gathered beside the next step only with a flag of their own, which comes back.
TEST_F(ImportMegatron, GathersOfWeightsOverlapAsTheFlagSays) {
    const std::string sums = std::string(llama_8b) + "--overlap-grad-reduce ";
    EXPECT_THAT(fragment(llama_8b), Not(HasSubstr("overlap_gather")));
    EXPECT_THAT(fragment(sums), HasSubstr("overlap_gather = false\n"));
    EXPECT_THAT(fragment(sums + "--overlap-param-gather", {"--device", "h100-sxm"}),
                HasSubstr("overlap_gather = true\n"));
    ASSERT_EQ(pipetwin({"export", "megatron-flags", path("x.toml"), "--out", path("flags")}).code,
              0);
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--overlap-param-gather"));
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

TEST_F(ImportMegatron, DevicesThatShareSamplesAreAKey) {
    const std::string context = std::string(llama_8b) + "--context-parallel-size 2";
    const Outcome outcome = import(context, {"--device", "h100-sxm"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("context")));
    const std::string text = content_of(path("x.toml"));
    EXPECT_THAT(text, HasSubstr("micro_batches = 128\ndata_parallel = 1\n"));
    EXPECT_THAT(text, HasSubstr("context_parallel = 2\n"));
    EXPECT_THAT(fragment(context + " --cp-comm-type a2a", {"--device", "h100-sxm"}),
                HasSubstr("context_parallel = 2\ncontext_method = \"all-to-all\"\n"));
}

/// 16 experts in 8 groups over the 16 devices of a stage; what comes in goes out again.
TEST_F(ImportMegatron, DividedExpertsGoInAndOut) {
    const std::string flags =
        "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 8 --hidden-size 512 "
        "--ffn-hidden-size 1024 --num-attention-heads 8 --seq-length 512 "
        "--max-position-embeddings 512 --vocab-size 8192 --swiglu --disable-bias-linear "
        "--normalization RMSNorm --position-embedding-type rope "
        "--untie-embeddings-and-output-weights --bf16 --micro-batch-size 1 "
        "--global-batch-size 64 --tensor-model-parallel-size 2 --sequence-parallel "
        "--pipeline-model-parallel-size 2 --context-parallel-size 2 --cp-comm-type all_gather "
        "--num-experts 16 --moe-router-topk 2 --moe-ffn-hidden-size 512 "
        "--use-distributed-optimizer "
        "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 ";
    const std::string text =
        fragment(flags +
                     "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
                     "--moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity "
                     "--moe-router-force-load-balancing --use-tp-pp-dp-mapping",
                 {"--device", "h100-sxm"});
    EXPECT_THAT(text,
                HasSubstr("context_parallel = 2\ncontext_method = \"all-gather\"\n"
                          "expert_parallel = 8\nexpert_tensor_parallel = 1\n"
                          "expert_dispatch = \"hybridep\"\norder = \"tp-cp-ep-pp-dp\"\n"));
    EXPECT_THAT(text, HasSubstr("expert_load = \"balanced\"\nexpert_capacity = 1.5\n"));
    EXPECT_THAT(text, HasSubstr("data_parallel = 4\n"));
    const Outcome out = pipetwin({"export",
                                  "megatron-flags",
                                  path("x.toml"),
                                  "--set",
                                  between_nodes,
                                  "--out",
                                  path("flags")});
    ASSERT_EQ(out.code, 0) << out.err;
    EXPECT_THAT(content_of(path("flags")),
                AllOf(HasSubstr("--context-parallel-size 2 --cp-comm-type all_gather "
                                "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 "
                                "--moe-token-dispatcher-type flex "
                                "--moe-flex-dispatcher-backend hybridep "
                                "--moe-expert-capacity-factor 1.5 "),
                      HasSubstr("--moe-pad-expert-input-to-capacity "),
                      HasSubstr("--use-tp-pp-dp-mapping ")));
    // torchtitan has the same degrees, but another order of devices and no capacity.
    const Outcome titan = pipetwin({"export",
                                    "torchtitan",
                                    path("x.toml"),
                                    "--set",
                                    between_nodes,
                                    "--out",
                                    path("titan.json")});
    ASSERT_EQ(titan.code, 0) << titan.err;
    const std::string degrees =
        "parallelism.context_parallel_degree = 2, "
        "parallelism.context_parallel_rotate_method = \"allgather\", "
        "parallelism.expert_parallel_degree = 8, parallelism.expert_tensor_parallel_degree = 1, "
        "parallelism.expert_parallel_comm_backend = \"hybridep\"";
    EXPECT_THAT(titan.err,
                AllOf(HasSubstr("parallelism.data_parallel_shard_degree = 4, "
                                "parallelism.tensor_parallel_degree = 2, " +
                                degrees),
                      HasSubstr("warning: devices in the order tp-cp-ep-pp-dp"),
                      HasSubstr("warning: training.expert_capacity = 1.5"),
                      Not(HasSubstr("warning: pipeline.expert"))));
    std::string lines =
        "parallelism.data_parallel_shard_degree = 4\n"
        "parallelism.tensor_parallel_degree = 2\n" +
        degrees + "\n";
    for (std::size_t at = 0; (at = lines.find(", ", at)) != std::string::npos;) {
        lines.replace(at, 2, "\n");
    }
    const Outcome back =
        pipetwin({"import", "torchtitan", file("titan.toml", lines), "--out", path("back.toml")});
    EXPECT_EQ(back.code, 0) << back.err;
    EXPECT_THAT(content_of(path("back.toml")),
                HasSubstr("context_parallel = 2\ncontext_method = \"all-gather\"\n"
                          "expert_parallel = 8\nexpert_tensor_parallel = 1\n"
                          "expert_dispatch = \"hybridep\"\n"));
    const Outcome other = pipetwin({"export",
                                    "torchtitan",
                                    path("x.toml"),
                                    "--set",
                                    between_nodes,
                                    "--set",
                                    "pipeline.expert_tensor_parallel=4",
                                    "--set",
                                    "pipeline.expert_parallel=4",
                                    "--set",
                                    "pipeline.context_method=all-to-all",
                                    "--out",
                                    path("other.json")});
    EXPECT_THAT(other.err,
                AllOf(HasSubstr("warning: pipeline.expert_tensor_parallel = 4: torchtitan takes 1 "
                                "or the 2 of tensor_parallel"),
                      HasSubstr("warning: pipeline.context_method = \"all-to-all\"")));
    const Outcome gathers = import(flags, {"--device", "h100-sxm"});
    EXPECT_EQ(gathers.code, 0) << gathers.err;
    EXPECT_THAT(gathers.err, HasSubstr("no --moe-token-dispatcher-type, which is allgather"));
    const Outcome odd = import(flags + "--expert-tensor-parallel-size 3", {"--device", "h100-sxm"});
    EXPECT_EQ(odd.code, 3);
    const Outcome uneven = import(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-experts 12 --expert-model-parallel-size "
        "3");
    EXPECT_EQ(uneven.code, 4);
    EXPECT_THAT(uneven.err,
                HasSubstr("8 devices of a stage cannot be shared out to groups of 3 x 1 devices"));
}

/// Layers that predict further tokens stand with the head, as in the layout of DeepSeek-V3.
TEST_F(ImportMegatron, LayersThatPredictFurtherTokensStandWithTheHead) {
    const std::string flags =
        "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 4 --hidden-size 512 "
        "--num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 "
        "--vocab-size 8192 --micro-batch-size 1 --global-batch-size 8 "
        "--pipeline-model-parallel-size 2 --mtp-num-layers 1 --pipeline-model-parallel-layout ";
    const std::string text = fragment(flags + "\"Ettt|tmL\"", {"--device", "h100-sxm"});
    EXPECT_THAT(text, HasSubstr("partition = [3, 1]\n"));
    EXPECT_THAT(content_of(path("x.profile.json")), HasSubstr("\"mtp0\""));
    EXPECT_EQ(pipetwin({"simulate", path("x.toml")}).code, 0);
    const auto exported = [this](const std::string& format) {
        return pipetwin({"export", format, path("x.toml"), "--out", path(format)});
    };
    ASSERT_EQ(exported("megatron-layout").code, 0);
    EXPECT_EQ(content_of(path("megatron-layout")), "Et*3|tmL\n");
    ASSERT_EQ(exported("megatron-flags").code, 0);
    EXPECT_THAT(content_of(path("megatron-flags")), HasSubstr("--mtp-num-layers 1 "));
    const Outcome titan = exported("torchtitan");
    EXPECT_EQ(titan.code, 4);
    EXPECT_THAT(titan.err, HasSubstr("a layer that predicts further tokens"));
    const Outcome before = import(flags + "\"Et|tt|tm|L\"", {"--device", "h100-sxm"});
    EXPECT_EQ(before.code, 4);
    EXPECT_THAT(before.err, HasSubstr("stage 2 has a layer m"));
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

/// Names and paths of other systems may hold every character: the fragment stays TOML.
TEST_F(ImportMegatron, EveryTextIsQuotedInTheFragment) {
    const std::string titan =
        "[model]\nname = \"llama3\\nx = 1\"\nflavor = \"8B\"\n[parallelism]\n"
        "pipeline_parallel_schedule_csv = 'C:\\x \"y\".csv'\n"
        "\"a\\nb\" = 1\n";
    const Outcome outcome = pipetwin({"import",
                                      "torchtitan",
                                      file("t.toml", titan),
                                      "--insist",
                                      "--force",
                                      "--out",
                                      path("x.toml")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::string text = content_of(path("x.toml"));
    EXPECT_THAT(text,
                AllOf(HasSubstr("schedule = \"C:\\\\x \\\"y\\\".csv\"\n"),
                      HasSubstr("model llama3 x = 1 8B\n"),
                      HasSubstr("left out parallelism.a b\n")));
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
    EXPECT_EQ(import(experiment, {"--ignore-unknown"}).code, 3);  // it may say all of the model
    EXPECT_EQ(import(experiment, {"--insist"}).code, 0);
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

// --- What a device keeps, computes again and shares. ---

struct Said {
    std::string flags;
    std::string lines;  ///< of the fragment
};

constexpr std::string_view launcher = "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py ";

/// Llama 3 8B on 16 devices, in `stages` stages.
std::string llama_in(int stages) {
    return std::string(launcher) +
           "--num-layers 32 --hidden-size 4096 "
           "--ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
           "--num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 "
           "--position-embedding-type rope --normalization RMSNorm --swiglu "
           "--disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256 "
           "--hidden-dropout 0 --attention-dropout 0 --micro-batch-size 1 "
           "--global-batch-size 32 --bf16 --pipeline-model-parallel-size " +
           std::to_string(stages) + " ";
}

/// The lines that stand in [training] and [pipeline] of a fragment.
std::string tables_of(const std::string& fragment) {
    const std::size_t begin = fragment.find("[training]");
    return fragment.substr(begin, fragment.find("[cluster]") - begin);
}

/// Flags as in Megatron-LM's examples and documentation. Each fragment simulates as it is, and its
/// keys come back from the flags that are exported of it.
TEST_F(ImportMegatron, WhatDevicesKeepAndShareIsPredictedAndComesBack) {
    const std::string one = "--tensor-model-parallel-size 1 ";
    const std::string full = one + "--recompute-granularity full --recompute-method uniform ";
    const std::string pairs = "--tensor-model-parallel-size 2 ";
    const std::string fsdp = "--use-megatron-fsdp --ckpt-format fsdp_dtensor ";
    const std::vector<Said> pipelines{
        {full + "--recompute-num-layers 1", "recompute = \"block\"\n"},
        {one + "--recompute-activations", "recompute = \"selective\"\n"},
        {one + "--recompute-granularity selective", "recompute = \"selective\"\n"},
        {pairs + "--sequence-parallel", "tensor_parallel = 2\nsequence_parallel = true\n"},
        {pairs + "--sequence-parallel --use-distributed-optimizer",
         "sequence_parallel = true\ntensor_overlap = false\nshard = \"optimizer\"\n"},
        {pairs + "--sequence-parallel --tp-comm-overlap",
         "sequence_parallel = true\ntensor_overlap = true\n"},
        {one + "--grad-reduce-in-bf16", "gradients = \"same\"\n"},
        {one + "--use-precision-aware-optimizer --main-params-dtype fp32 --exp-avg-dtype bf16 "
               "--exp-avg-sq-dtype bf16",
         "optimizer_state_bytes = 6\n"},
        {one + "--no-gradient-accumulation-fusion", "accumulation = \"separate\"\n"},
        {one + "--accumulate-allreduce-grads-in-fp32", "gradients = \"fp32\"\n"},
    };
    const std::vector<Said> replicas{
        {full + "--recompute-num-layers 1 " + fsdp +
             "--data-parallel-sharding-strategy optim_grads_params",
         "shard = \"weights\"\n"},
        {full + "--recompute-num-layers 1 " + fsdp +
             "--data-parallel-sharding-strategy optim_grads",
         "shard = \"gradients\"\n"},
        {full + "--recompute-num-layers 1 " + fsdp + "--data-parallel-sharding-strategy optim",
         "shard = \"optimizer\"\n"},
        {full + "--recompute-num-layers 1 --use-distributed-optimizer "
                "--num-distributed-optimizer-instances 2",
         "shard = \"optimizer\"\nshard_group = 8\n"},
        {full + "--recompute-num-layers 1 --use-torch-fsdp2", "shard = \"weights\"\n"},
    };
    for (const auto& [stages, cases] : {std::pair(4, pipelines), std::pair(1, replicas)}) {
        for (const Said& said : cases) {
            const std::string text =
                fragment(llama_in(stages) + said.flags, {"--device", "h100-sxm"});
            EXPECT_THAT(text, HasSubstr(said.lines)) << said.flags;
            const Outcome simulated =
                pipetwin({"simulate", path("x.toml"), "--set", between_nodes});
            EXPECT_EQ(simulated.code, 0) << said.flags << simulated.err;
            EXPECT_THAT(simulated.err, Not(HasSubstr("changes nothing"))) << said.flags;
            ASSERT_EQ(
                pipetwin(
                    {"export", "megatron-flags", path("x.toml"), "--force", "--out", path("flags")})
                    .code,
                0);
            const std::string again = fragment(std::string(launcher) + content_of(path("flags")));
            std::string expected = tables_of(text);
            if (content_of(path("flags")).find("--use-megatron-fsdp") != std::string::npos) {
                // Megatron up to core 0.14 refuses gradients that are divided and added up by the
                // matrix products; the export says so.
                const std::string before = "gradients = \"fp32\"\n";
                expected.insert(expected.find(before) + before.size(),
                                "accumulation = \"separate\"\n");
            }
            EXPECT_EQ(tables_of(again), expected) << said.flags;
        }
    }
}

/// Korthikanti et al., arXiv 2205.05198: full recompute adds a forward, and keeps the inputs of
/// blocks alone; sequence parallelism divides what is else whole on every device.
TEST_F(ImportMegatron, RecomputeAndDividedSequencesNeedLessMemory) {
    const auto predicted = [&](const std::string& flags) {
        fragment(llama_in(4) + "--tensor-model-parallel-size 2 " + flags, {"--device", "h100-sxm"});
        return pipetwin({"simulate", path("x.toml"), "--set", between_nodes, "--json"}).json();
    };
    const auto peak = [](const nlohmann::json& json) {
        return json["devices"][0]["peak_bytes"]["total"].get<std::int64_t>();
    };
    const nlohmann::json plain = predicted("");
    const nlohmann::json full = predicted(
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
    const nlohmann::json divided = predicted("--sequence-parallel");
    EXPECT_GT(full["step_ms"].get<double>(), plain["step_ms"].get<double>());
    EXPECT_LT(peak(full), peak(plain));
    EXPECT_LT(peak(divided), peak(plain));
}

/// One device to a rank: Megatron turns sequence parallelism off, with a warning of its own.
TEST_F(ImportMegatron, ASequenceOfOneDeviceIsNotDivided) {
    const Outcome outcome = import(llama_in(4) + "--sequence-parallel", {"--device", "h100-sxm"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.err, HasSubstr("warning: --sequence-parallel: Megatron turns it off"));
    EXPECT_THAT(content_of(path("x.toml")), Not(HasSubstr("sequence_parallel")));
    EXPECT_THAT(outcome.err, HasSubstr("warning: several nodes: set cluster.node_link"));
    EXPECT_EQ(pipetwin({"simulate", path("x.toml"), "--set", between_nodes}).code, 0);
}

/// The bias and GELU that Megatron fuses by default are those of tanh.
TEST_F(ImportMegatron, TheFormOfGeluIsReadAndComesBack) {
    const std::string gpt =
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 128 "
        "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 ";
    const std::string by_tanh = "gelu = \"tanh\"\n";
    EXPECT_THAT(fragment(gpt), HasSubstr(by_tanh));
    EXPECT_THAT(fragment(gpt + "--no-bias-gelu-fusion --openai-gelu"), HasSubstr(by_tanh));
    EXPECT_THAT(fragment(gpt + "--no-bias-gelu-fusion"), Not(HasSubstr("gelu")));
    ASSERT_EQ(pipetwin({"export", "megatron-flags", path("x.toml"), "--out", path("flags")}).code,
              0);
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--no-bias-gelu-fusion"));
}

/// Measured costs of a gpt do not tell core attention from the rest: such a fragment would not
/// simulate, so the model becomes a profile.
TEST_F(ImportMegatron, SelectiveRecomputeNeedsCostsOfCoreAttention) {
    const std::string gpt =
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 128 "
        "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 ";
    EXPECT_THAT(fragment(gpt), HasSubstr("kind = \"gpt\"\n"));
    const std::string selective = gpt + "--recompute-granularity selective";
    EXPECT_THAT(import(selective).err,
                AllOf(HasSubstr("more than a gpt (--recompute-granularity selective"),
                      HasSubstr("--device NAME")));
    EXPECT_THAT(fragment(selective, {"--device", "h100-sxm"}),
                AllOf(HasSubstr("kind = \"profile\"\n"), HasSubstr("recompute = \"selective\"\n")));
    EXPECT_EQ(pipetwin({"simulate", path("x.toml")}).code, 0);
}

TEST_F(ImportMegatron, GroupsOfLayersAndModulesWithoutAWordAreTold) {
    const std::string full = "--recompute-granularity full --recompute-method uniform ";
    EXPECT_THAT(import(llama_in(4) + full + "--recompute-num-layers 2").err,
                Not(HasSubstr("recompute-num-layers")));
    EXPECT_THAT(content_of(path("x.toml")),
                HasSubstr("recompute = \"block\"\nrecompute_blocks = 2\n"));
    // A stage has 8 blocks.
    EXPECT_THAT(fragment(llama_in(4) + full + "--recompute-num-layers 8"),
                HasSubstr("recompute = \"block\"\nrecompute_blocks = 8\n"));
    const std::string first = "--recompute-granularity full --recompute-method block ";
    const Outcome some = import(llama_in(4) + first + "--recompute-num-layers 5");
    EXPECT_EQ(some.code, 3);
    EXPECT_THAT(some.err, HasSubstr("--recompute-method block: recomputes some layers"));
    EXPECT_THAT(fragment(llama_in(4) + first + "--recompute-num-layers 8"),
                HasSubstr("recompute = \"block\"\n"));
    EXPECT_THAT(fragment(llama_in(4) +
                             "--recompute-granularity selective --recompute-modules core_attn mlp",
                         {"--device", "h100-sxm"}),
                HasSubstr("recompute = \"none\"\nrecompute_modules = [\"core_attn\", \"mlp\"]\n"));
    ASSERT_EQ(pipetwin({"export",
                        "megatron-flags",
                        path("x.toml"),
                        "--set",
                        between_nodes,
                        "--out",
                        path("flags")})
                  .code,
              0);
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--recompute-granularity selective"));
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--recompute-modules core_attn mlp "));
}

TEST_F(ImportMegatron, InputsThatGoToHostMemoryComeInAndGoOut) {
    const std::string text =
        "offload_modules = [\"attn_norm\", \"core_attn\"]\n"
        "offload_fraction = 0.75\n";
    const std::string words =
        "--fine-grained-activation-offloading "
        "--offload-modules attn_norm core_attn "
        "--activation-offload-fraction 0.75";
    EXPECT_THAT(fragment(llama_in(4) + words, {"--device", "h100-sxm"}), HasSubstr(text));
    const auto exported = [&](const std::string& setting) {
        return pipetwin({"export",
                         "megatron-flags",
                         path("x.toml"),
                         "--set",
                         between_nodes,
                         "--set",
                         setting,
                         "--force",
                         "--out",
                         path("flags")});
    };
    ASSERT_EQ(exported("pipeline.prefetch=1").code, 0);
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--fine-grained-activation-offloading"));
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--offload-modules attn_norm core_attn"));
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--activation-offload-fraction 0.75"));
    for (const std::string lists : {"pipeline.recompute_modules=[[\"mlp\"],[],[],[]]",
                                    "pipeline.offload_modules=[[\"attn_norm\"],[],[],[]]",
                                    "pipeline.recompute_modules=[\"mlp:2\"]"}) {
        const Outcome refused = exported(lists);
        EXPECT_NE(refused.code, 0) << lists;
        EXPECT_THAT(refused.err, HasSubstr("Megatron")) << lists;
    }
}

/// The parts of v2.5, of 2021 (Narayanan et al., arXiv 2104.04473, section 4.1).
TEST_F(ImportMegatron, BoundariesAreScatteredByVersionsThatDidSo) {
    const std::string split = llama_in(2) + "--tensor-model-parallel-size 4 ";
    const std::string old = "--checkpoint-activations --checkpoint-num-layers 1 ";
    EXPECT_THAT(
        fragment(split + old, {"--device", "h100-sxm"}),
        AllOf(HasSubstr("recompute = \"block\"\n"), HasSubstr("scatter_boundaries = true\n")));
    const Outcome simulated = pipetwin({"simulate", path("x.toml"), "--set", between_nodes});
    EXPECT_EQ(simulated.code, 0) << simulated.err;
    EXPECT_THAT(
        pipetwin({"export", "megatron-flags", path("x.toml"), "--force", "--out", path("flags")})
            .err,
        HasSubstr("warning: pipeline.scatter_boundaries = true"));
    EXPECT_THAT(fragment(split + old + "--no-scatter-gather-tensors-in-pipeline"),
                Not(HasSubstr("scatter_boundaries")));
    const Outcome newer = import(split);
    EXPECT_THAT(newer.err, HasSubstr("set pipeline.scatter_boundaries = true"));
    EXPECT_THAT(content_of(path("x.toml")), Not(HasSubstr("scatter_boundaries")));
    EXPECT_THAT(import(split + "--sequence-parallel").err, Not(HasSubstr("scatter_boundaries")));
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

/// Settings of torchtitan and DeepSpeed with costs of Llama 3 8B with their stacks.
TEST_F(ImportMegatron, OtherSystemsTablesSimulateWithTheirShares) {
    const std::vector<std::string> device{"--device", "h100-sxm"};
    const auto simulated = [&](const std::string& format, const std::string& content) {
        const Outcome imported =
            pipetwin(joined({"import", format, file("config", content), "--force", "--out"},
                            joined({path("y.toml")}, device)));
        EXPECT_EQ(imported.code, 0) << imported.err;
        const std::string tables = content_of(path("y.toml"));
        const std::string stack = format == "deepspeed" ? format : "torchtitan-2026";
        EXPECT_THAT(
            tables,
            HasSubstr(fmt::format("[cluster]\ndevice = \"h100-sxm\"\nstack = \"{}\"\n", stack)));
        EXPECT_THAT(imported.err, HasSubstr("--stack " + stack));
        const auto costs = [&](const std::vector<std::string>& more) {
            return pipetwin(joined({"import",
                                    "hf",
                                    "llama-3-8b",
                                    "--sequence",
                                    "8192",
                                    "--micro-batch-size",
                                    "1",
                                    "--force",
                                    "--out",
                                    path("llama.profile.json")},
                                   joined(device, more)));
        };
        const std::vector<std::string> whole{
            "simulate",
            file("whole.toml",
                 tables + "[model]\nkind = \"profile\"\nfile = \"llama.profile.json\"\n"),
            "--set",
            between_nodes};
        EXPECT_EQ(costs({}).code, 0);
        EXPECT_EQ(pipetwin(whole).code, 3);  // of Megatron's stack
        EXPECT_EQ(costs({"--stack", stack}).code, 0);
        const Outcome outcome = pipetwin(whole);
        EXPECT_EQ(outcome.code, 0) << tables << outcome.err;
        EXPECT_THAT(outcome.err, Not(HasSubstr("changes nothing"))) << tables;
        return tables;
    };
    const std::string llama = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n";
    const std::string full = "[activation_checkpoint]\nmode = \"full\"\n";
    EXPECT_THAT(simulated("torchtitan",
                          llama +
                              "[training]\nlocal_batch_size = 16\nseq_len = 8192\n[parallelism]\n"
                              "pipeline_parallel_degree = 4\ntensor_parallel_degree = 2\n"
                              "data_parallel_shard_degree = 2\n" +
                              full),
                AllOf(HasSubstr("gradients = \"fp32\"\n"),
                      HasSubstr("data_parallel = 2\nrecompute = \"block\"\ntensor_parallel = 2\n"
                                "sequence_parallel = true\ntensor_overlap = false\n"
                                "shard = \"optimizer\"\n")));
    EXPECT_THAT(simulated("torchtitan",
                          llama +
                              "[training]\nlocal_batch_size = 1\nseq_len = 8192\n[parallelism]\n"
                              "data_parallel_shard_degree = 8\n" +
                              full),
                HasSubstr("shard = \"weights\"\n"));
    EXPECT_THAT(simulated("deepspeed",
                          R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 1,
                      "gradient_accumulation_steps": 4, "bf16": {"enabled": true},
                      "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 0},
                      "pipeline": {"stages": 1, "activation_checkpoint_interval": 1}})"),
                AllOf(HasSubstr("gradients = \"same\"\n"),
                      HasSubstr("recompute = \"block\"\nshard = \"weights\"\nprefetch = 0\n")));
}

/// The file of another system names no device and no software: the options do.
TEST_F(ImportMegatron, OtherSystemsTablesHaveTheStackOfTheirFramework) {
    const auto imported = [this](const std::string& format,
                                 const std::string& content,
                                 const std::vector<std::string>& more = {}) {
        return pipetwin(joined(
            {"import", format, file("config", content), "--force", "--out", path("y.toml")}, more));
    };
    const std::string titan = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n";
    const auto cluster = [&](const std::vector<std::string>& more) {
        const Outcome outcome = imported("torchtitan", titan, more);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        const std::string text = content_of(path("y.toml"));
        return text.substr(std::min(text.find("[cluster]"), text.size()));
    };
    EXPECT_EQ(cluster({}), "[cluster]\nstack = \"torchtitan-2026\"\n");
    EXPECT_EQ(cluster({"--stack", "none"}), "");
    EXPECT_EQ(cluster({"--stack", "torchtitan-2024", "--device", "h200-sxm"}),
              "[cluster]\ndevice = \"h200-sxm\"\nstack = \"torchtitan-2024\"\n");
    EXPECT_EQ(cluster({"--device", "mi300x"}), "[cluster]\ndevice = \"mi300x\"\n");
    const Outcome unknown =
        imported("torchtitan", titan, {"--stack", "torchtitan-2024", "--device", "gb200"});
    EXPECT_EQ(unknown.code, 3);
    EXPECT_THAT(unknown.err, HasSubstr("the nearest stack that has them is 'torchtitan-2026'"));
    EXPECT_EQ(imported("torchtitan", titan, {"--device", "h100"}).code, 3);
    EXPECT_EQ(imported("torchtitan", titan, {"--attention", "flash"}).code, 2);
    const auto warned = HasSubstr("--stack torchtitan-2026 --kernels eager");
    EXPECT_THAT(imported("torchtitan", titan).err, warned);
    EXPECT_THAT(imported("torchtitan", titan + "[compile]\nenable = true\n").err, Not(warned));
    EXPECT_THAT(imported("torchtitan", titan + "[training]\ncompile = true\n").err, Not(warned));
}

/// NVLink of a GB200 NVL72 joins 18 nodes of four.
TEST_F(ImportMegatron, RacksOfADeviceAreOneDomain) {
    const auto on = [&](int per_node, const std::string& device) {
        return fragment(
            fmt::format("torchrun --nproc_per_node {} pretrain_gpt.py --num-layers 8 "
                        "--micro-batch-size 1 --global-batch-size 64 --bf16 --hidden-size 512 "
                        "--num-attention-heads 8 --seq-length 1024 --max-position-embeddings "
                        "1024 --vocab-size 32000",
                        per_node),
            {"--device", device});
    };
    EXPECT_THAT(on(4, "gb200"), HasSubstr("per_node = 4\nnvlink_domain = 72\n"));
    EXPECT_THAT(on(16, "gb200"), Not(HasSubstr("nvlink_domain")));
    EXPECT_THAT(on(4, "h100-sxm"), Not(HasSubstr("nvlink_domain")));
}

// --- What changes the run is never left out in silence. ---

constexpr std::string_view small_gpt =
    "--num-layers 24 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 "
    "--max-position-embeddings 1024 --vocab-size 32000 --pipeline-model-parallel-size 4 "
    "--micro-batch-size 1 ";

/// Mamba's layers came out as a transformer of another size, with exit code 0.
TEST_F(ImportMegatron, AnotherModelIsAskedForTwiceAndTheAnswerSaysSo) {
    const std::string flags = "torchrun --nproc_per_node 8 pretrain_mamba.py " +
                              std::string(small_gpt) +
                              "--global-batch-size 64 --is-hybrid-model "
                              "--spec megatron.core.models.mamba.mamba_layer_specs x "
                              "--new-logging-flag 3";
    EXPECT_EQ(import(flags).code, 3);
    const Outcome refused = import(flags, {"--ignore-unknown"});
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("pretrain_mamba.py"),
                      HasSubstr("--is-hybrid-model: the model has state-space layers"),
                      Not(HasSubstr("--new-logging-flag")),
                      HasSubstr("hint: "),
                      HasSubstr("--insist")));
    const Outcome insisted = import(flags, {"--insist"});
    EXPECT_EQ(insisted.code, 0) << insisted.err;
    EXPECT_THAT(insisted.out,
                AllOf(HasSubstr("another run than that of "), HasSubstr("; --is-hybrid-model")));
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
    for (const std::string flag : {"--my-pipeline-cuts 3,5", "--use-new-fp8", "--batch-growth 2"}) {
        EXPECT_EQ(import(std::string(small_gpt) + flag, {"--ignore-unknown"}).code, 3) << flag;
    }
}

/// MindSpeed's splits: blocks of each rank, and layers that stand for nothing.
TEST_F(ImportMegatron, UnevenListsOfMindSpeedAreThePartition) {
    const std::string gpt(small_gpt);
    EXPECT_THAT(fragment(gpt + "--num-layer-list 4,5,7,8"),
                HasSubstr("partition = [4, 5, 7, 8]\n"));
    EXPECT_THAT(fragment(gpt + "--noop-layers 0,22,23"),
                AllOf(HasSubstr("layers = 21\n"), HasSubstr("partition = [5, 6, 6, 4]\n")));
    // With two chunks the layers 21 to 23 are in the last stage of eight.
    EXPECT_THAT(fragment(gpt + "--num-layers-per-virtual-pipeline-stage 3 --noop-layers 0,23"),
                HasSubstr("partition = [2, 3, 3, 3, 3, 3, 3, 2]\n"));
    for (const std::string list : {"4,5,7", "4,5,7,9", "4,x,7,8"}) {
        EXPECT_NE(import(gpt + "--num-layer-list " + list).code, 0) << list;
    }
    EXPECT_EQ(import(gpt + "--num-layer-list 4,5,7,8 --noop-layers 3").code, 4);
    EXPECT_EQ(import(gpt + "--noop-layers 24").code, 3);
    EXPECT_EQ(
        import(gpt + "--pipeline-num-transformer-layers [[6],[6],[6],[6]]", {"--ignore-unknown"})
            .code,
        3);
}

/// examples/gpt3/train_gpt3_175b_distributed.sh of Megatron-LM.
TEST_F(ImportMegatron, ABatchThatGrowsInStepsIsTheLast) {
    const std::string gpt = "torchrun --nproc_per_node 8 pretrain_gpt.py " + std::string(small_gpt);
    const Outcome outcome = import(gpt + "--step-batch-size-schedule \"0:16 2.4B:32 4.8B:64\"");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("the prediction is of steps with the last batch"));
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("batch = 64\n"), HasSubstr("micro_batches = 32\n")));
    EXPECT_EQ(import(gpt + "--step-batch-size-schedule 0:16 --global-batch-size 16").code, 3);
    EXPECT_EQ(import(gpt + "--step-batch-size-schedule 16").code, 3);
    EXPECT_EQ(import(gpt + "--rampup-batch-size 16 16 1000").code, 3);
}

/// Separate kernels keep all scores: as --attention standard estimates them.
TEST_F(ImportMegatron, AttentionIsEstimatedAsTheFlagsComputeIt) {
    const std::string model =
        "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 "
        "--vocab-size 32000 --swiglu --bf16 --pipeline-model-parallel-size 4 ";
    const auto layers = [&](const std::string& flags, const std::vector<std::string>& more = {}) {
        std::vector<std::string> options{"--device", "h100-sxm"};
        options.insert(options.end(), more.begin(), more.end());
        fragment(model + flags, options);
        return nlohmann::json::parse(content_of(path("x.profile.json")))["layers"];
    };
    const nlohmann::json flash = layers("--use-flash-attn");
    const nlohmann::json standard = layers("", {"--attention", "standard"});
    EXPECT_NE(standard, flash);
    EXPECT_EQ(layers("--attention-backend unfused"), standard);
    EXPECT_EQ(layers("--attention-backend unfused", {"--attention", "flash"}), flash);
    EXPECT_EQ(layers(""), flash);
    EXPECT_THAT(import(model, {"--device", "h100-sxm"}).err,
                HasSubstr("neither --attention-backend nor --use-flash-attn"));
    EXPECT_THAT(import(model + "--use-flash-attn", {"--device", "h100-sxm"}).err,
                Not(HasSubstr("attention is")));
    EXPECT_EQ(import(model + "--attention-backend fast").code, 3);
    const std::string variables = "export NVTE_FLASH_ATTN=0 NVTE_FUSED_ATTN=0\n";
    EXPECT_THAT(import(variables + model, {"--device", "h100-sxm"}).err,
                HasSubstr("NVTE_FLASH_ATTN=0 and NVTE_FUSED_ATTN=0: attention is estimated as "
                          "separate kernels"));
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

/// tests/functional_tests of Megatron-LM: flags with their dashes, and an environment.
TEST_F(ImportMegatron, FilesOfMegatronsOwnTestsAreTheirArguments) {
    const std::string text = fragment(
        "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\n  NVTE_FLASH_ATTN: 0\n"
        "  NVTE_FUSED_ATTN: 0\nMODEL_ARGS:\n  --num-layers: 24\n  --hidden-size: 512\n"
        "  --num-attention-heads: 8\n  --seq-length: 1024\n  --vocab-size: 32000\n"
        "  --micro-batch-size: 2\n  --global-batch-size: 64\n"
        "  --pipeline-model-parallel-size: 4\n  --num-layers-per-virtual-pipeline-stage: 2\n"
        "  --log-throughput: true\n  --finetune: false\n  --bf16: true\nTEST_TYPE: regular\n");
    EXPECT_THAT(text,
                AllOf(HasSubstr("stages = 4\nchunks = 3\n"),
                      HasSubstr("partition = [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]\n"),
                      HasSubstr("precision = \"bf16\"\n")));
}

TEST_F(ImportMegatron, HelpersBeforeTheTrainingArePassedOver) {
    const Outcome outcome = import(
        "python tools/ratios.py --path data.json --split train\n"
        "python tools/ratios.py --path data.json --split valid\n"
        "torchrun --nproc_per_node 8 pretrain_gpt.py " +
        std::string(small_gpt) + "--global-batch-size 64");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("tools/ratios.py has no flag of a training: passed over"));
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("partition = [6, 6, 6, 6]\n"));
}

TEST_F(ImportMegatron, ProductsInEightBitsAreAPrecisionOfTheProfile) {
    const auto precision = [this](const std::string& flags) {
        fragment(llama_in(4) + "--use-flash-attn " + flags, {"--device", "h100-sxm"});
        return nlohmann::json::parse(content_of(path("x.profile.json")))["precision"]
            .get<std::string>();
    };
    EXPECT_EQ(precision("--fp8-format hybrid"), "fp8");
    EXPECT_EQ(precision("--fp8-format hybrid --fp8-recipe tensorwise"), "fp8");
    EXPECT_EQ(precision("--fp8-format e4m3 --fp8-recipe blockwise"), "fp8-block");
    EXPECT_EQ(
        import(llama_in(4) + "--fp8-format e4m3 --fp8-recipe mxfp8", {"--device", "h100-sxm"}).code,
        3);
    EXPECT_EQ(precision(""), "bf16");
    EXPECT_EQ(import(llama_in(4) + "--fp8-format hybrid", {"--device", "a100-sxm-80"}).code, 3);
    EXPECT_EQ(import(llama_in(4) + "--fp8-param-gather").code, 3);
}

TEST_F(ImportMegatron, AStackIsInTheProfileAndInTheFragment) {
    const std::string text = fragment(llama_in(4) + "--use-flash-attn --fp8-format hybrid",
                                      {"--device", "h100-sxm", "--stack", "nemo-2024"});
    EXPECT_THAT(text, HasSubstr("stack = \"nemo-2024\"\n"));
    EXPECT_EQ(nlohmann::json::parse(content_of(path("x.profile.json")))["stack"], "nemo-2024");
    const Outcome other =
        import(llama_in(4) + "--bf16", {"--device", "b200", "--stack", "nemo-2024"});
    EXPECT_EQ(other.code, 3);
    EXPECT_THAT(other.err, HasSubstr("'megatron-bridge-2026'"));
}

/// The flags say which software it is; --stack says it otherwise.
TEST_F(ImportMegatron, TheStackIsThatOfTheFlags) {
    const auto chosen = [this](const std::string& flags,
                               const std::vector<std::string>& more = {}) {
        const Outcome outcome =
            import(llama_in(4) + flags, joined({"--device", "a100-sxm-80"}, more));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        const auto profile = nlohmann::json::parse(content_of(path("x.profile.json")));
        const std::string stack = profile["stack"].get<std::string>();
        const bool is_said =
            outcome.err.find(fmt::format("\nstack {}: ", stack)) != std::string::npos ||
            outcome.err.starts_with(fmt::format("stack {}: ", stack));
        EXPECT_EQ(is_said, more.empty() || more.front() == "--attention") << outcome.err;
        return stack;
    };
    EXPECT_EQ(chosen("--use-flash-attn"), "megatron-2023");
    EXPECT_EQ(chosen("--transformer-impl local"), "megatron-2021");
    EXPECT_EQ(chosen("--transformer-impl local", {"--attention", "flash"}), "megatron-2023");
    EXPECT_EQ(chosen("--transformer-impl local", {"--stack", "megatron-2023"}), "megatron-2023");
    const Outcome local = import(llama_in(4) + "--transformer-impl local", {"--device", "b200"});
    EXPECT_THAT(local.err,
                HasSubstr("stack megatron-bridge-2026: the newest that knows b200, as none with "
                          "standard attention does (--transformer-impl local without"));
}

TEST_F(ImportMegatron, GroupsThatDivideTheStateAreSaidWhereTheyAreKnown) {
    const std::string groups = "--use-distributed-optimizer --num-distributed-optimizer-instances ";
    // 16 devices, 4 stages
    EXPECT_THAT(fragment(llama_in(4) + groups + "2", {"--device", "h100-sxm"}),
                HasSubstr("shard_group = 2\n"));
    EXPECT_THAT(fragment(llama_in(4) + groups + "1", {"--device", "h100-sxm"}),
                Not(HasSubstr("shard_group")));
    EXPECT_EQ(import(llama_in(1) + groups + "3").code, 4);
    EXPECT_THAT(fragment(llama_in(2) + "--context-parallel-size 2 " + groups + "2",
                         {"--device", "h100-sxm"}),
                HasSubstr("shard_group = 2\n"));
    for (const std::string& flags : {llama_in(4) + groups + "4",
                                     llama_in(4) + "--num-distributed-optimizer-instances 2",
                                     std::string(small_gpt) + groups + "2"}) {
        const Outcome refused = import(flags);
        EXPECT_EQ(refused.code, 3) << flags;
        EXPECT_THAT(refused.err, HasSubstr("--num-distributed-optimizer-instances")) << flags;
    }
    const Outcome insisted = import(std::string(small_gpt) + groups + "2", {"--insist"});
    EXPECT_EQ(insisted.code, 0) << insisted.err;
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("--num-distributed-optimizer-instances 2"));
}

TEST_F(ImportMegatron, MessagesBesideProductsAreAKey) {
    const std::string pairs = "--tensor-model-parallel-size 2 --sequence-parallel ";
    const auto with = [&](const std::string& flags) {
        return import(llama_in(4) + pairs + flags, {"--device", "h100-sxm"});
    };
    EXPECT_THAT(with("--tp-comm-overlap").err,
                AllOf(HasSubstr("stack megatron-bridge-2026: --tp-comm-overlap: "),
                      Not(HasSubstr("overlapped, a step"))));
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("tensor_overlap = true\n"));
    with("");
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("tensor_overlap = false\n"));
    // A file of keys may leave out what another one says.
    const std::string keys =
        "num_layers: 8\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 32\n"
        "pipeline_model_parallel_size: 2\ntensor_model_parallel_size: 2\nsequence_parallel: true\n";
    EXPECT_THAT(fragment(keys), Not(HasSubstr("tensor_overlap")));
    EXPECT_THAT(fragment(keys + "tp_comm_overlap: true\n"), HasSubstr("tensor_overlap = true\n"));
}

TEST_F(ImportMegatron, OtherProgramsConfigurationsAreCalledByTheirNames) {
    EXPECT_THAT(import("# a model\n{\n  \"pipe_parallel_size\": 4,\n}\n").err,
                HasSubstr("this is GPT-NeoX's configuration"));
    EXPECT_THAT(import("parallelism:\n  dp: 2\n  pp: 4\n  pp_engine: 1f1b\n").err,
                HasSubstr("this is nanotron's configuration"));
}

/// verl's examples: the engine that generates has devices of its own.
TEST_F(ImportMegatron, TheTableSaysWhoseSettingItIs) {
    const std::string actor =
        "python3 -m verl.trainer.main_ppo --config-path=config "
        "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 "
        "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 ";
    const Outcome outcome = import(actor +
                                   "actor_rollout_ref.rollout.tensor_model_parallel_size=4 "
                                   "actor_rollout_ref.ref.megatron.pipeline_model_parallel_size=8 "
                                   "critic.megatron.tensor_model_parallel_size=8");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("'rollout' is another model or program"),
                      HasSubstr("'ref' is another"),
                      HasSubstr("'critic' is another")));
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("stages = 2\n"), HasSubstr("tensor_parallel = 2\n")));
    const Outcome strange = import(actor + "strange.context_parallel_size=4", {"--ignore-unknown"});
    EXPECT_EQ(strange.code, 3);
    EXPECT_THAT(strange.err, HasSubstr("whether 'strange' is about the model that is trained"));
    // NeMo's NeVA: a vision encoder beside the language model.
    EXPECT_THAT(fragment("model:\n  num_layers: 4\n  hidden_size: 64\n  num_attention_heads: 4\n"
                         "  seq_length: 32\n  mm_cfg:\n    vision_encoder:\n"
                         "      hidden_size: 1024\n      num_layers: 24\n"),
                AllOf(HasSubstr("layers = 4\n"), HasSubstr("d_model = 64\n")));
    EXPECT_EQ(import(actor + "actor_rollout_ref.model.lora.rank=8", {"--ignore-unknown"}).code, 3);
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

/// Tables and keys that an import writes.
bool is_key_of_a_fragment(const std::string& table, std::string_view key) {
    const std::map<std::string, std::set<std::string_view>> known{
        {"model",
         {"kind",
          "layers",
          "d_model",
          "heads",
          "context",
          "vocabulary",
          "feed_forward",
          "tied",
          "dropout",
          "gelu",
          "file"}},
        {"training",
         {"batch", "precision", "optimizer", "clip_norm", "gradients", "optimizer_state_bytes"}},
        {"pipeline",
         {"stages",
          "chunks",
          "schedule",
          "group_size",
          "micro_batches",
          "recompute",
          "recompute_blocks",
          "tensor_parallel",
          "sequence_parallel",
          "tensor_overlap",
          "scatter_boundaries",
          "shard",
          "shard_group",
          "overlap_reduction",
          "overlap_gather",
          "data_parallel",
          "partition"}},
        {"cluster", {"device", "per_node"}}};
    const auto found = known.find(table);
    return found != known.end() && found->second.contains(key);
}

// A flag whose name went on in the next line became a key of the fragment.
TEST_F(ImportMegatron, WritesOnlyWhatItUnderstoodSoCommentsCannotBecomeKeys) {
    constexpr std::string_view flags =
        "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 8 --hidden-size 64 "
        "--num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --vocab-size 1000 "
        "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 16 "
        "--log-interval 5 --wandb-project x --data-path y --tensorboard-dir z";
    const std::vector<std::string> injected{"'\n[cluster]\nmemory_limit = 7\n'",
                                            "'\nmemory_limit = 7'",
                                            "'\r[cluster]\r\nx = 1'",
                                            "\"\n[output]\n\"",
                                            "'\xc2\x85[cluster]'",
                                            "'\xe2\x80\xa8x = 1'",
                                            "'\xff\n[x]'",
                                            "'#'"};
    int written = 0;
    for (std::size_t at = flags.find(" --num"); at != std::string_view::npos;
         at = flags.find(' ', at + 1)) {
        for (const std::string& text : injected) {
            std::string changed(flags);
            changed.insert(at, text);
            const Outcome outcome = import(changed, {"--insist"});
            EXPECT_TRUE(outcome.code == 0 || outcome.code == 3 || outcome.code == 4) << outcome.err;
            if (outcome.code != 0) {
                continue;
            }
            ++written;
            const toml::table tables = toml::parse(content_of(path("x.toml")));
            for (const auto& [name, table] : tables) {
                ASSERT_TRUE(table.is_table()) << name.str() << " of " << changed;
                for (const auto& [key, value] : *table.as_table()) {
                    EXPECT_TRUE(is_key_of_a_fragment(std::string(name.str()), key.str()))
                        << name.str() << '.' << key.str() << " of " << changed;
                }
            }
        }
    }
    EXPECT_GT(written, 50);
}

}  // namespace import_megatron_test
}  // namespace pipetwin::cli
