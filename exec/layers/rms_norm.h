// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// Per row, with s = 1 / sqrt(mean(x^2) + epsilon), z = x s (Zhang and Sennrich, arXiv 1910.07467):
///
/// y = skip + gain * z        x, y (n, width)   gain (width)
/// dx = skip + s (g - z mean(g * z)),  g = gain * dy
/// dgain += sum of dy * z
///
/// Keeps its input and s. I adds to the gradient of the gain, too, as in LayerNorm.
class RmsNorm final : public ExecutableLayer {
  public:
    RmsNorm(const SampleShape& input, double epsilon, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return kept_bytes(samples); }
    bool weight_reads_input() const override { return false; }
    bool weight_reads_gradient() const override { return false; }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override { return {&gain_}; }
    bool has_parameters() const override { return true; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void free_unread(Kept& kept) const override { kept.tensors.clear(); }

  private:
    double epsilon_;
    Parameter gain_;
};

}  // namespace pipetwin::exec
