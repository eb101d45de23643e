// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "exec/cuda/kernels/attention/attention_paths.h"
#include "exec/cuda/kernels/attention/mma.h"

/// Attention in bf16 on the tensor cores, as in FlashAttention-2 (Dao, arXiv 2307.08691, section
/// 3): a block of 4 warps keeps a tile of rows, of which each warp owns 16 or 32, and walks over
/// the tiles of columns that the mask leaves. Scores never leave the registers: the accumulator of
/// one product is, rounded to bf16, the left operand of the next.
///
///             keys                       forward, query gradients: a block is a row of tiles
///           +---+                        key gradients: a block is a column of tiles, S^T and dS^T
///   queries | \ |     \ the diagonal     take the places of S and dS
///           +---+---+
///           |   | \ |
///           +---+---+
///
/// Heads of a group share their keys: a block of key gradients goes through the queries of all of
/// them, one head after the other.
///
/// Work below the diagonal, per head of size d with T positions: 2 d T^2 FLOP forward, and 7 d T^2
/// backward, where 5 would do with atomic additions to dQ: S and dP are computed once along the
/// keys and once along the queries. Bytes: forward, a block of R rows reads the 4 d bytes of a
/// key's K and V for 4 d R FLOP, R = 128 FLOP per byte; backward 64 to 192. An A100's memory alone
/// would ask for 150 (312 TFLOP/s, 2.0 TB/s), so most of it has to come from the L2 cache: the
/// blocks of one head lie side by side.
///
/// Shared memory is the narrow place: a product of 16 x 16 by 16 x 8 takes 256 bytes of right
/// operand, at 128 bytes a cycle as long as an A100's tensor cores take for it. So a warp has two
/// tiles of 16 rows for each right operand where the registers last, and one where they do not.
namespace pipetwin::cuda::tensor_cores {

/// Warps of a block.
constexpr int warps = 4;
/// Threads of a block.
constexpr int threads = warps * warp_lanes;

/// Elements from one row of a tile to the next in shared memory. The 8 more than the row has move
/// each row on by 16 bytes (mod 32), so the 8 rows of 16 bytes that one phase of ldmatrix reads lie
/// in different banks for every size that is a multiple of 16.
template <int size>
constexpr int pitch = size + 8;

/// How a kernel is cut: the rows that stay and the columns that pass by. Chosen by size of a head
/// so that nothing spills: of the 255 registers that a thread can have, sums and scores take
///
///     size of a head                       64    128
///     forward: context, scores            128    160
///     key gradients: dK, dV, P, dS        128    160
///     query gradients: dQ, scores, dS     128     96
///
/// and 192 is too much for all of them. Shared memory is 55 KiB at 64 and 69 KiB at 128, so a
/// multiprocessor of an A100 or H100 has two blocks.
template <int size_, int row_tiles_, int columns_>
struct Tiling {
    static constexpr int size = size_;
    static constexpr int row_tiles = row_tiles_;  ///< of 16 rows, per warp
    static constexpr int warp_rows = 16 * row_tiles;
    static constexpr int rows = warps * warp_rows;
    static constexpr int columns = columns_;
    static constexpr int row_elements = rows * pitch<size>;        ///< of one matrix
    static constexpr int column_elements = columns * pitch<size>;  ///< likewise
};

/// The extent of an array as std::size_t.
constexpr std::size_t extent(int size) {
    return static_cast<std::size_t>(size);
}

/// 16-row tiles of fp32 sums, spread over the warp as mma.m16n8k16 does it.
template <int row_tiles, int columns>
struct Sums {
    float at[extent(row_tiles)][extent(columns / 8)][4];
};

/// The elements of `Sums`, rounded to bf16, as the left operand of the next product.
template <int row_tiles, int inner>
struct LeftOperand {
    std::uint32_t at[extent(row_tiles)][extent(inner / 16)][4];
};

/// A number for each row of a thread: at[i][half] is that of row 16 i + 8 half + the lane's.
template <int row_tiles>
struct RowNumbers {
    float at[extent(row_tiles)][2];
};

/// Element e of this thread's four of a 16 x 8 tile is at row + 8 (e / 2), column + e % 2.
struct Place {
    int row;
    int column;
};

/// Index of the calling thread in its warp.
__device__ inline int lane_index() {
    return static_cast<int>(threadIdx.x) % warp_lanes;
}

/// Place of the calling thread's element 0 in a 16 x 8 tile.
__device__ inline Place lane_place() {
    return {lane_index() / 4, lane_index() % 4 * 2};
}

/// Calls f(i, n, e, row, column) for each of this thread's elements at[i][n][e] of `row_tiles`
/// 16-row tiles.
template <int row_tiles, int columns, class F>
__device__ inline void for_each_element(const F& f) {
    const Place place = lane_place();
    PIPETWIN_UNROLL
    for (int i = 0; i < row_tiles; ++i) {
        PIPETWIN_UNROLL
        for (int n = 0; n < columns / 8; ++n) {
            PIPETWIN_UNROLL
            for (int e = 0; e < 4; ++e) {
                f(i, n, e, 16 * i + place.row + 8 * (e / 2), 8 * n + place.column + e % 2);
            }
        }
    }
}

/// Sets all sums to 0.
template <int row_tiles, int columns>
__device__ inline void set_zero(Sums<row_tiles, columns>& sums) {
    for_each_element<row_tiles, columns>(
        [&](int i, int n, int e, int, int) { sums.at[i][n][e] = 0; });
}

/// Two numbers, rounded to bf16, in 32 bits; `first` in the low half.
__device__ inline std::uint32_t pack(float first, float second) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/// The sums, rounded to bf16, as a left operand: each thread keeps its own elements.
template <int row_tiles, int columns>
__device__ inline LeftOperand<row_tiles, columns> to_operand(const Sums<row_tiles, columns>& sums) {
    LeftOperand<row_tiles, columns> operand;
    PIPETWIN_UNROLL
    for (int i = 0; i < row_tiles; ++i) {
        PIPETWIN_UNROLL
        for (int n = 0; n < columns / 8; ++n) {
            // The right 8 columns of 16 are the upper half of an operand.
            std::uint32_t* const half = &operand.at[i][n / 2][n % 2 * 2];
            half[0] = pack(sums.at[i][n][0], sums.at[i][n][1]);
            half[1] = pack(sums.at[i][n][2], sums.at[i][n][3]);
        }
    }
    return operand;
}

/// Begins to copy rows first.. of a head into a tile, zeros where there are no more.
template <int size, int rows>
__device__ inline void copy_tile(Bf16* tile, const Rows<const Bf16>& from, int first) {
    constexpr int per_copy = 8;
    constexpr int per_row = size / per_copy;
    PIPETWIN_ROLLED
    for (int begin = 0; begin < rows * per_row; begin += threads) {
        const int index = begin + static_cast<int>(threadIdx.x);
        if (rows * per_row % threads != 0 && index >= rows * per_row) {
            break;
        }
        const int row = index / per_row;
        const int column = index % per_row * per_copy;
        Bf16* const to = tile + row * pitch<size> + column;
        if (first + row < from.count) {
            copy_async_16(to, from.data + (first + row) * from.stride + column);
        } else {
            *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
        }
    }
}

/// sums (16, 16) += a (16, 16) times the right operands of both halves.
__device__ inline void multiply_16_columns(float (*sums)[4],
                                           const std::uint32_t (&a)[4],
                                           const std::uint32_t (&right)[4]) {
    const std::uint32_t first[2] = {right[0], right[1]};
    const std::uint32_t second[2] = {right[2], right[3]};
    multiply_16x8x16(sums[0], a, first);
    multiply_16x8x16(sums[1], a, second);
}

/// sums += a b^T.  a (16 row_tiles, size), this warp's rows; b (columns, size)
template <int size, int row_tiles, int columns>
__device__ inline void multiply_transposed(const Bf16* a,
                                           const Bf16* b,
                                           Sums<row_tiles, columns>& sums) {
    const int lane = lane_index();
    // Eight lanes each name the rows of one 8 x 8 matrix: of `a` upper, lower, and both again 8
    // columns on; of `b` left, right, and both again 8 rows on.
    const Bf16* const a_row = a + lane % 16 * pitch<size> + lane / 16 * 8;
    const Bf16* const b_row = b + (lane / 16 * 8 + lane % 8) * pitch<size> + lane / 8 % 2 * 8;
    PIPETWIN_UNROLL
    for (int k = 0; k < size; k += 16) {
        LeftOperand<row_tiles, 16> left;
        PIPETWIN_UNROLL
        for (int i = 0; i < row_tiles; ++i) {
            load_matrices(left.at[i][0], a_row + 16 * i * pitch<size> + k);
        }
        PIPETWIN_UNROLL
        for (int n = 0; n < columns; n += 16) {
            std::uint32_t right[4];
            load_matrices(right, b_row + n * pitch<size> + k);
            PIPETWIN_UNROLL
            for (int i = 0; i < row_tiles; ++i) {
                multiply_16_columns(&sums.at[i][n / 8], left.at[i][0], right);
            }
        }
    }
}

/// sums += a b.  a (16 row_tiles, inner), in registers; b (inner, size)
template <int size, int row_tiles, int inner>
__device__ inline void multiply(const LeftOperand<row_tiles, inner>& a,
                                const Bf16* b,
                                Sums<row_tiles, size>& sums) {
    const int lane = lane_index();
    const Bf16* const b_row = b + lane % 16 * pitch<size> + lane / 16 * 8;
    PIPETWIN_UNROLL
    for (int k = 0; k < inner; k += 16) {
        PIPETWIN_UNROLL
        for (int n = 0; n < size; n += 16) {
            std::uint32_t right[4];
            load_matrices_transposed(right, b_row + k * pitch<size> + n);
            PIPETWIN_UNROLL
            for (int i = 0; i < row_tiles; ++i) {
                multiply_16_columns(&sums.at[i][n / 8], a.at[i][k / 16], right);
            }
        }
    }
}

/// Writes rows first.. of a head, as far as there are any. `factor(i, half)` is that of a
/// thread's row, as in RowNumbers.
template <int row_tiles, int size, class F>
__device__ inline void store_rows(const Sums<row_tiles, size>& sums,
                                  const Rows<Bf16>& to,
                                  int first,
                                  const F& factor) {
    const Place place = lane_place();
    PIPETWIN_UNROLL
    for (int i = 0; i < row_tiles; ++i) {
        PIPETWIN_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int row = first + 16 * i + 8 * half + place.row;
            if (row < to.count) {
                const float scale = factor(i, half);
                Bf16* const line = to.data + row * to.stride + place.column;
                PIPETWIN_UNROLL
                for (int n = 0; n < size / 8; ++n) {
                    const float* const pair = sums.at[i][n] + 2 * half;
                    *reinterpret_cast<__nv_bfloat162*>(line + 8 * n) =
                        __floats2bfloat162_rn(pair[0] * scale, pair[1] * scale);
                }
            }
        }
    }
}

/// Scores of keys that a query does not see become -infinity; (row, column) is the tiles' corner.
template <int row_tiles, int columns>
__device__ inline void mask_scores(Sums<row_tiles, columns>& scores,
                                   const VisibleKeys& visible,
                                   int row,
                                   int column) {
    if (column + columns - 1 > visible.last(row)) {
        for_each_element<row_tiles, columns>([&](int i, int n, int e, int r, int c) {
            if (column + c > visible.last(row + r)) {
                scores.at[i][n][e] = -INFINITY;
            }
        });
    }
}

/// The rows that a warp works on, counted in the head's positions.
struct WarpPlace {
    int head;
    int first_row;  ///< of the block
    int warp_row;   ///< of the warp, counted in the block's
    int row;        ///< likewise, in the head's
};

/// The rows of the calling warp in its block's tile.
template <class Tiles>
__device__ inline WarpPlace warp_place(const BlockPlace& block) {
    const int first_row = block.tile * Tiles::rows;
    const int warp_row = static_cast<int>(threadIdx.x) / warp_lanes * Tiles::warp_rows;
    return {block.head, first_row, warp_row, first_row + warp_row};
}

/// For columns that need no numbers beside their matrices.
struct NoNumbers {
    /// Stores nothing.
    __device__ void put(int /*stage*/) {}
    /// Fetches nothing.
    __device__ void fetch(int /*column*/) {}
};

/// The columns of two matrices on their way through two stages of shared memory, one worked on
/// while the other arrives.
template <class Tiles>
struct Columns {
    Bf16* memory;  ///< 4 Tiles::column_elements
    Rows<const Bf16> first;
    Rows<const Bf16> second;

    /// The tile of the first matrix in a stage of shared memory; that of the second lies behind it.
    __device__ const Bf16* tile(int stage) const {
        return memory + 2 * stage * Tiles::column_elements;
    }
    /// Begins to copy the columns from `column` on into a stage.
    __device__ void copy(int stage, int column) const {
        Bf16* const to = memory + 2 * stage * Tiles::column_elements;
        copy_tile<Tiles::size, Tiles::columns>(to, first, column);
        copy_tile<Tiles::size, Tiles::columns>(to + Tiles::column_elements, second, column);
        commit_copies();
    }

    /// work(stage, column, first tile, second tile) for tiles from `begin` to before `end`, after
    /// all threads have what they copied before. `numbers` come along: put(stage) stores those that
    /// fetch(column) had begun to load.
    template <class Numbers, class Work>
    __device__ void for_each(int begin, int end, Numbers numbers, const Work& work) const {
        copy(0, begin);
        numbers.fetch(begin);
        int stage = 0;
        for (int column = begin; column < end; column += Tiles::columns) {
            numbers.put(stage);
            // Waits for the copies of the calling thread, then of all threads; the other stage is
            // not read any more.
            wait_for_copies<0>();
            __syncthreads();
            if (column + Tiles::columns < end) {
                copy(1 - stage, column + Tiles::columns);
                numbers.fetch(column + Tiles::columns);
            }
            work(stage, column, tile(stage), tile(stage) + Tiles::column_elements);
            stage = 1 - stage;
        }
    }
};

/// Asks for the shared memory, which may be more than a kernel has unasked.
template <auto kernel, class Tiles, class Call>
cudaError_t launch_tiles(TileRows of, int shared_bytes, cudaStream_t stream, const Call& call) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != cudaSuccess) {
        return error;
    }
    return launch<kernel>(attention_blocks(call.shape, of, Tiles::rows),
                          threads,
                          static_cast<std::size_t>(shared_bytes),
                          stream,
                          call,
                          attention_scale(call.shape));
}

/// f(std::integral_constant<int, size>) with the size of a head, where there are kernels for it.
template <class F>
cudaError_t with_head_size(const AttentionLayout& shape, const F& f) {
    switch (shape.head_size) {
        case 16:
            return f(std::integral_constant<int, 16>{});
        case 32:
            return f(std::integral_constant<int, 32>{});
        case 64:
            return f(std::integral_constant<int, 64>{});
        case 96:
            return f(std::integral_constant<int, 96>{});
        case 128:
            return f(std::integral_constant<int, 128>{});
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace pipetwin::cuda::tensor_cores
