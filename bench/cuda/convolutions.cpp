// SPDX-License-Identifier: Apache-2.0

// Convolutions by cuDNN beside those of our own kernels, each with what it needs around it: for
// cuDNN the weights in its layout, and the gradient of the weights added to one in ours.
#include "bench/cuda/measured.h"

#include <string>

#include <fmt/format.h>

#include "exec/cuda/cudnn/cudnn_convolution.h"
#include "exec/cuda/kernels/windows/windows.h"

namespace pipetwin::cuda {
namespace {

struct Measured {
    const char* name;
    int samples;
    int size;  ///< of an image, in each direction
    int channels;
    int outputs;
    int kernel;  ///< in each direction, but for 1 x 7
    int stride;
    int dilation = 1;
    int groups = 1;
    bool is_flat = false;  ///< 1 x kernel
};

/// Shapes of ResNet-50, AmoebaNet and U-Net, with micro-batches of a GPU.
constexpr Measured shapes[] = {
    {"7x7 stride 2, 3 -> 64, 224", 64, 224, 3, 64, 7, 2},
    {"3x3 stride 2, 3 -> 64, 112", 64, 112, 3, 64, 3, 2},
    {"3x3, 64, 56", 64, 56, 64, 64, 3, 1},
    {"3x3 stride 2, 128, 56", 64, 56, 128, 128, 3, 2},
    {"1x1 stride 2, 256 -> 512, 56", 64, 56, 256, 512, 1, 2},
    {"3x3, 256, 14", 64, 14, 256, 256, 3, 1},
    {"3x3, 512, 7", 64, 7, 512, 512, 3, 1},
    {"1x7, 64, 28", 64, 28, 64, 64, 7, 1, 1, 1, true},
    {"3x3, 52, 28", 64, 28, 52, 52, 3, 1},
    {"3x3, 64, 192", 16, 192, 64, 64, 3, 1},
    {"depthwise 3x3, 256, 28", 64, 28, 256, 256, 3, 1, 1, 256},
    {"depthwise 5x5 dilated 2, 256, 28", 64, 28, 256, 256, 5, 1, 2, 256},
    {"3x3, 16, 32", 128, 32, 16, 16, 3, 1},
};

Window window_of(const Measured& m) {
    const int reach = (m.kernel - 1) * m.dilation + 1;
    const int margin = reach / 2;
    const auto out = [&](bool flat) {
        return flat ? m.size : (m.size + 2 * margin - reach) / m.stride + 1;
    };
    return {.samples = m.samples,
            .in_height = m.size,
            .in_width = m.size,
            .out_height = out(m.is_flat),
            .out_width = out(false),
            .channels = m.channels,
            .outputs = m.outputs,
            .kernel_height = m.is_flat ? 1 : m.kernel,
            .kernel_width = m.kernel,
            .stride_height = m.stride,
            .stride_width = m.stride,
            .dilation_height = m.dilation,
            .dilation_width = m.dilation,
            .top = m.is_flat ? 0 : margin,
            .left = margin,
            .groups = m.groups};
}

class Shape {
  public:
    Shape(const Measured& measured, CudnnConvolutions& cudnn, cudaStream_t stream)
        : name_(measured.name),
          window_(window_of(measured)),
          cudnn_(cudnn),
          stream_(stream),
          depth_(std::int64_t{window_.kernel_height} * window_.kernel_width *
                 (window_.channels / window_.groups)),
          weights_(depth_ * window_.outputs),
          x_(of_pixels(window_.in_height, window_.in_width, window_.channels)),
          y_(of_pixels(window_.out_height, window_.out_width, window_.outputs)),
          w_(Memory::of_numbers(Real::BF16, weights_)),
          filters_(2 * weights_),
          dw_(Memory::of_numbers(Real::F32, weights_)),
          scratch_(4 * convolution_scratch(window_)) {}

    void measure() {
        measure(ConvolutionDirection::Forward, "forward", [&](cudaStream_t s) {
            return convolution_forward(
                Real::BF16, window_, {x_.at(0), w_.at(0), nullptr, nullptr, y_.at(0)}, s);
        });
        measure(ConvolutionDirection::BackwardInput, "input", [&](cudaStream_t s) {
            return convolution_backward_input(
                Real::BF16, window_, {y_.at(0), w_.at(0), nullptr, x_.at(0)}, s);
        });
        measure(ConvolutionDirection::BackwardWeight, "weight", [&](cudaStream_t s) {
            return convolution_backward_weight(
                Real::BF16, window_, x_.at(0), y_.at(0), dw_.as<float>(), scratch_.as<float>(), s);
        });
    }

  private:
    Memory of_pixels(int height, int width, int columns) const {
        return Memory::of_numbers(Real::BF16,
                                  std::int64_t{window_.samples} * height * width * columns);
    }

    template <class Own>
    void measure(ConvolutionDirection direction, const char* what, const Own& own) {
        const CudnnConvolution convolution{
            .real = Real::BF16, .window = window_, .direction = direction};
        const double flops = 2.0 * static_cast<double>(window_.samples) * window_.out_height *
                             window_.out_width * static_cast<double>(weights_);
        const double ours = seconds(stream_, own);
        const auto rate = [&](double time) { return 1e-12 * flops / time; };
        std::string text = fmt::format(
            "{:<34}{:<8} own {:9.1f} us{:8.1f} TFLOP/s", name_, what, 1e6 * ours, rate(ours));
        if (const auto plan = cudnn_.plan(convolution)) {
            const double theirs = by_cudnn(direction, *plan);
            text +=
                fmt::format("   cuDNN {:9.1f} us{:8.1f} TFLOP/s {:6.2f} x, workspace {:.1f} MiB",
                            1e6 * theirs,
                            rate(theirs),
                            ours / theirs,
                            static_cast<double>(plan->workspace_bytes) / (1 << 20));
        } else {
            text += "   " + cudnn_.describe(convolution);
        }
        fmt::print("{}\n", text);
    }

    double by_cudnn(ConvolutionDirection direction, const CudnnConvolutions::Plan& plan) {
        const Memory workspace(static_cast<std::int64_t>(plan.workspace_bytes) + 256);
        const CudnnConvolutions::Operands operands{.image = x_.at(0),
                                                   .filters = filters_.at(0),
                                                   .result = y_.at(0),
                                                   .workspace = workspace.at(0)};
        const bool makes_filters = direction == ConvolutionDirection::BackwardWeight;
        return seconds(stream_, [&](cudaStream_t s) {
            if (!makes_filters) {
                PIPETWIN_CUDA_CHECK(
                    turn_filters(Real::BF16, depth_, window_.outputs, w_.at(0), filters_.at(0), s));
            }
            cudnn_.run(plan.number, operands, s);
            return makes_filters ? add_turned_filters(Real::BF16,
                                                      depth_,
                                                      window_.outputs,
                                                      filters_.at(0),
                                                      dw_.as<float>(),
                                                      s)
                                 : cudaSuccess;
        });
    }

    std::string name_;
    Window window_;
    CudnnConvolutions& cudnn_;
    cudaStream_t stream_;
    std::int64_t depth_;
    std::int64_t weights_;
    Memory x_;
    Memory y_;
    Memory w_;
    Memory filters_;
    Memory dw_;
    Memory scratch_;
};

}  // namespace

void measure_convolutions() {
    const Stream stream = make_stream();
    CudnnConvolutions cudnn(load_cudnn(), true);
    for (const Measured& measured : shapes) {
        Shape(measured, cudnn, stream.get()).measure();
    }
    fmt::print("{}\n", cudnn.summary());
}

}  // namespace pipetwin::cuda
