// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/layer_spec.h"
#include "exec/device/window_kernels.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// y = skip + x with factor x factor pixels for each        x (n, c)   y (n factor^2, c)
/// dx = skip + the sum of what y took from the pixel, in row order
///
/// A pixel of y is the nearest one of x or, bilinear, a mean of the nearest four: centres stay
/// where they are, and what lies beyond the outermost centres is as these (torch's align_corners =
/// False). Keeps nothing, and its backward reads no input.
class Upsample final : public ExecutableLayer {
  public:
    Upsample(const LayerSpec& spec, const SampleShape& input, NumberFormat format);

    bool backward_reads_input() const override { return false; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    UpsampleShape shape_;
};

/// y = skip + x with zeros around it; a margin below zero cuts pixels off        x (n, c)   y (m,
/// c) dx = skip + dy without what lies around x
///
/// Keeps nothing, and its backward reads no input.
class Pad final : public ExecutableLayer {
  public:
    Pad(const LayerSpec& spec, const SampleShape& input, NumberFormat format);

    bool backward_reads_input() const override { return false; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    Margins margins_;
};

}  // namespace pipetwin::exec
