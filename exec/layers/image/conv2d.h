// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/layer_spec.h"
#include "exec/device/window_kernels.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// The window of a convolution or a pool that reads images of shape `input`. Throws Error(BadInput)
/// where it does not fit.
WindowShape window_of(const LayerSpec& spec, const SampleShape& input);

/// y = skip + x * w + b        x (n, c)   w (kh kw c / groups, o)   b (o)   y (m, o)
/// dx = skip + the sum over the windows that hold the pixel of dy w^T
/// dw += x^T dy, with what the windows read as x,  db += sum of the rows of dy
///
/// n and m are the pixels of all samples before and behind it. Keeps its input, and nothing else.
/// Weights begin as those of torch's Conv2d, uniform in +-1/sqrt(kh kw c / groups), biases too;
/// with `he_normal` normal with deviation sqrt(2 / (kh kw o)).
class Conv2d final : public ExecutableLayer {
  public:
    Conv2d(const LayerSpec& spec, const SampleShape& input, NumberFormat format);

    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override;
    bool has_parameters() const override { return true; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override;

  private:
    WindowShape window_;
    bool has_bias_;
    bool is_he_normal_;
    Parameter weight_;
    Parameter bias_;
};

}  // namespace pipetwin::exec
