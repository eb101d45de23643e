// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <span>
#include <vector>

#include "core/model/inner_layers.h"
#include "core/model/layer_spec.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {
namespace {

/// The sum of several outputs of one shape, or several outputs side by side. It has no parameters,
/// keeps nothing, and its backward reads nothing but a gradient.
///
///     add      y = x_0 + x_1 + ...      dx_k = dy
///     concat   y = (x_0 | x_1 | ...)    dx_k = the columns of dy that are x_k's
class Join final : public JoiningLayer {
  public:
    Join(const LayerSpec& spec, const std::vector<SampleShape>& inputs, NumberFormat format)
        : JoiningLayer(inputs, joined_output(spec, inputs), format),
          is_sum_(spec.type == LayerType::Add) {
        std::int64_t begin = 0;
        for (const SampleShape& input : inputs) {
            widths_.push_back(input.width);
            begins_.push_back(is_sum_ ? 0 : begin);
            begin += input.width;
        }
    }

    bool is_sum() const override { return is_sum_; }
    bool backward_reads(std::size_t /*input*/) const override { return false; }
    bool weight_reads(std::size_t /*input*/) const override { return false; }

    void join(LayerCall& call, std::span<const ConstView> x, View y, Kept& /*kept*/) override {
        for (std::size_t input = 0; input < x.size(); ++input) {
            call.kernels.copy_columns({.from = 0,
                                       .to = begins_[input],
                                       .count = widths_[input],
                                       .adds = is_sum_ && input > 0},
                                      x[input],
                                      y);
        }
    }
    void join_backward_input(LayerCall& call,
                             Kept& /*kept*/,
                             std::span<const ConstView> /*x*/,
                             ConstView dy,
                             std::span<const InputGradient> dx) override {
        for (std::size_t input = 0; input < dx.size(); ++input) {
            if (!dx[input].dx.empty()) {
                call.kernels.copy_columns({.from = begins_[input],
                                           .to = 0,
                                           .count = widths_[input],
                                           .adds = dx[input].adds},
                                          dy,
                                          dx[input].dx);
            }
        }
    }

  private:
    bool is_sum_;
    std::vector<std::int64_t> widths_;  ///< [input]
    std::vector<std::int64_t> begins_;  ///< [input]: its first column of the output
};

}  // namespace

const JoiningMaker make_join = made_of_several<Join>;

}  // namespace pipetwin::exec
