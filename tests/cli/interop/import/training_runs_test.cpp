// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace training_runs_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Llama 3 8B on 8 devices in two stages, as torchtitan says it in its log.
constexpr std::string_view printed =
    "[rank0]:[titan] 2026-02-01 10:00:00,000 - root - INFO - Running with configs: {\n"
    "[rank0]:  \"model\": {\"name\": \"llama3\", \"flavor\": \"8B\", \"converters\": []},\n"
    "[rank0]:  \"training\": {\"local_batch_size\": 8, \"seq_len\": 8192, \"dataset_path\": "
    "null},\n"
    "[rank0]:  \"parallelism\": {\"pipeline_parallel_degree\": 2,\n"
    "[rank0]:    \"pipeline_parallel_schedule\": \"1F1B\", \"pipeline_parallel_microbatch_size\": "
    "1,\n"
    "[rank0]:    \"data_parallel_replicate_degree\": 1, \"data_parallel_shard_degree\": 4},\n"
    "[rank0]:  \"activation_checkpoint\": {\"mode\": \"full\"}\n"
    "[rank0]:}\n";

/// A step has 32 samples of 8,192 tokens on 8 devices, 32,768 of each: 8 s at 4,096 a second.
constexpr std::string_view steps =
    "[rank0]:[titan] x - INFO - step:  1  loss: 12.2  memory: 40.00GiB(50.5%)  tps: 400  "
    "tflops: 20.0  mfu: 2.0%\n"
    "[rank0]:[titan] x - INFO - step: 10  loss:  9.9  memory: 41.00GiB(51.7%)  tps: 4,096  "
    "tflops: 205.0  mfu: 20.7%\n";

class ImportRuns : public InFolder {
  protected:
    Outcome import(const std::string& format,
                   const std::string& from,
                   const std::vector<std::string>& more = {}) const {
        std::vector<std::string> args{"import", format, from, "--force", "--out", path("x.toml")};
        args.insert(args.end(), more.begin(), more.end());
        return pipetwin(args);
    }

    nlohmann::json rows() const { return nlohmann::json::parse(content_of(path("rows.json"))); }
};

/// One command from the log to a scenario with costs, and a prediction beside the measured step.
TEST_F(ImportRuns, ALogOfTorchtitanIsAScenarioAndARow) {
    const std::string log = file("train.log", std::string(printed) + std::string(steps));
    const Outcome outcome =
        import("auto", log, {"--device", "h100-sxm", "--rows-out", path("rows.json")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("read as by 'import torchtitan'"),
                      HasSubstr("a measured step took 8000.0 ms, 205.0 TFLOP/s of a device")));
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("kind = \"profile\"\nfile = \"x.profile.json\"\n"),
                      HasSubstr("batch = 32\n"),
                      HasSubstr("stages = 2\n"),
                      HasSubstr("device = \"h100-sxm\"\n")));
    EXPECT_DOUBLE_EQ(rows()[0]["step_seconds"].get<double>(), 8);
    EXPECT_EQ(rows()[0]["peak_bytes"], 44'023'414'784);  // 41 x 2^30
    const Outcome predicted =
        pipetwin({"simulate", path("x.toml"), "--calibrate", path("rows.json"), "--json"});
    ASSERT_EQ(predicted.code, 0) << predicted.err;
    EXPECT_NEAR(predicted.json()["step_ms"].get<double>(), 8000, 8000 * 0.02);
}

/// torchtitan prints its configuration only where it is asked to.
TEST_F(ImportRuns, ALogMayStandBesideItsConfiguration) {
    const std::string log = file("train.log", steps);
    const Outcome alone = import("torchtitan", log);
    EXPECT_EQ(alone.code, 3);
    EXPECT_THAT(alone.err,
                AllOf(HasSubstr("a log without the configuration of the run"), HasSubstr("--log")));
    const std::string config = file("llama.toml",
                                    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n"
                                    "[training]\nlocal_batch_size = 1\nseq_len = 8192\n"
                                    "[parallelism]\ndata_parallel_shard_degree = 8\n"
                                    "[activation_checkpoint]\nmode = \"full\"\n");
    const Outcome both =
        import("torchtitan", config, {"--log", log, "--rows-out", path("rows.json")});
    ASSERT_EQ(both.code, 0) << both.err;
    EXPECT_DOUBLE_EQ(rows()[0]["step_seconds"].get<double>(), 2);  // 8,192 tokens of a device
    EXPECT_EQ(import("torchtitan", config, {"--rows-out", path("rows.json")}).code, 3);
    const Outcome empty = import("torchtitan", config, {"--log", file("no.log", "nothing\n")});
    EXPECT_EQ(empty.code, 3);
    EXPECT_THAT(empty.err, HasSubstr("no line with a measured step"));
}

/// Where neither the file nor --devices says how many devices a run had, no calibration row is
/// written.
TEST_F(ImportRuns, OpenDevicesAreAsked) {
    const std::string config = file("open.toml",
                                    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n"
                                    "[training]\nlocal_batch_size = 2\nseq_len = 8192\n"
                                    "global_batch_size = 64\n");
    const std::vector<std::string> measured{
        "--log", file("train.log", steps), "--rows-out", path("rows.json")};
    const Outcome open = import("torchtitan", config, measured);
    EXPECT_EQ(open.code, 3);
    EXPECT_THAT(open.err, HasSubstr("add --devices N to the command"));
    std::vector<std::string> known = measured;
    known.insert(known.end(), {"--devices", "16"});
    const Outcome outcome = import("torchtitan", config, known);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    // 64 samples of 8,192 tokens on 16 devices, 4,096 tokens a second on each.
    EXPECT_DOUBLE_EQ(rows()[0]["step_seconds"].get<double>(), 8);
    EXPECT_EQ(rows()[0]["pipeline.data_parallel"], 16);
    EXPECT_EQ(import("hf", "llama-3-8b", {"--devices", "16"}).code, 2);
}

/// Degrees that are all written, and processes, say how many devices there are.
TEST_F(ImportRuns, SaidDevicesAreNotReplaced) {
    const std::string titan =
        file("whole.toml",
             "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\n"
             "seq_len = 8192\nglobal_batch_size = 64\n[parallelism]\n"
             "data_parallel_shard_degree = 8\ntensor_parallel_degree = 2\n");
    const std::string trainer =
        file("whole.yaml", "per_device_train_batch_size: 2\nnum_processes: 16\nbf16: true\n");
    for (const auto& [format, config] : {std::pair("torchtitan", titan), {"trainer", trainer}}) {
        const Outcome other = import(format, config, {"--devices", "64"});
        EXPECT_EQ(other.code, 3) << format;
        EXPECT_THAT(other.err, HasSubstr("the run has 16 devices here, but --devices is 64"));
        const Outcome same = import(format, config, {"--devices", "16"});
        EXPECT_EQ(same.code, 0) << same.err;
    }
}

/// What torchtitan saves has all settings, those with null among them.
TEST_F(ImportRuns, SavedJsonIsAConfiguration) {
    const std::string json = std::string(printed.substr(printed.find('{')));
    std::string plain;
    for (std::size_t at = 0; at < json.size(); ++at) {
        at += json.compare(at, 8, "[rank0]:") == 0 ? std::size_t{8} : std::size_t{0};
        plain += json[at];
    }
    const Outcome outcome = import("auto", file("job_config.json", plain));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("micro_batches = 8\n"));
}

TEST_F(ImportRuns, ALogOfDeepSpeedHasItsJson) {
    const std::string log = file(
        "ds.log",
        "[2026-02-01 10:00:00,000] [INFO] [config.py:1003:print]   train_batch_size ........ 64\n"
        "[2026-02-01 10:00:00,000] [INFO] [config.py:989:print_user_config]   json = {\n"
        "    \"train_batch_size\": 64, \n"
        "    \"train_micro_batch_size_per_gpu\": 2, \n"
        "    \"gradient_accumulation_steps\": 4, \n"
        "    \"bf16\": {\"enabled\": true}, \n"
        "    \"zero_optimization\": {\"stage\": 3}\n"
        "}\n"
        "[2026-02-01 10:00:09,000] [INFO] [timer.py:264:stop] epoch=0/micro_step=4/global_step=1, "
        "RunningAvgSamplesPerSec=8, CurrSamplesPerSec=8.0, MemAllocated=1GB, MaxMemAllocated=9GB\n"
        "[2026-02-01 10:00:11,000] [INFO] [timer.py:264:stop] epoch=0/micro_step=8/global_step=2, "
        "RunningAvgSamplesPerSec=9, CurrSamplesPerSec=32.0, MemAllocated=1GB, "
        "MaxMemAllocated=9GB\n");
    const Outcome outcome = import("auto", log, {"--rows-out", path("rows.json")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("data_parallel = 8\n"), HasSubstr("shard = \"weights\"\n")));
    EXPECT_DOUBLE_EQ(rows()[0]["step_seconds"].get<double>(), 2);  // 64 samples, 32 a second
    const Outcome costs = import("auto",
                                 log,
                                 {"--model",
                                  "llama-3-8b",
                                  "--device",
                                  "h100-sxm",
                                  "--sequence",
                                  "4096",
                                  "--rows-out",
                                  path("rows.json")});
    ASSERT_EQ(costs.code, 0) << costs.err;
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("file = \"x.profile.json\"\n"));
}

/// No option is passed over.
TEST_F(ImportRuns, OptionsOfCostsNeedAModel) {
    const std::string config = file("ds.json", "{\"train_batch_size\": 8}");
    EXPECT_EQ(import("deepspeed", config, {"--sequence", "4096"}).code, 2);
    EXPECT_EQ(import("deepspeed", config, {"--micro-batch-size", "1"}).code, 2);
    const Outcome no_device = import("deepspeed", config, {"--model", "llama-3-8b"});
    EXPECT_EQ(no_device.code, 2);
    EXPECT_THAT(no_device.err, HasSubstr("--device NAME"));
    const Outcome no_length =
        import("deepspeed", config, {"--model", "llama-3-8b", "--device", "h100-sxm"});
    EXPECT_EQ(no_length.code, 4);
    EXPECT_THAT(no_length.err, HasSubstr("add --sequence N to the command"));
}

/// LLaMA-Factory's files name DeepSpeed's by a path from the folder that they are started in.
TEST_F(ImportRuns, TheTrainersFileNamesDeepSpeeds) {
    const std::string run = file("sft.yaml",
                                 "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\n"
                                 "stage: pt\nfinetuning_type: full\ncutoff_len: 4096\n"
                                 "packing: true\nper_device_train_batch_size: 1\n"
                                 "gradient_accumulation_steps: 2\nbf16: true\n"
                                 "num_processes: 8\ndeepspeed: examples/z3.json\n");
    const Outcome missing = import("auto", run);
    EXPECT_EQ(missing.code, 3);
    EXPECT_THAT(missing.err, HasSubstr("DeepSpeed's file 'examples/z3.json' is neither beside it"));
    std::filesystem::create_directory(path("examples"));
    static_cast<void>(
        file("examples/z3.json", R"({"zero_optimization": {"stage": 3, "overlap_comm": true}})"));
    const Outcome outcome = import("auto", run, {"--device", "h100-sxm"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("# llama-3-8b\n"),
                      HasSubstr("batch = 16\n"),
                      HasSubstr("shard = \"weights\"\n"),
                      HasSubstr("stack = \"deepspeed\"\n")));
}

/// primus/core/launcher/parser.py: overrides count most, then what `config` names, then the model's
/// file; of several files that one continues the last.
TEST_F(ImportRuns, PrimusTakesATrainersDefaultsFromItsFile) {
    static_cast<void>(file("base.yaml",
                           "bf16: true\nmicro_batch_size: 2\nclip_grad: 0.5\n"
                           "use_distributed_optimizer: false\n"));
    static_cast<void>(file("other.yaml", "clip_grad: 2.0\n"));
    static_cast<void>(file("trainer.yaml",
                           "extends:\n  - base.yaml\n  - other.yaml\nglobal_batch_size: 16\n"
                           "use_distributed_optimizer: true\nseq_length: 1024\n"));
    static_cast<void>(file("model.yaml",
                           "num_layers: 8\nhidden_size: 512\nnum_attention_heads: 8\n"
                           "vocab_size: 1000\nmax_position_embeddings: 4096\nclip_grad: 8.0\n"
                           "sequence_parallel: true\n"));
    const std::string run = file("run.yaml",
                                 "modules:\n  pre_trainer:\n    framework: megatron\n"
                                 "    config: trainer.yaml\n    model: model.yaml\n"
                                 "    overrides:\n      global_batch_size: 64\n"
                                 "      tensor_model_parallel_size: 2\n");
    const Outcome outcome = import("auto", run);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("batch = 64\n"),
                      HasSubstr("precision = \"bf16\"\n"),
                      HasSubstr("clip_norm = 2\n"),
                      HasSubstr("micro_batches = 32\n"),
                      HasSubstr("sequence_parallel = true\n"),
                      HasSubstr("shard = \"optimizer\"\n")));
    EXPECT_THAT(outcome.err, Not(HasSubstr("which is not read")));
}

/// Primus has torchtitan's settings in a YAML of its own, which continues others.
TEST_F(ImportRuns, PrimusWritesTorchtitanInYaml) {
    static_cast<void>(file("llama.yaml",
                           "model:\n  name: llama3\n  flavor: 8B\n  converters:\n"
                           "    - primus_turbo\n"));
    static_cast<void>(file("trainer.yaml",
                           "training:\n  local_batch_size: 8\n  seq_len: 2048\n"
                           "activation_checkpoint:\n  mode: none\n"));
    const std::string run = file("run.yaml",
                                 "modules:\n  pre_trainer:\n    framework: torchtitan\n"
                                 "    config: trainer.yaml\n    model: llama.yaml\n"
                                 "    overrides:\n      stderr_sink_level: INFO\n"
                                 "      training:\n        seq_len: 8192\n"
                                 "      parallelism:\n        data_parallel_shard_degree: 4\n"
                                 "        tensor_parallel_degree: 2\n"
                                 "      primus_turbo:\n        enable_attention_float8: false\n");
    const Outcome outcome = import("auto", run);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("model llama3 8B"),
                      HasSubstr("batch = 32\n"),
                      HasSubstr("tensor_parallel = 2\n"),
                      HasSubstr("of 8192 tokens"),
                      Not(HasSubstr("recompute = \"block\""))));
}

}  // namespace training_runs_test
}  // namespace pipetwin::cli
