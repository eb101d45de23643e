// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model/layer_spec.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// The sum of several outputs of one shape, or several outputs side by side. It has no parameters,
/// keeps nothing, and its backward reads nothing but a gradient.
///
///     add      y = x_0 + x_1 + ...      dx_k = dy
///     concat   y = (x_0 | x_1 | ...)    dx_k = the columns of dy that are x_k's
class Join final : public JoiningLayer {
  public:
    /// `inputs`: the shapes of what it joins, in the order of the columns. `type`: Add or Concat.
    Join(LayerType type,
         const std::vector<SampleShape>& inputs,
         const SampleShape& output,
         NumberFormat format);

    /// True for a sum, whose gradient is that of each input.
    bool is_sum() const { return is_sum_; }

    bool backward_reads(std::size_t /*input*/) const override { return false; }
    bool weight_reads(std::size_t /*input*/) const override { return false; }
    void join(LayerCall& call, std::span<const ConstView> x, View y, Kept& kept) override;
    void join_backward_input(LayerCall& call,
                             Kept& kept,
                             std::span<const ConstView> x,
                             ConstView dy,
                             std::span<const InputGradient> dx) override;

  private:
    bool is_sum_;
    std::vector<std::int64_t> widths_;  ///< [input]
    std::vector<std::int64_t> begins_;  ///< [input]: its first column of the output
};

/// Some neighbouring positions of each sample, from `begin` on:
///
///     y[s, i] = skip[s, i] + x[s, begin + i]        x (n, width)   y (samples * positions, width)
///     dx[s, begin + i] = skip[s, begin + i] + dy[s, i],  skip elsewhere
///
/// Its backward does not read its input.
class Positions final : public ExecutableLayer {
  public:
    Positions(int begin, const SampleShape& input, const SampleShape& output, NumberFormat format);

    bool backward_reads_input() const override { return false; }
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    int begin_;
};

}  // namespace pipetwin::exec
