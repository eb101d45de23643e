#pragma once

#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// y = skip + x w + b        x (n, i)   w (i, o)   b (o)   y (n, o)
/// dx = skip + dy w^T
/// dw += x^T dy,  db += sum of the rows of dy
///
/// Keeps its input. The skip is laid into y together with the bias before the product adds to it.
class Linear final : public ExecutableLayer {
  public:
    Linear(const SampleShape& input, int outputs, bool bias, NumberFormat format);

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
    bool has_bias_;
    Parameter weight_;
    Parameter bias_;
};

}  // namespace pipetwin::exec
