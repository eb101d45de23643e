// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/layer_norm.h"

namespace pipetwin::exec {

LayerNorm::LayerNorm(const SampleShape& input, NumberFormat format)
    : ExecutableLayer(input, input, format) {}

Bytes LayerNorm::kept_bytes(int samples) const {
    return exact_bytes(rows(samples), 2);
}

void LayerNorm::create_parameters(ParameterMaker& maker,
                                  const std::string& path,
                                  bool /*ends_residual*/) {
    gain_ = maker.make(path + ".gain", 1, input().width, ParameterMaker::Role::Ones);
    bias_ = maker.make(path + ".bias", 1, input().width, ParameterMaker::Role::Zeros);
}

std::vector<Parameter*> LayerNorm::parameters() {
    return {&gain_, &bias_};
}

// y = skip + gain * z + bias
void LayerNorm::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    Tensor statistics = call.arena.allocate(format().exact(), x.rows, 2, MemoryKind::Stash);
    call.kernels.layer_norm_forward(x, gain_.value, bias_.value, y, statistics);
    if (!skip.empty()) {
        call.kernels.add(skip, y);
    }
    kept.tensors.push_back(std::move(statistics));
}

// dgain += sum of dy * z,  dbias += sum of dy,
// dx = skip + s (g - mean(g) - z mean(g * z)),  g = gain * dy
void LayerNorm::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    const ConstView statistics = kept.tensors.front();
    if (dx.empty()) {
        call.kernels.layer_norm_backward_weight(
            x, statistics, dy, gain_.next_gradient(), bias_.next_gradient());
    } else {
        call.kernels.layer_norm_backward(
            x, gain_.value, statistics, dy, skip, dx, gain_.next_gradient(), bias_.next_gradient());
    }
    call.done(Op::BackwardInput);
}

}  // namespace pipetwin::exec
