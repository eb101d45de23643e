// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/base/as_index.h"
#include "core/base/simd_targets.h"
#include "exec/cpu/cpu_kernels.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/products/product_scratch.h"
#include "exec/cpu/products/products.h"
#include "exec/cpu/vector_math.h"

// One head after the other. Of a causal attention nothing right of the diagonal is computed,
// written or read, but for the zeros that products with a tile across the diagonal need there; of
// one with padding the keys behind a sample's length are neither multiplied nor summed.
namespace pipetwin::exec {
namespace {

/// A matrix inside a larger one.
template <class T>
struct Block {
    T* data = nullptr;
    std::int64_t stride = 0;

    Factor factor(Transposed transposed = Transposed::No) const {
        return {.data = data,
                .type = dtype_of<std::remove_const_t<T>>,
                .stride = stride,
                .transposed = transposed};
    }
};

/// c (m, n) = a b over the inner dimension k.
struct BlockSizes {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
};

/// `side`: what of a causal attention is a triangle.
template <bool causal, class T>
void multiply(const BlockSizes& sizes,
              const Factor& a,
              const Factor& b,
              Causal side,
              Block<T> c,
              bool adds = false) {
    compute({.m = sizes.m,
             .n = sizes.n,
             .k = sizes.k,
             .a = a,
             .b = b,
             .c = c.data,
             .c_type = dtype_of<T>,
             .c_stride = c.stride,
             .skip = adds ? c.data : nullptr,
             .causal = causal ? side : Causal::No});
}

/// The queries, keys and values of one sample's head.
template <class T>
struct Head {
    Block<T> q;
    Block<T> k;
    Block<T> v;
    std::int64_t positions;  ///< queries
    std::int64_t keys;       ///< that queries see; of a causal attention as many as queries
    std::int64_t stride;     ///< from one row of scores to the next
    std::int64_t size;

    std::int64_t scores() const { return positions * stride; }
    template <class C>
    C scale() const {
        return static_cast<C>(1.0 / std::sqrt(static_cast<double>(size)));
    }
};

template <class T>
Head<T> head_of(const AttentionShape& shape, T* qkv, std::int64_t sample, std::int64_t head) {
    const std::int64_t size = shape.head_size;
    const std::int64_t stride = shape.qkv_width();
    T* const row = qkv + sample * shape.positions * stride;
    T* const k = row + shape.query_width() + head / shape.group() * size;
    return {.q = {row + head * size, stride},
            .k = {k, stride},
            .v = {k + shape.key_width(), stride},
            .positions = shape.positions,
            .keys = shape.positions,
            .stride = shape.positions,
            .size = size};
}

/// Where the queries, keys and values of an attention with padding stand: values behind keys, in
/// their rows.
template <class T>
struct PaddedOperands {
    T* q = nullptr;
    T* k = nullptr;
    std::int64_t q_stride = 0;  ///< from one query to the next
    std::int64_t k_stride = 0;  ///< from one key to the next
    const std::int32_t* lengths = nullptr;
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
            .v = {k + shape.width(), operands.k_stride},
            .positions = shape.positions,
            .keys = operands.lengths[sample],
            .stride = shape.key_positions,
            .size = shape.head_size};
}

/// Memory of a head's scores, or of their gradients: `rounded` itself where nothing is rounded.
template <class T>
Computed<T>* scores_of(T* rounded, std::int64_t numbers) {
    if constexpr (std::is_same_v<T, Computed<T>>) {
        return rounded;
    } else {
        return score_scratch<Computed<T>>(numbers);
    }
}

/// Numbers of row `r` of the scores that loops go over. Of a causal attention those up to the
/// diagonal and a few more, so that they end in no part of a vector.
template <bool causal>
PIPETWIN_INLINE std::size_t row_length(std::int64_t r, std::int64_t keys) {
    if constexpr (causal) {
        constexpr auto lanes = static_cast<std::size_t>(causal_margin);
        return std::min(as_index(keys), (as_index(r) + 1 + lanes - 1) / lanes * lanes);
    } else {
        return as_index(keys);
    }
}

/// Zeros behind the `count` numbers of a row of `positions`.
template <class T>
PIPETWIN_INLINE void end_row(T* row, std::int64_t count, std::int64_t positions) {
    std::fill(row + count, row + std::min(positions, count + causal_margin), T{});
}

/// Scores become probabilities, row by row; both may be one. Numbers right of the diagonal count as
/// the smallest exponential, which no sum notices.
template <bool causal, class T>
PIPETWIN_SIMD_TARGETS void softmax(const Head<const T>& head,
                                   Computed<T>* scores,
                                   T* probabilities) {
    using C = Computed<T>;
    const C scale = head.template scale<C>();
    for (std::int64_t r = 0; r < head.positions; ++r) {
        C* const row = scores + r * head.stride;
        T* const p = probabilities + r * head.stride;
        const std::size_t count = row_length<causal>(r, head.keys);
        if constexpr (causal) {
            std::fill(row + r + 1, row + count, -std::numeric_limits<C>::infinity());
        }
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
        if constexpr (causal) {
            end_row(p, r + 1, head.keys);
        }
    }
}

/// dS = P * (dP - rowsum(dP * P)) scale; dS may be in the place of dP.
template <bool causal, class T>
PIPETWIN_SIMD_TARGETS void softmax_backward(const Head<T>& head,
                                            const T* probabilities,
                                            Computed<T>* dp,
                                            T* ds) {
    using C = Computed<T>;
    const C scale = head.template scale<C>();
    for (std::int64_t r = 0; r < head.positions; ++r) {
        const T* const p = probabilities + r * head.stride;
        C* const row = dp + r * head.stride;
        T* const to = ds + r * head.stride;
        const std::size_t count = row_length<causal>(r, head.keys);
        if constexpr (causal) {
            std::fill(row + r + 1, row + count, C(0));
        }
        const C dot = sum_of<C>(count, [=](std::size_t j) { return computed(p[j]) * row[j]; });
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < count; ++j) {
            to[j] = stored<T>(computed(p[j]) * (row[j] - dot) * scale);
        }
        if constexpr (causal) {
            end_row(to, r + 1, head.keys);
        }
    }
}

template <bool causal, class T>
void head_forward(const Head<const T>& head, T* probabilities, Block<T> context) {
    using C = Computed<T>;
    C* const scores = scores_of(probabilities, head.scores());
    // S = Q K^T
    multiply<causal>({head.positions, head.keys, head.size},
                     head.q.factor(),
                     head.k.factor(Transposed::Yes),
                     Causal::Result,
                     Block<C>{scores, head.stride});
    softmax<causal>(head, scores, probabilities);
    // c = P V
    multiply<causal>({head.positions, head.size, head.keys},
                     Block<const T>{probabilities, head.stride}.factor(),
                     head.v.factor(),
                     Causal::A,
                     context);
}

/// Scratch of a backward.
template <class T>
struct BackwardScratch {
    T* ds = nullptr;                ///< (positions, keys)
    T* dq = nullptr;                ///< (positions, size)
    Computed<T>* dk_sum = nullptr;  ///< (keys, size), of a group of several heads
    Computed<T>* dv_sum = nullptr;  ///< as `dk_sum`
};

/// Turns Q into dQ. `dk` and `dv`, which may be K and V themselves, get what this head adds to
/// them: `adds`, to what is there.
template <bool causal, class T, class Sum>
void head_backward(const Head<T>& head,
                   const T* probabilities,
                   Block<const T> dcontext,
                   const BackwardScratch<T>& scratch,
                   Block<Sum> dk,
                   Block<Sum> dv,
                   bool adds) {
    using C = Computed<T>;
    C* const dp = scores_of(scratch.ds, head.scores());
    const Block<T> ds{scratch.ds, head.stride};
    const BlockSizes to_keys{head.keys, head.size, head.positions};
    // dP = dc V^T, then dS
    multiply<causal>({head.positions, head.keys, head.size},
                     dcontext.factor(),
                     head.v.factor(Transposed::Yes),
                     Causal::Result,
                     Block<C>{dp, head.stride});
    softmax_backward<causal>(head, probabilities, dp, scratch.ds);
    // dV = P^T dc; this head does not need V any more
    multiply<causal>(to_keys,
                     Block<const T>{probabilities, head.stride}.factor(Transposed::Yes),
                     dcontext.factor(),
                     Causal::ATransposed,
                     dv,
                     adds);
    // dQ = dS K, beside Q, which is needed for dK
    multiply<causal>({head.positions, head.size, head.keys},
                     ds.factor(),
                     head.k.factor(),
                     Causal::A,
                     Block<T>{scratch.dq, head.size});
    // dK = dS^T Q
    multiply<causal>(
        to_keys, ds.factor(Transposed::Yes), head.q.factor(), Causal::ATransposed, dk, adds);
    for (std::int64_t r = 0; r < head.positions; ++r) {
        std::copy_n(scratch.dq + r * head.size, head.size, head.q.data + r * head.q.stride);
    }
}

/// Rounds the sums of a group into the place of its keys or values.
template <class T>
void store_sums(const Computed<T>* sums, const Head<T>& head, Block<T> place) {
    for (std::int64_t r = 0; r < head.positions; ++r) {
        for (std::int64_t j = 0; j < head.size; ++j) {
            place.data[r * place.stride + j] = stored<T>(sums[r * head.size + j]);
        }
    }
}

/// The scratch of a backward, in memory of `attention_scratch` bytes.
template <class T>
BackwardScratch<T> scratch_of(const AttentionShape& shape, std::byte* memory) {
    const std::int64_t positions = shape.positions;
    BackwardScratch<T> scratch;
    auto* next = reinterpret_cast<Computed<T>*>(memory);
    if (shape.group() > 1) {
        scratch.dk_sum = next;
        scratch.dv_sum = next + positions * shape.head_size;
        next = scratch.dv_sum + positions * shape.head_size;
    }
    scratch.ds = reinterpret_cast<T*>(next);
    scratch.dq = scratch.ds + positions * positions;
    return scratch;
}

/// f(sample, head, index of the head's scores, columns of the head in a context's matrix).
template <class T, class Shape, class F>
void for_heads(const Shape& shape, std::int64_t width, T* context, const F& f) {
    for (std::int64_t s = 0; s < shape.samples; ++s) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
            T* const begin = context + s * shape.positions * width + h * shape.head_size;
            f(s, h, s * shape.heads + h, Block<T>{begin, width});
        }
    }
}

// A group's keys and values stay until its last head is done: its gradients are summed beside them.
template <class T>
void attention_backward(const AttentionShape& shape,
                        const T* probabilities,
                        const T* dcontext,
                        T* qkv,
                        std::byte* memory) {
    const std::int64_t group = shape.group();
    const BackwardScratch<T> scratch = scratch_of<T>(shape, memory);
    for_heads(shape, shape.query_width(), dcontext, [&](auto s, auto h, auto i, auto dc) {
        const Head<T> head = head_of(shape, qkv, s, h);
        const T* const p = probabilities + i * head.scores();
        if (group == 1) {
            head_backward<true>(head, p, dc, scratch, head.k, head.v, false);
            return;
        }
        const Block<Computed<T>> dk{scratch.dk_sum, head.size};
        const Block<Computed<T>> dv{scratch.dv_sum, head.size};
        head_backward<true>(head, p, dc, scratch, dk, dv, h % group != 0);
        if (h % group == group - 1) {
            store_sums(scratch.dk_sum, head, head.k);
            store_sums(scratch.dv_sum, head, head.v);
        }
    });
}

/// Puts the gradients into the places of Q, K and V, and zeros behind the keys.
template <class T>
void padded_attention_backward(const PaddedAttentionShape& shape,
                               const T* probabilities,
                               const T* dcontext,
                               const PaddedOperands<T>& operands,
                               std::byte* memory) {
    BackwardScratch<T> scratch{.ds = reinterpret_cast<T*>(memory)};
    scratch.dq = scratch.ds + std::int64_t{shape.positions} * shape.key_positions;
    for_heads(shape, shape.width(), dcontext, [&](auto s, auto h, auto i, auto dc) {
        const Head<T> head = head_of(shape, operands, s, h);
        head_backward<false>(
            head, probabilities + i * head.scores(), dc, scratch, head.k, head.v, false);
        for (std::int64_t r = head.keys; r < shape.key_positions; ++r) {
            std::fill_n(head.k.data + r * head.k.stride, head.size, T{});
            std::fill_n(head.v.data + r * head.v.stride, head.size, T{});
        }
    });
}

/// The operands in columns that are read, or written, too.
template <class T, class AnyColumns>
PaddedOperands<T> operands_of(AnyColumns q, AnyColumns k, ConstView lengths) {
    using Number = std::remove_const_t<T>;
    return {.q = q.matrix.template as<Number>() + q.first,
            .k = k.matrix.template as<Number>() + k.first,
            .q_stride = q.matrix.columns,
            .k_stride = k.matrix.columns,
            .lengths = lengths.as<std::int32_t>()};
}

}  // namespace

void CpuKernels::attention_forward(const AttentionShape& shape,
                                   ConstView qkv,
                                   View softmax,
                                   View context) const {
    with_type(qkv.dtype, [&](auto zero) {
        using T = decltype(zero);
        T* const to = context.as<T>();
        for_heads(shape, shape.query_width(), to, [&](auto s, auto h, auto i, auto place) {
            const Head<const T> head = head_of(shape, qkv.as<T>(), s, h);
            head_forward<true>(head, softmax.as<T>() + i * head.scores(), place);
        });
    });
}

void CpuKernels::attention_backward(const AttentionShape& shape,
                                    ConstView softmax,
                                    ConstView /*context*/,
                                    ConstView dcontext,
                                    View& qkv,
                                    std::byte* scratch) const {
    with_type(qkv.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::attention_backward(shape, softmax.as<T>(), dcontext.as<T>(), qkv.as<T>(), scratch);
    });
}

void CpuKernels::padded_attention_forward(const PaddedAttentionShape& shape,
                                          ConstColumns q,
                                          ConstColumns k,
                                          ConstView lengths,
                                          View softmax,
                                          View context) const {
    with_type(context.dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto operands = operands_of<const T>(q, k, lengths);
        for_heads(shape, shape.width(), context.as<T>(), [&](auto s, auto h, auto i, auto place) {
            const Head<const T> head = head_of(shape, operands, s, h);
            head_forward<false>(head, softmax.as<T>() + i * head.scores(), place);
        });
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
        exec::padded_attention_backward(
            shape, softmax.as<T>(), dcontext.as<T>(), operands_of<T>(q, k, lengths), scratch);
    });
}

}  // namespace pipetwin::exec
