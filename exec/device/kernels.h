// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/model/model.h"
#include "core/model/rotary.h"
#include "exec/device/number_format.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {

class WindowKernels;

/// Sizes of one self-attention: `samples` sequences of `positions`; heads in groups of heads /
/// key_value_heads share keys and values, neighbours together.
struct AttentionShape {
    int samples = 0;
    int positions = 0;
    int heads = 0;
    int key_value_heads = 0;
    int head_size = 0;

    /// Columns of all queries, and of the context.
    std::int64_t query_width() const { return std::int64_t{heads} * head_size; }
    /// Columns of all keys, and of all values.
    std::int64_t key_width() const { return std::int64_t{key_value_heads} * head_size; }
    /// Columns of Q | K | V.
    std::int64_t qkv_width() const { return query_width() + 2 * key_width(); }
    /// Heads that share keys and values.
    int group() const { return heads / key_value_heads; }
};

/// Sizes of one attention in which every query sees all keys of its sample that are no padding;
/// keys and values may be those of another sequence.
struct PaddedAttentionShape {
    int samples = 0;
    int positions = 0;      ///< queries of a sample
    int key_positions = 0;  ///< keys of a sample, padding included
    int heads = 0;
    int head_size = 0;

    /// Columns of all queries, of all keys, of all values, and of the context.
    std::int64_t width() const { return std::int64_t{heads} * head_size; }
};

/// Neighbouring columns of a matrix, from `first` on.
struct ConstColumns {
    ConstView matrix;
    std::int64_t first = 0;
};

/// Neighbouring columns of a matrix that are written, from `first` on.
struct Columns {
    View matrix;
    std::int64_t first = 0;
};

/// Bytes of scratch memory for a padded attention's backward. Where the probabilities are kept: one
/// head's dS and dQ. Else dQ, then dK | dV, and a sum for each row of each head.
Bytes padded_attention_scratch(const PaddedAttentionShape& shape, const NumberFormat& format);

/// Whether rotary positions turn queries and keys, or turn their gradients back.
enum class Turn { Forward, Back };

/// Bytes of scratch memory for an attention's backward. Where the probabilities are kept: one
/// head's dS and dQ, and the sums dK and dV of a group of several heads. Else dQ | dK | dV and a
/// sum for each row of each head.
Bytes attention_scratch(const AttentionShape& shape, const NumberFormat& format);

/// Operands of the update of one parameter; see exec/layers/optimizer.h for the formulas.
struct UpdateView {
    View value;
    ConstView gradient;
    View first;  ///< empty where the optimizer has no state
    View second;
    View master{};              ///< what is updated, and then rounded to `value`; empty: `value`
    View average{};             ///< of the value over the steps; empty where there is none
    double* squares = nullptr;  ///< where the sum of the squares of the gradient goes
    bool is_weight = false;     ///< Parameter::is_weight
};

/// Factors of one Adam or AdamW update, with the bias corrections of its step.
struct AdamFactors {
    double beta1 = 0;
    double beta2 = 0;
    double epsilon = 0;
    double rate = 0;          ///< learning rate / (1 - beta1^step)
    double root_scale = 0;    ///< 1 / sqrt(1 - beta2^step)
    double decay_factor = 1;  ///< 1 - learning rate * weight decay, of AdamW
    double gradient_scale = 1;
    double weight_decay = 0;  ///< of Adam, as GradientUse
};

/// The gradient that an update follows: scale g + weight_decay w, g being the summed gradient and w
/// the weight.
struct GradientUse {
    double scale = 1;
    double weight_decay = 0;
};

/// Factors of one update by RMSProp with momentum.
struct RmsPropMomentumFactors {
    double rate = 0;
    double decay = 0;     ///< of the mean of squares
    double momentum = 0;  ///< of the update
    double epsilon = 0;   ///< added to the mean of squares, below the root
};

/// Where a loss layer's forward leaves what the host reads: memory of `Device::results`, each null
/// where it is not wanted.
struct LossSums {
    double* loss = nullptr;   ///< the sum over the rows
    double* right = nullptr;  ///< the number of rows whose largest number is the target's
};

/// What a cross-entropy makes of the columns of its logits.
struct ClassColumns {
    double smoothing = 0;      ///< share of the target that all classes divide among them
    std::int64_t padding = 0;  ///< columns behind those of the classes; no class
};

/// The numbers of a micro-batch's matrix that dropout drops: a function of the key, the sample's
/// place in the mini-batch and the number's place in the sample, and so of no partition. Numbers 2k
/// and 2k + 1 of sample s share the bits `RandomStream::with_key(key).of(s).bits(k)`, low half
/// first; one is dropped whose half is below `threshold`.
struct DropoutMask {
    std::uint64_t key = 0;
    int first_sample = 0;
    std::int64_t numbers_per_sample = 0;
    double probability = 0;  ///< of being dropped, 0 up to, but not, 1

    /// A number is dropped if its 32 random bits are below this.
    std::uint32_t threshold() const {
        return static_cast<std::uint32_t>(std::min(probability * 0x1p32, 0x1p32 - 1));
    }
    /// Factor of the numbers that are kept.
    double scale() const { return 1 / (1 - probability); }
};

/// The rows of a micro-batch that an embedding is about: `count` positions of each sample, from
/// `first` on. Positions are counted from there.
struct EmbeddingRows {
    int positions = 0;  ///< of a sample
    int first = 0;
    int count = 0;
    double scale = 1;  ///< of the rows of the token table

    /// True for row r of all rows of the micro-batch.
    bool has(std::int64_t row) const {
        const auto position = static_cast<int>(row % positions);
        return position >= first && position < first + count;
    }
};

/// Where the gradient of a weight is summed up over the micro-batches of a step. The first term is
/// written over whatever is there, so nothing has to be zeroed; the others are added to it.
struct GradientSum {
    View view;  ///< empty: not wanted
    bool adds = true;

    GradientSum() = default;
    GradientSum(View where,
                bool adds_to_it = true)  // NOLINT(google-explicit-constructor): added to
        : view(where), adds(adds_to_it) {}
    GradientSum(Tensor& where)  // NOLINT(google-explicit-constructor): added to
        : view(where) {}

    bool empty() const { return view.empty(); }
};

/// Neighbouring columns of one matrix that go into another one with as many rows.
struct ColumnCopy {
    std::int64_t from = 0;   ///< the first of them in x
    std::int64_t to = 0;     ///< the first of them in y
    std::int64_t count = 0;  ///< columns
    bool adds = false;       ///< y's are added to, else overwritten
};

class ColumnKernels;

/// The mathematics of a device: every product, reduction and formula that layers and optimizers are
/// written in.
///
/// Names: x input, y output, w weights, b bias, dx the gradient of the loss by x. All matrices are
/// row-major; n rows are the positions of all samples of a micro-batch. fp32 and fp64; all real
/// operands of one call have one type. `skip` may be empty; else it is added to the result, which
/// is how a residual connection costs no pass of its own. Gradients of weights are added to, in row
/// order, where their GradientSum adds. Results depend on shapes and values alone: not on
/// addresses, threads or the time of day.
///
/// A device may do the work later, in the order of the calls. Numbers for the host therefore go to
/// memory that `Device::results` gave, and may be read once `Device::complete` has returned.
class Kernels {
  public:
    virtual ~Kernels() = default;

    /// Windows over images. Throws Error(Unavailable) where the device has none.
    virtual const WindowKernels& windows() const;

    /// Whether a call has done its work when it returns, and several threads may call at once.
    virtual bool are_immediate() const { return false; }

    /// y = 0.
    virtual void fill_zero(View y) const = 0;
    /// Returns the place of a sum, for a kernel that can only add. Clears it before the first term.
    View begun(const GradientSum& sum) const;
    /// Copies host numbers to the device, converted to the type of y.
    virtual void upload(std::span<const std::int32_t> from, View y) const = 0;
    virtual void upload(std::span<const float> from, View y) const = 0;
    virtual void upload(std::span<const double> from, View y) const = 0;
    /// Copies the bytes of x to the host, unconverted, once all that was issued before is done: it
    /// waits. `to` has room for all of them.
    virtual void download(ConstView x, std::span<std::byte> to) const = 0;
    /// Copies the host's bytes into y, unconverted; `from` may go when it returns.
    virtual void upload(std::span<const std::byte> from, View y) const = 0;
    /// y += x.
    virtual void add(ConstView x, View y) const = 0;
    /// Columns of y = or += columns of x; other columns of y stay.
    virtual void copy_columns(const ColumnCopy& columns, ConstView x, View y) const = 0;

    /// y = skip + x w + b.  x (n, i), w (i, o), b (1, o) or empty, y (n, o)
    virtual void linear_forward(
        ConstView x, ConstView w, ConstView b, ConstView skip, View y) const = 0;
    /// dx = skip + dy w^T.
    virtual void linear_backward_input(ConstView dy,
                                       ConstView w,
                                       ConstView skip,
                                       View dx) const = 0;
    /// dw += x^T dy,  db += sum of the rows of dy (where db is not empty).
    virtual void linear_backward_weight(ConstView x,
                                        ConstView dy,
                                        const GradientSum& dw,
                                        const GradientSum& db) const = 0;

    /// h = x w + b and its GELU y, as `linear_forward` and `gelu_forward`. A device may make both
    /// at once, and y of an h that is not rounded yet.
    virtual void linear_gelu_forward(
        GeluForm form, ConstView x, ConstView w, ConstView b, View h, View y) const;
    /// dh, where h's GELU is the input of a linear layer, as `linear_backward_input` and
    /// `gelu_backward`; dh may not be h.
    virtual void linear_gelu_backward(
        GeluForm form, ConstView dy, ConstView w, ConstView h, View dh) const;

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
    virtual void layer_norm_backward_weight(ConstView x,
                                            ConstView statistics,
                                            ConstView dy,
                                            const GradientSum& dgain,
                                            const GradientSum& dbias) const = 0;
    /// `layer_norm_backward_weight`, and then `layer_norm_backward_input`. A device may do both in
    /// one pass, with an order of its own of the sums.
    virtual void layer_norm_backward(ConstView x,
                                     ConstView gain,
                                     ConstView statistics,
                                     ConstView dy,
                                     ConstView skip,
                                     View dx,
                                     const GradientSum& dgain,
                                     const GradientSum& dbias) const;

    /// y = gain * x / sqrt(mean(x^2) + epsilon), per row; roots (n, 1) = 1 / sqrt(...).
    virtual void rms_norm_forward(
        ConstView x, ConstView gain, double epsilon, View y, View roots) const = 0;
    /// dx = skip + ...; dx may be x itself.
    virtual void rms_norm_backward_input(ConstView x,
                                         ConstView gain,
                                         ConstView roots,
                                         ConstView dy,
                                         ConstView skip,
                                         View dx) const = 0;
    /// dgain += sum of dy * normalised x over the rows.
    virtual void rms_norm_backward_weight(ConstView x,
                                          ConstView roots,
                                          ConstView dy,
                                          const GradientSum& dgain) const = 0;
    /// `rms_norm_backward_weight`, and then `rms_norm_backward_input`, likewise.
    virtual void rms_norm_backward(ConstView x,
                                   ConstView gain,
                                   ConstView roots,
                                   ConstView dy,
                                   ConstView skip,
                                   View dx,
                                   const GradientSum& dgain) const;

    /// y = v g / (1 + exp(-g)), x (n, 2 width) = g | v, y (n, width).
    virtual void swiglu_forward(ConstView x, View y) const = 0;
    /// dx = dg | dv from dy (n, width); dx may be x itself.
    virtual void swiglu_backward(ConstView x, ConstView dy, View dx) const = 0;

    /// y = x F(x), F the normal distribution, or its approximation by tanh.
    virtual void gelu_forward(GeluForm form, ConstView x, View y) const = 0;
    /// dx = dy (F(x) + x F'(x)); dx may be x or dy.
    virtual void gelu_backward(GeluForm form, ConstView x, ConstView dy, View dx) const = 0;

    /// Turns queries and keys of qkv (n, qkv_width) by their positions, or gradients back
    /// (core/model/rotary.h).
    virtual void rotate(const AttentionShape& shape,
                        const Rotary& rotary,
                        Turn turn,
                        View qkv) const = 0;

    /// Per head: P = softmax(Q K^T / sqrt(head) under the causal mask), context = P V.
    /// qkv (n, qkv_width) = Q | K | V, each with its heads side by side; context (n, query_width);
    /// softmax, as the device's number format says: the probabilities (samples * heads * positions,
    /// positions), undefined above the diagonal's blocks, or log(sum exp) of their rows (samples *
    /// heads * positions, 1).
    virtual void attention_forward(const AttentionShape& shape,
                                   ConstView qkv,
                                   View softmax,
                                   View context) const = 0;
    /// Computes dQ | dK | dV. `scratch` has attention_scratch bytes. Returns where the gradients
    /// are: in the place of Q | K | V, or at the begin of `scratch`.
    virtual View attention_backward(const AttentionShape& shape,
                                    ConstView softmax,
                                    ConstView context,
                                    ConstView dcontext,
                                    View qkv,
                                    std::byte* scratch) const = 0;

    /// Per head and sample: P = softmax(Q K^T / sqrt(head)) over the keys before the sample's
    /// length, context = P V; padding is no part of any sum. q: the columns of the queries; k:
    /// those of the keys, with those of the values behind them; heads stand side by side. lengths
    /// (samples, 1) int32, 1 to key_positions; softmax, as the device's number format says: P
    /// (samples * heads * positions, key_positions), undefined at padding, or log(sum exp) of its
    /// rows (samples * heads * positions, 1).
    virtual void padded_attention_forward(const PaddedAttentionShape& shape,
                                          ConstColumns q,
                                          ConstColumns k,
                                          ConstView lengths,
                                          View softmax,
                                          View context) const = 0;
    /// Puts dQ into the place of Q, and dK | dV into that of K | V, 0 at padding. `scratch` has
    /// padded_attention_scratch bytes.
    virtual void padded_attention_backward(const PaddedAttentionShape& shape,
                                           ConstView softmax,
                                           ConstView context,
                                           ConstView dcontext,
                                           ConstView lengths,
                                           Columns q,
                                           Columns k,
                                           std::byte* scratch) const = 0;

    /// y[r] = scale tokens[id of r] + places[position of r]; ids (n, 1) int32; places may be empty.
    virtual void embedding_forward(const EmbeddingRows& rows,
                                   ConstView ids,
                                   ConstView tokens,
                                   ConstView places,
                                   View y) const = 0;
    /// dtokens[id of r] += scale dy[r], dplaces[position of r] += dy[r], in the order of the rows;
    /// dplaces may be empty.
    virtual void embedding_backward(const EmbeddingRows& rows,
                                    ConstView ids,
                                    ConstView dy,
                                    View dtokens,
                                    View dplaces) const = 0;

    /// With l = log(sum exp x) of a row, s the label smoothing and m the mean of the row, all over
    /// the columns of classes: *sums.loss = the sum over the rows of l - (1 - s) x[target] - s m,
    /// in double. A row is right where its first largest number is the target's. targets (n, 1)
    /// int32; log_sums (n, 1) = l. A row whose target is -1 has no part in the sums.
    virtual void cross_entropy_forward(ConstView x,
                                       ConstView targets,
                                       const ClassColumns& columns,
                                       View log_sums,
                                       const LossSums& sums) const = 0;
    /// dx = scale (softmax(x) - (1 - smoothing) at the target - smoothing / classes), 0 where the
    /// target is -1 and in the columns of padding; dx may be x itself.
    virtual void cross_entropy_backward(ConstView x,
                                        ConstView targets,
                                        ConstView log_sums,
                                        const ClassColumns& columns,
                                        double scale,
                                        View dx) const = 0;
    /// `cross_entropy_forward`, and then `cross_entropy_backward` in the place of x: the same bits.
    /// A device may do both in one pass.
    virtual void cross_entropy_with_gradient(ConstView targets,
                                             const ClassColumns& columns,
                                             double scale,
                                             View log_sums,
                                             const LossSums& sums,
                                             View x) const;

    /// *sums.loss = the sum of max(x, 0) - x target + log(1 + exp(-|x|)), in double. A row is right
    /// where x > 0 and the target is 1, or x <= 0 and it is 0. x (n, 1); targets (n, 1) int32, each
    /// 0 or 1.
    virtual void binary_cross_entropy_forward(ConstView x,
                                              ConstView targets,
                                              const LossSums& sums) const = 0;
    /// dx = scale (1 / (1 + exp(-x)) - target); dx may be x itself.
    virtual void binary_cross_entropy_backward(ConstView x,
                                               ConstView targets,
                                               double scale,
                                               View dx) const = 0;

    /// y = skip + x / (1 - p), or skip where x is dropped; y may be x or skip. Also its gradient.
    virtual void dropout(const DropoutMask& mask, ConstView x, ConstView skip, View y) const = 0;

    /// The mathematics of layers whose columns are channels of images
    /// (exec/device/column_kernels.h). Throws Error(Unavailable) where the device has none.
    virtual const ColumnKernels& columns() const;

    /// Writes each gradient's sum of squares to `squares`, in double; nothing is updated.
    virtual void sum_squares(std::span<const UpdateView> parameters) const = 0;

    /// SGD in one fused pass over every parameter. Writes each gradient's sum of squares to
    /// `squares`, in double, of the summed gradient as it is.
    virtual void sgd(std::span<const UpdateView> parameters,
                     double rate,
                     const GradientUse& gradient) const = 0;
    /// SGD with momentum `mu`; passes and sums of squares as `sgd`.
    virtual void momentum(std::span<const UpdateView> parameters,
                          double rate,
                          double mu,
                          const GradientUse& gradient) const = 0;
    /// RMSProp; passes and sums of squares as `sgd`.
    virtual void rmsprop(std::span<const UpdateView> parameters,
                         double rate,
                         double decay,
                         double epsilon,
                         const GradientUse& gradient) const = 0;
    /// RMSProp with momentum; passes and sums of squares as `sgd`.
    virtual void rmsprop_momentum(std::span<const UpdateView> parameters,
                                  const RmsPropMomentumFactors& factors,
                                  const GradientUse& gradient) const = 0;
    /// Adam or AdamW; passes and sums of squares as `sgd`.
    virtual void adam(std::span<const UpdateView> parameters, const AdamFactors& factors) const = 0;

    /// average += (1 - decay) (w - average) for every parameter, w being what updates change.
    /// Writes no `squares`.
    virtual void average(std::span<const UpdateView> parameters, double decay) const = 0;
    /// y = x, rounded to the type of y, which half-precision values have and x has not.
    virtual void round(ConstView x, View y) const = 0;
};

/// The elements of x as doubles. For reports: it waits.
std::vector<double> values(const Kernels& kernels, ConstView x);

}  // namespace pipetwin::exec
