// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_config.h"

#include <random>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/costs/devices/shipped_profiles.h"
#include "core/text/json_text.h"
#include "tests/support/error_of.h"
#include "tests/support/hf_texts.h"
#include "tests/support/mutate.h"
#include "tests/support/places.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace hf_config_test {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::llama_config;
using ::testing::Not;
using ::testing::StartsWith;
using testing::with;

DecoderModel parse(const json& config) {
    return parse_hf_config(config.dump(), "config.json");
}

std::int64_t parameters(const DecoderModel& model) {
    return parameter_count(model);
}

// --- Exact counts, as published with the weights. ---

TEST(HfConfig, ShippedModelsHaveThePublishedNumbersOfParameters) {
    const std::map<std::string, std::int64_t> published{
        {"gpt2-124m", 124'439'808},           {"gpt2-355m", 354'823'168},
        {"gpt2-774m", 774'030'080},           {"gpt2-1.5b", 1'557'611'200},
        {"llama-2-7b", 6'738'415'616},        {"llama-2-13b", 13'015'864'320},
        {"llama-2-70b", 68'976'648'192},      {"llama-3-8b", 8'030'261'248},
        {"llama-3-70b", 70'553'706'496},      {"llama-3.1-8b", 8'030'261'248},
        {"llama-3.1-70b", 70'553'706'496},    {"llama-3.1-405b", 405'853'388'800},
        {"llama-3.2-1b", 1'235'814'400},      {"llama-3.2-3b", 3'212'749'824},
        {"tinyllama-1.1b", 1'100'048'384},    {"mistral-7b", 7'248'023'552},
        {"mixtral-8x7b", 46'702'792'704},     {"mixtral-8x22b", 140'620'634'112},
        {"qwen2.5-7b", 7'615'616'512},        {"qwen2.5-14b", 14'770'033'664},
        {"qwen2.5-32b", 32'763'876'352},      {"qwen2.5-72b", 72'706'203'648},
        {"qwen3-8b", 8'190'735'360},          {"qwen3-30b-a3b", 30'532'122'624},
        {"qwen3-235b-a22b", 235'093'634'560}, {"gpt-oss-120b", 116'829'156'672},
        {"llama-4-scout", 107'769'861'120},   {"deepseek-v2-lite", 15'706'484'224},
        {"deepseek-v3", 671'026'419'200}};
    EXPECT_EQ(model_names().size(), published.size());
    for (const auto& [name, count] : published) {
        const std::filesystem::path file = find_model(name);
        EXPECT_EQ(parameters(parse_hf_config(read_file(file, 1 << 20), file.string())), count)
            << name;
    }
}

/// Parameters that a token goes through: Qwen3's technical report (22 B), Meta's model card of
/// Llama 4 (17 B), and the model card of gpt-oss, table 1 (5.13 B), which leaves the embedding out.
TEST(HfConfig, TokensGoThroughThePublishedNumbersOfParameters) {
    struct Active {
        std::string_view name;
        double billions;
        double rounding;
        bool with_embedding = true;
    };
    for (const Active& published : {Active{"qwen3-235b-a22b", 22, 0.5},
                                    Active{"llama-4-scout", 17, 0.5},
                                    Active{"gpt-oss-120b", 5.13, 0.005, false}}) {
        const std::filesystem::path file = find_model(published.name);
        const DecoderModel model = parse_hf_config(read_file(file, 1 << 20), file.string());
        std::int64_t active = parameter_count(model);
        for (int block = 0; block < model.blocks; ++block) {
            active -= routed_parameters(model, block) / model.experts.count *
                      (model.experts.count - model.experts.per_token);
        }
        active -= published.with_embedding ? 0 : embedding_parameters(model);
        EXPECT_NEAR(static_cast<double>(active) / 1e9, published.billions, published.rounding)
            << published.name;
    }
}

TEST(HfConfig, MistralsHaveThePublishedNumbersOfParameters) {
    const json mistral = with(llama_config(),
                              {{"model_type", "mistral"},
                               {"vocab_size", 32000},
                               {"max_position_embeddings", 32768},
                               {"sliding_window", 4096}});
    EXPECT_EQ(parameters(parse(mistral)), 7'241'732'096);
    EXPECT_EQ(parse(mistral).attention.window, 4096);
    const json mixtral = with(mistral,
                              {{"model_type", "mixtral"},
                               {"num_local_experts", 8},
                               {"num_experts_per_tok", 2},
                               {"sliding_window", nullptr}});
    EXPECT_EQ(parameters(parse(mixtral)), 46'702'792'704);
    EXPECT_EQ(parse(mixtral).attention.window, 0);
}

TEST(HfConfig, QwensHaveThePublishedNumbersOfParameters) {
    const json qwen2 = with(llama_config(),
                            {{"model_type", "qwen2"},
                             {"num_hidden_layers", 28},
                             {"hidden_size", 3584},
                             {"intermediate_size", 18944},
                             {"num_attention_heads", 28},
                             {"num_key_value_heads", 4},
                             {"vocab_size", 152064},
                             {"sliding_window", 131072},
                             {"use_sliding_window", false}});
    EXPECT_EQ(parameters(parse(qwen2)), 7'615'616'512);
    EXPECT_EQ(parse(qwen2).attention.window, 0);  // switched off
    const json qwen25_half = with(qwen2,
                                  {{"num_hidden_layers", 24},
                                   {"hidden_size", 896},
                                   {"intermediate_size", 4864},
                                   {"num_attention_heads", 14},
                                   {"num_key_value_heads", 2},
                                   {"vocab_size", 151936},
                                   {"tie_word_embeddings", true}});
    EXPECT_EQ(parameters(parse(qwen25_half)), 494'032'768);
    const json qwen3_8b = with(llama_config(),
                               {{"model_type", "qwen3"},
                                {"num_hidden_layers", 36},
                                {"intermediate_size", 12288},
                                {"head_dim", 128},
                                {"vocab_size", 151936}});
    EXPECT_EQ(parameters(parse(qwen3_8b)), 8'190'735'360);
}

TEST(HfConfig, QwensWithExpertsHaveThePublishedNumbersOfParameters) {
    const json qwen3_30b = with(llama_config(),
                                {{"model_type", "qwen3_moe"},
                                 {"num_hidden_layers", 48},
                                 {"hidden_size", 2048},
                                 {"intermediate_size", 6144},
                                 {"num_key_value_heads", 4},
                                 {"head_dim", 128},
                                 {"vocab_size", 151936},
                                 {"num_experts", 128},
                                 {"num_experts_per_tok", 8},
                                 {"moe_intermediate_size", 768},
                                 {"decoder_sparse_step", 1},
                                 {"mlp_only_layers", json::array()}});
    EXPECT_EQ(parameters(parse(qwen3_30b)), 30'532'122'624);
    const json qwen15_moe = with(qwen3_30b,
                                 {{"model_type", "qwen2_moe"},
                                  {"num_hidden_layers", 24},
                                  {"num_attention_heads", 16},
                                  {"num_key_value_heads", 16},
                                  {"head_dim", nullptr},
                                  {"num_experts", 60},
                                  {"num_experts_per_tok", 4},
                                  {"moe_intermediate_size", 1408},
                                  {"shared_expert_intermediate_size", 5632}});
    EXPECT_EQ(parameters(parse(qwen15_moe)), 14'315'784'192);
}

TEST(HfConfig, DeepSeeksHaveThePublishedNumbersOfParameters) {
    const json moe_16b = with(llama_config(),
                              {{"model_type", "deepseek"},
                               {"num_hidden_layers", 28},
                               {"hidden_size", 2048},
                               {"intermediate_size", 10944},
                               {"num_attention_heads", 16},
                               {"num_key_value_heads", 16},
                               {"vocab_size", 102400},
                               {"n_routed_experts", 64},
                               {"n_shared_experts", 2},
                               {"num_experts_per_tok", 6},
                               {"moe_intermediate_size", 1408},
                               {"first_k_dense_replace", 1},
                               {"moe_layer_freq", 1}});
    EXPECT_EQ(parameters(parse(moe_16b)), 16'375'728'128);
    const json v2_lite = with(moe_16b,
                              {{"model_type", "deepseek_v2"},
                               {"num_hidden_layers", 27},
                               {"q_lora_rank", nullptr},
                               {"kv_lora_rank", 512},
                               {"qk_nope_head_dim", 128},
                               {"qk_rope_head_dim", 64},
                               {"v_head_dim", 128}});
    EXPECT_EQ(parameters(parse(v2_lite)), 15'706'484'224);
    const json v3 = with(v2_lite,
                         {{"model_type", "deepseek_v3"},
                          {"num_hidden_layers", 61},
                          {"hidden_size", 7168},
                          {"intermediate_size", 18432},
                          {"num_attention_heads", 128},
                          {"num_key_value_heads", 128},
                          {"vocab_size", 129280},
                          {"n_routed_experts", 256},
                          {"n_shared_experts", 1},
                          {"num_experts_per_tok", 8},
                          {"moe_intermediate_size", 2048},
                          {"first_k_dense_replace", 3},
                          {"q_lora_rank", 1536},
                          {"num_nextn_predict_layers", 1}});
    EXPECT_EQ(parameters(parse(v3)), 671'026'419'200);  // with 58 * 256 biases of the routers
    EXPECT_EQ(parse(v3).prediction_blocks, 1);
    EXPECT_EQ(prediction_parameters(parse(v3)), 11'610'068'224);
}

TEST(HfConfig, BlocksWithExpertsAreThoseThatTheFileSays) {
    const DecoderModel model = parse(with(llama_config(),
                                          {{"model_type", "qwen2_moe"},
                                           {"num_hidden_layers", 8},
                                           {"num_experts", 4},
                                           {"num_experts_per_tok", 2},
                                           {"moe_intermediate_size", 64},
                                           {"decoder_sparse_step", 2},
                                           {"mlp_only_layers", {3}}}));
    EXPECT_EQ(model.has_experts,
              (std::vector<bool>{false, true, false, false, false, true, false, true}));
}

TEST(HfConfig, PrecisionIsThatOfTheFile) {
    EXPECT_EQ(parse(llama_config()).precision, "bf16");
    EXPECT_EQ(parse(with(llama_config(), {{"torch_dtype", nullptr}})).precision, std::nullopt);
    EXPECT_EQ(parse(with(llama_config(), {{"dtype", "float32"}})).precision, "fp32");
    EXPECT_EQ(parse(with(llama_config(), {{"torch_dtype", "torch.float16"}})).precision, "fp16");
    const DecoderModel automatic = parse(with(llama_config(), {{"torch_dtype", "auto"}}));
    EXPECT_EQ(automatic.precision, std::nullopt);
    EXPECT_EQ(automatic.precision_word, "auto");
    const DecoderModel packed =
        parse(with(llama_config(), {{"quantization_config", {{"quant_method", "fp8"}}}}));
    EXPECT_EQ(packed.precision, "bf16");
    EXPECT_EQ(packed.quantization, "fp8");
}

TEST(HfConfig, TheDocumentationNamesEveryFamily) {
    const auto file = std::filesystem::path(places::source_folder()) / "docs" / "formats.md";
    const std::string text = read_file(file, std::size_t{1} << 20);
    for (const std::string_view type : hf_model_types()) {
        EXPECT_THAT(text, HasSubstr("`" + std::string(type) + "`"));
    }
}

// --- Text models inside others, windows, remarks. ---

TEST(HfConfig, ATextModelInsideALargerOneIsTheModel) {
    json text = llama_config();
    text.erase("torch_dtype");
    text.erase("tie_word_embeddings");
    const json outer{{"model_type", "some_new_model_for_images"},
                     {"torch_dtype", "float16"},
                     {"tie_word_embeddings", true},
                     {"text_config", text},
                     {"vision_config", {{"hidden_size", 7}}}};
    const DecoderModel model = parse(outer);
    EXPECT_EQ(model.family, "llama");
    EXPECT_EQ(model.precision, "fp16");
    EXPECT_TRUE(model.tied);
    EXPECT_TRUE(model.is_part);
    EXPECT_THAT(model.remarks, Contains(HasSubstr("inside a 'some_new_model_for_images'")));
    const Error unknown = error_of([&] {
        parse(with(outer, {{"text_config", {{"model_type", "mllama_text_model"}}}}));
    });
    EXPECT_EQ(unknown.place(), "config.json: /text_config/model_type");
    // The families of images say what is inside where the file does not.
    const DecoderModel inside = parse(
        with(outer, {{"model_type", "mistral3"}, {"text_config", {{"model_type", nullptr}}}}));
    EXPECT_EQ(inside.family, "mistral");
}

TEST(HfConfig, BlocksSeeTheWindowThatTheirKindHas) {
    const json gemma = with(llama_config(),
                            {{"model_type", "gemma3_text"},
                             {"num_hidden_layers", 8},
                             {"head_dim", 256},
                             {"sliding_window", 512}});
    const auto windows = [](const json& config) {
        const DecoderModel model = parse(config);
        std::vector<int> all;
        for (int block = 0; block < model.blocks; ++block) {
            all.push_back(window_of(model, block));
        }
        return all;
    };
    EXPECT_THAT(windows(gemma), ElementsAre(512, 512, 512, 512, 512, 0, 512, 512));
    const json listed =
        with(gemma,
             {{"num_hidden_layers", 3},
              {"layer_types", {"full_attention", "sliding_attention", "full_attention"}}});
    EXPECT_THAT(windows(listed), ElementsAre(0, 512, 0));
    const json exaone = with(listed,
                             {{"model_type", "exaone4"},
                              {"num_hidden_layers", 6},
                              {"layer_types", nullptr},
                              {"sliding_window_pattern", "LLG"}});
    EXPECT_THAT(windows(exaone), ElementsAre(512, 512, 0, 512, 512, 0));
    const json qwen = with(listed,
                           {{"model_type", "qwen2"},
                            {"layer_types", nullptr},
                            {"use_sliding_window", true},
                            {"max_window_layers", 2}});
    EXPECT_THAT(windows(qwen), ElementsAre(0, 0, 512));
}

TEST(HfConfig, BlocksThatShareAChoiceOfKeysAreThoseThatTheFileSays) {
    const json base = with(llama_config(),
                           {{"model_type", "glm_moe_dsa"},
                            {"num_hidden_layers", 6},
                            {"q_lora_rank", 8},
                            {"kv_lora_rank", 8},
                            {"qk_rope_head_dim", 4},
                            {"qk_nope_head_dim", 4},
                            {"v_head_dim", 8},
                            {"index_n_heads", 2},
                            {"index_head_dim", 4},
                            {"n_routed_experts", 4},
                            {"num_experts_per_tok", 2},
                            {"moe_intermediate_size", 8}});
    const auto choosing = [&base](const json& changes) {
        const DecoderModel model = parse(with(base, changes));
        std::string letters;
        for (int block = 0; block < model.blocks; ++block) {
            letters += attention_in(model, block).latent->indexer->shared ? 'S' : 'F';
        }
        return letters;
    };
    EXPECT_EQ(choosing(json::object()), "FFFFFF");
    EXPECT_EQ(choosing({{"index_topk_pattern", "FFSSFS"}}), "FFSSFS");
    EXPECT_EQ(choosing({{"indexer_types", {"full", "shared", "full", "full", "shared", "full"}}}),
              "FSFFSF");
    // From block 1 on, the first of each two.
    EXPECT_EQ(choosing({{"index_topk_freq", 2}}), "FFSFSF");
    EXPECT_EQ(choosing({{"index_topk_freq", 3}, {"index_skip_topk_offset", 3}}), "FFFSSF");
    const Error first = error_of([&] {
        choosing({{"indexer_types", {"shared", "full", "full", "full", "full", "full"}}});
    });
    EXPECT_EQ(first.place(), "config.json: /indexer_types");
    EXPECT_THAT(error_of([&] {
                    choosing({{"index_topk_pattern", "FFXSFS"}});
                }).text(),
                HasSubstr("a letter F or S"));
}

TEST(HfConfig, WhatIsNotReadIsSaid) {
    EXPECT_THAT(parse(llama_config()).remarks, IsEmpty());
    EXPECT_THAT(
        parse(with(llama_config(), {{"num_local_experts", 0}, {"attention_bias", false}})).remarks,
        IsEmpty());
    EXPECT_THAT(
        parse(with(llama_config(), {{"num_local_experts", 8}, {"kv_lora_rank", 512}})).remarks,
        ElementsAre(HasSubstr("'num_local_experts' is not read for model_type 'llama'"),
                    HasSubstr("'kv_lora_rank' is not read")));
}

/// What says nothing (null, false, 0, 1, an empty list) changes nothing either.
TEST(HfConfig, KeysThatNobodyKnowsAreNamedTogether) {
    const json known{{"temperature", 2.0}, {"bos_token_id", 7}, {"resid_pdrop", 0.1}};
    EXPECT_THAT(parse(with(llama_config(), known)).remarks, IsEmpty());
    const json unknown{{"lanes", 4},
                       {"second_mixer", "convolution"},
                       {"temperature", 2.0},
                       {"third_mixer", nullptr},
                       {"is_wide", false},
                       {"layers_per_lane", json::array()}};
    EXPECT_THAT(parse(with(llama_config(), unknown)).remarks,
                ElementsAre(AllOf(HasSubstr("for model_type 'llama': lanes, second_mixer;"),
                                  HasSubstr("not in the costs"))));
}

TEST(HfConfig, AKeyThatIsAlmostOneThatIsMissingIsNamed) {
    for (const auto& [there, meant] : {std::pair("head_dimm", "head_dim"),
                                       std::pair("had_dim", "head_dim"),
                                       std::pair("tie_word_embedings", "tie_word_embeddings"),
                                       std::pair("num_key_vale_head", "num_key_value_heads")}) {
        nlohmann::json config = with(llama_config(), {{there, 64}});
        config.erase(meant);
        EXPECT_THAT(parse(config).remarks,
                    ElementsAre(AllOf(HasSubstr(fmt::format("'{}' is not read", there)),
                                      HasSubstr(fmt::format("no '{}'", meant)))));
    }
    // Not where the key that is like it is there, too, and not for other words.
    EXPECT_THAT(parse(with(llama_config(), {{"head_dim", 64}, {"head_dimm", 64}})).remarks,
                ElementsAre(Not(HasSubstr("is that key meant"))));
    EXPECT_THAT(parse(with(llama_config(), {{"rope_dim", 64}, {"v_head_dims", 64}})).remarks,
                ElementsAre(Not(HasSubstr("is that key meant"))));
}

TEST(HfConfig, NumbersThatPythonWritesAreReadAndCommentsAreNamed) {
    std::string text = with(llama_config(), {{"time_step_limit", {0, "limit"}}}).dump(1);
    text.replace(text.find("\"limit\""), 7, "Infinity");
    EXPECT_EQ(parse_hf_config(text, "c"), parse(llama_config()));
    const Error comment =
        error_of([&] { parse_hf_config("{\n // published in 2024\n" + text.substr(1), "c"); });
    EXPECT_EQ(comment.place(), "c:2:2");
    EXPECT_EQ(comment.text(), "a comment, and JSON has none");
}

TEST(HfConfig, ASizeThatIsNoFiniteNumberIsRefusedAsSuch) {
    // These were read as null: a missing key, or its usual value.
    for (const char* word : {"Infinity", "-Infinity", "NaN", "1e30"}) {
        for (const char* key : {"hidden_size", "max_position_embeddings", "num_key_value_heads"}) {
            std::string text = with(llama_config(), {{key, "size"}}).dump(1);
            text.replace(text.find("\"size\""), 6, word);
            const Error error = error_of([&] { parse_hf_config(text, "c"); });
            EXPECT_EQ(error.place(), fmt::format("c: /{}", key));
            const std::string found = std::string(word) == "1e30" ? "1e+30" : word;
            EXPECT_THAT(error.text(), StartsWith(found + ", expected a whole number from"));
            EXPECT_FALSE(error.hint().empty());
        }
    }
    std::string text = with(llama_config(), {{"hidden_size", "size"}}).dump(1);
    text.replace(text.find("\"size\""), 6, "99999999999999999999999");
    EXPECT_EQ(error_of([&] { parse_hf_config(text, "c"); }).place(), "c: /hidden_size");
}

TEST(HfConfig, ALongNumberThatIsNoSizeDoesNoHarm) {
    // tokenizers write int(1e30) for "no limit"
    std::string text = with(llama_config(), {{"model_max_length", "limit"}}).dump(1);
    text.replace(text.find("\"limit\""), 7, "1000000000000000019884624838656");
    EXPECT_EQ(parse_hf_config(text, "c"), parse(llama_config()));
}

TEST(HfConfig, APrecisionThatIsNoWordIsShownAsItStands) {
    const DecoderModel number = parse(with(llama_config(), {{"torch_dtype", 16}}));
    EXPECT_EQ(number.precision, std::nullopt);
    EXPECT_EQ(number.precision_key, "torch_dtype");
    EXPECT_EQ(number.precision_value, "16");
    EXPECT_EQ(parse(with(llama_config(), {{"torch_dtype", "int8"}})).precision_value, "\"int8\"");
}

// --- Refusals. ---

Error refusal(const json& changes) {
    return error_of([&] { parse(with(llama_config(), changes)); });
}

TEST(HfConfig, AnUnknownFamilyListsTheKnown) {
    const Error misspelt = refusal({{"model_type", "qwen_2"}});
    EXPECT_EQ(misspelt.kind(), ErrorKind::BadInput);
    EXPECT_EQ(misspelt.place(), "config.json: /model_type");
    EXPECT_THAT(misspelt.text(), StartsWith("\"qwen_2\", expected one of llama, mistral, "));
    EXPECT_EQ(misspelt.hint(), "did you mean 'qwen2'?");
    EXPECT_EQ(refusal({{"model_type", "GPT-NeoX"}}).hint(), "did you mean 'gpt_neox'?");
    for (const std::string_view type : hf_model_types()) {
        EXPECT_THAT(misspelt.text(), HasSubstr(std::string(type)));
    }
    EXPECT_THAT(refusal({{"model_type", "bert"}}).hint(), HasSubstr("a CSV by hand"));
    // A successor looks like a misspelling and is none: its blocks may be others.
    for (const char* successor : {"qwen4", "gemma5", "phi5", "deepseek_v9", "gpt3"}) {
        EXPECT_THAT(refusal({{"model_type", successor}}).hint(), Not(HasSubstr("did you mean")))
            << successor;
    }
    // Names that share a part are other models.
    for (const char* other :
         {"gemma6_text", "nemotron-search", "glm4_moe_text", "olmo_hybrid", "opts"}) {
        EXPECT_THAT(refusal({{"model_type", other}}).hint(), Not(HasSubstr("did you mean")))
            << other;
    }
    EXPECT_EQ(refusal({{"model_type", "mistrl"}}).hint(), "did you mean 'mistral'?");
    EXPECT_EQ(refusal({{"model_type", "deepsek_v3"}}).hint(), "did you mean 'deepseek_v3'?");
    EXPECT_EQ(refusal({{"model_type", "qwne3"}}).hint(), "did you mean 'qwen3'?");
    EXPECT_THAT(refusal({{"model_type", nullptr}}).text(), HasSubstr("missing, expected one of"));
}

/// What a row of the table does not know is refused by its name, and not read as something else.
TEST(HfConfig, WhatAFamilyDoesNotHaveYetIsRefusedByName) {
    const auto place = [](const json& changes) { return refusal(changes).place(); };
    const json gemma{{"model_type", "gemma4_text"}, {"head_dim", 16}, {"sliding_window", 8}};
    EXPECT_EQ(place(with(gemma, {{"num_kv_shared_layers", 1}})),
              "config.json: /num_kv_shared_layers");
    EXPECT_EQ(place(with(gemma, {{"hidden_size_per_layer_input", 16}})),
              "config.json: /hidden_size_per_layer_input");
    const json half{{"no_op", false}, {"n_heads_in_group", 2}, {"ffn_mult", 2.0}};
    const json linear = with(half, {{"replace_with_linear", true}});
    const json nas{{"model_type", "nemotron-nas"}, {"num_hidden_layers", 1}};
    EXPECT_EQ(place(with(nas, {{"block_configs", {{{"attention", linear}, {"ffn", half}}}}})),
              "config.json: /block_configs/0/attention/replace_with_linear");
    EXPECT_EQ(place(with(nas, {{"block_configs", json::array()}})), "config.json: /block_configs");
    const json v4{{"model_type", "deepseek_v4"},
                  {"num_hidden_layers", 2},
                  {"num_key_value_heads", 1},
                  {"head_dim", 8},
                  {"q_lora_rank", 6},
                  {"o_groups", 1},
                  {"o_lora_rank", 3},
                  {"sliding_window", 16},
                  {"index_n_heads", 2},
                  {"index_head_dim", 4},
                  {"index_topk", 8},
                  {"hc_mult", 2},
                  {"num_hash_layers", 0},
                  {"n_routed_experts", 2},
                  {"num_experts_per_tok", 1},
                  {"moe_intermediate_size", 5},
                  {"compress_ratios", {4, 128}}};
    EXPECT_EQ(parse(with(llama_config(), v4)).streams, 2);
    EXPECT_EQ(place(with(v4, {{"compress_ratios", {4, 64}}})), "config.json: /compress_ratios");
    EXPECT_EQ(place(with(v4, {{"compress_ratios", {4}}})), "config.json: /compress_ratios");
    EXPECT_EQ(place(with(v4, {{"hc_mult", nullptr}})), "config.json: /hc_mult");
    EXPECT_EQ(place(with(v4, {{"compress_rates", {{"compressed_sparse_attention", 8}}}})),
              "config.json: /compress_rates/compressed_sparse_attention");
    EXPECT_EQ(place({{"model_type", "nemotron_h"}, {"hybrid_override_pattern", "M*X"}}),
              "config.json: /hybrid_override_pattern");
    EXPECT_EQ(place({{"model_type", "nemotron_h"}}), "config.json: /hybrid_override_pattern");
    EXPECT_EQ(place({{"model_type", "nemotron_h"},
                     {"num_hidden_layers", 4},
                     {"hybrid_override_pattern", "M*-"}}),
              "config.json: /num_hidden_layers");
}

// A config.json written by hand often names the class alone.
TEST(HfConfig, AFamilyIsAlsoThatOfTheClass) {
    json by_class = with(llama_config(), {{"architectures", {"LlamaForCausalLM"}}});
    by_class.erase("model_type");
    EXPECT_EQ(parameters(parse(by_class)), parameters(parse(llama_config())));
    by_class["architectures"] = {"FlaxWhisperForAudio"};
    const Error refused = error_of([&] { parse(by_class); });
    EXPECT_THAT(refused.text(), HasSubstr("missing, expected one of llama"));
    EXPECT_THAT(refused.hint(), HasSubstr("write \"model_type\": \"llama\" into the config.json"));
}

TEST(HfConfig, SizesThatCannotBeAreRefusedWithTheirKey) {
    struct Case {
        json changes;
        std::string place;
        std::string text;
    };
    const std::vector<Case> cases{
        {{{"hidden_size", "4096"}}, "/hidden_size", "\"4096\", expected a whole number from 1 to"},
        {{{"hidden_size", 4096.5}}, "/hidden_size", "4096.5, expected a whole number"},
        {{{"num_hidden_layers", 0}}, "/num_hidden_layers", "0, expected a whole number from 1"},
        {{{"num_hidden_layers", -3}}, "/num_hidden_layers", "-3, expected a whole number from 1"},
        {{{"vocab_size", 1'000'000'000}},
         "/vocab_size",
         "expected a whole number from 1 to 16777216"},
        {{{"num_key_value_heads", 7}}, "/num_key_value_heads", "7, expected a divisor of"},
        {{{"num_attention_heads", 24}, {"num_key_value_heads", nullptr}},
         "/num_attention_heads",
         "24, expected a divisor of hidden_size, 4096"},
        {{{"tie_word_embeddings", "no"}}, "/tie_word_embeddings", "expected true or false"},
        {{{"model_type", "qwen2"}, {"layer_types", {"full_attention"}}},
         "/layer_types",
         "[a list], expected a list of 32 words, one per block, found 1"},
        {{{"num_hidden_layers", 1}, {"layer_types", {"mamba"}}},
         "/layer_types",
         "expected blocks of attention, found 'mamba'"},
        {{{"num_hidden_layers", 1}, {"layer_types", {"linear_attention"}}},
         "/layer_types",
         "found 'linear_attention'"},
        {{{"model_type", "mpt"},
          {"d_model", 64},
          {"n_heads", 4},
          {"n_layers", 2},
          {"max_seq_len", 8},
          {"attn_config", {{"attn_type", "other"}}}},
         "/attn_config/attn_type",
         "\"other\", expected multihead_attention"},
        {{{"model_type", "qwen3_moe"},
          {"num_experts", 8192},
          {"num_experts_per_tok", 1},
          {"moe_intermediate_size", 1 << 20},
          {"hidden_size", 1 << 18}},
         "/num_hidden_layers",
         "32, expected a model of at most 2^53 parameters"},
        {{{"model_type", "mixtral"}, {"num_local_experts", 2}, {"num_experts_per_tok", 3}},
         "/num_experts_per_tok",
         "3, expected at most 2"}};
    for (const Case& one : cases) {
        const Error error = refusal(one.changes);
        EXPECT_EQ(error.place(), "config.json: " + one.place);
        EXPECT_THAT(error.text(), HasSubstr(one.text));
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    }
}

TEST(HfConfig, AMissingKeyNamesOneThatLooksLikeIt) {
    const Error near = refusal({{"hidden_size", nullptr}, {"hiden_size", 4096}});
    EXPECT_EQ(near.place(), "config.json: /hidden_size");
    EXPECT_THAT(near.text(), HasSubstr("missing, expected a whole number"));
    EXPECT_EQ(near.hint(), "there is a key 'hiden_size'; is that the one?");
    const Error qwen = refusal({{"model_type", "qwen2"}, {"num_key_value_heads", nullptr}});
    EXPECT_EQ(qwen.place(), "config.json: /num_key_value_heads");
    EXPECT_EQ(error_of([] { parse_hf_config("[1]", "c"); }).kind(), ErrorKind::BadInput);
}

TEST(HfConfig, DamagedTextIsReadOrRefusedAndNothingElse) {
    std::mt19937_64 random(tests::seed());
    const std::string text = llama_config().dump(1);
    for (int i = 0; i < tests::soaked(2000); ++i) {
        const std::string damaged = testing::mutated(text, random);
        try {
            EXPECT_GT(parameters(parse_hf_config(damaged, "x")), 0);
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput) << damaged;
        }
    }
}

}  // namespace hf_config_test
}  // namespace pipetwin
