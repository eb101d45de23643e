// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/linear.h"

#include "core/model/layer_spec.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {

Linear::Linear(const SampleShape& input, const LinearOptions& options, NumberFormat format)
    : ExecutableLayer(input, with_width(input, options.outputs + options.padding), format),
      has_bias_(options.bias),
      tied_(options.tied),
      padding_(options.padding),
      dropout_(options.dropout) {}

Bytes Linear::workspace_bytes(int samples) const {
    return dropout_.workspace_bytes(output_bytes(samples));
}

void Linear::create_parameters(ParameterMaker& maker, const std::string& path, bool ends_residual) {
    using Role = ParameterMaker::Role;
    dropout_.create(maker);
    const int outputs = output().width - padding_;
    if (tied_) {
        table_ = maker.table();
        if (table_ == nullptr) {
            weight_ = maker.make_copy_of_table(
                {.rows = outputs, .columns = input().width, .padding = {.rows = padding_}});
        }
        return;
    }
    using Uses = ParameterMaker::Uses;
    const MatrixPadding padding{.columns = padding_};
    weight_ = maker.make(path + ".weight",
                         input().width,
                         outputs,
                         ends_residual ? Role::ResidualWeight : Role::Weight,
                         input().width,
                         Uses::One,
                         padding);
    if (has_bias_) {
        bias_ =
            maker.make(path + ".bias", 1, outputs, Role::Bias, input().width, Uses::One, padding);
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

void Linear::product(LayerCall& call, ConstView x, ConstView skip, View y) const {
    if (tied_) {
        call.kernels.linear_backward_input(x, weight(), skip, y);  // x e^T
    } else {
        call.kernels.linear_forward(x, weight(), bias_.value, skip, y);
    }
}

// y = skip + x w + b
void Linear::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    product(call, x, dropout_.skip_of_layer(call, skip), y);
    dropout_.forward(call, skip, y);
}

// h = x w + b,  y = h F(h)
void Linear::forward_with_gelu(LayerCall& call, GeluForm form, ConstView x, View h, View y) const {
    call.kernels.linear_gelu_forward(form, x, weight(), bias_.value, h, y);
}

// dx = skip + dy w^T
void Linear::input_gradient(LayerCall& call, ConstView gradient, ConstView skip, View dx) const {
    if (!dx.empty()) {
        if (tied_) {
            call.kernels.linear_forward(gradient, weight(), {}, skip, dx);  // dy e
        } else {
            call.kernels.linear_backward_input(gradient, weight(), skip, dx);
        }
    }
    call.done(Op::BackwardInput);
}

// dh = (dy w^T) (F(h) + h F'(h))
void Linear::input_gradient(LayerCall& call, ConstView gradient, const GeluBefore& gelu) const {
    call.kernels.linear_gelu_backward(gelu.form, gradient, weight(), gelu.h, gelu.dh);
    call.done(Op::BackwardInput);
}

// dw += x^T dy,  db += sum of the rows of dy;  tied: de += dy^T x
void Linear::weight_gradient(LayerCall& call, ConstView x, ConstView gradient) {
    if (tied_) {
        const GradientSum sum =
            table_ != nullptr ? table_->next_received() : weight_.next_gradient();
        call.kernels.linear_backward_weight(gradient, x, sum, {});
    } else {
        call.kernels.linear_backward_weight(
            x, gradient, weight_.next_gradient(), bias_.next_gradient());
    }
    call.done(Op::BackwardWeight);
}

void Linear::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    input_gradient(call, dropout_.gradient(call, dy, call.workspace), skip, dx);
}

void Linear::backward_weight(LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy) {
    weight_gradient(call, x, dropout_.gradient(call, dy, call.workspace));
}

// Both from one masked gradient; the weights first, as dx may be x itself.
void Linear::backward(
    LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy, ConstView skip, View dx) {
    const ConstView gradient = dropout_.gradient(call, dy, call.workspace);
    weight_gradient(call, x, gradient);
    input_gradient(call, gradient, skip, dx);
}

void Linear::backward_input(LayerCall& call, ConstView dy, const GeluBefore& gelu) const {
    input_gradient(call, dropout_.gradient(call, dy, call.workspace), gelu);
}

void Linear::backward(LayerCall& call, ConstView x, ConstView dy, const GeluBefore& gelu) {
    const ConstView gradient = dropout_.gradient(call, dy, call.workspace);
    weight_gradient(call, x, gradient);
    input_gradient(call, gradient, gelu);
}

const LayerMaker make_linear =
    [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
    return std::make_unique<Linear>(input,
                                    LinearOptions{.outputs = spec.outputs,
                                                  .bias = spec.bias,
                                                  .padding = spec.vocabulary_padding,
                                                  .tied = spec.tied,
                                                  .dropout = spec.dropout},
                                    format);
};

}  // namespace pipetwin::exec
