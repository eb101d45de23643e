// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/model/model.h"
#include "core/model/transformers.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace translation_test {

using testing::error_of;

std::int64_t parameters_of(const Model& model) {
    std::int64_t sum = -model.tied_count();
    for (int i = 0; i < model.layer_count(); ++i) {
        sum += model.layer(i).parameter_count;
    }
    return sum;
}

/// T(L, H, A) of GPipe, with 64 channels for each head and 64,000 words.
TranslationSizes of_gpipe(int layers, int feed_forward, int heads, TranslationTables tables) {
    return {.layers = layers,
            .d_model = 1024,
            .heads = heads,
            .head_size = 64,
            .feed_forward = feed_forward,
            .vocabulary = 64'000,
            .source_context = 128,
            .target_context = 128,
            .tables = tables};
}

TEST(TranslationModel, HasAnEncoderAndADecoderThatReadsItsMemory) {
    const Model model = translation_model({.layers = 1,
                                           .d_model = 8,
                                           .heads = 2,
                                           .vocabulary = 16,
                                           .source_context = 5,
                                           .target_context = 3});
    std::vector<std::string> names;
    for (int i = 0; i < model.layer_count(); ++i) {
        names.push_back(model.layer(i).spec.name);
    }
    EXPECT_EQ(names,
              (std::vector<std::string>{"embedding",
                                        "target",
                                        "source",
                                        "encoder0.attention",
                                        "encoder0.feed_forward",
                                        "memory",
                                        "decoder0.attention",
                                        "decoder0.cross_attention",
                                        "decoder0.feed_forward",
                                        "head"}));
    EXPECT_EQ(model.operands_of(6), std::vector<int>{1});
    EXPECT_EQ(model.operands_of(7), (std::vector<int>{6, 5}));
    EXPECT_EQ(model.layer(0).output.positions, 8);
    EXPECT_EQ(model.layer(5).output.positions, 5);
    EXPECT_EQ(model.layer(8).output.positions, 3);
}

// With a = 64 A channels, d = 1024, V = 64,000: an attention has 4 d a + 3 a + d parameters, a
// feed-forward half 2 d H + H + d, a norm 2 d; an encoder's block has two norms, a decoder's three
// and both attentions; behind each half is a norm. Huang et al. print 400M, 1.3B, 1.3B, 3B and 6B.
TEST(TranslationModel, HasTheParametersOfGPipesFiveModels) {
    struct Row {
        int layers;
        int feed_forward;
        int heads;
        std::int64_t of_layers;
        std::int64_t two_tables;
        std::int64_t three_tables;
    };
    for (const Row& row : {Row{6, 8192, 16, 277'069'824, 408'145'920, 473'681'920},
                           Row{24, 8192, 16, 1'108'279'296, 1'239'355'392, 1'304'891'392},
                           Row{12, 16384, 32, 1'108'094'976, 1'239'171'072, 1'304'707'072},
                           Row{24, 8192, 32, 1'410'490'368, 1'541'566'464, 1'607'102'464},
                           Row{32, 16384, 32, 2'954'919'936, 3'085'996'032, 3'151'532'032},
                           Row{64, 16384, 32, 5'909'839'872, 6'040'915'968, 6'106'451'968}}) {
        const auto count = [&](TranslationTables tables) {
            return parameters_of(
                translation_model(of_gpipe(row.layers, row.feed_forward, row.heads, tables)));
        };
        constexpr std::int64_t table = 64'000 * 1024;
        constexpr std::int64_t norms = 2 * 2 * 1024;
        EXPECT_EQ(count(TranslationTables::Shared), row.of_layers + norms + table);
        EXPECT_EQ(count(TranslationTables::TiedTarget), row.two_tables);
        EXPECT_EQ(count(TranslationTables::Separate), row.three_tables);
    }
    const Model model = translation_model(of_gpipe(6, 8192, 16, TranslationTables::Shared));
    EXPECT_EQ(model.layer(3).parameter_count + model.layer(4).parameter_count, 20'988'928);
    std::int64_t decoder = 0;
    for (int i = 16; i < 19; ++i) {
        decoder += model.layer(i).parameter_count;
    }
    EXPECT_EQ(decoder, 25'189'376);
}

// 1 - e for the target and e / (V - 1) for each other: the same as a share s of all classes with s
// / V = e / (V - 1).
TEST(TranslationModel, SmoothsTheLabelsByEitherDefinition) {
    TranslationSizes sizes{.layers = 1,
                           .d_model = 8,
                           .heads = 2,
                           .vocabulary = 3,
                           .source_context = 5,
                           .target_context = 3,
                           .label_smoothing = 0.1};
    const auto smoothing = [&] {
        const Model model = translation_model(sizes);
        return model.layer(model.layer_count() - 1).spec.inner.back().label_smoothing;
    };
    EXPECT_DOUBLE_EQ(smoothing(), 0.1);
    sizes.smoothing = Smoothing::Others;
    EXPECT_DOUBLE_EQ(smoothing() / 3, 0.05);
}

TEST(TranslationModel, RefusesSizesThatNoModelHas) {
    TranslationSizes sizes{.layers = 0,
                           .d_model = 8,
                           .heads = 2,
                           .vocabulary = 16,
                           .source_context = 5,
                           .target_context = 3};
    EXPECT_EQ(error_of([&] { translation_model(sizes); }).place(), "model.layers");
    sizes.layers = 1;
    sizes.target_context = 0;
    EXPECT_EQ(error_of([&] { translation_model(sizes); }).place(), "model.target_context");
    sizes.target_context = 3;
    sizes.heads = 3;
    EXPECT_NE(error_of([&] { translation_model(sizes); }).text().find("do not divide"),
              std::string::npos);
}

}  // namespace translation_test
}  // namespace pipetwin
