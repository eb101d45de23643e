// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/attention/attention_tensor_cores.h"

namespace pipetwin::cuda {
namespace {

using namespace tensor_cores;

/// Masks the scores where rows are keys and columns queries: -infinity for keys that the query does
/// not see.
template <int row_tiles, int columns>
__device__ inline void mask_transposed(Sums<row_tiles, columns>& scores,
                                       const VisibleKeys& visible,
                                       int row,
                                       int column) {
    if (row + 16 * row_tiles - 1 > visible.last(column)) {
        for_each_element<row_tiles, columns>([&](int i, int n, int e, int r, int c) {
            if (row + r > visible.last(column + c)) {
                scores.at[i][n][e] = -INFINITY;
            }
        });
    }
}

/// Shared memory of both kernels: two matrices of rows, then two stages of two matrices of columns,
/// and the log sums and dots of the columns where these are queries.
template <class Tiles>
constexpr int backward_bytes =
    (2 * Tiles::row_elements + 4 * Tiles::column_elements) * static_cast<int>(sizeof(Bf16)) +
    4 * Tiles::columns * static_cast<int>(sizeof(float));

/// exp(score scale - log_sum)
__device__ inline float probability(float score, float scale, float log_sum) {
    return exp2f(fmaf(score, scale * log2_e, -log_sum * log2_e));
}

/// The log sums and dots of queries where these are columns: each thread has one number of them on
/// its way to shared memory.
template <class Tiles>
struct QueryNumbers {
    static_assert(2 * Tiles::columns <= threads, "one number per thread");
    const float* log_sums;
    const float* row_dots;
    int positions;
    float* memory;  ///< two stages of 2 columns
    float number = 0;

    __device__ void fetch(int column) {
        const int thread = static_cast<int>(threadIdx.x);
        const int query = column + thread % Tiles::columns;
        const bool inside = thread < 2 * Tiles::columns && query < positions;
        number = inside ? (thread < Tiles::columns ? log_sums : row_dots)[query] : 0;
    }
    __device__ void put(int stage) {
        const int thread = static_cast<int>(threadIdx.x);
        if (thread < 2 * Tiles::columns) {
            memory[2 * stage * Tiles::columns + thread] = number;
        }
    }
};

/// dK = dS^T Q scale and dV = P^T dcontext for a tile of keys, summed over the heads that share
/// them; rows are keys here, and columns queries. Columns beyond the last have log sum 0, dot 0 and
/// zeros for Q and dcontext: P is 1 there, and what it is multiplied with 0.
template <class Tiles>
__global__ void __launch_bounds__(threads)
    key_gradients_kernel(AttentionBackward<Bf16> call, float scale) {
    constexpr int size = Tiles::size;
    constexpr int columns = Tiles::columns;
    PIPETWIN_DYNAMIC_SHARED(shared);
    Bf16* const k_tile = reinterpret_cast<Bf16*>(shared);
    Bf16* const v_tile = k_tile + Tiles::row_elements;
    Bf16* const stages = v_tile + Tiles::row_elements;
    float* const numbers = reinterpret_cast<float*>(stages + 4 * Tiles::column_elements);

    const int tiles = ceil_divide(call.shape.key_positions, Tiles::rows);
    const WarpPlace at = warp_place<Tiles>(block_from_first(tiles));
    const int positions = call.shape.positions;
    const VisibleKeys visible = visible_keys(call.shape, at.head / call.shape.key_value_heads);
    Sums<Tiles::row_tiles, size> dk;
    Sums<Tiles::row_tiles, size> dv;
    set_zero(dk);
    set_zero(dv);

    const Rows<const Bf16> k = key_rows(call.shape, call.k, at.head, visible.keys);
    const Rows<const Bf16> v = value_rows(call.shape, call.k, at.head, visible.keys);
    copy_tile<size, Tiles::rows>(k_tile, k, at.first_row);
    copy_tile<size, Tiles::rows>(v_tile, v, at.first_row);
    const auto work = [&](int stage, int column, const Bf16* q_tile, const Bf16* dc_tile) {
        if (visible.last(column + columns - 1) < at.row) {
            return;
        }
        const float* const sums_tile = numbers + 2 * stage * columns;
        const float* const dots_tile = sums_tile + columns;
        // P^T = exp(K Q^T scale - log sum)
        Sums<Tiles::row_tiles, columns> p;
        set_zero(p);
        multiply_transposed<size>(k_tile + at.warp_row * pitch<size>, q_tile, p);
        mask_transposed(p, visible, at.row, column);
        for_each_element<Tiles::row_tiles, columns>([&](int i, int n, int e, int, int c) {
            p.at[i][n][e] = probability(p.at[i][n][e], scale, sums_tile[c]);
        });
        multiply<size>(to_operand(p), dc_tile, dv);
        // dP^T = V dcontext^T, dS^T = P^T * (dP^T - dot)
        Sums<Tiles::row_tiles, columns> ds;
        set_zero(ds);
        multiply_transposed<size>(v_tile + at.warp_row * pitch<size>, dc_tile, ds);
        for_each_element<Tiles::row_tiles, columns>([&](int i, int n, int e, int, int c) {
            ds.at[i][n][e] = p.at[i][n][e] * (ds.at[i][n][e] - dots_tile[c]);
        });
        multiply<size>(to_operand(ds), q_tile, dk);
    };
    static_assert(Tiles::rows % columns == 0, "a tile of rows begins where one of columns does");
    const int first_query = visible.causal ? at.first_row : 0;
    const int group = call.shape.group;
    PIPETWIN_ROLLED
    for (int head = at.head * group; head < (at.head + 1) * group; ++head) {
        const Columns<Tiles> queries{stages,
                                     query_rows(call.shape, call.q, head),
                                     context_rows(call.shape, call.dcontext, head)};
        const QueryNumbers<Tiles> query_numbers{row_numbers(call.shape, call.log_sums, head),
                                                row_numbers(call.shape, call.row_dots, head),
                                                positions,
                                                numbers};
        queries.for_each(first_query, positions, query_numbers, work);
        __syncthreads();  // no warp reads the stages any more
    }
    const auto scaled = [=](int, int) { return scale; };
    const auto as_is = [](int, int) { return 1.0F; };
    const int keys = call.shape.key_positions;
    store_rows(dk, key_rows(call.shape, call.dk, at.head, keys), at.row, scaled);
    store_rows(dv, value_rows(call.shape, call.dk, at.head, keys), at.row, as_is);
}

/// dQ = dS K scale for a tile of queries.
template <class Tiles>
__global__ void __launch_bounds__(threads)
    query_gradients_kernel(AttentionBackward<Bf16> call, float scale) {
    constexpr int size = Tiles::size;
    constexpr int columns = Tiles::columns;
    PIPETWIN_DYNAMIC_SHARED(shared);
    Bf16* const q_tile = reinterpret_cast<Bf16*>(shared);
    Bf16* const dc_tile = q_tile + Tiles::row_elements;
    Bf16* const stages = dc_tile + Tiles::row_elements;

    const int tiles = ceil_divide(call.shape.positions, Tiles::rows);
    const WarpPlace at = warp_place<Tiles>(block_from_last(tiles));
    const Rows<const Bf16> q = query_rows(call.shape, call.q, at.head);
    const VisibleKeys visible = visible_keys(call.shape, at.head / call.shape.heads);
    RowNumbers<Tiles::row_tiles> log_sum;
    RowNumbers<Tiles::row_tiles> dot;
    PIPETWIN_UNROLL
    for (int i = 0; i < Tiles::row_tiles; ++i) {
        PIPETWIN_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int r = at.row + 16 * i + 8 * half + lane_place().row;
            const bool inside = r < q.count;
            log_sum.at[i][half] = inside ? row_numbers(call.shape, call.log_sums, at.head)[r] : 0;
            dot.at[i][half] = inside ? row_numbers(call.shape, call.row_dots, at.head)[r] : 0;
        }
    }
    Sums<Tiles::row_tiles, size> dq;
    set_zero(dq);

    copy_tile<size, Tiles::rows>(q_tile, q, at.first_row);
    copy_tile<size, Tiles::rows>(
        dc_tile, context_rows(call.shape, call.dcontext, at.head), at.first_row);
    const int of_keys = key_value_head(call.shape, at.head);
    const Columns<Tiles> keys{stages,
                              key_rows(call.shape, call.k, of_keys, visible.keys),
                              value_rows(call.shape, call.k, of_keys, visible.keys)};
    const int end_column = visible.seen_before(at.first_row + Tiles::rows);
    keys.for_each(
        0, end_column, NoNumbers{}, [&](int, int column, const Bf16* k_tile, const Bf16* v_tile) {
            if (column > visible.last(at.row + Tiles::warp_rows - 1)) {
                return;
            }
            Sums<Tiles::row_tiles, columns> p;
            set_zero(p);
            multiply_transposed<size>(q_tile + at.warp_row * pitch<size>, k_tile, p);
            mask_scores(p, visible, at.row, column);
            // dP = dcontext V^T, dS = P * (dP - dot)
            Sums<Tiles::row_tiles, columns> ds;
            set_zero(ds);
            multiply_transposed<size>(dc_tile + at.warp_row * pitch<size>, v_tile, ds);
            for_each_element<Tiles::row_tiles, columns>([&](int i, int n, int e, int, int) {
                ds.at[i][n][e] = probability(p.at[i][n][e], scale, log_sum.at[i][e / 2]) *
                                 (ds.at[i][n][e] - dot.at[i][e / 2]);
            });
            multiply<size>(to_operand(ds), k_tile, dq);
        });
    const auto scaled = [=](int, int) { return scale; };
    store_rows(dq, query_rows(call.shape, call.dq, at.head), at.row, scaled);
}

template <int size>
using KeyTiles = Tiling<size, 1, size <= 64 ? 64 : 32>;
template <int size>
using QueryTiles = Tiling<size, size <= 64 ? 2 : 1, 32>;

}  // namespace

cudaError_t tensor_core_backward(const AttentionBackward<Bf16>& call, cudaStream_t stream) {
    return with_head_size(call.shape, [&](auto size) {
        using Keys = KeyTiles<decltype(size)::value>;
        using Queries = QueryTiles<decltype(size)::value>;
        const cudaError_t error = launch_tiles<key_gradients_kernel<Keys>, Keys>(
            TileRows::Keys, backward_bytes<Keys>, stream, call);
        if (error != cudaSuccess) {
            return error;
        }
        return launch_tiles<query_gradients_kernel<Queries>, Queries>(
            TileRows::Queries, backward_bytes<Queries>, stream, call);
    });
}

}  // namespace pipetwin::cuda
