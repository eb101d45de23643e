#include <cmath>
#include <cstdint>
#include <cstring>

#include "exec/cuda/attention_paths.h"
#include "exec/cuda/mma.h"

// Attention in bf16 on the tensor cores, as in FlashAttention-2 (Dao, arXiv 2307.08691, section 3):
// a block of 4 warps keeps a tile of rows, of which each warp owns 16 or 32, and walks over the
// tiles of columns that the causal mask leaves. Scores never leave the registers: the accumulator
// of one product is, rounded to bf16, the left operand of the next.
//
//             keys                       forward, query gradients: a block is a row of tiles
//           +---+                        key gradients: a block is a column of tiles, S^T and dS^T
//   queries | \ |     \ the diagonal     take the places of S and dS
//           +---+---+
//           |   | \ |
//           +---+---+
//
// Work below the diagonal, per head of size d with T positions: 2 d T^2 FLOP forward, and 7 d T^2
// backward, where 5 would do with atomic additions to dQ: S and dP are computed once along the keys
// and once along the queries. Bytes: forward, a block of R rows reads the 4 d bytes of a key's K
// and V for 4 d R FLOP, R = 128 FLOP per byte; backward 64 to 192. An A100's memory alone would ask
// for 150 (312 TFLOP/s, 2.0 TB/s), so most of it has to come from the L2 cache: the blocks of one
// head lie side by side.
//
// Shared memory is the narrow place: a product of 16 x 16 by 16 x 8 takes 256 bytes of right
// operand, at 128 bytes a cycle as long as an A100's tensor cores take for it. So a warp has two
// tiles of 16 rows for each right operand where the registers last, and one where they do not.
namespace pipetwin::cuda {
namespace {

constexpr int warps = 4;
constexpr int threads = warps * warp_lanes;

/// Elements from one row of a tile to the next in shared memory. The 8 more than the row has move
/// each row on by 16 bytes (mod 32), so the 8 rows of 16 bytes that one phase of ldmatrix reads lie
/// in different banks for every size that is a multiple of 16.
template <int size>
constexpr int pitch = size + 8;

/// How a kernel is cut: the rows that stay and the columns that pass by.
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

constexpr std::size_t extent(int size) {
    return static_cast<std::size_t>(size);
}

/// 16-row tiles of fp32 sums, spread over the warp as mma.m16n8k16 does it.
template <int row_tiles, int columns>
struct Sums {
    float at[extent(row_tiles)][extent(columns / 8)][4];
};

/// The same elements, rounded to bf16, as the left operand of the next product.
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

__device__ inline int lane_index() {
    return static_cast<int>(threadIdx.x) % warp_lanes;
}

__device__ inline Place lane_place() {
    return {lane_index() / 4, lane_index() % 4 * 2};
}

/// f(i, n, e, row, column) for each of this thread's elements at[i][n][e] of so many 16-row tiles.
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

template <int row_tiles, int columns>
__device__ inline void set_zero(Sums<row_tiles, columns>& sums) {
    for_each_element<row_tiles, columns>(
        [&](int i, int n, int e, int, int) { sums.at[i][n][e] = 0; });
}

__device__ inline std::uint32_t pack(float first, float second) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &pair, sizeof bits);
    return bits;
}

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

/// Begins to copy rows first.. of a head into a tile, zeros where the head has no more.
template <int size, int rows>
__device__ inline void copy_tile(Bf16* tile, const Rows<const Bf16>& from, int first, int count) {
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
        if (first + row < count) {
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

/// Writes rows first.. of a head, as far as it has them. `factor(i, half)` is that of a
/// thread's row, as in RowNumbers.
template <int row_tiles, int size, class F>
__device__ inline void store_rows(const Sums<row_tiles, size>& sums,
                                  const Rows<Bf16>& to,
                                  int first,
                                  int count,
                                  const F& factor) {
    const Place place = lane_place();
    PIPETWIN_UNROLL
    for (int i = 0; i < row_tiles; ++i) {
        PIPETWIN_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int row = first + 16 * i + 8 * half + place.row;
            if (row < count) {
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

/// Scores of keys that come after the query become -infinity; (row, column) is the tiles' corner.
template <int row_tiles, int columns>
__device__ inline void mask_scores(Sums<row_tiles, columns>& scores, int row, int column) {
    if (column + columns - 1 > row) {
        for_each_element<row_tiles, columns>([&](int i, int n, int e, int r, int c) {
            if (column + c > row + r) {
                scores.at[i][n][e] = -INFINITY;
            }
        });
    }
}

/// The same where rows are keys and columns queries.
template <int row_tiles, int columns>
__device__ inline void mask_transposed(Sums<row_tiles, columns>& scores, int row, int column) {
    if (row + 16 * row_tiles - 1 > column) {
        for_each_element<row_tiles, columns>([&](int i, int n, int e, int r, int c) {
            if (row + r > column + c) {
                scores.at[i][n][e] = -INFINITY;
            }
        });
    }
}

/// Of the four lanes that share a row.
__device__ inline float row_largest(float x) {
    x = fmaxf(x, __shfl_xor_sync(all_lanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(all_lanes, x, 2));
}

__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(all_lanes, x, 1);
    return x + __shfl_xor_sync(all_lanes, x, 2);
}

// ------------------------------------------------------------------------------------------------
// Forward
// ------------------------------------------------------------------------------------------------

/// What a thread knows of its rows so far.
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
    constexpr int columns = Tiles::columns;
    PIPETWIN_DYNAMIC_SHARED(shared);
    Bf16* const q_tile = reinterpret_cast<Bf16*>(shared);
    Bf16* const stages = q_tile + Tiles::row_elements;

    const int positions = call.shape.positions;
    const BlockPlace place = block_from_last(ceil_divide(positions, Tiles::rows));
    const int first_row = place.tile * Tiles::rows;
    const int warp_row = static_cast<int>(threadIdx.x) / warp_lanes * Tiles::warp_rows;
    const int row = first_row + warp_row;
    const int end_column = min(first_row + Tiles::rows, positions);
    const Rows<const Bf16> k_rows = qkv_rows(call.shape, call.qkv, place.head, 1);
    const Rows<const Bf16> v_rows{k_rows.data + call.shape.width, k_rows.stride};
    const auto copy_stage = [=](int stage, int column) {
        Bf16* const to = stages + 2 * stage * Tiles::column_elements;
        copy_tile<size, columns>(to, k_rows, column, positions);
        copy_tile<size, columns>(to + Tiles::column_elements, v_rows, column, positions);
        commit_copies();
    };

    Sums<Tiles::row_tiles, size> context;
    set_zero(context);
    Softmax<Tiles::row_tiles> softmax;
    PIPETWIN_UNROLL
    for (int i = 0; i < Tiles::row_tiles; ++i) {
        softmax.largest.at[i][0] = softmax.largest.at[i][1] = -INFINITY;
        softmax.sum.at[i][0] = softmax.sum.at[i][1] = 0;
    }

    copy_tile<size, Tiles::rows>(
        q_tile, qkv_rows(call.shape, call.qkv, place.head, 0), first_row, positions);
    copy_stage(0, 0);
    int stage = 0;
    for (int column = 0; column < end_column; column += columns) {
        // This thread's copies, then everyone's; and nobody reads the other stage any more.
        wait_for_copies<0>();
        __syncthreads();
        if (column + columns < end_column) {
            copy_stage(1 - stage, column + columns);
        }
        if (column < row + Tiles::warp_rows) {
            const Bf16* const k_tile = stages + 2 * stage * Tiles::column_elements;
            Sums<Tiles::row_tiles, columns> scores;
            set_zero(scores);
            multiply_transposed<size>(q_tile + warp_row * pitch<size>, k_tile, scores);
            mask_scores(scores, row, column);
            online_softmax(scores, softmax, context, scale * log2_e);
            multiply<size>(to_operand(scores), k_tile + Tiles::column_elements, context);
        }
        stage = 1 - stage;
    }

    float* const log_sums = row_numbers(call.shape, call.log_sums, place.head);
    PIPETWIN_UNROLL
    for (int i = 0; i < Tiles::row_tiles; ++i) {
        PIPETWIN_UNROLL
        for (int half = 0; half < 2; ++half) {
            const float sum = row_sum(softmax.sum.at[i][half]);
            softmax.sum.at[i][half] = sum;
            const int r = row + 16 * i + 8 * half + lane_place().row;
            if (lane_place().column == 0 && r < positions) {
                log_sums[r] = softmax.largest.at[i][half] * scale + logf(sum);
            }
        }
    }
    store_rows(context,
               context_rows(call.shape, call.context, place.head),
               row,
               positions,
               [&](int i, int half) { return 1 / softmax.sum.at[i][half]; });
}

// ------------------------------------------------------------------------------------------------
// Backward
// ------------------------------------------------------------------------------------------------

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

/// dK = dS^T Q scale and dV = P^T dcontext for a tile of keys; rows are keys here, and columns
/// queries. Columns beyond the last have log sum 0, dot 0 and zeros for Q and dcontext: P is 1
/// there, and what it is multiplied with 0.
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

    const int positions = call.shape.positions;
    const BlockPlace place = block_from_first(ceil_divide(positions, Tiles::rows));
    const int first_row = place.tile * Tiles::rows;
    const int warp_row = static_cast<int>(threadIdx.x) / warp_lanes * Tiles::warp_rows;
    const int row = first_row + warp_row;
    const Rows<const Bf16> q_rows = qkv_rows(call.shape, call.qkv, place.head, 0);
    const Rows<const Bf16> dc_rows = context_rows(call.shape, call.dcontext, place.head);
    const float* const log_sums = row_numbers(call.shape, call.log_sums, place.head);
    const float* const row_dots = row_numbers(call.shape, call.row_dots, place.head);
    const auto copy_stage = [=](int stage, int column) {
        Bf16* const to = stages + 2 * stage * Tiles::column_elements;
        copy_tile<size, columns>(to, q_rows, column, positions);
        copy_tile<size, columns>(to + Tiles::column_elements, dc_rows, column, positions);
        commit_copies();
    };
    // Each thread fetches the log sum or the dot of one query.
    const int thread = static_cast<int>(threadIdx.x);
    static_assert(2 * columns <= threads, "one number per thread");
    const auto fetch_number = [=](int column) {
        const int query = column + thread % columns;
        const bool inside = thread < 2 * columns && query < positions;
        return inside ? (thread < columns ? log_sums : row_dots)[query] : 0;
    };

    Sums<Tiles::row_tiles, size> dk;
    Sums<Tiles::row_tiles, size> dv;
    set_zero(dk);
    set_zero(dv);

    const Rows<const Bf16> k_rows = qkv_rows(call.shape, call.qkv, place.head, 1);
    const Rows<const Bf16> v_rows = qkv_rows(call.shape, call.qkv, place.head, 2);
    copy_tile<size, Tiles::rows>(k_tile, k_rows, first_row, positions);
    copy_tile<size, Tiles::rows>(v_tile, v_rows, first_row, positions);
    static_assert(Tiles::rows % columns == 0, "a tile of rows begins where one of columns does");
    copy_stage(0, first_row);
    float number = fetch_number(first_row);
    int stage = 0;
    for (int column = first_row; column < positions; column += columns) {
        if (thread < 2 * columns) {
            numbers[2 * stage * columns + thread] = number;
        }
        wait_for_copies<0>();
        __syncthreads();
        if (column + columns < positions) {
            copy_stage(1 - stage, column + columns);
            number = fetch_number(column + columns);
        }
        if (column + columns > row) {
            const Bf16* const q_tile = stages + 2 * stage * Tiles::column_elements;
            const Bf16* const dc_tile = q_tile + Tiles::column_elements;
            const float* const sums_tile = numbers + 2 * stage * columns;
            const float* const dots_tile = sums_tile + columns;
            // P^T = exp(K Q^T scale - log sum)
            Sums<Tiles::row_tiles, columns> p;
            set_zero(p);
            multiply_transposed<size>(k_tile + warp_row * pitch<size>, q_tile, p);
            mask_transposed(p, row, column);
            for_each_element<Tiles::row_tiles, columns>([&](int i, int n, int e, int, int c) {
                p.at[i][n][e] = probability(p.at[i][n][e], scale, sums_tile[c]);
            });
            multiply<size>(to_operand(p), dc_tile, dv);
            // dP^T = V dcontext^T, dS^T = P^T * (dP^T - dot)
            Sums<Tiles::row_tiles, columns> ds;
            set_zero(ds);
            multiply_transposed<size>(v_tile + warp_row * pitch<size>, dc_tile, ds);
            for_each_element<Tiles::row_tiles, columns>([&](int i, int n, int e, int, int c) {
                ds.at[i][n][e] = p.at[i][n][e] * (ds.at[i][n][e] - dots_tile[c]);
            });
            multiply<size>(to_operand(ds), q_tile, dk);
        }
        stage = 1 - stage;
    }
    store_rows(dk, qkv_rows(call.shape, call.dqkv, place.head, 1), row, positions, [=](int, int) {
        return scale;
    });
    store_rows(dv, qkv_rows(call.shape, call.dqkv, place.head, 2), row, positions, [](int, int) {
        return 1.0F;
    });
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

    const int positions = call.shape.positions;
    const BlockPlace place = block_from_last(ceil_divide(positions, Tiles::rows));
    const int first_row = place.tile * Tiles::rows;
    const int warp_row = static_cast<int>(threadIdx.x) / warp_lanes * Tiles::warp_rows;
    const int row = first_row + warp_row;
    const int end_column = min(first_row + Tiles::rows, positions);
    const Rows<const Bf16> k_rows = qkv_rows(call.shape, call.qkv, place.head, 1);
    const Rows<const Bf16> v_rows = qkv_rows(call.shape, call.qkv, place.head, 2);
    const auto copy_stage = [=](int stage, int column) {
        Bf16* const to = stages + 2 * stage * Tiles::column_elements;
        copy_tile<size, columns>(to, k_rows, column, positions);
        copy_tile<size, columns>(to + Tiles::column_elements, v_rows, column, positions);
        commit_copies();
    };

    RowNumbers<Tiles::row_tiles> log_sum;
    RowNumbers<Tiles::row_tiles> dot;
    PIPETWIN_UNROLL
    for (int i = 0; i < Tiles::row_tiles; ++i) {
        PIPETWIN_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int r = row + 16 * i + 8 * half + lane_place().row;
            const bool inside = r < positions;
            log_sum.at[i][half] =
                inside ? row_numbers(call.shape, call.log_sums, place.head)[r] : 0;
            dot.at[i][half] = inside ? row_numbers(call.shape, call.row_dots, place.head)[r] : 0;
        }
    }
    Sums<Tiles::row_tiles, size> dq;
    set_zero(dq);

    const Rows<const Bf16> q_rows = qkv_rows(call.shape, call.qkv, place.head, 0);
    const Rows<const Bf16> dc_rows = context_rows(call.shape, call.dcontext, place.head);
    copy_tile<size, Tiles::rows>(q_tile, q_rows, first_row, positions);
    copy_tile<size, Tiles::rows>(dc_tile, dc_rows, first_row, positions);
    copy_stage(0, 0);
    int stage = 0;
    for (int column = 0; column < end_column; column += columns) {
        wait_for_copies<0>();
        __syncthreads();
        if (column + columns < end_column) {
            copy_stage(1 - stage, column + columns);
        }
        if (column < row + Tiles::warp_rows) {
            const Bf16* const k_tile = stages + 2 * stage * Tiles::column_elements;
            const Bf16* const v_tile = k_tile + Tiles::column_elements;
            Sums<Tiles::row_tiles, columns> p;
            set_zero(p);
            multiply_transposed<size>(q_tile + warp_row * pitch<size>, k_tile, p);
            mask_scores(p, row, column);
            // dP = dcontext V^T, dS = P * (dP - dot)
            Sums<Tiles::row_tiles, columns> ds;
            set_zero(ds);
            multiply_transposed<size>(dc_tile + warp_row * pitch<size>, v_tile, ds);
            for_each_element<Tiles::row_tiles, columns>([&](int i, int n, int e, int, int) {
                ds.at[i][n][e] = probability(p.at[i][n][e], scale, log_sum.at[i][e / 2]) *
                                 (ds.at[i][n][e] - dot.at[i][e / 2]);
            });
            multiply<size>(to_operand(ds), k_tile, dq);
        }
        stage = 1 - stage;
    }
    store_rows(dq, qkv_rows(call.shape, call.dqkv, place.head, 0), row, positions, [=](int, int) {
        return scale;
    });
}

// ------------------------------------------------------------------------------------------------
// Launches
// ------------------------------------------------------------------------------------------------

/// Rows and columns by size of a head, chosen so that nothing spills: of the 255 registers that a
/// thread can have, sums and scores take
///
///     size of a head                       64    128
///     forward: context, scores            128    160
///     key gradients: dK, dV, P, dS        128    160
///     query gradients: dQ, scores, dS     128     96
///
/// and 192 is too much for all of them. Shared memory is 55 KiB at 64 and 69 KiB at 128, so a
/// multiprocessor of an A100 or H100 has two blocks.
template <int size>
using ForwardTiles = Tiling<size, 2, size <= 64 ? 64 : 32>;
template <int size>
using KeyTiles = Tiling<size, 1, size <= 64 ? 64 : 32>;
template <int size>
using QueryTiles = Tiling<size, size <= 64 ? 2 : 1, 32>;

template <auto kernel, class Tiles, class Call>
cudaError_t launch_tiles(int shared_bytes, cudaStream_t stream, const Call& call) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != cudaSuccess) {
        return error;
    }
    return launch<kernel>(attention_blocks(call.shape, Tiles::rows),
                          threads,
                          static_cast<std::size_t>(shared_bytes),
                          stream,
                          call,
                          attention_scale(call.shape));
}

template <int size>
cudaError_t forward(const AttentionForward<Bf16>& call, cudaStream_t stream) {
    using Tiles = ForwardTiles<size>;
    return launch_tiles<forward_kernel<Tiles>, Tiles>(forward_bytes<Tiles>, stream, call);
}

template <int size>
cudaError_t backward(const AttentionBackward<Bf16>& call, cudaStream_t stream) {
    using Keys = KeyTiles<size>;
    using Queries = QueryTiles<size>;
    const cudaError_t error =
        launch_tiles<key_gradients_kernel<Keys>, Keys>(backward_bytes<Keys>, stream, call);
    if (error != cudaSuccess) {
        return error;
    }
    return launch_tiles<query_gradients_kernel<Queries>, Queries>(
        backward_bytes<Queries>, stream, call);
}

}  // namespace

bool tensor_cores_take(int head_size) {
    return head_size == 16 || head_size == 32 || head_size == 64 || head_size == 96 ||
           head_size == 128;
}

cudaError_t tensor_core_forward(const AttentionForward<Bf16>& call, cudaStream_t stream) {
    switch (call.shape.width / call.shape.heads) {
        case 16:
            return forward<16>(call, stream);
        case 32:
            return forward<32>(call, stream);
        case 64:
            return forward<64>(call, stream);
        case 96:
            return forward<96>(call, stream);
        case 128:
            return forward<128>(call, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

cudaError_t tensor_core_backward(const AttentionBackward<Bf16>& call, cudaStream_t stream) {
    switch (call.shape.width / call.shape.heads) {
        case 16:
            return backward<16>(call, stream);
        case 32:
            return backward<32>(call, stream);
        case 64:
            return backward<64>(call, stream);
        case 96:
            return backward<96>(call, stream);
        case 128:
            return backward<128>(call, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace pipetwin::cuda
