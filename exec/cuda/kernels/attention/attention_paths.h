// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/kernels/device_math.h"
#include "exec/cuda/kernels/launch.h"

/// For loops whose copies, side by side, would take registers from the sums.
#ifdef __CUDACC__
#define PIPETWIN_ROLLED _Pragma("unroll 1")
#else
#define PIPETWIN_ROLLED
#endif

/// Parts that the kernels of attention share; see exec/cuda/kernels/attention/attention.h for the
/// shapes.
namespace pipetwin::cuda {

/// log2(e): exp(x) is computed as exp2(x log2(e)).
constexpr float log2_e = 1.44269504088896341F;

/// An AttentionShape with what follows from it, which is read where it is needed and takes no
/// registers of a kernel.
struct AttentionLayout {
    int samples;
    int positions;
    int key_positions;
    int heads;
    int key_value_heads;
    int group;
    int head_size;
    std::int64_t query_width;
    std::int64_t key_width;
    const std::int32_t* lengths;  ///< null: causal
};

/// The layout of a shape, with the lengths of its samples.
inline AttentionLayout layout_of(const AttentionShape& shape, const std::int32_t* lengths) {
    return {shape.samples,
            shape.positions,
            shape.key_positions(),
            shape.heads,
            shape.key_value_heads,
            shape.group(),
            shape.head_size,
            shape.query_width(),
            shape.key_width(),
            lengths};
}

/// The rows of a matrix: their begin, and the distance from one to the next.
template <class T>
struct Matrix {
    T* data;
    std::int64_t stride;
};

/// The operands of one forward, as its kernels take them.
template <class T>
struct AttentionForward {
    AttentionLayout shape;
    Matrix<const T> q;
    Matrix<const T> k;  ///< and the values, key_width behind
    T* context;
    float* log_sums;
};

/// The operands of one backward, as its kernels take them.
template <class T>
struct AttentionBackward {
    AttentionLayout shape;
    Matrix<const T> q;
    Matrix<const T> k;  ///< and the values, key_width behind
    const float* log_sums;
    const T* dcontext;
    Matrix<T> dq;
    Matrix<T> dk;           ///< and dV, key_width behind
    const float* row_dots;  ///< D = rowsum(dcontext * context), of log_sums' shape
};

/// 1 / sqrt(size of a head), what scores are multiplied by.
float attention_scale(const AttentionLayout& shape);

/// True if the kernels for tensor cores can compute heads of this size.
bool tensor_cores_take(int head_size);
/// Launches the forward on tensor cores.
cudaError_t tensor_core_forward(const AttentionForward<Bf16>& call, cudaStream_t stream);
/// Launches the gradients of Q, K and V on tensor cores.
cudaError_t tensor_core_backward(const AttentionBackward<Bf16>& call, cudaStream_t stream);

/// Launches the forward without tensor cores.
template <class T>
cudaError_t plain_forward(const AttentionForward<T>& call, cudaStream_t stream);
/// Launches the gradients of Q, K and V without tensor cores.
template <class T>
cudaError_t plain_backward(const AttentionBackward<T>& call, cudaStream_t stream);

/// The rows of one sample's head: their begin, the distance from one to the next, and how many
/// there are; zeros are read behind them.
template <class T>
struct Rows {
    T* data;
    std::int64_t stride;
    int count;
};

/// The part of the work that a block does: heads are counted sample by sample, blocks of one head
/// lie side by side so that they find its rows in the L2 cache.
struct BlockPlace {
    int head;  ///< of samples * heads, or of samples * key_value_heads where tiles are of keys
    int tile;  ///< of the head's positions
};

/// The block's place where tiles are of keys. Tiles with the most work have to begin first: under
/// the causal mask the first ones, as later queries use their keys.
__device__ inline BlockPlace block_from_first(int tiles) {
    const int block = static_cast<int>(blockIdx.x);
    return {block / tiles, block % tiles};
}

/// The block's place where tiles are of queries. Tiles with the most work have to begin first:
/// under the causal mask the last ones.
__device__ inline BlockPlace block_from_last(int tiles) {
    const BlockPlace place = block_from_first(tiles);
    return {place.head, tiles - 1 - place.tile};
}

/// The head of samples * key_value_heads whose keys and values a head reads.
__device__ inline int key_value_head(const AttentionLayout& shape, int head) {
    return head / shape.group;
}

/// The keys that the queries of a sample see: each those up to its own position, or all those that
/// are no padding.
struct VisibleKeys {
    int keys;  ///< that are no padding
    bool causal;

    /// The last key that a query sees. Later queries see at least as many.
    __device__ int last(int query) const { return causal ? query : keys - 1; }
    /// Number of keys that the queries before `query` see.
    __device__ int seen_before(int query) const { return min(last(query - 1) + 1, keys); }
};

/// The keys that the queries of a sample see.
__device__ inline VisibleKeys visible_keys(const AttentionLayout& shape, int sample) {
    const bool causal = shape.lengths == nullptr;
    return {causal ? shape.positions : shape.lengths[sample], causal};
}

/// The rows of a head's queries, or of their gradients.
template <class T>
__device__ inline Rows<T> query_rows(const AttentionLayout& shape, const Matrix<T>& q, int head) {
    const std::int64_t sample = head / shape.heads;
    const int column = head % shape.heads * shape.head_size;
    return {q.data + sample * shape.positions * q.stride + column, q.stride, shape.positions};
}

/// The first `count` rows of the keys of `head`, of samples * key_value_heads, or of their
/// gradients.
template <class T>
__device__ inline Rows<T> key_rows(const AttentionLayout& shape,
                                   const Matrix<T>& k,
                                   int head,
                                   int count) {
    const std::int64_t sample = head / shape.key_value_heads;
    const std::int64_t column = head % shape.key_value_heads * shape.head_size;
    return {k.data + sample * shape.key_positions * k.stride + column, k.stride, count};
}

/// The first `count` rows of the values of `head`, of samples * key_value_heads, or of their
/// gradients.
template <class T>
__device__ inline Rows<T> value_rows(const AttentionLayout& shape,
                                     const Matrix<T>& k,
                                     int head,
                                     int count) {
    const Rows<T> keys = key_rows(shape, k, head, count);
    return {keys.data + shape.key_width, keys.stride, count};
}

/// The rows of a head in context or dcontext.
template <class T>
__device__ inline Rows<T> context_rows(const AttentionLayout& shape, T* context, int head) {
    return query_rows(shape, Matrix<T>{context, shape.query_width}, head);
}

/// A head's part of log_sums or row_dots.
template <class T>
__device__ inline T* row_numbers(const AttentionLayout& shape, T* numbers, int head) {
    return numbers + std::int64_t{head} * shape.positions;
}

/// a / b rounded up; b > 0.
PIPETWIN_BOTH_SIDES constexpr int ceil_divide(int a, int b) {
    return (a + b - 1) / b;
}

/// What the rows of a block's tile are: a block of queries has one head, a block of keys all heads
/// of a group.
enum class TileRows : std::uint8_t { Queries, Keys };

/// Number of blocks for all heads, with `tile_rows` rows to a tile.
inline unsigned attention_blocks(const AttentionLayout& shape, TileRows of, int tile_rows) {
    const bool queries = of == TileRows::Queries;
    const int heads = queries ? shape.heads : shape.key_value_heads;
    const int rows = queries ? shape.positions : shape.key_positions;
    return static_cast<unsigned>(shape.samples) * static_cast<unsigned>(heads) *
           static_cast<unsigned>(ceil_divide(rows, tile_rows));
}

}  // namespace pipetwin::cuda
