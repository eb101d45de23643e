// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "cli/run_folder/run_folder.h"
#include "tests/cli/support.h"
#include "tests/support/hf_texts.h"
#include "tests/support/published_models.h"

/// Trainings that begin with weights of Hugging Face's, and what `export hf` makes of them.
namespace pipetwin::cli {
namespace weights_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::with;
using tests::gpt2_config;
using tests::gpt2_tensors;
using tests::PublishedTensor;
using tests::read_published;
using Words = std::vector<std::string>;

constexpr std::string_view gpt_scenario = R"([model]
kind = "gpt"
layers = 2
d_model = 16
heads = 2
context = 8
vocabulary = 32
feed_forward = 48
tied = true
[data]
kind = "synthetic"
[training]
batch = 4
steps = 2
learning_rate = 0
optimizer = "adamw"
[output]
checkpoint_every = 2
[pipeline]
stages = 2
micro_batches = 2
)";

constexpr std::string_view llama_scenario = R"([model]
kind = "llama"
layers = 2
d_model = 16
heads = 4
key_value_heads = 2
head_size = 6
context = 8
vocabulary = 32
feed_forward = 24
tied = false
rotary_base = 500000
rotary_factor = 8
rotary_context = 16
[data]
kind = "synthetic"
[training]
batch = 4
steps = 2
learning_rate = 0
optimizer = "adamw"
[output]
checkpoint_every = 2
[pipeline]
stages = 3
micro_batches = 2
)";

std::map<std::string, PublishedTensor> by_name(const std::vector<PublishedTensor>& tensors) {
    std::map<std::string, PublishedTensor> all;
    for (const PublishedTensor& tensor : tensors) {
        all[tensor.name] = tensor;
    }
    return all;
}

/// A GPT-2 whose head is a matrix of its own.
std::vector<PublishedTensor> untied_tensors(const std::string& dtype) {
    std::vector<PublishedTensor> tensors = gpt2_tensors(dtype);
    tensors.push_back({"lm_head.weight", dtype, {32, 16}});
    return tests::with_bytes(std::move(tensors));
}

class Weights : public InFolder {
  protected:
    Weights() {
        file("gpt.toml", gpt_scenario);
        file("llama.toml", llama_scenario);
    }

    std::string published(const std::vector<PublishedTensor>& tensors,
                          const nlohmann::json& config = gpt2_config()) const {
        tests::write_published(folder() / "published", tensors, config);
        return path("published");
    }

    /// Trains into the run folder `run`. Costs that the first training measured do for all.
    Outcome train(const std::string& run, const Words& more) const {
        Words args{"train", path("gpt.toml"), "--out", path(run)};
        if (std::filesystem::exists(folder() / "costs.json")) {
            args = joined(std::move(args), {"--profile", path("costs.json")});
        }
        const Outcome outcome = pipetwin(joined(std::move(args), more));
        const std::filesystem::path measured = folder() / run / run_file::profile;
        if (outcome.code == 0 && !std::filesystem::exists(folder() / "costs.json")) {
            std::filesystem::copy_file(measured, folder() / "costs.json");
        }
        return outcome;
    }

    Outcome exported(const std::string& run, const std::string& to, const Words& more = {}) const {
        return pipetwin(joined({"export", "hf", path(run), "--out", path(to)}, more));
    }

    /// Losses of all steps, to the last digit.
    std::vector<std::string> losses(const std::string& run) const {
        std::istringstream metrics(content_of(folder() / run / run_file::metrics));
        std::vector<std::string> all;
        for (std::string line; std::getline(metrics, line);) {
            const auto step = nlohmann::json::parse(line);
            all.push_back(nlohmann::json{step["loss"], step["grad_norm"]}.dump());
        }
        return all;
    }
};

TEST_F(Weights, ComeBackBitForBitWhereNothingIsTrained) {
    struct Case {
        const char* dtype;
        const char* precision;
        bool tied;
    };
    int number = 0;
    for (const Case& one : {Case{"F32", "fp32", true},
                            Case{"F32", "fp32", false},
                            Case{"BF16", "bf16", true},
                            Case{"BF16", "bf16", false},
                            Case{"F64", "fp64", true}}) {
        SCOPED_TRACE(std::string(one.dtype) + (one.tied ? " tied" : " untied"));
        const std::string run = "run" + std::to_string(++number);
        const std::vector<PublishedTensor> tensors =
            one.tied ? gpt2_tensors(one.dtype) : untied_tensors(one.dtype);
        const std::string from =
            published(tensors, with(gpt2_config(), {{"tie_word_embeddings", one.tied}}));
        const Outcome trained = train(run,
                                      {"--weights",
                                       from,
                                       "--set",
                                       "training.precision=" + std::string(one.precision),
                                       "--set",
                                       one.tied ? "model.tied=true" : "model.tied=false"});
        ASSERT_EQ(trained.code, 0) << trained.err;
        EXPECT_THAT(trained.err, HasSubstr("starts from the weights in " + from));
        const Outcome written = exported(run, run + "-hf");
        ASSERT_EQ(written.code, 0) << written.err;
        EXPECT_EQ(read_published(folder() / (run + "-hf")), by_name(tensors));
    }
}

TEST_F(Weights, OfALlamaComeBackBitForBit) {
    for (const bool tied : {false, true}) {
        for (const auto& [dtype, precision] :
             {std::pair("F32", "fp32"), std::pair("BF16", "bf16")}) {
            const std::string run = std::string(dtype) + (tied ? "-tied" : "-untied");
            SCOPED_TRACE(run);
            const std::vector<PublishedTensor> tensors = tests::llama_tensors(dtype, tied);
            const std::string from = published(tensors, tests::small_llama_config(tied));
            const Outcome trained = pipetwin({"train",
                                              path("llama.toml"),
                                              "--weights",
                                              from,
                                              "--set",
                                              std::string("training.precision=") + precision,
                                              "--set",
                                              tied ? "model.tied=true" : "model.tied=false",
                                              "--out",
                                              path(run)});
            ASSERT_EQ(trained.code, 0) << trained.err;
            const Outcome written = exported(run, run + "-hf");
            ASSERT_EQ(written.code, 0) << written.err;
            EXPECT_EQ(read_published(folder() / (run + "-hf")), by_name(tensors));
            // The context is the model's, not the 8 tokens of the samples that it was trained on.
            const auto config =
                nlohmann::json::parse(content_of(folder() / (run + "-hf") / "config.json"));
            EXPECT_EQ(config["max_position_embeddings"], 64);
            EXPECT_THAT(written.err, HasSubstr("it was trained here with 8"));
            // The folder begins a training of the same scenario, config.json included.
            const Outcome again = pipetwin({"train",
                                            path(run) + "/scenario.toml",
                                            "--weights",
                                            path(run + "-hf"),
                                            "--set",
                                            "pipeline.stages=1",
                                            "--out",
                                            path(run + "-again")});
            ASSERT_EQ(again.code, 0) << again.err;
            EXPECT_EQ(losses(run + "-again"), losses(run));
        }
    }
}

/// Experts are matrices of their own in the files, and whole on any replica.
TEST_F(Weights, OfAMixtralComeBackBitForBit) {
    std::string scenario(llama_scenario);
    scenario.replace(scenario.find("llama"), 5, "moe");
    scenario.replace(scenario.find("feed_forward"),
                     12,
                     "experts = 3\nexperts_per_token = 2\nexpert_feed_forward");
    file("moe.toml", scenario);
    nlohmann::json config = tests::small_llama_config();
    config["architectures"] = {"MixtralForCausalLM"};
    config["model_type"] = "mixtral";
    config["num_local_experts"] = 3;
    config["num_experts_per_tok"] = 2;
    const std::vector<PublishedTensor> tensors = tests::mixtral_tensors("BF16", 3);
    const std::string from = published(tensors, config);
    for (const std::string shard : {"none", "weights"}) {
        const Outcome trained = pipetwin({"train",
                                          path("moe.toml"),
                                          "--weights",
                                          from,
                                          "--set",
                                          "training.precision=bf16",
                                          "--set",
                                          "pipeline.data_parallel=2",
                                          "--set",
                                          "pipeline.stages=2",
                                          "--set",
                                          "pipeline.shard=" + shard,
                                          "--out",
                                          path(shard)});
        ASSERT_EQ(trained.code, 0) << trained.err;
        const Outcome written = exported(shard, shard + "-hf");
        ASSERT_EQ(written.code, 0) << written.err;
        EXPECT_EQ(read_published(folder() / (shard + "-hf")), by_name(tensors));
    }
    // The config.json of the export describes the same model.
    const Outcome imported = pipetwin({"import",
                                       "hf",
                                       "--trainable",
                                       path("none-hf") + "/config.json",
                                       "--micro-batch-size",
                                       "1",
                                       "--sequence",
                                       "8",
                                       "--out",
                                       path("again.toml")});
    ASSERT_EQ(imported.code, 0) << imported.err;
    EXPECT_THAT(content_of(path("again.toml")),
                AllOf(HasSubstr("kind = \"moe\""),
                      HasSubstr("experts = 3"),
                      HasSubstr("experts_per_token = 2"),
                      HasSubstr("expert_feed_forward = 24")));
    // A folder whose experts are missing is refused by their names.
    std::vector<PublishedTensor> fewer = tests::mixtral_tensors("BF16", 2);
    published(fewer, config);
    const Outcome refused =
        pipetwin({"train", path("moe.toml"), "--weights", from, "--out", path("refused")});
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err, HasSubstr("experts.2.w1.weight"));
    // Other routers have no published form here.
    const Outcome other = pipetwin({"train",
                                    path("moe.toml"),
                                    "--set",
                                    "model.router=sigmoid",
                                    "--weights",
                                    from,
                                    "--out",
                                    path("other")});
    EXPECT_EQ(other.code, 3);
    EXPECT_THAT(other.err, HasSubstr("for Mixtral's form alone"));
}

TEST_F(Weights, OfALlamaAreRefusedWhereConfigJsonHasOtherPositions) {
    published(tests::llama_tensors(), tests::small_llama_config());
    const auto refused = [&](const Words& sets) {
        Words args{"train", path("llama.toml"), "--weights", path("published"), "--out", path("x")};
        for (const std::string& set : sets) {
            args = joined(std::move(args), {"--set", set});
        }
        const Outcome outcome = pipetwin(args);
        EXPECT_EQ(outcome.code, 3);
        return outcome.err;
    };
    EXPECT_THAT(refused({"model.rotary_base=10000", "model.rotary_factor=1", "model.epsilon=1e-6"}),
                AllOf(HasSubstr("config.json: rope_theta: 500000, but model.rotary_base = 10000"),
                      HasSubstr("config.json: rms_norm_eps: 1e-05, but model.epsilon = 1e-06"),
                      HasSubstr("hint: as the folder's model is, set model.epsilon = 1e-05, "
                                "model.rotary_base = 500000, model.rotary_factor = 8")));
    // A gpt2 is no llama.
    published(gpt2_tensors());
    EXPECT_THAT(refused({}), HasSubstr("\"gpt2\", expected \"llama\""));
}

TEST_F(Weights, OfHalfPrecisionAreTrainedExactly) {
    const std::string from = published(gpt2_tensors("F16"));
    ASSERT_EQ(train("run", {"--weights", from}).code, 0);
    ASSERT_EQ(exported("run", "hf").code, 0);
    EXPECT_EQ(read_published(folder() / "hf"), by_name(gpt2_tensors("F32")));
}

TEST_F(Weights, AreSharedOutToReplicas) {
    const std::string from = published(gpt2_tensors("BF16"));
    for (const char* shard : {"none", "optimizer"}) {
        const std::string run = std::string("run-") + shard;
        const Outcome trained = train(run,
                                      {"--weights",
                                       from,
                                       "--set",
                                       "training.precision=bf16",
                                       "--set",
                                       "pipeline.data_parallel=2",
                                       "--set",
                                       std::string("pipeline.shard=") + shard});
        ASSERT_EQ(trained.code, 0) << trained.err;
        ASSERT_EQ(exported(run, run + "-hf").code, 0);
        EXPECT_EQ(read_published(folder() / (run + "-hf")), by_name(gpt2_tensors("BF16")));
    }
    EXPECT_EQ(losses("run-none"), losses("run-optimizer"));
}

TEST_F(Weights, GiveTheSameBitsForEveryCutAndEveryWayOfStoringThem) {
    const std::vector<PublishedTensor> tensors = gpt2_tensors();
    const std::string from = published(tensors);
    tests::write_shards(folder() / "shards", tensors, 3);
    tests::write_safetensors(folder() / "bare" / "model.safetensors", gpt2_tensors("F32", {}, ""));
    const Words learn{"--set", "training.learning_rate=0.01"};
    const auto run = [&](const std::string& name, const std::string& weights, const char* stages) {
        const Outcome outcome = train(
            name,
            joined(learn, {"--weights", weights, "--set", std::string("pipeline.") + stages}));
        ASSERT_EQ(outcome.code, 0) << outcome.err;
    };
    run("two", from, "stages=2");
    run("one", from, "stages=1");
    run("three", from, "stages=3");
    run("shards", path("shards"), "stages=2");
    for (const char* other : {"one", "three", "shards"}) {
        EXPECT_EQ(losses(other), losses("two")) << other;
    }
    ASSERT_EQ(train("drawn", learn).code, 0);
    EXPECT_NE(losses("drawn"), losses("two"));
    // Numbers of a tensor of this test follow from its name, so those of another name are others.
    run("bare", path("bare"), "stages=2");
    EXPECT_NE(losses("bare"), losses("two"));
}

TEST_F(Weights, AFileWithoutPrefixesIsTheSameModel) {
    std::vector<PublishedTensor> tensors = gpt2_tensors();
    ASSERT_EQ(train("with", {"--weights", published(tensors)}).code, 0);
    for (PublishedTensor& tensor : tensors) {
        tensor.name = tensor.name.substr(std::string("transformer.").size());
    }
    ASSERT_EQ(train("without", {"--weights", published(tensors)}).code, 0);
    EXPECT_EQ(losses("with"), losses("without"));
}

float number_at(const std::string& bytes, std::size_t index) {
    float number = 0;
    std::memcpy(&number, bytes.data() + 4 * index, 4);
    return number;
}

TEST_F(Weights, APaddedVocabularyBeginsWithTheMeanRow) {
    const std::string from =
        published(untied_tensors("F32"), with(gpt2_config(), {{"tie_word_embeddings", false}}));
    const Outcome trained = train(
        "run", {"--weights", from, "--set", "model.vocabulary=40", "--set", "model.tied=false"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_THAT(trained.err,
                AllOf(HasSubstr("transformer.wte.weight has 32 words, model.vocabulary = 40"),
                      HasSubstr("lm_head.weight has 32 words")));
    ASSERT_EQ(exported("run", "hf").code, 0);
    const auto written = read_published(folder() / "hf");
    const auto before = by_name(untied_tensors("F32"));
    for (const char* name : {"transformer.wte.weight", "lm_head.weight"}) {
        const PublishedTensor& wide = written.at(name);
        const std::string& known = before.at(name).bytes;
        ASSERT_EQ(wide.shape, (std::vector<std::int64_t>{40, 16}));
        EXPECT_EQ(wide.bytes.substr(0, known.size()), known);
        for (std::size_t column = 0; column < 16; ++column) {
            double sum = 0;
            for (std::size_t row = 0; row < 32; ++row) {
                sum += static_cast<double>(number_at(known, 16 * row + column));
            }
            for (std::size_t row = 32; row < 40; ++row) {
                EXPECT_EQ(number_at(wide.bytes, 16 * row + column), static_cast<float>(sum / 32));
            }
        }
    }
    const auto config = nlohmann::json::parse(content_of(folder() / "hf" / "config.json"));
    EXPECT_EQ(config["vocab_size"], 40);
}

TEST_F(Weights, AreExportedInShardsThatAreReadAgain) {
    ASSERT_EQ(train("run", {"--weights", published(gpt2_tensors())}).code, 0);
    const Outcome written = exported("run", "hf", {"--shard-size", "8 KiB", "--json"});
    ASSERT_EQ(written.code, 0) << written.err;
    EXPECT_EQ(read_published(folder() / "hf"), by_name(gpt2_tensors()));
    const auto index =
        nlohmann::json::parse(content_of(folder() / "hf" / "model.safetensors.index.json"));
    std::set<std::string> files;
    std::int64_t total = 0;
    for (const auto& [name, tensor] : by_name(gpt2_tensors())) {
        files.insert(index["weight_map"][name].get<std::string>());
        total += static_cast<std::int64_t>(tensor.bytes.size());
    }
    EXPECT_EQ(index["metadata"]["total_size"], total);
    EXPECT_EQ(written.json()["parameters"], total / 4);
    EXPECT_GT(files.size(), 2U);
    for (const std::string& file : files) {
        EXPECT_THAT(file, HasSubstr("-of-0000" + std::to_string(files.size())));
        // The numbers and a header of less than 3 KiB.
        EXPECT_LT(std::filesystem::file_size(folder() / "hf" / file), 11U << 10U);
    }
    ASSERT_EQ(train("again", {"--weights", path("hf")}).code, 0);
    EXPECT_EQ(losses("again"), losses("run"));
}

TEST_F(Weights, AnExportReplacesAnotherOnlyByForce) {
    ASSERT_EQ(train("run", {"--weights", published(gpt2_tensors())}).code, 0);
    ASSERT_EQ(exported("run", "hf", {"--shard-size", "8 KiB"}).code, 0);
    file("hf/tokenizer.json", "{}");
    const Outcome refused = exported("run", "hf");
    EXPECT_EQ(refused.code, 6);
    EXPECT_THAT(refused.err, HasSubstr("--force"));
    ASSERT_EQ(exported("run", "hf", {"--force"}).code, 0);
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder() / "hf")) {
        names.insert(entry.path().filename().string());
    }
    EXPECT_EQ(names, (std::set<std::string>{"config.json", "model.safetensors", "tokenizer.json"}));
}

TEST_F(Weights, AreRefusedWithEveryTensorAndALeftoverOfNothing) {
    std::vector<PublishedTensor> tensors = gpt2_tensors();
    tensors[3].name = "transformer.h.0.ln_1.beta";
    tensors[5].shape = {3, 16};
    const Outcome refused = train("run", {"--weights", published(tensors)});
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("'transformer.h.0.ln_1.bias': missing, expected [16]"),
                      HasSubstr("'transformer.h.0.ln_1.beta': [16], belongs to no part"),
                      HasSubstr("'transformer.h.0.attn.c_attn.bias': [3, 16], expected [48]"),
                      HasSubstr("hint: ")));
    EXPECT_FALSE(std::filesystem::exists(folder() / "run"));
}

TEST_F(Weights, OfADtypeThatIsNotKnownAreRefused) {
    tests::write_published(folder() / "published", gpt2_tensors(), gpt2_config());
    std::string bytes = content_of(folder() / "published" / "model.safetensors");
    bytes.replace(bytes.find("\"F32\""), 5, "\"F31\"");
    tests::write_bytes(folder() / "published" / "model.safetensors", bytes);
    const Outcome refused = train("run", {"--weights", path("published")});
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("\"F31\""), HasSubstr("BF16")));
}

TEST_F(Weights, BeginOnlyModelsThatAreOfTheFamily) {
    published(gpt2_tensors());
    const Outcome refused = pipetwin({"train",
                                      file("small.toml", small_scenario),
                                      "--profile",
                                      file("small.csv", small_profile),
                                      "--weights",
                                      path("published"),
                                      "--out",
                                      path("run")});
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("model.kind"), HasSubstr("\"mlp\"")));
    const Outcome both = train("run", {"--weights", path("published"), "--resume"});
    EXPECT_EQ(both.code, 2);
    EXPECT_THAT(both.err, HasSubstr("--weights"));
}

TEST_F(Weights, AreExportedOfRunsWithCheckpointsAlone) {
    const auto refused = [&](const Words& args, int code, const std::string& text) {
        const Outcome outcome = pipetwin(joined({"export", "hf"}, args));
        EXPECT_EQ(outcome.code, code) << outcome.err;
        EXPECT_THAT(outcome.err, AllOf(HasSubstr(text), HasSubstr("hint: ")));
        EXPECT_FALSE(std::filesystem::exists(folder() / "hf"));
    };
    refused({path("gpt.toml"), "--out", path("hf")}, 3, "expected one with checkpoints");
    ASSERT_EQ(train("run", {"--set", "output.checkpoint_every=0"}).code, 0);
    refused({path("run"), "--out", path("hf")}, 3, "output.checkpoint_every=N");
    refused({path("run"), "--out", path("hf"), "--shard-size", "much"}, 2, "--shard-size");
    refused({path("run"), "--out", path("hf"), "--set", "a=b"}, 2, "is not a scenario");
    EXPECT_EQ(pipetwin({"export",
                        "torch-csv",
                        path("gpt.toml"),
                        "--shard-size",
                        "1 GB",
                        "--out",
                        path("x.csv")})
                  .code,
              2);
    file("mlp.toml", small_scenario);
    ASSERT_EQ(pipetwin({"train",
                        path("mlp.toml"),
                        "--profile",
                        file("small.csv", small_profile),
                        "--set",
                        "output.checkpoint_every=1",
                        "--out",
                        path("mlp")})
                  .code,
              0);
    refused({path("mlp"), "--out", path("hf")}, 3, "\"mlp\"");
}

}  // namespace weights_test
}  // namespace pipetwin::cli
