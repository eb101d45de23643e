// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/attention/attention_tensor_cores.h"

namespace pipetwin::cuda {
namespace {

using namespace tensor_cores;

/// The largest x of the four lanes that share a row.
__device__ inline float row_largest(float x) {
    x = fmaxf(x, __shfl_xor_sync(all_lanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(all_lanes, x, 2));
}

__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(all_lanes, x, 1);
    return x + __shfl_xor_sync(all_lanes, x, 2);
}

/// State of a thread's rows so far.
template <int row_tiles>
struct Softmax {
    RowNumbers<row_tiles> largest;  ///< score, unscaled
    RowNumbers<row_tiles> sum;      ///< of exp(score - largest), this thread's columns only
};

/// Scores become exp(score - largest so far); sums and context so far are scaled to the new
/// largest. The first tile has a column for every row, so `largest` is finite ever after.
template <int row_tiles, int columns, int size>
__device__ inline void online_softmax(Sums<row_tiles, columns>& scores,
                                      Softmax<row_tiles>& rows,
                                      Sums<row_tiles, size>& context,
                                      float scale_log2) {
    PIPETWIN_UNROLL
    for (int i = 0; i < row_tiles; ++i) {
        PIPETWIN_UNROLL
        for (int half = 0; half < 2; ++half) {
            float largest = rows.largest.at[i][half];
            PIPETWIN_UNROLL
            for (int n = 0; n < columns / 8; ++n) {
                const float* const pair = scores.at[i][n] + 2 * half;
                largest = fmaxf(largest, fmaxf(pair[0], pair[1]));
            }
            largest = row_largest(largest);
            const float shrink = exp2f((rows.largest.at[i][half] - largest) * scale_log2);
            const float shift = largest * scale_log2;
            float sum = 0;
            PIPETWIN_UNROLL
            for (int n = 0; n < columns / 8; ++n) {
                float* const pair = scores.at[i][n] + 2 * half;
                pair[0] = exp2f(fmaf(pair[0], scale_log2, -shift));
                pair[1] = exp2f(fmaf(pair[1], scale_log2, -shift));
                sum += pair[0] + pair[1];
            }
            rows.largest.at[i][half] = largest;
            rows.sum.at[i][half] = rows.sum.at[i][half] * shrink + sum;
            PIPETWIN_UNROLL
            for (int n = 0; n < size / 8; ++n) {
                context.at[i][n][2 * half] *= shrink;
                context.at[i][n][2 * half + 1] *= shrink;
            }
        }
    }
}

/// Shared memory: Q, then two stages of K and V, one worked on while the other arrives.
template <class Tiles>
constexpr int forward_bytes =
    (Tiles::row_elements + 4 * Tiles::column_elements) * static_cast<int>(sizeof(Bf16));

template <class Tiles>
__global__ void __launch_bounds__(threads)
    forward_kernel(AttentionForward<Bf16> call, float scale) {
    constexpr int size = Tiles::size;
    PIPETWIN_DYNAMIC_SHARED(shared);
    Bf16* const q_tile = reinterpret_cast<Bf16*>(shared);

    const int tiles = ceil_divide(call.shape.positions, Tiles::rows);
    const WarpPlace at = warp_place<Tiles>(block_from_last(tiles));
    const Rows<const Bf16> q = query_rows(call.shape, call.q, at.head);
    const VisibleKeys visible = visible_keys(call.shape, at.head / call.shape.heads);

    Sums<Tiles::row_tiles, size> context;
    set_zero(context);
    Softmax<Tiles::row_tiles> softmax;
    PIPETWIN_UNROLL
    for (int i = 0; i < Tiles::row_tiles; ++i) {
        softmax.largest.at[i][0] = softmax.largest.at[i][1] = -INFINITY;
        softmax.sum.at[i][0] = softmax.sum.at[i][1] = 0;
    }

    copy_tile<size, Tiles::rows>(q_tile, q, at.first_row);
    const int of_keys = key_value_head(call.shape, at.head);
    const Columns<Tiles> keys{q_tile + Tiles::row_elements,
                              key_rows(call.shape, call.k, of_keys, visible.keys),
                              value_rows(call.shape, call.k, of_keys, visible.keys)};
    keys.for_each(0,
                  visible.seen_before(at.first_row + Tiles::rows),
                  NoNumbers{},
                  [&](int, int column, const Bf16* k_tile, const Bf16* v_tile) {
                      if (column > visible.last(at.row + Tiles::warp_rows - 1)) {
                          return;
                      }
                      Sums<Tiles::row_tiles, Tiles::columns> scores;
                      set_zero(scores);
                      multiply_transposed<size>(q_tile + at.warp_row * pitch<size>, k_tile, scores);
                      mask_scores(scores, visible, at.row, column);
                      online_softmax(scores, softmax, context, scale * log2_e);
                      multiply<size>(to_operand(scores), v_tile, context);
                  });

    float* const log_sums = row_numbers(call.shape, call.log_sums, at.head);
    PIPETWIN_UNROLL
    for (int i = 0; i < Tiles::row_tiles; ++i) {
        PIPETWIN_UNROLL
        for (int half = 0; half < 2; ++half) {
            const float sum = row_sum(softmax.sum.at[i][half]);
            softmax.sum.at[i][half] = sum;
            const int r = at.row + 16 * i + 8 * half + lane_place().row;
            if (lane_place().column == 0 && r < q.count) {
                log_sums[r] = softmax.largest.at[i][half] * scale + logf(sum);
            }
        }
    }
    store_rows(
        context, context_rows(call.shape, call.context, at.head), at.row, [&](int i, int half) {
            return 1 / softmax.sum.at[i][half];
        });
}

template <int size>
using ForwardTiles = Tiling<size, 2, size <= 64 ? 64 : 32>;

}  // namespace

bool tensor_cores_take(int head_size) {
    return head_size == 16 || head_size == 32 || head_size == 64 || head_size == 96 ||
           head_size == 128;
}

cudaError_t tensor_core_forward(const AttentionForward<Bf16>& call, cudaStream_t stream) {
    return with_head_size(call.shape, [&](auto size) {
        using Tiles = ForwardTiles<decltype(size)::value>;
        return launch_tiles<forward_kernel<Tiles>, Tiles>(
            TileRows::Queries, forward_bytes<Tiles>, stream, call);
    });
}

}  // namespace pipetwin::cuda
