// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/image/rectifier.h"

#include "core/model/layer_spec.h"
#include "exec/device/column_kernels.h"

namespace pipetwin::exec {

Rectifier::Rectifier(const SampleShape& input, double slope, NumberFormat format)
    : ExecutableLayer(input, input, format), slope_(slope) {}

// y = skip + (x where x > 0, else slope x)
void Rectifier::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    call.kernels.columns().rectify(slope_, x, y);
    if (!skip.empty()) {
        call.kernels.add(skip, y);
    }
}

// dx = skip + (dy where x > 0, else slope dy)
void Rectifier::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.columns().rectify_backward(slope_, x, dy, dx);
        if (!skip.empty()) {
            call.kernels.add(skip, dx);
        }
    }
    call.done(Op::BackwardInput);
}

}  // namespace pipetwin::exec
