// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// Per row, with m = mean(x), s = 1 / sqrt(mean((x - m)^2) + 1e-5), z = (x - m) s:
///
/// y = skip + gain * z + bias        x, y (n, width)   gain, bias (width)
/// dx = skip + s (g - mean(g) - z mean(g * z)),  g = gain * dy
/// dgain += sum of dy * z,  dbias += sum of dy
///
/// Keeps its input, m and s. I adds to the gradients of gain and bias, too: they take what dx
/// takes, and W has nothing to read. They are added in the order of the micro-batches' Is.
class LayerNorm final : public ExecutableLayer {
  public:
    LayerNorm(const SampleShape& input, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return kept_bytes(samples); }
    bool weight_reads_input() const override { return false; }
    bool weight_reads_gradient() const override { return false; }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override;
    bool has_parameters() const override { return true; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void free_unread(Kept& kept) const override { kept.tensors.clear(); }

  private:
    Parameter gain_;
    Parameter bias_;
};

}  // namespace pipetwin::exec
