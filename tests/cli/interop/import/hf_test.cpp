// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/profile_json.h"
#include "core/interop/safetensors.h"
#include "tests/cli/support.h"
#include "tests/support/hf_texts.h"

namespace pipetwin::cli {
namespace hf_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ImportHf : public InFolder {
  protected:
    /// `import hf` for one sample of 512 tokens on an H100, where `more` says nothing else.
    Outcome import(const std::string& model, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> args{
            "import", "hf", model, "--force", "--out", path("model.profile.json")};
        for (const auto& [option, value] : {std::pair("--device", "h100-sxm"),
                                            std::pair("--sequence", "512"),
                                            std::pair("--micro-batch-size", "1")}) {
            if (std::ranges::find(more, option) == more.end()) {
                args.insert(args.end(), {option, value});
            }
        }
        return pipetwin(joined(args, more));
    }

    Profile imported(const std::string& model, const std::vector<std::string>& more = {}) const {
        const Outcome outcome = import(model, more);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return read_profile(path("model.profile.json"));
    }
};

/// A scenario of the profile that was imported last, up to its [cluster].
std::string stages_of_profile(int stages) {
    return fmt::format(R"toml([model]
kind = "profile"
file = "model.profile.json"
[training]
batch = 8
[pipeline]
stages = {}
micro_batches = 8
schedule = "1f1b"
recompute = "none"
[cluster]
device = "h100-sxm"
)toml",
                       stages);
}

TEST_F(ImportHf, AModelKnownByNameBecomesAProfileThatIsSimulated) {
    const Outcome outcome = import("llama-3-8b");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, path("model.profile.json") + ": 66 layers, 8,030,261,248 parameters\n");
    EXPECT_EQ(
        outcome.err,
        "estimated for h100-sxm with the stack megatron-bridge-2026, the newest for it (--stack "
        "NAME changes this): matrix products at up to 66.82 % (depending on their sizes) of 989 "
        "TFLOP/s, memory at 76 to 85 % (by the kind of kernel) of 3350 GB/s\n");
    EXPECT_EQ(
        import("llama-3-8b", {"--stack", "none", "--force"}).err,
        "estimated for h100-sxm: matrix products at up to 55 % (depending on their sizes) of 989 "
        "TFLOP/s, memory at 47 to 80 % (by the kind of kernel) of 3350 GB/s\n");
    const std::string scenario = file("llama.toml", stages_of_profile(4));
    const Outcome simulated = pipetwin({"simulate", scenario, "--json"});
    EXPECT_EQ(simulated.code, 0) << simulated.err;
    EXPECT_EQ(simulated.json().at("cost_source"), "estimated");
}

TEST_F(ImportHf, AFolderStandsForItsConfig) {
    std::filesystem::create_directory(path("checkpoint"));
    file("checkpoint/config.json", testing::llama_config().dump());
    EXPECT_EQ(imported(path("checkpoint")), imported(path("checkpoint/config.json")));
}

TEST_F(ImportHf, WhatIsAssumedIsSaid) {
    const Outcome outcome = import("gpt2-124m");
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("no torch_dtype: costs are for fp32; --precision bf16"),
                      HasSubstr("% (depending on their sizes) of 67 TFLOP/s"),
                      HasSubstr("the head's matrix is that of the embedding")));
    EXPECT_EQ(imported("gpt2-124m", {"--precision", "bf16"}).precision, "bf16");
    EXPECT_THAT(import("llama-3-8b", {"--sequence", "9000"}).err,
                HasSubstr("made for 8192 tokens, not for 9000"));
}

TEST_F(ImportHf, EfficiencyAndMeasuredLayersChangeTheTimes) {
    const Profile half = imported("llama-3-8b");
    const Profile full = imported("llama-3-8b", {"--efficiency", "1", "--memory-efficiency", "1"});
    EXPECT_LT(full.layers[1].samples[0].forward, half.layers[1].samples[0].forward);
    const std::string points =
        file("points.json",
             R"({"schema_version": 1, "points": [{"kind": "attention", "micro_batch_size": 1,
                 "forward_ns": 5000000, "backward_ns": 9000000}]})");
    const Profile measured = imported("llama-3-8b", {"--calibrate", points});
    EXPECT_EQ(measured.layers[1].samples[0].forward, Duration{5'000'000});
    EXPECT_NEAR(
        static_cast<double>(measured.layers[63].samples[0].backward().count()), 9'000'000, 2);
    EXPECT_EQ(measured.layers[2], half.layers[2]);
}

// --- --stack ---

TEST_F(ImportHf, AStackIsSaidAndRecorded) {
    const Outcome outcome = import("llama-3-8b", {"--stack", "nemo-2024", "--precision", "fp8"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("estimated for h100-sxm with the stack nemo-2024: "));
    const Profile profile = read_profile(path("model.profile.json"));
    EXPECT_EQ(profile.stack, "nemo-2024");
    EXPECT_EQ(profile.precision, "fp8");
    EXPECT_GT(profile.layers[1].weight_cast, Duration{});
    EXPECT_EQ(profile.layers.back().weight_cast, Duration{});  // the head is in bf16
    EXPECT_EQ(parse_profile(print_profile(profile), "x"), profile);
    EXPECT_EQ(imported("llama-3-8b", {"--stack", "none"}).stack, "");
    EXPECT_EQ(imported("llama-3-8b").stack, "megatron-bridge-2026");
    EXPECT_EQ(imported("llama-3-8b", {"--device", "a100-sxm-80"}).stack, "megatron-2023");
    EXPECT_EQ(imported("llama-3-8b", {"--device", "v100-sxm2", "--precision", "fp16"}).stack, "");
}

TEST_F(ImportHf, OptionsReplaceWhatTheStackSays) {
    const std::vector<std::string> stack{"--stack", "megatron-2021", "--device", "a100-sxm-80"};
    const Profile standard = imported("llama-3-8b", stack);
    const Profile flash = imported("llama-3-8b", joined(stack, {"--attention", "flash"}));
    EXPECT_GT(standard.layers[1].samples[0].saved, flash.layers[1].samples[0].saved);
    const Profile full = imported(
        "llama-3-8b",
        joined(stack, {"--attention", "flash", "--efficiency", "1", "--memory-efficiency", "1"}));
    EXPECT_LT(full.layers[2].samples[0].forward, flash.layers[2].samples[0].forward);
    const Profile eager = imported("llama-3-8b", joined(stack, {"--kernels", "eager"}));
    EXPECT_GT(eager.layers[2].samples[0].saved, standard.layers[2].samples[0].saved);
    const Profile loss = imported("llama-3-8b", joined(stack, {"--loss", "standard"}));
    EXPECT_GT(loss.layers.back().samples[0].saved, standard.layers.back().samples[0].saved);
}

TEST_F(ImportHf, AStackWithoutDeviceOrPrecisionIsRefusedAndTheNearestNamed) {
    const Outcome device = import("llama-3-8b", {"--stack", "nemo-2024", "--device", "gb200"});
    EXPECT_EQ(device.code, 3);
    EXPECT_THAT(device.err, AllOf(HasSubstr("'gb200'"), HasSubstr("'megatron-bridge-2026'")));
    const Outcome precision = import(
        "llama-3-8b", {"--stack", "megatron-2023", "--device", "h100-sxm", "--precision", "fp8"});
    EXPECT_EQ(precision.code, 3);
    EXPECT_THAT(precision.err,
                AllOf(HasSubstr("only in bf16"), HasSubstr("'megatron-bridge-2026'")));
    const Outcome unknown = import("llama-3-8b", {"--stack", "nemo-2042"});
    EXPECT_EQ(unknown.code, 3);
    EXPECT_THAT(unknown.err, HasSubstr("did you mean 'nemo-2024'?"));
    const Outcome without =
        import("llama-3-8b", {"--device", "gb200", "--precision", "mxfp8", "--stack", "none"});
    EXPECT_EQ(without.code, 2);
    EXPECT_THAT(without.err, HasSubstr("--stack megatron-bridge-2026"));
    const Outcome nowhere = import("llama-3-8b", {"--precision", "mxfp8"});
    EXPECT_EQ(nowhere.code, 3);
    EXPECT_THAT(nowhere.err, HasSubstr("no stack has products in mxfp8 on 'h100-sxm'"));
}

/// The costs of a stack's own file belong to that file wherever they are read.
TEST_F(ImportHf, AStackMayBeAFile) {
    const std::filesystem::path nemo = profiles_folder() / "stacks/nemo-2024.toml";
    std::filesystem::copy_file(nemo, path("own.toml"));
    const Profile shipped = imported("llama-3-8b", {"--stack", "nemo-2024"});
    Profile own = imported("llama-3-8b", {"--stack", path("own.toml")});
    EXPECT_EQ(own.stack, path("own.toml"));
    own.stack = shipped.stack;
    EXPECT_EQ(own, shipped);
    const auto simulated = [&](const std::string& stack) {
        return pipetwin({"simulate", file("s.toml", stages_of_profile(2) + stack), "--json"});
    };
    EXPECT_EQ(simulated("stack = \"own.toml\"").json().at("stack"), path("own.toml"));
    const Outcome other = simulated("stack = \"nemo-2024\"");
    EXPECT_EQ(other.code, 3);
    EXPECT_THAT(other.err, AllOf(HasSubstr(path("own.toml")), HasSubstr("'nemo-2024'")));
    std::filesystem::rename(path("own.toml"), path("moved.toml"));
    const Outcome gone = simulated("");
    EXPECT_EQ(gone.code, 3);
    EXPECT_THAT(gone.err, AllOf(HasSubstr(path("own.toml")), HasSubstr("write its path")));
}

TEST_F(ImportHf, HeadsThatAStackDoesNotKnowAreSaid) {
    EXPECT_THAT(import("deepseek-v3", {"--stack", "nemo-2024", "--precision", "bf16"}).err,
                HasSubstr("rates of heads of 128, the nearest to the model's 192"));
}

TEST_F(ImportHf, WeightsTellTheirExactBytes) {
    const std::string config =
        file("config.json",
             testing::with(testing::small_gpt2(), {{"n_layer", 1}, {"n_positions", 512}}).dump());
    SafetensorsHeader header;
    header.tensors = {{"wte.weight", "F32", {100, 16}},
                      {"wpe.weight", "F32", {512, 16}},
                      {"h.0.attn.all", "F32", {1120}},
                      {"h.0.mlp.all", "BF16", {2160}},
                      {"ln_f.weight", "BF16", {32}}};
    place_tensors(header);
    const auto written = [&](const char* name) {
        return file(name,
                    print_safetensors_header(header) +
                        std::string(static_cast<std::size_t>(header.tensors.back().end), 'x'));
    };
    const std::string weights = written("model.safetensors");
    const Profile profile = imported(config, {"--weights", weights});
    EXPECT_EQ(profile.layers[0].parameter_bytes, Bytes{4 * 612 * 16});
    EXPECT_EQ(profile.layers[1].parameter_bytes, Bytes{4 * 1120});
    EXPECT_EQ(profile.layers[2].parameter_bytes, Bytes{2 * 2160});
    EXPECT_EQ(profile.layers[2].parameter_count, 2160);
    EXPECT_THAT(import(config, {"--weights", weights}).err,
                HasSubstr("weights take 46.91 KiB in the files; in bf16 they would take"));

    header.tensors[2].shape = {1119};
    place_tensors(header);
    const Outcome fewer = import(config, {"--weights", written("fewer.safetensors")});
    EXPECT_EQ(fewer.code, 3);
    EXPECT_THAT(fewer.err,
                HasSubstr("layer 'block0.attention' has 1119 numbers in the files, expected the "
                          "1120 of the config.json"));
    std::filesystem::resize_file(weights, 100);
    const Outcome cut = import(config, {"--weights", weights});
    EXPECT_EQ(cut.code, 3);
    EXPECT_THAT(cut.err, HasSubstr("model.safetensors: byte 100: the file ends in its header"));
}

TEST_F(ImportHf, WordsForThePrecisionThatNothingIsTrainedInAreSaid) {
    const auto config = [&](const nlohmann::json& changes) {
        return file("config.json", testing::with(testing::llama_config(), changes).dump());
    };
    for (const char* word : {"auto", "float8_e4m3fn", "int8"}) {
        const std::string path = config({{"torch_dtype", word}});
        const Outcome outcome = import(path);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_THAT(outcome.out, HasSubstr("8,030,261,248 parameters"));
        EXPECT_THAT(outcome.err,
                    HasSubstr(std::string("the file's torch_dtype is ") + word +
                              ", in which no model is trained: costs are for bf16"));
        EXPECT_EQ(imported(path), imported("llama-3-8b"));
        EXPECT_THAT(import(path, {"--precision", "bf16"}).err, Not(HasSubstr("torch_dtype")));
    }
    EXPECT_THAT(import(config({{"quantization_config", {{"quant_method", "mxfp4"}}}})).err,
                HasSubstr("published with a quantization (mxfp4): costs are for bf16"));
    const std::string unknown = config({{"torch_dtype", "complex64"}});
    const Outcome outcome = import(unknown);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr(unknown + ": /torch_dtype: \"complex64\", expected bfloat16"),
                      HasSubstr("--precision bf16")));
    EXPECT_EQ(import(unknown, {"--precision", "bf16"}).code, 0);
}

TEST_F(ImportHf, ATableThatBothEndsShareIsOnTheLastRankToo) {
    const std::string config =
        file("config.json",
             testing::with(testing::llama_config(),
                           {{"tie_word_embeddings", true}, {"num_hidden_layers", 4}})
                 .dump());
    const std::string scenario = file("two.toml", stages_of_profile(2) + "count = 2\n");
    EXPECT_THAT(import(config).err,
                HasSubstr("with several stages the last stage holds a second copy"));
    const Outcome tied = pipetwin({"simulate", scenario});
    EXPECT_EQ(tied.code, 0) << tied.err;
    // 128,256 x 4,096 numbers: 2 bytes each, and 16 with a bf16 gradient and AdamW's state.
    EXPECT_THAT(
        tied.err,
        HasSubstr("share 1002.00 MiB of weights: the last stage holds them again, 7.83 GiB"));
    const Outcome plan = pipetwin({"plan", scenario});
    EXPECT_EQ(plan.code, 0) << plan.err;
    EXPECT_THAT(plan.err, HasSubstr("share 1002.00 MiB of weights"));
    const Outcome one = pipetwin({"simulate", scenario, "--set", "pipeline.stages=1"});
    EXPECT_THAT(one.err, Not(HasSubstr("1002.00 MiB of weights")));
}

TEST_F(ImportHf, BlocksThatPredictFurtherTokensAreLayersOfTheirOwn) {
    const std::string config = file(
        "config.json",
        testing::with(
            testing::llama_config(),
            {{"model_type", "mimo"}, {"num_hidden_layers", 2}, {"num_nextn_predict_layers", 1}})
            .dump());
    const Outcome outcome = import(config);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(": 7 layers, "));
    EXPECT_THAT(
        outcome.err,
        AllOf(HasSubstr(
                  "multi-token prediction: 1 more block after the model's own (mtp0, ...) with "),
              HasSubstr("read the embedding; with several stages the last stage")));
    EXPECT_EQ(imported(config).layers[5].name, "mtp0");
    EXPECT_EQ(pipetwin({"simulate", file("two.toml", stages_of_profile(2) + "count = 2\n")}).code,
              0);
}

TEST_F(ImportHf, AnEncoderDecoderIsSimulatedAndPlanned) {
    const std::string config = file("config.json",
                                    R"({"model_type": "t5", "d_model": 1024, "d_kv": 64,
                                        "d_ff": 4096, "num_layers": 24, "num_heads": 16,
                                        "vocab_size": 32128, "is_encoder_decoder": true})");
    for (const bool whole : {false, true}) {
        const Outcome outcome =
            import(config,
                   whole ? std::vector<std::string>{"--precision", "bf16", "--whole-blocks"}
                         : std::vector<std::string>{"--precision", "bf16"});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_THAT(outcome.out, HasSubstr(", 737,668,096 parameters"));
        EXPECT_THAT(outcome.err,
                    HasSubstr("decoder_embedding has the bytes of the shared table again"));
        const std::string scenario = file("two.toml", stages_of_profile(2) + "count = 2\n");
        for (const char* command : {"simulate", "plan"}) {
            const Outcome answer = pipetwin({command, scenario, "--json"});
            EXPECT_EQ(answer.code, 0) << answer.err;
        }
    }
    const Outcome weights = import(config, {"--weights", file("model.safetensors", "")});
    EXPECT_EQ(weights.code, 3);
    EXPECT_THAT(weights.err, HasSubstr("a model with an encoder cannot be read yet"));
}

// --- Refusals. ---

TEST_F(ImportHf, NamesThatAreNotKnownListThoseThatAre) {
    const Outcome model = import("llama-3-80b");
    EXPECT_EQ(model.code, 3);
    EXPECT_THAT(model.err,
                AllOf(HasSubstr("import hf: no model 'llama-3-80b'; known: deepseek-v2-lite, "
                                "deepseek-v3"),
                      HasSubstr("hint: did you mean 'llama-3-70b'?")));
    EXPECT_EQ(import(path("nothing.json")).code, 6);
    const Outcome device = import("llama-3-8b", {"--device", "h100"});
    EXPECT_EQ(device.code, 3);
    EXPECT_THAT(device.err, HasSubstr("did you mean 'h100-sxm'?"));
}

TEST_F(ImportHf, AnUnknownFamilyIsRefusedWithFileAndKey) {
    const std::string config = file("config.json", R"({"model_type": "bert"})");
    const Outcome outcome = import(config);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                HasSubstr(config + ": /model_type: \"bert\", expected one of llama, mistral"));
    EXPECT_FALSE(std::filesystem::exists(path("model.profile.json")));
}

TEST_F(ImportHf, WhatTheModelOrTheDeviceCannotDoIsRefused) {
    const Outcome positions = import("gpt2-124m", {"--sequence", "1025"});
    EXPECT_EQ(positions.code, 3);
    EXPECT_THAT(positions.err, HasSubstr("/n_positions: 1024, but --sequence is 1025"));
    const Outcome precision = import("llama-3-8b", {"--device", "v100-sxm2"});
    EXPECT_EQ(precision.code, 3);
    EXPECT_THAT(precision.err, HasSubstr("no matrix rate at precision 'bf16', only at fp16"));
    const Outcome size =
        import("llama-3-8b", {"--sequence", "67108864", "--micro-batch-size", "65536"});
    EXPECT_EQ(size.code, 3);
    EXPECT_THAT(size.err,
                HasSubstr("with --sequence 67108864 --micro-batch-size 65536: /layers/0"));
}

/// Products in 8 bits are faster where their casts are small beside them: for many tokens. A
/// compiler keeps less with selective recompute, and eager kernels take longer.
TEST_F(ImportHf, ProductsInEightBitsAndKernelsAreChosen) {
    const Profile fused = imported("llama-3-8b");
    const Profile long_samples = imported("llama-3-8b", {"--sequence", "8192"});
    const Profile eight = imported("llama-3-8b", {"--sequence", "8192", "--precision", "fp8"});
    const Profile compiled = imported("llama-3-8b", {"--kernels", "compiled"});
    const Profile eager = imported("llama-3-8b", {"--kernels", "eager"});
    const LayerSample& before = fused.layers[2].samples[0];  // a feed-forward half
    EXPECT_EQ(eight.precision, "fp8");
    EXPECT_LT(eight.layers[2].samples[0].forward, long_samples.layers[2].samples[0].forward);
    EXPECT_EQ(eight.layers[2].parameter_bytes, fused.layers[2].parameter_bytes);
    EXPECT_EQ(compiled.layers[2].samples[0].forward, before.forward);
    EXPECT_EQ(compiled.layers[2].samples[0].core_saved - before.core_saved, Bytes{2 * 512 * 4096});
    EXPECT_GT(eager.layers[2].samples[0].forward, before.forward);
    const Outcome without = import("llama-3-8b", {"--precision", "fp8", "--device", "a100-sxm-80"});
    EXPECT_EQ(without.code, 3);
    EXPECT_THAT(without.err, HasSubstr("no matrix rate at precision 'fp8', only at bf16"));
    EXPECT_EQ(import("llama-3-8b", {"--kernels", "jit"}).code, 2);
}

TEST_F(ImportHf, OptionsBelongToTheirFormat) {
    for (const char* missing : {"--device", "--sequence", "--micro-batch-size"}) {
        std::vector<std::string> args{"import", "hf", "llama-3-8b", "--out", path("x")};
        for (const auto& [option, value] : {std::pair("--device", "h100-sxm"),
                                            std::pair("--sequence", "512"),
                                            std::pair("--micro-batch-size", "1")}) {
            if (std::string_view(option) != missing) {
                args.insert(args.end(), {option, value});
            }
        }
        const Outcome outcome = pipetwin(args);
        EXPECT_EQ(outcome.code, 2);
        EXPECT_THAT(outcome.err, HasSubstr(std::string("'import hf' needs ") + missing));
    }
    const Outcome other =
        pipetwin({"import", "csv", file("x.csv", ""), "--sequence", "4", "--out", path("x")});
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, HasSubstr("--sequence: a file of format 'csv' has its costs"));
    EXPECT_EQ(import("llama-3-8b", {"--efficiency", "2"}).code, 2);
    EXPECT_EQ(import("llama-3-8b", {"--precision", "bf61"}).code, 2);
}

/// A Megatron layout with "t*3" written out as "ttt".
std::string expanded(const std::string& layout) {
    std::string text;
    for (std::size_t i = 0; i < layout.size(); ++i) {
        if (layout[i] == '*') {
            const int count = std::stoi(layout.substr(i + 1));
            text.append(static_cast<std::size_t>(count) - 1, layout[i - 1]);
            i += std::to_string(count).size();
        } else if (layout[i] != '\n') {
            text += layout[i];
        }
    }
    return text;
}

/// The [pipeline] that `plan` prints at its end.
std::string printed_pipeline(const std::string& text) {
    return text.substr(text.rfind("[pipeline]"));
}

// config.json, import, plan, export: what a plan says is what the other system is told.
TEST_F(ImportHf, APlanOfWholeBlocksGoesToTorchtitanAndMegatron) {
    const std::string config = file(
        "config.json",
        testing::with(testing::llama_config(),
                      {{"num_hidden_layers", 6}, {"hidden_size", 512}, {"num_attention_heads", 8}})
            .dump());
    EXPECT_EQ(imported(config, {"--whole-blocks"}).layers.size(), 8U);
    const std::string head = R"toml([model]
kind = "profile"
file = "model.profile.json"
[training]
batch = 8
[cluster]
device = "h100-sxm"
count = 3
)toml";
    const Outcome plan = pipetwin({"plan",
                                   file("open.toml", head),
                                   "--set",
                                   "pipeline.stages=3",
                                   "--set",
                                   "pipeline.micro_batches=8",
                                   "--set",
                                   "pipeline.schedule=1f1b"});
    ASSERT_EQ(plan.code, 0) << plan.err;
    const std::string planned = file("planned.toml", head + printed_pipeline(plan.out));
    const auto exported = [&](const std::string& format) {
        const Outcome outcome =
            pipetwin({"export", format, planned, "--force", "--out", path("exported")});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return content_of(path("exported"));
    };
    const auto modules = nlohmann::json::parse(exported("torchtitan"));
    ASSERT_EQ(modules.size(), 3U);
    EXPECT_EQ(modules.front().front(), "tok_embeddings");
    EXPECT_EQ(modules.back().back(), "output");
    std::string expected_layout;
    int block = 0;
    for (const auto& stage : modules) {
        std::string letters;
        for (const auto& module : stage) {
            if (module == fmt::format("layers.{}", block)) {
                ++block;
                letters += 't';
            } else if (module == "tok_embeddings" || module == "output") {
                letters += module == "output" ? 'L' : 'E';
            }
        }
        expected_layout += (expected_layout.empty() ? "" : "|") + letters;
    }
    EXPECT_EQ(block, 6);
    const std::string layout = exported("megatron-layout");
    const Outcome back =
        pipetwin({"import", "megatron", file("layout.txt", layout), "--out", path("back.toml")});
    EXPECT_EQ(back.code, 0) << back.err;
    EXPECT_THAT(content_of(path("back.toml")), HasSubstr("stages = 3"));
    EXPECT_EQ(expanded(layout), expected_layout);
    EXPECT_THAT(exported("megatron-flags"),
                AllOf(HasSubstr("--num-layers 6"), HasSubstr("--pipeline-model-parallel-size 3")));
}

// --- Scenarios that train. ---

class ImportTrainable : public InFolder {
  protected:
    Outcome import(const std::string& model, const std::vector<std::string>& more = {}) const {
        return pipetwin(joined({"import",
                                "hf",
                                model,
                                "--trainable",
                                "--sequence",
                                "256",
                                "--micro-batch-size",
                                "1",
                                "--force",
                                "--out",
                                path("model.toml")},
                               more));
    }
    std::string config(const nlohmann::json& changes) const {
        return file("config.json", testing::with(testing::llama_config(), changes).dump());
    }
};

/// The options of a comment that begins with `lead`.
std::vector<std::string> options_in_comment(const std::string& scenario, const std::string& lead) {
    const std::size_t begin = scenario.find(lead);
    std::istringstream words(scenario.substr(begin, scenario.find('\n', begin) - begin));
    std::vector<std::string> options;
    for (std::string word; words >> word;) {
        if (word == "--set" && words >> word) {
            options.insert(options.end(), {"--set", word});
        }
    }
    return options;
}

TEST_F(ImportTrainable, AModelOfABillionIsPlannedAndTrainedSmallWithOneScenario) {
    for (const auto& [model, parameters] :
         {std::pair("llama-3.2-1b", 1'235'814'400), std::pair("tinyllama-1.1b", 1'100'048'384)}) {
        SCOPED_TRACE(model);
        const Outcome imported = import(model, {"--device", "h100-sxm", "--json"});
        ASSERT_EQ(imported.code, 0) << imported.err;
        EXPECT_EQ(imported.json()["parameters"], parameters);
        const Outcome planned = pipetwin({"simulate",
                                          path("model.toml"),
                                          "--profile",
                                          path("model.profile.json"),
                                          "--set",
                                          "pipeline.stages=4",
                                          "--set",
                                          "pipeline.micro_batches=8",
                                          "--set",
                                          "pipeline.schedule=1f1b"});
        ASSERT_EQ(planned.code, 0) << planned.err;
        const Outcome trained =
            pipetwin(joined({"train", path("model.toml"), "--out", path(model)},
                            joined(options_in_comment(content_of(path("model.toml")), "# Train"),
                                   {"--set",
                                    "pipeline.stages=2",
                                    "--set",
                                    "pipeline.micro_batches=4",
                                    "--set",
                                    "pipeline.schedule=1f1b",
                                    "--set",
                                    "training.steps=2",
                                    "--set",
                                    "model.context=16"})));
        ASSERT_EQ(trained.code, 0) << trained.err;
    }
}

TEST_F(ImportTrainable, WritesTheKeysOfTheFile) {
    ASSERT_EQ(import("llama-3.2-1b").code, 0);
    const std::string text = content_of(path("model.toml"));
    for (const char* line : {"kind = \"llama\"\n",
                             "layers = 16\n",
                             "d_model = 2048\n",
                             "heads = 32\n",
                             "key_value_heads = 8\n",
                             "context = 256\n",
                             "vocabulary = 128256\n",
                             "feed_forward = 8192\n",
                             "tied = true\n",
                             "rotary_base = 500000\n",
                             "rotary_factor = 32\n",
                             "rotary_context = 8192\n",
                             "precision = \"bf16\"\n"}) {
        EXPECT_THAT(text, HasSubstr(line));
    }
    EXPECT_THAT(text, Not(HasSubstr("\nhead_size")));
    ASSERT_EQ(import(config({{"head_dim", 96}, {"rms_norm_eps", 1e-6}})).code, 0);
    EXPECT_THAT(content_of(path("model.toml")),
                AllOf(HasSubstr("head_size = 96\n"), HasSubstr("epsilon = 1e-06\n")));
    ASSERT_EQ(import("gpt2-124m", {"--precision", "bf16"}).code, 0);
    EXPECT_THAT(content_of(path("model.toml")),
                AllOf(HasSubstr("kind = \"gpt\"\n"), HasSubstr("dropout = 0.1\n")));
}

TEST_F(ImportTrainable, RefusesEveryKeyThatAsksForMore) {
    const Outcome refused = import(config({{"attention_bias", true},
                                           {"rope_scaling", {{"rope_type", "yarn"}}},
                                           {"hidden_act", "gelu"}}));
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("3 faults"),
                      HasSubstr("attention_bias: true, expected false"),
                      HasSubstr("rope_scaling: "),
                      HasSubstr("hidden_act: \"gelu\", expected \"silu\""),
                      HasSubstr("leave --trainable out")));
    EXPECT_EQ(import(config({{"model_type", "qwen2"}})).code, 3);
    EXPECT_EQ(import("llama-3.2-1b", {"--whole-blocks"}).code, 2);
    EXPECT_EQ(import("llama-3.2-1b", {"--precision", "fp16"}).code, 2);
    // As a profile it can be planned, and a note says that this is all.
    const Outcome profile = pipetwin({"import",
                                      "hf",
                                      config({{"attention_bias", true}}),
                                      "--device",
                                      "h100-sxm",
                                      "--sequence",
                                      "256",
                                      "--micro-batch-size",
                                      "1",
                                      "--out",
                                      path("x.profile.json")});
    EXPECT_EQ(profile.code, 0);
    EXPECT_THAT(profile.err, HasSubstr("not trained here: attention_bias is true"));
    const Outcome odd = pipetwin({"import",
                                  "hf",
                                  config({{"rope_scaling", {{"rope_type", "llama3"}}}}),
                                  "--device",
                                  "h100-sxm",
                                  "--sequence",
                                  "256",
                                  "--micro-batch-size",
                                  "1",
                                  "--out",
                                  path("odd.profile.json")});
    EXPECT_EQ(odd.code, 0);
    EXPECT_THAT(odd.err, HasSubstr("original_max_position_embeddings: missing"));
}

}  // namespace hf_test
}  // namespace pipetwin::cli
