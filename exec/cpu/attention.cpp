#include <algorithm>
#include <cmath>

#include "core/base/as_index.h"
#include "core/base/simd_targets.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/product_scratch.h"
#include "exec/cpu/products.h"
#include "exec/cpu/vector_math.h"

// One head after the other. Nothing right of the diagonal is computed, written or read, but for the
// zeros that products with a tile across the diagonal need there.
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

/// One sample's head inside qkv.
template <class T>
struct Head {
    Block<T> q;
    Block<T> k;
    Block<T> v;
    std::int64_t positions;
    std::int64_t size;
    double scale;  ///< 1 / sqrt(size)
};

template <class T>
Head<T> head_of(const AttentionShape& shape, T* qkv, std::int64_t sample, std::int64_t head) {
    const std::int64_t size = shape.width / shape.heads;
    const std::int64_t stride = 3 * std::int64_t{shape.width};
    T* const q = qkv + sample * shape.positions * stride + head * size;
    return {.q = {q, stride},
            .k = {q + shape.width, stride},
            .v = {q + 2 * std::int64_t{shape.width}, stride},
            .positions = shape.positions,
            .size = size,
            .scale = 1.0 / std::sqrt(static_cast<double>(size))};
}

/// c (m, n) = a b over the inner dimension k.
struct Sizes {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
};

template <class T>
void multiply(const Sizes& sizes, const Factor& a, const Factor& b, Causal causal, Block<T> c) {
    compute({.m = sizes.m,
             .n = sizes.n,
             .k = sizes.k,
             .a = a,
             .b = b,
             .c = c.data,
             .c_type = dtype_of<T>,
             .c_stride = c.stride,
             .causal = causal});
}

/// Zeros behind the `count` numbers of a row of `positions`.
template <class T>
PIPETWIN_INLINE void end_row(T* row, std::int64_t count, std::int64_t positions) {
    std::fill(row + count, row + std::min(positions, count + causal_margin), T{});
}

/// Scores become probabilities, row by row over columns 0..row; both may be one.
template <class T>
PIPETWIN_SIMD_TARGETS void causal_softmax(Computed<T>* scores,
                                          T* probabilities,
                                          std::int64_t positions,
                                          Computed<T> scale) {
    using C = Computed<T>;
    for (std::int64_t r = 0; r < positions; ++r) {
        C* const row = scores + r * positions;
        T* const p = probabilities + r * positions;
        const auto count = as_index(r) + 1;
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
        end_row(p, r + 1, positions);
    }
}

/// dS = P * (dP - rowsum(dP * P)) scale, in the place of dP.
template <class T>
PIPETWIN_SIMD_TARGETS void causal_softmax_backward(const T* probabilities,
                                                   Computed<T>* dp,
                                                   std::int64_t positions,
                                                   Computed<T> scale) {
    using C = Computed<T>;
    for (std::int64_t r = 0; r < positions; ++r) {
        const T* const p = probabilities + r * positions;
        C* const row = dp + r * positions;
        const auto count = as_index(r) + 1;
        const C dot = sum_of<C>(count, [=](std::size_t j) { return computed(p[j]) * row[j]; });
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < count; ++j) {
            row[j] = computed(p[j]) * (row[j] - dot) * scale;
        }
        end_row(row, r + 1, positions);
    }
}

template <class T>
void head_forward(const Head<const T>& head, T* probabilities, Block<T> context) {
    using C = Computed<T>;
    const std::int64_t positions = head.positions;
    C* scores = nullptr;
    if constexpr (std::is_same_v<T, C>) {
        scores = probabilities;
    } else {
        scores = score_scratch<C>(positions * positions);
    }
    // S = Q K^T
    multiply({positions, positions, head.size},
             head.q.factor(),
             head.k.factor(Transposed::Yes),
             Causal::Result,
             Block<C>{scores, positions});
    causal_softmax(scores, probabilities, positions, static_cast<C>(head.scale));
    // c = P V
    multiply({positions, head.size, positions},
             Block<const T>{probabilities, positions}.factor(),
             head.v.factor(),
             Causal::A,
             context);
}

/// `ds` (positions, positions) and `dq` (positions, size) are scratch.
template <class T>
void head_backward(
    const Head<T>& head, const T* probabilities, Block<const T> dcontext, Computed<T>* ds, T* dq) {
    using C = Computed<T>;
    const std::int64_t positions = head.positions;
    const Block<C> scores{ds, positions};
    const Sizes to_head{positions, head.size, positions};
    // dP = dc V^T, then dS
    multiply({positions, positions, head.size},
             dcontext.factor(),
             head.v.factor(Transposed::Yes),
             Causal::Result,
             scores);
    causal_softmax_backward(probabilities, ds, positions, static_cast<C>(head.scale));
    // dV = P^T dc; V is not needed any more
    multiply(to_head,
             Block<const T>{probabilities, positions}.factor(Transposed::Yes),
             dcontext.factor(),
             Causal::ATransposed,
             head.v);
    // dQ = dS K, beside Q, which is needed for dK
    multiply(to_head, scores.factor(), head.k.factor(), Causal::A, Block<T>{dq, head.size});
    // dK = dS^T Q
    multiply(to_head, scores.factor(Transposed::Yes), head.q.factor(), Causal::ATransposed, head.k);
    for (std::int64_t r = 0; r < positions; ++r) {
        std::copy_n(dq + r * head.size, head.size, head.q.data + r * head.q.stride);
    }
}

}  // namespace

template <class T>
void attention_forward(const AttentionShape& shape, const T* qkv, T* probabilities, T* context) {
    const std::int64_t positions = shape.positions;
    for (std::int64_t s = 0; s < shape.samples; ++s) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
            const Head<const T> head = head_of(shape, qkv, s, h);
            head_forward(
                head,
                probabilities + (s * shape.heads + h) * positions * positions,
                Block<T>{context + s * positions * shape.width + h * head.size, shape.width});
        }
    }
}

template <class T>
void attention_backward(const AttentionShape& shape,
                        const T* probabilities,
                        const T* dcontext,
                        T* qkv,
                        std::byte* scratch) {
    const std::int64_t positions = shape.positions;
    auto* const ds = reinterpret_cast<Computed<T>*>(scratch);
    auto* const dq = reinterpret_cast<T*>(ds + positions * positions);
    for (std::int64_t s = 0; s < shape.samples; ++s) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
            const Head<T> head = head_of(shape, qkv, s, h);
            head_backward(
                head,
                probabilities + (s * shape.heads + h) * positions * positions,
                Block<const T>{dcontext + s * positions * shape.width + h * head.size, shape.width},
                ds,
                dq);
        }
    }
}

#define PIPETWIN_ATTENTION(T)                                                 \
    template void attention_forward(const AttentionShape&, const T*, T*, T*); \
    template void attention_backward(const AttentionShape&, const T*, const T*, T*, std::byte*)
PIPETWIN_ATTENTION(float);
PIPETWIN_ATTENTION(double);
PIPETWIN_ATTENTION(BFloat16);
#undef PIPETWIN_ATTENTION

}  // namespace pipetwin::exec
