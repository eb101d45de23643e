#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/tensor.h"

namespace pipetwin::exec {

/// Sizes of one self-attention: `samples` sequences of `positions`, `heads` heads that share the
/// width.
struct AttentionShape {
    int samples = 0;
    int positions = 0;
    int heads = 0;
    int width = 0;  ///< heads * size of a head
};

/// Elements that the backward of an attention works in: one head's dS and dQ.
constexpr std::int64_t attention_scratch(const AttentionShape& shape) {
    return std::int64_t{shape.positions} * (shape.positions + shape.width / shape.heads);
}

/// What one update of a parameter needs; see exec/optimizer.h for the formulas.
struct UpdateView {
    View value;
    ConstView gradient;
    View first;  ///< empty where the optimizer has no state
    View second;
};

struct AdamFactors {
    double beta1 = 0;
    double beta2 = 0;
    double epsilon = 0;
    double rate = 0;          ///< learning rate / (1 - beta1^step)
    double root_scale = 0;    ///< 1 / sqrt(1 - beta2^step)
    double decay_factor = 1;  ///< 1 - learning rate * weight decay
};

/// The mathematics of a device: every product, reduction and formula that layers and optimizers are
/// written in.
///
/// Names: x input, y output, w weights, b bias, dx the gradient of the loss by x. All matrices are
/// row-major; n rows are the positions of all samples of a micro-batch. fp32 and fp64; all real
/// operands of one call have one type. `skip` may be empty; else it is added to the result, which
/// is how a residual connection costs no pass of its own. Gradients of weights are added to, in row
/// order. Results depend on shapes and values alone: not on addresses, threads or the time of day.
class Kernels {
  public:
    virtual ~Kernels() = default;

    virtual void fill_zero(View y) const = 0;
    /// Host to device, converted to the type of y.
    virtual void upload(std::span<const std::int32_t> from, View y) const = 0;
    virtual void upload(std::span<const float> from, View y) const = 0;
    virtual void upload(std::span<const double> from, View y) const = 0;
    /// y += x.
    virtual void add(ConstView x, View y) const = 0;

    /// y = skip + x w + b.  x (n, i), w (i, o), b (1, o) or empty, y (n, o)
    virtual void linear_forward(
        ConstView x, ConstView w, ConstView b, ConstView skip, View y) const = 0;
    /// dx = skip + dy w^T.
    virtual void linear_backward_input(ConstView dy,
                                       ConstView w,
                                       ConstView skip,
                                       View dx) const = 0;
    /// dw += x^T dy,  db += sum of the rows of dy (where db is not empty).
    virtual void linear_backward_weight(ConstView x, ConstView dy, View dw, View db) const = 0;

    /// y = gain * (x - mean) / sqrt(variance + 1e-5) + bias, per row; statistics (n, 2) = mean, 1 /
    /// sqrt(...).
    virtual void layer_norm_forward(
        ConstView x, ConstView gain, ConstView bias, View y, View statistics) const = 0;
    /// dx = skip + ...; dx may be x itself.
    virtual void layer_norm_backward_input(ConstView x,
                                           ConstView gain,
                                           ConstView statistics,
                                           ConstView dy,
                                           ConstView skip,
                                           View dx) const = 0;
    /// dgain += sum of dy * normalised x, dbias += sum of dy, over the rows.
    virtual void layer_norm_backward_weight(
        ConstView x, ConstView statistics, ConstView dy, View dgain, View dbias) const = 0;

    /// y = x Phi(x), Phi the normal distribution.
    virtual void gelu_forward(ConstView x, View y) const = 0;
    /// dx = dy (Phi(x) + x phi(x)); dx may be x itself.
    virtual void gelu_backward(ConstView x, ConstView dy, View dx) const = 0;

    /// Per head: P = softmax(Q K^T / sqrt(head) under the causal mask), context = P V.
    /// qkv (n, 3 width) = Q | K | V, each with its heads side by side; context (n, width);
    /// probabilities (samples * heads * positions, positions), undefined above the diagonal's
    /// blocks.
    virtual void attention_forward(const AttentionShape& shape,
                                   ConstView qkv,
                                   View probabilities,
                                   View context) const = 0;
    /// Puts dQ | dK | dV into the place of Q | K | V. `scratch` has attention_scratch(shape)
    /// elements.
    virtual void attention_backward(const AttentionShape& shape,
                                    ConstView probabilities,
                                    ConstView dcontext,
                                    View qkv,
                                    std::byte* scratch) const = 0;

    /// y[r] = tokens[id of r] + places[position of r]; ids (n, 1) int32; places may be empty.
    virtual void embedding_forward(
        ConstView ids, ConstView tokens, ConstView places, int positions, View y) const = 0;
    virtual void embedding_backward(
        ConstView ids, ConstView dy, int positions, View dtokens, View dplaces) const = 0;

    /// The sum over the rows of log(sum exp x) - x[target], in double; log_sums (n, 1) = log(sum
    /// exp x).
    virtual double cross_entropy_forward(ConstView x, ConstView targets, View log_sums) const = 0;
    /// dx = scale (softmax(x) - one at the target); dx may be x itself.
    virtual void cross_entropy_backward(
        ConstView x, ConstView targets, ConstView log_sums, double scale, View dx) const = 0;

    /// One fused pass each; all return the sum of the squares of the gradient, in double.
    virtual double sgd(const UpdateView& p, double rate) const = 0;
    virtual double momentum(const UpdateView& p, double rate, double mu) const = 0;
    virtual double rmsprop(const UpdateView& p,
                           double rate,
                           double decay,
                           double epsilon) const = 0;
    virtual double adam(const UpdateView& p, const AdamFactors& factors) const = 0;
};

}  // namespace pipetwin::exec
