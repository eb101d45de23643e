// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <toml++/toml.h>

#include "cli/interop/import/program_keys.h"
#include "tests/cli/interop/import/megatron_import.h"

namespace pipetwin::cli {
namespace megatron_files_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
        if (format == "torchtitan") {  // whose model is known
            EXPECT_THAT(imported.err, HasSubstr("with the stack " + stack));
            const Outcome outcome = pipetwin({"simulate", path("y.toml"), "--set", between_nodes});
            EXPECT_EQ(outcome.code, 0) << tables << outcome.err;
            return tables;
        }
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

/// GPT-NeoX-20B (Black et al. 2022, and configs/20B.yml of its repository): 20,554,567,680
/// parameters on 96 devices, 12 replicas of 4 stages with 2 devices each, 1,536 samples a step.
TEST_F(ImportMegatron, AConfigurationOfGptNeoxIsReadWithItsDevices) {
    const std::string config = file("20B.yml",
                                    R"({
  "vocab_file": "./20B_checkpoints/20B_tokenizer.json",
  "pipe_parallel_size": 4, "model_parallel_size": 2,
  "num_layers": 44, "hidden_size": 6144, "num_attention_heads": 64,
  "seq_length": 2048, "max_position_embeddings": 2048,
  "norm": "layernorm", "pos_emb": "rotary", "no_weight_tying": true, "gpt_j_residual": true,
  "scaled_upper_triang_masked_softmax_fusion": true, "bias_gelu_fusion": true, # fused
  "optimizer": {"type": "Adam", "params": {"lr": 0.97e-4, "betas": [0.9, 0.95],}},
  "zero_optimization": {"stage": 1, "allgather_partitions": True, "overlap_comm": True},
  "train-micro-batch-size-per-gpu": 4, "gradient_accumulation_steps": 32,
  "checkpoint_activations": true, "checkpoint_num_layers": 1, "gradient_clipping": 1.0,
  "hidden_dropout": 0, "attention_dropout": 0, "fp16": {"enabled": true, "loss_scale": 0},
  "train_iters": 150000,
})");
    const auto import_neox = [&](std::vector<std::string> more) {
        std::vector<std::string> args{
            "import", "auto", config, "--force", "--json", "--out", path("x.toml")};
        args.insert(args.end(), more.begin(), more.end());
        return pipetwin(args);
    };
    const Outcome outcome = import_neox({"--devices", "96", "--device", "a100-sxm-80"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["parameters"], 20'554'567'680);
    EXPECT_THAT(outcome.err, HasSubstr("gpt_j_residual: the prediction computes the halves"));
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("batch = 1536\n"),
                      HasSubstr("stages = 4\n"),
                      HasSubstr("tensor_parallel = 2\n"),
                      HasSubstr("data_parallel = 12\n"),
                      HasSubstr("micro_batches = 32\n"),
                      HasSubstr("partition = [11, 11, 11, 11]\n"),
                      HasSubstr("recompute = \"block\"\n"),
                      HasSubstr("precision = \"bf16\"\n"),
                      HasSubstr("shard = \"optimizer\"\n")));
    const Outcome open = import_neox({});
    EXPECT_EQ(open.code, 3);
    EXPECT_THAT(open.err, HasSubstr("add --devices N to the command"));
    EXPECT_EQ(import_neox({"--devices", "100"}).code, 4) << "100 devices are no multiple of 8";
    const std::string experts = file("moe.yml", "pipe_parallel_size: 1\nmoe_num_experts: 8\n");
    EXPECT_EQ(pipetwin({"import", "neox", experts, "--devices", "8", "--out", path("y.toml")}).code,
              3);
}

/// A file of GPT-NeoX of 4 blocks of width 512, with further lines.
std::string neox_yaml(std::string_view more, std::string_view layers = "num_layers: 4\n") {
    return fmt::format(
        "pipe_parallel_size: 2\n{}hidden_size: 512\nnum_attention_heads: 8\nseq_length: 128\n"
        "max_position_embeddings: 128\npos_emb: rotary\nno_weight_tying: true\n"
        "padded_vocab_size: 1024\ntrain_micro_batch_size_per_gpu: 2\n"
        "gradient_accumulation_steps: 4\n{}",
        layers,
        more);
}

/// megatron/model/transformer.py, ParallelMLP: the inner width is int(expansion_factor x
/// hidden_size). Of 4 blocks the inner matrices and biases are 4 (2 x 512 + 1) a unit of width.
TEST_F(ImportMegatron, GptNeoxTakesTheInnerWidthOfAFactor) {
    const auto parameters = [&](std::string_view more) {
        const Outcome outcome = pipetwin({"import",
                                          "neox",
                                          file("factor.yml", neox_yaml(more)),
                                          "--devices",
                                          "2",
                                          "--device",
                                          "a100-sxm-80",
                                          "--force",
                                          "--json",
                                          "--out",
                                          path("x.toml")});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.json()["parameters"].get<std::int64_t>();
    };
    const std::int64_t usual = parameters("");
    EXPECT_EQ(parameters("expansion_factor: 3.5\n"), usual - std::int64_t{256} * 4 * (2 * 512 + 1));
    EXPECT_EQ(parameters("expansion-factor: 2.001\n"),  // int(1024.5)
              usual - std::int64_t{1024} * 4 * (2 * 512 + 1));
    EXPECT_EQ(parameters("intermediate_size: 1792\n"), parameters("expansion_factor: 3.5\n"));
}

/// What readers of Megatron's flags say is said in GPT-NeoX's keys.
TEST_F(ImportMegatron, GptNeoxsAnswersHaveItsKeys) {
    const auto answer = [&](const std::string& yaml) {
        const Outcome outcome = pipetwin({"import",
                                          "neox",
                                          file("n.yml", yaml),
                                          "--devices",
                                          "2",
                                          "--device",
                                          "a100-sxm-80",
                                          "--force",
                                          "--out",
                                          path("x.toml")});
        return outcome.err + outcome.out;
    };
    EXPECT_THAT(answer(neox_yaml("fp16:\n  enabled: true\n")),
                AllOf(HasSubstr("fp16.enabled: the fragment says bf16"),
                      HasSubstr("attention_config global: attention is estimated as separate"),
                      Not(HasSubstr("--fp16")),
                      Not(HasSubstr("--attention-backend"))));
    EXPECT_EQ(in_keys_of("neox", "--num-layers 30 beside --num-layers-per-virtual-pipeline-stage"),
              "num_layers 30 beside --num-layers-per-virtual-pipeline-stage");
    EXPECT_EQ(in_keys_of("nemo", "no --seq-length: add --vocabulary N"),
              "no model.encoder_seq_length: add --vocabulary N");
    EXPECT_EQ(in_keys_of("megatron", "--num-layers 30"), "--num-layers 30");
}

TEST_F(ImportMegatron, GptNeoxsKeysAreRefusedByTheirNames) {
    struct Case {
        std::string yaml;
        std::string expected;
    };
    const std::vector<Case> cases{
        {neox_yaml("intermediate_size: 2048\nexpansion_factor: 3.5\n"),
         "n.yml:13:1: expansion_factor 3.5 beside intermediate_size 2048"},
        {neox_yaml("feedforward_size: 1024\n"), "feedforward_size: the inner width"},
        {neox_yaml("checkpoint_in_cpu: true\n"), "checkpoint_in_cpu: inputs of blocks"},
        {neox_yaml("opt_pos_emb_offset: 2\n"), "opt_pos_emb_offset: tables have more rows"},
        {neox_yaml("model_arch: t5\n"), "model_arch: the model has an encoder"},
        {neox_yaml("gas: 8\n"), "gas: another number than gradient_accumulation_steps"},
        {neox_yaml("autotuning:\n  enabled: true\n"), "autotuning.enabled: DeepSpeed tries"},
        {neox_yaml("attention_config: [[[\"flash\"], 3]]\n"),
         "attention_config says the attention of 3 blocks, num_layers is 4"},
        {neox_yaml("hidden_dropout: 1.5\n"), "hidden_dropout = 1.5, expected a share from 0"},
        {neox_yaml("attention_dropout: 1\n"), "attention_dropout = 1, expected a share from 0"},
        {neox_yaml("precision: bfloat16\nfp16:\n  enabled: true\n"),
         "fp16.enabled beside precision bfloat16"},
        {neox_yaml("global_num_gpus: 32\n"), "global_num_gpus = 32 beside --devices 2"},
        {neox_yaml("", "num_layers: 4\nhidden_size: 500\n").erase(53, 17),
         "num_attention_heads 8 does not divide hidden_size 500"},
        {neox_yaml("num_kv_heads: 3\n"),
         "n.yml:12:1: num_kv_heads 3 does not divide num_attention"},
        {neox_yaml("", "num_layers: 4\nnum-layers: 4\n"),
         "num_layers is there twice (lines 2 and 3)"},
    };
    for (const Case& of : cases) {
        const Outcome outcome = pipetwin({"import",
                                          "neox",
                                          file("n.yml", of.yaml),
                                          "--devices",
                                          "2",
                                          "--force",
                                          "--out",
                                          path("x.toml")});
        EXPECT_NE(outcome.code, 0) << of.expected;
        EXPECT_THAT(outcome.err, HasSubstr(of.expected));
    }
    const auto warnings_of = [&](std::string_view more) {
        const Outcome outcome = pipetwin({"import",
                                          "neox",
                                          file("n.yml", neox_yaml(more)),
                                          "--devices",
                                          "2",
                                          "--force",
                                          "--out",
                                          path("x.toml")});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.err;
    };
    const std::string waits = "synchronize_each_layer: true\n";
    EXPECT_THAT(warnings_of(waits + "checkpoint_activations: true\n"),
                HasSubstr("synchronize_each_layer: the prediction does not wait"));
    EXPECT_THAT(warnings_of(waits), Not(HasSubstr("synchronize_each_layer")));
    for (const std::string_view kinds : {"[[[flash], all]]",
                                         "[[[flash], 4]]",
                                         "[[[flash, flash], 2]]",
                                         "[flash, flash, flash, flash]"}) {
        warnings_of(fmt::format("attention_config: {}\n", kinds));
    }
    warnings_of("precision: bfloat16\nfp16:\n  enabled: true\n  type: bfloat16\n");
}

TEST_F(ImportMegatron, OtherProgramsConfigurationsAreCalledByTheirNames) {
    EXPECT_THAT(import("# a model\n{\n  \"pipe_parallel_size\": 4,\n}\n").err,
                AllOf(HasSubstr("GPT-NeoX"), HasSubstr("import neox")));
    EXPECT_THAT(import("parallelism:\n  dp: 2\n  pp: 4\n  pp_engine: 1f1b\n").err,
                HasSubstr("this is nanotron's configuration"));
}

}  // namespace megatron_files_test
}  // namespace pipetwin::cli
