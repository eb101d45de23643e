// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/interop/import/megatron_import.h"

namespace pipetwin::cli {
namespace logs_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// What a small run in four stages prints: its arguments, and two steps.
constexpr std::string_view log_of_a_run =
    "using world size: 8, data-parallel size: 2, pipeline-model-parallel size: 4\n"
    "------------------------ arguments ------------------------\n"
    "  bf16 ............................................ True\n"
    "  ffn_hidden_size ................................. 2048\n"
    "  global_batch_size ............................... 64\n"
    "  hidden_size ..................................... 512\n"
    "  micro_batch_size ................................ 1\n"
    "  num_attention_heads ............................. 8\n"
    "  num_layers ...................................... 24\n"
    "  num_layers_per_virtual_pipeline_stage ........... None\n"
    "  padded_vocab_size ............................... 32000\n"
    "  pipeline_model_parallel_size .................... 4\n"
    "  seq_length ...................................... 1024\n"
    "  tensor_model_parallel_size ...................... 1\n"
    "  world_size ...................................... 8\n"
    "-------------------- end of arguments ---------------------\n";

constexpr std::string_view steps_of_a_run =
    " iteration 2/ 100 | elapsed time per iteration (ms): 812.4 | global batch size: 64 |\n"
    " iteration 3/ 100 | elapsed time per iteration (ms): 809.9 | global batch size: 64 |\n";

TEST_F(ImportMegatron, ALogIsAScenarioAndARowOfIt) {
    const std::string log = std::string(log_of_a_run) + std::string(steps_of_a_run);
    const Outcome outcome = import(log, {"--rows-out", path("rows.json")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("a measured step took 809.9 ms: the median of 1 report"));
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("vocabulary = 32000\n"),
                      HasSubstr("micro_batches = 32\ndata_parallel = 2\n"),
                      HasSubstr("partition = [6, 6, 6, 6]")));
    const nlohmann::json rows = nlohmann::json::parse(content_of(path("rows.json")));
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_DOUBLE_EQ(rows[0]["step_seconds"].get<double>(), 0.8099);
    EXPECT_EQ(rows[0]["pipeline.stages"], 4);
    EXPECT_EQ(rows[0]["pipeline.partition"], nlohmann::json::parse("[6, 6, 6, 6]"));
    EXPECT_EQ(rows[0]["training.precision"], "bf16");
}

/// ms-swift saves all arguments, those of other kinds of training among them.
TEST_F(ImportMegatron, SavedArgumentsOfSwiftAreFlags) {
    const auto import_json = [this](const std::string& more) {
        return pipetwin({"import",
                         "auto",
                         file("args.json",
                              R"({"model": "Qwen/Qwen3-8B", "tuner_type": "full", "lora_rank": 8,
                                  "tensor_model_parallel_size": 2, "max_length": 4096,
                                  "pipeline_model_parallel_size": 2, "micro_batch_size": 1,
                                  "global_batch_size": 16, "vllm_tensor_parallel_size": 1,
                                  "bf16": true, "sequence_parallel": true, "report_to": []
                                  )" +
                                  more + "}"),
                         "--force",
                         "--device",
                         "h100-sxm",
                         "--out",
                         path("x.toml")});
    };
    const Outcome outcome = import_json(R"(, "rlhf_type": null)");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("read as by 'import swift'"));
    // Qwen3 8B has 8,190,735,360 parameters with a vocabulary of 151,936. With two tensor-parallel
    // devices Megatron-LM pads that to 152,064, a multiple of 256: embedding and head gain 128 rows
    // of 4,096 each.
    EXPECT_THAT(outcome.out, HasSubstr("8,191,783,936 parameters"));
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("stages = 2\n"), HasSubstr("tensor_parallel = 2\n")));
    EXPECT_EQ(import_json(R"(, "freeze_parameters_ratio": 0.5)").code, 3);
    EXPECT_EQ(import_json(R"(, "task_type": "seq_cls")").code, 3);
    EXPECT_EQ(import_json(R"(, "global_world_size": 8, "seq_length": 4096)").code, 0);
    EXPECT_EQ(import_json(R"(, "global_world_size": 0)").code, 3);
    const Outcome adapters = import_json(R"(, "train_type": "lora")");
    EXPECT_EQ(adapters.code, 3);
    EXPECT_THAT(adapters.err, HasSubstr("both keys mean the same"));
    const Outcome compared = import_json(R"(, "rlhf_type": "dpo", "beta": 0.1)");
    EXPECT_EQ(compared.code, 3);
    EXPECT_THAT(compared.err, HasSubstr("rlhf_type"));
}

/// One command from the log to costs, and the prediction takes the row.
TEST_F(ImportMegatron, TheRowOfALogCalibratesItsScenario) {
    const std::string log = std::string(log_of_a_run) + std::string(steps_of_a_run);
    ASSERT_EQ(import(log, {"--device", "h100-sxm", "--rows-out", path("rows.json")}).code, 0);
    const Outcome outcome = pipetwin({"simulate",
                                      path("x.toml"),
                                      "--set",
                                      between_nodes,
                                      "--set",
                                      "cluster.per_node=8",
                                      "--set",
                                      "cluster.link=nvlink-4",
                                      "--calibrate",
                                      path("rows.json"),
                                      "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NEAR(outcome.json()["step_ms"].get<double>(), 809.9, 809.9 * 0.02);
}

TEST_F(ImportMegatron, RowsNeedALogWithSteps) {
    const Outcome none = import(log_of_a_run, {"--rows-out", path("rows.json")});
    EXPECT_EQ(none.code, 3);
    EXPECT_THAT(none.err,
                AllOf(HasSubstr("no line with a measured step"),
                      HasSubstr("'elapsed time per iteration (ms)'")));
    EXPECT_EQ(import("--num-layers 8", {"--rows-out", path("rows.json")}).code, 3);
    const std::string other = std::string(log_of_a_run) +
                              " iteration 9/ 100 | elapsed time per iteration (ms): 812.4 | global "
                              "batch size: 32 |\n";
    EXPECT_THAT(import(other, {"--rows-out", path("rows.json")}).err,
                HasSubstr("no step of 64 samples among the 1"));
}

/// The first report of a run has what is done once at its start.
TEST_F(ImportMegatron, RowsNeedAReportBehindTheFirst) {
    const std::string log =
        std::string(log_of_a_run) +
        " iteration 2/ 100 | elapsed time per iteration (ms): 812.4 | global batch size: 64 |\n";
    EXPECT_THAT(import(log).err, HasSubstr("with what a run does once at its start"));
    const Outcome refused = import(log, {"--rows-out", path("rows.json")});
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err, HasSubstr("no report behind the first"));
}

TEST_F(ImportMegatron, ARowIsNotOfAnotherRunThanTheLogs) {
    std::string log = std::string(log_of_a_run) + std::string(steps_of_a_run);
    log.insert(log.find("  ffn_hidden_size"),
               "  post_norm ....................................... True\n");
    EXPECT_EQ(import(log, {"--insist"}).code, 0);
    const Outcome refused = import(log, {"--insist", "--force", "--rows-out", path("rows.json")});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("of another run than the log's"));
}

/// Losses stand beside the answer and in the row, which calibrates as one without them.
TEST_F(ImportMegatron, LossesOfALogAreInItsAnswerAndItsRow) {
    const auto step = [](int iteration, std::string_view rest) {
        return fmt::format(
            " iteration {}/ 100 | elapsed time per iteration (ms): 810.0 | global batch size: 64 | "
            "{} |\n",
            iteration,
            rest);
    };
    std::string log(log_of_a_run);
    for (const int iteration : {1, 2, 3, 4, 5}) {
        log += step(iteration, "lm loss: 9.500000E+00");
    }
    log += step(6, "lm loss: 1.300000E+01") + step(7, "grad norm: nan") +
           step(8, "lm loss: 8.250000E+00");
    const Outcome outcome =
        import(log, {"--device", "h100-sxm", "--json", "--rows-out", path("rows.json")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const nlohmann::json loss = outcome.json()["log"]["loss"];
    EXPECT_EQ(loss["reports"], 8);
    EXPECT_EQ(loss["first"]["loss"], 9.5);
    EXPECT_EQ(loss["first"]["iteration"], 1);
    EXPECT_EQ(loss["last"]["loss"], 8.25);
    EXPECT_EQ(loss["last"]["iteration"], 8);
    EXPECT_EQ(loss["not_finite"], 1);
    EXPECT_EQ(loss["first_not_finite"]["iteration"], 7);
    EXPECT_EQ(loss["spike"]["loss"], 13);
    EXPECT_EQ(loss["spike"]["median_before"], 9.5);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("the loss is 9.5 at iteration 1, 8.25 at iteration 8 (8 reports)"),
                      HasSubstr("warning: the loss is no number in 1 of 8 reports, the first at "
                                "iteration 7"),
                      HasSubstr("warning: the loss rises to 13 at iteration 6")));
    const nlohmann::json row = nlohmann::json::parse(content_of(path("rows.json")))[0];
    EXPECT_EQ(row["first_loss"], 9.5);
    EXPECT_EQ(row["last_loss"], 8.25);
    EXPECT_THAT(row["comment"].get<std::string>(), HasSubstr("no number in 1 of 8 reports"));
    EXPECT_THAT(import(log, {"--device", "h100-sxm"}).out,
                HasSubstr("loss: 9.5 at iteration 1, 8.25 at iteration 8 (8 reports)\n"));
    const Outcome calibrated =
        pipetwin({"simulate", path("x.toml"), "--calibrate", path("rows.json"), "--json"});
    ASSERT_EQ(calibrated.code, 0) << calibrated.err;
    EXPECT_NEAR(calibrated.json()["step_ms"].get<double>(), 810, 810 * 0.02);
    EXPECT_TRUE(outcome.json()["log"].contains("loss"));
    const Outcome silent = import(std::string(log_of_a_run) + std::string(steps_of_a_run),
                                  {"--device", "h100-sxm", "--json"});
    EXPECT_TRUE(silent.json()["log"]["loss"].is_null()) << silent.out;
}

/// A row has the settings of a run, and without the number of devices it has no replicas.
TEST_F(ImportMegatron, ARowNeedsTheNumberOfDevices) {
    const std::string flags =
        "pretrain_gpt.py --num-layers 24 --hidden-size 512 --num-attention-heads 8 --seq-length "
        "1024 --max-position-embeddings 1024 --vocab-size 32000 --pipeline-model-parallel-size 4 "
        "--micro-batch-size 1 --global-batch-size 64 --bf16";
    const std::string log = file("train.log", steps_of_a_run);
    const Outcome open = import(flags, {"--log", log, "--rows-out", path("rows.json")});
    EXPECT_EQ(open.code, 3);
    EXPECT_THAT(open.err,
                AllOf(HasSubstr("nothing says how many devices the run had"),
                      HasSubstr("add --devices N to the command")));
    EXPECT_EQ(import(flags, {"--log", log}).code, 0);
    const Outcome said =
        import(flags, {"--log", log, "--rows-out", path("rows.json"), "--devices", "8"});
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(nlohmann::json::parse(content_of(path("rows.json")))[0]["pipeline.data_parallel"], 2);
}

TEST_F(ImportMegatron, RowsGoIntoAFileOfTheirOwn) {
    const std::string log = std::string(log_of_a_run) + std::string(steps_of_a_run);
    for (const std::string& file : {path("x.toml"), path("x.profile.json"), std::string("-")}) {
        const Outcome refused = import(log, {"--rows-out", file});
        EXPECT_EQ(refused.code, 2) << file;
        EXPECT_THAT(refused.err, HasSubstr("--rows-out rows.json"));
    }
}

TEST_F(ImportMegatron, TheWordsOfATokenizerAreKnownOrAsked) {
    const std::string flags =
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 512 "
        "--num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 --swiglu "
        "--disable-bias-linear --pipeline-model-parallel-size 4 --micro-batch-size 1 "
        "--global-batch-size 64 --use-flash-attn --tokenizer-type HuggingFaceTokenizer ";
    const auto parameters = [&](const std::string& name, const std::vector<std::string>& more) {
        std::vector<std::string> options{"--device", "h100-sxm", "--json"};
        options.insert(options.end(), more.begin(), more.end());
        const Outcome outcome = import(flags + "--tokenizer-model " + name, options);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.code == 0 ? outcome.json()["parameters"].get<std::int64_t>() : 0;
    };
    const std::int64_t known = parameters("meta-llama/Llama-3.1-8B", {});
    EXPECT_EQ(known, parameters("my/tokenizer", {"--vocabulary", "128256"}));
    // 128256 is a multiple of 128: 512 numbers for each word that there is more.
    EXPECT_EQ(known - parameters("my/tokenizer", {"--vocabulary", "128128"}), 128 * 512);
    const Outcome asked = import(flags + "--tokenizer-model my/x", {"--device", "h100-sxm"});
    EXPECT_EQ(asked.code, 4);
    EXPECT_THAT(asked.err, HasSubstr("add --vocabulary N"));
    const Outcome open = import(flags + "--tokenizer-model my/x", {});
    EXPECT_EQ(open.code, 0);
    EXPECT_THAT(open.err, HasSubstr("--vocabulary N --out"));
    EXPECT_EQ(import(flags + "--vocab-size 1000", {"--vocabulary", "128"}).code, 2);
}

/// Qwen 2.5 7B, as its makers published it: 7,615,616,512 parameters.
TEST_F(ImportMegatron, ACommandOfSwiftNamesItsModel) {
    const std::string command =
        "NPROC_PER_NODE=4 \\\nmegatron pt --model Qwen/Qwen2.5-7B-Instruct "
        "--tensor_model_parallel_size 4 --micro_batch_size 1 --global_batch_size 16 "
        "--pipeline_model_parallel_size 1 --finetune true --sequence_parallel false "
        "--max_length 8192 --bf16 true ";
    const Outcome outcome = import(command, {"--device", "h100-sxm", "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["parameters"], 7'615'616'512);
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("tensor_parallel = 4\n"), Not(HasSubstr("sequence_parallel"))));
    EXPECT_EQ(import(command + "--tuner_type full").code, 0);
    EXPECT_EQ(import(command + "--tuner_type adalora").code, 3);
    const Outcome strange = import(
        "megatron pt --model my/model --micro_batch_size 1 "
        "--pipeline_model_parallel_size 2");
    EXPECT_EQ(strange.code, 0);
    EXPECT_THAT(strange.err, HasSubstr("--model my/model: its sizes are not known here"));
}

/// Without a length ms-swift takes samples of as many tokens as the model does: 40,960 of Qwen3 8B.
TEST_F(ImportMegatron, ACommandOfSwiftMayLeaveTheLengthToTheModel) {
    const std::string command =
        "megatron sft --micro_batch_size 1 --global_batch_size 16 --bf16 true "
        "--pipeline_model_parallel_size 1 --model ";
    const Outcome outcome = import(command + "Qwen/Qwen3-8B", {"--device", "h100-sxm"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("a sample has up to 40960 tokens, as qwen3-8b takes them"));
    EXPECT_EQ(nlohmann::json::parse(content_of(path("x.profile.json")))["tokens_per_sample"],
              40'960);
    // The releases of 2507 take more tokens than the first one.
    EXPECT_THAT(import(command + "Qwen/Qwen3-30B-A3B-Instruct-2507").err,
                HasSubstr("the sequence length is missing"));
}

/// Rank 8 beside the four products of a block of Qwen 2.5 7B, whose rows have 3,584 numbers:
/// 8 x (3,584 + 4,608), 8 x 2 x 3,584, 8 x (3,584 + 2 x 18,944) and 8 x (18,944 + 3,584), in 28
/// blocks.
TEST_F(ImportMegatron, ACommandOfSwiftTrainsAdapters) {
    const std::string command =
        "NPROC_PER_NODE=2 megatron sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type lora "
        "--lora_rank 8 --lora_alpha 32 --tensor_model_parallel_size 2 --micro_batch_size 1 "
        "--global_batch_size 16 --pipeline_model_parallel_size 1 --max_length 2048 --bf16 true ";
    const Outcome outcome =
        import(command + "--target_modules all-linear", {"--device", "h100-sxm"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("17,776,640 parameters are trained, of adapters of rank 8"));
    const nlohmann::json profile = nlohmann::json::parse(content_of(path("x.profile.json")));
    const nlohmann::json& block = profile["layers"][1];
    EXPECT_EQ(block["parameter_count"], 8 * (3584 + 4608 + 2 * 3584));
    EXPECT_EQ(profile["layers"][0]["frozen_bytes"], 2LL * 152'064 * 3584);
    const Outcome simulated = pipetwin({"simulate", path("x.toml"), "--json"});
    EXPECT_EQ(simulated.code, 0) << simulated.err;
    const Outcome exported =
        pipetwin({"export", "megatron-flags", path("x.toml"), "--out", path("flags")});
    EXPECT_THAT(exported.err, HasSubstr("costs of adapters"));
    EXPECT_NE(exported.code, 0);
    const Outcome some = import(command +
                                "--target_modules linear_qkv linear_proj "
                                "--modules_to_save word_embeddings output_layer");
    EXPECT_EQ(some.code, 0) << some.err;
    EXPECT_THAT(some.err, HasSubstr("of rank 8, embedding and head"));
    for (const std::string refused : {"--target_modules router",
                                      "--modules_to_save linear_fc1",
                                      "--use_megatron_fsdp true "
                                      "--data_parallel_sharding_strategy optim_grads_params",
                                      "--model my/model"}) {
        std::string text = command + refused;
        if (refused.starts_with("--model")) {
            text.replace(text.find("--model Qwen/Qwen2.5-7B-Instruct"), 32, "");
        }
        EXPECT_NE(import(text).code, 0) << refused;
    }
}

/// The option completes a file without a model.
TEST_F(ImportMegatron, AnOptionNamesTheModel) {
    const std::string split =
        "torchrun --nproc_per_node 8 pretrain_gpt.py --pipeline-model-parallel-size 4 "
        "--micro-batch-size 1 --global-batch-size 64 --seq-length 8192 --bf16 --use-flash-attn ";
    const Outcome outcome =
        import(split, {"--model", "llama-3-8b", "--device", "h100-sxm", "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["parameters"], 8'030'261'248);
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("partition = [8, 8, 8, 8]"));
}

/// Values that a script takes from its arguments or the environment are asked for by name.
TEST_F(ImportMegatron, ValuesFromOutsideAreAskedForAndGiven) {
    const std::string script =
        "#!/bin/bash\nMB=$3\nGLOBAL=$((16 * MB))\n"
        "OPTIONS=\" --micro-batch-size ${MB} --global-batch-size ${GLOBAL} --num-layers 24 "
        "--hidden-size 512 --num-attention-heads 8 --seq-length 1024 --vocab-size 32000 "
        "--max-position-embeddings 1024 --pipeline-model-parallel-size $STAGES\"\n"
        "torchrun --nproc_per_node 8 pretrain_gpt.py ${OPTIONS}\n";
    EXPECT_THAT(import(script, {"--variable", "STAGES=4"}).err, HasSubstr("--variable 3=VALUE"));
    EXPECT_THAT(import(script, {"--variable", "3=2"}).err, HasSubstr("--variable STAGES=VALUE"));
    const std::string text = fragment(script, {"--variable", "3=2", "--variable", "STAGES=4"});
    EXPECT_THAT(text,
                AllOf(HasSubstr("batch = 32\n"),
                      HasSubstr("stages = 4\n"),
                      HasSubstr("micro_batches = 8\ndata_parallel = 2\n")));
    EXPECT_THAT(fragment(script, {"--variable", "MB=1", "--variable", "STAGES=4"}),
                HasSubstr("batch = 16\n"));
    EXPECT_EQ(import(script, {"--variable", "NONE=1"}).code, 2);
    EXPECT_EQ(import(script, {"--variable", "STAGES"}).code, 2);
    const std::string yaml =
        "model:\n  num_layers: 8\n  pipeline_model_parallel_size: ${PP}\n"
        "  micro_batch_size: 1\n";
    EXPECT_EQ(import(yaml).code, 3);
    EXPECT_THAT(fragment(yaml, {"--variable", "PP=2"}), HasSubstr("stages = 2\n"));
    EXPECT_EQ(import(yaml, {"--variable", "P=2"}).code, 2);  // a part of the name
    EXPECT_EQ(import(yaml, {"--variable", "PP=2", "--variable", "PP=4"}).code, 2);
    const std::string otherwise =
        "model:\n  num_layers: 8\n  pipeline_model_parallel_size: ${PP:2}\n"
        "  micro_batch_size: 1\n";
    EXPECT_THAT(fragment(otherwise), HasSubstr("stages = 2\n"));
    EXPECT_THAT(fragment(otherwise, {"--variable", "PP=4"}), HasSubstr("stages = 4\n"));
}

TEST_F(ImportMegatron, AutoLooksAtTheContent) {
    const auto guess = [this](const std::string& name, std::string_view content) {
        return pipetwin(
            {"import", "auto", file(name, content), "--force", "--json", "--out", path("y.toml")});
    };
    const Outcome log = guess("a.log", std::string(10, '\n') + std::string(log_of_a_run));
    ASSERT_EQ(log.code, 0) << log.err;
    EXPECT_EQ(log.json()["format"], "megatron");
    EXPECT_THAT(log.err, HasSubstr("a log with the arguments that Megatron prints"));
    EXPECT_EQ(guess("l", "Et*3|t*2L\n").json()["format"], "megatron");
    EXPECT_EQ(guess("d.json", R"({"train_batch_size": 8, "gradient_accumulation_steps": 8})")
                  .json()["format"],
              "deepspeed");
    EXPECT_EQ(guess("t.toml", "[parallelism]\npipeline_parallel_degree = 2\n").json()["format"],
              "torchtitan");
    const Outcome strange = guess("s.txt", "what is this\n");
    EXPECT_EQ(strange.code, 3);
    EXPECT_THAT(strange.err, HasSubstr("name its format"));
    EXPECT_EQ(guess("p.toml", "[model]\nkind = \"gpt\"\n[pipeline]\nstages = 2\n").code, 3);
}

/// A small Llama as NeMo's launcher writes it.
constexpr std::string_view nemo_run =
    "run:\n  name: x\n"
    "trainer:\n  num_nodes: 2\n  devices: 8\n  precision: bf16\n  max_steps: 10\n"
    "  accumulate_grad_batches: 1\n  gradient_clip_val: 1.0\n"
    "model:\n  mcore_gpt: true\n  megatron_amp_O2: true\n  micro_batch_size: 1\n"
    "  global_batch_size: 64\n  tensor_model_parallel_size: 2\n"
    "  pipeline_model_parallel_size: 4\n  virtual_pipeline_model_parallel_size: null\n"
    "  sequence_parallel: true\n  encoder_seq_length: 1024\n"
    "  max_position_embeddings: ${.encoder_seq_length}\n  num_layers: 16\n  hidden_size: 512\n"
    "  ffn_hidden_size: ${multiply:4, ${.hidden_size}}\n  num_attention_heads: 8\n"
    "  hidden_dropout: 0\n  attention_dropout: 0\n  normalization: rmsnorm\n  bias: false\n"
    "  activation: fast-swiglu\n  position_embedding_type: rope\n"
    "  share_embeddings_and_output_weights: false\n  transformer_engine: true\n"
    "  override_vocab_size: 32000\n  fp8: false\n  fp8_hybrid: true\n"
    "  data:\n    seq_length: 1024\n    num_workers: 2\n"
    "  optim:\n    name: mcore_distributed_optim\n    lr: 1e-4\n    overlap_grad_sync: true\n";

/// A small Llama as nanotron has it.
constexpr std::string_view nanotron_run =
    "model:\n  dtype: bfloat16\n  model_config:\n    hidden_size: 512\n"
    "    intermediate_size: 2048\n    max_position_embeddings: 1024\n"
    "    num_attention_heads: 8\n    num_hidden_layers: 16\n    num_key_value_heads: 8\n"
    "    vocab_size: 32000\noptimizer:\n  accumulate_grad_in_fp32: true\n  zero_stage: 0\n"
    "tokens:\n  batch_accumulation_per_replica: 16\n  micro_batch_size: 2\n"
    "  sequence_length: 1024\nparallelism:\n  dp: 2\n  pp: 4\n  pp_engine: 1f1b\n  tp: 1\n";

TEST_F(ImportMegatron, NeMoIsAFormatOfItsOwn) {
    const auto nemo = [this](std::string_view content, const std::string& format = "nemo") {
        return pipetwin({"import",
                         format,
                         file("n.yaml", content),
                         "--device",
                         "h100-sxm",
                         "--json",
                         "--force",
                         "--out",
                         path("n.toml")});
    };
    const Outcome outcome = nemo(nemo_run);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    // By hand: 4 x 512^2 of attention, 3 x 512 x 2048, two norms; two matrices of 32000 x 512,
    // of which 32000 is padded to a multiple of 128 x 2, and a norm.
    EXPECT_EQ(outcome.json()["parameters"],
              16 * (4 * 512 * 512 + 3 * 512 * 2048 + 2 * 512) + 2 * 32'000 * 512 + 512);
    EXPECT_THAT(content_of(path("n.toml")),
                AllOf(HasSubstr("# nemo's configuration\n"),
                      HasSubstr("micro_batches = 32\ndata_parallel = 2\n"),
                      HasSubstr("tensor_parallel = 2\n"),
                      HasSubstr("sequence_parallel = true\n"),
                      HasSubstr("shard = \"optimizer\"\n"),
                      HasSubstr("overlap_reduction = true\n"),
                      HasSubstr("per_node = 8\n"),
                      HasSubstr("partition = [4, 4, 4, 4]")));
    EXPECT_EQ(nemo(nemo_run, "auto").json()["format"], "nemo");
    EXPECT_THAT(nemo(nemo_run, "megatron").err, HasSubstr("'pipetwin import nemo' reads it"));
    const std::string text(nemo_run);
    for (const auto& [old, other] :
         {std::pair{std::string("mcore_gpt: true"), "fsdp: true"},
          std::pair{std::string("megatron_amp_O2: true"), "megatron_amp_O2: false"}}) {
        std::string changed = text;
        changed.replace(changed.find(old), old.size(), other);
        EXPECT_EQ(nemo(changed).code, 3) << other;
    }
}

/// Lightning takes all devices that there are where the file has none: --devices says how many, and
/// without it nothing is predicted, and no number of nodes is written.
TEST_F(ImportMegatron, DevicesOfNeMoAreAskedWhereTheFileHasNone) {
    std::string open(nemo_run);
    open.replace(open.find("devices: 8"), 10, "devices: auto");
    const std::string log = file("nemo.log",
                                 "global_step=1, train_step_timing in s=9.0\n"
                                 "global_step=2, train_step_timing in s=0.5\n");
    const auto nemo = [&](std::string_view content, const std::vector<std::string>& more) {
        std::vector<std::string> words{"import",
                                       "nemo",
                                       file("n.yaml", content),
                                       "--device",
                                       "h100-sxm",
                                       "--force",
                                       "--out",
                                       path("n.toml")};
        words.insert(words.end(), more.begin(), more.end());
        return pipetwin(words);
    };
    const Outcome asked = nemo(open, {"--log", log});
    ASSERT_EQ(asked.code, 0) << asked.err;
    EXPECT_THAT(asked.err, HasSubstr("add --devices N to the command"));
    EXPECT_THAT(asked.out, Not(HasSubstr("predicted")));
    const Outcome known = nemo(open, {"--log", log, "--devices", "32"});
    ASSERT_EQ(known.code, 0) << known.err;
    EXPECT_THAT(known.out, HasSubstr("step: measured 500.000 ms, predicted "));
    EXPECT_THAT(content_of(path("n.toml")), HasSubstr("data_parallel = 4\n"));  // 32 / (4 x 2)
    EXPECT_EQ(nemo(nemo_run, {"--devices", "32"}).code, 3);
    EXPECT_EQ(nemo(nemo_run, {"--devices", "16"}).code, 0);
    const Outcome placed = nemo(open, {"--cluster", "8x-h100-sxm"});
    ASSERT_EQ(placed.code, 0) << placed.err;
    EXPECT_THAT(content_of(path("n.toml")),
                AllOf(HasSubstr("profile = \"8x-h100-sxm\"\n"), Not(HasSubstr("count = "))));
}

/// A profile that stands beside the result is kept, as the result itself is.
TEST_F(ImportMegatron, YamlProgramsKeepAProfileThatIsThere) {
    const auto import_run = [this](const std::string& format, const std::string& more) {
        std::vector<std::string> words{"import",
                                       format,
                                       file("n.yaml", format == "nemo" ? nemo_run : nanotron_run),
                                       "--device",
                                       "h100-sxm",
                                       "--out",
                                       path("n.toml")};
        if (!more.empty()) {
            words.push_back(more);
        }
        return pipetwin(words);
    };
    for (const std::string format : {"nemo", "nanotron"}) {
        std::filesystem::remove(path("n.toml"));
        file("n.profile.json", "mine");
        EXPECT_NE(import_run(format, "").code, 0) << format;
        EXPECT_EQ(content_of(path("n.profile.json")), "mine") << format;
        const Outcome forced = import_run(format, "--force");
        EXPECT_EQ(forced.code, 0) << forced.err;
        EXPECT_NE(content_of(path("n.profile.json")), "mine") << format;
    }
}

/// The words of errors and hints are those of the format, not Megatron's flags.
TEST_F(ImportMegatron, YamlProgramsHaveWordsOfTheirOwn) {
    const auto import_text = [this](const std::string& format, std::string_view content) {
        return pipetwin(
            {"import", format, file("n.yaml", content), "--force", "--out", path("n.toml")});
    };
    const std::string words = "  override_vocab_size: 32000\n";
    std::string wordless(nemo_run);
    wordless.replace(wordless.find(words), words.size(), "");
    EXPECT_THAT(import_text("nemo", nemo_run).err,
                HasSubstr(fmt::format("'pipetwin import nemo {} --device NAME --out {} --force'",
                                      path("n.yaml"),
                                      path("n.toml"))));
    const Outcome asked = import_text("nemo", wordless);
    EXPECT_EQ(asked.code, 0);
    EXPECT_THAT(asked.err,
                AllOf(HasSubstr("--device NAME --vocabulary N --out"),
                      HasSubstr("the number of words, which the tokenizer alone knows")));
    const Outcome split =
        import_text("nanotron",
                    "model:\n  dtype: float32\n  model_config:\n    hidden_size: 64\n"
                    "    num_hidden_layers: 2\ntokens:\n  micro_batch_size: 1\n");
    EXPECT_EQ(split.code, 0);
    EXPECT_THAT(split.err, HasSubstr("the number of attention heads, the sequence length are"));
    for (const Outcome& outcome : {asked, split}) {
        EXPECT_THAT(outcome.err,
                    AllOf(Not(HasSubstr("--vocab-size")),
                          Not(HasSubstr("--swiglu")),
                          Not(HasSubstr("--seq-length"))));
    }
}

TEST_F(ImportMegatron, FilesOfOtherProgramsAreRefusedByTheirNames) {
    const auto error_of = [this](const std::string& format, std::string_view content) {
        const Outcome outcome = pipetwin(
            {"import", format, file("n.yaml", content), "--force", "--out", path("n.toml")});
        EXPECT_EQ(outcome.code, 3) << format << ": " << content;
        return outcome.err;
    };
    for (const std::string_view nothing : {"", "# no keys\n", "version: 3\nname: x\n"}) {
        EXPECT_THAT(error_of("nemo", nothing), HasSubstr("no key of NeMo"));
        EXPECT_THAT(error_of("nanotron", nothing), HasSubstr("no key of nanotron"));
    }
    EXPECT_THAT(error_of("nemo", nanotron_run), HasSubstr("'pipetwin import nanotron' reads it"));
    EXPECT_THAT(error_of("nanotron", nemo_run), HasSubstr("import nemo"));
    EXPECT_THAT(error_of("nemo", "torchrun pretrain_gpt.py --num-layers 8\n"),
                HasSubstr("'pipetwin import megatron' reads it"));
    EXPECT_THAT(error_of("nemo", "Et*3|t*2L\n"), HasSubstr("'pipetwin import megatron' reads it"));
}

TEST_F(ImportMegatron, NanotronIsAFormatOfItsOwn) {
    constexpr std::string_view split =
        "parallelism:\n  dp: 2\n  pp: 4\n  pp_engine: afab\n  tp: 2\n"
        "tokens:\n  batch_accumulation_per_replica: 16\n  micro_batch_size: 2\n"
        "  sequence_length: 2048\noptimizer:\n  accumulate_grad_in_fp32: true\n"
        "  zero_stage: 0\n";
    const Outcome outcome =
        pipetwin({"import", "nanotron", file("n.yaml", split), "--force", "--out", path("n.toml")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(content_of(path("n.toml")),
                AllOf(HasSubstr("# nanotron's configuration\n"),
                      HasSubstr("schedule = \"gpipe\"\nmicro_batches = 16\ndata_parallel = 2\n"),
                      HasSubstr("tensor_parallel = 2\n")));
    EXPECT_THAT(import(split).err, HasSubstr("'pipetwin import nanotron' reads it"));
}

}  // namespace logs_test
}  // namespace pipetwin::cli
