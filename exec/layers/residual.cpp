// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/residual.h"

#include "core/base/error.h"

namespace pipetwin::exec {
namespace {

void add(const LayerCall& call, ConstView skip, View y) {
    if (!skip.empty() && !y.empty()) {
        call.kernels.add(skip, y);
    }
}

}  // namespace

Residual::Residual(const std::vector<LayerSpec>& inner,
                   const SampleShape& input,
                   NumberFormat format)
    : ExecutableLayer(input, input, format), branch_(inner, input, format) {
    PIPETWIN_EXPECT(branch_.output() == input,
                    "the branch of a residual ends with the shape it began with");
}

void Residual::create_parameters(ParameterMaker& maker,
                                 const std::string& path,
                                 bool /*ends_residual*/) {
    branch_.create_parameters(maker, path, true);
}

// y = x + f(x)
void Residual::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    branch_.forward(call, x, x, y, kept);
    add(call, skip, y);
}

// dx = dy + dy df/dx
void Residual::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    branch_.backward_input(call, kept, x, dy, dy, dx);
    add(call, skip, dx);
}

void Residual::backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) {
    branch_.backward_weight(call, kept, x, dy);
}

void Residual::backward(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    branch_.backward(call, kept, x, dy, dy, dx);
    add(call, skip, dx);
}

}  // namespace pipetwin::exec
