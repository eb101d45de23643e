#include "exec/layers/swiglu.h"

namespace pipetwin::exec {

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
