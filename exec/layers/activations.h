// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/layer_spec.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// y = skip + x F(x)                      x, y (n, width)
/// dx = skip + dy (F(x) + x F'(x))
///
/// exact: F(x) = (1 + erf(x / sqrt 2)) / 2,  F'(x) = exp(-x^2 / 2) / sqrt(2 pi)
/// tanh:  F(x) = (1 + tanh(v)) / 2,  F'(x) = v' (1 - tanh(v)^2) / 2,
///        v = sqrt(2 / pi) (x + 0.044715 x^3)
///
/// Keeps its input.
class Gelu final : public ExecutableLayer {
  public:
    Gelu(const SampleShape& input, GeluForm form, NumberFormat format);

    GeluForm form() const { return form_; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    GeluForm form_;
};

/// Gates g and values v side by side, s = 1 / (1 + exp(-g)) (Shazeer, arXiv 2002.05202):
///
/// y = skip + v g s                       x = g | v (n, 2 width)   y (n, width)
/// dg = dy v s (1 + g (1 - s)),  dv = dy g s,  dx = skip + (dg | dv)
///
/// Keeps its input.
class SwiGlu final : public ExecutableLayer {
  public:
    SwiGlu(const SampleShape& input, const SampleShape& output, NumberFormat format);

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
};

}  // namespace pipetwin::exec
