// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/program_logs.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/interop/launch/python_repr.h"
#include "core/interop/launch/training_log.h"

namespace pipetwin {
namespace program_logs_test {

using ::testing::HasSubstr;

std::string value_of(const LaunchFile& file, std::string_view written) {
    const auto found = std::ranges::find(file.settings, written, &Setting::written);
    return found == file.settings.end() ? "(none)"
           : found->values.empty()      ? ""
                                        : found->values.front().text;
}

// What Python 3.12 prints for these values with repr().
TEST(PythonRepr, ValuesBecomeJson) {
    EXPECT_EQ(json_of_python("Args(a=1, b='x', c=[1, 2.5], d=None, e=True)", "log"),
              R"({"a":1,"b":"x","c":[1,2.5],"d":null,"e":true})");
    EXPECT_EQ(json_of_python("{'a': (1, 'it\\'s'), 'b': {'c': False}}", "log"),
              R"({"a":[1,"it's"],"b":{"c":false}})");
    EXPECT_EQ(json_of_python("A(p=PosixPath('/x'), t=torch.bfloat16, l=1e-05)", "log"),
              R"({"p":"/x","t":"bfloat16","l":1e-05})");
    EXPECT_EQ(json_of_python("[<Mode.SCATTER: 2>, <Option.WRAP: 'wrap'>, <a.b.Engine object at "
                             "0x7f>]",
                             "log"),
              R"(["SCATTER","wrap","Engine"])");
    EXPECT_EQ(json_of_python("A(s=('long '\n     'text'), t=(1,), u=()) and more", "log"),
              R"({"s":"long text","t":[1],"u":[]})");
    EXPECT_EQ(json_of_python("{'x', 'y'}", "log"), R"(["x","y"])");
}

TEST(PythonRepr, WhatHasNoEndIsRefused) {
    for (const char* const cut : {"A(b=1", "A(b='x", "[1, 2", "<A.B", "{'a'", "A(b="}) {
        EXPECT_THROW(json_of_python(cut, "log:3"), Error) << cut;
    }
    EXPECT_THROW(json_of_python(std::string(100, '['), "log:3"), Error);
}

constexpr std::string_view front = "08/31/2024 14:37:22 [INFO|DP=0|PP=0|TP=0]: ";

std::string nanotron_log(std::string_view front_of_lines) {
    std::string log = "[rank0]:[W831 14:37:22.05 ProcessGroupNCCL.cpp:4049] a warning\n";
    for (const std::string_view line :
         {"Config:",
          "Config(general=GeneralArgs(project='debug',",
          "                           run='x'),",
          "       parallelism=ParallelismArgs(dp=2,",
          "                                   pp=4,",
          "                                   tp=8,",
          "                                   pp_engine=<nanotron.parallel.pipeline_parallel."
          "engine.AllForwardAllBackwardPipelineEngine object at 0x7fcc5c65c910>,",
          "                                   tp_mode=<TensorParallelLinearMode.REDUCE_SCATTER: "
          "2>),",
          "       model=ModelArgs(model_config=LlamaConfig(hidden_size=16,",
          "                                                rope_scaling=None),",
          "                       dtype=torch.bfloat16),",
          "       data_stages=[DatasetStageArgs(name='Stable Training Stage',",
          "                                     start_training_step=1)],",
          "       profiler=None)"}) {
        log += front_of_lines;
        log += line;
        log += '\n';
        // Another rank writes in between.
        log += "08/31/2024 14:37:22 [INFO|DP=1|PP=0|TP=0]: hello)\n";
    }
    return log;
}

TEST(NanotronLog, ThePrintedConfigurationIsTheFiles) {
    const LaunchFile file = parse_nanotron_log(nanotron_log(front), "train.log");
    EXPECT_EQ(value_of(file, "parallelism.pp"), "4");
    EXPECT_EQ(value_of(file, "parallelism.pp_engine"), "afab");
    EXPECT_EQ(value_of(file, "parallelism.tp_mode"), "REDUCE_SCATTER");
    EXPECT_EQ(value_of(file, "model.dtype"), "bfloat16");
    EXPECT_EQ(value_of(file, "model.model_config.hidden_size"), "16");
    EXPECT_EQ(value_of(file, "model.model_config.rope_scaling"), "(none)");
    EXPECT_TRUE(file.is_printed);
}

TEST(NanotronLog, OneThatIsCutIsRefusedWithItsLine) {
    std::string log = nanotron_log(front);
    log.resize(log.find("profiler"));
    try {
        parse_nanotron_log(log, "train.log");
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.place(), "train.log:4");
        EXPECT_THAT(error.text(), HasSubstr("no end"));
    }
}

constexpr std::string_view arguments =
    "12/31/2025 13:11:34 - INFO - __main__ - Training/evaluation parameters TrainingArguments(\n"
    "_n_gpu=1,\n"
    "accelerator_config={'split_batches': False, 'dispatch_batches': None},\n"
    "bf16=True,\n"
    "eval_strategy=no,\n"
    "fsdp=[<FSDPOption.FULL_SHARD: 'full_shard'>, <FSDPOption.AUTO_WRAP: 'auto_wrap'>],\n"
    "gradient_accumulation_steps=2,\n"
    "hub_token=<HUB_TOKEN>,\n"
    "mp_parameters=,\n"
    "per_device_train_batch_size=3,\n"
    ")\n";

TEST(TrainerLog, ArgumentsAndDevicesAreRead) {
    const std::string log = std::string(arguments) +
                            "[INFO|configuration_utils.py:839] 2025-12-31 >> Model config "
                            "LlamaConfig {\n  \"model_type\": \"llama\",\n  \"hidden_size\": 64\n}"
                            "\n\n[INFO|trainer.py:2525] >>   Total train batch size (w. parallel, "
                            "distributed & accumulation) = 1,536\n";
    ASSERT_TRUE(has_trainer_log(log));
    const LaunchFile file = parse_trainer_log(log, "train.log");
    EXPECT_EQ(value_of(file, "per_device_train_batch_size"), "3");
    EXPECT_EQ(value_of(file, "bf16"), "true");
    EXPECT_EQ(value_of(file, "eval_strategy"), "no");
    EXPECT_EQ(value_of(file, "fsdp"), "full_shard");
    EXPECT_EQ(value_of(file, "accelerator_config.split_batches"), "false");
    EXPECT_EQ(value_of(file, "mp_parameters"), "(none)");
    EXPECT_EQ(file.all_processes, 256);  // 1,536 samples, 3 x 2 of each device
    const std::optional<PrintedText> model = logged_model_config(log);
    ASSERT_TRUE(model.has_value());
    EXPECT_EQ(model->line, 12);
    EXPECT_EQ(nlohmann::json::parse(model->text)["hidden_size"], 64);
}

/// A name of another encoding, as of a folder, changes no argument but its own.
TEST(TrainerLog, BytesThatAreNoTextAreReplaced) {
    std::string log(arguments);
    log.insert(log.rfind(')'), "output_dir=/data/caf\xe9,\nk\xe9y='\xe9',\n");
    const LaunchFile file = parse_trainer_log(log, "train.log");
    EXPECT_EQ(value_of(file, "output_dir"), "/data/caf\uFFFD");
    EXPECT_EQ(value_of(file, "k\uFFFDy"), "\uFFFD");
    EXPECT_EQ(value_of(file, "per_device_train_batch_size"), "3");
}

/// A program in Python has such lines, too, and changes what they say.
TEST(TrainerLog, AProgramIsNoLog) {
    EXPECT_FALSE(
        has_trainer_log("args = TrainingArguments(\n    per_device_train_batch_size=3,\n)"
                        "\n"));
}

TEST(TrainerLog, ArgumentsWithoutAnEndAreRefused) {
    const std::string cut(arguments.substr(0, arguments.size() - 2));
    EXPECT_THROW(parse_trainer_log(cut, "train.log"), Error);
}

TEST(SwiftLog, ArgumentsAreThoseOfItsFile) {
    const std::string log =
        "[INFO:swift] Loading the model\n[INFO:swift] args: MegatronSftArguments(model='Qwen/"
        "Qwen3-8B', tuner_type='full', micro_batch_size=1, torch_dtype=torch.bfloat16, "
        "report_to=[])\nmore\n";
    ASSERT_TRUE(has_swift_log(log));
    const PrintedText found = swift_log_arguments(log, "train.log");
    EXPECT_EQ(found.line, 2);
    EXPECT_EQ(found.text,
              R"({"model":"Qwen/Qwen3-8B","tuner_type":"full","micro_batch_size":1,)"
              R"("torch_dtype":"bfloat16","report_to":[]})");
}

TEST(BridgeLog, ThePrintedYamlEndsAtTheDashes) {
    const std::string log =
        "0: done with setup ...\n0: ------- Task Configuration -------\n0: model:\n"
        "1: an other process\n0:   num_layers: 16\n0: \n0: ----------------------------------\n"
        "0: Training ...\n";
    ASSERT_TRUE(has_bridge_log(log));
    const PrintedText found = bridge_log_yaml(log, "train.log");
    EXPECT_EQ(found.line, 2);
    EXPECT_EQ(found.text, "model:\n  num_layers: 16\n\n");
    EXPECT_THROW(bridge_log_yaml(log.substr(0, 90), "train.log"), Error);
}

/// Steps of two runs are not those of one.
TEST(ProgramLogs, TwoConfigurationsThatDifferAreRefusedWithBothLines) {
    const auto refusal = [](const auto& read) {
        try {
            read();
        } catch (const Error& error) {
            return fmt::format("{}: {}", error.place(), error.text());
        }
        return std::string("none");
    };
    const std::string one = nanotron_log(front);
    std::string other = one;
    other.replace(other.find("tp=8"), 4, "tp=4");
    EXPECT_EQ(refusal([&] { parse_nanotron_log(one + one, "x"); }), "none");
    EXPECT_EQ(refusal([&] { parse_nanotron_log(one + other, "x"); }),
              "x:33: another configuration than in line 4");
    std::string more(arguments);
    EXPECT_EQ(refusal([&] { parse_trainer_log(more + more, "x"); }), "none");
    more.replace(more.find("size=3"), 6, "size=4");
    EXPECT_EQ(refusal([&] { parse_trainer_log(std::string(arguments) + more, "x"); }),
              "x:12: another configuration than in line 1");
    const std::string swift = "args: MegatronSftArguments(model='a', micro_batch_size=1)\n";
    std::string larger = swift;
    larger.replace(larger.find("size=1"), 6, "size=2");
    EXPECT_EQ(refusal([&] { swift_log_arguments(swift + "x\n" + swift, "x"); }), "none");
    EXPECT_EQ(refusal([&] { swift_log_arguments(swift + "x\n" + larger, "x"); }),
              "x:3: another configuration than in line 1");
    const std::string bridge = "------- Task Configuration -------\nmodel:\n  a: 1\n-----\n";
    std::string changed = bridge;
    changed.replace(changed.find("a: 1"), 4, "a: 2");
    EXPECT_EQ(refusal([&] { bridge_log_yaml(bridge + bridge, "x"); }), "none");
    EXPECT_EQ(refusal([&] { bridge_log_yaml(bridge + changed, "x"); }),
              "x:5: another configuration than in line 1");
}

/// 20 steps in 24 s and 40 in 40 s, so the second 20 took 0.8 s each; the first start with what is
/// done once.
TEST(TrainingLog, MeansSinceTheStartAreTakenApart) {
    const TrainingLog log = parse_training_log(
        "{'loss': 1.2, 'iteration': '20/100', 'memory(GiB)': 40.5, 'train_speed(s/it)': 1.2}\n"
        "{'loss': 1.1, 'iteration': '40/100', 'memory(GiB)': 40.5, 'train_speed(s/it)': 1.0}\n");
    ASSERT_EQ(log.steps.size(), 2U);
    EXPECT_TRUE(log.steps[0].is_first);
    EXPECT_DOUBLE_EQ(log.steps[1].seconds, 0.8);
}

TEST(TrainingLog, StepsOfNemo) {
    const TrainingLog log = parse_training_log(
        "0: Training epoch 0, iteration 8/29 | lr: 5.389e-06 | global_batch_size: 512 | "
        "global_step: 8 | max_memory_reserved: 57466159104 | max_memory_allocated: 53930270720 | "
        "reduced_train_loss: 10.22 | train_step_timing in s: 27.01 | consumed_samples: 4608 | "
        "TFLOPS_per_GPU: 48.58\n"
        "Epoch 0: :  1%| | 9/100 [01:12<.., v_num=0, reduced_train_loss=10.9, global_step=9.000, "
        "consumed_samples=5120.0, train_step_timing in s=26.5]\n");
    ASSERT_EQ(log.steps.size(), 2U);
    EXPECT_DOUBLE_EQ(log.steps[0].seconds, 27.01);
    EXPECT_EQ(log.steps[0].batch, 512);
    EXPECT_DOUBLE_EQ(log.steps[0].device_tflops.value_or(0), 48.58);
    EXPECT_DOUBLE_EQ(log.steps[1].seconds, 26.5);
    EXPECT_EQ(log.peak_bytes, 53'930'270'720);
    EXPECT_EQ(parse_training_log("Training epoch 0, iteration 49/49 | global_step: 49 | "
                                 "peak_memory_usage: 70833405952 | memory_allocated: 44271689728 | "
                                 "train_step_timing in s: 12.39 | consumed_samples: 6400\n")
                  .peak_bytes,
              70'833'405'952);
}

TEST(TrainingLog, StepsAndMemoryOfNanotron) {
    const TrainingLog log = parse_training_log(
        "10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]:  Memory usage: 64.15MiB. Peak allocated "
        "309.29MiB. Peak reserved: 496.00MiB\n"
        "10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 | consumed_tokens: "
        "85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | "
        "global_batch_size: 64 | lm_loss: 2.38 | model_tflops_per_gpu: 38.3\n");
    ASSERT_EQ(log.steps.size(), 1U);
    EXPECT_DOUBLE_EQ(log.steps[0].seconds, 11.5);
    EXPECT_EQ(log.peak_bytes, static_cast<std::int64_t>(309.29 * 1024 * 1024));
}

/// The lines that megatron/core/timers.py prints with --timing-log-option minmax, max and all, and
/// those of versions before 2023. Times behind the first step of a start do not count.
TEST(TrainingLog, TimersOfMegatron) {
    const std::string step = " iteration {} | elapsed time per iteration (ms): 100.0 |\n";
    const auto timers_of = [&step](const std::string& first, const std::string& second) {
        std::string log;
        int number = 1;
        for (const std::string& timers : {first, second}) {
            std::string line = step;
            line.replace(line.find("{}"), 2, std::to_string(number++) + "/ 9");
            log += line + timers;
        }
        return parse_training_log(log).timers;
    };
    const std::vector<LoggedTimer> both = timers_of(
        "(min, max) time across ranks (ms):\n"
        "    forward-compute ................................: (900.00, 9500.00)\n",
        "(min, max) time across ranks (ms):\n"
        "    forward-compute ................................: (100.50, 200.50)\n"
        "    backward-compute ...............................: (0.00, 400.00)\n"
        " some other line\n    backward-compute ....: (7.00, 7.00)\n");
    ASSERT_EQ(both.size(), 2U);
    EXPECT_EQ(both[0].name, "backward-compute");
    EXPECT_DOUBLE_EQ(both[0].most, 0.4);
    EXPECT_EQ(both[1].name, "forward-compute");
    EXPECT_DOUBLE_EQ(both[1].least.value_or(0), 0.1005);
    EXPECT_DOUBLE_EQ(both[1].most, 0.2005);
    EXPECT_EQ(both[1].reports, 1);
    const std::vector<LoggedTimer> most =
        timers_of("", "max time across ranks (ms):\n    optimizer .....: 45.12\n");
    ASSERT_EQ(most.size(), 1U);
    EXPECT_FALSE(most[0].least.has_value());
    EXPECT_DOUBLE_EQ(most[0].most, 0.04512);
    const std::vector<LoggedTimer> all = timers_of(
        "",
        "times across ranks (ms):\n  forward-backward:\n     rank  0: 90.00\n     rank  1: "
        "80.00\n  optimizer:\n     rank  0: 4.00\n     rank  1: 5.00\n");
    ASSERT_EQ(all.size(), 2U);
    EXPECT_DOUBLE_EQ(all[0].least.value_or(0), 0.08);
    EXPECT_DOUBLE_EQ(all[0].most, 0.09);
    EXPECT_DOUBLE_EQ(all[1].most, 0.005);
    const std::vector<LoggedTimer> old = timers_of(
        "", "time (ms) | forward-compute: 193.77 | backward-compute: 73.02 | optimizer: 63.01\n");
    ASSERT_EQ(old.size(), 3U);
    EXPECT_TRUE(old[0].of_one_rank);
    EXPECT_DOUBLE_EQ(old[0].most, 0.07302);
}

}  // namespace program_logs_test
}  // namespace pipetwin
