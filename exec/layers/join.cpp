#include "exec/layers/join.h"

#include "core/base/error.h"

namespace pipetwin::exec {

Join::Join(LayerType type,
           const std::vector<SampleShape>& inputs,
           const SampleShape& output,
           NumberFormat format)
    : ExecutableLayer(inputs.front(), output, format), is_sum_(type == LayerType::Add) {
    std::int64_t begin = 0;
    for (const SampleShape& input : inputs) {
        widths_.push_back(input.width);
        begins_.push_back(is_sum_ ? 0 : begin);
        begin += input.width;
    }
}

// y = x_0 + x_1 + ...,  or  y = (x_0 | x_1 | ...)
void Join::join(const LayerCall& call, std::span<const ConstView> inputs, View y) const {
    for (std::size_t input = 0; input < inputs.size(); ++input) {
        call.kernels.copy_columns({.from = 0,
                                   .to = begins_[input],
                                   .count = widths_[input],
                                   .adds = is_sum_ && input > 0},
                                  inputs[input],
                                  y);
    }
}

// dx_k = dy,  or  dx_k = the columns of dy that are x_k's
void Join::input_gradient(
    const LayerCall& call, std::size_t input, ConstView dy, View dx, bool adds) const {
    call.kernels.copy_columns(
        {.from = begins_[input], .to = 0, .count = widths_[input], .adds = adds}, dy, dx);
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
