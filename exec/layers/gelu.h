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

}  // namespace pipetwin::exec
