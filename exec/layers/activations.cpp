#include "exec/layers/activations.h"

namespace pipetwin::exec {

Gelu::Gelu(const SampleShape& input, NumberFormat format) : ExecutableLayer(input, input, format) {}

// y = skip + x Phi(x)
void Gelu::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    call.kernels.gelu_forward(x, y);
    if (!skip.empty()) {
        call.kernels.add(skip, y);
    }
}

// dx = skip + dy (Phi(x) + x phi(x))
void Gelu::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.gelu_backward(x, dy, dx);
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
