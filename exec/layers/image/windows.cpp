// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/image/windows.h"

#include "exec/layers/makers.h"

namespace pipetwin::exec {
namespace {

Pixels or_else(Pixels size, Pixels otherwise) {
    return size == Pixels{} ? otherwise : size;
}

}  // namespace

WindowShape window_of(const LayerSpec& spec, const SampleShape& input) {
    const SampleShape output = output_shape(spec, input);
    const bool convolves = spec.type == LayerType::Conv2d;
    return {.in = input.image,
            .out = output.image,
            .channels = input.width,
            .outputs = output.width,
            .kernel = spec.kernel,
            .stride = or_else(spec.stride, convolves ? Pixels{1, 1} : spec.kernel),
            .dilation = or_else(spec.dilation, {1, 1}),
            .padding = spec.padding,
            .groups = convolves ? spec.groups : 1,
            .count_padding = spec.count_padding};
}

namespace {

/// y = skip + x * w + b        x (n, c)   w (kh kw c / groups, o)   b (o)   y (m, o)
/// dx = skip + the sum over the windows that hold the pixel of dy w^T
/// dw += x^T dy, with what the windows read as x,  db += sum of the rows of dy
///
/// n and m are the pixels of all samples before and behind it. Keeps its input, and nothing else.
/// Weights begin as those of torch's Conv2d, uniform in +-1/sqrt(kh kw c / groups), biases too;
/// with `he_normal` normal with deviation sqrt(2 / (kh kw o)).
class Conv2d final : public PlainLayer {
  public:
    Conv2d(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, output_shape(spec, input), format),
          window_(window_of(spec, input)),
          has_bias_(spec.bias),
          is_he_normal_(spec.he_normal) {}

    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override {
        using Role = ParameterMaker::Role;
        const int pixels = window_.kernel.height * window_.kernel.width;
        const Role role = is_he_normal_   ? Role::HeWeight
                          : ends_residual ? Role::ResidualWeight
                                          : Role::Weight;
        weight_ = maker.make(path + ".weight",
                             window_.depth(),
                             window_.outputs,
                             role,
                             is_he_normal_ ? pixels * window_.outputs : window_.depth());
        if (has_bias_) {
            bias_ = maker.make(path + ".bias", 1, window_.outputs, Role::Bias, window_.depth());
        }
    }
    std::vector<Parameter*> parameters() override {
        return has_bias_ ? std::vector{&weight_, &bias_} : std::vector{&weight_};
    }
    bool has_parameters() const override { return true; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        call.kernels.windows().convolution_forward(window_, x, weight_.value, bias_.value, skip, y);
    }
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        call.kernels.windows().convolution_backward_input(
            window_, of.dy, weight_.value, of.skip, of.dx);
    }
    void backward_weight(LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy) override {
        call.kernels.windows().convolution_backward_weight(
            window_, x, dy, weight_.next_gradient(), bias_.next_gradient());
        call.done(Op::BackwardWeight);
    }

  private:
    WindowShape window_;
    bool has_bias_;
    bool is_he_normal_;
    Parameter weight_;
    Parameter bias_;
};

/// y = skip + the largest number of each channel in each window        x (n, c)   y (m, c)
/// dx = skip + the sum of dy of the windows whose largest number it is, in row order
///
/// Keeps where the largest numbers are: a byte for each number of y, four where a window has more
/// than 255 pixels. Of equal numbers the first in row order is the largest, as in torch. Its
/// backward reads no input.
class MaxPool final : public PlainLayer {
  public:
    MaxPool(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, output_shape(spec, input), format), window_(window_of(spec, input)) {}

    Bytes kept_bytes(int samples) const override {
        return Bytes{window_.out_rows(samples) * window_.channels *
                     static_cast<std::int64_t>(size_of(place_type(window_)))};
    }
    bool backward_reads_input() const override { return false; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override {
        Tensor places =
            call.arena.allocate(place_type(window_), y.rows, y.columns, MemoryKind::Stash);
        call.kernels.windows().max_pool_forward(window_, x, skip, y, places);
        kept.tensors.push_back(std::move(places));
    }
    void input_gradient(const LayerCall& call, const Kept& kept, const Operands& of) override {
        call.kernels.windows().max_pool_backward(
            window_, kept.tensors.front(), of.dy, of.skip, of.dx);
    }

  private:
    WindowShape window_;
};

/// The window of an average: of a global one all of the image.
WindowShape average_window(LayerSpec spec, const SampleShape& input) {
    if (spec.type == LayerType::GlobalAvgPool) {
        spec.type = LayerType::AvgPool;
        spec.kernel = input.image;
    }
    return window_of(spec, input);
}

/// y = skip + the mean of each channel in each window        x (n, c)   y (m, c)
/// dx = skip + the sum over the windows that hold the pixel of dy / divisor, in row order
///
/// The divisor is the size of the window or, without `count_padding`, the number of its pixels that
/// lie on the image. A global pool has one window, the whole image. Keeps nothing, and its backward
/// reads no input.
class AveragePool final : public PlainLayer {
  public:
    AveragePool(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, output_shape(spec, input), format),
          window_(average_window(spec, input)) {}

    bool backward_reads_input() const override { return false; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        call.kernels.windows().average_pool_forward(window_, x, skip, y);
    }
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        call.kernels.windows().average_pool_backward(window_, of.dy, of.skip, of.dx);
    }

  private:
    WindowShape window_;
};

/// y = skip + x with factor x factor pixels for each        x (n, c)   y (n factor^2, c)
/// dx = skip + the sum of what y took from the pixel, in row order
///
/// A pixel of y is the nearest one of x or, bilinear, a mean of the nearest four: centres stay
/// where they are, and what lies beyond the outermost centres is as these (torch's align_corners =
/// False). Keeps nothing, and its backward reads no input.
class Upsample final : public PlainLayer {
  public:
    Upsample(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, output_shape(spec, input), format),
          shape_{.in = input.image, .factor = spec.factor, .bilinear = spec.bilinear} {}

    bool backward_reads_input() const override { return false; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        call.kernels.windows().upsample_forward(shape_, x, skip, y);
    }
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        call.kernels.windows().upsample_backward(shape_, of.dy, of.skip, of.dx);
    }

  private:
    UpsampleShape shape_;
};

/// y = skip + x with zeros around it; a margin below zero cuts pixels off        x (n, c)   y (m,
/// c) dx = skip + dy without what lies around x
///
/// Keeps nothing, and its backward reads no input.
class Pad final : public PlainLayer {
  public:
    Pad(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, output_shape(spec, input), format), margins_(spec.padding) {}

    bool backward_reads_input() const override { return false; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        call.kernels.windows().pad(input().image, margins_, x, skip, y);
    }
    /// With the margins of the other sign around dy.
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        const Margins back{.top = -margins_.top,
                           .left = -margins_.left,
                           .bottom = -margins_.bottom,
                           .right = -margins_.right};
        call.kernels.windows().pad(output().image, back, of.dy, of.skip, of.dx);
    }

  private:
    Margins margins_;
};

}  // namespace

const LayerMaker make_convolution = made<Conv2d>;
const LayerMaker make_max_pool = made<MaxPool>;
const LayerMaker make_average_pool = made<AveragePool>;
const LayerMaker make_upsampling = made<Upsample>;
const LayerMaker make_image_padding = made<Pad>;

}  // namespace pipetwin::exec
