// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/rms_norm.h"

namespace pipetwin::exec {

RmsNorm::RmsNorm(const SampleShape& input, double epsilon, NumberFormat format)
    : ExecutableLayer(input, input, format), epsilon_(epsilon) {}

Bytes RmsNorm::kept_bytes(int samples) const {
    return exact_bytes(rows(samples), 1);
}

void RmsNorm::create_parameters(ParameterMaker& maker,
                                const std::string& path,
                                bool /*ends_residual*/) {
    gain_ = maker.make(path + ".gain", 1, input().width, ParameterMaker::Role::Ones);
}

// y = skip + gain * z
void RmsNorm::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    Tensor roots = call.arena.allocate(format().exact(), x.rows, 1, MemoryKind::Stash);
    call.kernels.rms_norm_forward(x, gain_.value, epsilon_, y, roots);
    if (!skip.empty()) {
        call.kernels.add(skip, y);
    }
    kept.tensors.push_back(std::move(roots));
}

// dgain += sum of dy * z,
// dx = skip + s (g - z mean(g * z)),  g = gain * dy
void RmsNorm::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    const ConstView roots = kept.tensors.front();
    if (dx.empty()) {
        call.kernels.rms_norm_backward_weight(x, roots, dy, gain_.next_gradient());
    } else {
        call.kernels.rms_norm_backward(x, gain_.value, roots, dy, skip, dx, gain_.next_gradient());
    }
    call.done(Op::BackwardInput);
}

}  // namespace pipetwin::exec
