// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/windows/windows.h"

#include <string>
#include <utility>
#include <vector>

#include "exec/device/window_kernels.h"
#include "tests/exec/cpu/windows/naive_windows.h"
#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace windows_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words
using exec::UpsampleShape;
using exec::WindowShape;
using pipetwin::testing::WindowNumbers;

class CudaWindows : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways, CudaWindows, every_way(), ::testing::PrintToStringParamName());

WindowNumbers doubles(const Numbers& numbers) {
    return {numbers.begin(), numbers.end()};
}
Numbers singles(const WindowNumbers& numbers) {
    return {numbers.begin(), numbers.end()};
}
std::int64_t count(const Numbers& numbers) {
    return static_cast<std::int64_t>(numbers.size());
}

Window window_of(const WindowShape& s, int samples) {
    return {.samples = samples,
            .in_height = s.in.height,
            .in_width = s.in.width,
            .out_height = s.out.height,
            .out_width = s.out.width,
            .channels = s.channels,
            .outputs = s.outputs,
            .kernel_height = s.kernel.height,
            .kernel_width = s.kernel.width,
            .stride_height = s.stride.height,
            .stride_width = s.stride.width,
            .dilation_height = s.dilation.height,
            .dilation_width = s.dilation.width,
            .top = s.padding.top,
            .left = s.padding.left,
            .groups = s.groups,
            .count_padding = s.count_padding ? 1 : 0};
}

WindowShape shape(Pixels in, int channels, int outputs, Pixels kernel) {
    return {.in = in, .channels = channels, .outputs = outputs, .kernel = kernel};
}

struct Case {
    std::string name;
    WindowShape shape;
    int samples = 2;
};

std::vector<Case> convolutions() {
    std::vector<Case> all;
    const auto add = [&](std::string name, const WindowShape& s, int samples = 2) {
        all.push_back({std::move(name), pipetwin::testing::with_output(s), samples});
    };
    WindowShape s = shape({5, 7}, 3, 4, {3, 3});
    s.padding = {1, 1, 1, 1};
    s.stride = {2, 2};
    add("small", s);
    s = shape({4, 4}, 2, 3, {1, 1});
    s.stride = {2, 2};
    s.padding = {-1, -1, 1, 1};
    add("moved by a pixel", s);
    s = shape({6, 5}, 3, 2, {3, 2});
    s.dilation = {2, 3};
    s.padding = {2, 1, 1, 2};
    add("dilated", s);
    s = shape({9, 8}, 9, 70, {3, 3});  // more than a tile of pixels, of outputs and of the depth
    s.padding = {1, 1, 1, 1};
    add("several tiles", s);
    s = shape({20, 20}, 2, 3, {2, 2});
    add("several slices", s);
    s = shape({5, 6}, 6, 4, {3, 3});
    s.padding = {1, 0, 1, 2};
    s.stride = {1, 2};
    s.groups = 2;
    add("in groups", s);
    s = shape({5, 7}, 5, 5, {3, 3});
    s.padding = {2, 2, 2, 2};
    s.dilation = {2, 2};
    s.groups = 5;
    add("depthwise", s);
    return all;
}

TEST_P(CudaWindows, ConvolutionsForward) {
    for (const Case& c : convolutions()) {
        SCOPED_TRACE(c.name);
        const WindowShape& s = c.shape;
        const Numbers x = random(s.in_rows(c.samples) * s.channels, 1);
        const Numbers w = random(std::int64_t{s.depth()} * s.outputs, 2);
        const Numbers b = random(s.outputs, 3);
        const Numbers skip = random(s.out_rows(c.samples) * s.outputs, 4);
        WindowNumbers expected =
            pipetwin::testing::naive_convolution(s, c.samples, doubles(x), doubles(w), doubles(b));
        for (std::size_t i = 0; i < expected.size(); ++i) {
            expected[i] += static_cast<double>(skip[i]);
        }
        const Numbers found = run([&] {
            const Operand of_x(way(), x);
            const Operand of_w(way(), w);
            const Operand of_b(way(), b);
            const Operand y(way(), skip);  // in place
            expect_ok(
                convolution_forward(real(),
                                    window_of(s, c.samples),
                                    {of_x.data(), of_w.data(), of_b.data(), y.data(), y.data()},
                                    nullptr));
            return y.numbers();
        });
        EXPECT_TRUE(close(found, singles(expected), way().bound()));
    }
}

TEST_P(CudaWindows, ConvolutionsGradientByTheInput) {
    for (const Case& c : convolutions()) {
        SCOPED_TRACE(c.name);
        const WindowShape& s = c.shape;
        const Numbers dy = random(s.out_rows(c.samples) * s.outputs, 1);
        const Numbers w = random(std::int64_t{s.depth()} * s.outputs, 2);
        const WindowNumbers expected =
            pipetwin::testing::naive_convolution_input(s, c.samples, doubles(dy), doubles(w));
        const Numbers found = run([&] {
            const Operand of_dy(way(), dy);
            const Operand of_w(way(), w);
            const Operand dx(way(), static_cast<std::int64_t>(expected.size()));
            expect_ok(convolution_backward_input(real(),
                                                 window_of(s, c.samples),
                                                 {of_dy.data(), of_w.data(), nullptr, dx.data()},
                                                 nullptr));
            return dx.numbers();
        });
        EXPECT_TRUE(close(found, singles(expected), way().bound()));
    }
}

TEST_P(CudaWindows, ConvolutionsGradientByTheWeight) {
    for (const Case& c : convolutions()) {
        SCOPED_TRACE(c.name);
        const WindowShape& s = c.shape;
        const Numbers x = random(s.in_rows(c.samples) * s.channels, 1);
        const Numbers dy = random(s.out_rows(c.samples) * s.outputs, 2);
        const Numbers before = random_numbers(std::int64_t{s.depth()} * s.outputs, 3);
        WindowNumbers expected =
            pipetwin::testing::naive_convolution_weight(s, c.samples, doubles(x), doubles(dy));
        for (std::size_t i = 0; i < expected.size(); ++i) {
            expected[i] += static_cast<double>(before[i]);
        }
        const Numbers found = run([&] {
            const Operand of_x(way(), x);
            const Operand of_dy(way(), dy);
            const Operand dw(floats(), before);
            const Window window = window_of(s, c.samples);
            const Operand sums(floats(), convolution_scratch(window));
            expect_ok(convolution_backward_weight(
                real(), window, of_x.data(), of_dy.data(), dw.floats(), sums.floats(), nullptr));
            return dw.numbers();
        });
        EXPECT_TRUE(close(found, singles(expected), 1e-5));
    }
}

/// More than a tile in each direction, and less.
TEST_P(CudaWindows, FiltersAreTurnedOverAndBack) {
    for (const auto& [depth, outputs] : {std::pair<std::int64_t, std::int64_t>{27, 64},
                                         std::pair<std::int64_t, std::int64_t>{70, 5},
                                         std::pair<std::int64_t, std::int64_t>{33, 33}}) {
        const Numbers w = random(depth * outputs, 1);
        const Numbers before = random_numbers(depth * outputs, 2);
        const Numbers found = run([&, &depth = depth, &outputs = outputs] {
            const Operand of_w(way(), w);
            const Operand turned(way(), depth * outputs);
            const Operand dw(floats(), before);
            expect_ok(turn_filters(real(), depth, outputs, of_w.data(), turned.data(), nullptr));
            expect_ok(
                add_turned_filters(real(), depth, outputs, turned.data(), dw.floats(), nullptr));
            return joined({turned.numbers(), dw.numbers()});
        });
        for (std::int64_t d = 0; d < depth; ++d) {
            for (std::int64_t o = 0; o < outputs; ++o) {
                const float value = w[index(d * outputs + o)];
                EXPECT_EQ(found[index(o * depth + d)], value);
                EXPECT_EQ(found[index(depth * outputs + d * outputs + o)],
                          before[index(d * outputs + o)] + value);
            }
        }
    }
}

TEST_P(CudaWindows, EveryRowGetsTheSameRow) {
    constexpr std::int64_t rows = 7;
    constexpr std::int64_t columns = 37;
    const Numbers y = random(rows * columns, 1);
    const Numbers row = random(columns, 2);
    Numbers expected = y;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += row[i % row.size()];
    }
    const Numbers found = run([&] {
        const Operand of_y(way(), y);
        const Operand of_row(way(), row);
        expect_ok(add_row(real(), rows, columns, of_row.data(), of_y.data(), nullptr));
        return of_y.numbers();
    });
    EXPECT_EQ(found, rounded(real(), expected));
}

std::vector<Case> pools() {
    std::vector<Case> all;
    const auto add = [&](std::string name, const WindowShape& s) {
        all.push_back({std::move(name), pipetwin::testing::with_output(s), 2});
    };
    WindowShape s = shape({5, 7}, 3, 3, {3, 3});
    s.stride = {2, 2};
    s.padding = {1, 1, 1, 1};
    add("overlapping", s);
    s.count_padding = false;
    add("of real pixels", s);
    s = shape({6, 4}, 5, 5, {2, 2});
    s.stride = {2, 2};
    add("halves", s);
    s = shape({17, 17}, 1, 1, {16, 16});
    add("more than 255 places", s);
    s = shape({4, 3}, 7, 7, {4, 3});
    add("global", s);
    return all;
}

TEST_P(CudaWindows, LargestNumbersOfWindows) {
    for (const Case& c : pools()) {
        SCOPED_TRACE(c.name);
        const WindowShape& s = c.shape;
        const Numbers x = random(s.in_rows(c.samples) * s.channels, 1);
        const Numbers dy = random(s.out_rows(c.samples) * s.channels, 2);
        const auto maxima = pipetwin::testing::naive_max_pool(s, c.samples, doubles(x));
        const WindowNumbers gradient =
            pipetwin::testing::naive_max_pool_input(s, c.samples, maxima.places, doubles(dy));
        const bool bytes = s.places() <= 255;
        const Numbers found = run([&] {
            const Operand of_x(way(), x);
            const Operand of_dy(way(), dy);
            const Operand y(way(), count(dy));
            const Operand dx(way(), count(x));
            const DeviceArray<std::int32_t> places(index(count(dy)));  // room for both types
            const Window window = window_of(s, c.samples);
            expect_ok(max_pool_forward(real(),
                                       window,
                                       bytes ? 1 : 4,
                                       of_x.data(),
                                       nullptr,
                                       y.data(),
                                       places.data(),
                                       nullptr));
            expect_ok(max_pool_backward(real(),
                                        window,
                                        bytes ? 1 : 4,
                                        places.data(),
                                        of_dy.data(),
                                        nullptr,
                                        dx.data(),
                                        nullptr));
            return joined({y.numbers(), dx.numbers()});
        });
        const std::vector<Numbers> parts = split(found, {count(dy), count(x)});
        EXPECT_EQ(parts[0], singles(maxima.values));
        EXPECT_TRUE(close(parts[1], singles(gradient), way().bound()));
    }
}

TEST_P(CudaWindows, MeansOfWindows) {
    for (const Case& c : pools()) {
        SCOPED_TRACE(c.name);
        const WindowShape& s = c.shape;
        const Numbers x = random(s.in_rows(c.samples) * s.channels, 1);
        const Numbers dy = random(s.out_rows(c.samples) * s.channels, 2);
        const WindowNumbers mean = pipetwin::testing::naive_average_pool(s, c.samples, doubles(x));
        const WindowNumbers gradient =
            pipetwin::testing::naive_average_pool_input(s, c.samples, doubles(dy));
        const Numbers found = run([&] {
            const Operand of_x(way(), x);
            const Operand of_dy(way(), dy);
            const Operand y(way(), count(dy));
            const Operand dx(way(), count(x));
            const Window window = window_of(s, c.samples);
            expect_ok(
                average_pool_forward(real(), window, of_x.data(), nullptr, y.data(), nullptr));
            expect_ok(
                average_pool_backward(real(), window, of_dy.data(), nullptr, dx.data(), nullptr));
            return joined({y.numbers(), dx.numbers()});
        });
        const std::vector<Numbers> parts = split(found, {count(dy), count(x)});
        EXPECT_TRUE(close(parts[0], singles(mean), way().bound()));
        EXPECT_TRUE(close(parts[1], singles(gradient), way().bound()));
    }
}

TEST_P(CudaWindows, ImagesAreMadeLarger) {
    constexpr int samples = 2;
    constexpr int channels = 3;
    for (const UpsampleShape& s : {UpsampleShape{{5, 7}, 2, false},
                                   UpsampleShape{{3, 4}, 3, true},
                                   UpsampleShape{{1, 2}, 2, true}}) {
        SCOPED_TRACE(s.bilinear);
        const Numbers x = random(samples * s.pixels() * channels, 1);
        const Numbers dy = random(count(x) * s.factor * s.factor, 2);
        const WindowNumbers larger =
            pipetwin::testing::naive_upsample(s, samples, channels, doubles(x));
        const WindowNumbers gradient =
            pipetwin::testing::naive_upsample_input(s, samples, channels, doubles(dy));
        const Upsampling upsampling{.samples = samples,
                                    .height = s.in.height,
                                    .width = s.in.width,
                                    .channels = channels,
                                    .factor = s.factor,
                                    .bilinear = s.bilinear ? 1 : 0};
        const Numbers found = run([&] {
            const Operand of_x(way(), x);
            const Operand of_dy(way(), dy);
            const Operand y(way(), count(dy));
            const Operand dx(way(), count(x));
            expect_ok(
                upsample_forward(real(), upsampling, of_x.data(), nullptr, y.data(), nullptr));
            expect_ok(
                upsample_backward(real(), upsampling, of_dy.data(), nullptr, dx.data(), nullptr));
            return joined({y.numbers(), dx.numbers()});
        });
        const std::vector<Numbers> parts = split(found, {count(dy), count(x)});
        EXPECT_TRUE(close(parts[0], singles(larger), way().bound()));
        EXPECT_TRUE(close(parts[1], singles(gradient), way().bound()));
    }
}

// The left two columns of 2 x 3 pixels go, and a row comes above and below, and a column at the
// right.
TEST_P(CudaWindows, ImagesGetZerosAroundThemAndLoseEdges) {
    const Numbers x{1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16};
    const Padding padding{.samples = 2,
                          .height = 2,
                          .width = 3,
                          .channels = 1,
                          .top = 1,
                          .left = -2,
                          .out_height = 4,
                          .out_width = 2};
    const Numbers found = run([&] {
        const Operand of_x(way(), x);
        const Operand y(way(), 16);
        expect_ok(pad(real(), padding, of_x.data(), nullptr, y.data(), nullptr));
        expect_ok(pad(real(), padding, of_x.data(), y.data(), y.data(), nullptr));
        return y.numbers();
    });
    EXPECT_EQ(found, (Numbers{0, 0, 6, 0, 12, 0, 0, 0, 0, 0, 26, 0, 32, 0, 0, 0}));
}

}  // namespace windows_test
}  // namespace pipetwin::cuda
