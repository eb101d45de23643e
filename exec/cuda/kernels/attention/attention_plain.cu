// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>

#include "exec/cuda/kernels/attention/attention_paths.h"

// Attention in fp32 for any size of a head: what the tensor cores' path is measured against, and
// what takes the cases that it does not.
//
// A block of 16 x 16 threads keeps 64 rows and walks over tiles of 64 columns. Every product is one
// of two tiles of 64 x 64 in shared memory, 34 KiB together, heads being cut into parts of 64
// columns; a thread makes 4 x 4 results, so each number that it reads enters 4 of them. Bytes: two
// tiles of fp32 are 32 KiB for 0.5 MFLOP, 16 FLOP per byte, or 1.2 TB/s for the 19.5 TFLOP/s of an
// A100. So nothing is kept but the sums, and shared memory does not depend on the size of a head.
// Work: as in attention_tensor_cores.h, and the upper halves of the tiles on the diagonal.
namespace pipetwin::cuda {
namespace {

constexpr int tile = 64;
constexpr int side = 16;           ///< threads along a tile's rows, and along its columns
constexpr int each = tile / side;  ///< rows of a thread, and columns
constexpr int threads = side * side;

/// Floats from row to row: a multiple of 4 for reads of 16 bytes. Rows that follow each other begin
/// 4 banks apart, rows that are 4 apart 16: neither the 8 threads that read 16 bytes each at once
/// nor the 32 that write 4 meet in a bank.
constexpr int pitch = tile + 4;
constexpr int tile_floats = tile * pitch;

/// A thread's results, at rows 4 y + i. The columns are x + 16 j for scores, so that what it reads
/// of a transposed operand lies in different banks, and 4 x + j for sums over a head, so that what
/// it reads lies side by side.
struct Part {
    float at[each][each];
};

/// A thread's sums over a head, in parts of 64 columns.
template <int parts>
struct HeadSums {
    Part part[static_cast<std::size_t>(parts)];
};

struct ThreadPlace {
    int x;
    int y;
};

__device__ inline ThreadPlace thread_place() {
    const int thread = static_cast<int>(threadIdx.x);
    return {thread % side, thread / side};
}

__device__ inline int part_row(int i) {
    return each * thread_place().y + i;
}

__device__ inline int score_column(int j) {
    return thread_place().x + side * j;
}

/// f(i, j, row, column of a score)
template <class F>
__device__ inline void for_each_score(const F& f) {
    PIPETWIN_UNROLL
    for (int i = 0; i < each; ++i) {
        PIPETWIN_UNROLL
        for (int j = 0; j < each; ++j) {
            f(i, j, part_row(i), score_column(j));
        }
    }
}

__device__ inline Part zeros() {
    Part part;
    for_each_score([&](int i, int j, int, int) { part.at[i][j] = 0; });
    return part;
}

template <int parts>
__device__ inline void set_zero(HeadSums<parts>& sums) {
    PIPETWIN_UNROLL
    for (int p = 0; p < parts; ++p) {
        sums.part[p] = zeros();
    }
}

/// Rows and columns of a head, as far as it has them: zeros fill the tile.
struct TilePlace {
    int row;
    int column;
    int columns;  ///< of the head
};

template <class T>
__device__ inline void load_tile(float* to, const Rows<const T>& from, const TilePlace& place) {
    constexpr int step = threads / tile;
    const int c = static_cast<int>(threadIdx.x) % tile;
    const int first = static_cast<int>(threadIdx.x) / tile;
    const int rows = place.column + c < place.columns ? from.count - place.row : 0;
    const T* source = from.data + (place.row + first) * from.stride + place.column + c;
    for (int r = first; r < tile; r += step) {
        to[r * pitch + c] = r < rows ? to_float(*source) : 0;
        source += step * from.stride;
    }
}

__device__ inline void store_scores(float* to, const Part& scores) {
    for_each_score([&](int i, int j, int r, int c) { to[r * pitch + c] = scores.at[i][j]; });
}

/// The numbers of four columns of a row of a tile.
__device__ inline float4 four(const float* tile_data, int row, int column) {
    return *reinterpret_cast<const float4*>(tile_data + row * pitch + column);
}

/// scores += a b^T
__device__ inline void multiply_transposed(const float* a, const float* b, Part& scores) {
    for (int k = 0; k < tile; k += 4) {
        float4 right[each];
        PIPETWIN_UNROLL
        for (int j = 0; j < each; ++j) {
            right[j] = four(b, score_column(j), k);
        }
        PIPETWIN_UNROLL
        for (int i = 0; i < each; ++i) {
            const float4 left = four(a, part_row(i), k);
            PIPETWIN_UNROLL
            for (int j = 0; j < each; ++j) {
                float& sum = scores.at[i][j];
                sum = fmaf(left.x, right[j].x, sum);
                sum = fmaf(left.y, right[j].y, sum);
                sum = fmaf(left.z, right[j].z, sum);
                sum = fmaf(left.w, right[j].w, sum);
            }
        }
    }
}

__device__ inline void add_scaled(float factor, const float4& row, float (&sums)[each]) {
    sums[0] = fmaf(factor, row.x, sums[0]);
    sums[1] = fmaf(factor, row.y, sums[1]);
    sums[2] = fmaf(factor, row.z, sums[2]);
    sums[3] = fmaf(factor, row.w, sums[3]);
}

/// sums += a b
__device__ inline void multiply(const float* a, const float* b, Part& sums) {
    const int column = each * thread_place().x;
    for (int k = 0; k < tile; k += 4) {
        float4 right[4];
        PIPETWIN_UNROLL
        for (int j = 0; j < 4; ++j) {
            right[j] = four(b, k + j, column);
        }
        PIPETWIN_UNROLL
        for (int i = 0; i < each; ++i) {
            const float4 left = four(a, part_row(i), k);
            add_scaled(left.x, right[0], sums.at[i]);
            add_scaled(left.y, right[1], sums.at[i]);
            add_scaled(left.z, right[2], sums.at[i]);
            add_scaled(left.w, right[3], sums.at[i]);
        }
    }
}

/// The two tiles of a block.
struct Shared {
    float* left;
    float* right;
};

/// One sample's head, with the keys and values of its group that are no padding.
template <class T>
struct Head {
    int size;
    VisibleKeys visible;
    Rows<const T> q;
    Rows<const T> k;
    Rows<const T> v;
};

/// A head of the operands of a forward or a backward.
template <class T, class Call>
__device__ inline Head<T> head_of(const Call& call, int head) {
    const int of_keys = key_value_head(call.shape, head);
    const VisibleKeys visible = visible_keys(call.shape, head / call.shape.heads);
    return {call.shape.head_size,
            visible,
            query_rows(call.shape, call.q, head),
            key_rows(call.shape, call.k, of_keys, visible.keys),
            value_rows(call.shape, call.k, of_keys, visible.keys)};
}

/// a b^T over all columns of a head, of the tiles of rows that begin at `row` and `column`.
template <class T>
__device__ inline Part product_transposed(const Shared& shared,
                                          const Head<T>& head,
                                          const Rows<const T>& a,
                                          int row,
                                          const Rows<const T>& b,
                                          int column) {
    Part scores = zeros();
    for (int k = 0; k < head.size; k += tile) {
        __syncthreads();
        load_tile(shared.left, a, {row, k, head.size});
        load_tile(shared.right, b, {column, k, head.size});
        __syncthreads();
        multiply_transposed(shared.left, shared.right, scores);
    }
    return scores;
}

/// sums += a b for all columns of a head, b the tile of rows that begins at `row`.
template <class T, int parts>
__device__ inline void add_product(const Shared& shared,
                                   const Head<T>& head,
                                   const Part& a,
                                   const Rows<const T>& b,
                                   int row,
                                   HeadSums<parts>& sums) {
    __syncthreads();
    store_scores(shared.left, a);
    PIPETWIN_UNROLL
    for (int p = 0; p < parts; ++p) {
        if (p * tile < head.size) {
            __syncthreads();
            load_tile(shared.right, b, {row, p * tile, head.size});
            __syncthreads();
            multiply(shared.left, shared.right, sums.part[p]);
        }
    }
}

/// Writes rows row.. of a head, those of this thread times factor[i].
template <class T, int parts>
__device__ inline void store_rows(const HeadSums<parts>& sums,
                                  const float (&factor)[each],
                                  const Head<T>& head,
                                  const Rows<T>& to,
                                  int row) {
    PIPETWIN_UNROLL
    for (int p = 0; p < parts; ++p) {
        PIPETWIN_UNROLL
        for (int i = 0; i < each; ++i) {
            PIPETWIN_UNROLL
            for (int j = 0; j < each; ++j) {
                const int r = row + part_row(i);
                const int c = p * tile + each * thread_place().x + j;
                if (r < to.count && c < head.size) {
                    to.data[r * to.stride + c] = from_float<T>(sums.part[p].at[i][j] * factor[i]);
                }
            }
        }
    }
}

/// The largest x of the 16 threads, half a warp, that share a row.
__device__ inline float row_largest(float x) {
    for (int distance = side / 2; distance > 0; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(all_lanes, x, distance));
    }
    return x;
}

__device__ inline float row_sum(float x) {
    for (int distance = side / 2; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(all_lanes, x, distance);
    }
    return x;
}

// ------------------------------------------------------------------------------------------------
// Forward: FlashAttention-2, algorithm 1
// ------------------------------------------------------------------------------------------------

/// State of a thread's rows so far.
struct Softmax {
    float largest[each];  ///< scaled score
    float sum[each];      ///< of exp(score - largest), this thread's columns only
};

/// Scores become exp(score - largest so far); sums and context so far are scaled to the new
/// largest. The first tile has a column for every row, so `largest` is finite ever after.
template <int parts>
__device__ inline void online_softmax(Part& scores, Softmax& rows, HeadSums<parts>& context) {
    PIPETWIN_UNROLL
    for (int i = 0; i < each; ++i) {
        float largest = rows.largest[i];
        PIPETWIN_UNROLL
        for (int j = 0; j < each; ++j) {
            largest = fmaxf(largest, scores.at[i][j]);
        }
        largest = row_largest(largest);
        const float shrink = expf(rows.largest[i] - largest);
        rows.largest[i] = largest;
        rows.sum[i] *= shrink;
        PIPETWIN_UNROLL
        for (int j = 0; j < each; ++j) {
            scores.at[i][j] = expf(scores.at[i][j] - largest);
            rows.sum[i] += scores.at[i][j];
        }
        PIPETWIN_UNROLL
        for (int p = 0; p < parts; ++p) {
            PIPETWIN_UNROLL
            for (int j = 0; j < each; ++j) {
                context.part[p].at[i][j] *= shrink;
            }
        }
    }
}

template <class T, int parts>
__global__ void __launch_bounds__(threads) forward_kernel(AttentionForward<T> call, float scale) {
    PIPETWIN_SHARED(tiles, float[2][tile_floats]);
    const Shared shared{tiles[0], tiles[1]};
    const BlockPlace place = block_from_last(ceil_divide(call.shape.positions, tile));
    const Head<T> head = head_of<T>(call, place.head);
    const int row = place.tile * tile;

    HeadSums<parts> context;
    set_zero(context);
    Softmax softmax;
    PIPETWIN_UNROLL
    for (int i = 0; i < each; ++i) {
        softmax.largest[i] = -INFINITY;
        softmax.sum[i] = 0;
    }
    const int end = head.visible.seen_before(row + tile);
    for (int column = 0; column < end; column += tile) {
        Part scores = product_transposed(shared, head, head.q, row, head.k, column);
        for_each_score([&](int i, int j, int r, int c) {
            scores.at[i][j] =
                column + c > head.visible.last(row + r) ? -INFINITY : scores.at[i][j] * scale;
        });
        online_softmax(scores, softmax, context);
        add_product(shared, head, scores, head.v, column, context);
    }

    float factor[each];
    float* const log_sums = row_numbers(call.shape, call.log_sums, place.head);
    PIPETWIN_UNROLL
    for (int i = 0; i < each; ++i) {
        const float sum = row_sum(softmax.sum[i]);
        factor[i] = 1 / sum;
        const int r = row + part_row(i);
        if (thread_place().x == 0 && r < head.q.count) {
            log_sums[r] = softmax.largest[i] + logf(sum);
        }
    }
    store_rows(context, factor, head, context_rows(call.shape, call.context, place.head), row);
}

// ------------------------------------------------------------------------------------------------
// Backward: FlashAttention-2, algorithm 2, once along the keys and once along the queries
// ------------------------------------------------------------------------------------------------

/// Zero beyond the last position, where dcontext and Q are zeros, too.
template <class T>
__device__ inline float number_of(const float* numbers, int position, const Head<T>& head) {
    return position < head.q.count ? numbers[position] : 0;
}

/// Operands of a block of either kernel of gradients, and its tile's first row.
template <class T>
struct GradientBlock {
    Head<T> head;
    Rows<const T> dc;
    const float* log_sums;
    const float* row_dots;
    int row;
};

template <class T>
__device__ inline GradientBlock<T> gradient_block(const AttentionBackward<T>& call,
                                                  int head,
                                                  int tile_index) {
    return {head_of<T>(call, head),
            context_rows(call.shape, call.dcontext, head),
            row_numbers(call.shape, call.log_sums, head),
            row_numbers(call.shape, call.row_dots, head),
            tile_index * tile};
}

/// Sums over a head to rows of Q, K or V's gradient, each times `factor`.
template <class T, int parts>
__device__ inline void store_gradient(
    const HeadSums<parts>& sums, float factor, const Head<T>& head, const Rows<T>& to, int row) {
    const float factors[each] = {factor, factor, factor, factor};
    store_rows(sums, factors, head, to, row);
}

/// Adds what the queries of a head give to dK = dS^T Q scale and dV = P^T dcontext of a tile of
/// keys; rows are keys, columns queries.
template <class T, int parts>
__device__ inline void add_key_gradients(const Shared& shared,
                                         const GradientBlock<T>& at,
                                         float scale,
                                         HeadSums<parts>& dk,
                                         HeadSums<parts>& dv) {
    const int first = at.head.visible.causal ? at.row : 0;
    for (int column = first; column < at.head.q.count; column += tile) {
        // P^T = exp(K Q^T scale - log sum), dP^T = V dcontext^T, dS^T = P^T * (dP^T - dot)
        Part p = product_transposed(shared, at.head, at.head.k, at.row, at.head.q, column);
        Part ds = product_transposed(shared, at.head, at.head.v, at.row, at.dc, column);
        for_each_score([&](int i, int j, int r, int c) {
            const float log_sum = number_of(at.log_sums, column + c, at.head);
            const float dot = number_of(at.row_dots, column + c, at.head);
            const bool seen = at.row + r <= at.head.visible.last(column + c);
            p.at[i][j] = seen ? expf(p.at[i][j] * scale - log_sum) : 0;
            ds.at[i][j] = p.at[i][j] * (ds.at[i][j] - dot);
        });
        add_product(shared, at.head, p, at.dc, column, dv);
        add_product(shared, at.head, ds, at.head.q, column, dk);
    }
}

/// dK and dV of a tile of keys, summed over the heads that share them.
template <class T, int parts>
__global__ void __launch_bounds__(threads)
    key_gradients_kernel(AttentionBackward<T> call, float scale) {
    PIPETWIN_SHARED(tiles, float[2][tile_floats]);
    const Shared shared{tiles[0], tiles[1]};
    const BlockPlace place = block_from_first(ceil_divide(call.shape.key_positions, tile));

    HeadSums<parts> dk;
    HeadSums<parts> dv;
    set_zero(dk);
    set_zero(dv);
    const int group = call.shape.group;
    const int first = place.head * group;
    PIPETWIN_ROLLED
    for (int head = first; head < first + group; ++head) {
        add_key_gradients(shared, gradient_block(call, head, place.tile), scale, dk, dv);
    }
    const Head<T> head = head_of<T>(call, first);
    const int row = place.tile * tile;
    const int keys = call.shape.key_positions;
    store_gradient(dk, scale, head, key_rows(call.shape, call.dk, place.head, keys), row);
    store_gradient(dv, 1, head, value_rows(call.shape, call.dk, place.head, keys), row);
}

/// dQ = dS K scale for a tile of queries.
template <class T, int parts>
__global__ void __launch_bounds__(threads)
    query_gradients_kernel(AttentionBackward<T> call, float scale) {
    PIPETWIN_SHARED(tiles, float[2][tile_floats]);
    const Shared shared{tiles[0], tiles[1]};
    const BlockPlace place = block_from_last(ceil_divide(call.shape.positions, tile));
    const GradientBlock<T> at = gradient_block(call, place.head, place.tile);

    HeadSums<parts> dq;
    set_zero(dq);
    const int end = at.head.visible.seen_before(at.row + tile);
    for (int column = 0; column < end; column += tile) {
        // P = exp(Q K^T scale - log sum), dP = dcontext V^T, dS = P * (dP - dot)
        const Part scores =
            product_transposed(shared, at.head, at.head.q, at.row, at.head.k, column);
        Part ds = product_transposed(shared, at.head, at.dc, at.row, at.head.v, column);
        for_each_score([&](int i, int j, int r, int c) {
            const float log_sum = number_of(at.log_sums, at.row + r, at.head);
            const float dot = number_of(at.row_dots, at.row + r, at.head);
            const bool seen = column + c <= at.head.visible.last(at.row + r);
            const float p = seen ? expf(scores.at[i][j] * scale - log_sum) : 0;
            ds.at[i][j] = p * (ds.at[i][j] - dot);
        });
        add_product(shared, at.head, ds, at.head.k, column, dq);
    }
    store_gradient(dq, scale, at.head, query_rows(call.shape, call.dq, place.head), at.row);
}

template <auto kernel, class Call>
cudaError_t launch_tiles(TileRows of, const Call& call, cudaStream_t stream) {
    return launch<kernel>(attention_blocks(call.shape, of, tile),
                          threads,
                          0,
                          stream,
                          call,
                          attention_scale(call.shape));
}

template <class T, int parts>
cudaError_t backward(const AttentionBackward<T>& call, cudaStream_t stream) {
    const cudaError_t error =
        launch_tiles<key_gradients_kernel<T, parts>>(TileRows::Keys, call, stream);
    return error == cudaSuccess
               ? launch_tiles<query_gradients_kernel<T, parts>>(TileRows::Queries, call, stream)
               : error;
}

/// Parts of 64 columns that a head has: 1, 2, or 3 to 4.
int parts_of(const AttentionLayout& shape) {
    return ceil_divide(shape.head_size, tile);
}

}  // namespace

template <class T>
cudaError_t plain_forward(const AttentionForward<T>& call, cudaStream_t stream) {
    switch (parts_of(call.shape)) {
        case 1:
            return launch_tiles<forward_kernel<T, 1>>(TileRows::Queries, call, stream);
        case 2:
            return launch_tiles<forward_kernel<T, 2>>(TileRows::Queries, call, stream);
        default:
            return launch_tiles<forward_kernel<T, 4>>(TileRows::Queries, call, stream);
    }
}

template <class T>
cudaError_t plain_backward(const AttentionBackward<T>& call, cudaStream_t stream) {
    switch (parts_of(call.shape)) {
        case 1:
            return backward<T, 1>(call, stream);
        case 2:
            return backward<T, 2>(call, stream);
        default:
            return backward<T, 4>(call, stream);
    }
}

template cudaError_t plain_forward(const AttentionForward<float>&, cudaStream_t);
template cudaError_t plain_forward(const AttentionForward<Bf16>&, cudaStream_t);
template cudaError_t plain_backward(const AttentionBackward<float>&, cudaStream_t);
template cudaError_t plain_backward(const AttentionBackward<Bf16>&, cudaStream_t);

}  // namespace pipetwin::cuda
