// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/image/rearrangement.h"

#include "core/base/error.h"
#include "core/model/layer_spec.h"
#include "exec/device/column_kernels.h"

namespace pipetwin::exec {
namespace {

SampleShape with_width(SampleShape shape, int width) {
    shape.width = width;
    return shape;
}

/// The numbers of x, and of skip where it is not empty.
void copy_with_skip(const LayerCall& call, ConstView x, ConstView skip, View y) {
    call.kernels.columns().copy(x, y);
    if (!skip.empty()) {
        call.kernels.add(skip, y);
    }
}

}  // namespace

SampleShape flattened(const SampleShape& shape) {
    return {.positions = 1, .width = shape.positions * shape.width};
}

Reshape::Reshape(const SampleShape& input, const SampleShape& output, NumberFormat format)
    : ExecutableLayer(input, output, format) {
    PIPETWIN_EXPECT(std::int64_t{input.positions} * input.width ==
                        std::int64_t{output.positions} * output.width,
                    "a shape of as many numbers");
}

// y = skip + x
void Reshape::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    copy_with_skip(call, x, skip, y);
}

// dx = skip + dy
void Reshape::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        copy_with_skip(call, dy, skip, dx);
    }
    call.done(Op::BackwardInput);
}

PadChannels::PadChannels(const SampleShape& input, int outputs, NumberFormat format)
    : ExecutableLayer(input, with_width(input, outputs), format) {
    PIPETWIN_EXPECT(outputs >= input.width, "columns are added");
}

// y = skip + (x | 0)
void PadChannels::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    if (skip.empty()) {
        call.kernels.fill_zero(y);
    } else {
        call.kernels.columns().copy(skip, y);
    }
    call.kernels.copy_columns(
        {.from = 0, .to = 0, .count = x.columns, .adds = !skip.empty()}, x, y);
}

// dx = skip + the first columns of dy
void PadChannels::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.copy_columns({.from = 0, .to = 0, .count = dx.columns, .adds = false}, dy, dx);
        if (!skip.empty()) {
            call.kernels.add(skip, dx);
        }
    }
    call.done(Op::BackwardInput);
}

}  // namespace pipetwin::exec
