// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/launch/table_settings.h"
#include "core/interop/launch/training_run.h"
#include "core/interop/launch/yaml_settings.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace trainer_test {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TrainingRun run_of(const std::string& yaml) {
    return trainer_run(parse_yaml_settings(yaml, "x.yaml"), LeaveOut::Nothing);
}

/// LLaMA-Factory's file, with accelerate's number of processes: 2 samples x 8 steps x 16 devices.
TEST(Trainer, SamplesAreThoseOfAllDevices) {
    const TrainingRun run = run_of(
        "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: pt\nfinetuning_type: full\n"
        "cutoff_len: 4096\npacking: true\nper_device_train_batch_size: 2\n"
        "gradient_accumulation_steps: 8\nbf16: true\ngradient_checkpointing: true\n"
        "num_processes: 16\nnum_machines: 2\ndistributed_type: FSDP\n"
        "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_offload_params: false\n"
        "learning_rate: 1.0e-5\noptim: adamw_torch_fused\nreport_to: none\n");
    EXPECT_EQ(run.model, "meta-llama/Llama-3.1-8B");
    EXPECT_EQ(run.batch, 256);
    EXPECT_EQ(run.micro_batches, 8);
    EXPECT_EQ(run.data_parallel, 16);
    EXPECT_EQ(run.sequence, 4096);
    EXPECT_EQ(run.shard, "weights");
    EXPECT_EQ(run.recompute, "block");
    EXPECT_EQ(run.precision, "bf16");
    EXPECT_EQ(run.gradients, "fp32");
    EXPECT_EQ(run.clip_norm, 1);
    EXPECT_EQ(run.stages, 1);
    // Whole gradients over eight steps of accumulation are 7/8 more than the prediction's.
    EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("keeps whole gradients")));
}

/// LLaMA-Factory has other defaults than the Trainer: adapters, and blocks that are computed again.
TEST(Trainer, LlamaFactoryHasDefaultsOfItsOwn) {
    const std::string plain = "num_processes: 8\ntemplate: llama3\nbf16: true\npacking: true\n";
    EXPECT_THAT(std::string(error_of([&] { run_of(plain); }).what()), HasSubstr("adapters"));
    EXPECT_EQ(run_of(plain + "finetuning_type: full\n").recompute, "block");
    EXPECT_EQ(
        run_of(plain + "finetuning_type: full\ndisable_gradient_checkpointing: true\n").recompute,
        "none");
    EXPECT_EQ(run_of("num_processes: 8\nbf16: true\n").recompute, "none");
}

/// With a file of DeepSpeed accelerate takes all numbers from it; the Trainer refuses other ones.
TEST(Trainer, DeepSpeedsFileAndTheArgumentsAgree) {
    const LaunchFile deepspeed = parse_json_settings(
        R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
            "gradient_clipping": 0.5, "bf16": {"enabled": true},
            "zero_optimization": {"stage": 3, "overlap_comm": true}})",
        "ds.json");
    const auto with = [&](const std::string& yaml) {
        return trainer_run(parse_yaml_settings(yaml, "x.yaml"), LeaveOut::Nothing, &deepspeed);
    };
    const TrainingRun run = with(
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n"
        "  deepspeed_config_file: ds.json\n");
    EXPECT_EQ(run.batch, 256);
    EXPECT_EQ(run.micro_batches, 8);
    EXPECT_EQ(run.precision, "bf16");
    EXPECT_EQ(run.clip_norm, 0.5);
    EXPECT_THAT(std::string(error_of([&] {
                                with(
                                    "num_processes: 8\nper_device_train_batch_size: 1\n"
                                    "deepspeed: ds.json\n");
                            }).what()),
                HasSubstr("train_micro_batch_size_per_gpu = 4 in DeepSpeed's file, but 1"));
    // accelerate's default is stage 2.
    EXPECT_EQ(run_of("num_processes: 8\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n"
                     "  gradient_accumulation_steps: 4\n")
                  .shard,
              "gradients");
}

/// The words of TrainingArguments, of FSDP 1 and 2, mean the same.
TEST(Trainer, FsdpHasSeveralNames) {
    const std::string plain = "num_processes: 8\nper_device_train_batch_size: 1\n";
    EXPECT_EQ(run_of(plain).shard, "");
    EXPECT_EQ(run_of(plain + "fsdp: full_shard auto_wrap\n").shard, "weights");
    EXPECT_EQ(run_of(plain + "fsdp: [shard_grad_op, auto_wrap]\n").shard, "gradients");
    EXPECT_EQ(run_of(plain + "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
                             "  fsdp_reshard_after_forward: false\n")
                  .shard,
              "gradients");
    for (const std::string refused : {"fsdp: full_shard offload",
                                      "fsdp: hybrid_shard",

                                      "distributed_type: MEGATRON_LM",
                                      "use_peft: true",
                                      "finetuning_type: lora",
                                      "stage: dpo",
                                      "optim: adafactor",
                                      "load_in_4bit: true",
                                      "new_parallel_size: 2"}) {
        EXPECT_THAT(std::string(error_of([&] { run_of(plain + refused + "\n"); }).what()),
                    HasSubstr(refused.substr(0, refused.find(':'))))
            << refused;
    }
    EXPECT_EQ(run_of(plain + "use_peft: false\nload_in_4bit: null\n").batch, 8);
}

/// DeepSpeed's "auto" is what the Trainer says; the state of weights in two bytes is in fp32.
TEST(Trainer, DeepSpeedSaysWhatReplicasShare) {
    const LaunchFile file = parse_yaml_settings(
        "num_processes: 8\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"
        "bf16: true\ntorch_dtype: bfloat16\ndeepspeed: ds.json\nmax_grad_norm: 0.5\n",
        "x.yaml");
    EXPECT_EQ(trainer_deepspeed_file(file), "ds.json");
    const auto with = [&](const std::string& stage, const std::string& more) {
        const LaunchFile deepspeed = parse_json_settings(
            R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
                "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
                "zero_optimization": {"stage": )" +
                stage + more + "}}",
            "ds.json");
        return trainer_run(file, LeaveOut::Nothing, &deepspeed);
    };
    const TrainingRun run = with("3", R"(, "overlap_comm": true)");
    EXPECT_EQ(run.framework, "deepspeed");
    EXPECT_EQ(run.shard, "weights");
    EXPECT_EQ(run.batch, 64);
    EXPECT_EQ(run.data_parallel, 8);
    EXPECT_EQ(run.clip_norm, 0.5);
    EXPECT_EQ(run.optimizer_state_bytes, std::nullopt);
    EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("samples that are not packed")));
    EXPECT_EQ(with("2", R"(, "overlap_comm": true)").shard, "gradients");
    EXPECT_THAT(std::string(error_of([&] {
                                with("3", R"(, "offload_optimizer": {"device": "cpu"})");
                            }).what()),
                HasSubstr("offload_optimizer"));
    const TrainingRun inside =
        trainer_run(parse_json_settings(R"({"num_processes": 8, "per_device_train_batch_size": 2,
                                "deepspeed": {"zero_optimization": {"stage": 1}}})",
                                        "x.json"),
                    LeaveOut::Nothing);
    EXPECT_EQ(inside.shard, "optimizer");
    EXPECT_EQ(run_of("num_processes: 8\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n"
                     "  zero_stage: 3\n  offload_optimizer_device: none\n"
                     "  gradient_accumulation_steps: 1\n")
                  .shard,
              "weights");
}

/// Weights that are loaded in two bytes are trained in two bytes.
TEST(Trainer, TypesOfWeights) {
    const std::string plain = "num_processes: 8\nbf16: true\n";
    EXPECT_EQ(run_of(plain).optimizer_state_bytes, std::nullopt);
    EXPECT_EQ(run_of("num_processes: 8\nbf16: True\n").precision, "bf16");
    // FSDP makes weights fp32 where it mixes precisions (accelerate, fsdp2_prepare_model).
    EXPECT_EQ(run_of(plain + "torch_dtype: bfloat16\nfsdp: full_shard\n").optimizer_state_bytes,
              std::nullopt);
    EXPECT_EQ(run_of(plain + "torch_dtype: bfloat16\n").optimizer_state_bytes, 4);
    EXPECT_EQ(run_of("num_processes: 8\npure_bf16: true\n").gradients, "same");
    EXPECT_EQ(run_of("num_processes: 8\n").precision, "fp32");
    EXPECT_THAT(run_of("per_device_train_batch_size: 1\n").warnings,
                Contains(HasSubstr("does not say how many devices")));
    EXPECT_THAT(run_of(plain + "packing: false\n").warnings,
                Contains(HasSubstr("have different lengths")));
    EXPECT_THAT(std::string(error_of([&] { run_of(plain + "fp16: true\n"); }).what()),
                HasSubstr("fp16 and bf16 are both true"));
}

/// axolotl's keys beside the Trainer's: 2 samples x 4 steps x 8 devices.
TEST(Trainer, KeysOfAxolotl) {
    const std::string yaml =
        "base_model: meta-llama/Llama-3.1-8B\nnum_processes: 8\nsequence_len: 4096\n"
        "micro_batch_size: 2\ngradient_accumulation_steps: 4\nsample_packing: true\n"
        "optimizer: adamw_torch\nbf16: auto\nflash_attention: true\n"
        "gradient_checkpointing: true\n";
    const TrainingRun run = run_of(yaml);
    EXPECT_EQ(run.model, "meta-llama/Llama-3.1-8B");
    EXPECT_EQ(run.batch, 64);
    EXPECT_EQ(run.sequence, 4096);
    EXPECT_EQ(run.precision, "bf16");
    EXPECT_EQ(run.recompute, "block");
    EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("bf16 = auto")));
    EXPECT_THAT(std::string(error_of([&] { run_of(yaml + "adapter: qlora\n"); }).what()),
                HasSubstr("adapters"));
    EXPECT_THAT(std::string(error_of([&] { run_of("num_processes: 8\nbf16: auto\n"); }).what()),
                HasSubstr("auto is no value"));
}

}  // namespace trainer_test
}  // namespace pipetwin
