// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/run_folder/run_folder.h"
#include "core/costs/devices/shipped_profiles.h"
#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace job_exports_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Llama 3 8B in four stages of two replicas.
constexpr std::string_view llama_plan = R"toml([model]
kind = "llama"
layers = 32
d_model = 4096
heads = 32
key_value_heads = 8
feed_forward = 14336
context = 8192
vocabulary = 128256
[training]
batch = 16
precision = "bf16"
gradients = "fp32"
[pipeline]
stages = 4
micro_batches = 8
data_parallel = 2
shard = "optimizer"
schedule = "1f1b"
partition = [8, 8, 8, 8]
[cluster]
per_node = 4
)toml";

class JobExports : public InFolder {
  protected:
    Outcome exported(const std::string& format, const std::vector<std::string>& settings = {}) {
        std::vector<std::string> args{
            "export", format, file("plan.toml", llama_plan), "--force", "--out", path("job")};
        for (const std::string& setting : settings) {
            args.insert(args.end(), {"--set", setting});
        }
        return pipetwin(args);
    }

    std::string text_of(const std::string& format, const std::vector<std::string>& settings = {}) {
        const Outcome outcome = exported(format, settings);
        EXPECT_EQ(outcome.code, 0) << format << ": " << outcome.err;
        return outcome.code == 0 ? content_of(path("job")) : "";
    }
};

/// torchtitan/models/llama3/__init__.py: 8B has 32 layers of 4096, and a feed-forward of 14336.
TEST_F(JobExports, AModelThatTorchtitanShipsIsNamed) {
    EXPECT_THAT(text_of("torchtitan-toml"), HasSubstr("name = \"llama3\"\nflavor = \"8B\"\n"));
    EXPECT_THAT(text_of("torchtitan-python"),
                AllOf(HasSubstr("from torchtitan.models.llama3 import model_registry\n"),
                      HasSubstr("model_registry(\"8B\")\n")));
    // Mistral 7B has the same sizes, and other words.
    const std::vector<std::string> other{"model.vocabulary=32000"};
    EXPECT_THAT(text_of("torchtitan-toml", other),
                AllOf(HasSubstr("# FILL IN: torchtitan ships no model of 32 blocks of 4096"),
                      HasSubstr("flavor = \"my_flavor\"")));
    EXPECT_THAT(text_of("torchtitan-python", other), HasSubstr("model_registry(\"my_flavor\")"));
}

TEST_F(JobExports, DevicesLieOnTheNodesOfTheCluster) {
    EXPECT_THAT(text_of("sbatch"),
                AllOf(HasSubstr("#SBATCH --nodes=2\n"),
                      HasSubstr("#SBATCH --gpus-per-node=4\n"),
                      HasSubstr("torchrun --nnodes 2 --nproc-per-node 4 ")));
    EXPECT_THAT(text_of("kubernetes"),
                AllOf(HasSubstr("numNodes: 2\n"), HasSubstr("nvidia.com/gpu: 4\n")));
    const Outcome odd = exported("sbatch", {"cluster.per_node=3"});
    EXPECT_EQ(odd.code, 3);
    EXPECT_THAT(odd.err,
                AllOf(HasSubstr("8 devices do not fill nodes of 3"), HasSubstr("set it to 1")));
}

/// Its samples are cut by pipeline_parallel_microbatch_size in the older version, and counted by
/// num_pp_microbatches in the newer one.
TEST_F(JobExports, TorchtitanGetsMicroBatchesInTwoWays) {
    EXPECT_THAT(text_of("torchtitan-toml"),
                AllOf(HasSubstr("local_batch_size = 8 "),
                      HasSubstr("pipeline_parallel_microbatch_size = 1\n"),
                      Not(HasSubstr("global_batch_size"))));
    EXPECT_THAT(text_of("torchtitan-python"),
                AllOf(HasSubstr("num_tokens_per_microbatch_per_dp_rank=1 * 8192,"),
                      HasSubstr("num_tokens_per_train_step=16 * 8192,"),
                      HasSubstr("num_pp_microbatches=8,")));
    const std::vector<std::string> one{
        "pipeline.stages=1", "pipeline.partition=[32]", "pipeline.shard=weights"};
    EXPECT_THAT(text_of("torchtitan-toml", one),
                AllOf(HasSubstr("local_batch_size = 1\nglobal_batch_size = 16\n"),
                      Not(HasSubstr("pipeline_parallel_schedule"))));
}

/// Megatron's examples set one connection, and its guide on FSDP takes it away.
TEST_F(JobExports, FsdpOfMegatronHasStreamsOfItsOwn) {
    EXPECT_THAT(text_of("sbatch"), HasSubstr("export CUDA_DEVICE_MAX_CONNECTIONS=1\n"));
    EXPECT_THAT(text_of("sbatch", {"pipeline.shard=weights"}),
                AllOf(HasSubstr("unset CUDA_DEVICE_MAX_CONNECTIONS"),
                      HasSubstr("--use-megatron-fsdp"),
                      Not(HasSubstr("export CUDA_DEVICE_MAX_CONNECTIONS"))));
}

TEST_F(JobExports, AScheduleFileGoesToPyTorchsSystems) {
    const std::string rows = path("rows.csv");
    const std::vector<std::string> v{"pipeline.schedule=zb-v",
                                     "pipeline.chunks=2",
                                     "pipeline.partition=[4, 4, 4, 4, 4, 4, 4, 4]"};
    std::vector<std::string> args{
        "export", "torch-csv", file("plan.toml", llama_plan), "--compute-only", "--out", rows};
    for (const std::string& setting : v) {
        args.insert(args.end(), {"--set", setting});
    }
    ASSERT_EQ(pipetwin(args).code, 0);
    const std::vector<std::string> with_file{"pipeline.schedule=" + rows, v[1], v[2]};
    EXPECT_THAT(text_of("torchtitan-toml", with_file),
                AllOf(HasSubstr("pipeline_parallel_schedule = \"ZBVZeroBubble\"\n"),
                      HasSubstr(fmt::format("pipeline_parallel_schedule_csv = \"{}\"\n", rows)),
                      HasSubstr("# the schedule file has to hold F, B, I and W alone")));
    EXPECT_THAT(text_of("automodel", with_file),
                HasSubstr(fmt::format("pp_schedule_csv: \"{}\"\n", rows)));
    EXPECT_EQ(exported("deepspeed", with_file).code, 3);
    EXPECT_EQ(exported("bridge", with_file).code, 3);
}

struct Refusal {
    std::string format;
    std::vector<std::string> settings;
    std::string said;
    std::string hint;
};

/// Each key that a system cannot say, with one value that it can.
TEST_F(JobExports, WhatASystemCannotSayIsRefusedByName) {
    const std::vector<Refusal> refusals{
        {"torchtitan-toml",
         {"pipeline.schedule=zb-h1"},
         "pipeline.schedule = \"zb-h1\"",
         "torch-csv"},
        {"torchtitan-toml",
         {"pipeline.shard=weights"},
         "pipeline.shard = \"weights\"",
         "\"optimizer\""},
        {"torchtitan-toml",
         {"pipeline.recompute=always"},
         "pipeline.recompute, always",
         "\"block\""},
        {"torchtitan-toml",
         {"pipeline.tensor_parallel=2"},
         "pipeline.sequence_parallel = false",
         "set it to true"},
        {"torchtitan-toml",
         {"pipeline.data_parallel=1", "pipeline.shard=none"},
         "training.precision = \"bf16\"",
         "training.optimizer_state_bytes = 4"},
        {"torchtitan-python",
         {"pipeline.context_parallel=2"},
         "pipeline.context_method = \"ring\"",
         "\"all-gather\""},
        {"torchtitan-python",
         {"pipeline.all_reduce=tree"},
         "pipeline.all_reduce = \"tree\"",
         "fastest"},
        {"automodel", {"training.optimizer=sgd"}, "training.optimizer = \"sgd\"", "\"adamw\""},
        {"automodel",
         {"pipeline.schedule=gpipe", "pipeline.recompute=none", "pipeline.micro_batches=2"},
         "pipeline.micro_batches = 2",
         "set it to 4"},
        {"deepspeed",
         {"pipeline.tensor_parallel=2"},
         "pipeline.tensor_parallel = 2",
         "set it to 1"},
        {"deepspeed",
         {"pipeline.partition=[7, 9, 8, 8]"},
         "[7, 9, 8, 8]",
         "set it to [8, 8, 8, 8]"},
        {"deepspeed",
         {"pipeline.shard=gradients"},
         "pipeline.shard = \"gradients\"",
         "\"optimizer\""},
        {"sbatch", {"pipeline.schedule=gpipe"}, "pipeline.schedule = \"gpipe\"", "\"1f1b\""},
        {"sbatch", {"training.optimizer=adam"}, "adam", "\"adamw\""},
        {"kubernetes",
         {"pipeline.offload=stash", "cluster.host_link=pcie-4"},
         "pipeline.offload = \"stash\"",
         "\"none\""},
        {"bridge",
         {"training.optimizer_state_bytes=8"},
         "training.optimizer_state_bytes = 8",
         "set it to 12"},
        {"bridge", {"training.batch=20"}, "training.batch = 20", "set it to 32"},
    };
    const std::vector<std::string> first_blocks{"pipeline.recompute=block",
                                                "pipeline.recompute_only=3"};
    for (const std::string format : {"torchtitan-toml", "automodel", "deepspeed"}) {
        const Outcome outcome = exported(format, first_blocks);
        EXPECT_EQ(outcome.code, 3) << format;
        EXPECT_THAT(outcome.err, HasSubstr("pipeline.recompute_only = 3")) << format;
    }
    EXPECT_THAT(text_of("bridge", first_blocks),
                HasSubstr("recompute_method: block\n  recompute_num_layers: 3\n"));
    for (const Refusal& refusal : refusals) {
        const Outcome outcome = exported(refusal.format, refusal.settings);
        EXPECT_EQ(outcome.code, 3) << refusal.format << ' ' << refusal.said;
        EXPECT_THAT(outcome.err,
                    AllOf(HasSubstr(refusal.said), HasSubstr("hint: "), HasSubstr(refusal.hint)))
            << refusal.format;
    }
}

/// A model with experts, as 'plan MODEL --out' leaves it: a scenario, its costs and its
/// config.json.
TEST_F(JobExports, ExpertsGoToSystemsThatDivideThem) {
    const std::filesystem::path config = find_model("qwen3-30b-a3b");
    std::filesystem::copy_file(config, folder() / run_file::config);
    ASSERT_EQ(pipetwin({"import",
                        "hf",
                        "qwen3-30b-a3b",
                        "--whole-blocks",
                        "--device",
                        "h100-sxm",
                        "--sequence",
                        "4096",
                        "--micro-batch-size",
                        "1",
                        "--out",
                        path("model.profile.json")})
                  .code,
              0);
    const std::string scenario = file(run_file::scenario,
                                      R"toml([model]
kind = "profile"
file = "model.profile.json"
[training]
batch = 64
precision = "bf16"
gradients = "fp32"
[pipeline]
stages = 4
micro_batches = 8
data_parallel = 8
shard = "optimizer"
schedule = "1f1b"
partition = [12, 12, 12, 12]
expert_parallel = 8
expert_tensor_parallel = 1
expert_dispatch = "deepep"
[cluster]
device = "h100-sxm"
)toml");
    const auto written = [&](const std::string& format) {
        const Outcome outcome =
            pipetwin({"export", format, scenario, "--force", "--out", path("job")});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.code == 0 ? content_of(path("job")) : outcome.err;
    };
    EXPECT_THAT(written("torchtitan-python"),
                AllOf(HasSubstr("from torchtitan.models.qwen3 import model_registry\n"),
                      HasSubstr("model_registry(\"30B-A3B\", moe_comm_backend=\"deepep\")"),
                      HasSubstr("expert_parallel_degree=8,"),
                      HasSubstr("disable_cuda_graphs=True,")));
    EXPECT_THAT(written("automodel"),
                AllOf(HasSubstr("ep_size: 8\n"), HasSubstr("dispatcher: deepep\n")));
    EXPECT_THAT(written("bridge"),
                AllOf(HasSubstr("expert_model_parallel_size: 8\n"),
                      HasSubstr("expert_tensor_parallel_size: 1\n"),
                      HasSubstr("moe_flex_dispatcher_backend: deepep\n")));
    EXPECT_THAT(written("sbatch"), HasSubstr("    --expert-model-parallel-size 8\n"));
    // torchtitan/models/qwen3/__init__.py of February 2026: pipelining_fn=None.
    const Outcome older =
        pipetwin({"export", "torchtitan-toml", scenario, "--force", "--out", path("job")});
    EXPECT_EQ(older.code, 3);
    EXPECT_THAT(older.err,
                AllOf(HasSubstr("qwen3 had no pipelines"), HasSubstr("torchtitan-python")));
}

/// NVIDIA's recipe of Llama 3 70B on 64 GB200 offloads 40 of 80 layers
/// (Megatron-Bridge, perf_recipes/llama, fp8_cs, two samples): "auto" is what the plan needs.
TEST_F(JobExports, BlocksInHostMemoryGoToMegatronAlone) {
    ASSERT_EQ(pipetwin({"import",
                        "hf",
                        find_model("llama-3-70b").string(),
                        "--whole-blocks",
                        "--device",
                        "gb200",
                        "--stack",
                        "megatron-bridge-2026",
                        "--precision",
                        "fp8",
                        "--sequence",
                        "8192",
                        "--micro-batch-size",
                        "2",
                        "--out",
                        path("model.profile.json")})
                  .code,
              0);
    const std::string scenario = file(run_file::scenario,
                                      R"toml([model]
kind = "profile"
file = "model.profile.json"
[training]
batch = 256
gradients = "fp32"
[pipeline]
stages = 1
micro_batches = 2
data_parallel = 64
shard = "weights"
recompute = "none"
schedule = "1f1b"
partition = [82]
[cluster]
profile = "gb200-nvl72"
count = 64
stack = "megatron-bridge-2026"
)toml");
    const auto exported = [&](const std::string& format) {
        return pipetwin({"export", format, scenario, "--force", "--out", path("job")});
    };
    ASSERT_EQ(exported("sbatch").code, 0) << exported("sbatch").err;
    const std::string job = content_of(path("job"));
    const std::string flag = "--cpu-offloading-num-layers ";
    ASSERT_THAT(job, HasSubstr(flag));
    EXPECT_NEAR(std::stoi(job.substr(job.find(flag) + flag.size())), 40, 12);
    ASSERT_EQ(exported("bridge").code, 0);
    EXPECT_THAT(
        content_of(path("job")),
        AllOf(HasSubstr("  cpu_offloading: true\n"), HasSubstr("  cpu_offloading_num_layers: 4")));
    for (const std::string format : {"torchtitan-toml", "torchtitan-python"}) {
        const Outcome refused = exported(format);
        EXPECT_EQ(refused.code, 3) << format;
        EXPECT_THAT(refused.err, HasSubstr("pipeline.offload_blocks")) << format;
    }
}

}  // namespace job_exports_test
}  // namespace pipetwin::cli
