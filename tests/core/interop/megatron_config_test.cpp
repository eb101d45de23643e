// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_config.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/interop/hf_config.h"
#include "core/interop/megatron_model.h"
#include "core/text/json_text.h"
#include "tests/support/places.h"

namespace pipetwin {
namespace megatron_config_test {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

json published() {
    const auto file = std::filesystem::path(places::source_folder()) / "tests" / "core" /
                      "interop" / "data" / "published_models.json";
    return json::parse(read_file(file, std::size_t{1} << 20));
}

json config_of(std::string_view model) {
    for (const json& row : published()) {
        if (row.at("model") == model) {
            return row.at("config");
        }
    }
    ADD_FAILURE() << model;
    return {};
}

/// The whole command line of a model.
std::string line_of(const MegatronModelFlags& model) {
    std::string line = print_megatron_flags(model.flags);
    line.back() = ' ';
    return line + fmt::format("{}", fmt::join(model.further, " "));
}

MegatronModelFlags flags_of(json config, const json& changes = json::object()) {
    config.merge_patch(changes);
    return megatron_model_flags(config.dump(), "x", 4096);
}

/// The flags are read back as Megatron reads them; the model that they describe has the published
/// number of parameters, unless something is missing.
TEST(MegatronConfig, EveryPublishedModelHasItsParametersOrSaysWhatIsMissing) {
    std::set<std::string> whole;
    for (const json& row : published()) {
        const std::string name = row.at("model");
        const std::string config = row.at("config").dump();
        const DecoderModel model = parse_hf_config(config, name);
        const MegatronModelFlags found = megatron_model_flags(config, name, 512);
        MegatronFlags read = parse_megatron_flags(line_of(found), name, LeaveOut::All);
        read.vocabulary_divisor = 1;
        if (!found.missing.empty() || model.encoder_blocks > 0) {
            continue;
        }
        read.prediction_layers.reset();
        // A number per expert that routers add is no parameter here.
        std::int64_t uncounted = 0;
        if (model.experts.router_bias) {
            uncounted += std::ranges::count(model.has_experts, true) * model.experts.count;
        }
        EXPECT_EQ(parameter_count(megatron_model(read, name)) + uncounted,
                  row.at("parameters").get<std::int64_t>())
            << name << ": " << line_of(found);
        whole.insert(model.family);
    }
    EXPECT_THAT(whole,
                AllOf(Contains("llama"),
                      Contains("mistral"),
                      Contains("mixtral"),
                      Contains("qwen2"),
                      Contains("qwen2_moe"),
                      Contains("qwen3"),
                      Contains("qwen3_moe"),
                      Contains("nemotron"),
                      Contains("deepseek_v3")));
}

/// The flags of examples/post_training/modelopt/conf/Qwen/Qwen2.5-7B-Instruct.sh and of
/// Qwen3-30B-A3B.sh beside it, in the repository of Megatron-LM.
TEST(MegatronConfig, QwensHaveTheFlagsOfMegatronsExamples) {
    const std::string dense = line_of(flags_of(
        config_of("Qwen/Qwen2.5-7B"),
        {{"rope_theta", 1000000.0}, {"rms_norm_eps", 1e-6}, {"max_position_embeddings", 32768}}));
    for (const char* flag : {"--disable-bias-linear",
                             "--add-qkv-bias",
                             "--position-embedding-type rope",
                             "--normalization RMSNorm",
                             "--swiglu",
                             "--num-layers 28 ",
                             "--hidden-size 3584 ",
                             "--ffn-hidden-size 18944 ",
                             "--num-attention-heads 28 ",
                             "--group-query-attention",
                             "--num-query-groups 4 ",
                             "--kv-channels 128 ",
                             "--seq-length 4096 ",
                             "--max-position-embeddings 32768 ",
                             "--rotary-base 1000000",
                             "--norm-epsilon 1e-06",
                             "--untie-embeddings-and-output-weights"}) {
        EXPECT_THAT(dense, HasSubstr(flag));
    }
    const std::string experts =
        line_of(flags_of(config_of("Qwen/Qwen3-30B-A3B"), {{"norm_topk_prob", true}}));
    for (const char* flag : {"--disable-bias-linear",
                             "--qk-layernorm",
                             "--num-query-groups 4 ",
                             "--kv-channels 128 ",
                             "--ffn-hidden-size 6144 ",
                             "--num-experts 128 ",
                             "--moe-ffn-hidden-size 768 ",
                             "--moe-router-topk 8 "}) {
        EXPECT_THAT(experts, HasSubstr(flag));
    }
    EXPECT_THAT(experts, Not(HasSubstr("--add-qkv-bias")));
    EXPECT_THAT(experts, Not(HasSubstr("--moe-router-pre-softmax")));
    // Softmax over all experts, and not over the chosen ones.
    EXPECT_THAT(line_of(flags_of(config_of("Qwen/Qwen3-30B-A3B"), {{"norm_topk_prob", false}})),
                HasSubstr("--moe-router-pre-softmax"));
}

/// The flags of examples/mixtral/train_mixtral_8x7b_distributed.sh.
TEST(MegatronConfig, MixtralHasTheFlagsOfMegatronsExample) {
    const MegatronModelFlags found =
        flags_of(config_of("mistralai/Mixtral-8x7B-v0.1"),
                 {{"rope_theta", 1e6}, {"rms_norm_eps", 1e-5}, {"max_position_embeddings", 32768}});
    EXPECT_THAT(found.missing, IsEmpty());
    for (const char* flag : {"--disable-bias-linear",
                             "--seq-length 4096 ",
                             "--max-position-embeddings 32768 ",
                             "--num-layers 32 ",
                             "--hidden-size 4096 ",
                             "--ffn-hidden-size 14336 ",
                             "--num-attention-heads 32 ",
                             "--attention-dropout 0 ",
                             "--hidden-dropout 0 ",
                             "--normalization RMSNorm",
                             "--swiglu",
                             "--untie-embeddings-and-output-weights",
                             "--num-query-groups 8 ",
                             "--rotary-base 1000000",
                             "--num-experts 8 ",
                             "--moe-router-topk 2 "}) {
        EXPECT_THAT(line_of(found), HasSubstr(flag));
    }
}

/// The flags of examples/post_training/modelopt/conf/deepseek-ai/DeepSeek-R1.sh.
TEST(MegatronConfig, DeepSeekHasTheFlagsOfMegatronsExample) {
    const std::string line = line_of(
        flags_of(config_of("deepseek-ai/DeepSeek-V3"),
                 {{"n_group", 8},
                  {"topk_group", 4},
                  {"scoring_func", "sigmoid"},
                  {"topk_method", "noaux_tc"},
                  {"norm_topk_prob", true},
                  {"routed_scaling_factor", 2.5},
                  {"rope_scaling",
                   {{"type", "yarn"}, {"factor", 40}, {"mscale", 1.0}, {"mscale_all_dim", 1.0}}}}));
    for (const char* flag : {"--num-layers 61 ",
                             "--hidden-size 7168 ",
                             "--ffn-hidden-size 18432 ",
                             "--num-attention-heads 128 ",
                             "--multi-latent-attention",
                             "--kv-lora-rank 512 ",
                             "--v-head-dim 128 ",
                             "--q-lora-rank 1536 ",
                             "--qk-head-dim 128 ",
                             "--qk-layernorm",
                             "--qk-pos-emb-head-dim 64 ",
                             "--num-experts 256 ",
                             "--moe-layer-freq \"([0]*3+[1]*58)\" ",
                             "--moe-ffn-hidden-size 2048 ",
                             "--moe-router-score-function sigmoid",
                             "--moe-router-enable-expert-bias",
                             "--moe-router-topk 8 ",
                             "--moe-router-num-groups 8 --moe-router-group-topk 4",
                             "--moe-router-topk-scaling-factor 2.5",
                             "--moe-shared-expert-intermediate-size 2048 ",
                             "--rotary-scaling-factor 40 --mscale 1 --mscale-all-dim 1"}) {
        EXPECT_THAT(line, HasSubstr(flag));
    }
}

/// The flags of examples/post_training/modelopt/conf/nvidia/Nemotron-Mini-4B-Instruct.sh.
TEST(MegatronConfig, NemotronHasTheFlagsOfMegatronsExample) {
    const json mini{{"model_type", "nemotron"},
                    {"hidden_act", "relu2"},
                    {"num_hidden_layers", 32},
                    {"hidden_size", 3072},
                    {"intermediate_size", 9216},
                    {"num_attention_heads", 24},
                    {"num_key_value_heads", 8},
                    {"head_dim", 128},
                    {"partial_rotary_factor", 0.5},
                    {"norm_eps", 1e-5},
                    {"max_position_embeddings", 4096},
                    {"vocab_size", 256000},
                    {"tie_word_embeddings", false}};
    const MegatronModelFlags found = flags_of(mini);
    EXPECT_THAT(found.missing, IsEmpty());
    EXPECT_THAT(line_of(found),
                AllOf(HasSubstr("--disable-bias-linear"),
                      HasSubstr("--rotary-percent 0.5"),
                      HasSubstr("--apply-layernorm-1p"),
                      HasSubstr("--squared-relu"),
                      HasSubstr("--num-query-groups 8 "),
                      HasSubstr("--seq-length 4096 "),
                      Not(HasSubstr("--normalization")),
                      Not(HasSubstr("--swiglu"))));
}

/// GPT-NeoX (Black et al. 2022): a quarter of a head is rotated, and both halves of a block read
/// the same row, which no flag says.
TEST(MegatronConfig, NamesWhatMegatronHasNoFlagFor) {
    const MegatronModelFlags neox = flags_of(config_of("EleutherAI/gpt-neox-20b"));
    EXPECT_THAT(line_of(neox),
                AllOf(HasSubstr("--hidden-size 6144 --ffn-hidden-size 24576"),
                      HasSubstr("--no-bias-gelu-fusion"),
                      HasSubstr("--rotary-percent 0.25")));
    EXPECT_THAT(neox.missing, ElementsAre(HasSubstr("parallel residual")));
    EXPECT_THAT(
        flags_of(config_of("EleutherAI/gpt-neox-20b"), {{"use_parallel_residual", false}}).missing,
        IsEmpty());

    const MegatronModelFlags gemma =
        flags_of(config_of("google/gemma-2-27b"),
                 {{"final_logit_softcapping", 30.0}, {"hidden_activation", "gelu_pytorch_tanh"}});
    EXPECT_THAT(gemma.missing,
                AllOf(Contains(HasSubstr("final_logit_softcapping = 30")),
                      Contains(HasSubstr("activation gelu_pytorch_tanh")),
                      Contains(HasSubstr("norms behind the halves"))));
    // Every second block sees 4096 tokens, itself included.
    EXPECT_THAT(line_of(gemma), HasSubstr("--window-size 4095,0"));
    EXPECT_THAT(gemma.further, Contains("--window-attn-skip-freq \"([1]+[0])*23\""));
}

}  // namespace megatron_config_test
}  // namespace pipetwin
