#pragma once

#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// y = skip + x Phi(x),  Phi(x) = (1 + erf(x / sqrt 2)) / 2        x, y (n, width)
/// dx = skip + dy (Phi(x) + x phi(x)),  phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
///
/// Keeps its input.
class Gelu final : public ExecutableLayer {
  public:
    Gelu(const SampleShape& input, NumberFormat format);

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
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
