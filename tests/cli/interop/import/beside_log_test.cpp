// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace beside_log_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A file, or the end of one, in which each line stands behind the same text.
std::string lines_behind(const std::string& front, const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += front + line + "\n";
    }
    return text;
}

class LogsBesidePredictions : public InFolder {
  protected:
    Outcome import(const std::string& log, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> args{"import",
                                      "auto",
                                      file("train.log", log),
                                      "--force",
                                      "--out",
                                      path("run.toml"),
                                      "--device",
                                      "h100-sxm"};
        args.insert(args.end(), more.begin(), more.end());
        return pipetwin(args);
    }

    /// The key "log" of the answer in JSON; the scenario has to be one that can be simulated.
    nlohmann::json beside(const std::string& log, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> all = more;
        all.emplace_back("--json");
        const Outcome outcome = import(log, all);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        const nlohmann::json found =
            outcome.code == 0 ? outcome.json()["log"] : nlohmann::json(nullptr);
        EXPECT_FALSE(found.is_null()) << outcome.err;
        if (found.is_null()) {
            return found;
        }
        const Outcome simulated = pipetwin({"simulate", path("run.toml"), "--json"});
        EXPECT_EQ(simulated.code, 0) << simulated.err;
        EXPECT_NEAR(simulated.json()["step_ms"].get<double>(),
                    found["predicted_step_ms"].get<double>(),
                    0.01);
        EXPECT_NEAR(
            found["error_percent"].get<double>(),
            (found["predicted_step_ms"].get<double>() / found["measured_step_ms"].get<double>() -
             1) *
                100,
            1e-6);
        return found;
    }
};

/// Llama 3 8B on 64 devices, with recompute of all blocks.
const std::string megatron_arguments =
    "------------------------ arguments ------------------------\n" +
    lines_behind("  ",
                 {"add_bias_linear ................................. False",
                  "bf16 ............................................ True",
                  "ffn_hidden_size ................................. 14336",
                  "global_batch_size ............................... 128",
                  "group_query_attention ........................... True",
                  "num_query_groups ................................ 8",
                  "swiglu .......................................... True",
                  "normalization ................................... RMSNorm",
                  "position_embedding_type ......................... rope",
                  "untie_embeddings_and_output_weights ............. True",
                  "sequence_parallel ............................... True",
                  "use_distributed_optimizer ....................... True",
                  "hidden_size ..................................... 4096",
                  "micro_batch_size ................................ 1",
                  "num_attention_heads ............................. 32",
                  "num_layers ...................................... 32",
                  "padded_vocab_size ............................... 128256",
                  "pipeline_model_parallel_size .................... 4",
                  "seq_length ...................................... 8192",
                  "max_position_embeddings ......................... 8192",
                  "tensor_model_parallel_size ...................... 4",
                  "recompute_granularity ........................... full",
                  "recompute_method ................................ uniform",
                  "recompute_num_layers ............................ 1",
                  "hidden_dropout .................................. 0.0",
                  "attention_dropout ............................... 0.0",
                  "world_size ...................................... 64"}) +
    "-------------------- end of arguments ---------------------\n";

std::string megatron_steps(const std::string& timers) {
    std::string text;
    for (const std::string step : {"1", "2", "3"}) {
        text += " [2026-01-01 00:00:01] iteration " + step +
                "/ 100 | elapsed time per iteration (ms): " + (step == "1" ? "18812.4" : "3610.0") +
                " | global batch size: 128 |\n" + timers;
    }
    return text;
}

/// Without recompute the blocks compute three quarters of what they do with it, so that a change
/// without it is the first, or fits not.
TEST_F(LogsBesidePredictions, OfMegatron) {
    const nlohmann::json found = beside(
        megatron_arguments +
        megatron_steps("(min, max) time across ranks (ms):\n"
                       "    forward-compute ................................: (600.00, 700.00)\n"
                       "    all-grads-sync .................................: (1.00, 2.00)\n"));
    EXPECT_DOUBLE_EQ(found["measured_step_ms"].get<double>(), 3610.0);
    ASSERT_EQ(found["timers"].size(), 1U);
    EXPECT_EQ(found["timers"][0]["name"], "forward-compute");
    EXPECT_DOUBLE_EQ(found["timers"][0]["measured_least_ms"].get<double>(), 600.0);
    EXPECT_LE(found["timers"][0]["predicted_least_ms"], found["timers"][0]["predicted_most_ms"]);
    EXPECT_GT(found["compute_factor"].get<double>(), 0.5);
    ASSERT_FALSE(found["changes"].empty());
    double before = 0;
    bool has_less_recompute = false;
    for (const char* const list : {"changes", "changes_that_do_not_fit"}) {
        for (const nlohmann::json& change : found[list]) {
            const std::string what = change["what"];
            has_less_recompute = has_less_recompute || what.starts_with("no recompute");
        }
    }
    EXPECT_TRUE(has_less_recompute);
    for (const nlohmann::json& change : found["changes"]) {
        EXPECT_GE(change["step_ms"].get<double>(), before);
        before = change["step_ms"];
        EXPECT_GE(change["faster_percent"].get<double>(), 1.0);
        EXPECT_FALSE(change["keys"].empty());
    }
    // A change is what the command that is printed with it predicts.
    const Outcome text =
        import(megatron_arguments + megatron_steps(""), {"--rows-out", path("rows.json")});
    EXPECT_THAT(text.out,
                AllOf(HasSubstr("step: measured 3.610 s, predicted "),
                      HasSubstr("what to change first (costs corrected by the log"),
                      HasSubstr("pipetwin simulate " + path("run.toml") + " --calibrate " +
                                path("rows.json") + " --set ")));
    EXPECT_THAT(text.out, Not(HasSubstr("costs as estimated")));
    EXPECT_THAT(import(megatron_arguments + megatron_steps("")).out,
                HasSubstr("the command has the costs as estimated: import with --rows-out FILE"));
    std::vector<std::string> command{
        "simulate", path("run.toml"), "--json", "--calibrate", path("rows.json")};
    for (const auto& [key, value] : found["changes"][0]["keys"].items()) {
        command.emplace_back("--set");
        command.push_back(key + "=" + value.get<std::string>());
    }
    const Outcome changed = pipetwin(command);
    ASSERT_EQ(changed.code, 0) << changed.err;
    // A plan takes the row, too, where a key is open.
    const Outcome planned = pipetwin({"plan",
                                      path("run.toml"),
                                      "--calibrate",
                                      path("rows.json"),
                                      "--set",
                                      "pipeline.micro_batches=auto",
                                      "--json"});
    EXPECT_EQ(planned.code, 0) << planned.err;
    EXPECT_NEAR(changed.json()["step_ms"].get<double>(),
                found["changes"][0]["step_ms"].get<double>(),
                found["changes"][0]["step_ms"].get<double>() * 1e-3);
}

/// Timers that are what is predicted leave all costs as they are; those of layers that take longer
/// in the same step leave less to the messages.
TEST_F(LogsBesidePredictions, OfTimersCorrectLayersAndMessagesApart) {
    const auto timers = [](double forward, double backward) {
        return fmt::format(
            "(min, max) time across ranks (ms):\n"
            "    forward-compute ......................: (1.00, {:.3f})\n"
            "    backward-compute .....................: (1.00, {:.3f})\n"
            "    all-grads-sync .......................: (1.00, 2.00)\n",
            forward,
            backward);
    };
    const nlohmann::json first = beside(megatron_arguments + megatron_steps(timers(600, 1800)));
    ASSERT_EQ(first["timers"].size(), 2U);
    std::map<std::string, double> predicted;
    for (const nlohmann::json& timer : first["timers"]) {
        predicted[timer["name"]] = timer["predicted_most_ms"];
    }
    const double forward = predicted["forward-compute"];
    const double backward = predicted["backward-compute"];
    std::string log = megatron_arguments + megatron_steps(timers(forward, backward));
    const std::string step = fmt::format("{:.3f}", first["predicted_step_ms"].get<double>());
    for (std::size_t at = 0; (at = log.find("3610.0", at)) != std::string::npos;) {
        log.replace(at, 6, step);
    }
    const nlohmann::json same = beside(log);
    EXPECT_NEAR(same["compute_factor"].get<double>(), 1, 1e-4);
    EXPECT_NEAR(same["messages_factor"].get<double>(), 1, 1e-3);
    EXPECT_TRUE(same["update_factor"].is_null());
    // The row has them, so that the printed command has these costs, too.
    const Outcome written = import(log, {"--rows-out", path("rows.json")});
    ASSERT_EQ(written.code, 0) << written.err;
    const nlohmann::json row = nlohmann::json::parse(content_of(path("rows.json")))[0];
    EXPECT_NEAR(row["timer_seconds"]["forward-compute"].get<double>(), forward / 1000, 1e-6);
    const Outcome simulated =
        pipetwin({"simulate", path("run.toml"), "--json", "--calibrate", path("rows.json")});
    ASSERT_EQ(simulated.code, 0) << simulated.err;
    EXPECT_NEAR(simulated.json()["calibration"]["messages_factor"].get<double>(), 1, 1e-3);
}

/// GPT-NeoX's lines end with whether a value is a default.
TEST_F(LogsBesidePredictions, OfGptNeox) {
    const std::string log =
        "-------------------- arguments --------------------\n" +
        lines_behind(
            "  ",
            {"attention_config ................ ['flash', 'flash', 'flash', 'flash']updated",
             "checkpoint_activations .......... True........................updated",
             "hidden_size ..................... 4096........................updated",
             "max_position_embeddings ......... 2048........................updated",
             "no_weight_tying ................. True........................updated",
             "num_attention_heads ............. 32..........................updated",
             "num_layers ...................... 4...........................updated",
             "pipe_parallel_size .............. 2...........................updated",
             "pos_emb ......................... rotary......................updated",
             "precision ....................... bfloat16....................updated",
             "seq_length ...................... 2048........................updated",
             "train_batch_size ................ 64..........................updated",
             "train_micro_batch_size_per_gpu .. 4...........................updated",
             "gradient_accumulation_steps ..... 4...........................updated",
             "world_size ...................... 8...........................updated",
             "zero_optimization ............... {'stage': 1}updated",
             "adlr_autoresume ................. False.......................default"}) +
        "---------------- end of arguments ----------------\n"
        " samples/sec: 20.0 | iteration        1/  320000 | elapsed time per iteration (ms): "
        "9000.0 "
        "| learning rate: 1.000E-04 |\n"
        " samples/sec: 80.0 | iteration        2/  320000 | elapsed time per iteration (ms): 800.0 "
        "| learning rate: 1.000E-04 |\n";
    const nlohmann::json found = beside(log, {"--vocabulary", "50304"});
    EXPECT_DOUBLE_EQ(found["measured_step_ms"].get<double>(), 800.0);
    EXPECT_THAT(content_of(path("run.toml")),
                AllOf(HasSubstr("stages = 2\n"),
                      HasSubstr("data_parallel = 4\n"),
                      HasSubstr("batch = 64\n")));
    EXPECT_FALSE(found["changes"].empty());
}

/// The links between nodes are in no log: those that the device usually has are said.
TEST_F(LogsBesidePredictions, NodesAreSaidOrNamed) {
    const std::string log = megatron_arguments + megatron_steps("");
    const Outcome usual = import(log);
    ASSERT_EQ(usual.code, 0) << usual.err;
    EXPECT_THAT(usual.err, HasSubstr("the links between nodes are those of 8x-h100-sxm"));
    EXPECT_THAT(content_of(path("run.toml")),
                AllOf(HasSubstr("profile = \"8x-h100-sxm\"\n"), HasSubstr("count = 64\n")));
    const Outcome named = import(log, {"--cluster", "8x-h100-sxm-roce-400-x4"});
    ASSERT_EQ(named.code, 0) << named.err;
    EXPECT_THAT(named.err, Not(HasSubstr("the links between nodes are those")));
    EXPECT_THAT(content_of(path("run.toml")), HasSubstr("profile = \"8x-h100-sxm-roce-400-x4\"\n"));
    const Outcome other = import(log, {"--cluster", "8x-b200"});
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, HasSubstr("its devices are b200, but --device is h100-sxm"));
    EXPECT_EQ(import(log, {"--cluster", "none-such"}).code, 3);
}

/// What the log says holds: another number is refused with both.
TEST_F(LogsBesidePredictions, DevicesAreThoseOfTheLog) {
    const std::string log = megatron_arguments + megatron_steps("");
    const Outcome other = import(log, {"--devices", "16"});
    EXPECT_EQ(other.code, 3);
    EXPECT_THAT(other.err,
                AllOf(HasSubstr("the run has 64 devices here, but --devices is 16"),
                      HasSubstr("leave --devices out")));
    EXPECT_EQ(import(log, {"--devices", "64"}).code, 0);
}

TEST_F(LogsBesidePredictions, WhatIsMissingIsAskedFor) {
    const std::string log = file("train.log", megatron_arguments + megatron_steps(""));
    const Outcome outcome =
        pipetwin({"import", "auto", log, "--force", "--out", path("run.toml"), "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(outcome.json()["log"].is_null());
    EXPECT_THAT(outcome.err,
                HasSubstr("no prediction beside the measured step: add --device NAME"));
}

/// Llama 3 8B in nanotron's words, as it prints its configuration: 16 devices, 64 samples.
TEST_F(LogsBesidePredictions, OfNanotron) {
    const std::string log = lines_behind(
        "10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: ",
        {"Config(general=GeneralArgs(project='debug',",
         "                           run='x'),",
         "       parallelism=ParallelismArgs(dp=2,",
         "                                   pp=2,",
         "                                   tp=4,",
         "                                   pp_engine=<nanotron.parallel.pipeline_parallel.engine."
         "OneForwardOneBackwardPipelineEngine object at 0x7fcc5c65c910>,",
         "                                   tp_mode=<TensorParallelLinearMode.REDUCE_SCATTER: "
         "2>,",
         "                                   tp_linear_async_communication=True,",
         "                                   recompute_layer=False,",
         "                                   expert_parallel_size=1),",
         "       model=ModelArgs(model_config=LlamaConfig(hidden_act='silu',",
         "                                                hidden_size=4096,",
         "                                                intermediate_size=14336,",
         "                                                is_llama_config=True,",
         "                                                max_position_embeddings=4096,",
         "                                                num_attention_heads=32,",
         "                                                num_hidden_layers=32,",
         "                                                num_key_value_heads=8,",
         "                                                pretraining_tp=1,",
         "                                                tie_word_embeddings=False,",
         "                                                vocab_size=128256),",
         "                       init_method=RandomInit(std=0.025),",
         "                       dtype=torch.bfloat16,",
         "                       make_vocab_size_divisible_by=1),",
         "       tokens=TokensArgs(sequence_length=4096,",
         "                         train_steps=15,",
         "                         micro_batch_size=2,",
         "                         batch_accumulation_per_replica=16),",
         "       optimizer=OptimizerArgs(optimizer_factory=AdamWOptimizerArgs(name='adamW'),",
         "                               zero_stage=1,",
         "                               clip_grad=1.0,",
         "                               accumulate_grad_in_fp32=True),",
         "       data_stages=[DatasetStageArgs(name='Stable Training Stage')])",
         "iteration: 1 / 15 | elapsed_time_per_iteration_ms: 14.7K | tokens_per_sec: 109",
         "iteration: 2 / 15 | elapsed_time_per_iteration_ms: 2.6K | tokens_per_sec: 43.2K",
         "iteration: 3 / 15 | elapsed_time_per_iteration_ms: 2.6K | tokens_per_sec: 43.2K"});
    const nlohmann::json found = beside(log);
    EXPECT_DOUBLE_EQ(found["measured_step_ms"].get<double>(), 2600.0);
    EXPECT_THAT(content_of(path("run.toml")),
                AllOf(HasSubstr("batch = 64\n"),
                      HasSubstr("stages = 2\n"),
                      HasSubstr("schedule = \"1f1b\"\n"),
                      HasSubstr("micro_batches = 16\n"),
                      HasSubstr("data_parallel = 2\n"),
                      HasSubstr("tensor_parallel = 4\n"),
                      HasSubstr("sequence_parallel = true\n"),
                      HasSubstr("shard = \"optimizer\"\n")));
}

/// Llama 3.2 1B, whose makers count 1,235,814,400 parameters, on 8 devices: 16 samples, of which
/// each device has 2 one after the other. 1,600 samples at 16 a second: a step of 16 takes 1 s.
const std::string trainer_log =
    "Training/evaluation parameters TrainingArguments(\n"
    "_n_gpu=1,\nbf16=True,\neval_strategy=no,\n"
    "fsdp=[<FSDPOption.FULL_SHARD: 'full_shard'>, <FSDPOption.AUTO_WRAP: 'auto_wrap'>],\n"
    "fsdp_config={'min_num_params': 0, 'xla': False, 'xla_fsdp_v2': False},\n"
    "gradient_accumulation_steps=2,\ngradient_checkpointing=True,\nhub_token=<HUB_TOKEN>,\n"
    "max_grad_norm=1.0,\noptim=adamw_torch,\nper_device_train_batch_size=1,\n"
    "torch_compile=False,\n)\n"
    "[INFO|configuration_utils.py:839] 2025-12-31 13:11:37,798 >> Model config LlamaConfig {\n"
    "  \"head_dim\": 64,\n  \"hidden_act\": \"silu\",\n  \"hidden_size\": 2048,\n"
    "  \"intermediate_size\": 8192,\n  \"max_position_embeddings\": 131072,\n"
    "  \"model_type\": \"llama\",\n  \"num_attention_heads\": 32,\n"
    "  \"num_hidden_layers\": 16,\n  \"num_key_value_heads\": 8,\n  \"rms_norm_eps\": 1e-05,\n"
    "  \"tie_word_embeddings\": true,\n  \"vocab_size\": 128256\n}\n\n"
    "[INFO|trainer.py:2525] >>   Total train batch size (w. parallel, distributed & "
    "accumulation) = 16\n"
    "{'train_runtime': 100.0, 'train_samples_per_second': 16.0, 'train_steps_per_second': 1.0}\n";

TEST_F(LogsBesidePredictions, OfTheTrainer) {
    const Outcome asked = import(trainer_log);
    EXPECT_EQ(asked.code, 0);
    EXPECT_THAT(asked.err, HasSubstr("--sequence N where it does not say how many tokens"));
    const nlohmann::json found = beside(trainer_log, {"--sequence", "4096"});
    EXPECT_DOUBLE_EQ(found["measured_step_ms"].get<double>(), 1000.0);
    EXPECT_THAT(content_of(path("run.toml")),
                AllOf(HasSubstr("batch = 16\n"),
                      HasSubstr("data_parallel = 8\n"),
                      HasSubstr("micro_batches = 2\n"),
                      HasSubstr("shard = \"weights\"\n"),
                      HasSubstr("recompute = \"block\"\n")));
    const Outcome outcome = import(trainer_log, {"--sequence", "4096", "--json"});
    EXPECT_EQ(outcome.json()["parameters"], 1'235'814'400);
}

/// Qwen3 8B in the arguments of ms-swift as it prints them: 20 steps of 3 s in 60 s, and 20 of 2 s.
TEST_F(LogsBesidePredictions, OfSwift) {
    const std::string log =
        "[INFO:swift] args: MegatronSftArguments(model='Qwen/Qwen3-8B', tuner_type='full', "
        "tensor_model_parallel_size=2, pipeline_model_parallel_size=2, max_length=4096, "
        "micro_batch_size=1, global_batch_size=16, bf16=True, sequence_parallel=True, "
        "torch_dtype=torch.bfloat16, packing=True, report_to=[], global_world_size=8)\n"
        "{'loss': 1.2, 'iteration': '20/100', 'memory(GiB)': 40.5, 'train_speed(s/it)': 3.0}\n"
        "{'loss': 1.1, 'iteration': '40/100', 'memory(GiB)': 40.5, 'train_speed(s/it)': 2.5}\n";
    const nlohmann::json found = beside(log);
    EXPECT_DOUBLE_EQ(found["measured_step_ms"].get<double>(), 2000.0);
    EXPECT_THAT(content_of(path("run.toml")),
                AllOf(HasSubstr("stages = 2\n"),
                      HasSubstr("tensor_parallel = 2\n"),
                      HasSubstr("data_parallel = 2\n")));
}

/// What Megatron-Bridge prints of a run on 16 devices: objects with their classes among the values.
const std::string bridge_log =
    "------- Task Configuration -------\n"
    "_target_: megatron.bridge.training.config.ConfigContainer\n"
    "comm_overlap: null\n"
    "dataset:\n"
    "  _target_: megatron.bridge.training.config.GPTDatasetConfig\n"
    "  sequence_length: 4096\n"
    "  tokenizer:\n"
    "    _call_: true\n"
    "    _target_: megatron.bridge.training.tokenizers.tokenizer._NullTokenizer\n"
    "ddp:\n"
    "  grad_reduce_in_fp32: true\n"
    "  overlap_grad_reduce: true\n"
    "  overlap_param_gather: true\n"
    "  use_distributed_optimizer: true\n"
    "mixed_precision:\n"
    "  bf16: true\n"
    "  params_dtype:\n"
    "    _call_: false\n"
    "    _target_: torch.bfloat16\n"
    "model:\n"
    "  _target_: megatron.bridge.models.llama.llama_provider.Llama31ModelProvider\n"
    "  activation_func:\n"
    "    _call_: false\n"
    "    _target_: torch.nn.functional.silu\n"
    "  add_bias_linear: false\n"
    "  attention_backend:\n"
    "    _args_:\n"
    "    - 1\n"
    "    _call_: true\n"
    "    _target_: megatron.core.transformer.enums.AttnBackend\n"
    "  attention_dropout: 0.0\n"
    "  context_parallel_size: 1\n"
    "  embedding_init_method:\n"
    "    _args_: []\n"
    "    _partial_: true\n"
    "    _target_: torch.nn.init.normal_\n"
    "    std: 0.02\n"
    "  ffn_hidden_size: 14336\n"
    "  gated_linear_unit: true\n"
    "  hidden_dropout: 0.0\n"
    "  hidden_size: 4096\n"
    "  kv_channels: 128\n"
    "  normalization: RMSNorm\n"
    "  num_attention_heads: 32\n"
    "  num_layers: 32\n"
    "  num_moe_experts: null\n"
    "  num_query_groups: 8\n"
    "  pipeline_model_parallel_size: 2\n"
    "  position_embedding_type: rope\n"
    "  seq_length: 131072\n"
    "  sequence_parallel: true\n"
    "  share_embeddings_and_output_weights: false\n"
    "  tensor_model_parallel_size: 2\n"
    "  transformer_layer_spec:\n"
    "    _call_: false\n"
    "    _target_: megatron.bridge.models.gpt_provider.default_layer_spec\n"
    "  should_pad_vocab: false\n"
    "  vocab_size: 128256\n"
    "tokenizer:\n"
    "  tokenizer_type: NullTokenizer\n"
    "  vocab_size: 128256\n"
    "optimizer:\n"
    "  clip_grad: 1.0\n"
    "  exp_avg_dtype:\n"
    "    _call_: false\n"
    "    _target_: torch.float32\n"
    "  optimizer: adam\n"
    "  use_distributed_optimizer: true\n"
    "  use_precision_aware_optimizer: false\n"
    "train:\n"
    "  global_batch_size: 64\n"
    "  micro_batch_size: 1\n"
    "\n"
    "----------------------------------\n"
    "Step Time : 4.65s GPU utilization: 592.5MODEL_TFLOP/s/GPU\n"
    " [2025-10-06 03:27:07] iteration 10/ 30 | elapsed time per iteration (ms): 4647.8 | global "
    "batch size: 64 |\n"
    " [2025-10-06 03:27:47] iteration 20/ 30 | elapsed time per iteration (ms): 2500.0 | global "
    "batch size: 64 |\n";

TEST_F(LogsBesidePredictions, OfMegatronBridge) {
    const Outcome asked = import(bridge_log, {"--json"});
    ASSERT_EQ(asked.code, 0) << asked.err;
    EXPECT_THAT(asked.err,
                AllOf(HasSubstr("a log of Megatron-Bridge, read as by 'import megatron'"),
                      HasSubstr("add --devices N"),
                      HasSubstr("samples are as long as the data say")));
    const nlohmann::json found = beside(bridge_log, {"--devices", "16"});
    EXPECT_DOUBLE_EQ(found["measured_step_ms"].get<double>(), 2500.0);
    EXPECT_THAT(content_of(path("run.toml")),
                AllOf(HasSubstr("batch = 64\n"),
                      HasSubstr("precision = \"bf16\"\n"),
                      HasSubstr("stages = 2\n"),
                      HasSubstr("data_parallel = 4\n"),
                      HasSubstr("micro_batches = 16\n"),
                      HasSubstr("tensor_parallel = 2\n"),
                      HasSubstr("sequence_parallel = true\n"),
                      HasSubstr("shard = \"optimizer\"\n")));
    EXPECT_EQ(nlohmann::json::parse(content_of(path("run.profile.json")))["tokens_per_sample"],
              4096);
    const Outcome outcome = import(bridge_log, {"--devices", "16", "--json"});
    EXPECT_EQ(outcome.json()["parameters"], 8'030'261'248);
    // What says nothing of a step is no obstacle, and what would is one with another value.
    std::string more = bridge_log;
    more.insert(more.find("  num_layers:"),
                "  parallel_output: true\n  scatter_embedding_sequence_parallel: true\n");
    more.insert(more.find("  sequence_length:"),
                "  add_extra_token_to_sequence: true\n"
                "  drop_last_partial_validation_sequence: true\n"
                "  skip_getting_attention_mask_from_dataset: true\n");
    EXPECT_EQ(import(more, {"--devices", "16"}).code, 0);
    more.replace(more.find("parallel_output: true"), 21, "parallel_output: false");
    EXPECT_THAT(import(more, {"--devices", "16"}).err, HasSubstr("leaves logits divided"));
    // An object whose meaning is not known is no function.
    std::string strange = bridge_log;
    strange.insert(
        strange.find("  num_layers:"),
        "  pipeline_model_parallel_layout:\n    _call_: true\n    _target_: my.Layout\n");
    EXPECT_EQ(import(strange, {"--devices", "16"}).code, 3);
}

/// Since 2026 Megatron-Bridge prints what differs from the defaults of Megatron Core
/// (megatron/bridge/training/config.py, log_non_default_values): the split, and none of the words.
TEST_F(LogsBesidePredictions, OfMegatronBridgesSummary) {
    const std::string rule(70, '=');
    const std::string summary =
        rule + "\nConfiguration Summary (Non-Default Values vs Megatron Core)\n" + rule +
        "\n\n[optimizer] Non-default values (vs Mcore OptimizerConfig):\n"
        "  bf16: True  (Mcore default: False)\n"
        "  lr: 0.0003  (Mcore default: None)\n"
        "  params_dtype: torch.bfloat16  (Mcore default: torch.float32)\n"
        "  use_distributed_optimizer: True  (Mcore default: False)\n"
        "\n[ddp] Non-default values (vs Mcore DistributedDataParallelConfig):\n"
        "  grad_reduce_in_fp32: True  (Mcore default: False)\n"
        "  overlap_grad_reduce: True  (Mcore default: False)\n"
        "  use_distributed_optimizer: True  (Mcore default: False)\n"
        "\n[model] Non-default values (vs Mcore TransformerConfig):\n"
        "  add_bias_linear: False  (Mcore default: True)\n"
        "  attention_backend: <AttnBackend.flash: 1>  (Mcore default: <AttnBackend.auto: 5>)\n"
        "  attention_dropout: 0.0  (Mcore default: 0.1)\n"
        "  bf16: True  (Mcore default: False)\n"
        "  ffn_hidden_size: 14336  (Mcore default: None)\n"
        "  gated_linear_unit: True  (Mcore default: False)\n"
        "  hidden_dropout: 0.0  (Mcore default: 0.1)\n"
        "  hidden_size: 4096  (Mcore default: 0)\n"
        "  kv_channels: 128  (Mcore default: None)\n"
        "  normalization: 'RMSNorm'  (Mcore default: 'LayerNorm')\n"
        "  num_attention_heads: 32  (Mcore default: 0)\n"
        "  num_layers: 32  (Mcore default: 0)\n"
        "  num_query_groups: 8  (Mcore default: None)\n"
        "  params_dtype: torch.bfloat16  (Mcore default: torch.float32)\n"
        "  pipeline_dtype: torch.bfloat16  (Mcore default: None)\n"
        "  pipeline_model_parallel_size: 2  (Mcore default: 1)\n"
        "  sequence_parallel: True  (Mcore default: False)\n"
        "  tensor_model_parallel_size: 2  (Mcore default: 1)\n"
        "\n" +
        std::string(70, '-') + "\nOther Configuration Values:\n" + std::string(70, '-') +
        "\n\n[train]:\n"
        "  global_batch_size: 64\n"
        "  micro_batch_size: 1\n"
        "  train_iters: 30\n"
        "\n[dataset]:\n"
        "  random_seed: 1234\n"
        "  sequence_length: 4096\n"
        "\n[logger]:\n"
        "  log_interval: 10\n";
    const std::string steps =
        "\n" + rule +
        "\n [2026-06-06 03:27:07] iteration 10/ 30 | elapsed time per iteration (ms): 4647.8 | "
        "global batch size: 64 | lm loss: 1.100000E+01 |\n"
        " [2026-06-06 03:27:47] iteration 20/ 30 | elapsed time per iteration (ms): 2500.0 | "
        "global batch size: 64 | lm loss: 9.500000E+00 |\n";
    const nlohmann::json found =
        beside(summary + steps, {"--devices", "16", "--model", "llama-3-8b"});
    EXPECT_DOUBLE_EQ(found["measured_step_ms"].get<double>(), 2500.0);
    EXPECT_EQ(found["loss"]["last"]["loss"], 9.5);
    EXPECT_THAT(content_of(path("run.toml")),
                AllOf(HasSubstr("batch = 64\n"),
                      HasSubstr("precision = \"bf16\"\n"),
                      HasSubstr("stages = 2\n"),
                      HasSubstr("data_parallel = 4\n"),
                      HasSubstr("micro_batches = 16\n"),
                      HasSubstr("tensor_parallel = 2\n"),
                      HasSubstr("sequence_parallel = true\n"),
                      HasSubstr("shard = \"optimizer\"\n")));
    const Outcome whole =
        import(summary + steps, {"--devices", "16", "--model", "llama-3-8b", "--json"});
    EXPECT_EQ(whole.json()["parameters"], 8'030'261'248) << whole.err;
    const Outcome nameless = import(summary + steps, {"--devices", "16"});
    EXPECT_EQ(nameless.code, 3);
    EXPECT_THAT(nameless.err, HasSubstr("add --model NAME to the command"));
    EXPECT_THAT(import(summary, {"--devices", "16", "--model", "llama-3-8b"}).err,
                HasSubstr("has no end"));
}

/// NeMo 2 prints no configuration: nemo-run's file goes with the log. 16 devices: 2 stages x 2
/// parts of each sample x 4 replicas.
TEST_F(LogsBesidePredictions, OfNemo2) {
    const std::string yaml =
        "_partial_: true\n"
        "_target_: nemo.collections.llm.api.pretrain\n"
        "data:\n"
        "  _target_: nemo.collections.llm.gpt.data.pre_training.PreTrainingDataModule\n"
        "  global_batch_size: 128\n"
        "  micro_batch_size: 1\n"
        "  paths:\n"
        "  - p/\n"
        "  seq_length: 8192\n"
        "  tokenizer:\n"
        "    _target_: nemo.collections.common.tokenizers.x.AutoTokenizer\n"
        "    pretrained_model_name: meta-llama/Llama-3.1-8B\n"
        "log:\n"
        "  _target_: nemo.lightning.nemo_logger.NeMoLogger\n"
        "  name: default\n"
        "model:\n"
        "  _target_: nemo.collections.llm.gpt.model.llama.LlamaModel\n"
        "  config:\n"
        "    _target_: nemo.collections.llm.gpt.model.llama.Llama31Config8B\n"
        "optim:\n"
        "  _target_: nemo.lightning.pytorch.optim.megatron.MegatronOptimizerModule\n"
        "  config:\n"
        "    _target_: megatron.core.optimizer.optimizer_config.OptimizerConfig\n"
        "    bf16: true\n"
        "    clip_grad: 1.0\n"
        "    optimizer: adam\n"
        "    use_distributed_optimizer: true\n"
        "trainer:\n"
        "  accumulate_grad_batches: 1\n"
        "  callbacks:\n"
        "  - _target_: nemo.utils.exp_manager.TimingCallback\n"
        "  devices: 8\n"
        "  num_nodes: 2\n"
        "  plugins:\n"
        "    params_dtype:\n"
        "      _call_: false\n"
        "      _target_: torch.bfloat16\n"
        "    precision: bf16-mixed\n"
        "  strategy:\n"
        "    _target_: nemo.lightning.pytorch.strategies.megatron_strategy.MegatronStrategy\n"
        "    context_parallel_size: 2\n"
        "    ddp:\n"
        "      grad_reduce_in_fp32: true\n"
        "      overlap_grad_reduce: true\n"
        "    pipeline_model_parallel_size: 2\n"
        "    sequence_parallel: false\n"
        "    tensor_model_parallel_size: 1\n";
    const std::string log = file(
        "nemo.log",
        "0: Training epoch 0, iteration 0/9 | global_batch_size: 128 | global_step: 0 | "
        "train_step_timing in s: 25.2\n"
        "0: Training epoch 0, iteration 1/9 | global_batch_size: 128 | global_step: 1 | "
        "max_memory_allocated: 53930270720 | train_step_timing in s: 12.5 | TFLOPS_per_GPU: 448\n");
    const nlohmann::json found = beside(yaml, {"--log", log});
    EXPECT_DOUBLE_EQ(found["measured_step_ms"].get<double>(), 12'500.0);
    EXPECT_EQ(found["measured_peak_bytes"], 53'930'270'720);
    // Costs of divided samples are estimated anew, and corrected all the same.
    EXPECT_GT(found["compute_factor"].get<double>(), 0.2);
    EXPECT_THAT(content_of(path("run.toml")),
                AllOf(HasSubstr("batch = 128\n"),
                      HasSubstr("stages = 2\n"),
                      HasSubstr("data_parallel = 4\n"),
                      HasSubstr("micro_batches = 32\n"),
                      HasSubstr("context_parallel = 2\n"),
                      HasSubstr("shard = \"optimizer\"\n"),
                      HasSubstr("partition = [16, 16]\n")));
    const Outcome outcome = import(yaml, {"--log", log, "--json"});
    EXPECT_EQ(outcome.json()["format"], "nemo");
    EXPECT_EQ(outcome.json()["parameters"], 8'030'261'248);
    std::string repeated = yaml;
    repeated.replace(repeated.find("batches: 1"), 10, "batches: 2");
    EXPECT_EQ(import(repeated).code, 3);
}

}  // namespace beside_log_test
}  // namespace pipetwin::cli
