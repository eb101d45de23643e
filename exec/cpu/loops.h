// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/cpu/products/bfloat16.h"
#include "exec/device/kernels.h"

/// The CPU's kernels on bare pointers, for T = float, double and BFloat16; numbers of BFloat16 are
/// stored so, and computed as float. `n` rows, `width` columns, row-major. Formulas:
/// exec/device/kernels.h.
namespace pipetwin::exec {

// elementwise.cpp
/// y += x.
template <class T, class Sum>
void add(const T* x, Sum* y, std::size_t size);
/// y += scale x.
template <class T, class Sum>
void add_scaled(const T* x, double scale, Sum* y, std::size_t size);
/// y = scale x + z; z may be null.
template <class T>
void scale_and_add(const T* x, double scale, const T* z, T* y, std::size_t size);
/// y[r] = skip[r] + bias; either may be null, not both.
template <class T>
void lay_out(const T* skip, const T* bias, T* y, std::size_t n, std::size_t width);
/// sums += the sum of the rows.
template <class T>
void add_rows(const T* x, Computed<T>* sums, std::size_t n, std::size_t width);
/// y = x F(x), F the normal distribution, or its approximation by tanh.
template <class T>
void gelu_forward(GeluForm form, const T* x, T* y, std::size_t size);
/// dx = dy (F(x) + x F'(x)); dx may be x or dy.
template <class T>
void gelu_backward(GeluForm form, const T* x, const T* dy, T* dx, std::size_t size);

/// y = v g / (1 + exp(-g)); x has n rows of `width` gates g, then as many values v.
template <class T>
void swiglu_forward(const T* x, T* y, std::size_t n, std::size_t width);
/// dx = dg | dv; dx may be x itself.
template <class T>
void swiglu_backward(const T* x, const T* dy, T* dx, std::size_t n, std::size_t width);

// dropout.cpp
/// Operands of the dropout of one sample, of `size` numbers, with the bits of `key`. `skip` may be
/// null.
template <class T>
struct DropoutOperands {
    std::size_t size = 0;
    std::uint64_t key = 0;
    std::uint32_t threshold = 0;
    double scale = 1;
    const T* x = nullptr;
    const T* skip = nullptr;
};
/// y = skip + x scale where x is kept, else skip.
template <class T>
void dropout(const DropoutOperands<T>& o, T* y);

// layer_norm.cpp
/// Operands of a layer norm's three functions; each reads those that its formula names.
template <class T>
struct LayerNormOperands {
    std::size_t n = 0;
    std::size_t width = 0;
    const T* x = nullptr;
    const T* gain = nullptr;
    const T* bias = nullptr;
    const T* dy = nullptr;
    const T* skip = nullptr;
};
/// y = gain * (x - mean) / sqrt(variance + 1e-5) + bias, per row; statistics (n, 2) = mean, 1 /
/// sqrt(...).
template <class T>
void layer_norm_forward(const LayerNormOperands<T>& o, T* y, Computed<T>* statistics);
/// The gradient by x, plus skip, which may be null; dx may be x itself.
template <class T>
void layer_norm_backward_input(const LayerNormOperands<T>& o, const Computed<T>* statistics, T* dx);
/// dgain and dbias += their sums over the rows.
template <class T>
void layer_norm_backward_weight(const LayerNormOperands<T>& o,
                                const Computed<T>* statistics,
                                Computed<T>* dgain,
                                Computed<T>* dbias);

/// Operands of an RMSNorm's three functions; each reads those that its formula names.
template <class T>
struct RmsNormOperands {
    std::size_t n = 0;
    std::size_t width = 0;
    const T* x = nullptr;
    const T* gain = nullptr;
    const Computed<T>* roots = nullptr;  ///< (n) 1 / sqrt(mean(x^2) + epsilon)
    const T* dy = nullptr;
    const T* skip = nullptr;
};
/// y = gain * x / sqrt(mean(x^2) + epsilon), per row.
template <class T>
void rms_norm_forward(const RmsNormOperands<T>& o, double epsilon, T* y, Computed<T>* roots);
/// The gradient by x, plus skip, which may be null; dx may be x itself.
template <class T>
void rms_norm_backward_input(const RmsNormOperands<T>& o, T* dx);
/// dgain += its sum over the rows.
template <class T>
void rms_norm_backward_weight(const RmsNormOperands<T>& o, Computed<T>* dgain);

// attention.cpp
/// Turns queries and keys of qkv (n, qkv_width) by their positions, or gradients back.
template <class T>
void rotate(const AttentionShape& shape, const Rotary& rotary, Turn turn, T* qkv);
/// Causal self-attention: probabilities (samples * heads * positions, positions) and context (n,
/// query_width) from qkv (n, qkv_width).
template <class T>
void attention_forward(const AttentionShape& shape, const T* qkv, T* probabilities, T* context);
/// Puts dQ | dK | dV into the place of Q | K | V. `scratch` has `attention_scratch` bytes.
template <class T>
void attention_backward(const AttentionShape& shape,
                        const T* probabilities,
                        const T* dcontext,
                        T* qkv,
                        std::byte* scratch);

// padded_attention.cpp
/// Where the queries, keys and values of an attention stand: values behind keys, in their rows.
template <class T>
struct PaddedOperands {
    T* q = nullptr;
    T* k = nullptr;
    std::int64_t q_stride = 0;  ///< from one query to the next
    std::int64_t k_stride = 0;  ///< from one key to the next
};
/// Attention to the first `lengths[sample]` keys of a sample: probabilities (samples * heads *
/// positions, key_positions) and context (samples * positions, width).
template <class T>
void padded_attention_forward(const PaddedAttentionShape& shape,
                              const PaddedOperands<const T>& operands,
                              const std::int32_t* lengths,
                              T* probabilities,
                              T* context);
/// Puts dQ, dK and dV into the places of Q, K and V. `scratch` has `padded_attention_scratch`
/// bytes.
template <class T>
void padded_attention_backward(const PaddedAttentionShape& shape,
                               const T* probabilities,
                               const T* dcontext,
                               const std::int32_t* lengths,
                               const PaddedOperands<T>& operands,
                               std::byte* scratch);

// cross_entropy.cpp
/// What the forward of a loss finds in its rows.
struct LossCounts {
    double loss = 0;         ///< the sum over the rows
    std::int64_t right = 0;  ///< rows whose first largest number is the target's
};
/// Operands of a cross-entropy; each function reads those that its formula names.
template <class T>
struct CrossEntropyOperands {
    std::size_t n = 0;
    std::size_t width = 0;    ///< classes
    std::size_t padding = 0;  ///< columns behind them
    const T* x = nullptr;
    const std::int32_t* targets = nullptr;
    const Computed<T>* log_sums = nullptr;
    double smoothing = 0;
    double scale = 0;
};
/// log_sums (n) = log(sum exp x). Counts the right rows only where `counts`.
template <class T>
LossCounts cross_entropy_forward(const CrossEntropyOperands<T>& o,
                                 bool counts,
                                 Computed<T>* log_sums);
/// dx = scale (softmax(x) - (1 - smoothing) at the target - smoothing / width), 0 in the padding;
/// dx may be x itself.
template <class T>
void cross_entropy_backward(const CrossEntropyOperands<T>& o, T* dx);
/// The sum of max(x, 0) - x target + log(1 + exp(-|x|)), and the rows whose sign is right.
template <class T>
LossCounts binary_cross_entropy_forward(const T* x, const std::int32_t* targets, std::size_t n);
/// dx = scale (1 / (1 + exp(-x)) - target); dx may be x itself.
template <class T>
void binary_cross_entropy_backward(
    const T* x, const std::int32_t* targets, double scale, std::size_t n, T* dx);

// updates.cpp
/// Operands of the update of one parameter, of `size` numbers. The updates return the sum of the
/// squares of its gradient.
template <class T>
struct UpdateOperands {
    std::size_t size = 0;
    T* value = nullptr;
    const Computed<T>* gradient = nullptr;
    Computed<T>* first = nullptr;
    Computed<T>* second = nullptr;
    Computed<T>* master = nullptr;  ///< where it has another type than the value
    Computed<T>* average = nullptr;
    GradientUse use{};
};
/// The sum of the squares of the gradient, in double.
template <class T>
double sum_squares(const T* gradient, std::size_t size);
/// Updates by SGD; returns the sum of the squares of the gradient.
template <class T>
double sgd(const UpdateOperands<T>& p, double rate);
/// Updates by SGD with momentum `mu`; returns the sum of the squares of the gradient.
template <class T>
double momentum(const UpdateOperands<T>& p, double rate, double mu);
/// Updates by RMSProp; returns the sum of the squares of the gradient.
template <class T>
double rmsprop(const UpdateOperands<T>& p, double rate, double decay, double epsilon);
/// Updates by RMSProp with momentum; returns the sum of the squares of the gradient.
template <class T>
double rmsprop_momentum(const UpdateOperands<T>& p, const RmsPropMomentumFactors& factors);
/// Updates by Adam or AdamW; returns the sum of the squares of the gradient.
template <class T>
double adam(const UpdateOperands<T>& p, const AdamFactors& factors);
/// average += (1 - decay) (w - average), w being what updates change.
template <class T>
void average(const UpdateOperands<T>& p, double decay);
/// y = x, rounded.
template <class T>
void round(const Computed<T>* x, T* y, std::size_t size);

}  // namespace pipetwin::exec
