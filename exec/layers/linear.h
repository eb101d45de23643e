#pragma once

#include "exec/layers/layer.h"

namespace pipetwin::exec {

struct LinearOptions {
    int outputs = 0;
    bool bias = true;
    bool tied = false;  ///< w is the token table, transposed; no bias
};

/// y = skip + x w + b        x (n, i)   w (i, o)   b (o)   y (n, o)
/// dx = skip + dy w^T
/// dw += x^T dy,  db += sum of the rows of dy
///
/// Keeps its input. The skip is laid into y together with the bias before the product adds to it.
///
/// Tied, w = e^T with the token table e (o, i), which it shares with the embedding of the stage, or
/// has a copy of. Its gradient of e goes where the other use's does not: both are added once, after
/// all micro-batches, so that a sum has the same bits wherever the two are.
class Linear final : public ExecutableLayer {
  public:
    Linear(const SampleShape& input, const LinearOptions& options, NumberFormat format);

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
    ConstView weight() const { return table_ != nullptr ? table_->value : weight_.value; }

    bool has_bias_;
    bool tied_;
    Parameter weight_;
    Parameter bias_;
    Parameter* table_ = nullptr;  ///< of the stage's embedding; null: the weight is its own
};

}  // namespace pipetwin::exec
