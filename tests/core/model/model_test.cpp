// SPDX-License-Identifier: Apache-2.0
#include "core/model/model.h"

#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/model/transformers.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace model_test {

using testing::error_of;

constexpr GptSizes small_gpt{
    .layers = 2, .d_model = 16, .heads = 4, .context = 8, .vocabulary = 32, .feed_forward = 64};

Model linear_chain(std::vector<LayerSpec> layers, int width = 4) {
    return Model::chain({.positions = 1, .width = width}, std::move(layers));
}

std::int64_t parameters_of(const Model& model) {
    std::int64_t sum = 0;
    for (int i = 0; i < model.layer_count(); ++i) {
        sum += model.layer(i).parameter_count;
    }
    return sum;
}

TEST(GptModel, HasTwoUnitsPerBlockAndTwoMore) {
    const Model model = gpt_model(small_gpt);
    ASSERT_EQ(model.layer_count(), 6);
    const std::vector<std::string> names{"embedding",
                                         "block0.attention",
                                         "block0.feed_forward",
                                         "block1.attention",
                                         "block1.feed_forward",
                                         "head"};
    for (int i = 0; i < model.layer_count(); ++i) {
        EXPECT_EQ(model.layer(i).spec.name, names[static_cast<std::size_t>(i)]);
    }
    EXPECT_TRUE(model.is_chain());
    EXPECT_TRUE(model.is_executable());
}

TEST(GptModel, ShapesChainFromTokensToTheLoss) {
    const Model model = gpt_model(small_gpt);
    EXPECT_EQ(model.layer(0).input, (SampleShape{.token_ids = true, .positions = 8, .width = 0}));
    for (int i = 1; i < model.layer_count(); ++i) {
        EXPECT_EQ(model.layer(i).input, model.layer(i - 1).output);
        EXPECT_EQ(model.layer(i).input, (SampleShape{.positions = 8, .width = 16}));
    }
    EXPECT_EQ(model.layer(5).output, (SampleShape{.positions = 1, .width = 0}));
}

TEST(GptModel, ParameterCountsAreThoseOfThePublishedFormulas) {
    const Model model = gpt_model(small_gpt);
    const std::int64_t d = 16;
    EXPECT_EQ(model.layer(0).parameter_count, 32 * d + 8 * d);
    EXPECT_EQ(model.layer(1).parameter_count, 2 * d + (3 * d * d + 3 * d) + (d * d + d));
    EXPECT_EQ(model.layer(2).parameter_count, 2 * d + (d * 64 + 64) + (64 * d + d));
    EXPECT_EQ(model.layer(5).parameter_count, 2 * d + d * 32);
}

TEST(GptModel, HasGpt2SmallsPublishedNumberOfParameters) {
    // GPT-2 small: 124,439,808 with a tied head, which here has a matrix of its own.
    const Model model = gpt_model({.layers = 12,
                                   .d_model = 768,
                                   .heads = 12,
                                   .context = 1024,
                                   .vocabulary = 50'257,
                                   .feed_forward = 3072});
    EXPECT_EQ(parameters_of(model), 124'439'808 + 50'257 * 768);
}

TEST(GptModel, ATiedHeadIsTheTableTurnedRoundAndHasGpt2SmallsNumberOfParametersBesides) {
    const Model model = gpt_model({.layers = 12,
                                   .d_model = 768,
                                   .heads = 12,
                                   .context = 1024,
                                   .vocabulary = 50'257,
                                   .feed_forward = 3072,
                                   .tied = true});
    EXPECT_EQ(model.tied_count(), 50'257 * 768);
    EXPECT_EQ(parameters_of(model) - model.tied_count(), 124'439'808);
    EXPECT_EQ(gpt_model(small_gpt).tied_count(), 0);
}

TEST(PaddedVocabulary, IsInTheHeadAndInATableThatIsTiedToIt) {
    const auto to_16 = [](int vocabulary) { return 16 - vocabulary % 16; };
    for (const bool tied : {false, true}) {
        const Model model = gpt_model({.layers = 2,
                                       .d_model = 8,
                                       .heads = 2,
                                       .context = 6,
                                       .vocabulary = 11,
                                       .feed_forward = 16,
                                       .tied = tied});
        const Model padded = model.with_padded_vocabulary(to_16);
        const std::int64_t more = 5 * 8;
        EXPECT_EQ(padded.layer(0).parameter_count,
                  model.layer(0).parameter_count + (tied ? more : 0));
        EXPECT_EQ(padded.layer(5).parameter_count, model.layer(5).parameter_count + more);
        EXPECT_EQ(parameters_of(padded) - padded.tied_count(),
                  parameters_of(model) - model.tied_count() + more);
        EXPECT_EQ(padded.layer(0).spec.vocabulary, 11);
        EXPECT_EQ(padded.layer(0).spec.vocabulary_padding, tied ? 5 : 0);
        EXPECT_EQ(padded.layer(5).spec.inner[0].vocabulary_padding, 0);
        EXPECT_EQ(padded.layer(5).spec.inner[1].vocabulary_padding, 5);
        EXPECT_EQ(padded.layer(5).spec.inner[2].vocabulary_padding, 5);
    }
}

TEST(PaddedVocabulary, CountsTheBiasOfAHead) {
    const auto model_of = [](LayerSpec logits) {
        return Model::chain(
            {.token_ids = true, .positions = 4},
            {{.name = "embedding", .type = LayerType::Embedding, .outputs = 8, .vocabulary = 11},
             {.name = "head",
              .type = LayerType::Sequence,
              .inner = {{.name = "wide", .type = LayerType::Linear, .outputs = 20},
                        std::move(logits),
                        {.name = "loss", .type = LayerType::CrossEntropy}}}});
    };
    const auto five = [](int) { return 5; };
    const LayerSpec logits{.name = "logits", .type = LayerType::Linear, .outputs = 11};
    EXPECT_EQ(model_of(logits).with_padded_vocabulary(five).layer(1).parameter_count,
              8 * 20 + 20 + (20 + 1) * 16);
    // Classes that are no tokens, and a dropout, whose numbers have places in a row.
    LayerSpec other = logits;
    other.outputs = 12;
    LayerSpec dropping = logits;
    dropping.dropout = 0.5;
    for (const Model& model : {model_of(other), model_of(dropping), mlp_model({4, 11})}) {
        const Model same = model.with_padded_vocabulary(five);
        for (int layer = 0; layer < model.layer_count(); ++layer) {
            EXPECT_EQ(same.layer(layer).spec, model.layer(layer).spec);
            EXPECT_EQ(same.layer(layer).parameter_count, model.layer(layer).parameter_count);
        }
    }
}

TEST(GptModel, DropsBehindTheEmbeddingAndAtTheEndOfBothHalvesOfABlock) {
    GptSizes sizes = small_gpt;
    sizes.dropout = 0.1;
    const Model model = gpt_model(sizes);
    EXPECT_EQ(model.layer(0).spec.dropout, 0.1);
    EXPECT_EQ(model.layer(1).spec.inner.back().dropout, 0.1);
    EXPECT_EQ(model.layer(2).spec.inner.back().dropout, 0.1);
    EXPECT_EQ(model.layer(2).spec.inner[1].dropout, 0);
    EXPECT_EQ(parameters_of(model), parameters_of(gpt_model(small_gpt)));
}

TEST(Model, RefusesATiedLayerThatIsNotTheTableTurnedRound) {
    const auto model_with = [](int outputs, bool bias) {
        return Model::chain({.token_ids = true, .positions = 4},
                            {{.name = "embedding",
                              .type = LayerType::Embedding,
                              .outputs = 8,
                              .vocabulary = 16,
                              .tied = true},
                             {.name = "head",
                              .type = LayerType::Linear,
                              .outputs = outputs,
                              .bias = bias,
                              .tied = true}});
    };
    EXPECT_EQ(model_with(16, false).tied_count(), 16 * 8);
    EXPECT_EQ(output_shape(model_with(16, false).layer(1).spec, {.positions = 6, .width = 8}),
              (SampleShape{.positions = 6, .width = 16}));
    const Error error = error_of([&] { model_with(17, false); });
    EXPECT_EQ(error.place(), "model, layer 'head'");
    EXPECT_EQ(error.text(),
              "8 x 17 is tied to a token table of 16 x 8, expected the same turned round, and no "
              "bias");
    EXPECT_EQ(error_of([&] { model_with(16, true); }).kind(), ErrorKind::BadInput);
}

TEST(GptModel, FeedForwardDefaultsToFourTimesTheWidth) {
    GptSizes sizes = small_gpt;
    sizes.feed_forward = 0;
    EXPECT_EQ(parameters_of(gpt_model(sizes)), parameters_of(gpt_model(small_gpt)));
}

TEST(GptModel, RefusesHeadsThatDoNotDivideTheWidth) {
    GptSizes sizes = small_gpt;
    sizes.heads = 3;
    const Error error = error_of([&] { gpt_model(sizes); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "model, layer 'block0.attention.attention'");
    EXPECT_EQ(error.text(), "3 heads do not divide the width 16");
}

TEST(GptModel, RefusesEverySizeBelowOne) {
    for (int GptSizes::*member : {&GptSizes::layers,
                                  &GptSizes::d_model,
                                  &GptSizes::heads,
                                  &GptSizes::context,
                                  &GptSizes::vocabulary}) {
        for (const int value : {0, -1, std::numeric_limits<int>::min()}) {
            GptSizes sizes = small_gpt;
            sizes.*member = value;
            EXPECT_EQ(error_of([&] { gpt_model(sizes); }).kind(), ErrorKind::BadInput);
        }
    }
}

TEST(GptModel, RefusesSizesWhoseProductOverflows) {
    GptSizes sizes = small_gpt;
    sizes.d_model = sizes.heads = std::numeric_limits<int>::max();
    sizes.vocabulary = std::numeric_limits<int>::max();
    EXPECT_EQ(error_of([&] { gpt_model(sizes); }).kind(), ErrorKind::BadInput);
    sizes = small_gpt;
    sizes.layers = 1'000'000'000;
    EXPECT_EQ(error_of([&] { gpt_model(sizes); }).place(), "model.layers");
}

TEST(MlpModel, IsOneUnitPerMatrixTheLastWithTheLoss) {
    const Model model = mlp_model({784, 512, 10});
    ASSERT_EQ(model.layer_count(), 2);
    EXPECT_EQ(model.layer(0).spec.name, "linear0");
    EXPECT_EQ(model.layer(0).spec.inner.back().type, LayerType::Gelu);
    EXPECT_EQ(model.layer(0).parameter_count, 784 * 512 + 512);
    EXPECT_EQ(model.layer(0).output, (SampleShape{.positions = 1, .width = 512}));
    EXPECT_EQ(model.layer(1).spec.inner.back().type, LayerType::CrossEntropy);
    EXPECT_EQ(model.layer(1).parameter_count, 512 * 10 + 10);
    EXPECT_THROW(mlp_model({784}), Error);
    EXPECT_THROW(mlp_model({784, 0}), Error);
}

TEST(Chain, NamesLayersByTypeAndIndexWhereTheyHaveNoName) {
    const Model model = linear_chain(
        {{.type = LayerType::Linear, .outputs = 8},
         {.type = LayerType::Gelu},
         {.name = "mine", .type = LayerType::LayerNorm},
         {.type = LayerType::Residual, .inner = {{.type = LayerType::Linear, .outputs = 8}}}});
    EXPECT_EQ(model.layer(0).spec.name, "linear0");
    EXPECT_EQ(model.layer(1).spec.name, "gelu1");
    EXPECT_EQ(model.layer(2).spec.name, "mine");
    EXPECT_EQ(model.layer(3).spec.name, "residual3");
    EXPECT_EQ(model.layer(3).spec.inner[0].name, "linear0");
}

TEST(Chain, CountsTheParametersOfEveryType) {
    const Model model =
        linear_chain({{.type = LayerType::Linear, .outputs = 8},
                      {.name = "bare", .type = LayerType::Linear, .outputs = 8, .bias = false},
                      {.type = LayerType::LayerNorm},
                      {.type = LayerType::Gelu},
                      {.type = LayerType::Attention, .heads = 2},
                      {.type = LayerType::CrossEntropy}});
    EXPECT_EQ(model.layer(0).parameter_count, 4 * 8 + 8);
    EXPECT_EQ(model.layer(1).parameter_count, 8 * 8);
    EXPECT_EQ(model.layer(2).parameter_count, 2 * 8);
    EXPECT_EQ(model.layer(3).parameter_count, 0);
    EXPECT_EQ(model.layer(4).parameter_count, 3 * 64 + 24 + 64 + 8);
    EXPECT_EQ(model.layer(5).parameter_count, 0);
}

TEST(Chain, RefusesTwoLayersOfOneName) {
    const Error error = error_of([] {
        linear_chain(
            {{.name = "a", .type = LayerType::Gelu}, {.name = "a", .type = LayerType::Gelu}});
    });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "model, layer 'a'");
    // Parameters are named by path, so these two would share theirs.
    EXPECT_THROW(linear_chain({{.name = "a",
                                .type = LayerType::Sequence,
                                .inner = {{.name = "b", .type = LayerType::LayerNorm}}},
                               {.name = "a.b", .type = LayerType::LayerNorm}}),
                 Error);
    // Inner layers of different layers may share a name.
    const LayerSpec norm{.name = "norm", .type = LayerType::LayerNorm};
    EXPECT_NO_THROW(linear_chain({{.name = "a", .type = LayerType::Residual, .inner = {norm}},
                                  {.name = "b", .type = LayerType::Residual, .inner = {norm}}}));
}

TEST(Chain, RefusesALossAnywhereButLast) {
    const LayerSpec loss{.type = LayerType::CrossEntropy};
    const Error error = error_of([&] { linear_chain({loss, {.type = LayerType::Gelu}}); });
    EXPECT_EQ(error.place(), "model, layer 'gelu1'");
    EXPECT_EQ(error.text(), "comes after the loss");
    EXPECT_THROW(linear_chain({loss, {.name = "x", .type = LayerType::CrossEntropy}}), Error);
    EXPECT_THROW(linear_chain({{.type = LayerType::Residual, .inner = {loss}}}), Error);
    EXPECT_NO_THROW(linear_chain({{.type = LayerType::Sequence, .inner = {loss}}}));
}

TEST(Chain, RefusesLayersThatDoNotFitWhatTheyRead) {
    const LayerSpec embedding{.type = LayerType::Embedding, .outputs = 4, .vocabulary = 8};
    EXPECT_EQ(error_of([&] { linear_chain({embedding}); }).hint(),
              "only the first layer can be an embedding");
    const SampleShape tokens{.token_ids = true, .positions = 8};
    EXPECT_EQ(error_of([&] { Model::chain(tokens, {{.type = LayerType::Gelu}}); }).hint(),
              "put an embedding before it");
    LayerSpec short_context = embedding;
    short_context.context = 7;
    EXPECT_THROW(Model::chain(tokens, {short_context}), Error);
    EXPECT_NO_THROW(Model::chain(tokens, {embedding}));
    const Error widened = error_of([] {
        linear_chain(
            {{.type = LayerType::Residual, .inner = {{.type = LayerType::Linear, .outputs = 5}}}});
    });
    EXPECT_EQ(widened.text(), "inner layers turn 1 x 4 into 1 x 5, expected the same shape");
    EXPECT_THROW(linear_chain({{.type = LayerType::Sequence}}), Error);
    EXPECT_THROW(linear_chain({{.name = "x", .type = LayerType::Opaque}}), Error);
    EXPECT_THROW(linear_chain({}), Error);
    EXPECT_THROW(linear_chain({{.type = LayerType::Gelu}}, 0), Error);
}

TEST(Chain, RefusesNestingAndNumbersBeyondTheLimits) {
    LayerSpec nested{.type = LayerType::Gelu};
    for (int depth = 0; depth < 64; ++depth) {
        nested = {.type = LayerType::Sequence, .inner = {nested}};
    }
    EXPECT_THROW(linear_chain({nested}), Error);
    EXPECT_NO_THROW(linear_chain({nested.inner.front()}));
    EXPECT_THROW(linear_chain(std::vector<LayerSpec>(100'001, {.type = LayerType::Gelu})), Error);
    EXPECT_NO_THROW(linear_chain(std::vector<LayerSpec>(10'000, {.type = LayerType::Gelu})));
}

TEST(Opaque, ReadsTheLayerBeforeUnlessTold) {
    const Model model = Model::opaque({{"a"}, {"b"}, {"c", {"a"}}, {"d", {"b", "c"}}});
    EXPECT_TRUE(model.inputs_of(0).empty());
    EXPECT_EQ(model.inputs_of(1), (std::vector<int>{0}));
    EXPECT_EQ(model.inputs_of(2), (std::vector<int>{0}));
    EXPECT_EQ(model.inputs_of(3), (std::vector<int>{1, 2}));
    EXPECT_FALSE(model.is_chain());
    EXPECT_FALSE(model.is_executable());
    EXPECT_TRUE(Model::opaque({{"a"}, {"b"}, {"c", {"b"}}}).is_chain());
}

TEST(Opaque, PutsLayersIntoAnOrderInWhichEveryEdgeGoesForward) {
    const Model model = Model::opaque(
        {{"begin"}, {"end", {"right", "left"}}, {"left", {"begin"}}, {"right", {"begin"}}});
    const std::vector<std::string> names{"begin", "left", "right", "end"};
    for (int i = 0; i < model.layer_count(); ++i) {
        EXPECT_EQ(model.layer(i).spec.name, names[static_cast<std::size_t>(i)]);
    }
    EXPECT_EQ(model.inputs_of(3), (std::vector<int>{1, 2}));
}

TEST(Opaque, RefusesUnknownAndDoubledNamesAndCircles) {
    EXPECT_EQ(error_of([] {
                  Model::opaque({{"a"}, {"b", {"z"}}});
              }).text(),
              "reads 'z', which is no layer");
    EXPECT_THROW(Model::opaque({{"a"}, {"a"}}), Error);
    EXPECT_THROW(Model::opaque({{"a"}, {""}}), Error);
    EXPECT_THROW(Model::opaque({{"a"}, {"b", {"a", "a"}}}), Error);
    EXPECT_THROW(Model::opaque({{"a", {"a"}}}), Error);
    EXPECT_THROW(Model::opaque({}), Error);
    const Error circle = error_of([] { Model::opaque({{"a", {"c"}}, {"b"}, {"c"}}); });
    EXPECT_EQ(circle.text(), "layers wait for each other in a circle: a, b, c");
}

TEST(SampleShapeText, SaysWhatItIs) {
    EXPECT_EQ(to_string(SampleShape{.token_ids = true, .positions = 8}), "8 token ids");
    EXPECT_EQ(to_string(SampleShape{.positions = 8, .width = 16}), "8 x 16");
    EXPECT_EQ(to_string(SampleShape{.positions = 1, .width = 0}), "a loss");
}

/// A head whose weights are those of the model's embedding was once refused, as it was looked at
/// without its model.
TEST(OutputShape, OfATiedHeadNeedsNoEmbedding) {
    const Model model = gpt_model(
        {.layers = 1, .d_model = 8, .heads = 2, .context = 6, .vocabulary = 11, .tied = true});
    const Layer& head = model.layer(model.layer_count() - 1);
    EXPECT_EQ(output_shape(head.spec, head.input), head.output);
    EXPECT_EQ(output_shape(head.spec.inner.at(1), head.input).width, 11);
}

TEST(Model, AnIndexOutOfRangeIsABug) {
    const Model model = mlp_model({2, 2});
    EXPECT_THROW((void)model.layer(1), InternalError);
    EXPECT_THROW((void)model.layer(-1), InternalError);
    EXPECT_THROW((void)model.inputs_of(1), InternalError);
}

}  // namespace model_test
}  // namespace pipetwin
