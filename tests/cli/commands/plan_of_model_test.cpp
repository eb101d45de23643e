// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/costs/profile_json.h"
#include "core/scenario/scenario.h"
#include "tests/cli/support.h"

/// `plan MODEL --cluster NAME`.
namespace pipetwin::cli {
namespace plan_of_model_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// The text without the breaks and indents of its lines.
std::string in_one_line(const std::string& text) {
    std::istringstream words(text);
    std::string line;
    for (std::string word; words >> word;) {
        line += line.empty() ? word : ' ' + word;
    }
    return line;
}

class PlanOfModel : public InFolder {
  protected:
    static std::vector<std::string> question(const std::vector<std::string>& more = {}) {
        // Few devices and whole stages: nothing here is about how plans are found.
        return question_of("gpt2-1.5b", "8x-h100-sxm", more);
    }
    static std::vector<std::string> question_of(const std::string& model,
                                                const std::string& cluster,
                                                const std::vector<std::string>& more) {
        return joined({"plan",
                       model,
                       "--cluster",
                       cluster,
                       "--sequence",
                       "1024",
                       "--batch-tokens",
                       "64k",
                       "--set",
                       "pipeline.chunks=1",
                       "--quiet"},
                      more);
    }
};

/// `plan` and `simulate` say which stack the costs are of, and what it said of published runs.
TEST_F(PlanOfModel, WithAStackNamesItAndTheNearestPublishedRuns) {
    const std::vector<std::string> fixed{
        "--set", "pipeline.stages=2", "--set", "pipeline.data_parallel=4", "--json"};
    const auto planned = pipetwin(question_of("gpt2-1.5b",
                                              "8x-b200",
                                              joined(fixed,
                                                     {"--stack",
                                                      "megatron-bridge-2025",
                                                      "--precision",
                                                      "fp8",
                                                      "--out",
                                                      path("plan")})))
                             .json();
    const auto simulated = pipetwin({"simulate", path("plan") + "/scenario.toml", "--json"}).json();
    for (const auto& json : {planned, planned["best"], simulated}) {
        EXPECT_EQ(json["stack"], "megatron-bridge-2025");
        ASSERT_EQ(json["evidence"].size(), 3U);
        for (const auto& run : json["evidence"]) {
            for (const char* const key : {"model", "layout", "stack", "source"}) {
                EXPECT_NE(run[key].get<std::string>(), "") << key;
            }
            EXPECT_GT(run["devices"], 0);
            EXPECT_GT(run["year"], 2020);
            EXPECT_GT(run["measured"], 0);
            EXPECT_GT(run["predicted"], 0);
        }
    }
    EXPECT_EQ(planned["evidence"], simulated["evidence"]);
    const auto without =
        pipetwin(question_of("gpt2-1.5b", "8x-b200", joined(fixed, {"--stack", "none"}))).json();
    EXPECT_EQ(without["stack"], nullptr);
    EXPECT_TRUE(without["best"]["evidence"].empty());
}

TEST_F(PlanOfModel, HasTheRatesOfAStack) {
    const auto planned = [&](const std::vector<std::string>& more) {
        return pipetwin(question_of(
            "gpt2-1.5b",
            "8x-b200",
            joined({"--set", "pipeline.stages=2", "--set", "pipeline.data_parallel=4"}, more)));
    };
    const Outcome outcome =
        planned({"--stack", "megatron-bridge-2026", "--precision", "mxfp8", "--out", path("plan")});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(read_profile(path("plan") + "/profile.json").stack, "megatron-bridge-2026");
    EXPECT_EQ(read_scenario(path("plan") + "/scenario.toml").cluster.stack, "megatron-bridge-2026");
    EXPECT_THAT(in_one_line(outcome.out),
                AllOf(HasSubstr("published runs of megatron-bridge-2026"),
                      HasSubstr("nearest published runs, in tokens/s per device:")));
    // The costs are of that stack alone.
    const Outcome other = pipetwin({"simulate",
                                    path("plan") + "/scenario.toml",
                                    "--set",
                                    "cluster.stack=megatron-bridge-2025"});
    EXPECT_EQ(other.code, 3);
    EXPECT_THAT(in_one_line(other.err),
                AllOf(HasSubstr("'megatron-bridge-2026'"), HasSubstr("'megatron-bridge-2025'")));
    for (const char* const command : {"simulate", "sweep", "plan"}) {
        const auto with = [&](const std::string& stack) {
            return pipetwin({command, path("plan") + "/scenario.toml", "--stack", stack});
        };
        EXPECT_EQ(with("megatron-bridge-2026").code, 0) << command;
        for (const char* const stack : {"megatron-bridge-2025", "none"}) {
            const Outcome refused = with(stack);
            EXPECT_EQ(refused.code, 3) << command;
            EXPECT_THAT(
                in_one_line(refused.err),
                AllOf(HasSubstr("'megatron-bridge-2026'"),
                      HasSubstr(fmt::format("'{}'", stack)),
                      HasSubstr(fmt::format("import the model again with --stack {}", stack))));
        }
        EXPECT_THAT(with("megatron-2042").err, HasSubstr("error: --stack: no stack"));
    }
    const Outcome simulated = pipetwin({"simulate", path("plan") + "/scenario.toml"});
    EXPECT_THAT(simulated.out, HasSubstr("nearest published runs"));
    EXPECT_EQ(planned({"--stack", "nemo-2024"}).code, 3);
    EXPECT_EQ(planned({"--stack", "nemo-2024", "--set", "cluster.stack=nemo-2024"}).code, 2);
}

TEST_F(PlanOfModel, SaysWhatOfTheStepIsCommunicationThatNothingHides) {
    const std::vector<std::string> shared{"--set",
                                          "pipeline.tensor_parallel=8",
                                          "--set",
                                          "pipeline.data_parallel=1",
                                          "--set",
                                          "pipeline.stages=1"};
    const auto best = pipetwin(question(joined(shared, {"--json"}))).json()["best"];
    const double tensor = best["messages_in_actions_ms"]["tensor_parallel"];
    EXPECT_EQ(best["messages_in_actions_ms"]["shards"], 0);
    const double share = 100 * tensor / best["step_ms"].get<double>();
    ASSERT_GE(share, 5);
    EXPECT_THAT(
        pipetwin(question(shared)).out,
        AllOf(HasSubstr("\n  communication that nothing hides: "),
              HasSubstr(fmt::format(" of the step ({:.1f} %), for tensor parallelism\n", share))));
    const Outcome alone = pipetwin(question({"--set",
                                             "pipeline.tensor_parallel=1",
                                             "--set",
                                             "pipeline.data_parallel=1",
                                             "--set",
                                             "pipeline.stages=1"}));
    EXPECT_THAT(alone.out, Not(HasSubstr("communication that nothing hides")));
}

TEST_F(PlanOfModel, AnswersInTheUnitsOfABill) {
    const Outcome outcome =
        pipetwin(question({"--nodes", "2", "--tokens", "15T", "--price", "2.5", "--json"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto result = nlohmann::json::parse(outcome.out);
    const auto& answer = result["answer"];
    EXPECT_EQ(answer["devices"], 16);
    EXPECT_EQ(answer["device"], "h100-sxm");
    EXPECT_EQ(answer["tokens_per_step"], 64 * 1024);
    const double rate = answer["tokens_per_second"];
    EXPECT_NEAR(rate, 64 * 1024 / (result["best"]["step_ms"].get<double>() / 1e3), 1e-6 * rate);
    EXPECT_NEAR(answer["tokens_per_second_per_device"].get<double>(), rate / 16, 1e-6 * rate);
    const double hours = answer["device_hours"];
    EXPECT_NEAR(hours, 15e12 / rate / 3600 * 16, 1e-6 * hours);
    EXPECT_NEAR(answer["days"].get<double>(), hours / 16 / 24, 1e-6 * hours);
    EXPECT_NEAR(answer["cost"].get<double>(), 2.5 * hours, 1e-6 * hours);
    // A share of the dense rate, which no training reaches and no useful one is far below.
    EXPECT_GT(answer["model_flops_utilisation"], 0.1);
    EXPECT_LT(answer["model_flops_utilisation"], 0.8);
    EXPECT_EQ(answer["mfu_definition"], "megatron");
}

/// 48 blocks of 1,600 and 50,257 words, 1,024 tokens: of 72 l h^2 (1 + s / 6h + V / 12 l h)
/// operations a token (Narayanan et al. 2021) half of s / 6h is masked.
TEST_F(PlanOfModel, CountsOperationsAsAsked) {
    const Outcome outcome = pipetwin(question({"--json", "--mfu", "palm"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto result = outcome.json();
    const auto& mfu = result["best"]["mfu"];
    EXPECT_EQ(result["answer"]["mfu_definition"], "palm");
    EXPECT_EQ(result["answer"]["model_flops_utilisation"], mfu["palm"]);
    EXPECT_EQ(result["best"]["model_flops_utilisation"], mfu["palm"]);
    const double attention = 1024.0 / (6 * 1600);
    const double all = 1 + attention + 50257.0 / (12.0 * 48 * 1600);
    EXPECT_NEAR(mfu["megatron"].get<double>() / mfu["palm"].get<double>(),
                (all - attention / 2) / all,
                1e-6);
    EXPECT_THAT(
        pipetwin(question({"--mfu", "megatrn"})).err,
        AllOf(HasSubstr("one of palm, megatron, hardware"), HasSubstr("did you mean 'megatron'?")));
    EXPECT_THAT(pipetwin({"simulate",
                          "--stages",
                          "1",
                          "--micro-batches",
                          "1",
                          "--forward-ms",
                          "1",
                          "--backward-ms",
                          "1",
                          "--mfu",
                          "palm"})
                    .err,
                HasSubstr("--mfu"));
}

/// Devices on two nodes without a network between them are in no plan together.
TEST_F(PlanOfModel, WarnsOfNodesThatItLeavesUnused) {
    const auto on_nodes = [](const std::string& count) {
        return question_of("gpt2-124m", "8x-rtx-4090", {"--nodes", count});
    };
    EXPECT_THAT(pipetwin(on_nodes("2")).out,
                AllOf(StartsWith("gpt2-124m on 8 of 16 x rtx-4090 (2 nodes of 8x-rtx-4090)"),
                      HasSubstr("warning: 8 of the 16 devices are used: the cluster names no "
                                "network between its nodes"),
                      HasSubstr("cluster.node_link=ethernet-25"),
                      HasSubstr("; none of them was on rtx-4090")));
    EXPECT_THAT(pipetwin(on_nodes("1")).out, Not(HasSubstr("devices are used")));
    const auto result =
        pipetwin(question_of("gpt2-124m", "8x-rtx-4090", {"--nodes", "2", "--json"})).json();
    ASSERT_EQ(result["answer"]["warnings"].size(), 1);
    EXPECT_THAT(result["answer"]["warnings"][0].get<std::string>(),
                StartsWith("8 of the 16 devices are used: "));
    EXPECT_EQ(result["best"]["interval"]["unseen_device"], "rtx-4090");
}

TEST_F(PlanOfModel, BillsTheDevicesThatItLeavesUnused) {
    const auto asked = [](const std::vector<std::string>& more) {
        return pipetwin(question_of(
            "gpt2-124m", "8x-rtx-4090", joined({"--nodes", "2", "--tokens", "10B"}, more)));
    };
    const auto answer = asked({"--price", "0.4", "--json"}).json()["answer"];
    EXPECT_EQ(answer["devices"], 8);
    EXPECT_EQ(answer["devices_of_cluster"], 16);
    const double hours = answer["device_hours"];
    ASSERT_LT(hours, 50);  // printed with three digits, as is twice as much
    EXPECT_THAT(in_one_line(asked({}).out),
                HasSubstr(fmt::format(
                    "{:.3g} device hours of the 8 used, {:.3g} of all 16", hours, 2 * hours)));
    const double cost = 0.4 * hours;
    EXPECT_THAT(in_one_line(asked({"--price", "0.4"}).out),
                HasSubstr(fmt::format("cost {:.3g} at 0.4 per hour, for the 8 used; all 16 cost "
                                      "{:.3g}",
                                      cost,
                                      2 * cost)));
}

// Weights of one number type were planned in another one without a word.
TEST_F(PlanOfModel, SaysThatItPlansInAnotherNumberTypeThanTheFileHas) {
    const auto said = [this](const std::string& keys, const std::vector<std::string>& more = {}) {
        const std::string config =
            file("config.json",
                 R"({"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
                "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                "vocab_size": 1000, "max_position_embeddings": 2048)" +
                     keys + "}");
        const Outcome outcome = pipetwin(joined({"plan",
                                                 config,
                                                 "--cluster",
                                                 "8x-h100-sxm",
                                                 "--sequence",
                                                 "1024",
                                                 "--batch-tokens",
                                                 "64k",
                                                 "--schedule",
                                                 "1f1b"},
                                                more));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_THAT(outcome.out, HasSubstr("blocks, 4 heads, 2 key/value heads\n"));
        return outcome.err;
    };
    EXPECT_THAT(said(R"(, "torch_dtype": "float32")"),
                HasSubstr("torch_dtype is float32: planned in bf16"));
    EXPECT_THAT(said(R"(, "torch_dtype": "float16")"),
                HasSubstr("torch_dtype is float16: planned in bf16"));
    EXPECT_THAT(said(R"(, "torch_dtype": "bfloat16")"), Not(HasSubstr("planned in")));
    EXPECT_THAT(said(R"(, "torch_dtype": "float32")", {"--precision", "bf16"}),
                Not(HasSubstr("planned in")));
    EXPECT_THAT(said(R"(, "torch_dtype": "bfloat16", "quantization_config":
                        {"quant_method": "fp8"})"),
                AllOf(HasSubstr("the quantization of the published weights (fp8) is ignored: "
                                "planned in bf16"),
                      HasSubstr("the executor trains only models without it")));
}

TEST_F(PlanOfModel, KnowsTheBestOfEveryShape) {
    const Outcome outcome = pipetwin(question({"--json"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto result = nlohmann::json::parse(outcome.out);
    const auto& shapes = result["answer"]["shapes"];
    std::vector<std::array<int, 3>> seen;
    double before = 0;
    for (const auto& plan : shapes) {
        const std::array<int, 3> shape{
            plan["stages"], plan["data_parallel"], plan["tensor_parallel"]};
        EXPECT_EQ(shape[0] * shape[1] * shape[2], 8);
        EXPECT_EQ(std::ranges::count(seen, shape), 0);
        seen.push_back(shape);
        EXPECT_GE(plan["step_ms"].get<double>(), before);
        before = plan["step_ms"];
    }
    // 8 = stages x replicas x devices of a layer, each a power of two.
    EXPECT_EQ(shapes.size(), 10U);
    EXPECT_EQ(shapes[0]["step_ms"], result["best"]["step_ms"]);
    // The table of the fastest plans lacked plans that the one of shapes has.
    std::vector<double> listed;
    for (const auto& plan : result["candidates"]) {
        listed.push_back(plan["step_ms"]);
    }
    EXPECT_TRUE(std::ranges::is_sorted(listed));
    for (const auto& plan : shapes) {
        const double step = plan["step_ms"];
        EXPECT_TRUE(step > listed.back() || std::ranges::count(listed, step) > 0) << step;
    }
    // The fastest plan of all is on the front of time and memory.
    EXPECT_EQ(result["answer"]["front"][0], 0);
}

TEST_F(PlanOfModel, SaysTheAnswerFirst) {
    const Outcome outcome = pipetwin(question());
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(
        outcome.out,
        AllOf(StartsWith("gpt2-1.5b on 8 x h100-sxm (1 node of 8x-h100-sxm), 65,536 tokens "
                         "per step (64 samples of 1,024)\n"
                         // 1,557,611,200: Radford et al., table 2.
                         "1.6 billion parameters, 48 blocks, 25 heads\n"),
              HasSubstr("The answer\n"),
              HasSubstr(" tokens/s, "),
              HasSubstr("% MFU as Megatron-LM counts: FLOPs of the model's matrix products "),
              HasSubstr("this close to their estimates\n"),  // on H100s
              HasSubstr("--tokens N, such as 15T"),
              HasSubstr("not searched: context and expert parallelism; naive"),
              Not(HasSubstr("warning: less than 5 % is left")),
              HasSubstr("The best plan of every shape\n"),
              HasSubstr("Memory against time\n"),
              HasSubstr("What is proven\n")));
}

TEST_F(PlanOfModel, WritesAScenarioThatIsSimulatedAlike) {
    const Outcome planned = pipetwin(question({"--out", path("answer"), "--json"}));
    ASSERT_EQ(planned.code, 0) << planned.err;
    const Outcome simulated =
        pipetwin({"simulate", path("answer/scenario.toml"), "--json", "--quiet"});
    ASSERT_EQ(simulated.code, 0) << simulated.err;
    EXPECT_EQ(nlohmann::json::parse(simulated.out)["step_ms"],
              nlohmann::json::parse(planned.out)["best"]["step_ms"]);
}

TEST_F(PlanOfModel, WritesWhatOtherSystemsReadOrSaysWhyNot) {
    const Outcome planned = pipetwin(question({"--out",
                                               path("answer"),
                                               "--whole-blocks",
                                               "--set",
                                               "pipeline.stages=4",
                                               "--set",
                                               "pipeline.schedule=1f1b",
                                               "--json"}));
    ASSERT_EQ(planned.code, 0) << planned.err;
    const auto result = planned.json();
    for (const auto& one : result["answer"]["written"]["exports"]) {
        EXPECT_EQ(one["why_not"], nullptr) << one;
    }
    // GPT-2 XL: 48 blocks of 1600 with 25 heads (Radford et al. 2019).
    EXPECT_THAT(content_of(path("answer/megatron-flags.txt")),
                AllOf(HasSubstr("--num-layers 48 --hidden-size 1600"),
                      HasSubstr("--num-attention-heads 25"),
                      HasSubstr("--seq-length 1024"),
                      HasSubstr("--pipeline-model-parallel-size 4"),
                      HasSubstr("--global-batch-size 64")));
    // What the flags say is read back as the plan that was written.
    ASSERT_EQ(pipetwin({"import",
                        "megatron",
                        path("answer/megatron-flags.txt"),
                        "--out",
                        path("back.toml"),
                        "--quiet"})
                  .code,
              0);
    const std::string back = content_of(path("back.toml"));
    const auto& best = result["best"];
    EXPECT_THAT(back, HasSubstr("stages = 4"));
    EXPECT_THAT(back,
                HasSubstr("micro_batches = " + std::to_string(best["micro_batches"].get<int>() *
                                                              best["data_parallel"].get<int>())));
    const auto modules = nlohmann::json::parse(content_of(path("answer/torchtitan.json")));
    EXPECT_EQ(modules.size(), 4U);
}

// A profile has no sizes of a model; the folder's export once lacked them.
TEST_F(PlanOfModel, WritesAFolderWhoseExportIsWhatWasWritten) {
    ASSERT_EQ(pipetwin(question({"--out",
                                 path("answer"),
                                 "--whole-blocks",
                                 "--set",
                                 "pipeline.stages=4",
                                 "--schedule",
                                 "1f1b"}))
                  .code,
              0);
    const std::string flags = content_of(path("answer/megatron-flags.txt"));
    EXPECT_THAT(flags, HasSubstr("--hidden-size 1600"));
    for (const std::string& source : {path("answer"), path("answer/scenario.toml")}) {
        const Outcome exported =
            pipetwin({"export", "megatron-flags", source, "--out", path("flags.txt"), "--force"});
        ASSERT_EQ(exported.code, 0) << exported.err;
        // The four ranks are stages; replicas and tensor parallelism take the rest of the node.
        EXPECT_THAT(exported.out, HasSubstr("4 ranks, 4 stages, on 8 devices"));
        EXPECT_EQ(content_of(path("flags.txt")), flags) << source;
    }
}

/// Qwen2.5 0.5B as its publisher describes it: a Llama but for biases of queries, keys and values.
/// The flags once lacked all sizes of families that this program does not train.
TEST_F(PlanOfModel, WritesFlagsWithTheSizesOfAnyFamily) {
    const std::string config = file("config.json", R"json({"model_type": "qwen2",
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
        "use_sliding_window": false, "hidden_act": "silu", "tie_word_embeddings": true,
        "torch_dtype": "bfloat16"})json");
    const Outcome planned = pipetwin(
        question_of(config,
                    "8x-h100-sxm",
                    {"--out", path("answer"), "--whole-blocks", "--set", "pipeline.stages=2"}));
    ASSERT_EQ(planned.code, 0) << planned.err;
    const std::string flags = content_of(path("answer/megatron-flags.txt"));
    for (const char* flag : {"--num-layers 24 ",
                             "--hidden-size 896 ",
                             "--ffn-hidden-size 4864 ",
                             "--num-attention-heads 14 ",
                             "--num-query-groups 2 ",
                             "--kv-channels 64 ",
                             "--seq-length 1024 ",
                             "--vocab-size 151936 ",
                             "--pipeline-model-parallel-size 2 ",
                             "--group-query-attention",
                             "--swiglu",
                             "--disable-bias-linear",
                             "--add-qkv-bias",
                             "--normalization RMSNorm",
                             "--position-embedding-type rope",
                             "--rotary-base 1000000",
                             "--norm-epsilon 1e-06"}) {
        EXPECT_THAT(flags, HasSubstr(flag));
    }
    EXPECT_THAT(flags, Not(HasSubstr("--untie-embeddings-and-output-weights")));
    EXPECT_THAT(planned.out, Not(HasSubstr("Megatron-LM has no flag")));
    ASSERT_EQ(
        pipetwin(
            {"export", "megatron-flags", path("answer"), "--out", path("flags.txt"), "--quiet"})
            .code,
        0);
    EXPECT_EQ(content_of(path("flags.txt")), flags);
    // Qwen/Qwen2.5-0.5B on Hugging Face: 494,032,768 parameters. Megatron pads the vocabulary.
    const Outcome read = pipetwin({"import",
                                   "megatron",
                                   path("answer/megatron-flags.txt"),
                                   "--device",
                                   "h100-sxm",
                                   "--out",
                                   path("back.toml")});
    ASSERT_EQ(read.code, 0) << read.err;
    if (flags.find("--tensor-model-parallel-size 1 ") != std::string::npos) {
        EXPECT_THAT(read.out, HasSubstr("494,032,768 parameters"));
    }
    // Another model's config.json in the folder is refused, and no flags of it are written.
    file("answer/model.config.json", R"json({"model_type": "llama", "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 128})json");
    const Outcome other = pipetwin(
        {"export", "megatron-flags", path("answer"), "--out", path("other.txt"), "--quiet"});
    EXPECT_EQ(other.code, 3);
    EXPECT_THAT(other.err, HasSubstr("model.config.json: 2 blocks, but the plan has 24"));
}

/// Scenarios have no fp16: the flags of a plan in fp16 said --bf16 once. Megatron sums gradients of
/// bf16 in fp32 by default, those of fp16 in fp16 (megatron/training/arguments.py).
TEST_F(PlanOfModel, ExportsTheNumberTypeOfTheCosts) {
    const std::string folder = path("answer");
    const auto planned = [&](const std::string& precision) {
        return pipetwin(question({"--out", folder, "--force", "--precision", precision}));
    };
    const auto flags = [&] { return content_of(folder + "/megatron-flags.txt"); };
    ASSERT_EQ(planned("bf16").code, 0);
    EXPECT_THAT(flags(), AllOf(HasSubstr("--bf16"), Not(HasSubstr("fp16"))));
    const Outcome half = planned("fp16");
    ASSERT_EQ(half.code, 0) << half.err;
    EXPECT_THAT(flags(),
                AllOf(HasSubstr("--fp16"),
                      HasSubstr("--accumulate-allreduce-grads-in-fp32"),
                      Not(HasSubstr("--bf16"))));
    EXPECT_THAT(half.out, HasSubstr("warning: costs in fp16: torchtitan trains in bf16"));
    const Outcome narrow = pipetwin(question(
        {"--out", folder, "--force", "--precision", "fp16", "--set", "training.gradients=same"}));
    ASSERT_EQ(narrow.code, 0) << narrow.err;
    EXPECT_THAT(flags(), AllOf(HasSubstr("--fp16"), Not(HasSubstr("grads-in-fp32"))));
    const Outcome eighth = planned("fp8");
    ASSERT_EQ(eighth.code, 0) << eighth.err;
    EXPECT_THAT(flags(), AllOf(HasSubstr("--bf16"), HasSubstr("--fp8-format hybrid\n")));
    EXPECT_THAT(eighth.out, HasSubstr("model.converters = [\"float8\"]"));
}

/// A row of the picture is a rank; with tensor parallelism it stands for several devices.
TEST_F(PlanOfModel, PicturesNameTheDevicesOfARank) {
    const std::string folder = path("answer");
    ASSERT_EQ(pipetwin(question({"--out",
                                 folder,
                                 "--set",
                                 "pipeline.stages=2",
                                 "--set",
                                 "pipeline.tensor_parallel=2",
                                 "--schedule",
                                 "1f1b"}))
                  .code,
              0);
    for (const std::string& source : {folder, folder + "/scenario.toml"}) {
        const Outcome exported =
            pipetwin({"export", "svg", source, "--out", path("plan.svg"), "--force"});
        ASSERT_EQ(exported.code, 0) << exported.err;
        EXPECT_THAT(exported.out, HasSubstr("2 ranks, 2 stages, on 8 devices"));
        EXPECT_THAT(content_of(path("plan.svg")),
                    HasSubstr("replica 0 of 0 and 1, 2 devices per rank"));
    }
    ASSERT_EQ(pipetwin({"sweep", folder + "/scenario.toml", "--svg", path("all.svg")}).code, 0);
    EXPECT_THAT(content_of(path("all.svg")), HasSubstr("one of 2 replicas, 2 devices per rank"));
}

TEST_F(PlanOfModel, CountsALengthInThousandsOf1024) {
    const auto tokens = [](const std::string& sequence) {
        return pipetwin({"plan",
                         "llama-3.2-1b",
                         "--cluster",
                         "8x-h100-sxm",
                         "--sequence",
                         sequence,
                         "--batch-tokens",
                         "64k",
                         "--schedule",
                         "1f1b",
                         "--json",
                         "--quiet"})
            .json()["answer"]["tokens_per_step"];
    };
    EXPECT_EQ(tokens("2k"), 65'536);
    EXPECT_EQ(tokens("2k"), tokens("2048"));
}

// A folder that was planned again must not keep the exports of the plan before.
TEST_F(PlanOfModel, LeavesNoExportsOfAnEarlierPlan) {
    const std::string folder = path("answer");
    ASSERT_EQ(pipetwin(question({"--out", folder, "--set", "pipeline.stages=1"})).code, 0);
    ASSERT_TRUE(std::filesystem::exists(folder + "/torchtitan.json"));
    const Outcome cut = pipetwin(question({"--out",
                                           folder,
                                           "--force",
                                           "--json",
                                           "--set",
                                           "pipeline.stages=2",
                                           "--set",
                                           "pipeline.partition=[2,96]",
                                           "--set",
                                           "pipeline.schedule=1f1b"}));
    ASSERT_EQ(cut.code, 0) << cut.err;
    // Two layers are the embedding and an attention half: no whole blocks.
    EXPECT_THAT(cut.json()["answer"]["written"]["exports"][1]["why_not"].get<std::string>(),
                HasSubstr("does not cut a block in two"));
    EXPECT_FALSE(std::filesystem::exists(folder + "/torchtitan.json"));
    EXPECT_FALSE(std::filesystem::exists(folder + "/megatron-flags.txt"));
}

TEST_F(PlanOfModel, WritesAFolderThatMayBeMoved) {
    const Outcome planned = pipetwin(question({"--out", path("before"), "--json"}));
    ASSERT_EQ(planned.code, 0) << planned.err;
    std::filesystem::rename(path("before"), path("after"));
    const Outcome simulated =
        pipetwin({"simulate", path("after/scenario.toml"), "--json", "--quiet"});
    ASSERT_EQ(simulated.code, 0) << simulated.err;
    const auto best = planned.json()["best"];
    const auto again = simulated.json();
    for (const char* key : {"step_ms", "bubble", "devices", "model_flops_utilisation"}) {
        EXPECT_EQ(again[key], best[key]) << key;
    }
    EXPECT_EQ(pipetwin({"check", path("after/scenario.toml"), "--quiet"}).code, 0);
}

TEST_F(PlanOfModel, WarnsWhereLessThanOneTwentiethOfTheMemoryIsLeft) {
    const auto best = pipetwin(question({"--json"})).json()["best"];
    std::int64_t peak = 0;
    for (const auto& device : best["devices"]) {
        peak = std::max(peak, device["peak_bytes"]["total"].get<std::int64_t>());
    }
    // The plan fits into what it needs and 1 % more, so it stays the fastest.
    const std::string limit =
        "cluster.memory_limit=\"" + std::to_string(peak + peak / 100) + " B\"";
    const char* const no_reserve = "cluster.allocator_reserve=0";
    const Outcome narrow = pipetwin(question({"--set", limit, "--set", no_reserve}));
    ASSERT_EQ(narrow.code, 0) << narrow.err;
    EXPECT_THAT(narrow.out,
                AllOf(HasSubstr("1.0 % is left"),
                      HasSubstr("warning: less than 5 % is left, and fragmentation")));
    // The plan with more room is the first of the listed ones that leaves a twentieth.
    const auto answer =
        pipetwin(question({"--set", limit, "--set", no_reserve, "--json"})).json()["answer"];
    const double memory = static_cast<double>(peak + peak / 100);
    const double fastest = answer["shapes"][0]["step_ms"];
    std::string expected;
    for (const auto& plan : answer["shapes"]) {
        const double left = 1 - plan["peak_bytes"].get<double>() / memory;
        if (left >= 0.05) {
            expected = fmt::format("{}x{}x{}{} is {:.2f} % slower and leaves",
                                   plan["stages"].get<int>(),
                                   plan["data_parallel"].get<int>(),
                                   plan["tensor_parallel"].get<int>(),
                                   plan["sequence_parallel"] == true ? "s" : "",
                                   100 * (plan["step_ms"].get<double>() / fastest - 1));
            break;
        }
    }
    ASSERT_NE(expected, "");
    EXPECT_THAT(in_one_line(narrow.out), HasSubstr(expected));
    // What is reserved for the allocator is not warned of a second time.
    const std::string reserved =
        "cluster.memory_limit=\"" + std::to_string(peak + peak / 50) + " B\"";
    const Outcome with_reserve =
        pipetwin(question({"--set", reserved, "--set", "cluster.allocator_reserve=1"}));
    ASSERT_EQ(with_reserve.code, 0) << with_reserve.err;
    EXPECT_THAT(
        with_reserve.out,
        AllOf(HasSubstr("warning: less than 5 % is left; "), Not(HasSubstr("fragmentation"))));
}

// A weight takes 16 bytes: weight and gradient in bf16, master copy and two moments in fp32. With
// an fp32 gradient it takes 18. The model has 1.56 billion weights, and a node has 8 GiB.
TEST_F(PlanOfModel, NamesTheModelWhereNothingFits) {
    const Outcome none = pipetwin(question({"--set", "cluster.memory_limit=\"1 GiB\""}));
    EXPECT_EQ(none.code, 4);
    EXPECT_THAT(none.err,
                AllOf(StartsWith("error: gpt2-1.5b: on 8 x h100-sxm none of "),
                      HasSubstr("weights, gradients and optimizer state alone need at least 3;")));
    EXPECT_THAT(
        pipetwin(
            question(
                {"--set", "cluster.memory_limit=\"1 GiB\"", "--set", "training.gradients=fp32"}))
            .err,
        HasSubstr("weights, gradients and optimizer state alone need at least 4;"));
}

// The hint named the nodes that hold the state alone, and with them no plan fitted either.
TEST_F(PlanOfModel, NamesNodesOnWhichAPlanFits) {
    const auto with = [](const std::string& nodes) {
        return pipetwin(question(
            {"--set", "cluster.memory_limit=\"2.5 GiB\"", "--schedule", "1f1b", "--nodes", nodes}));
    };
    const Outcome none = with("1");
    ASSERT_EQ(none.code, 4);
    const std::size_t option = none.err.find("(--nodes ");
    ASSERT_NE(option, std::string::npos) << none.err;
    const int enough = std::stoi(none.err.substr(option + std::string("(--nodes ").size()));
    EXPECT_EQ(with(std::to_string(enough)).code, 0);
    EXPECT_EQ(with(std::to_string(enough - 1)).code, 4);
    EXPECT_EQ(enough, 3);  // 1.56e9 * 18 bytes fit into 16 times 2.5 GiB, with activations not
}

TEST_F(PlanOfModel, NamesTheNetworkThatIsMissingWhereNothingFits) {
    const Outcome none = pipetwin(question_of(
        "gpt2-1.5b", "8x-rtx-4090", {"--nodes", "2", "--set", "cluster.memory_limit=\"2.5 GiB\""}));
    EXPECT_EQ(none.code, 4);
    EXPECT_THAT(none.err,
                HasSubstr("hint: name the network between the nodes, as in --set "
                          "cluster.node_link=ethernet-25"));
}

TEST_F(PlanOfModel, ANodeOfAFileHasAsManyDevicesAsShareIt) {
    const std::string node = file(
        "node.toml", "[cluster]\ndevice = \"mi300x\"\nper_node = 4\nnode_link = \"ethernet-25\"\n");
    const Outcome two = pipetwin(question_of("gpt2-1.5b", node, {"--nodes", "2", "--json"}));
    ASSERT_EQ(two.code, 0) << two.err;
    EXPECT_EQ(nlohmann::json::parse(two.out)["answer"]["devices"], 8);
}

TEST_F(PlanOfModel, WarnsThatExpertsHaveNoDevicesOfTheirOwn) {
    const std::string config =
        file("config.json",
             R"({"model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 2048,
            "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
            "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
            "max_position_embeddings": 32768, "torch_dtype": "bfloat16"})");
    const Outcome outcome =
        pipetwin(question_of(config, "8x-h100-sxm", {"--set", "pipeline.expert_parallel=1"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out,
                AllOf(HasSubstr("warning: expert parallelism is not searched"),
                      HasSubstr("probably between")));
    const Outcome open = pipetwin(question_of(config, "8x-h100-sxm", {}));
    EXPECT_THAT(open.out, Not(HasSubstr("expert parallelism is not searched")));
}

TEST_F(PlanOfModel, TakesKeysOfAScenarioAndCostsOfAModel) {
    const Outcome fixed = pipetwin(question({"--json", "--set", "pipeline.stages=4"}));
    ASSERT_EQ(fixed.code, 0) << fixed.err;
    for (const auto& plan : nlohmann::json::parse(fixed.out)["answer"]["shapes"]) {
        EXPECT_EQ(plan["stages"], 4);
    }
    const std::string costs = path("own.profile.json");
    ASSERT_EQ(pipetwin({"import",
                        "hf",
                        "gpt2-1.5b",
                        "--device",
                        "h100-sxm",
                        "--sequence",
                        "1024",
                        "--micro-batch-size",
                        "1",
                        "--precision",
                        "bf16",
                        "--out",
                        costs})
                  .code,
              0);
    const Outcome own = pipetwin({"plan",
                                  costs,
                                  "--cluster",
                                  "8x-h100-sxm",
                                  "--batch-tokens",
                                  "64k",
                                  "--set",
                                  "pipeline.chunks=1",
                                  "--json",
                                  "--quiet"});
    ASSERT_EQ(own.code, 0) << own.err;
    EXPECT_EQ(nlohmann::json::parse(own.out)["step_ms"],
              nlohmann::json::parse(pipetwin(question({"--json"})).out)["step_ms"]);
}

// On this device both types have the same bytes and rates. Gradients are summed in bf16 where the
// stack does so, and never in fp16.
TEST_F(PlanOfModel, PlansInFp16AsInBf16) {
    const Outcome half = pipetwin(question({"--precision", "fp16", "--json"}));
    ASSERT_EQ(half.code, 0) << half.err;
    const Outcome whole = pipetwin(question({"--set", "training.gradients=fp32", "--json"}));
    EXPECT_EQ(nlohmann::json::parse(half.out)["best"]["step_ms"],
              nlohmann::json::parse(whole.out)["best"]["step_ms"]);
}

TEST_F(PlanOfModel, RefusesWhatIsNoQuestion) {
    struct Case {
        std::vector<std::string> args;
        int code;
        std::string text;
    };
    const std::string scenario = file("s.toml", "[model]\nkind = \"mlp\"\nsizes = [4, 2]\n");
    for (const Case& one : std::vector<Case>{
             {{"plan", "gpt2-1.5b"}, 2, "is a model, not a scenario, and --cluster is missing"},
             {{"plan", "gpt2-1.5b"}, 2, "known: 8x-a100-sxm-80, "},
             {{"plan", scenario, "--cluster", "8x-h100-sxm"}, 2, "goes with a model"},
             {{"plan", scenario, "--nodes", "2"}, 2, "--cluster"},
             {{"plan", "gpt2-1.6b", "--cluster", "8x-h100-sxm"}, 3, "gpt2-1.5b"},
             {{"plan", "gpt2-1.5b", "--cluster", "8x-h100"}, 3, "8x-h100-sxm"},
             {question({"--batch-tokens", "many"}), 2, "--batch-tokens"},
             {question({"--price", "2"}), 2, "--tokens"},
             {question({"--precision", "bf17"}), 2, "bf16"}}) {
        const Outcome outcome = pipetwin(one.args);
        EXPECT_EQ(outcome.code, one.code) << one.args[1] << ": " << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(one.text));
    }
}

}  // namespace plan_of_model_test
}  // namespace pipetwin::cli
