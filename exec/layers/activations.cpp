// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/activations.h"

#include "core/model/layer_spec.h"

namespace pipetwin::exec {

Gelu::Gelu(const SampleShape& input, GeluForm form, NumberFormat format)
    : ExecutableLayer(input, input, format), form_(form) {}

// y = skip + x F(x)
void Gelu::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    call.kernels.gelu_forward(form_, x, y);
    if (!skip.empty()) {
        call.kernels.add(skip, y);
    }
}

// dx = skip + dy (F(x) + x F'(x))
void Gelu::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.gelu_backward(form_, x, dy, dx);
        if (!skip.empty()) {
            call.kernels.add(skip, dx);
        }
    }
    call.done(Op::BackwardInput);
}

SwiGlu::SwiGlu(const SampleShape& input, const SampleShape& output, NumberFormat format)
    : ExecutableLayer(input, output, format) {}

// y = skip + v g s
void SwiGlu::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    call.kernels.swiglu_forward(x, y);
    if (!skip.empty()) {
        call.kernels.add(skip, y);
    }
}

// dx = skip + (dg | dv)
void SwiGlu::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.swiglu_backward(x, dy, dx);
        if (!skip.empty()) {
            call.kernels.add(skip, dx);
        }
    }
    call.done(Op::BackwardInput);
}

}  // namespace pipetwin::exec
