// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_model.h"

#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/devices/stack_choice.h"
#include "core/interop/megatron_stack.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace megatron_model_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

MegatronFlags flags_of(std::string_view text) {
    return parse_megatron_flags(text, "x.sh");
}

DecoderModel model_of(std::string_view text) {
    return megatron_model(flags_of(text), "x.sh");
}

std::int64_t parameters_of(std::string_view text) {
    const DecoderModel model = model_of(text);
    std::int64_t sum = embedding_parameters(model) + head_parameters(model);
    for (int block = 0; block < model.blocks; ++block) {
        sum += attention_parameters(model) + feed_forward_parameters(model, block);
    }
    return sum;
}

constexpr std::string_view llama_8b =
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 "
    "--max-position-embeddings 8192 --position-embedding-type rope --normalization RMSNorm "
    "--swiglu --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256 ";

/// Counts as published with the models' weights.
TEST(MegatronModel, HasThePublishedNumberOfParameters) {
    EXPECT_EQ(parameters_of(llama_8b), 8'030'261'248);
    EXPECT_EQ(parameters_of("--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 "
                            "--num-attention-heads 64 --group-query-attention "
                            "--num-query-groups 8 --seq-length 8192 --position-embedding-type rope "
                            "--normalization RMSNorm --swiglu --disable-bias-linear "
                            "--untie-embeddings-and-output-weights --vocab-size 128256"),
              70'553'706'496);
    // Qwen2.5 7B: biases of queries, keys and values alone.
    EXPECT_EQ(parameters_of("--num-layers 28 --hidden-size 3584 --ffn-hidden-size 18944 "
                            "--num-attention-heads 28 --group-query-attention "
                            "--num-query-groups 4 --seq-length 8192 --position-embedding-type rope "
                            "--normalization RMSNorm --swiglu --disable-bias-linear --add-qkv-bias "
                            "--untie-embeddings-and-output-weights --padded-vocab-size 152064"),
              7'615'616'512);
    // Mixtral 8x7B.
    EXPECT_EQ(parameters_of("--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
                            "--num-attention-heads 32 --group-query-attention "
                            "--num-query-groups 8 --seq-length 4096 --position-embedding-type rope "
                            "--normalization RMSNorm --swiglu --disable-bias-linear "
                            "--untie-embeddings-and-output-weights --vocab-size 32000 "
                            "--num-experts 8 --moe-router-topk 2"),
              46'702'792'704);
}

/// Megatron's own GPT of 24 blocks: V h + S h + L (12 h^2 + 13 h) + 2 h, with the vocabulary of
/// GPT-2 padded to a multiple of 128, and the head tied to the embedding.
TEST(MegatronModel, IsAGptWithBiasesAndTiedEndsUnlessFlagsSayOtherwise) {
    constexpr std::int64_t h = 1024;
    constexpr std::int64_t expected = 50'304 * h + 1024 * h + 24 * (12 * h * h + 13 * h) + 2 * h;
    const std::string_view gpt =
        "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
        "--max-position-embeddings 1024 --vocab-size 50257 ";
    EXPECT_EQ(expected, 354'871'296);
    EXPECT_EQ(parameters_of(gpt), expected);
    EXPECT_EQ(parameters_of(std::string(gpt) + "--untie-embeddings-and-output-weights"),
              expected + 50'304 * h);
    EXPECT_EQ(more_than_gpt(flags_of(gpt), model_of(gpt)), "");
    EXPECT_TRUE(model_of(gpt).tied);
}

/// DeepSeek-V3 without its prediction layer and its 58 x 256 routing biases, which are no weights
/// in Megatron: 671,026,419,200 - 14,848.
TEST(MegatronModel, HasExpertsAndAttentionThroughNarrowRows) {
    EXPECT_EQ(parameters_of(
                  "--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 "
                  "--num-attention-heads 128 --multi-latent-attention --q-lora-rank 1536 "
                  "--kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 "
                  "--num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 "
                  "--moe-shared-expert-intermediate-size 2048 --moe-layer-freq \"([0]*3+[1]*58)\" "
                  "--normalization RMSNorm --swiglu --disable-bias-linear --seq-length 4096 "
                  "--position-embedding-type rope --untie-embeddings-and-output-weights "
                  "--vocab-size 129280 --make-vocab-size-divisible-by 64"),
              671'026'419'200 - 14'848);
}

TEST(MegatronModel, LayersWithExpertsFollowANumberOrAPattern) {
    const auto pattern = [](std::string_view written, int layers) {
        const std::string flags = "--num-layers " + std::to_string(layers) +
                                  " --hidden-size 8 --num-attention-heads 1 --seq-length 8 "
                                  "--num-experts 4 --moe-layer-freq \"" +
                                  std::string(written) + "\"";
        std::string text;
        for (const bool has_experts : model_of(flags).has_experts) {
            text += has_experts ? '1' : '0';
        }
        return text;
    };
    EXPECT_EQ(pattern("1", 3), "111");
    EXPECT_EQ(pattern("2", 5), "10101");
    EXPECT_EQ(pattern("([1]*3+[0]*2)*2", 10), "1110011100");
    EXPECT_EQ(pattern("[0] + 2 * [1,0]", 5), "01010");
    for (const std::string_view wrong : {"[0,1]", "x", "[0]*3+2", "[2]*3", "([1]*3", "3*3"}) {
        EXPECT_THAT(error_of([&] { pattern(wrong, 3); }).text(), HasSubstr("3 times 0 or 1"))
            << wrong;
    }
    // Repetitions of nothing take no time either.
    for (const std::string_view endless : {"[]*2147483647",
                                           "2147483647*[]",
                                           "[0,1,1]+[]*2147483647",
                                           "([]*2147483647)*2147483647"}) {
        EXPECT_THAT(error_of([&] { pattern(endless, 3); }).text(), HasSubstr("3 times 0 or 1"))
            << endless;
    }
    EXPECT_EQ(pattern("[]*3+[0,1,1]", 3), "011");
}

/// The rule of Megatron's tokenizers: the next multiple of the divisor times the devices that share
/// the rows.
TEST(MegatronModel, PadsTheVocabulary) {
    EXPECT_EQ(padded_vocabulary(flags_of("--vocab-size 50257")), 50'304);
    EXPECT_EQ(padded_vocabulary(flags_of("--vocab-size 50257 --tensor-model-parallel-size 8")),
              51'200);
    EXPECT_EQ(padded_vocabulary(flags_of("--vocab-size 100 --make-vocab-size-divisible-by 1")),
              100);
    EXPECT_EQ(padded_vocabulary(flags_of("--tokenizer-type NullTokenizer --vocab-size 128")), 256);
    EXPECT_EQ(padded_vocabulary(flags_of("--tokenizer-type NullTokenizer --vocab-size 128 "
                                         "--null-tokenizer-eod-id 0")),
              128);
    EXPECT_EQ(padded_vocabulary(flags_of("--tokenizer-type GPT2BPETokenizer")), 50'304);
    EXPECT_EQ(padded_vocabulary(flags_of("--num-layers 2")), std::nullopt);
    // --vocab-size 8: (4 * 2 / 3) h in multiples of 64, Megatron's default for gated ones.
    EXPECT_EQ(model_of("--num-layers 1 --hidden-size 4096 --num-attention-heads 32 --seq-length 8 "
                       "--swiglu")
                  .feed_forward,
              10'880);
}

/// The model of megatron/core's own tests of gated delta rules has this kind of attention in two
/// layers of three, with 512 x (2 x 4 x 64 + 2 x 8 x 64 + 2 x 8) weights in front of it.
TEST(MegatronModel, HasLinearAttentionInMostLayers) {
    const DecoderModel model = model_of(
        "--num-layers 6 --hidden-size 512 --num-attention-heads 8 --group-query-attention "
        "--num-query-groups 2 --seq-length 1024 --swiglu --position-embedding-type rope "
        "--disable-bias-linear --attention-output-gate --experimental-attention-variant "
        "gated_delta_net --linear-attention-freq 3 --linear-conv-kernel-dim 4 "
        "--linear-key-head-dim 64 --linear-value-head-dim 64 --linear-num-key-heads 4 "
        "--linear-num-value-heads 8 --vocab-size 1024");
    EXPECT_THAT(model.attention.linear_blocks, ElementsAre(true, true, false, true, true, false));
    EXPECT_TRUE(model.attention.gated);
    EXPECT_EQ(model.attention.linear,
              (LinearAttentionShape{.key_heads = 4,
                                    .key_width = 64,
                                    .value_heads = 8,
                                    .value_width = 64,
                                    .convolution = 4}));
    EXPECT_THAT(error_of([] {
                    model_of(
                        "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 8 "
                        "--experimental-attention-variant gdn --linear-attention-freq [1,0,1]");
                }).text(),
                HasSubstr("expected a number, or a list of 2 times 0 or 1"));
}

/// transformer_config.py, is_layer_window_attention: with N all but each N-th layer, from 1 on.
TEST(MegatronModel, HasAWindowInSomeLayers) {
    constexpr std::string_view sizes =
        "--num-layers 4 --hidden-size 64 --num-attention-heads 2 --seq-length 8 --window-size 3,0 ";
    const auto blocks = [&](std::string_view pattern) {
        return model_of(fmt::format("{}--window-attn-skip-freq {}", sizes, pattern))
            .attention.window_blocks;
    };
    EXPECT_THAT(blocks("2"), ElementsAre(true, false, true, false));
    EXPECT_THAT(blocks("[0]*3+[1]"), ElementsAre(false, false, false, true));
    EXPECT_EQ(model_of(sizes).attention.window, 4);
}

TEST(MegatronModel, ChoosesKeysWithAnIndexer) {
    constexpr std::string_view latent =
        "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 "
        "--multi-latent-attention --q-lora-rank 192 --kv-lora-rank 64 ";
    const DecoderModel model =
        model_of(fmt::format("{}--experimental-attention-variant dsa --dsa-indexer-n-heads 64 "
                             "--dsa-indexer-head-dim 128 --dsa-indexer-topk 2048",
                             latent));
    ASSERT_TRUE(model.attention.latent);
    EXPECT_EQ(model.attention.latent->indexer,
              (IndexerShape{.heads = 64, .width = 128, .keys = 2048}));
    EXPECT_THAT(error_of([&] {
                    model_of(fmt::format("{}--experimental-attention-variant dsa", latent));
                }).text(),
                HasSubstr("dsa without --dsa-indexer-n-heads"));
}

/// Nemotron 3.5 Lightning: the files of its weights have 31,577,940,288 numbers, and 1,335,325,952
/// that predict a further token; of both a number for each expert, which is no parameter, is not
/// counted here.
TEST(MegatronModel, HasHalvesInPlaceOfBlocks) {
    const DecoderModel model = model_of(
        "--hybrid-layer-pattern MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME/*E "
        "--hidden-size 2688 --ffn-hidden-size 1856 --num-attention-heads 32 "
        "--group-query-attention --num-query-groups 2 --kv-channels 128 --seq-length 8192 "
        "--mamba-num-heads 64 --mamba-head-dim 64 --mamba-state-dim 128 --mamba-num-groups 8 "
        "--num-experts 128 --moe-router-topk 6 --moe-ffn-hidden-size 1856 "
        "--moe-shared-expert-intermediate-size 3712 --position-embedding-type none "
        "--normalization RMSNorm --squared-relu --disable-bias-linear "
        "--untie-embeddings-and-output-weights --vocab-size 131072");
    EXPECT_EQ(model.blocks, 52);
    EXPECT_EQ(parameter_count(model), 31'577'940'288 - 23 * 128);
    EXPECT_EQ(prediction_parameters(model), 1'335'325'952 - 128);
    EXPECT_FALSE(has_feed_forward(model, 0));
    EXPECT_FALSE(has_attention(model, 1));
    EXPECT_TRUE(attention_in(model, 0).mamba);
    EXPECT_FALSE(attention_in(model, 5).mamba);
}

TEST(MegatronModel, NamesWhatNoGptHas) {
    const std::string gpt =
        "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --vocab-size 128 ";
    for (const auto& [flag, words] : {std::pair{"--swiglu", "three matrices in place of two"},
                                      std::pair{"--squared-relu", "squared ReLU"},
                                      std::pair{"--disable-bias-linear", "matrices without a bias"},
                                      std::pair{"--qk-layernorm", "norms of queries and keys"},
                                      std::pair{"--multi-latent-attention", "latent attention"}}) {
        const MegatronFlags flags = flags_of(gpt + flag);
        EXPECT_EQ(more_than_gpt(flags, megatron_model(flags, "x")).find("--"), std::string::npos);
        EXPECT_THAT(more_than_gpt(flags, megatron_model(flags, "x")), HasSubstr(words));
    }
    const MegatronFlags context = flags_of(gpt + "--context-parallel-size 2");
    EXPECT_THAT(more_than_gpt(context, megatron_model(context, "x")),
                HasSubstr("devices that share a sample's tokens"));
    EXPECT_THAT(
        missing_sizes(flags_of("--hidden-size 8")),
        ElementsAre(
            "the number of layers", "the number of attention heads", "the sequence length"));
}

TEST(MegatronModel, RefusesSizesThatDoNotFit) {
    const auto refused = [](const std::string& more) {
        return error_of([&] { model_of("--num-layers 2 --hidden-size 64 --seq-length 8 " + more); })
            .text();
    };
    EXPECT_EQ(refused("--num-attention-heads 5"),
              "--num-attention-heads 5 does not divide --hidden-size 64");
    EXPECT_EQ(refused("--num-attention-heads 4 --group-query-attention --num-query-groups 3"),
              "--num-query-groups 3 does not divide --num-attention-heads 4");
    EXPECT_EQ(refused("--num-attention-heads 4 --max-position-embeddings 4"),
              "--max-position-embeddings 4 is less than --seq-length 8");
    EXPECT_EQ(refused("--num-attention-heads 4 --num-experts 2 --moe-router-topk 4"),
              "--moe-router-topk 4 is more than --num-experts 2");
    EXPECT_EQ(refused("--num-attention-heads 999999"),
              "--num-attention-heads = 999999, expected at most 16384");
}

// --- The split. ---

std::vector<int> blocks_of(std::string_view text) {
    const MegatronFlags flags = flags_of(text);
    const int ranks = flags.pipeline_size.value_or(1);
    return megatron_blocks(flags, ranks, megatron_chunks(flags, ranks, "x.sh"), "x.sh");
}

/// The rules of forward_backward_pipelining_with_interleaving: groups range from the pipeline's
/// ranks to the micro-batches, and the remainder is 0 or as many as ranks.
TEST(MegatronGroups, AreRefusedWhereMegatronRefusesThem) {
    const auto refusal = [](int group, int ranks, std::optional<std::int64_t> micro_batches) {
        MegatronFlags flags;
        flags.group_size = group;
        try {
            check_group_size(flags, ranks, 2, micro_batches, "x.sh");
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
            EXPECT_EQ(error.place(), "x.sh");
            EXPECT_THAT(error.text(),
                        HasSubstr("--microbatch-group-size-per-virtual-pipeline-stage " +
                                  std::to_string(group)));
            return error.text() + " / " + error.hint();
        }
        return std::string();
    };
    for (int ranks = 1; ranks <= 5; ++ranks) {
        for (int group = 1; group <= 14; ++group) {
            for (int micro_batches = 1; micro_batches <= 14; ++micro_batches) {
                const int last = micro_batches % group;
                const bool is_refused =
                    group > micro_batches || group < ranks || (0 < last && last < ranks);
                EXPECT_EQ(refusal(group, ranks, micro_batches).empty(), !is_refused)
                    << ranks << ' ' << group << ' ' << micro_batches;
            }
        }
    }
    EXPECT_EQ(refusal(4, 4, std::nullopt), "");
    EXPECT_THAT(refusal(3, 4, std::nullopt),
                AllOf(HasSubstr("3 is less than --pipeline-model-parallel-size 4"),
                      HasSubstr("Megatron takes --microbatch-group-size-per-virtual-pipeline-stage "
                                "4")));
    // 6 in groups of 4 leave 2, and in groups of 5 leave 1: it is 6.
    EXPECT_THAT(refusal(4, 4, 6),
                AllOf(HasSubstr("a last group of 2 of 6 micro-batches, fewer than the 4 ranks"),
                      HasSubstr("stage 6")));
    EXPECT_THAT(refusal(8, 4, 6), HasSubstr("is more than the 6 micro-batches of a pipeline"));
    EXPECT_THAT(refusal(4, 4, 3), HasSubstr("take 4 micro-batches or more, or fewer ranks"));
    // One chunk takes no groups.
    MegatronFlags flags;
    flags.group_size = 1;
    EXPECT_NO_THROW(check_group_size(flags, 4, 1, 8, "x.sh"));
    EXPECT_NO_THROW(check_group_size(MegatronFlags{}, 4, 2, 6, "x.sh"));
}

TEST(MegatronBlocks, FirstAndLastStageHaveTheirOwnSizes) {
    EXPECT_THAT(blocks_of("--num-layers 32 --pipeline-model-parallel-size 4 "
                          "--decoder-first-pipeline-num-layers 6 "
                          "--decoder-last-pipeline-num-layers 6"),
                ElementsAre(6, 10, 10, 6));
    EXPECT_THAT(blocks_of("--num-layers 30 --pipeline-model-parallel-size 4 "
                          "--decoder-first-pipeline-num-layers 7 "
                          "--decoder-last-pipeline-num-layers 7"),
                ElementsAre(7, 8, 8, 7));
    EXPECT_THAT(blocks_of("--num-layers 10 --pipeline-model-parallel-size 4 "
                          "--decoder-last-pipeline-num-layers 1"),
                ElementsAre(3, 3, 3, 1));
    EXPECT_THAT(blocks_of("--num-layers 8 --pipeline-model-parallel-size 2 "
                          "--decoder-first-pipeline-num-layers 3 "
                          "--decoder-last-pipeline-num-layers 5"),
                ElementsAre(3, 5));
    // The size is that of a rank: its chunks share it.
    EXPECT_THAT(blocks_of("--num-layers 20 --pipeline-model-parallel-size 4 "
                          "--decoder-first-pipeline-num-layers 4 "
                          "--decoder-last-pipeline-num-layers 4 "
                          "--num-virtual-stages-per-pipeline-rank 2"),
                ElementsAre(2, 3, 3, 2, 2, 3, 3, 2));
}

TEST(MegatronBlocks, EmbeddingAndLossMayCountAsLayers) {
    const std::string both =
        "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split ";
    EXPECT_THAT(blocks_of("--num-layers 30 --pipeline-model-parallel-size 4 " + both),
                ElementsAre(7, 8, 8, 7));
    EXPECT_THAT(blocks_of("--num-layers 31 --pipeline-model-parallel-size 4 "
                          "--account-for-loss-in-pipeline-split"),
                ElementsAre(8, 8, 8, 7));
    EXPECT_THAT(blocks_of("--num-layers 14 --pipeline-model-parallel-size 4 "
                          "--num-layers-per-virtual-pipeline-stage 2 " +
                          both),
                ElementsAre(1, 2, 2, 2, 2, 2, 2, 1));
    // One layer in a stage that is the embedding leaves it without a decoder layer.
    EXPECT_THAT(blocks_of("--num-layers 6 --pipeline-model-parallel-size 8 " + both),
                ElementsAre(0, 1, 1, 1, 1, 1, 1, 0));
}

TEST(MegatronBlocks, AreEqualOtherwise) {
    EXPECT_THAT(blocks_of("--num-layers 8 --pipeline-model-parallel-size 2 "
                          "--num-layers-per-virtual-pipeline-stage 2"),
                ElementsAre(2, 2, 2, 2));
    EXPECT_THAT(blocks_of("--num-layers 8 --pipeline-model-parallel-size 4"),
                ElementsAre(2, 2, 2, 2));
    EXPECT_THAT(blocks_of("--pipeline-model-parallel-size 4"), ElementsAre());
}

TEST(MegatronBlocks, MoreStagesThanAnyListHoldsAreRefused) {
    const std::string most = " 1073741824 ";
    for (const std::string& text :
         {"--pipeline-model-parallel-size" + most,
          "--pipeline-model-parallel-size" + most + "--num-layers 49999",
          "--pipeline-model-parallel-size" + most + "--num-virtual-stages-per-pipeline-rank" + most,
          "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank" + most}) {
        EXPECT_THAT(error_of([&] { blocks_of(text); }).text(),
                    HasSubstr("stages of the pipeline, expected at most 262144"))
            << text;
    }
    const Error layers = error_of([&] { blocks_of("--num-layers" + most); });
    EXPECT_EQ(layers.place(), "x.sh:1:14");
    EXPECT_EQ(layers.text(), "--num-layers = 1073741824, expected at most 49999");
}

TEST(MegatronBlocks, WhatMegatronRefusesIsRefused) {
    const auto refused = [](const std::string& text) {
        const Error error = error_of([&] {
            const MegatronFlags flags = flags_of(text);
            check_layout(flags, "x.sh");
            blocks_of(text);
        });
        EXPECT_EQ(error.kind(), ErrorKind::Infeasible) << text;
        return error.text();
    };
    const std::string four = "--pipeline-model-parallel-size 4 ";
    EXPECT_EQ(refused(four + "--num-layers 30"),
              "--num-layers 30 cannot be shared out to 4 stages");
    EXPECT_THAT(refused(four + "--num-layers 30 --decoder-first-pipeline-num-layers 5"),
                HasSubstr("leaves 25 for 3 stages between, expected a multiple"));
    EXPECT_THAT(refused(four + "--num-layers 30 --account-for-loss-in-pipeline-split"),
                HasSubstr("with embedding and loss as 31 layers"));
    EXPECT_THAT(refused(four + "--num-layers 32 --decoder-first-pipeline-num-layers 8 "
                               "--account-for-loss-in-pipeline-split"),
                HasSubstr("beside --account-for-embedding"));
    EXPECT_THAT(refused(four + "--num-layers 32 --decoder-first-pipeline-num-layers 8 "
                               "--num-layers-per-virtual-pipeline-stage 4"),
                HasSubstr("beside a first or last stage"));
    EXPECT_THAT(refused(four + "--num-layers 3 --pipeline-model-parallel-layout \"Et|t|t|tL\""),
                HasSubstr("the layout has 4 layers t, but --num-layers is 3"));
    EXPECT_THAT(refused(four + "--num-layers 4 --pipeline-model-parallel-layout \"Et|t|t|tmL\""),
                HasSubstr("the layout has 1 layer m, but --mtp-num-layers is 0"));
    EXPECT_THAT(refused(four + "--num-layers 4 --pipeline-model-parallel-layout \"Et|t|t|tL\" "
                               "--num-virtual-stages-per-pipeline-rank 1"),
                HasSubstr("beside another flag that splits the model"));
    EXPECT_THAT(refused(four + "--pipeline-model-parallel-layout \"Et|t|tL\""),
                HasSubstr("a layout of 3 stages on 4 ranks"));
}

/// Half of the tokens cost half of the time and memory; the weights are there twice.
/// megatron/training/arguments.py: until June 2024 --transformer-impl was "local" by default, whose
/// attention is a product, a softmax and a product unless --use-flash-attn is there.
TEST(MegatronAttention, IsThatOfTheFlagsAndOfTheirTime) {
    const auto is_standard = [](const std::string& text) {
        return megatron_attention(flags_of("--num-layers 4 " + text)).is_standard;
    };
    for (const char* flags : {"--attention-backend unfused",
                              "--attention-backend local",
                              "--transformer-impl local",
                              "--use-legacy-models",
                              "--DDP-impl local",
                              "--checkpoint-activations"}) {
        EXPECT_TRUE(is_standard(flags)) << flags;
        EXPECT_NE(megatron_attention(flags_of(flags)).reason, "") << flags;
    }
    for (const char* flags : {"",
                              "--attention-backend flash",
                              "--attention-backend fused",
                              "--attention-backend auto",
                              "--transformer-impl transformer_engine",
                              "--transformer-impl local --use-flash-attn",
                              "--use-legacy-models --use-flash-attn",
                              "--DDP-impl local --use-flash-attn",
                              "--ckpt-format torch_dist"}) {
        EXPECT_FALSE(is_standard(flags)) << flags;
    }
    EXPECT_TRUE(
        megatron_attention(flags_of("attention_backend: AttnBackend.unfused\n")).is_standard);
    EXPECT_FALSE(megatron_attention(flags_of("--num-layers 4")).is_certain);
    EXPECT_TRUE(megatron_attention(flags_of("--ckpt-format torch_dist")).is_certain);
}

/// Megatron-LM of 2021 alone has standard attention, its user buffers are Transformer Engine's, and
/// recipes of 8 bits are in Transformer Engine 2.
TEST(MegatronStack, IsThatOfTheFlags) {
    const auto chosen = [](const std::string& text,
                           std::string_view device = "h100-sxm",
                           std::string_view precision = "bf16") {
        const MegatronFlags flags = flags_of("--num-layers 4 " + text);
        return megatron_stack(flags, megatron_attention(flags), device, precision).name;
    };
    EXPECT_EQ(chosen(""), newest_stack("megatron", "h100-sxm"));
    EXPECT_EQ(chosen("--attention-backend unfused", "a100-sxm-80"), "megatron-2021");
    EXPECT_EQ(chosen("--checkpoint-activations", "a100-sxm-80"), "megatron-2021");
    EXPECT_EQ(chosen("--attention-backend unfused"), newest_stack("megatron", "h100-sxm"));
    EXPECT_EQ(chosen("--transformer-impl local --use-flash-attn"), "megatron-2023");
    EXPECT_EQ(chosen("--transformer-impl local --use-flash-attn", "mi300x"), "rocm-megatron");
    EXPECT_GE(find_stack(chosen("--tp-comm-overlap"))->year, find_stack("nemo-2024")->year);
    for (const std::string_view precision : {"fp8", "mxfp8"}) {
        EXPECT_EQ(chosen("", "b200", precision), "megatron-bridge-2026") << precision;
    }
    EXPECT_EQ(chosen("", "v100-sxm2"), "");
    const auto type = [](const std::string& text) {
        return megatron_narrow_type(flags_of("--num-layers 4 --bf16 --fp8-format e4m3 " + text));
    };
    EXPECT_EQ(type(""), "fp8");
    EXPECT_EQ(type("--fp8-recipe delayed"), "fp8");
    EXPECT_EQ(type("--fp8-recipe blockwise"), "fp8-block");
    EXPECT_EQ(type("--fp8-recipe mxfp8"), "mxfp8");
}

/// mindspeed_llm/features_manager/pipeline_parallel: the list has a number for each rank; empty
/// layers count in the stages, and experts are placed by numbers that count them.
TEST(MegatronBlocks, ListsAndEmptyLayersOfMindSpeedCount) {
    const MegatronFlags listed = flags_of("--num-layers 24 --num-layer-list 4,5,7,8");
    EXPECT_THAT(megatron_blocks(listed, 4, 1, "x"), ElementsAre(4, 5, 7, 8));
    const std::string model =
        "--hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 128 ";
    const MegatronFlags empty = flags_of(model +
                                         "--num-layers 8 --noop-layers 0,7 --num-experts 4 "
                                         "--moe-layer-freq \"([0]*2+[1]*6)\"");
    EXPECT_THAT(megatron_blocks(empty, 2, 2, "x"), ElementsAre(1, 2, 2, 1));
    const DecoderModel computing = megatron_model(empty, "x");
    EXPECT_EQ(computing.blocks, 6);
    EXPECT_THAT(computing.has_experts, ElementsAre(false, true, true, true, true, true));
    EXPECT_THAT(error_of([&] {
                    megatron_blocks(flags_of("--num-layers 8 --noop-layers 2,3"), 4, 1, "x");
                }).text(),
                HasSubstr("--noop-layers leaves stage 1 no layer"));
}

}  // namespace megatron_model_test
}  // namespace pipetwin
