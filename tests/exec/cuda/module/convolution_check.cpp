// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/as_index.h"
#include "exec/cuda/device/lane.h"
#include "exec/cuda/kernels/cuda_kernels.h"
#include "exec/cuda/runtime/device_memory.h"
#include "exec/cuda/runtime/owned.h"
#include "exec/device/window_kernels.h"
#include "tests/exec/cuda/module/check_numbers.h"
#include "tests/exec/cuda/module/device_checks.h"

namespace pipetwin::cuda {
namespace {

using exec::WindowShape;

/// A convolution of a few images, with a bias.
struct ConvolutionCase {
    const char* name;
    WindowShape shape;
    int samples = 3;

    std::size_t in() const { return as_index(shape.in_rows(samples)) * as_index(shape.channels); }
    std::size_t out() const { return as_index(shape.out_rows(samples)) * as_index(shape.outputs); }
    std::size_t weights() const { return as_index(shape.depth()) * as_index(shape.outputs); }
};

std::vector<ConvolutionCase> convolution_cases() {
    return {{"3x3",
             {.in = {9, 12},
              .out = {9, 12},
              .channels = 16,
              .outputs = 24,
              .kernel = {3, 3},
              .padding = {1, 1, 1, 1}}},
            {"3x3 of stride 2",
             {.in = {9, 12},
              .out = {5, 6},
              .channels = 8,
              .outputs = 40,
              .kernel = {3, 3},
              .stride = {2, 2},
              .padding = {1, 1, 1, 1}}},
            {"7x7 of 3 channels",
             {.in = {20, 20},
              .out = {10, 10},
              .channels = 3,
              .outputs = 16,
              .kernel = {7, 7},
              .stride = {2, 2},
              .padding = {3, 3, 3, 3}}},
            {"1x7",
             {.in = {8, 8},
              .out = {8, 8},
              .channels = 16,
              .outputs = 16,
              .kernel = {1, 7},
              .padding = {.left = 3, .right = 3}}},
            {"1x1 of stride 2",
             {.in = {8, 9}, .out = {4, 5}, .channels = 24, .outputs = 8, .stride = {2, 2}}},
            {"13 channels",
             {.in = {7, 7},
              .out = {7, 7},
              .channels = 13,
              .outputs = 20,
              .kernel = {3, 3},
              .padding = {1, 1, 1, 1}}},
            {"dilated",
             {.in = {10, 10},
              .out = {10, 10},
              .channels = 8,
              .outputs = 8,
              .kernel = {3, 3},
              .dilation = {2, 2},
              .padding = {2, 2, 2, 2}}},
            {"depthwise",
             {.in = {8, 8},
              .out = {8, 8},
              .channels = 32,
              .outputs = 32,
              .kernel = {3, 3},
              .padding = {1, 1, 1, 1},
              .groups = 32}},
            {"without an edge",
             {.in = {8, 8},
              .out = {4, 4},
              .channels = 8,
              .outputs = 8,
              .stride = {2, 2},
              .padding = {-1, -1, 0, 0}}}};
}

/// What the directions compute, and what they compute it from, as floats.
struct ConvolutionNumbers {
    std::vector<float> x;
    std::vector<float> w;
    std::vector<float> bias;
    std::vector<float> dy;
    std::vector<float> y;   ///< the result twice, and the bias
    std::vector<float> dx;  ///< the gradient twice
    std::vector<float> dw;  ///< before it what the gradient is added to
};

ConvolutionNumbers numbers_of(const ConvolutionCase& one) {
    return {.x = sixteenths(one.in(), 1),
            .w = sixteenths(one.weights(), 2),
            .bias = sixteenths(as_index(one.shape.outputs), 3),
            .dy = sixteenths(one.out(), 4),
            .y = std::vector<float>(one.out()),
            .dx = std::vector<float>(one.in()),
            .dw = sixteenths(one.weights(), 5)};
}

/// f(number of x, of w, of y) for every product of the convolution.
template <class F>
void for_products(const ConvolutionCase& one, const F& f) {
    const WindowShape& s = one.shape;
    for (std::int64_t row = 0; row < s.out_rows(one.samples); ++row) {
        const std::int64_t sample = row / s.out_rows(1);
        const int oy = static_cast<int>(row % s.out_rows(1)) / s.out.width;
        const int ox = static_cast<int>(row % s.out.width);
        for (int place = 0; place < s.places(); ++place) {
            const int y =
                oy * s.stride.height - s.padding.top + place / s.kernel.width * s.dilation.height;
            const int x =
                ox * s.stride.width - s.padding.left + place % s.kernel.width * s.dilation.width;
            if (y < 0 || y >= s.in.height || x < 0 || x >= s.in.width) {
                continue;
            }
            const std::int64_t pixel = (sample * s.in.height + y) * s.in.width + x;
            for (int output = 0; output < s.outputs; ++output) {
                const int first = output / s.group_outputs() * s.group_channels();
                for (int c = 0; c < s.group_channels(); ++c) {
                    f(as_index(pixel * s.channels + first + c),
                      as_index((std::int64_t{place} * s.group_channels() + c) * s.outputs + output),
                      as_index(row * s.outputs + output));
                }
            }
        }
    }
}

void convolve_on_cpu(const ConvolutionCase& one, ConvolutionNumbers& numbers) {
    const auto doubles = [](const std::vector<float>& from) {
        return std::vector<double>(from.begin(), from.end());
    };
    std::vector<double> y = doubles(numbers.y);
    std::vector<double> dx = doubles(numbers.dx);
    std::vector<double> dw = doubles(numbers.dw);
    const auto product = [](float a, float b) {
        return static_cast<double>(a) * static_cast<double>(b);
    };
    for (std::size_t i = 0; i < y.size(); ++i) {
        y[i] += static_cast<double>(numbers.bias[i % numbers.bias.size()]);
    }
    for_products(one, [&](std::size_t of_x, std::size_t of_w, std::size_t of_y) {
        y[of_y] += 2 * product(numbers.x[of_x], numbers.w[of_w]);
        dx[of_x] += 2 * product(numbers.dy[of_y], numbers.w[of_w]);
        dw[of_w] += product(numbers.dy[of_y], numbers.x[of_x]);
    });
    numbers.y.assign(y.begin(), y.end());
    numbers.dx.assign(dx.begin(), dx.end());
    numbers.dw.assign(dw.begin(), dw.end());
}

void convolve_on_device(Lane& lane,
                        const CudaKernels& kernels,
                        const ConvolutionCase& one,
                        Real real,
                        ConvolutionNumbers& numbers) {
    const Stream stream = make_stream();
    const exec::DType type = real == Real::BF16 ? exec::DType::BF16 : exec::DType::F32;
    const WindowShape& s = one.shape;
    std::vector<DeviceBuffer> buffers;
    buffers.reserve(7);
    const auto view = [&](const std::vector<float>& values, exec::DType of, int columns) {
        const auto rows = static_cast<std::int64_t>(values.size()) / columns;
        const Real kind = of == exec::DType::BF16 ? Real::BF16 : Real::F32;
        float* const data = buffers.emplace_back(packed(kind, values), stream).data();
        return exec::View{data, of, rows, columns};
    };
    const exec::View x = view(numbers.x, type, s.channels);
    const exec::View w = view(numbers.w, type, s.outputs);
    const exec::View bias = view(numbers.bias, type, s.outputs);
    const exec::View dy = view(numbers.dy, type, s.outputs);
    const exec::View y = view(numbers.y, type, s.outputs);
    const exec::View dx = view(numbers.dx, type, s.channels);
    const exec::View dw = view(numbers.dw, exec::DType::F32, s.outputs);
    PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    kernels.windows().convolution_forward(s, x, w, bias, {}, y);
    kernels.windows().convolution_forward(s, x, w, {}, y, y);
    kernels.windows().convolution_backward_input(s, dy, w, {}, dx);
    kernels.windows().convolution_backward_input(s, dy, w, dx, dx);
    kernels.windows().convolution_backward_weight(s, x, dy, dw, {});
    lane.finish();
    numbers.y = unpacked(real, one.out(), buffers[4].to_host(stream));
    numbers.dx = unpacked(real, one.in(), buffers[5].to_host(stream));
    numbers.dw = buffers[6].to_host(stream);
}

/// Throws CudaFailure where the device's results are wrong, or not the same twice.
void check_convolution(Lane& lane,
                       const CudaKernels& kernels,
                       const ConvolutionCase& one,
                       Real real,
                       const char* way) {
    ConvolutionNumbers expected = numbers_of(one);
    convolve_on_cpu(one, expected);
    ConvolutionNumbers found = numbers_of(one);
    ConvolutionNumbers again = found;
    convolve_on_device(lane, kernels, one, real, found);
    convolve_on_device(lane, kernels, one, real, again);
    const double tolerance = real == Real::BF16 ? 1e-2 : 1e-5;
    const std::string name = std::string(" of a convolution ") + one.name +
                             (real == Real::BF16 ? " in bf16 by " : " in fp32 by ") + way + ",";
    expect_close(("y" + name).c_str(), found.y, expected.y, tolerance);
    expect_close(("dx" + name).c_str(), found.dx, expected.dx, tolerance);
    expect_close(("dw" + name).c_str(), found.dw, expected.dw, tolerance);
    if (found.y != again.y || found.dx != again.dx || found.dw != again.dw) {
        throw CudaFailure("two runs" + name + " differ");
    }
}

}  // namespace

std::string check_convolutions() {
    int device = 0;
    PIPETWIN_CUDA_CHECK(cudaGetDevice(&device));
    DeviceMemory memory(device, std::size_t{1} << 20U);
    std::string answer;
    for (const bool by_cudnn : {false, true}) {
        Lane lane({.device = device}, memory, {.cudnn_convolutions = by_cudnn});
        const CudaKernels kernels(lane);
        for (const ConvolutionCase& one : convolution_cases()) {
            for (const Real real : {Real::F32, Real::BF16}) {
                check_convolution(
                    lane, kernels, one, real, by_cudnn ? "cuDNN or our kernels" : "our kernels");
            }
        }
        answer = lane.convolutions().summary();
    }
    return "all directions, fp32 within 1e-5 and bf16 within 1e-2 of the CPU's; " + answer;
}

}  // namespace pipetwin::cuda
