// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "exec/layers/dropout.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// Output width and variants of a linear layer.
struct LinearOptions {
    int outputs = 0;
    bool bias = true;
    int padding = 0;    ///< outputs behind these that are always 0; needs a dropout of 0
    bool tied = false;  ///< w is the token table, transposed; no bias
    double dropout = 0;
    TensorCut cut{};  ///< how devices divide w; tied, they have rows of the table each
    /// Widths of the blocks of columns of one device; none: `cut.blocks` equal ones.
    std::array<int, 3> blocks{};
};

/// y = skip + x w + b        x (n, i)   w (i, o)   b (o)   y (n, o)
/// dx = skip + dy w^T
/// dw += x^T dy,  db += sum of the rows of dy
///
/// Keeps its input. The skip is laid into y together with the bias before the product adds to it;
/// with a dropout at its end, y = skip + mask (x w + b) / (1 - p), that adds it.
///
/// Tied, w = e^T with the token table e (o, i), which it shares with the embedding of the stage, or
/// has a copy of. Its gradient of e goes where the other use's does not: both are added once, after
/// all micro-batches, so that a sum has the same bits wherever the two are.
///
/// Where devices divide w by its columns, each makes its columns of y, and dx is the sum of what
/// all make of theirs; by its rows, each reads its columns of x, and y is that sum. The first
/// device's term has the bias in it, which is whole on all devices; the skip comes last. Where they
/// divide the sequence, too, the whole of one side is there inside a call alone: x is gathered, and
/// again for its part of dw, or each device gets its rows of the sum y; likewise dx and dy.
class Linear final : public ExecutableLayer {
  public:
    Linear(const SampleShape& input, const LinearOptions& options, NumberFormat format);

    Bytes workspace_bytes(int samples) const override;
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override;
    bool has_parameters() const override { return true; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override;
    void backward(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

    /// True if the GELU behind it may be computed with it: nothing is done to its output before.
    bool can_take_gelu() const { return !tied_ && dropout_.probability() == 0; }
    /// h = x w + b, and its GELU y.
    void forward_with_gelu(LayerCall& call, GeluForm form, ConstView x, View h, View y) const;

    /// True if the gradient of the GELU before it may be computed with its own.
    bool can_take_gelu_gradient() const { return !tied_; }
    /// h, whose GELU x is what the layer reads, and the place of its gradient: dh may be x, not h.
    struct GeluBefore {
        GeluForm form = GeluForm::Exact;
        ConstView h;
        View dh;
    };
    /// The gradient of the input, through the GELU before the layer.
    void backward_input(LayerCall& call, ConstView dy, const GeluBefore& gelu) const;
    /// Both gradients, that of the input through the GELU before the layer.
    void backward(LayerCall& call, ConstView x, ConstView dy, const GeluBefore& gelu);

  private:
    /// dx = skip + gradient w^T, where `gradient` is that of x w + b.
    void input_gradient(LayerCall& call, ConstView gradient, ConstView skip, View dx) const;
    /// dh = (gradient w^T) (F(h) + h F'(h)).
    void input_gradient(LayerCall& call, ConstView gradient, const GeluBefore& gelu) const;
    void weight_gradient(LayerCall& call, ConstView x, ConstView gradient);
    ConstView weight() const { return table_ != nullptr ? table_->value : weight_.value; }
    /// x w + b on to skip.
    void product(LayerCall& call, ConstView x, ConstView skip, View y) const;

    /// Whether x has a part of the rows, of which all are needed.
    bool gathers() const { return divides_columns() && cut_.sequence; }
    /// Whether y has a part of the rows, of which all are computed.
    bool scatters() const { return divides_rows() && cut_.sequence; }
    /// A matrix of all rows, in the workspace.
    View all_rows(const LayerCall& call, std::int64_t columns) const;
    /// All rows of x, or x itself.
    ConstView whole_input(const LayerCall& call, ConstView x) const;
    /// The gradient of x w + b, of all rows.
    ConstView whole_gradient(const LayerCall& call, ConstView dy) const;
    bool divides_columns() const { return cut_.divides() && !cut_.rows; }
    bool divides_rows() const { return cut_.divides() && cut_.rows; }
    /// What a device adds to its term of a sum over devices: only the first does.
    static ConstView once(const LayerCall& call, ConstView added) {
        return call.group.index() == 0 ? added : ConstView{};
    }
    /// The part of a matrix of the model that a device has, by columns or rows.
    PaddedMatrix part(std::int64_t rows, std::int64_t columns, int device) const;

    bool has_bias_;
    bool tied_;
    int padding_;
    TensorCut cut_;
    std::array<int, 3> blocks_;
    OutputDropout dropout_;
    Parameter weight_;
    Parameter bias_;
    Parameter* table_ = nullptr;  ///< of the stage's embedding; null: the weight is its own
};

}  // namespace pipetwin::exec
