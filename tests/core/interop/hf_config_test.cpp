#include "core/interop/hf_config.h"

#include <numeric>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/costs/shipped_profiles.h"
#include "core/text/json_text.h"
#include "tests/support/error_of.h"
#include "tests/support/hf_texts.h"
#include "tests/support/mutate.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace hf_config_test {

using nlohmann::json;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::llama_config;
using testing::with;

DecoderModel parse(const json& config) {
    return parse_hf_config(config.dump(), "config.json");
}

std::int64_t parameters(const DecoderModel& model) {
    std::int64_t sum = embedding_parameters(model) + head_parameters(model);
    for (int block = 0; block < model.blocks; ++block) {
        sum += attention_parameters(model) + feed_forward_parameters(model, block);
    }
    return sum;
}

// --- Exact counts, as published with the weights. ---

TEST(HfConfig, ShippedModelsHaveThePublishedNumbersOfParameters) {
    const std::map<std::string, std::int64_t> published{{"gpt2-124m", 124'439'808},
                                                        {"gpt2-355m", 354'823'168},
                                                        {"gpt2-774m", 774'030'080},
                                                        {"gpt2-1.5b", 1'557'611'200},
                                                        {"llama-3-8b", 8'030'261'248},
                                                        {"llama-3-70b", 70'553'706'496}};
    EXPECT_EQ(model_names().size(), published.size());
    for (const auto& [name, count] : published) {
        const std::filesystem::path file = find_model(name);
        EXPECT_EQ(parameters(parse_hf_config(read_file(file, 1 << 20), file.string())), count)
            << name;
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
    EXPECT_EQ(parameters(parse(v3)), 671'026'404'352);  // without the prediction layer behind
    EXPECT_EQ(parse(v3).further_blocks, 1);
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
}

// --- Refusals. ---

Error refusal(const json& changes) {
    return error_of([&] { parse(with(llama_config(), changes)); });
}

TEST(HfConfig, AnUnknownFamilyListsTheKnown) {
    const Error misspelt = refusal({{"model_type", "qwen_2"}});
    EXPECT_EQ(misspelt.kind(), ErrorKind::BadInput);
    EXPECT_EQ(misspelt.place(), "config.json: /model_type");
    EXPECT_EQ(misspelt.text(),
              "\"qwen_2\", expected one of llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, "
              "qwen3_moe, deepseek, deepseek_v2, deepseek_v3, gpt2");
    EXPECT_EQ(misspelt.hint(), "did you mean 'qwen2'?");
    EXPECT_THAT(refusal({{"model_type", "bert"}}).hint(), HasSubstr("a CSV by hand"));
    EXPECT_THAT(refusal({{"model_type", nullptr}}).text(), HasSubstr("missing, expected one of"));
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
        {{{"torch_dtype", "float8_e4m3fn"}},
         "/torch_dtype",
         "expected bfloat16, float16 or float32"},
        {{{"tie_word_embeddings", "no"}}, "/tie_word_embeddings", "expected true or false"},
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
