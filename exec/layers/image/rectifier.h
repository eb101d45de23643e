// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/layer_spec.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// y = skip + (x where x > 0, else slope x)        x, y (n, width); relu has slope 0
/// dx = skip + (dy where x > 0, else slope dy)
///
/// Keeps its input, or reads its output in place of that: y > 0 where x > 0. So its backward takes
/// either as x, and dy may lie in the place of dx.
class Rectifier final : public ExecutableLayer {
  public:
    Rectifier(const SampleShape& input, double slope, NumberFormat format);

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    double slope_;
};

}  // namespace pipetwin::exec
