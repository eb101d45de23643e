// SPDX-License-Identifier: Apache-2.0
#include "core/model/image_models.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/exec/executor/every_cut.h"
#include "tests/support/soak.h"

/// Small models of images, each whole and cut.
namespace pipetwin::exec {
namespace image_models_test {

using namespace every_cut;

/// 29 units.
Model small_unet() {
    const SampleShape image = image_shape({8, 8}, 1);
    return Model::graph(image, unet_layers({.depth = 2, .convolutions = 1, .channels = 4}, image));
}

Model small_resnet(bool projections) {
    return Model::graph(image_shape({8, 8}, 3),
                        resnet_layers({.depth = 20, .classes = 5, .projections = projections}));
}

Model small_amoebanet(AmoebaNetCells cells, AmoebaNetVariant variant) {
    const SampleShape image = image_shape({32, 32}, 3);
    return Model::graph(
        image,
        amoebanet_layers(
            cells, {.layers = 3, .filters = 16, .classes = 5, .variant = variant}, image));
}

struct NamedModel {
    const char* name;
    Model model;
};
void PrintTo(const NamedModel& named, std::ostream* out) {
    *out << named.name;
}

/// `pieces` parts of `layers` layers, each of one at least.
std::vector<int> drawn_cut(int layers, int pieces, std::mt19937_64& random) {
    std::vector<int> places(as_index(layers - 1));
    for (int place = 1; place < layers; ++place) {
        places[as_index(place - 1)] = place;
    }
    std::ranges::shuffle(places, random);
    places.resize(as_index(pieces - 1));
    places.push_back(layers);
    std::ranges::sort(places);
    std::vector<int> cut;
    int before = 0;
    for (const int place : places) {
        cut.push_back(place - before);
        before = place;
    }
    return cut;
}

/// The modes of recompute, one after the other.
void set_mode(Shape& shape, int number) {
    switch (number % 4) {
        case 0:
            shape.recompute = Recompute::None;
            break;
        case 1:
            shape.recompute = Recompute::Always;
            break;
        case 2:
            shape.recompute = Recompute::ExceptLast;
            break;
        default:
            shape.layer_recompute = LayerRecompute::Block;
            shape.recompute_blocks = 1 + number / 4 % 3;
    }
}

class ImageModel : public ::testing::TestWithParam<NamedModel> {
  protected:
    const Model& model = GetParam().model;
    const StepOutcome ascending = reference(model, {.batch = 9}, BackwardOrder::Ascending);
    const StepOutcome descending = reference(model, {.batch = 9}, BackwardOrder::Descending);
    const std::vector<test::NamedValues> state = expect_bits_and_bytes(
        model,
        {.stages = 1, .batch = 9, .partition = std::vector{model.layer_count()}},
        descending);

    void expect_as_whole(const Shape& shape) {
        const bool descends = order_of(shape) == BackwardOrder::Descending;
        EXPECT_TRUE(expect_bits_and_bytes(model, shape, descends ? descending : ascending) == state)
            << described(shape);
    }
};

/// C08, C25: losses, gradients and running statistics have the same bits in any cut, schedule and
/// mode of recompute; the peaks are those of the plan.
TEST_P(ImageModel, AnyCutHasTheBitsOfTheWholeModelAndTheBytesOfThePlan) {
    SCOPED_TRACE(::testing::Message() << "PIPETWIN_SEED=" << tests::seed());
    std::mt19937_64 random(tests::seed());
    const std::vector<std::string> schedules{
        "gpipe", "1f1b", "zb-h1", "gpipe", "1f1b", "interleaved-1f1b", "zb-v"};
    const auto draw = [&](int below) { return static_cast<int>(random() % as_index(below)); };
    for (int shape_number = 0; shape_number < tests::soaked(40); ++shape_number) {
        Shape shape{.batch = 9, .schedule = schedules[as_index(draw(7))]};
        shape.chunks = shape.schedule == "interleaved-1f1b" || shape.schedule == "zb-v" ? 2 : 1;
        shape.stages = shape.chunks == 2 ? 1 + draw(2) : 1 + draw(4);
        shape.partition = drawn_cut(model.layer_count(), shape.stages * shape.chunks, random);
        set_mode(shape, draw(12));
        expect_as_whole(shape);
        if (HasFailure()) {
            return;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    ImageModels,
    ImageModel,
    ::testing::Values(
        NamedModel{"unet", small_unet()},
        NamedModel{"resnet", small_resnet(true)},
        NamedModel{"resnet_without_projections", small_resnet(false)},
        NamedModel{"amoebanet_d", small_amoebanet(AmoebaNetCells::D, AmoebaNetVariant::Reference)},
        NamedModel{"amoebanet_b", small_amoebanet(AmoebaNetCells::B, AmoebaNetVariant::Reference)},
        NamedModel{"amoebanet_of_torchgpipe",
                   small_amoebanet(AmoebaNetCells::D, AmoebaNetVariant::Torchgpipe)}),
    [](const auto& named) { return named.param.name; });

/// torchgpipe's own check of its skips: each of the 378 ways to cut 29 units into three, in each
/// mode. A day's tests draw some of them.
TEST(ImageModels, EachCutOfASmallUNetIntoThreeHasItsBitsInEachMode) {
    const Model model = small_unet();
    ASSERT_EQ(model.layer_count(), 29);
    const StepOutcome ascending = reference(model, {.batch = 9}, BackwardOrder::Ascending);
    const StepOutcome descending = reference(model, {.batch = 9}, BackwardOrder::Descending);
    std::mt19937_64 random(tests::seed());
    int cuts = 0;
    for (int first = 1; first < 28; ++first) {
        for (int second = 1; first + second < 29; ++second) {
            ++cuts;
            for (const char* const schedule : {"gpipe", "1f1b"}) {
                for (int mode = 0; mode < 3; ++mode) {
                    if (tests::soaked(1) == 1 && random() % 12 != 0) {
                        continue;
                    }
                    Shape shape{.stages = 3,
                                .batch = 9,
                                .schedule = schedule,
                                .partition = std::vector{first, second, 29 - first - second}};
                    set_mode(shape, mode);
                    expect_bits_and_bytes(
                        model,
                        shape,
                        order_of(shape) == BackwardOrder::Descending ? descending : ascending);
                }
            }
        }
    }
    EXPECT_EQ(cuts, 378);
}

}  // namespace image_models_test
}  // namespace pipetwin::exec
