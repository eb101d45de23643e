// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/costs/layer_estimate.h"
#include "core/model/model.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace {

using ::testing::HasSubstr;

/// A model of one layer of the image, behind which another reads its output.
Layer placed(const LayerSpec& spec, const SampleShape& input) {
    return Model::chain(input, {spec}).layer(0);
}

template <class Call>
std::string text_of(Call call) {
    return testing::error_of(call).what();
}

std::string refusal(const LayerSpec& spec, const SampleShape& input) {
    return text_of([&] { placed(spec, input); });
}

SampleShape image(int height, int width, int channels) {
    return image_shape({height, width}, channels);
}

// Shapes and parameters as PyTorch's Conv2d documents them:
// floor((size + 2 padding - dilation (kernel - 1) - 1) / stride + 1).
TEST(ImageLayers, AConvolutionHasAPlaceOfItsWindowForEachPixelOfItsOutput) {
    const LayerSpec stem{.type = LayerType::Conv2d,
                         .outputs = 64,
                         .bias = false,
                         .kernel = {7, 7},
                         .stride = {2, 2},
                         .padding = {3, 3, 3, 3}};
    const Layer first = placed(stem, image(224, 224, 3));
    EXPECT_EQ(first.output, image(112, 112, 64));
    EXPECT_EQ(first.output.positions, 112 * 112);
    EXPECT_EQ(first.parameter_count, 7 * 7 * 3 * 64);
    EXPECT_EQ(forward_operations(first).all, 2.0 * 112 * 112 * 7 * 7 * 3 * 64);

    const LayerSpec wide{.type = LayerType::Conv2d,
                         .outputs = 6,
                         .kernel = {1, 7},
                         .stride = {1, 2},
                         .dilation = {1, 2},
                         .padding = {0, 3, 0, 3},
                         .groups = 3};
    const Layer second = placed(wide, image(5, 11, 3));
    EXPECT_EQ(second.output, image(5, 3, 6));  // (11 + 6 - 12 - 1) / 2 + 1
    EXPECT_EQ(second.parameter_count, 7 * 1 * 6 + 6);
    EXPECT_EQ(forward_operations(second).all, 2.0 * 5 * 3 * 7 * 6);
}

// A window of one pixel with a stride of 2 over an image moved up and left by one pixel.
TEST(ImageLayers, NegativePaddingCutsOff) {
    const LayerSpec moved{.type = LayerType::Conv2d,
                          .outputs = 4,
                          .kernel = {1, 1},
                          .stride = {2, 2},
                          .padding = {-1, -1, 1, 1}};
    EXPECT_EQ(placed(moved, image(4, 4, 2)).output, image(2, 2, 4));
    const LayerSpec pad{.type = LayerType::Pad, .padding = {0, -1, 2, 1}};
    EXPECT_EQ(placed(pad, image(4, 4, 2)).output, image(6, 4, 2));
}

TEST(ImageLayers, PoolsMoveByTheirKernelUnlessAStrideIsWritten) {
    LayerSpec pool{.type = LayerType::MaxPool, .kernel = {2, 2}};
    EXPECT_EQ(placed(pool, image(28, 29, 5)).output, image(14, 14, 5));
    pool.kernel = {3, 3};
    pool.stride = {2, 2};
    pool.padding = {1, 1, 1, 1};
    EXPECT_EQ(placed(pool, image(112, 112, 64)).output, image(56, 56, 64));
    pool.type = LayerType::AvgPool;
    EXPECT_EQ(placed(pool, image(7, 7, 1)).output, image(4, 4, 1));
}

TEST(ImageLayers, ShapesFollowThroughAWholeModel) {
    const Model model = Model::chain(image(6, 8, 3),
                                     {{.type = LayerType::Conv2d, .outputs = 4, .kernel = {3, 3}},
                                      {.type = LayerType::BatchNorm},
                                      {.type = LayerType::Relu},
                                      {.type = LayerType::Upsample, .factor = 3},
                                      {.type = LayerType::PadChannels, .outputs = 9},
                                      {.type = LayerType::GroupNorm, .groups = 3},
                                      {.type = LayerType::Linear, .outputs = 2},
                                      {.type = LayerType::Flatten},
                                      {.type = LayerType::Linear, .outputs = 10},
                                      {.type = LayerType::CrossEntropy}});
    std::vector<SampleShape> outputs;
    std::vector<std::int64_t> parameters;
    for (int layer = 0; layer < 9; ++layer) {
        outputs.push_back(model.layer(layer).output);
        parameters.push_back(model.layer(layer).parameter_count);
    }
    EXPECT_THAT(outputs,
                ::testing::ElementsAre(image(4, 6, 4),
                                       image(4, 6, 4),
                                       image(4, 6, 4),
                                       image(12, 18, 4),
                                       image(12, 18, 9),
                                       image(12, 18, 9),
                                       image(12, 18, 2),
                                       SampleShape{.positions = 1, .width = 12 * 18 * 2},
                                       SampleShape{.positions = 1, .width = 10}));
    EXPECT_THAT(parameters,
                ::testing::ElementsAre(112, 8, 0, 0, 0, 18, 20, 0, 12 * 18 * 2 * 10 + 10));
}

TEST(ImageLayers, WhatDoesNotFitIsRefusedWithWhatWasExpected) {
    const SampleShape small = image(4, 4, 6);
    EXPECT_THAT(refusal({.type = LayerType::Conv2d, .outputs = 4, .kernel = {3, 3}},
                        {.positions = 1, .width = 16}),
                HasSubstr("conv2d reads 1 x 16, expected an image"));
    EXPECT_THAT(refusal({.type = LayerType::Conv2d, .outputs = 4, .kernel = {5, 3}}, small),
                HasSubstr("a window of 5 x 3 pixels is larger than the image of 4 x 4"));
    EXPECT_THAT(
        refusal({.type = LayerType::Conv2d, .outputs = 4, .kernel = {1, 1}, .groups = 4}, small),
        HasSubstr("4 groups do not divide the 6 channels that it reads"));
    EXPECT_THAT(
        refusal({.type = LayerType::Conv2d, .outputs = 4, .kernel = {1, 1}, .groups = 3}, small),
        HasSubstr("3 groups do not divide the 4 outputs"));
    EXPECT_THAT(refusal({.type = LayerType::GroupNorm, .groups = 4}, small),
                HasSubstr("4 groups do not divide the 6 channels"));
    EXPECT_THAT(
        refusal({.type = LayerType::MaxPool, .kernel = {2, 2}, .padding = {2, 0, 0, 0}}, small),
        HasSubstr("expected less than the window"));
    EXPECT_THAT(refusal({.type = LayerType::BinaryCrossEntropy}, small),
                HasSubstr("reads 6 numbers for each position, expected one"));
    EXPECT_THAT(refusal({.type = LayerType::PadChannels, .outputs = 5}, small),
                HasSubstr("outputs = 5, expected at least the 6 channels"));
    EXPECT_THAT(refusal({.type = LayerType::InstanceNorm}, image(1, 1, 6)),
                HasSubstr("the variance of one is 0"));
}

TEST(ImageLayers, AConcatJoinsChannelsOfImagesOfOneSize) {
    std::vector<LayerSpec> layers{
        {.name = "a", .type = LayerType::Conv2d, .outputs = 2, .kernel = {1, 1}},
        {.name = "b", .type = LayerType::Conv2d, .outputs = 3, .kernel = {2, 2}, .inputs = {"a"}},
        {.name = "both", .type = LayerType::Concat, .inputs = {"a", "b"}},
        {.name = "loss", .type = LayerType::CrossEntropy}};
    EXPECT_THAT(text_of([&] { Model::graph(image(4, 4, 1), layers); }),
                HasSubstr("expected equal numbers of pixels"));
    layers[1].padding = {1, 0, 0, 1};
    EXPECT_EQ(Model::graph(image(4, 4, 1), layers).layer(2).output, image(4, 4, 5));
}

}  // namespace
}  // namespace pipetwin
