// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/layers/sequence.h"

namespace pipetwin::exec {

/// y = skip + x + f(x)        x, y (n, width), f a sequence
/// dx = skip + dy + dy df/dx
///
/// The sums cost no pass where f ends with a product and begins with a layer norm: those add the
/// skip themselves.
class Residual final : public ExecutableLayer {
  public:
    Residual(const std::vector<LayerSpec>& inner, const SampleShape& input, NumberFormat format);

    Bytes kept_bytes(int samples) const override { return branch_.kept_bytes(samples); }
    Bytes workspace_bytes(int samples) const override { return branch_.workspace_bytes(samples); }
    Bytes split_bytes(int samples) const override { return branch_.split_bytes(samples); }
    Bytes unread_bytes(int samples) const override { return branch_.unread_bytes(samples); }
    bool weight_reads_input() const override { return branch_.weight_reads_input(); }
    bool backward_reads_input() const override { return branch_.backward_reads_input(); }
    bool weight_reads_gradient() const override { return branch_.weight_reads_gradient(); }
    void free_unread(Kept& kept) const override { branch_.free_unread(kept); }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override { return branch_.parameters(); }
    bool has_parameters() const override { return branch_.has_parameters(); }
    Bytes state_bytes() const override { return branch_.state_bytes(); }
    std::vector<Parameter*> state() override { return branch_.state(); }
    std::vector<BatchMoments*> batch_moments() override { return branch_.batch_moments(); }
    void forget_batch() override { branch_.forget_batch(); }
    void commit_batch(const Kernels& kernels) override { branch_.commit_batch(kernels); }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override;
    void backward(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    Sequence branch_;
};

}  // namespace pipetwin::exec
