#include "exec/layers/linear.h"

namespace pipetwin::exec {

Linear::Linear(const SampleShape& input, const LinearOptions& options, NumberFormat format)
    : ExecutableLayer(input,
                      {.token_ids = false, .positions = input.positions, .width = options.outputs},
                      format),
      has_bias_(options.bias),
      tied_(options.tied) {}

void Linear::create_parameters(ParameterMaker& maker, const std::string& path, bool ends_residual) {
    using Role = ParameterMaker::Role;
    if (tied_) {
        table_ = maker.table();
        if (table_ == nullptr) {
            weight_ = maker.make_copy_of_table(output().width, input().width);
        }
        return;
    }
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
    std::vector<Parameter*> all;
    if (table_ == nullptr) {
        all.push_back(&weight_);
    }
    if (has_bias_) {
        all.push_back(&bias_);
    }
    return all;
}

// y = skip + x w + b;  tied: y = skip + x e^T
void Linear::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    if (tied_) {
        call.kernels.linear_backward_input(x, weight(), skip, y);
    } else {
        call.kernels.linear_forward(x, weight(), bias_.value, skip, y);
    }
}

// dx = skip + dy w^T;  tied: dx = skip + dy e
void Linear::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        if (tied_) {
            call.kernels.linear_forward(dy, weight(), {}, skip, dx);
        } else {
            call.kernels.linear_backward_input(dy, weight(), skip, dx);
        }
    }
    call.done(Op::BackwardInput);
}

// dw += x^T dy,  db += sum of the rows of dy;  tied: de += dy^T x
void Linear::backward_weight(LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy) {
    if (tied_) {
        Tensor& sum = table_ != nullptr ? table_->received : weight_.gradient;
        call.kernels.linear_backward_weight(dy, x, sum, {});
    } else {
        call.kernels.linear_backward_weight(x, dy, weight_.gradient, bias_.gradient);
    }
    call.done(Op::BackwardWeight);
}

}  // namespace pipetwin::exec
