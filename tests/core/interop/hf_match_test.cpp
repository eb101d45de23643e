// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_match.h"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/interop/hf_trainable.h"
#include "tests/support/error_of.h"
#include "tests/support/hf_texts.h"
#include "tests/support/published_models.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin {
namespace hf_match_test {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::gpt2_config;
using tests::gpt2_tensors;
using tests::Gpt2Sizes;
using tests::PublishedTensor;

/// The scenario's words for tests::Gpt2Sizes.
ScenarioParts::ModelPart small_model() {
    ScenarioParts::ModelPart model;
    model.kind = ModelKind::Gpt;
    model.gpt = {.layers = 2,
                 .d_model = 16,
                 .heads = 2,
                 .context = 8,
                 .vocabulary = 32,
                 .feed_forward = 48,
                 .tied = true};
    return model;
}

class HfMatches : public ::testing::Test {
  protected:
    HfMatches() { tests::write_published(folder(), gpt2_tensors(), gpt2_config()); }

    std::filesystem::path folder() const { return scratch_ / "published"; }
    HfMatch match(const ScenarioParts::ModelPart& model = small_model()) const {
        return match_hf_folder(HfFolder(folder()), model);
    }
    Error refusal(const ScenarioParts::ModelPart& model = small_model()) const {
        return error_of([&] { static_cast<void>(match(model)); });
    }
    void write(const std::vector<PublishedTensor>& tensors,
               const nlohmann::json& config = gpt2_config()) const {
        tests::write_published(folder(), tensors, config);
    }
    void write_config(const std::string& text) const {
        tests::write_bytes(folder() / "config.json", text);
    }

  private:
    tests::ScratchFolder scratch_;
};

PublishedTensor& named(std::vector<PublishedTensor>& tensors, const std::string& name) {
    for (PublishedTensor& tensor : tensors) {
        if (tensor.name == name) {
            return tensor;
        }
    }
    throw std::out_of_range(name);
}

TEST_F(HfMatches, FindsEveryParameterOfAGpt2) {
    const HfMatch found = match();
    EXPECT_THAT(found.notes, IsEmpty());
    ASSERT_EQ(found.sources.size(), 2U + 2 * 12 + 2);
    std::set<std::string> tensors;
    for (std::size_t i = 0; i < found.sources.size(); ++i) {
        ASSERT_EQ(found.sources[i].size(), 1U);
        tensors.insert(found.names.parameters[i].slices[0].tensor);
    }
    EXPECT_EQ(tensors.size(), found.sources.size());
}

TEST_F(HfMatches, NamesMayLackTheirPrefixAndBuffersAreNoWeights) {
    std::vector<PublishedTensor> tensors = gpt2_tensors("F16", {}, "");
    tensors.push_back({"h.0.attn.bias", "U8", {1, 1, 2, 2}, std::string(4, '\1')});
    tensors.push_back({"h.0.attn.masked_bias", "F32", {}, std::string(4, '\1')});
    write(tensors);
    EXPECT_THAT(match().notes, IsEmpty());
}

TEST_F(HfMatches, ACopyOfTheTableIsTheHeadOfATiedModel) {
    std::vector<PublishedTensor> tensors = gpt2_tensors();
    PublishedTensor head = named(tensors, "transformer.wte.weight");
    head.name = "lm_head.weight";
    tensors.push_back(head);
    write(tensors);
    EXPECT_THAT(match().notes, IsEmpty());

    tensors.back().bytes[7] ^= '\1';
    write(tensors);
    const Error error = refusal();
    EXPECT_THAT(error.text(),
                HasSubstr("'lm_head.weight': it is another matrix than "
                          "'transformer.wte.weight'"));
    EXPECT_THAT(error.text(), HasSubstr("set model.tied = false"));

    ScenarioParts::ModelPart untied = small_model();
    untied.gpt.tied = false;
    write(tensors, testing::with(gpt2_config(), {{"tie_word_embeddings", false}}));
    EXPECT_EQ(match(untied).names.parameters.back().name, "head.projection.weight");
    EXPECT_TRUE(match(untied).names.parameters.back().slices[0].transposed);
}

TEST_F(HfMatches, AHeadThatIsMissingIsATiedOne) {
    ScenarioParts::ModelPart untied = small_model();
    untied.gpt.tied = false;
    std::filesystem::remove(folder() / "config.json");
    const Error error = refusal(untied);
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), HasSubstr("tensor 'lm_head.weight': missing, expected [32, 16]"));
    EXPECT_THAT(error.text(), HasSubstr("set model.tied = true"));
}

TEST_F(HfMatches, AShorterVocabularyIsPadded) {
    ScenarioParts::ModelPart wider = small_model();
    wider.gpt.vocabulary = 40;
    const HfMatch found = match(wider);
    EXPECT_EQ(found.sources[0][0].rows, 32);
    ASSERT_EQ(found.notes.size(), 1U);
    EXPECT_THAT(found.notes[0], HasSubstr("has 32 words, model.vocabulary = 40"));
}

TEST_F(HfMatches, ALongerVocabularyIsRefusedUnlessItIsPadding) {
    ScenarioParts::ModelPart narrower = small_model();
    narrower.gpt.vocabulary = 30;
    const Error error = refusal(narrower);
    EXPECT_THAT(error.text(), HasSubstr("[32, 16], expected [30, 16]"));
    EXPECT_THAT(error.text(), HasSubstr("set model.vocabulary = 32"));

    std::vector<PublishedTensor> tensors = gpt2_tensors();
    std::string& table = named(tensors, "transformer.wte.weight").bytes;
    std::fill(table.end() - std::ptrdiff_t{2 * 16 * 4}, table.end(), '\0');
    write(tensors);
    const HfMatch found = match(narrower);
    EXPECT_EQ(found.sources[0][0].rows, 30);
    ASSERT_EQ(found.notes.size(), 1U);
    EXPECT_THAT(found.notes[0], HasSubstr("its last 2 rows are all alike"));
}

TEST_F(HfMatches, FewerPositionsAreTrainedButNoMore) {
    ScenarioParts::ModelPart shorter = small_model();
    shorter.gpt.context = 6;
    EXPECT_EQ(match(shorter).sources[1][0].rows, 6);
    EXPECT_THAT(match(shorter).notes.at(0), HasSubstr("has 8 positions, of which the first 6"));
    shorter.gpt.context = 9;
    EXPECT_THAT(refusal(shorter).text(), HasSubstr("set model.context = 8, or less"));
}

TEST_F(HfMatches, EveryWrongTensorIsNamed) {
    std::vector<PublishedTensor> tensors = gpt2_tensors();
    std::filesystem::remove(folder() / "config.json");
    named(tensors, "transformer.h.0.attn.c_attn.weight").shape = {48, 16};
    named(tensors, "transformer.h.1.ln_2.bias").name = "transformer.h.1.ln_2.beta";
    named(tensors, "transformer.h.1.mlp.c_fc.bias").dtype = "I32";
    tensors.push_back({"score.weight", "F32", {2}, std::string(8, '\0')});
    tests::write_safetensors(folder() / "model.safetensors", tensors);
    const Error error = refusal();
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), folder().string());
    EXPECT_THAT(
        error.text(),
        AllOf(HasSubstr("5 faults:"),
              HasSubstr("model.safetensors: tensor 'transformer.h.0.attn.c_attn.weight': [48, 16], "
                        "expected [16, 48]; it is transposed: a gpt2 has (inputs, outputs) there"),
              HasSubstr("tensor 'transformer.h.1.ln_2.bias': missing, expected [16]; there is "
                        "'h.1.ln_2.beta': is that the one?"),
              HasSubstr("'transformer.h.1.mlp.c_fc.bias': I32, expected F32, F16, BF16 or F64"),
              HasSubstr("'score.weight': [2], belongs to no part of the scenario's model"),
              HasSubstr("'transformer.h.1.ln_2.beta': [16], belongs to no part")));
    EXPECT_FALSE(error.hint().empty());
}

TEST_F(HfMatches, AnotherSizeIsTheOneKeyToSet) {
    std::filesystem::remove(folder() / "config.json");
    ScenarioParts::ModelPart deeper = small_model();
    deeper.gpt.layers = 3;
    deeper.gpt.feed_forward = 64;
    const Error error = refusal(deeper);
    EXPECT_THAT(error.text(), HasSubstr("tensor 'transformer.h.2.ln_1.weight': missing"));
    EXPECT_THAT(error.text(),
                HasSubstr("'transformer.h.0.mlp.c_fc.weight': [16, 48], expected "
                          "[16, 64]"));
    EXPECT_EQ(error.hint(),
              "as the folder's model is, set model.layers = 2, model.feed_forward = 48");
}

TEST_F(HfMatches, OfManyFaultsFortyAreNamedAndTheOthersCounted) {
    ScenarioParts::ModelPart deep = small_model();
    deep.gpt.layers = 12;
    const std::string text = refusal(deep).text();
    EXPECT_THAT(text, HasSubstr("121 faults:"));  // ten blocks of twelve tensors, and n_layer
    EXPECT_THAT(text, HasSubstr("config.json: n_layer: 2, but model.layers = 12"));
    EXPECT_THAT(text, HasSubstr("and 81 more"));
}

TEST_F(HfMatches, ConfigJsonSaysWhatNoShapeDoes) {
    ScenarioParts::ModelPart four = small_model();
    four.gpt.heads = 4;
    const Error error = refusal(four);
    EXPECT_EQ(error.text(), "config.json: n_head: 2, but model.heads = 4");
    EXPECT_EQ(error.hint(), "as the folder's model is, set model.heads = 2");

    write_config(testing::with(gpt2_config(),
                               {{"activation_function", "relu"}, {"layer_norm_epsilon", 1e-6}})
                     .dump());
    const std::string text = refusal().text();
    EXPECT_THAT(text, HasSubstr("config.json: activation_function: \"relu\", expected \"gelu\""));
    EXPECT_THAT(text, HasSubstr("config.json: layer_norm_epsilon: 1e-06, expected 1e-05"));
}

TEST_F(HfMatches, BothFormsOfGeluHaveSeveralWords) {
    ScenarioParts::ModelPart by_tanh = small_model();
    by_tanh.gpt.gelu = GeluForm::Tanh;
    for (const char* const word : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}) {
        write_config(testing::with(gpt2_config(), {{"activation_function", word}}).dump());
        EXPECT_THAT(match(by_tanh).notes, IsEmpty());
        const Error error = refusal();
        EXPECT_EQ(error.text(),
                  "config.json: activation_function (its form of GELU): \"tanh\", but model.gelu = "
                  "\"exact\"");
        EXPECT_EQ(error.hint(), "as the folder's model is, set model.gelu = \"tanh\"");
    }
    write_config(testing::with(gpt2_config(), {{"activation_function", "gelu"}}).dump());
    EXPECT_THAT(match().notes, IsEmpty());
    EXPECT_EQ(refusal(by_tanh).hint(), "as the folder's model is, set model.gelu = \"exact\"");
}

TEST_F(HfMatches, AnotherFamilyIsRefused) {
    nlohmann::json other = testing::llama_config();
    for (const char* family : {"qwen2", "mistral", "llama", "bert"}) {
        other["model_type"] = family;
        write_config(other.dump());
        const Error error = refusal();
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.place(), HasSubstr("config.json: /model_type"));
        EXPECT_THAT(error.text(), HasSubstr("\"" + std::string(family) + "\", expected"));
        EXPECT_FALSE(error.hint().empty());
    }
}

TEST_F(HfMatches, AnotherFamilyIsRefusedByItsTensors) {
    std::filesystem::remove(folder() / "config.json");
    tests::write_safetensors(folder() / "model.safetensors",
                             {{"bert.embeddings.word_embeddings.weight", "F32", {1}, "abcd"}});
    const Error error = refusal();
    EXPECT_THAT(error.text(), HasSubstr("tensor 'transformer.wte.weight': missing"));
    EXPECT_THAT(error.hint(), HasSubstr("is it a gpt2, as model.kind = \"gpt\" is?"));
}

TEST_F(HfMatches, OtherKindsOfModelsHaveNoSuchWeights) {
    ScenarioParts::ModelPart mlp;
    mlp.kind = ModelKind::Mlp;
    mlp.sizes = {4, 2};
    const Error error = refusal(mlp);
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "model.kind");
    EXPECT_THAT(error.text(), HasSubstr("\"mlp\""));
}

// --- Folders. ---

TEST_F(HfMatches, ShardsAreOneModel) {
    std::filesystem::remove(folder() / "model.safetensors");
    tests::write_shards(folder(), gpt2_tensors("BF16"), 3);
    EXPECT_EQ(HfFolder(folder()).tensors().size(), gpt2_tensors().size());
    EXPECT_THAT(match().notes, IsEmpty());

    std::filesystem::remove(folder() / "shard-0.safetensors");
    std::filesystem::remove(folder() / "shard-2.safetensors");
    const Error error = refusal();
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.text(),
              "it names 2 files that are not there: shard-0.safetensors, shard-2.safetensors");
}

TEST_F(HfMatches, AnIndexLeadsNowhereElse) {
    std::filesystem::remove(folder() / "model.safetensors");
    tests::write_shards(folder(), gpt2_tensors(), 1);
    const auto index = [&](const std::string& file) {
        tests::write_bytes(folder() / "model.safetensors.index.json",
                           nlohmann::json{{"weight_map", {{"wte.weight", file}}}}.dump());
        return refusal();
    };
    for (const char* file : {"../shard-0.safetensors", "/etc/passwd", ""}) {
        const Error error = index(file);
        EXPECT_EQ(error.kind(), ErrorKind::BadInput) << file;
        EXPECT_THAT(error.place(), HasSubstr("/weight_map/wte.weight")) << file;
        EXPECT_FALSE(error.hint().empty());
    }
    std::filesystem::copy(folder() / "shard-0.safetensors", folder() / "../other.safetensors");
    std::filesystem::create_symlink("../other.safetensors", folder() / "link.safetensors");
    EXPECT_THAT(index("link.safetensors").text(), HasSubstr("a link to"));
    // The file is there, and has no tensor of that name.
    EXPECT_THAT(index("shard-0.safetensors").text(), HasSubstr("expected a file that holds this"));
}

TEST_F(HfMatches, AFolderOfTheHubsCacheIsOne) {
    const std::filesystem::path model = folder() / "models--x";
    const std::filesystem::path snapshot = model / "snapshots" / "1234";
    tests::write_shards(model / "blobs", gpt2_tensors(), 2);
    std::filesystem::create_directories(snapshot);
    for (const char* name :
         {"shard-0.safetensors", "shard-1.safetensors", "model.safetensors.index.json"}) {
        std::filesystem::create_symlink(std::filesystem::path("../../blobs") / name,
                                        snapshot / name);
    }
    EXPECT_EQ(match_hf_folder(HfFolder(snapshot), small_model()).sources.size(), 28U);
}

TEST_F(HfMatches, AFolderWithoutWeightsSaysWhatToDo) {
    const auto refused = [](const std::filesystem::path& path) {
        return error_of([&] { HfFolder{path}; });
    };
    const Error missing = refused(folder() / "none");
    EXPECT_EQ(missing.kind(), ErrorKind::BadInput);
    EXPECT_THAT(missing.text(), HasSubstr("no such folder"));
    EXPECT_THAT(refused(folder() / "model.safetensors").hint(),
                HasSubstr("name its folder: " + folder().string()));
    std::filesystem::rename(folder() / "model.safetensors", folder() / "x.safetensors");
    EXPECT_THAT(refused(folder()).hint(), HasSubstr("name it model.safetensors"));
    std::filesystem::rename(folder() / "x.safetensors", folder() / "pytorch_model.bin");
    EXPECT_THAT(refused(folder()).hint(), HasSubstr("save_pretrained"));
}

TEST_F(HfMatches, ATruncatedFileIsRefused) {
    const std::filesystem::path file = folder() / "model.safetensors";
    for (const std::uintmax_t size :
         {std::filesystem::file_size(file) - 1, std::uintmax_t{100}, std::uintmax_t{0}}) {
        std::filesystem::resize_file(file, size);
        const Error error = refusal();
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.place(), HasSubstr("model.safetensors"));
        EXPECT_FALSE(error.hint().empty());
    }
}

// --- config.json. ---

TEST(HfTrainable, WhatIsPrintedIsRead) {
    for (const bool tied : {false, true}) {
        ScenarioParts::ModelPart model = small_model();
        model.gpt.tied = tied;
        model.gpt.dropout = 0.25;
        model.gpt.gelu = tied ? GeluForm::Tanh : GeluForm::Exact;
        const HfTrainable read = parse_hf_trainable(print_hf_config(model, "bfloat16"), "it");
        EXPECT_EQ(read.model, model);
        EXPECT_EQ(read.precision, "bf16");
        EXPECT_THAT(read.lacks, IsEmpty());
        EXPECT_THAT(read.notes, IsEmpty());
    }
}

nlohmann::json llama32_1b() {
    return testing::with(testing::llama_config(),
                         {{"num_hidden_layers", 16},
                          {"hidden_size", 2048},
                          {"intermediate_size", 8192},
                          {"head_dim", 64},
                          {"max_position_embeddings", 131072},
                          {"rms_norm_eps", 1e-5},
                          {"rope_theta", 500000.0},
                          {"rope_scaling",
                           {{"factor", 32.0},
                            {"high_freq_factor", 4.0},
                            {"low_freq_factor", 1.0},
                            {"original_max_position_embeddings", 8192},
                            {"rope_type", "llama3"}}},
                          {"tie_word_embeddings", true}});
}

const LlamaSizes llama32_sizes{
    .layers = 16,
    .d_model = 2048,
    .heads = 32,
    .key_value_heads = 8,
    .head_size = 64,
    .context = 131072,
    .vocabulary = 128256,
    .feed_forward = 8192,
    .tied = true,
    .epsilon = 1e-5,
    .rotary = {
        .base = 500000, .factor = 32, .context = 8192, .low_frequency = 1, .high_frequency = 4}};

TEST(HfTrainable, ReadsLlama32) {
    const HfTrainable read = parse_hf_trainable(llama32_1b().dump(), "config.json");
    EXPECT_EQ(read.model.kind, ModelKind::Llama);
    EXPECT_EQ(read.model.llama, llama32_sizes);
    EXPECT_EQ(read.precision, "bf16");
    EXPECT_THAT(read.lacks, IsEmpty());
    EXPECT_THAT(read.notes, IsEmpty());
    EXPECT_EQ(parse_hf_trainable(print_hf_config(read.model, "bfloat16"), "it").model, read.model);
    // As transformers 5 writes it.
    nlohmann::json together = llama32_1b();
    together["rope_parameters"] = together["rope_scaling"];
    together["rope_parameters"]["rope_theta"] = together["rope_theta"];
    together.erase("rope_theta");
    together.erase("rope_scaling");
    EXPECT_EQ(parse_hf_trainable(together.dump(), "config.json").model.llama, llama32_sizes);
    // Mistral's layers are Llama's where it has no window.
    const auto mistral = testing::with(llama32_1b(), {{"model_type", "mistral"}});
    EXPECT_EQ(parse_hf_trainable(mistral.dump(), "config.json").model.llama, llama32_sizes);
}

TEST(HfTrainable, LinearPositionsAreDividedByOneFactor) {
    const auto config =
        testing::with(llama32_1b(), {{"rope_scaling", nullptr}, {"num_key_value_heads", nullptr}});
    EXPECT_EQ(parse_hf_trainable(config.dump(), "it").model.llama.rotary, (Rotary{.base = 500000}));
    EXPECT_EQ(parse_hf_trainable(config.dump(), "it").model.llama.key_value_heads, 32);
    nlohmann::json linear = config;
    linear["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
    const HfTrainable read = parse_hf_trainable(linear.dump(), "it");
    EXPECT_EQ(read.model.llama.rotary, (Rotary{.base = 500000, .factor = 4}));
    EXPECT_EQ(parse_hf_trainable(print_hf_config(read.model, "float32"), "it").model, read.model);
}

TEST(HfTrainable, NamesEveryKeyThatAsksForMore) {
    const auto lacks = [](const nlohmann::json& changes) {
        std::vector<std::string> keys;
        for (const HfFault& lack :
             parse_hf_trainable(testing::with(llama32_1b(), changes).dump(), "it").lacks) {
            keys.push_back(lack.where);
        }
        return keys;
    };
    EXPECT_EQ(
        lacks({{"attention_bias", true},
               {"mlp_bias", true},
               {"hidden_act", "gelu"},
               {"partial_rotary_factor", 0.5},
               {"rope_scaling", {{"rope_type", "yarn"}}}}),
        (std::vector<std::string>{
            "hidden_act", "attention_bias", "mlp_bias", "partial_rotary_factor", "rope_scaling"}));
    EXPECT_EQ(lacks({{"model_type", "mistral"}, {"sliding_window", 4096}}),
              std::vector<std::string>{"sliding_window"});
    EXPECT_THAT(lacks({{"sliding_window", nullptr}, {"partial_rotary_factor", 1.0}}), IsEmpty());
}

/// openai-community/gpt2, without what is for generating text.
TEST(HfTrainable, ReadsThePublishedGpt2) {
    const HfTrainable read = parse_hf_trainable(R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
  "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
  "vocab_size": 50257})",
                                                "config.json");
    EXPECT_EQ(read.model.kind, ModelKind::Gpt);
    EXPECT_EQ(read.model.gpt,
              (GptSizes{.layers = 12,
                        .d_model = 768,
                        .heads = 12,
                        .context = 1024,
                        .vocabulary = 50257,
                        .feed_forward = 3072,
                        .tied = true,
                        .dropout = 0.1,
                        .gelu = GeluForm::Tanh}));
    EXPECT_THAT(read.lacks, IsEmpty());
    EXPECT_EQ(read.notes.size(), 1U);  // dropout of attention
}

}  // namespace hf_match_test
}  // namespace pipetwin
