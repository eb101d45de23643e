#include <algorithm>
#include <cmath>

#include "core/clones.h"
#include "exec/cpu/blas.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

// Rows of a head are worked on in blocks; a block of rows r0..r1 has no use for columns from r1 on,
// so the products skip what lies above the diagonal's blocks, where nothing is ever written or
// read:
//
//        columns
//        +---+
//   rows | \ |              \ the diagonal: zeros above it, inside its block
//        +---+---+
//        |   | \ |
//        +---+---+---+
//        |   |   | \ |
//        +---+---+---+
namespace pipetwin::exec {
namespace {

constexpr std::int64_t block_rows = 64;

/// One sample's head inside qkv, context and probabilities.
template <class T>
struct Head {
    Block<T> q;
    Block<T> k;
    Block<T> v;
    std::int64_t position_count;
    std::int64_t size;
    T scale;  ///< 1 / sqrt(size)
};

template <class T>
Head<T> head_of(const AttentionShape& shape, T* qkv, std::int64_t sample, std::int64_t head) {
    const std::int64_t size = shape.width / shape.heads;
    const std::int64_t stride = 3 * std::int64_t{shape.width};
    T* const q = qkv + sample * shape.positions * stride + head * size;
    using Plain = std::remove_const_t<T>;
    return {.q = {q, stride},
            .k = {q + shape.width, stride},
            .v = {q + 2 * std::int64_t{shape.width}, stride},
            .position_count = shape.positions,
            .size = size,
            .scale = static_cast<Plain>(1.0 / std::sqrt(static_cast<double>(size)))};
}

template <class T>
Block<const T> from(Block<T> block, std::int64_t row, std::int64_t column = 0) {
    return {block.data + row * block.stride + column, block.stride};
}

/// Rows begin..end of scores become probabilities over columns 0..row, and zeros up to `end`.
template <class T>
PIPETWIN_CLONES void causal_softmax(T* scores,
                                    std::int64_t stride,
                                    std::int64_t begin,
                                    std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
        T* const row = scores + r * stride;
        const auto count = static_cast<std::size_t>(r) + 1;
        const T largest = largest_of(row, count);
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < count; ++j) {
            row[j] = exponential(row[j] - largest);
        }
        const T factor = T(1) / sum_of<T>(count, [row](std::size_t j) { return row[j]; });
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < count; ++j) {
            row[j] *= factor;
        }
        std::fill(row + count, row + end, T(0));
    }
}

/// dS = P * (dP - rowsum(dP * P)) scale, in the place of dP; zeros above the diagonal.
template <class T>
PIPETWIN_CLONES void causal_softmax_backward(
    const T* p, T* dp, std::int64_t stride, std::int64_t begin, std::int64_t end, T scale) {
    for (std::int64_t r = begin; r < end; ++r) {
        const T* const p_row = p + r * stride;
        T* const dp_row = dp + r * stride;
        const auto count = static_cast<std::size_t>(r) + 1;
        const T dot = sum_of<T>(count, [=](std::size_t j) { return p_row[j] * dp_row[j]; });
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < count; ++j) {
            dp_row[j] = p_row[j] * (dp_row[j] - dot) * scale;
        }
        std::fill(dp_row + count, dp_row + end, T(0));
    }
}

template <class T>
void head_forward(const Head<const T>& head, T* probabilities, Block<T> context) {
    const std::int64_t positions = head.position_count;
    for (std::int64_t begin = 0; begin < positions; begin += block_rows) {
        const std::int64_t end = std::min(begin + block_rows, positions);
        T* const scores = probabilities + begin * positions;
        // S = Q K^T / sqrt a
        product({.m = end - begin, .n = end, .k = head.size, .b = Transposed::Yes},
                head.scale,
                from(head.q, begin),
                head.k,
                T(0),
                Block<T>{scores, positions});
        causal_softmax(probabilities, positions, begin, end);
        // c = P V
        product({.m = end - begin, .n = head.size, .k = end},
                T(1),
                Block<const T>{scores, positions},
                head.v,
                T(0),
                Block<T>{context.data + begin * context.stride, context.stride});
    }
}

template <class T>
void head_backward(const Head<T>& head,
                   const T* probabilities,
                   Block<const T> dcontext,
                   T* scratch) {
    const std::int64_t positions = head.position_count;
    const Block<T> ds{scratch, positions};
    const Block<T> dq{scratch + positions * positions, head.size};
    for (std::int64_t begin = 0; begin < positions; begin += block_rows) {
        const std::int64_t end = std::min(begin + block_rows, positions);
        // dP = dc V^T, then dS
        product({.m = end - begin, .n = end, .k = head.size, .b = Transposed::Yes},
                T(1),
                from(dcontext, begin),
                from(head.v, 0),
                T(0),
                Block<T>{ds.data + begin * positions, positions});
        causal_softmax_backward(probabilities, ds.data, positions, begin, end, head.scale);
        // dQ = dS K; Q itself is needed for dK
        product({.m = end - begin, .n = head.size, .k = end},
                T(1),
                from(ds, begin),
                from(head.k, 0),
                T(0),
                Block<T>{dq.data + begin * head.size, head.size});
    }
    // Columns of P and dS: a block of columns has no use for the rows above it. V and K are not
    // needed any more.
    for (std::int64_t begin = 0; begin < positions; begin += block_rows) {
        const std::int64_t end = std::min(begin + block_rows, positions);
        const ProductShape shape{
            .m = end - begin, .n = head.size, .k = positions - begin, .a = Transposed::Yes};
        // dV = P^T dc
        product(shape,
                T(1),
                Block<const T>{probabilities + begin * positions + begin, positions},
                from(dcontext, begin),
                T(0),
                Block<T>{head.v.data + begin * head.v.stride, head.v.stride});
        // dK = dS^T Q
        product(shape,
                T(1),
                from(ds, begin, begin),
                from(head.q, begin),
                T(0),
                Block<T>{head.k.data + begin * head.k.stride, head.k.stride});
    }
    for (std::int64_t r = 0; r < positions; ++r) {
        std::copy_n(dq.data + r * head.size, head.size, head.q.data + r * head.q.stride);
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
void attention_backward(
    const AttentionShape& shape, const T* probabilities, const T* dcontext, T* qkv, T* scratch) {
    const std::int64_t positions = shape.positions;
    for (std::int64_t s = 0; s < shape.samples; ++s) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
            const Head<T> head = head_of(shape, qkv, s, h);
            head_backward(
                head,
                probabilities + (s * shape.heads + h) * positions * positions,
                Block<const T>{dcontext + s * positions * shape.width + h * head.size, shape.width},
                scratch);
        }
    }
}

template void attention_forward(const AttentionShape&, const float*, float*, float*);
template void attention_forward(const AttentionShape&, const double*, double*, double*);
template void attention_backward(const AttentionShape&, const float*, const float*, float*, float*);
template void attention_backward(
    const AttentionShape&, const double*, const double*, double*, double*);

}  // namespace pipetwin::exec
