// SPDX-License-Identifier: Apache-2.0
#include "core/costs/estimate.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/costs/calibrate.h"
#include "core/costs/calibration_json.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/profile_json.h"
#include "core/costs/whole_blocks.h"
#include "core/interop/hf_config.h"
#include "core/model/model.h"
#include "core/plan/tensor_parallel.h"
#include "tests/support/error_of.h"
#include "tests/support/hf_texts.h"

namespace pipetwin {
namespace estimate_test {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::llama_config;
using testing::small_gpt2;
using testing::with;

DecoderModel model_of(const json& config) {
    return parse_hf_config(config.dump(), "config.json");
}

/// A device of round numbers.
DeviceProfile device(double operations, double bytes) {
    DeviceProfile device{.name = "round"};
    for (const char* precision : {"bf16", "fp32"}) {
        device.matrix_rates[precision].value = operations;
    }
    device.memory_rate.value = bytes;
    return device;
}

constexpr double without_end = 1e40;

/// Only operations cost time: 1 ns each.
const DeviceProfile counts_operations = device(1e9, without_end);
/// Only bytes do.
const DeviceProfile counts_bytes = device(without_end, 1e9);

EstimateOptions options(int sequence, int micro_batch_size) {
    return {.sequence = sequence,
            .micro_batch_size = micro_batch_size,
            .precision = "bf16",
            .efficiency = 1,
            .memory_efficiency = 1};
}

const LayerCost& layer(const Profile& profile, std::string_view name) {
    const auto found = std::ranges::find(profile.layers, name, &LayerCost::name);
    EXPECT_NE(found, profile.layers.end()) << name;
    return *found;
}

/// Samples of a layer at the micro-batch size that was asked for.
LayerSample sample(const Profile& profile, std::string_view name, int micro_batch_size) {
    return cost_at(layer(profile, name), micro_batch_size);
}

// --- Names, kinds, sizes. ---

TEST(Estimate, LayersAreTheHalvesOfTheBlocksBetweenEmbeddingAndHead) {
    const Profile profile =
        estimated_profile(model_of(small_gpt2()), counts_operations, options(8, 3));
    ASSERT_EQ(profile.layers.size(), 10U);
    EXPECT_EQ(profile.layers[0].name, "embedding");
    EXPECT_EQ(profile.layers[1].name, "block0.attention");
    EXPECT_EQ(profile.layers[8].name, "block3.feed_forward");
    EXPECT_EQ(profile.layers[8].kind, "feed_forward");
    EXPECT_EQ(profile.layers[9].name, "head");
    EXPECT_EQ(profile.source, CostSource::Estimated);
    EXPECT_EQ(profile.precision, "bf16");
    EXPECT_EQ(profile.device, "round");
    std::vector<int> sizes;
    for (const LayerSample& one : profile.layers[1].samples) {
        sizes.push_back(one.micro_batch_size);
    }
    EXPECT_THAT(sizes, ElementsAre(1, 2, 3, 4, 8, 16, 32));
    const Profile large =
        estimated_profile(model_of(small_gpt2()), counts_operations, options(8, 48));
    EXPECT_EQ(large.layers[1].samples.back().micro_batch_size, 64);
    EXPECT_EQ(parse_profile(print_profile(profile), "x"), profile);
}

/// Embedding 100 * 16 + 32 * 16; attention 2 * 16 + 16 * 48 + 48 + 16 * 16 + 16; feed-forward
/// 2 * 16 + 16 * 64 + 64 + 64 * 16 + 16; head 2 * 16, and the
/// embedding's matrix of 1600 again, in bytes.
TEST(Estimate, BytesOfParametersFollowThePrecision) {
    const Profile half =
        estimated_profile(model_of(small_gpt2()), counts_operations, options(8, 1));
    EXPECT_EQ(layer(half, "embedding").parameter_count, 2112);
    EXPECT_EQ(layer(half, "embedding").parameter_bytes, Bytes{2 * 2112});
    EXPECT_EQ(layer(half, "block2.attention").parameter_count, 1120);
    EXPECT_EQ(layer(half, "block2.feed_forward").parameter_count, 2160);
    EXPECT_EQ(layer(half, "head").parameter_count, 32);
    EXPECT_EQ(layer(half, "head").parameter_bytes, Bytes{2 * (32 + 1600)});
    EXPECT_EQ(half.tied_bytes, Bytes{2 * 1600});
    EstimateOptions full = options(8, 1);
    full.precision = "fp32";
    EXPECT_EQ(layer(estimated_profile(model_of(small_gpt2()), counts_operations, full), "head")
                  .parameter_bytes,
              Bytes{4 * (32 + 1600)});
}

// --- Times where only operations cost: published counts. ---

/// Narayanan et al. 2021, appendix: a block of a GPT does 24 b s h^2 + 4 b s^2 h operations
/// forward. Causal attention computes (s + 1) / 2 of every s pairs.
TEST(Estimate, OperationsOfAGptBlockAreThePublishedOnes) {
    const std::int64_t b = 3;
    const std::int64_t s = 8;
    const std::int64_t h = 16;
    const Profile profile =
        estimated_profile(model_of(small_gpt2()), counts_operations, options(8, 3));
    const LayerSample attention = sample(profile, "block1.attention", 3);
    const LayerSample feed_forward = sample(profile, "block1.feed_forward", 3);
    const std::int64_t scores = 4 * b * h * (s * (s + 1) / 2);
    EXPECT_EQ(attention.forward.count(), 8 * b * s * h * h + scores);
    EXPECT_EQ(attention.backward_weight.count(), 8 * b * s * h * h);
    // FlashAttention's backward: five products in place of two (Dao 2022, appendix B).
    EXPECT_EQ(attention.backward_input.count(), 8 * b * s * h * h + 5 * scores / 2);
    EXPECT_EQ(feed_forward.forward.count(), 16 * b * s * h * h);
    EXPECT_EQ(feed_forward.backward_input.count(), 16 * b * s * h * h);
    EXPECT_EQ(feed_forward.backward_weight.count(), 16 * b * s * h * h);
    // The projection to V = 100 words: 2 b s h V.
    EXPECT_EQ(sample(profile, "head", 3).forward.count(), 2 * b * s * h * 100);
    EXPECT_EQ(sample(profile, "embedding", 3).forward.count(), 0);
}

/// Narayanan et al. 2021, section 5.1: 96 B s l h^2 (1 + s / 6h + V / 16 l h) with a recomputed
/// forward, so 72 B s l h^2 (1 + s / 6h + V / 12 l h) without. The forms of attention, and whether
/// a layer is a block or half of one, change nothing.
TEST(Estimate, ModelOperationsOfAGptAreThePublishedOnes) {
    const double s = 8;
    const double l = 4;
    const double h = 16;
    const double published = 72 * s * l * h * h * (1 + s / (6 * h) + 100 / (12 * l * h));
    EstimateOptions standard = options(8, 3);
    standard.attention = AttentionKernels::Standard;
    for (const EstimateOptions& of : {options(8, 3), standard}) {
        const Profile profile = estimated_profile(model_of(small_gpt2()), counts_bytes, of);
        EXPECT_EQ(profile.tokens_per_sample, 8);
        ASSERT_TRUE(model_operations(profile));
        EXPECT_NEAR(*model_operations(profile), published, 1e-9 * published);
        EXPECT_EQ(model_operations(with_whole_blocks(profile)), model_operations(profile));
        EXPECT_EQ(layer(profile, "embedding").operations, 0);
    }
}

/// Megatron-LM's num_floating_point_operations: per token and layer 6 h (q + k + v) and 6 q h of
/// projections, 6 q s of core attention, which is halved, and 18 h f of a gated feed-forward; 6 h V
/// of the logits. Llama 3 70B with 8,192 tokens: 6.7 % less than with all pairs.
TEST(Estimate, OperationsWithoutMaskedAttentionAreThoseOfMegatronLm) {
    const double s = 8192;
    const double h = 8192;
    const double keys = 8 * 128;
    const double f = 28672;
    const double l = 80;
    const double vocabulary = 128256;
    const DecoderModel model = model_of(with(llama_config(),
                                             {{"hidden_size", 8192},
                                              {"intermediate_size", 28672},
                                              {"num_attention_heads", 64},
                                              {"num_key_value_heads", 8},
                                              {"vocab_size", 128256},
                                              {"num_hidden_layers", 80}}));
    const double megatron =
        s * (l * (6 * h * (2 * h + 2 * keys) + 6 * h * s + 18 * h * f) + 6 * h * vocabulary);
    EstimateOptions standard = options(8192, 1);
    standard.attention = AttentionKernels::Standard;
    for (const EstimateOptions& of : {options(8192, 1), standard}) {
        const Profile profile = estimated_profile(model, counts_bytes, of);
        const double all = model_operations(profile).value_or(0);
        const double masked = masked_model_operations(profile).value_or(0);
        EXPECT_NEAR(all - masked, megatron, 1e-9 * megatron);
        EXPECT_NEAR(megatron / all, 1 - 0.067, 0.0005);
        EXPECT_EQ(masked_model_operations(with_whole_blocks(profile)), masked);
        EXPECT_EQ(parse_profile(print_profile(profile), "x"), profile);
    }
}

TEST(Estimate, ModelOperationsAreUnknownWhereALayerDoesNotSay) {
    Profile profile = estimated_profile(model_of(small_gpt2()), counts_bytes, options(8, 3));
    profile.layers[3].operations = std::nullopt;
    EXPECT_EQ(model_operations(profile), std::nullopt);
    EXPECT_EQ(parse_profile(print_profile(profile), "x"), profile);
}

/// Each of six tokens meets two keys: 2 * 6 * 2 * 8 operations in each of the two products.
TEST(Estimate, ModelOperationsCountAWindowAsItsWidth) {
    const json config = with(llama_config(),
                             {{"model_type", "mistral"},
                              {"hidden_size", 8},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},
                              {"num_hidden_layers", 2},
                              {"sliding_window", 2}});
    const Profile profile = estimated_profile(model_of(config), counts_bytes, options(6, 1));
    const double matrices = 2 * 6 * (8 * (8 + 4 + 4) + 8 * 8);
    EXPECT_EQ(layer(profile, "block0.attention").operations, matrices + 2 * 2.0 * 6 * 2 * 8);
    // A mask that leaves half of the pairs leaves these two.
    EXPECT_EQ(layer(profile, "block0.attention").masked_operations, 0);
}

/// 64 heads of 128 with 8 pairs of keys and values, three matrices of 8192 x 28672: with the
/// scores, 2 operations per token and parameter.
TEST(Estimate, OperationsOfLlamaAreTwoPerTokenAndParameter) {
    const DecoderModel model = model_of(with(llama_config(),
                                             {{"hidden_size", 8192},
                                              {"intermediate_size", 28672},
                                              {"num_attention_heads", 64},
                                              {"num_hidden_layers", 80}}));
    const Profile profile = estimated_profile(model, device(1e15, without_end), options(8192, 1));
    const double tokens = 8192;
    const double matrices = 8192.0 * 8192 * 2 + 2 * 8192.0 * 1024 + 3 * 8192.0 * 28672;
    const double scores = 4 * 8192.0 * tokens * (tokens + 1) / 2;
    const double seconds = to_seconds(sample(profile, "block7.attention", 1).forward +
                                      sample(profile, "block7.feed_forward", 1).forward);
    EXPECT_NEAR(seconds, (2 * tokens * matrices + scores) / 1e15, 2e-9);
}

/// Six tokens that see two each: 1 + 2 + 2 + 2 + 2 + 2 pairs; else 21.
TEST(Estimate, AWindowBoundsThePairs) {
    const json config = with(llama_config(),
                             {{"model_type", "mistral"},
                              {"hidden_size", 8},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},
                              {"num_hidden_layers", 2},
                              {"sliding_window", 2}});
    const auto forward = [](const json& of) {
        const Profile profile = estimated_profile(model_of(of), counts_operations, options(6, 1));
        return sample(profile, "block0.attention", 1).forward.count();
    };
    const std::int64_t matrices = 2 * 6 * (8 * (8 + 4 + 4) + 8 * 8);
    EXPECT_EQ(forward(config), matrices + 11 * 4 * 8);
    EXPECT_EQ(forward(with(config, {{"sliding_window", nullptr}})), matrices + 21 * 4 * 8);
    EXPECT_EQ(forward(with(config, {{"sliding_window", 100}})), matrices + 21 * 4 * 8);
}

/// The tail is the last of the three products of a gated half. Dropout behind it has to be computed
/// again for its mask, and the router's backward reads what experts made, so these have no tail.
TEST(Estimate, NoBackwardReadsTheLastProductOfABlock) {
    const json config = with(llama_config(),
                             {{"hidden_size", 8},
                              {"intermediate_size", 16},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 4}});
    const auto tail = [](const DecoderModel& model) {
        const Profile profile = estimated_profile(model, counts_operations, options(10, 1));
        return sample(profile, "block0.feed_forward", 1).tail_forward.count();
    };
    DecoderModel model = model_of(config);
    EXPECT_EQ(tail(model), 2 * 10 * 16 * 8);
    model.dropout = true;
    EXPECT_EQ(tail(model), 0);
    EXPECT_EQ(
        tail(model_of(with(
            config,
            {{"model_type", "mixtral"}, {"num_local_experts", 8}, {"num_experts_per_tok", 2}}))),
        0);
}

/// A token goes through 2 of 8 experts, and the router scores all.
TEST(Estimate, ATokenPaysForItsExpertsOnly) {
    const DecoderModel model = model_of(with(llama_config(),
                                             {{"model_type", "mixtral"},
                                              {"hidden_size", 8},
                                              {"intermediate_size", 16},
                                              {"num_attention_heads", 4},
                                              {"num_key_value_heads", 4},
                                              {"num_local_experts", 8},
                                              {"num_experts_per_tok", 2}}));
    const Profile profile = estimated_profile(model, counts_operations, options(10, 1));
    EXPECT_EQ(sample(profile, "block0.feed_forward", 1).forward.count(),
              2 * 10 * 8 * 8 + 2 * (2 * 10 * 3 * 8 * 16));
}

/// Every fourth block looks at pairs, with a gate as wide as its queries; the others carry a state.
/// Chunks of 64 tokens: five products inside a chunk, three of K and two of V numbers per pair, and
/// three with the state of K x V.
/// Per token and matrix (n, m) a forward and a gradient of the input are 2 n m operations each, as
/// without adapters, and an adapter of rank r has three products of 2 r (n + m).
TEST(Estimate, AdaptersAreTrainedInPlaceOfWeights) {
    DecoderModel model = model_of(llama_config());
    model.tied = false;
    const Profile whole = estimated_profile(model, counts_operations, options(16, 2));
    model.adapters = AdapterShape{.rank = 4};
    const Profile adapted = estimated_profile(model, counts_operations, options(16, 2));
    const std::int64_t tokens = 16 * 2;
    for (const std::string name : {"block0.attention", "block0.feed_forward"}) {
        const LayerCost& of = layer(adapted, name);
        const LayerSample one = sample(adapted, name, 2);
        const LayerSample before = sample(whole, name, 2);
        const std::int64_t each = 2 * tokens * of.parameter_count;  // 2 r (n + m) for each token
        EXPECT_EQ(one.forward - before.forward, Duration{each}) << name;
        EXPECT_EQ(one.backward_input - before.backward_input, Duration{each}) << name;
        EXPECT_EQ(one.backward_weight, Duration{each}) << name;
        EXPECT_EQ(of.frozen_bytes, layer(whole, name).parameter_bytes) << name;
        EXPECT_EQ(of.parameter_bytes, Bytes{2 * of.parameter_count}) << name;
        EXPECT_EQ(of.operations, std::nullopt);
    }
    const int width = model.width;
    EXPECT_EQ(layer(adapted, "block1.feed_forward").parameter_count,
              4 * (2 * width + 3 * model.feed_forward));
    for (const std::string name : {"embedding", "head"}) {
        EXPECT_EQ(layer(adapted, name).parameter_count, 0) << name;
        EXPECT_EQ(layer(adapted, name).frozen_bytes, layer(whole, name).parameter_bytes) << name;
        EXPECT_EQ(sample(adapted, name, 2).backward_weight, Duration{}) << name;
    }
    model.adapters->ends = true;
    const Profile ends = estimated_profile(model, counts_operations, options(16, 2));
    EXPECT_EQ(layer(ends, "head").parameter_count, layer(whole, "head").parameter_count);
    EXPECT_EQ(sample(ends, "head", 2).backward_weight, sample(whole, "head", 2).backward_weight);
    EXPECT_EQ(trained_parameters(model),
              embedding_parameters(model) + head_parameters(model) +
                  model.blocks * (attention_adapters(model, 0) + feed_forward_adapters(model, 0)));
    // What is read back is estimated anew as it was.
    EXPECT_EQ(parse_profile(print_profile(ends), "p.json"), ends);
}

/// In front of four adapters rows go through dropout: what came out and a mask stay of each number.
TEST(Estimate, DropoutInFrontOfAdaptersIsKept) {
    DecoderModel model = model_of(llama_config());
    model.adapters = AdapterShape{.rank = 4};
    const Profile plain = estimated_profile(model, counts_operations, options(16, 2));
    model.adapters->dropout = true;
    const Profile dropped = estimated_profile(model, counts_operations, options(16, 2));
    const std::int64_t tokens = 16 * 2;
    const std::int64_t heads = model.attention.heads * model.attention.value_width;
    EXPECT_EQ(
        sample(dropped, "block0.attention", 2).saved - sample(plain, "block0.attention", 2).saved,
        Bytes{3 * tokens * (model.width + heads)});
    EXPECT_EQ(sample(dropped, "block0.feed_forward", 2).saved -
                  sample(plain, "block0.feed_forward", 2).saved,
              Bytes{3 * tokens * (model.width + model.feed_forward)});
}

TEST(Estimate, LinearAttentionCostsTheSameForEveryToken) {
    const json config = with(llama_config(),
                             {{"model_type", "qwen3_next"},
                              {"hidden_size", 16},
                              {"num_hidden_layers", 4},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},
                              {"head_dim", 8},
                              {"linear_num_key_heads", 2},
                              {"linear_key_head_dim", 4},
                              {"linear_num_value_heads", 4},
                              {"linear_value_head_dim", 6},
                              {"linear_conv_kernel_dim", 3},
                              {"intermediate_size", 8},
                              {"num_experts", 4},
                              {"num_experts_per_tok", 2},
                              {"moe_intermediate_size", 8}});
    const Profile profile = estimated_profile(model_of(config), counts_operations, options(128, 1));
    EXPECT_EQ(layer(profile, "block2.attention").kind, "linear_attention");
    EXPECT_EQ(layer(profile, "block3.attention").kind, "attention");
    // 2 x (2 x 4) queries and keys, 4 x 6 values and as many gates, 2 x 4 rates; convolved are 40.
    const std::int64_t columns = 16 + 24 + 24 + 8;
    EXPECT_EQ(layer(profile, "block0.attention").parameter_count,
              16 + 16 * columns + 40 * 3 + 2 * 4 + 6 + 24 * 16);
    const std::int64_t rule = 4 * 2 * (64 * (3 * 4 + 2 * 6) + 3 * 4 * 6);
    EXPECT_EQ(sample(profile, "block0.attention", 1).forward.count(),
              128 * (2 * 16 * columns + rule + 2 * 24 * 16));
    // 4 x 8 queries with a gate, 2 x 8 keys and values each, two norms of 8.
    EXPECT_EQ(layer(profile, "block3.attention").parameter_count,
              16 + 16 * (64 + 32) + 16 + 32 * 16);
    const std::int64_t pairs = 128 * 129 / 2;
    EXPECT_EQ(sample(profile, "block3.attention", 1).forward.count(),
              128 * 2 * 16 * (96 + 32) + pairs * 4 * 4 * 8);
}

/// A block of Nemotron-H is one half: a state space, attention, or experts that read rows of 4 of
/// the model's 16 numbers. Chunks of 8 tokens.
TEST(Estimate, AStateSpaceCostsTheSameForEveryToken) {
    json config{{"model_type", "nemotron_h"},
                {"hidden_size", 16},
                {"hybrid_override_pattern", "MM*E-"},
                {"num_attention_heads", 4},
                {"num_key_value_heads", 2},
                {"head_dim", 8},
                {"intermediate_size", 24},
                {"vocab_size", 100},
                {"mamba_num_heads", 6},
                {"mamba_head_dim", 5},
                {"ssm_state_size", 3},
                {"n_groups", 2},
                {"conv_kernel", 4},
                {"chunk_size", 8},
                {"n_routed_experts", 8},
                {"num_experts_per_tok", 2},
                {"moe_intermediate_size", 10},
                {"moe_latent_size", 4},
                {"moe_shared_expert_intermediate_size", 12}};
    const Profile profile = estimated_profile(model_of(config), counts_operations, options(128, 1));
    std::vector<std::string> names;
    for (const LayerCost& layer : profile.layers) {
        names.push_back(layer.name + ' ' + layer.kind);
    }
    EXPECT_THAT(names,
                ElementsAre("embedding embedding",
                            "block0.attention mamba",
                            "block1.attention mamba",
                            "block2.attention attention",
                            "block3.feed_forward feed_forward",
                            "block4.feed_forward feed_forward",
                            "head head"));
    // A gate and as much for 6 heads of 5, 2 x 3 that write and read each, and a rate per head.
    const std::int64_t inner = 30;
    const std::int64_t convolved = 30 + 2 * 6;
    const std::int64_t columns = inner + convolved + 6;
    EXPECT_EQ(layer(profile, "block0.attention").parameter_count,
              16 + 16 * columns + convolved * (4 + 1) + 3 * 6 + inner + inner * 16);
    // Per group 8 x 3 products of a token with those of its chunk; per head 8 x 5, and 3 x 5 into
    // the state and out of it.
    const std::int64_t space = 2 * (2 * 8 * 3 + 6 * (8 * 5 + 2 * 3 * 5));
    EXPECT_EQ(sample(profile, "block0.attention", 1).forward.count(),
              128 * (2 * 16 * columns + space + 2 * inner * 16));
    EXPECT_EQ(layer(profile, "block3.feed_forward").parameter_count,
              16 + 16 * 8 + 8 + 2 * 16 * 4 + 8 * 2 * 4 * 10 + 2 * 16 * 12);
    EXPECT_EQ(sample(profile, "block3.feed_forward", 1).forward.count(),
              128 * 2 * (16 * 8 + 2 * 16 * 4 + 2 * 2 * 4 * 10 + 2 * 16 * 12));
    EXPECT_EQ(layer(profile, "block4.feed_forward").parameter_count, 16 + 2 * 16 * 24);
    // Twice as many tokens take twice as long: no pair of them is further apart than a chunk.
    EXPECT_EQ(sample(estimated_profile(model_of(config), counts_operations, options(256, 1)),
                     "block0.attention",
                     1)
                  .forward,
              2 * sample(profile, "block0.attention", 1).forward);
}

/// Gemma 4: in blocks that see all, heads are wider and fewer, and keys are the values, too; every
/// token goes through a dense half beside its experts.
TEST(Estimate, BlocksMayHaveHeadsOfSeveralSizes) {
    const json config = with(llama_config(),
                             {{"model_type", "gemma4_text"},
                              {"hidden_size", 16},
                              {"num_hidden_layers", 2},
                              {"layer_types", {"sliding_attention", "full_attention"}},
                              {"sliding_window", 8},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},
                              {"head_dim", 4},
                              {"global_head_dim", 8},
                              {"num_global_key_value_heads", 1},
                              {"attention_k_eq_v", true},
                              {"intermediate_size", 24},
                              {"enable_moe_block", true},
                              {"num_experts", 8},
                              {"top_k_experts", 2},
                              {"moe_intermediate_size", 10}});
    const Profile profile = estimated_profile(model_of(config), counts_operations, options(64, 1));
    EXPECT_EQ(layer(profile, "block0.attention").parameter_count,
              2 * 16 + 16 * (16 + 2 * 8) + 2 * 4 + 16 * 16);
    EXPECT_EQ(layer(profile, "block1.attention").parameter_count,
              2 * 16 + 16 * (32 + 8) + 2 * 8 + 32 * 16);
    // A window of 8 tokens over 64 queries: the first 8 queries see 1 to 8 keys, the other 56
    // see 8.
    const std::int64_t near_pairs = 8 * 9 / 2 + 56 * 8;
    const std::int64_t all_pairs = 64 * 65 / 2;
    EXPECT_EQ(sample(profile, "block0.attention", 1).forward.count(),
              64 * 2 * 16 * (32 + 16) + near_pairs * 4 * 4 * 4);
    EXPECT_EQ(sample(profile, "block1.attention", 1).forward.count(),
              64 * 2 * 16 * (40 + 32) + all_pairs * 4 * 4 * 8);
    EXPECT_EQ(layer(profile, "block0.feed_forward").parameter_count,
              5 * 16 + 1 + 16 * 8 + 16 + 8 + 8 * 3 * 16 * 10 + 3 * 16 * 24);
    EXPECT_EQ(sample(profile, "block0.feed_forward", 1).forward.count(),
              64 * 2 * (16 * 8 + 2 * 3 * 16 * 10 + 3 * 16 * 24));
}

/// MiniMax-M3: an indexer scores all keys, and each query sees those of the chosen blocks of keys.
TEST(Estimate, AnIndexerLeavesTheKeysOfItsBlocks) {
    const json config = with(llama_config(),
                             {{"model_type", "minimax_m3"},
                              {"hidden_size", 16},
                              {"num_hidden_layers", 2},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},
                              {"head_dim", 8},
                              {"dense_intermediate_size", 24},
                              {"intermediate_size", 10},
                              {"shared_intermediate_size", 12},
                              {"num_local_experts", 4},
                              {"num_experts_per_tok", 2},
                              {"moe_layer_freq", {0, 1}},
                              {"sparse_attention_config",
                               {{"sparse_attention_freq", {0, 1}},
                                {"sparse_num_index_heads", 2},
                                {"sparse_index_dim", 6},
                                {"sparse_topk_blocks", 2},
                                {"sparse_block_size", 4}}}});
    const Profile profile = estimated_profile(model_of(config), counts_operations, options(64, 1));
    const std::int64_t plain = 16 + 16 * (32 + 2 * 16) + 2 * 8 + 32 * 16;
    EXPECT_EQ(layer(profile, "block0.attention").parameter_count, plain);
    EXPECT_EQ(layer(profile, "block1.attention").parameter_count, plain + 16 * 3 * 6 + 2 * 6);
    const std::int64_t all_pairs = 64 * 65 / 2;
    const std::int64_t chosen = 8 * 9 / 2 + 56 * 8;
    EXPECT_EQ(sample(profile, "block0.attention", 1).forward.count(),
              64 * 2 * 16 * (64 + 32) + all_pairs * 4 * 4 * 8);
    EXPECT_EQ(sample(profile, "block1.attention", 1).forward.count(),
              64 * 2 * 16 * (64 + 32 + 18) + all_pairs * 2 * 2 * 6 + chosen * 4 * 4 * 8);
    EXPECT_EQ(layer(profile, "block0.feed_forward").parameter_count, 16 + 3 * 16 * 24);
    EXPECT_EQ(layer(profile, "block1.feed_forward").parameter_count,
              16 + 16 * 4 + 4 + 4 * 3 * 16 * 10 + 3 * 16 * 12);
}

/// A search has left out the attention of one block, and the feed-forward half of another.
TEST(Estimate, BlocksMayLackAHalf) {
    const json none{{"no_op", true}};
    const auto heads = [](int in_group) { return json{{"n_heads_in_group", in_group}}; };
    const auto inner = [](double multiple) { return json{{"ffn_mult", multiple}}; };
    const json config = with(llama_config(),
                             {{"model_type", "nemotron-nas"},
                              {"hidden_size", 512},
                              {"num_hidden_layers", 3},
                              {"num_attention_heads", 8},
                              {"num_key_value_heads", nullptr},
                              {"intermediate_size", nullptr},
                              {"block_configs",
                               {{{"attention", heads(2)}, {"ffn", inner(1.0)}},
                                {{"attention", none}, {"ffn", inner(3.0)}},
                                {{"attention", heads(8)}, {"ffn", none}}}}});
    const Profile profile = estimated_profile(model_of(config), counts_operations, options(64, 1));
    std::vector<std::string> names;
    for (const LayerCost& one : profile.layers) {
        names.push_back(one.name);
    }
    EXPECT_THAT(names,
                ElementsAre("embedding",
                            "block0.attention",
                            "block0.feed_forward",
                            "block1.feed_forward",
                            "block2.attention",
                            "head"));
    EXPECT_EQ(layer(profile, "block0.attention").parameter_count,
              512 + 512 * (512 + 2 * 256) + 512 * 512);
    EXPECT_EQ(layer(profile, "block2.attention").parameter_count,
              512 + 512 * (512 + 2 * 64) + 512 * 512);
    // Two thirds of 512 are 341, of 3 x 512 are 1,024: up to multiples of 256.
    EXPECT_EQ(layer(profile, "block0.feed_forward").parameter_count, 512 + 3 * 512 * 512);
    EXPECT_EQ(layer(profile, "block1.feed_forward").parameter_count, 512 + 3 * 512 * 1024);
    EXPECT_EQ(layer(with_whole_blocks(profile), "block0").parameter_count,
              layer(profile, "block0.attention").parameter_count +
                  layer(profile, "block0.feed_forward").parameter_count);
}

/// DeepSeek-V4: a block sees the tokens of a window, and rows that stand for 4 tokens each, of
/// which an indexer chooses 8, or for 128. The residual is two rows, which each half reads one of.
TEST(Estimate, FurtherRowsStandForSeveralTokens) {
    const json config{{"model_type", "deepseek_v4"},
                      {"hidden_size", 16},
                      {"num_hidden_layers", 3},
                      {"compress_ratios", {0, 4, 128, 0}},
                      {"num_nextn_predict_layers", 1},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 1},
                      {"head_dim", 8},
                      {"q_lora_rank", 6},
                      {"qk_rope_head_dim", 4},
                      {"o_groups", 2},
                      {"o_lora_rank", 3},
                      {"sliding_window", 16},
                      {"index_n_heads", 2},
                      {"index_head_dim", 4},
                      {"index_topk", 8},
                      {"hc_mult", 2},
                      {"num_hash_layers", 1},
                      {"vocab_size", 100},
                      {"n_routed_experts", 4},
                      {"n_shared_experts", 1},
                      {"num_experts_per_tok", 2},
                      {"moe_intermediate_size", 10}};
    const Profile profile = estimated_profile(model_of(config), counts_operations, options(256, 1));
    // Weights of what is read (2), written (2) and mixed (4) out of both rows.
    const std::int64_t residual = 32 * 8 + 8 + 3;
    const std::int64_t near = 16 + residual + (16 * 6 + 6) + 6 * 32 + (16 * 8 + 8) +
                              (32 / 2) * (2 * 3) + (2 * 3) * 16 + 4;
    EXPECT_EQ(layer(profile, "block0.attention").parameter_count, near);
    // Values and weights of twice 8 numbers, a bias for each of 4 positions, and a norm; the
    // indexer's of twice 4.
    const std::int64_t of_four = 16 * 2 * 16 + 4 * 16 + 8;
    const std::int64_t indexer = 6 * 2 * 4 + 16 * 2 + (16 * 2 * 8 + 4 * 8 + 4);
    EXPECT_EQ(layer(profile, "block1.attention").parameter_count, near + of_four + indexer);
    EXPECT_EQ(layer(profile, "block2.attention").parameter_count, near + 16 * 2 * 8 + 128 * 8 + 8);
    const std::int64_t of_token = 2 * (32 * 8 + 16 * 6 + 6 * 32 + 16 * 8 + 2 * 16 * 3 + 6 * 16);
    const std::int64_t of_pair = 4 * 2 * (8 + 8);
    const std::int64_t window_pairs = 16 * 17 / 2 + 240 * 16;
    std::int64_t scored = 0;  // every fourth token fills a row
    std::int64_t chosen = 0;
    std::int64_t heavy = 0;
    for (int token = 1; token <= 256; ++token) {
        scored += token / 4;
        chosen += std::min(token / 4, 8);
        heavy += token / 128;
    }
    EXPECT_EQ(sample(profile, "block0.attention", 1).forward.count(),
              256 * of_token + window_pairs * of_pair);
    EXPECT_EQ(sample(profile, "block1.attention", 1).forward.count(),
              256 * (of_token + 2 * (16 * 32 + 6 * 8 + 16 * 2 + 16 * 16)) + scored * 2 * 2 * 4 +
                  (window_pairs + chosen) * of_pair);
    EXPECT_EQ(sample(profile, "block2.attention", 1).forward.count(),
              256 * (of_token + 2 * 16 * 16) + (window_pairs + heavy) * of_pair);
    // Tokens of the first block say their experts themselves: its router has no bias.
    const std::int64_t half = 16 + residual + 16 * 4 + 5 * 3 * 16 * 10;
    EXPECT_EQ(layer(profile, "block0.feed_forward").parameter_count, half);
    EXPECT_EQ(layer(profile, "block1.feed_forward").parameter_count, half + 4);
    const std::int64_t last_row = 32 * 2 + 2 + 1;
    EXPECT_EQ(layer(profile, "head").parameter_count, 16 + last_row + 16 * 100);
    // Behind the last block one of those without further rows, two matrices, and three norms.
    EXPECT_EQ(layer(profile, "mtp0").parameter_count,
              3 * 16 + 2 * 16 * 16 + near + half + 4 + last_row);
    for (const char* name : {"embedding", "block0.attention", "block2.feed_forward"}) {
        EXPECT_EQ(sample(profile, name, 1).output.count, 2 * 256 * 2 * 16) << name;
        EXPECT_EQ(layer(profile, name).output_rows, 2) << name;
    }
}

/// Kimi's delta attention decays by a number for each of a key's; a matrix of rank 4 makes them.
/// Every half reads a mixture of what the residual was in front of every second block, and of what
/// it has become since.
TEST(Estimate, DeltaAttentionMayDecayNumberByNumber) {
    const json config{{"model_type", "kimi_linear"},
                      {"hidden_size", 16},
                      {"num_hidden_layers", 4},
                      {"intermediate_size", 24},
                      {"vocab_size", 100},
                      {"num_attention_heads", 2},
                      {"q_lora_rank", nullptr},
                      {"kv_lora_rank", 6},
                      {"qk_nope_head_dim", 4},
                      {"qk_rope_head_dim", 2},
                      {"v_head_dim", 4},
                      {"mla_use_nope", true},
                      {"mla_use_output_gate", true},
                      {"linear_attn_config",
                       {{"kda_layers", {1, 2, 3}},
                        {"full_attn_layers", {4}},
                        {"num_heads", 3},
                        {"head_dim", 4},
                        {"short_conv_kernel_size", 4}}},
                      {"first_k_dense_replace", 1},
                      {"num_experts", 4},
                      {"num_experts_per_token", 2},
                      {"moe_intermediate_size", 10},
                      {"num_shared_experts", 2},
                      {"routed_expert_hidden_size", 8},
                      {"latent_moe_use_norm", true},
                      {"attn_res_block_size", 2}};
    const auto profile_of = [](const json& of) {
        return estimated_profile(model_of(of), counts_operations, options(128, 1));
    };
    const Profile profile = profile_of(config);
    EXPECT_EQ(layer(profile, "block0.attention").kind, "linear_attention");
    EXPECT_EQ(layer(profile, "block3.attention").kind, "attention");
    // 3 x 12 queries, keys and values, a number per head for what is written, decays and a gate of
    // rank 4; a score of what is kept has a norm and 16 weights.
    const std::int64_t residual = 2 * 16;
    const std::int64_t projections = 16 * (36 + 3) + 2 * (16 * 4 + 4 * 12) + 12 * 16;
    EXPECT_EQ(layer(profile, "block0.attention").parameter_count,
              16 + residual + projections + 36 * 4 + 12 + 3 + 4);
    const std::int64_t rule = 3 * 2 * (64 * (3 * 4 + 2 * 4) + 3 * 4 * 4);
    EXPECT_EQ(sample(profile, "block0.attention", 1).forward.count(),
              128 * (2 * projections + rule));
    json full = config;
    full["linear_attn_config"]["use_full_rank_gate"] = true;
    EXPECT_EQ(layer(profile_of(full), "block0.attention").parameter_count,
              layer(profile, "block0.attention").parameter_count - 16 * 4 - 4 * 12 + 16 * 12);
    const std::int64_t latent =
        16 * 2 * 6 + 16 * (6 + 2) + 6 + 6 * 2 * (4 + 4) + 2 * 4 * 16 + 16 * 2 * 4;
    EXPECT_EQ(layer(profile, "block3.attention").parameter_count, 16 + residual + latent);
    EXPECT_EQ(sample(profile, "block3.attention", 1).forward.count(),
              128 * 2 * (latent - 6) + 128 * 129 / 2 * 2 * 2 * (6 + 4));
    EXPECT_EQ(layer(profile, "block0.feed_forward").parameter_count, 16 + residual + 3 * 16 * 24);
    EXPECT_EQ(layer(profile, "block1.feed_forward").parameter_count,
              16 + residual + 16 * 4 + 4 + 2 * 16 * 8 + 8 + 4 * 3 * 8 * 10 + 3 * 16 * 20);
    EXPECT_EQ(layer(profile, "head").parameter_count, 16 + residual + 16 * 100);
    // Blocks 0 and 2 keep the row in front of them beside the one that goes on.
    for (const auto& [name, rows] : {std::pair("embedding", 1),
                                     std::pair("block0.attention", 2),
                                     std::pair("block1.feed_forward", 2),
                                     std::pair("block2.attention", 3),
                                     std::pair("block3.feed_forward", 3)}) {
        EXPECT_EQ(sample(profile, name, 1).output.count, 2 * 128 * rows * 16) << name;
        EXPECT_EQ(layer(profile, name).output_rows, rows) << name;
    }
}

/// A block that predicts a further token is the last block, a matrix of 2 C x C, and the head
/// again.
TEST(Estimate, AFurtherTokenCostsABlockAndAHead) {
    const json config = with(llama_config(),
                             {{"model_type", "mimo"},
                              {"hidden_size", 8},
                              {"intermediate_size", 16},
                              {"num_hidden_layers", 2},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},
                              {"vocab_size", 100},
                              {"num_nextn_predict_layers", 2}});
    const Profile profile = estimated_profile(model_of(config), counts_operations, options(6, 1));
    ASSERT_EQ(profile.layers.size(), 8U);
    EXPECT_EQ(profile.layers[5].name, "mtp0");
    EXPECT_EQ(profile.layers[6].name, "mtp1");
    const auto forward = [&](const char* name) { return sample(profile, name, 1).forward.count(); };
    EXPECT_EQ(forward("mtp0"),
              2 * 6 * 16 * 8 + forward("block1.attention") + forward("block1.feed_forward") +
                  forward("head"));
    EXPECT_EQ(layer(profile, "mtp1").parameter_count,
              3 * 8 + 16 * 8 + layer(profile, "block1.attention").parameter_count +
                  layer(profile, "block1.feed_forward").parameter_count);
    // The row that the head reads goes past a block whose own goes to the next.
    EXPECT_EQ(sample(profile, "mtp0", 1).output.count, 2 * 2 * 6 * 8);
    EXPECT_EQ(sample(profile, "mtp1", 1).output.count, 2 * 6 * 8);
    // They need the embedding's table where the head is.
    EXPECT_EQ(profile.tied_bytes, Bytes{2 * 100 * 8});
}

/// T5: every block of the decoder reads the one before it and the encoder's norm.
TEST(Estimate, ADecoderReadsItsEncoder) {
    const json config{{"model_type", "t5"},
                      {"d_model", 8},
                      {"d_kv", 4},
                      {"d_ff", 16},
                      {"num_layers", 2},
                      {"num_heads", 3},
                      {"vocab_size", 100}};
    const Profile profile = estimated_profile(model_of(config), counts_operations, options(6, 1));
    std::vector<std::string> names;
    for (const LayerCost& one : profile.layers) {
        names.push_back(one.name);
    }
    EXPECT_THAT(names,
                ElementsAre("embedding",
                            "encoder0.attention",
                            "encoder0.feed_forward",
                            "encoder1.attention",
                            "encoder1.feed_forward",
                            "encoder_norm",
                            "decoder_embedding",
                            "block0.attention",
                            "block0.feed_forward",
                            "block1.attention",
                            "block1.feed_forward",
                            "head"));
    EXPECT_THAT(profile.layers[7].inputs, ElementsAre("encoder_norm", "decoder_embedding"));
    EXPECT_THAT(profile.layers[9].inputs, ElementsAre("encoder_norm", "block0.feed_forward"));
    EXPECT_EQ(profile.layers[6].parameter_count, 0);
    EXPECT_EQ(profile.layers[6].parameter_bytes, Bytes{2 * 800});
    // Every token of an encoder sees all 6; those of a decoder see 21 pairs of their own, and 36.
    const std::int64_t matrices = 4 * 2 * 6 * 8 * 12;
    const std::int64_t per_pair = 4 * 3 * 4;
    EXPECT_EQ(sample(profile, "encoder1.attention", 1).forward.count(), matrices + 36 * per_pair);
    EXPECT_EQ(sample(profile, "block1.attention", 1).forward.count(),
              2 * matrices + (21 + 36) * per_pair);
    check_profile(profile, "x");
    const Profile whole = with_whole_blocks(profile);
    EXPECT_EQ(whole.layers.size(), 8U);
    EXPECT_THAT(whole.layers[6].inputs, ElementsAre("encoder_norm", "block0"));
    check_profile(whole, "x");
}

TEST(Estimate, EfficienciesDivideTheTimes) {
    EstimateOptions half = options(8, 1);
    half.efficiency = 0.5;
    half.memory_efficiency = 0.25;
    const DecoderModel model = model_of(small_gpt2());
    for (const auto& [where, ratio] : {std::pair(counts_operations, 2), {counts_bytes, 4}}) {
        const LayerSample full = sample(estimated_profile(model, where, options(8, 1)), "head", 1);
        const LayerSample slow = sample(estimated_profile(model, where, half), "head", 1);
        EXPECT_EQ(slow.forward, ratio * full.forward);
    }
}

// --- Times where only bytes cost, by hand. ---

/// T = 8 tokens, C = 16, V = 100, two bytes per number. Norm: reads and writes T C. Projection:
/// T C + C V + T V. Loss: reads T V, writes it in four bytes, which is twice as many.
TEST(Estimate, BytesOfTheHeadAreThoseOfItsKernels) {
    const Profile profile = estimated_profile(model_of(small_gpt2()), counts_bytes, options(8, 1));
    const LayerSample head = sample(profile, "head", 1);
    EXPECT_EQ(head.forward.count(), 2 * (2 * 128 + (128 + 1600 + 800) + 3 * 800));
    EXPECT_EQ(head.backward_input.count(), 2 * (3 * 128 + (128 + 1600 + 800) + 3 * 800));
    EXPECT_EQ(head.backward_weight.count(), 2 * (128 + 1600 + 800 + 1600));
    EXPECT_EQ(head.accumulation.count(), 8 * 1600);  // fp32 sums of C V gradients
    EXPECT_EQ(head.forward_kernels, 3);
    EXPECT_EQ(head.backward_weight_kernels, 1);
    // Two tables: reads T C rows, writes T C; backward reads a gradient and adds to the rows.
    EXPECT_EQ(sample(profile, "embedding", 1).forward.count(), 2 * 2 * 2 * 128);
    EXPECT_EQ(sample(profile, "embedding", 1).backward_weight.count(), 2 * 2 * 3 * 128);
    EXPECT_EQ(sample(profile, "embedding", 1).backward_input.count(), 0);
    // 28 bytes per parameter for AdamW.
    EXPECT_EQ(layer(profile, "block0.attention").optimizer.count(), 28 * 1120);
}

// --- What is kept. ---

/// Korthikanti et al. 2022: s b h (34 + 5 a s / h) bytes per block of a GPT in 16 bits. The last
/// term are the stored scores; FlashAttention keeps 4 bytes per query and head instead. The head:
/// 2 s b h for its norm, 2 s b h for its projection, 4 s b v for its logits.
TEST(Estimate, ABlockKeepsWhatIsPublished) {
    const std::int64_t b = 3;
    const std::int64_t s = 8;
    const std::int64_t h = 16;
    const Profile profile =
        estimated_profile(model_of(small_gpt2()), counts_operations, options(8, 3));
    EXPECT_EQ(sample(profile, "block0.attention", 3).saved.count, 13 * s * b * h + 4 * s * b * 2);
    EXPECT_EQ(sample(profile, "block0.feed_forward", 3).saved.count, 21 * s * b * h);
    EXPECT_EQ(sample(profile, "head", 3).saved.count, 4 * s * b * h + 4 * s * b * 100);
    EXPECT_EQ(sample(profile, "head", 3).output.count, 0);
    EXPECT_EQ(sample(profile, "head", 3).workspace.count, 2 * s * b * 100);
    // Tokens of 8 bytes, and a mask of dropout.
    EXPECT_EQ(sample(profile, "embedding", 3).input.count, 8 * s * b);
    EXPECT_EQ(sample(profile, "embedding", 3).saved.count, 8 * s * b + s * b * h);
    for (const char* name : {"embedding", "block3.attention", "block0.feed_forward"}) {
        EXPECT_EQ(sample(profile, name, 3).output.count, 2 * s * b * h) << name;
    }
}

/// No masks; 4 heads of 2, two pairs of keys and values; two halves of 16 and their product.
TEST(Estimate, ALlamaKeepsItsGroupedKeysAndItsGate) {
    const DecoderModel model = model_of(with(llama_config(),
                                             {{"hidden_size", 8},
                                              {"intermediate_size", 16},
                                              {"num_attention_heads", 4},
                                              {"num_key_value_heads", 2}}));
    const Profile profile = estimated_profile(model, counts_operations, options(5, 1));
    EXPECT_EQ(sample(profile, "block0.attention", 1).saved.count,
              2 * 5 * (8 + 8 + 8 + 4 + 4 + 8) + 4 * 5 * 4);
    EXPECT_EQ(sample(profile, "block0.attention", 1).split.count, 2 * 5 * (8 + 4 + 4));
    EXPECT_EQ(sample(profile, "block0.feed_forward", 1).saved.count, 2 * 5 * (8 + 8 + 3 * 16));
    EXPECT_EQ(sample(profile, "block0.feed_forward", 1).split.count, 2 * 5 * 2 * 16);
    EXPECT_EQ(sample(profile, "embedding", 1).saved.count, 8 * 5);
}

// --- Devices that share a layer: Korthikanti et al. (arXiv 2205.05198), section 4. ---

constexpr std::int64_t shared_b = 3;
constexpr std::int64_t shared_s = 8;
constexpr std::int64_t shared_a = 8;
constexpr std::int64_t shared_h = 64;

/// A GPT with dropout whose 8 heads 8 devices can share.
Profile shared_gpt(AttentionKernels attention) {
    EstimateOptions of = options(shared_s, shared_b);
    of.attention = attention;
    of.most_devices = 8;
    return estimated_profile(
        model_of(with(small_gpt2(), {{"n_embd", shared_h}, {"n_head", shared_a}})),
        counts_operations,
        of);
}

/// What one of `devices` keeps of a block.
std::int64_t kept_of_a_block(const Profile& profile, int devices) {
    return cost_at(layer(profile, "block1.attention"), shared_b, devices).saved.count +
           cost_at(layer(profile, "block1.feed_forward"), shared_b, devices).saved.count;
}

/// Table 2, its rows without and with tensor parallelism: s b h (34 + 5 a s / h) and
/// s b h (10 + 24 / t + 5 a s / (h t)).
TEST(Estimate, DevicesThatShareABlockKeepWhatIsPublished) {
    const std::int64_t sbh = shared_s * shared_b * shared_h;
    const std::int64_t scores = 5 * shared_a * shared_s * shared_s * shared_b;
    const Profile profile = shared_gpt(AttentionKernels::Standard);
    EXPECT_EQ(kept_of_a_block(profile, 1), 34 * sbh + scores);
    for (const int t : {2, 4, 8}) {
        EXPECT_EQ(kept_of_a_block(profile, t), 10 * sbh + (24 * sbh + scores) / t) << t;
        EXPECT_EQ(cost_at(layer(profile, "block1.attention"), shared_b, t).core_saved.count,
                  scores / t);
    }
    EXPECT_EQ(sample(profile, "block1.attention", shared_b).core_saved.count, scores);
    EXPECT_FALSE(knows_shares(profile, 16));
}

/// Table 2, tensor and sequence parallelism: s b h (34 / t + 5 a s / (h t)).
TEST(Estimate, DevicesThatDivideTheSequenceKeepWhatIsPublished) {
    const std::int64_t sbh = shared_s * shared_b * shared_h;
    const std::int64_t scores = 5 * shared_a * shared_s * shared_s * shared_b;
    const Profile profile = shared_gpt(AttentionKernels::Standard);
    std::vector<Model::Named> names;
    for (const LayerCost& one : profile.layers) {
        names.push_back({.name = one.name});
    }
    for (const int t : {2, 4, 8}) {
        const LayerSamples samples = with_tensor_parallel(Model::opaque(names),
                                                          profile,
                                                          samples_at(profile, shared_b, t),
                                                          {.devices = t, .sequence_parallel = true},
                                                          SharesKnown::Yes);
        EXPECT_EQ(samples[3].saved.count + samples[4].saved.count, (34 * sbh + scores) / t) << t;
        EXPECT_EQ(samples[3].core_saved.count, scores / t) << t;
        // Gradients of weights need the inputs of the four products: 2 and 2, 2 and 8 s b h.
        EXPECT_EQ((samples[3].saved - samples[3].input_saved).count, 4 * sbh / t) << t;
        EXPECT_EQ((samples[4].saved - samples[4].input_saved).count, 10 * sbh / t) << t;
    }
}

/// Section 4.2.1: a device has a t-th of the heads and of the inner width, and so of all products.
TEST(Estimate, EachOfTDevicesDoesATthOfTheOperations) {
    for (const auto attention : {AttentionKernels::Flash, AttentionKernels::Standard}) {
        const Profile profile = shared_gpt(attention);
        for (const char* name : {"block0.attention", "block3.feed_forward"}) {
            const LayerSample whole = sample(profile, name, shared_b);
            for (const int t : {2, 4, 8}) {
                const LayerSample one = cost_at(layer(profile, name), shared_b, t);
                EXPECT_EQ(t * one.forward, whole.forward) << name << t;
                EXPECT_EQ(t * one.backward_input, whole.backward_input) << name << t;
                EXPECT_EQ(t * one.backward_weight, whole.backward_weight) << name << t;
            }
        }
    }
}

/// Two pairs of keys and values for four heads of 2: four devices have a head each, and the keys
/// and values that it reads whole.
TEST(Estimate, KeysAndValuesAreDividedIntoTheirHeadsAtMost) {
    EstimateOptions of = options(5, 1);
    of.most_devices = 4;
    const Profile profile = estimated_profile(model_of(with(llama_config(),
                                                            {{"hidden_size", 8},
                                                             {"intermediate_size", 16},
                                                             {"num_attention_heads", 4},
                                                             {"num_key_value_heads", 2}})),
                                              counts_operations,
                                              of);
    const auto forward = [&profile](int devices) {
        return cost_at(layer(profile, "block0.attention"), 1, devices).forward.count();
    };
    const std::int64_t pairs = 5 * 6 / 2;
    EXPECT_EQ(forward(1), 2 * 5 * 8 * (8 + 4 + 4 + 8) + 4 * 8 * pairs);
    EXPECT_EQ(forward(2), 2 * 5 * 8 * (4 + 2 + 2 + 4) + 4 * 4 * pairs);
    EXPECT_EQ(forward(4), 2 * 5 * 8 * (2 + 2 + 2 + 2) + 4 * 2 * pairs);
}

/// Narayanan et al. 2021, appendix: 4 b s^2 h operations forward and twice that backward, as all
/// pairs are computed.
TEST(Estimate, StandardAttentionComputesAllPairs) {
    const std::int64_t projections = 8 * shared_b * shared_s * shared_h * shared_h;
    const std::int64_t scores = 4 * shared_b * shared_s * shared_s * shared_h;
    const LayerSample attention =
        sample(shared_gpt(AttentionKernels::Standard), "block2.attention", shared_b);
    EXPECT_EQ(attention.forward.count(), projections + scores);
    EXPECT_EQ(attention.core_forward.count(), scores);
    EXPECT_EQ(attention.backward_input.count(), projections + 2 * scores);
    EXPECT_EQ(attention.backward_weight.count(), projections);
}

/// torchtitan's checkpointing of operators: of the products of a Llama block (queries, keys,
/// values, output, gate, up, down) the results of the 1st, 3rd, 5th and 7th are kept, beside the
/// block's input and what attention makes, with a log-sum of 4 bytes for each query and head. The
/// other products and all elementwise kernels are computed again.
TEST(Estimate, RecomputeOfOperatorsKeepsEverySecondProduct) {
    constexpr std::int64_t s = 32;
    constexpr std::int64_t h = 64;
    constexpr std::int64_t kv = 32;
    constexpr std::int64_t ffn = 96;
    constexpr std::int64_t heads = 8;
    const json config = with(llama_config(),
                             {{"hidden_size", h},
                              {"intermediate_size", ffn},
                              {"num_attention_heads", heads},
                              {"num_key_value_heads", 4}});
    const Profile bytes = estimated_profile(model_of(config), counts_bytes, options(s, 1));
    const Profile work = estimated_profile(model_of(config), counts_operations, options(s, 1));
    const LayerSample attention = sample(bytes, "block0.attention", 1);
    const LayerSample feed_forward = sample(bytes, "block0.feed_forward", 1);
    const std::int64_t kept = (attention.saved - attention.core_saved).count +
                              (feed_forward.saved - feed_forward.core_saved).count;
    const std::int64_t values = h + h + kv + h + ffn + h;  // input, q, v, attention, gate, down
    EXPECT_EQ(kept, s * (2 * values + 4 * heads));

    EXPECT_EQ(sample(work, "block0.attention", 1).core_forward.count(), 2 * s * h * (kv + h));
    EXPECT_EQ(sample(work, "block0.feed_forward", 1).core_forward.count(), 2 * s * h * ffn);
    EXPECT_EQ(sample(work, "embedding", 1).core_forward.count(), 0);
    EXPECT_EQ(sample(work, "head", 1).core_forward.count(), 0);
}

/// A compiled block keeps the tensors that its backward reads. No backward reads the result of the
/// block's last product (down), as the backward of a sum needs neither operand.
TEST(Estimate, ACompilerDropsWhatNoBackwardReads) {
    constexpr std::int64_t s = 32;
    const json config = llama_config();
    const std::int64_t h = config.at("hidden_size");
    EstimateOptions compiled = options(s, 1);
    compiled.kernels = BlockKernels::Compiled;
    const Profile before = estimated_profile(model_of(config), counts_bytes, options(s, 1));
    const Profile after = estimated_profile(model_of(config), counts_bytes, compiled);
    for (const char* name : {"block0.attention", "block0.feed_forward", "head"}) {
        const LayerSample one = sample(before, name, 1);
        const LayerSample other = sample(after, name, 1);
        const bool last = std::string_view(name) == "block0.feed_forward";
        EXPECT_EQ(other.core_saved - one.core_saved, Bytes{last ? 2 * s * h : 0}) << name;
        EXPECT_EQ(other.saved, one.saved) << name;
        EXPECT_EQ(other.forward, one.forward) << name;
    }
}

/// PyTorch's operators one by one, in bytes for each number of 2: a norm 36 in place of 4, a
/// rotation 20 in place of 4. A block has two norms, and rotates queries and keys.
TEST(Estimate, EagerNormsAndRotationsPassThroughFp32) {
    constexpr std::int64_t s = 32;
    const json config = with(llama_config(),
                             {{"hidden_size", 64},
                              {"intermediate_size", 96},
                              {"num_attention_heads", 8},
                              {"num_key_value_heads", 4}});
    EstimateOptions eager = options(s, 1);
    eager.kernels = BlockKernels::Eager;
    const Profile fused = estimated_profile(model_of(config), counts_bytes, options(s, 1));
    const Profile one_by_one = estimated_profile(model_of(config), counts_bytes, eager);
    const auto more = [&](const char* name, auto part) {
        return sample(one_by_one, name, 1).*part - sample(fused, name, 1).*part;
    };
    EXPECT_EQ(more("block0.attention", &LayerSample::forward),
              Duration(s * (64 * 32 + (64 + 32) * 16)));
    EXPECT_EQ(more("block0.attention", &LayerSample::backward_input),
              Duration(s * (64 * (104 - 6) + (64 + 32) * 16)));
    EXPECT_EQ(more("block0.feed_forward", &LayerSample::forward), Duration(s * 64 * 32));
    EXPECT_EQ(sample(one_by_one, "block0.feed_forward", 1).forward_kernels,
              sample(fused, "block0.feed_forward", 1).forward_kernels + 7);
    // The norm's input in fp32 and its result without the weight; what the activation made.
    EXPECT_EQ(more("block0.attention", &LayerSample::saved), Bytes{6 * s * 64});
    EXPECT_EQ(more("block0.feed_forward", &LayerSample::saved), Bytes{6 * s * 64 + 2 * s * 96});
    EXPECT_EQ(more("block0.feed_forward", &LayerSample::core_saved),
              Bytes{6 * s * 64 + 2 * s * 96});
}

/// PyTorch has one kernel for a layer norm, and GPT-2 rotates nothing.
TEST(Estimate, EagerLayerNormsAreOneKernel) {
    EstimateOptions eager = options(8, 1);
    eager.kernels = BlockKernels::Eager;
    EXPECT_EQ(estimated_profile(model_of(small_gpt2()), counts_bytes, eager).layers,
              estimated_profile(model_of(small_gpt2()), counts_bytes, options(8, 1)).layers);
}

/// Twice the rate for the products of blocks, not for attention and the head; and casts: 5 bytes
/// for each number that a forward reads, 5 for each gradient of an output, 3 for all else.
TEST(Estimate, Fp8ComputesTheProductsOfBlocksInEightBits) {
    constexpr std::int64_t s = 32;
    const json config = llama_config();
    const DecoderModel model = model_of(config);
    DeviceProfile works = counts_operations;
    works.matrix_rates["fp8"].value = 2e9;
    DeviceProfile moves = counts_bytes;
    moves.matrix_rates["fp8"].value = without_end;
    EstimateOptions eight = options(s, 1);
    eight.precision = "fp8";
    const auto both = [&](const DeviceProfile& device, const char* name) {
        return std::pair(sample(estimated_profile(model, device, options(s, 1)), name, 1),
                         sample(estimated_profile(model, device, eight), name, 1));
    };
    const auto [half_work, eight_work] = both(works, "block0.feed_forward");
    EXPECT_EQ(2 * eight_work.forward, half_work.forward);
    EXPECT_EQ(2 * eight_work.backward_weight, half_work.backward_weight);
    const auto [half_head, eight_head] = both(works, "head");
    EXPECT_EQ(eight_head.forward, half_head.forward);
    const auto [half_attention, eight_attention] = both(works, "block0.attention");
    EXPECT_GT(2 * eight_attention.forward, half_attention.forward);

    const auto [half_moved, eight_moved] = both(moves, "block0.feed_forward");
    const std::int64_t h = config.at("hidden_size");
    const std::int64_t f = config.at("intermediate_size");
    const std::int64_t inputs = s * h + s * f;  // of both products
    const std::int64_t weights = 3 * h * f;     // gate, up, down
    const std::int64_t outputs = s * 2 * f + s * h;
    EXPECT_EQ((eight_moved.forward - half_moved.forward).count(), (5 - 1) * (inputs + weights));
    EXPECT_EQ((eight_moved.backward_input - half_moved.backward_input).count(),
              (5 - 1) * outputs + (3 - 1) * weights);
    EXPECT_EQ((eight_moved.backward_weight - half_moved.backward_weight).count(),
              (3 - 1) * (inputs + outputs));
    EXPECT_EQ(eight_moved.saved, half_moved.saved);
    const Profile profile = estimated_profile(model, moves, eight);
    EXPECT_EQ(profile.precision, "fp8");
    EXPECT_EQ(layer(profile, "head").parameter_bytes,
              layer(estimated_profile(model, moves, options(s, 1)), "head").parameter_bytes);
}

/// PyTorch's cross-entropy over `logits.float()`: bf16 logits and an fp32 log-softmax are kept; its
/// backward has the gradients of both softmax and logits in fp32 beside them.
TEST(Estimate, AStandardLossKeepsItsLogitsAndHasTwoGradients) {
    EstimateOptions of = options(shared_s, shared_b);
    const DecoderModel model = model_of(small_gpt2());
    const auto head = [&](LossKernels loss) {
        of.loss = loss;
        return sample(estimated_profile(model, counts_bytes, of), "head", shared_b);
    };
    const LayerSample fused = head(LossKernels::Fused);
    const LayerSample standard = head(LossKernels::Standard);
    const std::int64_t logits = shared_s * shared_b * model.vocabulary;
    EXPECT_EQ((standard.saved - fused.saved).count, (2 + 4 - 4) * logits);
    EXPECT_EQ(standard.workspace.count, (4 + 4) * logits);
    EXPECT_EQ(fused.workspace.count, 2 * logits);
    EXPECT_GT(standard.forward, fused.forward);
    EXPECT_GT(standard.backward(), fused.backward());
}

// --- Efficiency of products by their sizes. ---

TEST(Estimate, AProductOfHalfSizesReachesAnEighth) {
    const MatrixEfficiency efficiency{.large = 0.8, .half_size = 128};
    EXPECT_DOUBLE_EQ(efficiency.at(128, 128, 128), 0.1);
    EXPECT_DOUBLE_EQ(efficiency.at(3 * 128, 128, 128), 0.8 * 0.75 / 4);
    EXPECT_NEAR(efficiency.at(1e9, 1e9, 1e9), 0.8, 1e-6);
    EXPECT_EQ((MatrixEfficiency{.large = 0.5, .half_size = 0}.at(1, 1, 1)), 0.5);
}

/// The head's product has 8 rows, 8 columns and 8 numbers to each sum.
TEST(Estimate, TheSizesOfAProductDecideItsTimeUnlessAnEfficiencyIsGiven) {
    const DecoderModel model = model_of(with(small_gpt2(), {{"n_embd", 8}, {"vocab_size", 8}}));
    DeviceProfile sized = counts_operations;
    sized.matrix_efficiencies["bf16"].value = {.large = 0.5, .half_size = 8};
    EstimateOptions of = options(8, 1);
    const std::int64_t operations = 2 * 8 * 8 * 8;
    EXPECT_EQ(sample(estimated_profile(model, sized, of), "head", 1).forward.count(), operations);
    of.efficiency = std::nullopt;
    const LayerSample head = sample(estimated_profile(model, sized, of), "head", 1);
    EXPECT_EQ(head.forward.count(), operations * 8 * 2);
    EXPECT_EQ(head.backward_input.count(), operations * 8 * 2);
    EXPECT_EQ(head.backward_weight.count(), operations * 8 * 2);
}

// --- Calibration. ---

TEST(Calibration, AKindTakesTheMeasuredTimesAtThePoint) {
    Profile profile = estimated_profile(model_of(small_gpt2()), counts_operations, options(8, 2));
    const Profile before = profile;
    const LayerSample attention = sample(profile, "block0.attention", 2);
    const auto factors =
        calibrate(profile,
                  {{"attention", 2, 3 * attention.forward, 2 * attention.backward()}},
                  "points.json");
    ASSERT_EQ(factors.size(), 1U);
    EXPECT_DOUBLE_EQ(factors[0].forward, 3);
    EXPECT_DOUBLE_EQ(factors[0].backward, 2);
    for (const int size : {1, 2, 32}) {
        for (const char* name : {"block0.attention", "block3.attention"}) {
            const LayerSample was = sample(before, name, size);
            const LayerSample is = sample(profile, name, size);
            EXPECT_EQ(is.forward, 3 * was.forward);
            EXPECT_EQ(is.backward_weight, 2 * was.backward_weight);
            EXPECT_EQ(is.saved, was.saved);
        }
    }
    EXPECT_EQ(layer(profile, "head"), layer(before, "head"));
    EXPECT_EQ(profile.source, CostSource::Estimated);
}

/// A block that was measured as one corrects both of its halves, where these are the layers.
TEST(Calibration, AMeasuredBlockCorrectsItsHalves) {
    const Profile before =
        estimated_profile(model_of(small_gpt2()), counts_operations, options(8, 2));
    const LayerSample first = sample(before, "block1.attention", 2);
    const LayerSample second = sample(before, "block1.feed_forward", 2);
    const std::vector<CalibrationPoint> points{{"block",
                                                2,
                                                2 * (first.forward + second.forward),
                                                3 * (first.backward() + second.backward())}};
    Profile profile = before;
    calibrate(profile, points, "points.json");
    for (const char* name : {"block0.attention", "block3.feed_forward"}) {
        EXPECT_EQ(sample(profile, name, 4).forward, 2 * sample(before, name, 4).forward);
        EXPECT_EQ(sample(profile, name, 4).backward(), 3 * sample(before, name, 4).backward());
    }
    EXPECT_EQ(layer(profile, "head"), layer(before, "head"));
    Profile whole = with_whole_blocks(before);
    calibrate(whole, points, "points.json");
    EXPECT_EQ(sample(whole, "block2", 2).forward, points.front().forward);
    std::vector<CalibrationPoint> twice = points;
    twice.push_back({"attention", 2, Duration{1}, Duration{1}});
    EXPECT_THAT(error_of([&] { calibrate(profile, twice, "points.json"); }).text(),
                HasSubstr("beside kind 'block'"));
}

TEST(Calibration, PointsReadBackAsTheyWereWritten) {
    const std::vector<CalibrationPoint> points{{"attention", 2, Duration{5}, Duration{7}},
                                               {"head", 2, Duration{1}, Duration{3}}};
    EXPECT_EQ(parse_calibration(print_calibration(points), "x", 1), points);
}

TEST(Calibration, PointsComeFromAListOrFromAProfile) {
    const std::string list = R"({"schema_version": 1, "points": [
        {"kind": "head", "micro_batch_size": 4, "forward_ns": 10, "backward_ns": 30}]})";
    EXPECT_THAT(parse_calibration(list, "x", 1),
                ElementsAre(CalibrationPoint{"head", 4, Duration{10}, Duration{30}}));
    const std::string profile = R"({"schema_version": 1, "source": "measured", "layers": [
        {"name": "a", "kind": "attention", "parameter_bytes": 0, "samples": [
         {"micro_batch_size": 1, "forward_ns": 10, "backward_ns": 20, "output_bytes": 0, "saved_bytes": 0},
         {"micro_batch_size": 3, "forward_ns": 30, "backward_ns": 60, "output_bytes": 0, "saved_bytes": 0}]},
        {"name": "b", "kind": "attention", "parameter_bytes": 0, "samples": [
         {"micro_batch_size": 2, "forward_ns": 40, "backward_ns": 50, "output_bytes": 0, "saved_bytes": 0}]}]})";
    EXPECT_THAT(parse_calibration(profile, "x", 2),
                ElementsAre(CalibrationPoint{"attention", 2, Duration{30}, Duration{45}}));
}

TEST(Calibration, WhatDoesNotFitIsRefused) {
    const auto refusal = [](const CalibrationPoint& point) {
        return error_of([&] {
            Profile profile =
                estimated_profile(model_of(small_gpt2()), counts_operations, options(8, 2));
            calibrate(profile, {point}, "points.json");
        });
    };
    const Error kind = refusal({"atention", 1, Duration{1}, Duration{1}});
    EXPECT_EQ(kind.place(), "points.json: kind 'atention'");
    EXPECT_THAT(kind.text(), HasSubstr("embedding, attention, feed_forward, head"));
    EXPECT_THAT(refusal({"head", 1, Duration{0}, Duration{1}}).text(),
                HasSubstr("measured 0 ns, estimated 25600 ns"));
    EXPECT_THAT(refusal({"head", 100, Duration{1}, Duration{1}}).text(),
                HasSubstr("samples, but these have 100"));
    EXPECT_THAT(error_of([] {
                    parse_calibration(
                        R"({"schema_version": 1, "points": [
                    {"kind": "head", "micro_batch_size": 4, "forward_ns": 10, "backward_ns": 30},
                    {"kind": "head", "micro_batch_size": 8, "forward_ns": 10, "backward_ns": 30}]})",
                        "x",
                        1);
                }).what(),
                HasSubstr("x: /points/1/kind: \"head\", expected each kind once"));
}

}  // namespace estimate_test
}  // namespace pipetwin
