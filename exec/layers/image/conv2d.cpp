// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/image/conv2d.h"

#include "core/model/layer_spec.h"

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

Conv2d::Conv2d(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
    : ExecutableLayer(input, output_shape(spec, input), format),
      window_(window_of(spec, input)),
      has_bias_(spec.bias),
      is_he_normal_(spec.he_normal) {}

void Conv2d::create_parameters(ParameterMaker& maker, const std::string& path, bool ends_residual) {
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

std::vector<Parameter*> Conv2d::parameters() {
    return has_bias_ ? std::vector{&weight_, &bias_} : std::vector{&weight_};
}

// y = skip + x * w + b
void Conv2d::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    call.kernels.windows().convolution_forward(window_, x, weight_.value, bias_.value, skip, y);
}

// dx = skip + the sum over the windows that hold the pixel of dy w^T
void Conv2d::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.windows().convolution_backward_input(window_, dy, weight_.value, skip, dx);
    }
    call.done(Op::BackwardInput);
}

// dw += x^T dy,  db += sum of the rows of dy
void Conv2d::backward_weight(LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy) {
    call.kernels.windows().convolution_backward_weight(
        window_, x, dy, weight_.next_gradient(), bias_.next_gradient());
    call.done(Op::BackwardWeight);
}

}  // namespace pipetwin::exec
