// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/launch/training_run.h"
#include "core/interop/launch/yaml_settings.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace maxtext_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TrainingRun run_of(const std::string& yaml) {
    return maxtext_run(parse_yaml_settings(yaml, "x.yml"), LeaveOut::Nothing);
}

std::string refusal_of(const std::string& yaml) {
    return std::string(error_of([&] { run_of(yaml); }).what());
}

/// Two slices of 64 devices: replicas of 64 / 4 devices share weights, and both slices have copies.
/// A device has 2 samples, 256 together; accumulated twice they are 512.
TEST(Maxtext, AxesAreDegrees) {
    const TrainingRun run = run_of(
        "model_name: llama3.1-70b\nper_device_batch_size: 2.0\nmax_target_length: 8192\n"
        "dcn_data_parallelism: 2\nici_fsdp_parallelism: 16\nici_tensor_parallelism: 4\n"
        "gradient_accumulation_steps: 2\nremat_policy: full\n");
    EXPECT_EQ(run.shipped_model, "llama-3.1-70b");
    EXPECT_EQ(run.tensor_parallel, 4);
    EXPECT_FALSE(run.sequence_parallel);
    EXPECT_EQ(run.data_parallel, 32);
    EXPECT_EQ(run.shard, "weights");
    EXPECT_EQ(run.shard_group, 16);
    EXPECT_EQ(run.batch, 512);
    EXPECT_EQ(run.micro_batches, 2);
    EXPECT_EQ(run.sequence, 8192);
    EXPECT_EQ(run.narrow, "");
    EXPECT_EQ(run.recompute, "block");
    EXPECT_EQ(run.precision, "bf16");
    EXPECT_EQ(run.clip_norm, 1);
    EXPECT_THAT(run.warnings, IsEmpty());
}

/// Experts divide samples, too: their devices are replicas of all other layers.
TEST(Maxtext, ExpertsAreReplicas) {
    const TrainingRun run = run_of(
        "model_name: mixtral-8x7b\nper_device_batch_size: 1\ndcn_data_parallelism: 1\n"
        "ici_fsdp_parallelism: 4\nici_expert_parallelism: 8\nici_context_parallelism: 2\n"
        "context_parallel_strategy: ring\nuse_random_routing: true\n");
    EXPECT_EQ(run.data_parallel, 32);
    EXPECT_EQ(run.expert_parallel, 8);
    EXPECT_EQ(run.context_parallel, 2);
    EXPECT_EQ(run.context_method, "ring");
    EXPECT_TRUE(run.balances_experts);
    EXPECT_EQ(run.batch, 64);
}

/// src/maxtext/layers/moe.py: without sparse_matmul an expert takes capacity_factor times the mean
/// of tokens, which masks of products lead to it, in the type of all products.
TEST(Maxtext, ExpertsMayTakeSoManyTokensAtMost) {
    const std::string experts =
        "model_name: mixtral-8x7b\nper_device_batch_size: 1\ndcn_data_parallelism: 1\n"
        "ici_fsdp_parallelism: 1\nici_expert_parallelism: 8\nmegablox: false\n";
    const TrainingRun run = run_of(experts + "sparse_matmul: false\ncapacity_factor: 1.25\n");
    EXPECT_EQ(run.expert_capacity, 1.25);
    EXPECT_THAT(run.warnings,
                ElementsAre(HasSubstr("multiplies tokens by masks"),
                            HasSubstr("moe_dispatch_no_expert_sharding = false")));
    const std::string masks = experts + "sparse_matmul: false\ncapacity_factor: 1\n";
    EXPECT_EQ(run_of(masks + "quantization: fp8\n").narrow, "fp8");
    EXPECT_THAT(refusal_of(masks + "quantization: nanoo_fp8\n"), HasSubstr("quantization"));
    EXPECT_THAT(refusal_of(experts + "sparse_matmul: false\n"),
                HasSubstr("every expert computes every token"));
    EXPECT_THAT(run_of(experts).warnings, ElementsAre(HasSubstr("megablox = false")));
    const TrainingRun dense = run_of(
        "model_name: llama3.1-405b\nper_device_batch_size: 1\ndcn_data_parallelism: 1\n"
        "ici_fsdp_parallelism: 8\nmegablox: false\nsparse_matmul: false\n"
        "quantization: nanoo_fp8\n");
    EXPECT_EQ(dense.expert_capacity, std::nullopt);
    EXPECT_EQ(dense.narrow, "fp8");
    EXPECT_THAT(dense.warnings, IsEmpty());
}

/// A pipeline of MaxText computes all forwards first.
TEST(Maxtext, APipelineIsGPipe) {
    const std::string stages =
        "model_name: llama3-8b\nper_device_batch_size: 4\ndcn_data_parallelism: 1\n"
        "ici_fsdp_parallelism: 1\nici_pipeline_parallelism: 4\n";
    const TrainingRun run = run_of(stages +
                                   "num_layers_per_pipeline_stage: 8\nnum_pipeline_repeats: 1\n"
                                   "num_pipeline_microbatches: 8\n");
    EXPECT_EQ(run.schedule, "gpipe");
    EXPECT_EQ(run.stages, 4);
    EXPECT_EQ(run.micro_batches, 8);
    EXPECT_EQ(run.batch, 16);
    EXPECT_THAT(refusal_of(stages + "num_layers_per_pipeline_stage: 10\n"),
                HasSubstr("write num_pipeline_repeats = 1"));
    EXPECT_THAT(refusal_of(stages + "num_pipeline_repeats: 2\n"),
                HasSubstr("num_pipeline_repeats: micro-batches go around the stages"));
}

/// The number of devices fills the axis that is left open.
TEST(Maxtext, ALogSaysHowManyDevicesThereAre) {
    const std::string log =
        "I0425 09:31:19.1 1 pyconfig.py:584] Config param model_name: llama3-8b\n"
        "I0425 09:31:19.1 1 pyconfig.py:584] Config param base_emb_dim: 4096\n"
        "I0425 09:31:19.1 1 pyconfig.py:584] Config param per_device_batch_size: 4.0\n"
        "I0425 09:31:19.1 1 pyconfig.py:584] Config param quantization: \n"
        "I0425 09:31:19.1 1 pyconfig.py:584] Config param dcn_data_parallelism: -1\n"
        "I0425 09:31:19.1 1 pyconfig.py:584] Config param ici_fsdp_parallelism: -1\n"
        "I0425 09:31:19.1 1 pyconfig.py:584] Config param logical_axis_rules: (('a', 'b'),)\n"
        "I0425 09:31:19.1 1 pyconfig.py:584] Config param emb_dim: 4096\n"
        "I0425 09:31:19.1 1 pyconfig.py:584] Config param capacity_factor: -1.0\n"
        "I0425 09:31:20.1 1 maxtext_utils.py:1718] Num_devices: 32, shape (1, 1, 1, 32)\n";
    ASSERT_TRUE(has_maxtext_log(log));
    const TrainingRun run = maxtext_run(parse_maxtext_log(log, "x.log"), LeaveOut::Nothing);
    EXPECT_EQ(run.data_parallel, 32);
    EXPECT_EQ(run.batch, 128);
    EXPECT_EQ(run.shard, "weights");
    EXPECT_THAT(run.warnings, IsEmpty());
    EXPECT_THAT(run_of("model_name: llama3-8b\nper_device_batch_size: 4\n").warnings, SizeIs(1));
}

/// What is left of the devices comes to the axis that is -1: copies along `data`.
TEST(Maxtext, TheOpenAxisGetsWhatIsLeft) {
    LaunchFile file = parse_yaml_settings(
        "model_name: llama3-8b\nper_device_batch_size: 1\nici_fsdp_parallelism: 8\n", "x.yml");
    const TrainingRun open = maxtext_run(file, LeaveOut::Nothing);
    EXPECT_TRUE(open.has_open_devices);
    EXPECT_EQ(open.shard_group, 8);
    file.all_processes = 32;
    const TrainingRun run = maxtext_run(file, LeaveOut::Nothing);
    EXPECT_EQ(run.data_parallel, 32);
    EXPECT_EQ(run.shard_group, 8);
    EXPECT_EQ(run.batch, 32);
    EXPECT_FALSE(run.has_open_devices);
    file.all_processes = 12;
    EXPECT_THAT(std::string(error_of([&] { maxtext_run(file, LeaveOut::Nothing); }).what()),
                HasSubstr("12 devices cannot be shared out to the 8"));
    const std::string wide = "ici_data_parallelism: 65536\nici_fsdp_parallelism: 65536\n";
    EXPECT_THAT(refusal_of("model_name: llama3-8b\n" + wide), HasSubstr("expected at most"));
}

/// MaxText prints enumerations by their names, and one configuration for one run.
TEST(Maxtext, PrintedValuesAreThoseOfFiles) {
    const std::string head = "I0425 pyconfig.py:584] Config param ";
    const std::string log =
        head + "model_name: llama3-8b\n" + head + "per_device_batch_size: 4.0\n" + head +
        "num_target_devices: 8\n" + head + "opt_type: OptimizerType.ADAMW\n" + head +
        "quantization: QuantizationType.NONE\n" + head + "override_model_config: False\n" + head +
        "context_parallel_strategy: all_gather\n" + head + "new_parallel_feature: False\n";
    EXPECT_EQ(maxtext_run(parse_maxtext_log(log, "x.log"), LeaveOut::Nothing).data_parallel, 8);
    EXPECT_THAT(std::string(error_of([&] {
                                parse_maxtext_log(log + head + "per_device_batch_size: 8.0\n",
                                                  "x.log");
                            }).what()),
                HasSubstr("per_device_batch_size = 8.0, but 4.0 in x.log:2"));
}

/// A default value that is written out changes nothing; another one is refused by name.
TEST(Maxtext, KeysAreJudgedByTheirValues) {
    const std::string plain =
        "model_name: llama3-8b\nper_device_batch_size: 1\ndcn_data_parallelism: 1\n"
        "ici_fsdp_parallelism: 8\n";
    for (const std::string same : {"mtp_num_layers: 0",
                                   "use_dpo: false",
                                   "dropout_rate: 0.0",
                                   "quantization: \"\"",
                                   "tokenizer_path: gs://x",
                                   "steps: 20"}) {
        EXPECT_EQ(run_of(plain + same + "\n").batch, 8) << same;
    }
    for (const std::string other : {"mtp_num_layers: 1",
                                    "use_dpo: true",
                                    "dropout_rate: 0.1",
                                    "quantization: int8",
                                    "optimizer_memory_host_offload: true",
                                    "remat_policy: minimal_offloaded",
                                    "opt_type: muon",
                                    "new_parallel_layers: 3"}) {
        EXPECT_THAT(refusal_of(plain + other + "\n"), HasSubstr(other.substr(0, other.find(':'))))
            << other;
    }
    EXPECT_EQ(run_of(plain + "quantization: nanoo_fp8\n").narrow, "fp8");
    EXPECT_THAT(refusal_of("model_name: mixtral-8x7b\nper_device_batch_size: 1\n"
                           "quantization: fp8\n"),
                HasSubstr("quantization: products in 8 bits"));
    EXPECT_THAT(refusal_of(plain + "base_emb_dim: 8\noverride_model_config: true\n"),
                HasSubstr("base_emb_dim: it changes the model of that name"));
    EXPECT_THAT(refusal_of("per_device_batch_size: 0.3\nici_fsdp_parallelism: 8\n"
                           "dcn_data_parallelism: 1\n"),
                HasSubstr("0.3 samples on each of 8 devices"));
    EXPECT_THAT(refusal_of(plain + "ici_tensor_parallelism: 0\n"),
                HasSubstr("expected -1 or 1 to 4194304"));
}

}  // namespace maxtext_test
}  // namespace pipetwin
