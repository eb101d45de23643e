// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/linear.h"

#include <algorithm>

#include "core/model/layer_spec.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {

Linear::Linear(const SampleShape& input, const LinearOptions& options, NumberFormat format)
    : ExecutableLayer(input, with_width(input, options.outputs + options.padding), format),
      has_bias_(options.bias),
      tied_(options.tied),
      padding_(options.padding),
      cut_(options.cut),
      blocks_(options.blocks),
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
            PaddedMatrix table{
                .rows = outputs, .columns = input().width, .padding = {.rows = padding_}};
            if (cut_.divides()) {
                table.cut = cut_of_rows(outputs, input().width, cut_.devices, maker.device());
            }
            weight_ = maker.make_copy_of_table(table);
        }
        return;
    }
    const int inputs = input().width * (divides_rows() ? cut_.devices : 1);
    weight_ =
        maker.make(path + ".weight",
                   part(input().width, outputs, maker.device()),
                   {.role = ends_residual ? Role::ResidualWeight : Role::Weight, .inputs = inputs});
    if (has_bias_) {
        bias_ = maker.make(path + ".bias",
                           divides_rows() ? PaddedMatrix{.rows = 1, .columns = outputs}
                                          : part(1, outputs, maker.device()),
                           {.role = Role::Bias, .inputs = inputs});
    }
}

PaddedMatrix Linear::part(std::int64_t rows, std::int64_t columns, int device) const {
    PaddedMatrix matrix{.rows = rows, .columns = columns, .padding = {.columns = padding_}};
    if (divides_rows()) {
        matrix.cut = cut_of_rows(rows, columns, cut_.devices, device);
    } else if (divides_columns()) {
        std::array<int, 3> widths = blocks_;
        if (widths.front() == 0) {
            std::fill_n(widths.begin(), cut_.blocks, static_cast<int>(columns) / cut_.blocks);
        }
        matrix.cut = {.rows = rows, .columns = columns * cut_.devices};
        std::int64_t begin = 0;  // of the block in the whole matrix
        for (std::size_t block = 0; block < widths.size(); ++block) {
            const std::int64_t width = widths.at(block);
            matrix.cut.blocks.at(block) = {.first = begin + device * width, .count = width};
            begin += cut_.devices * width;
        }
    }
    return matrix;
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
    } else if (divides_rows()) {
        call.kernels.linear_forward(x, weight(), once(call, bias_.value), once(call, skip), y);
        call.group.all_reduce(y);
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
        const ConstView added = divides_columns() ? once(call, skip) : skip;
        if (tied_) {
            call.kernels.linear_forward(gradient, weight(), {}, added, dx);  // dy e
        } else {
            call.kernels.linear_backward_input(gradient, weight(), added, dx);
        }
        if (divides_columns()) {
            call.group.all_reduce(dx);
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
                                                  .dropout = spec.dropout,
                                                  .cut = spec.cut},
                                    format);
};

}  // namespace pipetwin::exec
