#include "exec/layers/join.h"

#include "core/base/error.h"

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

void Join::join_backward_weight(LayerCall& /*call*/,
                                Kept& /*kept*/,
                                std::span<const ConstView> /*x*/,
                                ConstView /*dy*/) {}

void Join::join_backward(LayerCall& call,
                         Kept& kept,
                         std::span<const ConstView> x,
                         ConstView dy,
                         std::span<const InputGradient> dx) {
    join_backward_input(call, kept, x, dy, dx);
}

void Join::forward(
    LayerCall& /*call*/, ConstView /*x*/, ConstView /*skip*/, View /*y*/, Kept& /*kept*/) {
    throw InternalError("a join has several inputs");
}

void Join::backward_input(LayerCall& /*call*/,
                          Kept& /*kept*/,
                          ConstView /*x*/,
                          ConstView /*dy*/,
                          ConstView /*skip*/,
                          View /*dx*/) {
    throw InternalError("a join has several inputs");
}

}  // namespace pipetwin::exec
