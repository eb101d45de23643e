// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/layer_spec.h"
#include "exec/device/window_kernels.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// y = skip + the largest number of each channel in each window        x (n, c)   y (m, c)
/// dx = skip + the sum of dy of the windows whose largest number it is, in row order
///
/// Keeps where the largest numbers are: a byte for each number of y, four where a window has more
/// than 255 pixels. Of equal numbers the first in row order is the largest, as in torch. Its
/// backward reads no input.
class MaxPool final : public ExecutableLayer {
  public:
    MaxPool(const LayerSpec& spec, const SampleShape& input, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return kept_bytes(samples); }
    bool backward_reads_input() const override { return false; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void free_unread(Kept& kept) const override { kept.tensors.clear(); }

  private:
    WindowShape window_;
};

/// y = skip + the mean of each channel in each window        x (n, c)   y (m, c)
/// dx = skip + the sum over the windows that hold the pixel of dy / divisor, in row order
///
/// The divisor is the size of the window or, without `count_padding`, the number of its pixels that
/// lie on the image. A global pool has one window, the whole image. Keeps nothing, and its backward
/// reads no input.
class AveragePool final : public ExecutableLayer {
  public:
    AveragePool(const LayerSpec& spec, const SampleShape& input, NumberFormat format);

    bool backward_reads_input() const override { return false; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    WindowShape window_;
};

}  // namespace pipetwin::exec
