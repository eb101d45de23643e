#pragma once

#include "exec/layers/dropout.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// y[s, t] = tokens[id[s, t]] + places[t]        id (n) int32   tokens (vocabulary, width)   places
/// (context, width) dtokens[id[s, t]] += dy[s, t],  dplaces[t] += dy[s, t], in the order of the
/// rows
///
/// Token ids have no gradient. Keeps the ids. Without a context there is no position table. With a
/// dropout at its end the sum is masked. A tied table has room for the gradient of its other use.
class Embedding final : public ExecutableLayer {
  public:
    Embedding(const LayerSpec& spec, const SampleShape& input, NumberFormat format);

    Bytes workspace_bytes(int samples) const override;
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override;
    bool has_parameters() const override { return true; }

    /// Throws Error(BadInput), naming sample, position and value, if an id is outside the
    /// vocabulary.
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override;

  private:
    int vocabulary_;
    int context_;
    bool tied_;
    OutputDropout dropout_;
    Parameter tokens_;
    Parameter places_;
};

}  // namespace pipetwin::exec
