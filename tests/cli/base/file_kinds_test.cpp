// SPDX-License-Identifier: Apache-2.0
#include "cli/base/file_kinds.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/scenario/scenario.h"
#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace file_kinds_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view torch_trace =
    R"({"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "PP:0F0", "ts": 1, "dur": 1}]})";
constexpr std::string_view graph =
    "node1 -- ReLU -- forward_compute_time=1, backward_compute_time=2, activation_size=3, "
    "parameter_size=4\n";
constexpr std::string_view costs =
    R"({"schema_version": 1, "source": "measured", "layers": [{"name": "a", "parameter_bytes": 1,
        "samples": [{"micro_batch_size": 1, "forward_ns": 1, "backward_ns": 1, "output_bytes": 0,
                     "saved_bytes": 0}]}]})";
constexpr std::string_view hf_config = R"({"architectures": ["X"], "model_type": "llama"})";

TEST(KindOfContent, IsToldByTheFirstBytes) {
    const std::vector<std::pair<std::string_view, FileKind>> files{
        {"0F0,0B0\n", FileKind::Schedule},
        {"\xEF\xBB\xBF 0F0 ;0B0\n", FileKind::Schedule},
        {",,\"1F0\",1B0\n", FileKind::Schedule},
        {"(0F1;0B0)OVERLAP_F_B,0F2\n", FileKind::Schedule},
        {"0RECV_F0,0F0", FileKind::Schedule},
        {"sep=;\r\n0F0;0B0\r\n", FileKind::Schedule},
        {"0F0,0B0\r1F0,1B0\r", FileKind::Schedule},
        {"\"0F0,0B0\"\n", FileKind::Schedule},
        {small_scenario, FileKind::Scenario},
        {"# a comment\nmodel = {kind = \"mlp\"}\n", FileKind::Scenario},
        {"pipeline.stages = 4\n", FileKind::Scenario},
        {costs, FileKind::Profile},
        {small_profile, FileKind::CostTable},
        {"name,forward_ms,backward_ms\na,1,2\n", FileKind::CostTable},
        {"sep=;\nname;forward_ms;backward_ms\na;1;2\n", FileKind::CostTable},
        {"<html>--num-layers 6</html>", FileKind::Unknown},
        {torch_trace, FileKind::TorchTrace},
        {R"([{"ph": "X", "ts": 1, "name": "PP:0F0"}])", FileKind::TorchTrace},
        {R"({"pipetwin": {"schema_version": 1}, "traceEvents": []})", FileKind::OurTrace},
        {hf_config, FileKind::HfConfig},
        {graph, FileKind::Graph},
        {std::string_view("SQLite format 3\0...", 19), FileKind::Nsys},
        {R"({"resourceSpans":[{"resource":{},"scopeSpans":[]}]})", FileKind::Otlp},
        {"", FileKind::Unknown},
        {"{\n  \"schema_version\": 1,\n  \"tool_version\": \"0.1.0\",\n  \"layers\": 1, "
         "\"samples\": 2}",
         FileKind::Result},
        {R"({"step":0,"loss":5.5,"grad_norm":2.0})", FileKind::Result},
        {R"({"live":1,"origin":"measured","plan_hash":"38"})", FileKind::Result},
        {"<!DOCTYPE html>\n<html><head><title>gpt - pipetwin</title>", FileKind::Result},
        {"<!DOCTYPE html>\n<html><head><title>404</title>", FileKind::Unknown},
        {R"({"epoch": 1, "log_history": [{"loss": 1, "grad_norm": 2}]})", FileKind::Unknown},
        {"hello", FileKind::Unknown},
        {"Ett|tt|ttL", FileKind::Unknown},
        {"--num-layers 6 --pipeline-model-parallel-size 2", FileKind::Megatron},
        {"#!/bin/bash\nmodel=llama\nARGS=\"--tensor-model-parallel-size 2\"\n", FileKind::Megatron},
        {"modules:\n  pre_trainer:\n    pipeline_model_parallel_size: 4\n", FileKind::Megatron},
        {"[job]\ndump_folder = \"x\"\n[model]\nname = \"llama3\"\n", FileKind::Torchtitan},
        {"[model]\nname = \"llama3\"\n[parallelism]\n", FileKind::Torchtitan},
        {R"({"train_batch_size": 8, "zero_optimization": {"stage": 1}})", FileKind::DeepSpeed},
        {"description = \"eight\"\n[cluster]\ncount = 8\n", FileKind::Cluster},
        {"[cluster]\ncount = 8\n", FileKind::Cluster},
        {"[model]\nname = \"llama3\"\n[training]\nbatch_size = 8\n", FileKind::Unknown},
        {"[training]\nbatch = 8\n[model]\nkind=\"mlp\"\n", FileKind::Scenario},
        {"[cluster]\ncount = 8\n[pipeline]\nstages = 2\n", FileKind::Scenario},
        {"{}", FileKind::Unknown},
        {"[settings]\nx = 1\n", FileKind::Unknown},
        {"7 dwarfs", FileKind::Unknown},
    };
    for (const auto& [content, kind] : files) {
        EXPECT_EQ(kind_of_content(content), kind) << content.substr(0, 60);
    }
}

class WrongKinds : public InFolder {};

TEST_F(WrongKinds, AreNamedWithTheCommandThatTakesThem) {
    const std::string schedule = file("s.csv", "0F0,0B0\n");
    const std::string scenario = file("s.toml", small_scenario);
    const std::string profile = file("p.json", costs);
    const std::string trace = file("t.json", torch_trace);
    const std::string config = file("config.json", hf_config);
    const std::string out = path("out");
    struct Wrong {
        std::vector<std::string> args;
        std::string is;
        std::string use;
    };
    const std::vector<Wrong> all{
        {{"simulate", schedule}, "this is a schedule, expected a scenario", "pipetwin check"},
        {{"plan", profile}, "this is a profile", "--cluster 8x-"},
        {{"simulate", profile}, "this is a profile", "kind = \"profile\""},
        {{"run", config}, "this is a config.json of Hugging Face", "pipetwin import hf"},
        {{"check", profile}, "this is a profile", "--profile"},
        {{"check", trace}, "this is a trace of PyTorch's profiler", "import torch-trace"},
        {{"compare", trace, profile},
         "this is a profile, the costs of layers, expected a prediction",
         "--profile"},
        {{"simulate", scenario, "--profile", schedule}, "this is a schedule", "pipetwin check"},
        {{"plan", scenario, "--calibrate", scenario},
         "this is a scenario, expected a JSON file of measured runs",
         "pipetwin simulate"},
        {{"simulate", scenario, "--calibrate", profile},
         "this is a profile, the costs of layers, expected a JSON file of measured runs",
         "--profile"},
        {{"import", "torch-trace", profile, "--micro-batch-size", "1", "--out", out},
         "this is a profile",
         "--profile"},
        {{"import", "hf", scenario, "--out", out}, "this is a scenario", "pipetwin simulate"},
        {{"import", "torchtitan", scenario, "--out", out}, "this is a scenario", "simulate"},
        {{"import", "megatron", profile, "--out", out}, "this is a profile", "--profile"},
        {{"import", "deepspeed", config, "--out", out},
         "this is a config.json of Hugging Face",
         "import hf"},
        {{"export", "svg", trace, "--out", out}, "this is a trace", "import torch-trace"},
        {{"plan", file("8x.toml", "[cluster]\ncount = 8\n")},
         "this is a cluster, expected a scenario",
         "cluster = {profile = "},
        {{"simulate", file("titan.toml", "[job]\n[model]\nname = \"llama3\"\n")},
         "this is a configuration of torchtitan",
         "import torchtitan"},
        {{"run", file("ds.json", R"({"train_batch_size": 8})")},
         "this is a configuration of DeepSpeed",
         "import deepspeed"},
        {{"plan", file("pretrain.sh", "torchrun x.py --num-layers 4 --hidden-size 8\n")},
         "this is a file with Megatron's flags",
         "import megatron"},
    };
    for (const Wrong& wrong : all) {
        const Outcome outcome = pipetwin(wrong.args);
        EXPECT_EQ(outcome.code, 3) << wrong.is;
        EXPECT_THAT(outcome.err, AllOf(HasSubstr(wrong.is), HasSubstr(wrong.use)));
    }
}

/// They were called broken files of the kind that was expected.
TEST_F(WrongKinds, ResultsOfThisProgramAreLedToTheirRun) {
    const std::string scenario = file("scenario.toml", small_scenario);
    const std::string metrics = file("metrics.jsonl", R"({"step":0,"loss":5.5,"grad_norm":2.0})");
    const std::string page =
        file("report.html", "<!DOCTYPE html>\n<html><head><title>gpt - pipetwin</title>");
    for (const std::string& result : {metrics, page}) {
        for (const std::vector<std::string>& command :
             {std::vector<std::string>{"simulate", result},
              {"check", result},
              {"compare", result, result},
              {"plan", result, "--cluster", "8x-h100-sxm"},
              {"simulate", scenario, "--profile", result}}) {
            const Outcome outcome = pipetwin(command);
            EXPECT_EQ(outcome.code, 3);
            EXPECT_THAT(outcome.err,
                        AllOf(HasSubstr(result + ": this is a result that pipetwin wrote"),
                              HasSubstr("hint: name its scenario: " + scenario)));
        }
    }
    std::filesystem::remove(scenario);
    EXPECT_THAT(pipetwin({"check", metrics}).err,
                HasSubstr("hint: name the scenario or the schedule that it is about"));
}

TEST_F(WrongKinds, AFileOfTheRightKindIsNotStopped) {
    const std::string scenario = file("s.toml", small_scenario);
    const std::string profile = file("p.csv", small_profile);
    EXPECT_EQ(pipetwin({"simulate", scenario, "--profile", profile}).code, 0);
    EXPECT_EQ(pipetwin({"check", file("s.csv", "0F0,0B0\n")}).code, 0);
    EXPECT_EQ(pipetwin({"check", scenario}).code, 0);
}

TEST_F(WrongKinds, WhatCheckAndDevicesShowCanBeWritten) {
    const std::string schedule = file("s.csv", "0F0,0B0\n");
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"check", schedule}, std::vector<std::string>{"devices"}}) {
        const std::string out = path("out.json");
        ASSERT_EQ(pipetwin(joined(command, {"--out", out})).code, 0);
        EXPECT_EQ(content_of(out), pipetwin(joined(command, {"--json"})).out);
        EXPECT_EQ(pipetwin(joined(command, {"--out", out})).code, 6);
        EXPECT_EQ(pipetwin(joined(command, {"--out", out, "--force"})).code, 0);
        std::filesystem::remove(out);
    }
}

}  // namespace file_kinds_test
}  // namespace pipetwin::cli
