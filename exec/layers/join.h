#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// The sum of several outputs of one shape, or several outputs side by side. It has no parameters,
/// keeps nothing, and its backward reads nothing but a gradient.
///
///     add      y = x_0 + x_1 + ...      dx_k = dy
///     concat   y = (x_0 | x_1 | ...)    dx_k = the columns of dy that are x_k's
class Join final : public ExecutableLayer {
  public:
    /// `inputs`: the shapes of what it joins, in the order of the columns. `type`: Add or Concat.
    Join(LayerType type,
         const std::vector<SampleShape>& inputs,
         const SampleShape& output,
         NumberFormat format);

    /// y = the join of the inputs, in their order.
    void join(const LayerCall& call, std::span<const ConstView> inputs, View y) const;
    /// dx = the gradient of input number `input`; it is added to dx with `adds`.
    void input_gradient(
        const LayerCall& call, std::size_t input, ConstView dy, View dx, bool adds) const;

    /// A join has several inputs: these throw InternalError.
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    bool is_sum_;
    std::vector<std::int64_t> widths_;  ///< [input]
    std::vector<std::int64_t> begins_;  ///< [input]: its first column of the output
};

}  // namespace pipetwin::exec
