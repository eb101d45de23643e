#include "exec/layers/linear.h"

namespace pipetwin::exec {

Linear::Linear(const SampleShape& input, int outputs, bool bias, NumberFormat format)
    : ExecutableLayer(
          input, {.token_ids = false, .positions = input.positions, .width = outputs}, format),
      has_bias_(bias) {}

void Linear::create_parameters(ParameterMaker& maker, const std::string& path, bool ends_residual) {
    using Role = ParameterMaker::Role;
    weight_ = maker.make(path + ".weight",
                         input().width,
                         output().width,
                         ends_residual ? Role::ResidualWeight : Role::Weight,
                         input().width);
    if (has_bias_) {
        bias_ = maker.make(path + ".bias", 1, output().width, Role::Bias, input().width);
    }
}

std::vector<Parameter*> Linear::parameters() {
    std::vector<Parameter*> all{&weight_};
    if (has_bias_) {
        all.push_back(&bias_);
    }
    return all;
}

// y = skip + x w + b
void Linear::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    call.kernels.linear_forward(x, weight_.value, bias_.value, skip, y);
}

// dx = skip + dy w^T
void Linear::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.linear_backward_input(dy, weight_.value, skip, dx);
    }
    call.done(Op::BackwardInput);
}

// dw += x^T dy,  db += sum of the rows of dy
void Linear::backward_weight(LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy) {
    call.kernels.linear_backward_weight(x, dy, weight_.gradient, bias_.gradient);
    call.done(Op::BackwardWeight);
}

}  // namespace pipetwin::exec
