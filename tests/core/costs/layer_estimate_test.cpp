// SPDX-License-Identifier: Apache-2.0
#include "core/costs/layer_estimate.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/model/layer_spec.h"
#include "core/model/model.h"
#include "core/model/transformers.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace layer_estimate_test {

using testing::error_of;

/// A device of round numbers, on which one of the two costs nothing.
DeviceProfile device(double operations, double bytes) {
    DeviceProfile device{.name = "round"};
    device.matrix_rates["fp32"].value = operations;
    device.memory_rate.value = bytes;
    return device;
}

constexpr double without_end = 1e40;
/// Each operation takes 1 ns, bytes none.
const DeviceProfile counts_operations = device(1e9, without_end);
/// Each byte takes 1 ns, operations none.
const DeviceProfile counts_bytes = device(without_end, 1e9);
const EstimateOptions exact{.precision = "fp32", .efficiency = 1, .memory_efficiency = 1};

Model joined(LayerType join, int left, int right) {
    return Model::graph(
        {.positions = 1, .width = 16},
        {{.name = "stem", .type = LayerType::Linear, .outputs = 32},
         {.name = "left", .type = LayerType::Linear, .outputs = left, .inputs = {"stem"}},
         {.name = "right", .type = LayerType::Linear, .outputs = right, .inputs = {"stem"}},
         {.name = "join", .type = join, .inputs = {"stem", "left", "right"}},
         {.name = "loss", .type = LayerType::CrossEntropy}});
}

TEST(ForwardOperations, AreTwoForEachMultiplicationOfAProduct) {
    const Model model = joined(LayerType::Add, 32, 32);
    EXPECT_EQ(forward_operations(model.layer(0)).all, 2 * 16 * 32);
    EXPECT_EQ(forward_operations(model.layer(1)).all, 2 * 32 * 32);
    EXPECT_EQ(forward_operations(model.layer(3)).all, 0);
}

TEST(ForwardOperations, OfAGptAreThoseOfNarayanan2021) {
    // Section 5.1 and its appendix, forward only: 24 B s l h^2 (1 + s / (6 h)) + 2 B s h V.
    const double s = 64;
    const double h = 48;
    const double v = 96;
    const double l = 3;
    const Model model =
        gpt_model({.layers = 3, .d_model = 48, .heads = 4, .context = 64, .vocabulary = 96});
    ForwardOperations sum;
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        sum += forward_operations(model.layer(layer));
    }
    EXPECT_DOUBLE_EQ(sum.all, 24 * s * l * h * h * (1 + s / (6 * h)) + 2 * s * h * v);
    EXPECT_DOUBLE_EQ(sum.masked, 24 * s * l * h * h * s / (6 * h) / 2);  // half of attention
}

TEST(ForwardOperations, OfCostsAloneAreNotKnown) {
    const Model model = Model::opaque({{"a"}});
    EXPECT_EQ(error_of([&] { (void)forward_operations(model.layer(0)).all; }).kind(),
              ErrorKind::BadInput);
}

TEST(LayerEstimate, AnAddReadsEveryOutputAndWritesOneAndItsBackwardReadsOneAndWritesEach) {
    const LayerSample sample =
        estimated_sample(joined(LayerType::Add, 32, 32), 3, 8, counts_bytes, exact);
    EXPECT_EQ(sample.micro_batch_size, 8);
    EXPECT_EQ(sample.forward, Duration(4 * (3 + 1) * 8 * 32));
    EXPECT_EQ(sample.backward_input, Duration(4 * (1 + 3) * 8 * 32));
    EXPECT_EQ(sample.backward_weight, Duration{});
}

TEST(LayerEstimate, AConcatReadsAndWritesEveryValueOnceEachWay) {
    const LayerSample sample =
        estimated_sample(joined(LayerType::Concat, 8, 24), 3, 8, counts_bytes, exact);
    EXPECT_EQ(sample.forward, Duration(4 * 2 * 8 * (32 + 8 + 24)));
    EXPECT_EQ(sample.backward_input, sample.forward);
}

TEST(LayerEstimate, ALinearDoesThreeProductsAsManyOperationsEach) {
    const LayerSample sample =
        estimated_sample(joined(LayerType::Add, 32, 32), 0, 8, counts_operations, exact);
    EXPECT_EQ(sample.forward, Duration(8 * 2 * 16 * 32));
    EXPECT_EQ(sample.backward_input, sample.forward);
    EXPECT_EQ(sample.backward_weight, sample.forward);
}

/// Two layers, and a unit of the same branches that `joined` has as units of their own.
Model cell() {
    return Model::graph(
        {.positions = 1, .width = 16},
        {{.name = "a", .type = LayerType::Linear, .outputs = 24},
         {.name = "b", .type = LayerType::Linear, .outputs = 32},
         {.name = "cell",
          .type = LayerType::Sequence,
          .inner =
              {{.name = "left", .type = LayerType::Linear, .outputs = 32, .inputs = {"input0"}},
               {.name = "right",
                .type = LayerType::Sequence,
                .inner = {{.type = LayerType::Gelu}, {.type = LayerType::Linear, .outputs = 32}},
                .inputs = {"input1"}},
               {.name = "sum", .type = LayerType::Add, .inputs = {"left", "right", "input0"}},
               {.name = "out", .type = LayerType::Concat, .inputs = {"sum", "input1"}}},
          .inputs = {"b", "a"}},
         {.name = "loss", .type = LayerType::CrossEntropy}});
}

TEST(LayerEstimate, OfACellIsTheSumOverTheLayersInside) {
    EXPECT_EQ(forward_operations(cell().layer(2)).all, 2 * 32 * 32 + 2 * 24 * 32);
    const LayerSample operations = estimated_sample(cell(), 2, 8, counts_operations, exact);
    EXPECT_EQ(operations.forward, Duration(8 * (2 * 32 * 32 + 2 * 24 * 32)));
    EXPECT_EQ(operations.backward_weight, operations.forward);
    // The kernels of its layers one by one, each as a unit of its own.
    const auto alone = [](LayerSpec layer, int width) {
        const Model model = Model::chain({.positions = 1, .width = width}, {std::move(layer)});
        return estimated_sample(model, 0, 8, counts_bytes, exact);
    };
    const LayerSpec linear{.type = LayerType::Linear, .outputs = 32};
    const Duration sum =
        estimated_sample(joined(LayerType::Add, 32, 32), 3, 8, counts_bytes, exact).forward;
    const Duration concat(4 * 2 * 8 * (32 + 24));
    EXPECT_EQ(estimated_sample(cell(), 2, 8, counts_bytes, exact).forward,
              alone(linear, 32).forward + alone({.type = LayerType::Gelu}, 24).forward +
                  alone(linear, 24).forward + sum + concat);
}

/// The first layer of a model that reads 2 images of 9 x 11 pixels and 6 channels.
LayerSample of_image(const LayerSpec& spec,
                     const DeviceProfile& device,
                     const EstimateOptions& options = exact) {
    return estimated_sample(Model::chain(image_shape({9, 11}, 6), {spec}), 0, 2, device, options);
}

constexpr int pixels = 2 * 9 * 11;

// A window of 3 x 5 pixels that stays inside its padding: as many outputs as pixels.
TEST(LayerEstimate, AConvolutionDoesTheOperationsOfAProductAndMovesEachNumberOnce) {
    const LayerSpec conv{.type = LayerType::Conv2d,
                         .outputs = 8,
                         .bias = false,
                         .kernel = {3, 5},
                         .padding = {1, 2, 1, 2}};
    EXPECT_EQ(of_image(conv, counts_operations).forward, Duration(2 * pixels * 3 * 5 * 6 * 8));
    const LayerSample bytes = of_image(conv, counts_bytes);
    constexpr int weights = 3 * 5 * 6 * 8;
    EXPECT_EQ(bytes.forward, Duration(4 * (6 * pixels + weights + 8 * pixels)));
    EXPECT_EQ(bytes.backward_input, bytes.forward);
    EXPECT_EQ(bytes.backward_weight, Duration(4 * (6 * pixels + 2 * weights + 8 * pixels)));
}

/// A device that counts operations, with a rate for bf16, too.
DeviceProfile counts_both() {
    DeviceProfile both = counts_operations;
    both.matrix_rates["bf16"].value = 1e9;
    return both;
}

EstimateOptions in_bf16() {
    EstimateOptions options = exact;
    options.precision = "bf16";
    return options;
}

// Medians over convolutions of DeepBench on two devices without matrix units: the gradient of the
// weights 1.43 times the forward, that of the input 1.00, and 2.27 with a stride. Of matrix units
// nothing is known, so no gradient takes longer there.
TEST(LayerEstimate, GradientsOfAConvolutionTakeWhatTheyWereMeasuredAt) {
    LayerSpec conv{.type = LayerType::Conv2d,
                   .outputs = 10,
                   .bias = false,
                   .kernel = {5, 5},
                   .padding = {2, 2, 2, 2}};
    const auto beside_forward = [&](const EstimateOptions& options) {
        const LayerSample sample = of_image(conv, counts_both(), options);
        const auto forward = static_cast<double>(sample.forward.count());
        return std::pair(static_cast<double>(sample.backward_input.count()) / forward,
                         static_cast<double>(sample.backward_weight.count()) / forward);
    };
    EXPECT_NEAR(beside_forward(exact).first, 1.00, 0.05);
    EXPECT_NEAR(beside_forward(exact).second, 1.43, 0.05);
    EXPECT_EQ(beside_forward(in_bf16()), std::pair(1.0, 1.0));
    conv.stride = {2, 2};
    EXPECT_NEAR(beside_forward(exact).first, 2.27, 0.05);
    EXPECT_NEAR(beside_forward(exact).second, 1.43, 0.05);
    EXPECT_EQ(beside_forward(in_bf16()), std::pair(1.0, 1.0));
}

// F(2x2, 3x3) of Lavin and Gray makes 4 outputs of 16 multiplications in place of 36.
TEST(LayerEstimate, WindowsOfThreeByThreeSaveProductsInFp32Alone) {
    LayerSpec conv{.type = LayerType::Conv2d,
                   .outputs = 9,
                   .bias = false,
                   .kernel = {3, 3},
                   .padding = {1, 1, 1, 1}};
    constexpr int all = 2 * pixels * 9 * 6 * 9;
    EXPECT_EQ(of_image(conv, counts_operations).forward, Duration(all * 16 / 36));
    EXPECT_EQ(forward_operations(Model::chain(image_shape({9, 11}, 6), {conv}).layer(0)).all,
              all / 2);
    EXPECT_EQ(of_image(conv, counts_both(), in_bf16()).forward, Duration(all));
    conv.stride = {2, 2};
    EXPECT_EQ(of_image(conv, counts_operations).forward, Duration(2 * 2 * 5 * 6 * 9 * 6 * 9));
}

// Its 16 numbers of each 9 weights are made, written and read, which for large weights and few
// pixels takes longer than the products that it saves: then the plain kernel is the faster one.
TEST(LayerEstimate, SavedProductsHaveToPayForTheWeightsThatTheyNeed) {
    const LayerSpec conv{.type = LayerType::Conv2d,
                         .outputs = 600,
                         .bias = false,
                         .kernel = {3, 3},
                         .padding = {1, 1, 1, 1}};
    const double weights = 9.0 * 6 * 600;
    const double operations = 2 * pixels * weights;
    const double made = weights * 16 / 9;
    const auto forward = [&](double bytes_per_second) {
        return static_cast<double>(of_image(conv, device(1e9, bytes_per_second)).forward.count());
    };
    // At 100 bytes for an operation making them is worth it, at 0.04 it is not.
    EXPECT_NEAR(forward(100e9), operations * 16 / 36 + 4 * (weights + made) / 100, 2);
    EXPECT_NEAR(forward(0.04e9), 4 * (pixels * (6 + 600.0) + weights) / 0.04, 2);
}

// A window of one pixel with a stride of 2 reads every fourth pixel: 5 x 6 of 9 x 11.
TEST(LayerEstimate, AStrideBeyondTheWindowLeavesPixelsOut) {
    const LayerSpec conv{
        .type = LayerType::Conv2d, .outputs = 8, .bias = false, .kernel = {1, 1}, .stride = {2, 2}};
    constexpr int met = 2 * 5 * 6;
    const LayerSample bytes = of_image(conv, counts_bytes);
    EXPECT_EQ(bytes.forward, Duration(4 * (6 * met + 6 * 8 + 8 * met)));
    EXPECT_EQ(bytes.backward_input, Duration(4 * (8 * met + 6 * 8 + 6 * pixels)));
}

TEST(LayerEstimate, AConvolutionOfEachChannelAloneIsAPass) {
    const LayerSpec conv{.type = LayerType::Conv2d,
                         .outputs = 6,
                         .bias = false,
                         .kernel = {3, 3},
                         .padding = {1, 1, 1, 1},
                         .groups = 6};
    EXPECT_EQ(of_image(conv, counts_operations).forward, Duration{});
    const LayerSample bytes = of_image(conv, counts_bytes);
    EXPECT_EQ(bytes.forward, Duration(4 * 2 * 6 * pixels));
    EXPECT_EQ(bytes.backward_input, bytes.forward);
    EXPECT_EQ(bytes.backward_weight, bytes.forward);
}

// Statistics read everything once, the norm reads it again and writes it; the backward reads it and
// its gradient for two sums, and both again for what it writes.
TEST(LayerEstimate, ANormOfColumnsGoesOverItsValuesThreeTimesAndFiveTimesBack) {
    const LayerSample bytes = of_image({.type = LayerType::BatchNorm}, counts_bytes);
    EXPECT_EQ(bytes.forward, Duration(4 * 3 * 6 * pixels));
    EXPECT_EQ(bytes.backward_input, Duration(4 * 5 * 6 * pixels));
}

// Windows of 3 x 3 pixels that move by one meet each pixel nine times, those of 2 x 2 that move by
// two once: 4 x 5 windows, which leave the last row and the last column out.
TEST(LayerEstimate, APoolReadsANumberOnceForEachWindowThatItIsIn) {
    LayerSpec pool{
        .type = LayerType::AvgPool, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1, 1, 1}};
    EXPECT_EQ(of_image(pool, counts_bytes).forward, Duration(4 * (9 + 1) * 6 * pixels));
    EXPECT_EQ(of_image(pool, counts_bytes).backward_input, Duration(4 * (9 + 1) * 6 * pixels));
    pool = {.type = LayerType::MaxPool, .kernel = {2, 2}, .stride = {2, 2}};
    constexpr int written = 2 * 4 * 5;
    EXPECT_EQ(of_image(pool, counts_bytes).forward, Duration(4 * 6 * (pixels + written)));
}

// What the device says of copies holds where nothing else is assumed.
TEST(LayerEstimate, CopiesReachWhatTheDeviceSays) {
    DeviceProfile half = counts_bytes;
    half.copy_efficiency = {.value = 0.5, .source = "a run"};
    EstimateOptions options = exact;
    options.memory_efficiency.reset();
    const LayerSpec relu{.type = LayerType::Relu};
    EXPECT_EQ(of_image(relu, half, options).forward, 2 * of_image(relu, half).forward);
    EXPECT_EQ(of_image(relu, counts_bytes, options).forward,
              Duration(4 * 2 * 6 * pixels * 10 / 8));  // 0.8 of the rate
}

TEST(LayerEstimate, NamesTheInputsOfALayerThatDoesNotReadTheOneBefore) {
    const Profile profile = estimated_times(joined(LayerType::Concat, 8, 24), counts_bytes, exact);
    ASSERT_EQ(profile.layers.size(), 5U);
    EXPECT_TRUE(profile.layers[1].inputs.empty());
    EXPECT_EQ(profile.layers[2].inputs, (std::vector<std::string>{"stem"}));
    EXPECT_EQ(profile.layers[3].inputs, (std::vector<std::string>{"stem", "left", "right"}));
    EXPECT_EQ(profile.layers[0].parameter_count, 16 * 32 + 32);
    EXPECT_EQ(profile.layers[0].parameter_bytes, Bytes{4 * (16 * 32 + 32)});
    EXPECT_EQ(profile.layers[3].kind, "concat");
    check_profile(profile, "estimate");
}

}  // namespace layer_estimate_test
}  // namespace pipetwin
