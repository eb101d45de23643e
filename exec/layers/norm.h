// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// What norms have in common: a gain and a bias for each column, or some of both. I adds to their
/// gradients, too: these take what dx takes, and W has nothing to read. They are added in the order
/// of the micro-batches' Is.
class Norm : public ExecutableLayer {
  public:
    /// Which of both a norm has.
    enum class Has { Nothing, Gain, GainAndBias };
    /// `divides_rows`: each of several devices has a part of the rows.
    Norm(const SampleShape& input, Has has, NumberFormat format, bool divides_rows = false)
        : ExecutableLayer(input, input, format), has_(has), divides_rows_(divides_rows) {}

    bool weight_reads_input() const override { return false; }
    bool weight_reads_gradient() const override { return false; }
    bool has_parameters() const override { return has_ != Has::Nothing; }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool /*ends_residual*/) override {
        if (has_ != Has::Nothing) {
            gain_ = maker.make(path + ".gain", 1, input().width, ParameterMaker::Role::Ones);
        }
        if (has_ == Has::GainAndBias) {
            bias_ = maker.make(path + ".bias", 1, input().width, ParameterMaker::Role::Zeros);
        }
        gain_.is_partial = bias_.is_partial = divides_rows_;
    }
    std::vector<Parameter*> parameters() override {
        return has_ == Has::Nothing ? std::vector<Parameter*>{}
               : has_ == Has::Gain  ? std::vector{&gain_}
                                    : std::vector{&gain_, &bias_};
    }
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) final {
        gradients(call, kept, {.x = x, .dy = dy, .skip = skip, .dx = dx});
        call.done(Op::BackwardInput);
    }

  protected:
    Parameter& gain() { return gain_; }
    Parameter& bias() { return bias_; }
    /// What kernels take for the gradients of a norm over rows.
    NormGradients over_rows(const LayerCall& call, const Kept& kept, const Operands& of) {
        return {.x = of.x,
                .statistics = kept.tensors.front(),
                .gain = gain_.value,
                .dy = of.dy,
                .skip = of.skip,
                .dx = of.dx,
                .dgain = call.kernels.begun(gain_.next_gradient()),
                .dbias = call.kernels.begun(bias_.next_gradient())};
    }

  private:
    /// Adds to the gradients of gain and bias, and computes dx, unless that is empty.
    virtual void gradients(const LayerCall& call, const Kept& kept, const Operands& of) = 0;

    Has has_;
    bool divides_rows_;
    Parameter gain_;
    Parameter bias_;
};

}  // namespace pipetwin::exec
