// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/layer_spec.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// All positions of a sample side by side, in one.
SampleShape flattened(const SampleShape& shape);

/// y = skip + x, in the shape of y: a layer that changes nothing, or gives the numbers of a sample
/// another shape.
///
/// Its backward does not read its input. Where no other layer reads that, a model with branches
/// does without this layer: what it makes is what it reads (core/plan/stage_values.h).
class Reshape final : public ExecutableLayer {
  public:
    /// Throws InternalError unless both shapes have as many numbers.
    Reshape(const SampleShape& input, const SampleShape& output, NumberFormat format);

    bool backward_reads_input() const override { return false; }
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
};

/// y = skip + (x | 0): zeros behind the columns of x        x (n, width), y (n, outputs)
/// dx = skip + the first columns of dy
///
/// Its backward does not read its input.
class PadChannels final : public ExecutableLayer {
  public:
    PadChannels(const SampleShape& input, int outputs, NumberFormat format);

    bool backward_reads_input() const override { return false; }
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
};

}  // namespace pipetwin::exec
