// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/image/pools.h"

#include "exec/layers/image/conv2d.h"

namespace pipetwin::exec {
namespace {

/// The window of an average: of a global one all of the image.
WindowShape average_window(LayerSpec spec, const SampleShape& input) {
    if (spec.type == LayerType::GlobalAvgPool) {
        spec.type = LayerType::AvgPool;
        spec.kernel = input.image;
    }
    return window_of(spec, input);
}

}  // namespace

MaxPool::MaxPool(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
    : ExecutableLayer(input, output_shape(spec, input), format), window_(window_of(spec, input)) {}

Bytes MaxPool::kept_bytes(int samples) const {
    return Bytes{window_.out_rows(samples) * window_.channels *
                 static_cast<std::int64_t>(size_of(place_type(window_)))};
}

// y = skip + the largest number of each window
void MaxPool::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    Tensor places = call.arena.allocate(place_type(window_), y.rows, y.columns, MemoryKind::Stash);
    call.kernels.windows().max_pool_forward(window_, x, skip, y, places);
    kept.tensors.push_back(std::move(places));
}

// dx = skip + the sum of dy of the windows whose largest number it is
void MaxPool::backward_input(
    LayerCall& call, Kept& kept, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.windows().max_pool_backward(window_, kept.tensors.front(), dy, skip, dx);
    }
    call.done(Op::BackwardInput);
}

AveragePool::AveragePool(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
    : ExecutableLayer(input, output_shape(spec, input), format),
      window_(average_window(spec, input)) {}

// y = skip + the mean of each window
void AveragePool::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    call.kernels.windows().average_pool_forward(window_, x, skip, y);
}

// dx = skip + the sum over the windows that hold the pixel of dy / divisor
void AveragePool::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.windows().average_pool_backward(window_, dy, skip, dx);
    }
    call.done(Op::BackwardInput);
}

}  // namespace pipetwin::exec
