// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/linear.h"

#include <algorithm>

#include "core/model/layer_spec.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {

namespace {

/// With all rows of an input of which devices have parts, or parts of an output.
SampleShape linear_output(SampleShape shape, const LinearOptions& options) {
    if (options.cut.sequence) {
        shape.positions = options.cut.rows ? shape.positions / options.cut.devices
                                           : shape.positions * options.cut.devices;
    }
    return with_width(shape, options.outputs + options.padding);
}

}  // namespace

Linear::Linear(const SampleShape& input, const LinearOptions& options, NumberFormat format)
    : ExecutableLayer(input, linear_output(input, options), format),
      has_bias_(options.bias),
      tied_(options.tied),
      padding_(options.padding),
      cut_(options.cut),
      blocks_(options.blocks),
      dropout_(options.dropout,
               options.cut.sequence && options.cut.rows ? options.cut.devices : 1) {}

Bytes Linear::workspace_bytes(int samples) const {
    const Bytes gradient = dropout_.workspace_bytes(output_bytes(samples));
    const std::int64_t all = cut_.devices * rows(samples);
    return gathers()    ? gradient + matrix_bytes(all, input().width)
           : scatters() ? gradient + matrix_bytes(rows(samples), output().width)
                        : gradient;
}

View Linear::all_rows(const LayerCall& call, std::int64_t columns) const {
    std::byte* const place =
        call.workspace + dropout_.workspace_bytes(output_bytes(call.samples)).count;
    const std::int64_t own = rows(call.samples);
    return {place, real(), gathers() ? cut_.devices * own : own, columns};
}

ConstView Linear::whole_input(const LayerCall& call, ConstView x) const {
    if (!gathers()) {
        return x;
    }
    const View all = all_rows(call, x.columns);
    call.group.all_gather(x, all);
    return all;
}

ConstView Linear::whole_gradient(const LayerCall& call, ConstView dy) const {
    const ConstView gradient = dropout_.gradient(call, dy, call.workspace);
    if (!scatters()) {
        return gradient;
    }
    const View all = all_rows(call, dy.columns);
    call.group.all_gather(gradient, all);
    return all;
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
        matrix.cut.rows = rows;
        for (std::size_t block = 0; block < widths.size(); ++block) {
            const std::int64_t width = widths.at(block);
            const int sharers = block == 0 ? 1 : cut_.sharers;
            matrix.cut.blocks.at(block) = {.first = matrix.cut.columns + device / sharers * width,
                                           .count = width};
            matrix.cut.columns += cut_.devices / sharers * width;
        }
        if (device % cut_.sharers != 0) {
            matrix.cut.counted = widths.front();
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
        call.kernels.linear_backward_input(whole_input(call, x), weight(), skip, y);  // x e^T
    } else if (scatters()) {
        const View terms = all_rows(call, y.columns);
        call.kernels.linear_forward(x, weight(), once(call, bias_.value), {}, terms);
        call.group.reduce_scatter(terms, skip, y);
    } else if (divides_rows()) {
        call.kernels.linear_forward(x, weight(), once(call, bias_.value), {}, y);
        call.group.all_reduce(y, skip);
    } else {
        call.kernels.linear_forward(whole_input(call, x), weight(), bias_.value, skip, y);
    }
}

// y = skip + x w + b
void Linear::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    product(call, x, dropout_.skip_of_layer(call, skip), y);
    dropout_.forward(call, skip, y);
}

// h = x w + b,  y = h F(h)
void Linear::forward_with_gelu(LayerCall& call, GeluForm form, ConstView x, View h, View y) const {
    call.kernels.linear_gelu_forward(form, whole_input(call, x), weight(), bias_.value, h, y);
}

// dx = skip + dy w^T
void Linear::input_gradient(LayerCall& call, ConstView gradient, ConstView skip, View dx) const {
    if (dx.empty()) {
        return call.done(Op::BackwardInput);
    }
    const auto product = [&](ConstView added, View to) {
        if (tied_) {
            call.kernels.linear_forward(gradient, weight(), {}, added, to);  // dy e
        } else {
            call.kernels.linear_backward_input(gradient, weight(), added, to);
        }
    };
    if (gathers()) {
        const View terms = all_rows(call, dx.columns);
        product({}, terms);
        call.group.reduce_scatter(terms, skip, dx);
    } else if (divides_columns()) {
        product({}, dx);
        call.group.all_reduce(dx, skip);
    } else {
        product(skip, dx);
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
    x = whole_input(call, x);
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
    input_gradient(call, whole_gradient(call, dy), skip, dx);
}

void Linear::backward_weight(LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy) {
    weight_gradient(call, x, whole_gradient(call, dy));
}

// Both from one masked gradient; the weights first, as dx may be x itself.
void Linear::backward(
    LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy, ConstView skip, View dx) {
    const ConstView gradient = whole_gradient(call, dy);
    weight_gradient(call, x, gradient);
    input_gradient(call, gradient, skip, dx);
}

void Linear::backward_input(LayerCall& call, ConstView dy, const GeluBefore& gelu) const {
    input_gradient(call, whole_gradient(call, dy), gelu);
}

void Linear::backward(LayerCall& call, ConstView x, ConstView dy, const GeluBefore& gelu) {
    const ConstView gradient = whole_gradient(call, dy);
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
