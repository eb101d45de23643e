// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/image/resample.h"

#include "core/model/layer_spec.h"

namespace pipetwin::exec {

Upsample::Upsample(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
    : ExecutableLayer(input, output_shape(spec, input), format),
      shape_{.in = input.image, .factor = spec.factor, .bilinear = spec.bilinear} {}

// y = skip + x with factor x factor pixels for each
void Upsample::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    call.kernels.windows().upsample_forward(shape_, x, skip, y);
}

// dx = skip + the sum of what y took from the pixel
void Upsample::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.windows().upsample_backward(shape_, dy, skip, dx);
    }
    call.done(Op::BackwardInput);
}

Pad::Pad(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
    : ExecutableLayer(input, output_shape(spec, input), format), margins_(spec.padding) {}

// y = skip + x with margins around it
void Pad::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    call.kernels.windows().pad(input().image, margins_, x, skip, y);
}

// dx = skip + dy with the margins of the other sign around it
void Pad::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        const Margins back{.top = -margins_.top,
                           .left = -margins_.left,
                           .bottom = -margins_.bottom,
                           .right = -margins_.right};
        call.kernels.windows().pad(output().image, back, dy, skip, dx);
    }
    call.done(Op::BackwardInput);
}

}  // namespace pipetwin::exec
