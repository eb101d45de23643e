// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/join.h"

#include "core/base/error.h"
#include "core/model/layer_spec.h"

namespace pipetwin::exec {

Join::Join(LayerType type,
           const std::vector<SampleShape>& inputs,
           const SampleShape& output,
           NumberFormat format)
    : JoiningLayer(inputs, output, format), is_sum_(type == LayerType::Add) {
    std::int64_t begin = 0;
    for (const SampleShape& input : inputs) {
        widths_.push_back(input.width);
        begins_.push_back(is_sum_ ? 0 : begin);
        begin += input.width;
    }
}

// y = x_0 + x_1 + ...,  or  y = (x_0 | x_1 | ...)
void Join::join(LayerCall& call, std::span<const ConstView> x, View y, Kept& /*kept*/) {
    for (std::size_t input = 0; input < x.size(); ++input) {
        call.kernels.copy_columns({.from = 0,
                                   .to = begins_[input],
                                   .count = widths_[input],
                                   .adds = is_sum_ && input > 0},
                                  x[input],
                                  y);
    }
}

// dx_k = dy,  or  dx_k = the columns of dy that are x_k's
void Join::join_backward_input(LayerCall& call,
                               Kept& /*kept*/,
                               std::span<const ConstView> /*x*/,
                               ConstView dy,
                               std::span<const InputGradient> dx) {
    for (std::size_t input = 0; input < dx.size(); ++input) {
        if (!dx[input].dx.empty()) {
            call.kernels.copy_columns(
                {.from = begins_[input], .to = 0, .count = widths_[input], .adds = dx[input].adds},
                dy,
                dx[input].dx);
        }
    }
}

namespace {

/// All positions of a sample side by side, in one row.
template <class AnyView>
AnyView by_sample(AnyView matrix, int samples) {
    return {matrix.data, matrix.dtype, samples, matrix.rows * matrix.columns / samples};
}

}  // namespace

Positions::Positions(int begin,
                     const SampleShape& input,
                     const SampleShape& output,
                     NumberFormat format)
    : ExecutableLayer(input, output, format), begin_(begin) {}

// y[s, i] = skip[s, i] + x[s, begin + i]
void Positions::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    const std::int64_t width = input().width;
    call.kernels.copy_columns(
        {.from = begin_ * width, .to = 0, .count = output().positions * width, .adds = false},
        by_sample(x, call.samples),
        by_sample(y, call.samples));
    if (!skip.empty()) {
        call.kernels.add(skip, y);
    }
}

// dx[s, begin + i] = skip[s, begin + i] + dy[s, i]
void Positions::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        const std::int64_t width = input().width;
        call.kernels.fill_zero(dx);
        call.kernels.copy_columns(
            {.from = 0, .to = begin_ * width, .count = output().positions * width, .adds = false},
            by_sample(dy, call.samples),
            by_sample(dx, call.samples));
        if (!skip.empty()) {
            call.kernels.add(skip, dx);
        }
    }
    call.done(Op::BackwardInput);
}

}  // namespace pipetwin::exec
