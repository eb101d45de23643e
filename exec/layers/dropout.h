// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/layer_spec.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// Drops numbers of a matrix in every step, drawn from (seed, unit of the model, number of the
/// dropout in the unit, step, sample in the mini-batch, number in the sample): no mask is kept, as
/// recompute and backward draw it again. Nothing is dropped in an evaluation.
class Dropping {
  public:
    /// `rises`: the probability is that times `LayerCall::progress`.
    /// `parts`: devices that have as many of the rows each.
    explicit Dropping(double probability, bool rises = false, int parts = 1)
        : probability_(probability), rises_(rises), parts_(parts) {}

    /// Takes the unit's next random stream; called in the order of the layers.
    void create(ParameterMaker& maker);

    /// True if numbers are dropped in this call.
    bool acts(const LayerCall& call) const { return probability_ > 0 && !call.evaluation; }
    /// y = skip + mask x / (1 - p); in an evaluation y = skip + x.
    void apply(const LayerCall& call, ConstView x, ConstView skip, View y) const;

    /// Drops channels or samples whole, else as `apply`: `numbers` decisions for each
    /// sample, one for each column or 1.
    void apply_to_columns(
        const LayerCall& call, std::int64_t numbers, ConstView x, ConstView skip, View y) const;

    double probability() const { return probability_; }

  private:
    DropoutMask mask(const LayerCall& call, std::int64_t numbers) const;

    double probability_;
    bool rises_;
    int parts_;
    RandomStream random_{0};
};

/// The dropout at the end of a layer f: y = skip + mask f(x) / (1 - p). Its gradient takes scratch
/// of the size of y.
class OutputDropout {
  public:
    /// `parts`: devices that have as many of y's rows each.
    explicit OutputDropout(double probability, int parts = 1)
        : dropping_(probability, false, parts) {}

    /// Takes the unit's next random stream: streams depend on the order of these calls.
    void create(ParameterMaker& maker) { dropping_.create(maker); }

    /// Scratch bytes for a gradient of y, which has `gradient` bytes; 0 without dropout.
    Bytes workspace_bytes(Bytes gradient) const {
        return dropping_.probability() > 0 ? gradient : Bytes{};
    }

    double probability() const { return dropping_.probability(); }
    /// The skip that f itself adds: all of it where nothing is dropped, else nothing.
    ConstView skip_of_layer(const LayerCall& call, ConstView skip) const {
        return dropping_.acts(call) ? ConstView{} : skip;
    }
    /// y = skip + mask y / (1 - p), on the output of f; called behind f.
    void forward(const LayerCall& call, ConstView skip, View y) const;
    /// The gradient of f's output, in `place` or dy itself.
    ConstView gradient(const LayerCall& call, ConstView dy, std::byte* place) const;

  private:
    Dropping dropping_;
};

}  // namespace pipetwin::exec
