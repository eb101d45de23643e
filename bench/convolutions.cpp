// SPDX-License-Identifier: Apache-2.0

// How long the convolutions and the max pool of ResNet-50 take on the CPU, one thread: forward, and
// both gradients. One line for each; bench/peers/torch_convolutions.py starts it and puts PyTorch's
// times beside.
//
//   build/release/bench/convolution_bench [fp32|bf16] [samples]
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "exec/base/random.h"
#include "exec/device/arena.h"
#include "exec/device/device.h"
#include "exec/device/window_kernels.h"

namespace pipetwin::exec {
namespace {

/// A convolution of square images and windows, and how often the network has it.
struct Case {
    int size;
    int channels;
    int outputs;
    int kernel;
    int stride;
    int count;
};

/// ResNet-50 of 224 x 224 pixels, with the stride in the 3x3 of a block (torchvision's).
constexpr Case cases[] = {
    {224, 3, 64, 7, 2, 1},    {56, 64, 64, 1, 1, 1},    {56, 64, 64, 3, 1, 3},
    {56, 64, 256, 1, 1, 4},   {56, 256, 64, 1, 1, 2},   {56, 256, 128, 1, 1, 1},
    {56, 128, 128, 3, 2, 1},  {28, 128, 512, 1, 1, 4},  {56, 256, 512, 1, 2, 1},
    {28, 512, 128, 1, 1, 3},  {28, 128, 128, 3, 1, 3},  {28, 512, 256, 1, 1, 1},
    {28, 256, 256, 3, 2, 1},  {14, 256, 1024, 1, 1, 6}, {28, 512, 1024, 1, 2, 1},
    {14, 1024, 256, 1, 1, 5}, {14, 256, 256, 3, 1, 5},  {14, 1024, 512, 1, 1, 1},
    {14, 512, 512, 3, 2, 1},  {7, 512, 2048, 1, 1, 3},  {14, 1024, 2048, 1, 2, 1},
    {7, 2048, 512, 1, 1, 2},  {7, 512, 512, 3, 1, 2},
};

/// Processor time of this thread: what other programs take does not count.
double now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Milliseconds of the fastest call: other programs take caches and clocks, and make none faster.
double milliseconds(const std::function<void()>& call) {
    call();  // warm up
    double best = 1e9;
    const double end = now() + 0.15;
    for (int n = 0; now() < end || n < 4; ++n) {
        const double begin = now();
        call();
        best = std::min(best, now() - begin);
    }
    return 1e3 * best;
}

class Bench {
  public:
    Bench(DType type, int samples) : type_(type), samples_(samples) {}

    void convolution(const Case& c) {
        const int out = (c.size + 2 * (c.kernel / 2) - c.kernel) / c.stride + 1;
        const int margin = c.kernel / 2;
        const WindowShape shape{.in = {c.size, c.size},
                                .out = {out, out},
                                .channels = c.channels,
                                .outputs = c.outputs,
                                .kernel = {c.kernel, c.kernel},
                                .stride = {c.stride, c.stride},
                                .padding = {margin, margin, margin, margin}};
        const Tensor x = made(type_, shape.in_rows(samples_), c.channels);
        const Tensor w = made(type_, shape.depth(), c.outputs);
        const Tensor dy = made(type_, shape.out_rows(samples_), c.outputs);
        Tensor y = made(type_, dy.rows(), dy.columns());
        Tensor dx = made(type_, x.rows(), x.columns());
        Tensor dw = made(NumberFormat(type_).exact(), w.rows(), w.columns());
        const WindowKernels& windows = cpu_kernels().windows();
        const double forward =
            milliseconds([&] { windows.convolution_forward(shape, x, w, {}, {}, y); });
        const double input =
            milliseconds([&] { windows.convolution_backward_input(shape, dy, w, {}, dx); });
        const double weight =
            milliseconds([&] { windows.convolution_backward_weight(shape, x, dy, dw, {}); });
        fmt::print("conv {} {} {} {} {} {} {:.4f} {:.4f} {:.4f}\n",
                   c.size,
                   c.channels,
                   c.outputs,
                   c.kernel,
                   c.stride,
                   c.count,
                   forward,
                   input,
                   weight);
    }

    void max_pool() {
        const WindowShape shape{.in = {112, 112},
                                .out = {56, 56},
                                .channels = 64,
                                .outputs = 64,
                                .kernel = {3, 3},
                                .stride = {2, 2},
                                .padding = {1, 1, 1, 1}};
        const Tensor x = made(type_, shape.in_rows(samples_), 64);
        Tensor y = made(type_, shape.out_rows(samples_), 64);
        Tensor dx = made(type_, x.rows(), 64);
        Tensor places = arena_.allocate(DType::U8, y.rows(), 64, MemoryKind::Stash);
        const WindowKernels& windows = cpu_kernels().windows();
        const double forward =
            milliseconds([&] { windows.max_pool_forward(shape, x, {}, y, places); });
        const double input =
            milliseconds([&] { windows.max_pool_backward(shape, places, y, {}, dx); });
        fmt::print("pool 112 64 64 3 2 1 {:.4f} {:.4f} 0\n", forward, input);
    }

  private:
    Tensor made(DType type, std::int64_t rows, std::int64_t columns) {
        Tensor tensor = arena_.allocate(type, rows, columns, MemoryKind::Stash);
        const RandomStream random = RandomStream(1).of(static_cast<std::uint64_t>(rows));
        std::vector<float> numbers(static_cast<std::size_t>(tensor.size()));
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            numbers[i] = static_cast<float>(random.uniform(i)) - 0.5F;
        }
        cpu_kernels().upload(numbers, tensor);
        return tensor;
    }

    Arena arena_;
    DType type_;
    int samples_;
};

}  // namespace
}  // namespace pipetwin::exec

int main(int count, char** arguments) {
    using namespace pipetwin::exec;  // NOLINT(google-build-using-namespace)
    const bool half = count > 1 && std::string_view(arguments[1]) == "bf16";
    const int samples = count > 2 ? std::atoi(arguments[2]) : 4;
    prepare_cpu_thread();
    Bench bench(half ? DType::BF16 : DType::F32, samples);
    for (const Case& c : cases) {
        bench.convolution(c);
    }
    bench.max_pool();
    return 0;
}
