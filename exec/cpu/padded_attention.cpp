// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/base/as_index.h"
#include "core/base/simd_targets.h"
#include "exec/cpu/attention_blocks.h"
#include "exec/cpu/cpu_kernels.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

// One head after the other. Keys behind a sample's length are neither multiplied nor summed.
namespace pipetwin::exec {
namespace {

/// Where the queries, keys and values of an attention stand: values behind keys, in their rows.
template <class T>
struct PaddedOperands {
    T* q = nullptr;
    T* k = nullptr;
    std::int64_t q_stride = 0;  ///< from one query to the next
    std::int64_t k_stride = 0;  ///< from one key to the next
};

/// Matrices of one sample's head.
template <class T>
struct Head {
    Block<T> q;
    Block<T> k;
    Block<T> v;
};

template <class T>
Head<T> head_of(const PaddedAttentionShape& shape,
                const PaddedOperands<T>& operands,
                std::int64_t sample,
                std::int64_t head) {
    const std::int64_t column = head * shape.head_size;
    T* const k = operands.k + sample * shape.key_positions * operands.k_stride + column;
    return {.q = {operands.q + sample * shape.positions * operands.q_stride + column,
                  operands.q_stride},
            .k = {k, operands.k_stride},
            .v = {k + shape.width(), operands.k_stride}};
}

/// Scores become probabilities, row by row over the first `keys` of `stride` columns; both may be
/// one.
template <class T>
PIPETWIN_SIMD_TARGETS void softmax(Computed<T>* scores,
                                   T* probabilities,
                                   std::int64_t rows,
                                   std::int64_t keys,
                                   std::int64_t stride,
                                   Computed<T> scale) {
    using C = Computed<T>;
    const std::size_t count = as_index(keys);
    for (std::int64_t r = 0; r < rows; ++r) {
        C* const row = scores + r * stride;
        T* const p = probabilities + r * stride;
        const C largest = largest_of(row, count);
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < count; ++j) {
            row[j] = exponential((row[j] - largest) * scale);
        }
        const C factor = C(1) / sum_of<C>(count, [row](std::size_t j) { return row[j]; });
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < count; ++j) {
            p[j] = stored<T>(row[j] * factor);
        }
    }
}

/// dS = P * (dP - rowsum(dP * P)) scale; dS may be in the place of dP.
template <class T>
PIPETWIN_SIMD_TARGETS void softmax_backward(const T* probabilities,
                                            Computed<T>* dp,
                                            T* ds,
                                            std::int64_t rows,
                                            std::int64_t keys,
                                            std::int64_t stride,
                                            Computed<T> scale) {
    using C = Computed<T>;
    const std::size_t count = as_index(keys);
    for (std::int64_t r = 0; r < rows; ++r) {
        const T* const p = probabilities + r * stride;
        C* const row = dp + r * stride;
        T* const to = ds + r * stride;
        const C dot = sum_of<C>(count, [=](std::size_t j) { return computed(p[j]) * row[j]; });
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < count; ++j) {
            to[j] = stored<T>(computed(p[j]) * (row[j] - dot) * scale);
        }
    }
}

template <class T>
Computed<T> scale_of(const PaddedAttentionShape& shape) {
    return static_cast<Computed<T>>(1.0 / std::sqrt(static_cast<double>(shape.head_size)));
}

template <class T>
void head_forward(const PaddedAttentionShape& shape,
                  const Head<const T>& head,
                  std::int64_t keys,
                  T* probabilities,
                  Block<T> context) {
    using C = Computed<T>;
    const std::int64_t stride = shape.key_positions;
    C* const scores = scores_of(probabilities, shape.positions * stride);
    // S = Q K^T
    multiply({shape.positions, keys, shape.head_size},
             head.q.factor(),
             head.k.factor(Transposed::Yes),
             Causal::No,
             Block<C>{scores, stride});
    softmax(scores, probabilities, shape.positions, keys, stride, scale_of<T>(shape));
    // c = P V
    multiply({shape.positions, shape.head_size, keys},
             Block<const T>{probabilities, stride}.factor(),
             head.v.factor(),
             Causal::No,
             context);
}

/// Puts the gradients into the places of Q, K and V. `ds` (positions, key_positions), `dq`
/// (positions, head_size).
template <class T>
void head_backward(const PaddedAttentionShape& shape,
                   const Head<T>& head,
                   std::int64_t keys,
                   const T* probabilities,
                   Block<const T> dcontext,
                   T* ds,
                   T* dq) {
    using C = Computed<T>;
    const std::int64_t stride = shape.key_positions;
    const std::int64_t size = shape.head_size;
    C* const dp = scores_of(ds, shape.positions * stride);
    const Block<T> of_scores{ds, stride};
    const BlockSizes to_keys{keys, size, shape.positions};
    // dP = dc V^T, then dS
    multiply({shape.positions, keys, size},
             dcontext.factor(),
             head.v.factor(Transposed::Yes),
             Causal::No,
             Block<C>{dp, stride});
    softmax_backward(probabilities, dp, ds, shape.positions, keys, stride, scale_of<T>(shape));
    // dV = P^T dc, in the place of V, which nothing reads any more
    multiply(to_keys,
             Block<const T>{probabilities, stride}.factor(Transposed::Yes),
             dcontext.factor(),
             Causal::No,
             head.v);
    // dQ = dS K, beside Q, which dK needs
    multiply({shape.positions, size, keys},
             of_scores.factor(),
             head.k.factor(),
             Causal::No,
             Block<T>{dq, size});
    // dK = dS^T Q
    multiply(to_keys, of_scores.factor(Transposed::Yes), head.q.factor(), Causal::No, head.k);
    for (std::int64_t r = 0; r < shape.positions; ++r) {
        std::copy_n(dq + r * size, size, head.q.data + r * head.q.stride);
    }
    for (std::int64_t r = keys; r < shape.key_positions; ++r) {
        std::fill_n(head.k.data + r * head.k.stride, size, T{});
        std::fill_n(head.v.data + r * head.v.stride, size, T{});
    }
}

template <class T>
void padded_attention_forward(const PaddedAttentionShape& shape,
                              const PaddedOperands<const T>& operands,
                              const std::int32_t* lengths,
                              T* probabilities,
                              T* context) {
    const std::int64_t of_head = std::int64_t{shape.positions} * shape.key_positions;
    const std::int64_t width = shape.width();
    for (std::int64_t s = 0; s < shape.samples; ++s) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
            head_forward(
                shape,
                head_of(shape, operands, s, h),
                lengths[s],
                probabilities + (s * shape.heads + h) * of_head,
                Block<T>{context + s * shape.positions * width + h * shape.head_size, width});
        }
    }
}

template <class T>
void padded_attention_backward(const PaddedAttentionShape& shape,
                               const T* probabilities,
                               const T* dcontext,
                               const std::int32_t* lengths,
                               const PaddedOperands<T>& operands,
                               std::byte* scratch) {
    const std::int64_t of_head = std::int64_t{shape.positions} * shape.key_positions;
    const std::int64_t width = shape.width();
    T* const ds = reinterpret_cast<T*>(scratch);
    for (std::int64_t s = 0; s < shape.samples; ++s) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
            head_backward(
                shape,
                head_of(shape, operands, s, h),
                lengths[s],
                probabilities + (s * shape.heads + h) * of_head,
                Block<const T>{dcontext + s * shape.positions * width + h * shape.head_size, width},
                ds,
                ds + of_head);
        }
    }
}

}  // namespace

void CpuKernels::padded_attention_forward(const PaddedAttentionShape& shape,
                                          ConstColumns q,
                                          ConstColumns k,
                                          ConstView lengths,
                                          View softmax,
                                          View context) const {
    with_type(context.dtype, [&](auto zero) {
        using T = decltype(zero);
        const PaddedOperands<const T> operands{.q = q.matrix.as<T>() + q.first,
                                               .k = k.matrix.as<T>() + k.first,
                                               .q_stride = q.matrix.columns,
                                               .k_stride = k.matrix.columns};
        exec::padded_attention_forward(
            shape, operands, lengths.as<std::int32_t>(), softmax.as<T>(), context.as<T>());
    });
}

void CpuKernels::padded_attention_backward(const PaddedAttentionShape& shape,
                                           ConstView softmax,
                                           ConstView /*context*/,
                                           ConstView dcontext,
                                           ConstView lengths,
                                           Columns q,
                                           Columns k,
                                           std::byte* scratch) const {
    with_type(dcontext.dtype, [&](auto zero) {
        using T = decltype(zero);
        const PaddedOperands<T> operands{.q = q.matrix.as<T>() + q.first,
                                         .k = k.matrix.as<T>() + k.first,
                                         .q_stride = q.matrix.columns,
                                         .k_stride = k.matrix.columns};
        exec::padded_attention_backward(shape,
                                        softmax.as<T>(),
                                        dcontext.as<T>(),
                                        lengths.as<std::int32_t>(),
                                        operands,
                                        scratch);
    });
}

}  // namespace pipetwin::exec
