// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/dispatch.h"

// The backward of layer norm and RMS norm in one pass: dx of a row, and what the row adds to the
// gradients of gain and bias, while x and dy are in registers. Bound by memory: x, dy and skip are
// read once, dx is written once. A block has a slice of the rows, and writes what these add;
// another kernel adds the slices. How many slices there are follows from the shape, so the order of
// adding does, too.
namespace pipetwin::cuda {
namespace {

constexpr int norm_block = 256;
constexpr int norm_warps = norm_block / warp_lanes;

/// Number of slices of rows: as many as blocks that a GPU of 128 multiprocessors and more has at
/// once, or fewer, of 16 rows.
std::int64_t norm_slices(std::int64_t rows) {
    constexpr std::int64_t most = 256;
    const std::int64_t wanted = ceil_div(rows, 16);
    return wanted < most ? wanted : most;
}

/// Sums per column: of the gradients of gain and bias, or of the gain alone.
template <bool centred>
constexpr int norm_sums = centred ? 2 : 1;

template <class T>
struct NormOperands {
    std::int64_t rows;
    std::int64_t width;
    std::int64_t slice_rows;
    const T* x;
    const T* gain;
    const float* statistics;  ///< mean and s of each row, or s
    const T* dy;
    const T* skip;  ///< or null
    T* dx;
    float* slices;  ///< (slices, sums, width)
};

/// The sums of both numbers over the `threads` neighbours that share a row. Rows take turns with
/// the memory of `turn` 0 and 1, so that one barrier a row will do.
template <int threads>
__device__ __forceinline__ float2 sums_of_row(float2 value, int turn) {
    value = make_float2(warp_sum(value.x), warp_sum(value.y));
    if constexpr (threads > warp_lanes) {
        PIPETWIN_SHARED(of_warps, float2[2][norm_warps]);
        if (threadIdx.x % warp_lanes == 0) {
            of_warps[turn][threadIdx.x / warp_lanes] = value;
        }
        __syncthreads();
        value = of_warps[turn][0];
        PIPETWIN_UNROLL
        for (int warp = 1; warp < norm_warps; ++warp) {
            value.x += of_warps[turn][warp].x;
            value.y += of_warps[turn][warp].y;
        }
    }
    return value;
}

/// Adds the sums of all warps, which have the same columns, to those of the first one, as a tree.
template <std::size_t count>
__device__ __forceinline__ void add_warps(float (&sums)[count]) {
    PIPETWIN_SHARED(of_warps, float[norm_warps / 2][count][static_cast<std::size_t>(warp_lanes)]);
    const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
    for (int half = norm_warps / 2; half > 0; half /= 2) {
        if (warp >= half && warp < 2 * half) {
            PIPETWIN_UNROLL
            for (std::size_t i = 0; i < count; ++i) {
                of_warps[warp - half][i][lane] = sums[i];
            }
        }
        __syncthreads();
        if (warp < half) {
            PIPETWIN_UNROLL
            for (std::size_t i = 0; i < count; ++i) {
                sums[i] += of_warps[warp][i][lane];
            }
        }
        __syncthreads();
    }
}

/// Two blocks at a time on a multiprocessor, where registers allow it.
template <class T, int numbers>
constexpr int norm_blocks = numbers * static_cast<int>(sizeof(T)) <= 48 ? 2 : 1;

// Each thread has `numbers` columns at most. A number is read and written by one thread only, and
// read before, so dx may be x, dy or skip.
template <class T, bool centred, int threads, int numbers>
__global__ void __launch_bounds__(norm_block, norm_blocks<T, numbers>)
    norm_backward_kernel(NormOperands<T> o) {
    constexpr int pack = pack_size<T>;
    constexpr int packs = numbers / pack;
    constexpr std::int64_t stride = threads * pack;
    const std::int64_t first = static_cast<std::int64_t>(threadIdx.x % threads) * pack;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * o.slice_rows;
    const std::int64_t behind = begin + o.slice_rows;
    const std::int64_t end = behind < o.rows ? behind : o.rows;
    const float count = static_cast<float>(o.width);
    float sums[static_cast<std::size_t>(norm_sums<centred> * numbers)] = {};  // of gain, of bias
    int turn = 0;
    for (std::int64_t row = begin + threadIdx.x / threads; row < end; row += norm_block / threads) {
        const std::int64_t offset = row * o.width + first;
        const float mean = centred ? o.statistics[2 * row] : 0.0F;
        const float s = centred ? o.statistics[2 * row + 1] : o.statistics[row];
        Pack<T> x[static_cast<std::size_t>(packs)] = {};
        Pack<T> dy[static_cast<std::size_t>(packs)] = {};
        PIPETWIN_UNROLL
        for (int p = 0; p < packs; ++p) {
            if (first + p * stride < o.width) {
                x[p] = load_pack(o.x + offset + p * stride);
                dy[p] = load_pack(o.dy + offset + p * stride);
            }
        }
        float2 of_row = make_float2(0, 0);  // g, g z
        PIPETWIN_UNROLL
        for (int p = 0; p < packs; ++p) {
            if (first + p * stride >= o.width) {
                continue;
            }
            const Pack<T> gain = load_pack(o.gain + first + p * stride);
            PIPETWIN_UNROLL
            for (int k = 0; k < pack; ++k) {
                const float gradient = to_float(dy[p].at[k]);
                const float z = (to_float(x[p].at[k]) - mean) * s;
                const float g = to_float(gain.at[k]) * gradient;
                of_row.x += g;
                of_row.y += g * z;
                sums[p * pack + k] += gradient * z;
                if constexpr (centred) {
                    sums[numbers + p * pack + k] += gradient;
                }
            }
        }
        of_row = sums_of_row<threads>(of_row, turn);
        turn = 1 - turn;
        const float mean_g = centred ? of_row.x / count : 0.0F;
        const float mean_gz = of_row.y / count;
        PIPETWIN_UNROLL
        for (int p = 0; p < packs; ++p) {
            if (first + p * stride >= o.width) {
                continue;
            }
            const Pack<T> gain = load_pack(o.gain + first + p * stride);
            Pack<T> skip{};
            if (o.skip != nullptr) {
                skip = load_pack(o.skip + offset + p * stride);
            }
            Pack<T> result;
            PIPETWIN_UNROLL
            for (int k = 0; k < pack; ++k) {
                const float g = to_float(gain.at[k]) * to_float(dy[p].at[k]);
                const float z = (to_float(x[p].at[k]) - mean) * s;
                const float own = s * (g - mean_g - z * mean_gz);
                result.at[k] = from_float<T>(o.skip == nullptr ? own : to_float(skip.at[k]) + own);
            }
            store_pack(o.dx + offset + p * stride, result);
        }
    }
    if constexpr (threads == warp_lanes) {
        add_warps(sums);
    }
    if (threadIdx.x >= threads) {
        return;
    }
    PIPETWIN_UNROLL
    for (int i = 0; i < norm_sums<centred>; ++i) {
        float* const to =
            o.slices + (std::int64_t{blockIdx.x} * norm_sums<centred> + i) * o.width + first;
        PIPETWIN_UNROLL
        for (int p = 0; p < packs; ++p) {
            if (first + p * stride >= o.width) {
                continue;
            }
            PIPETWIN_UNROLL
            for (int k = 0; k < pack; k += 4) {
                const float* const four = sums + i * numbers + p * pack + k;
                store_pack(to + p * stride + k, Pack<float>{{four[0], four[1], four[2], four[3]}});
            }
        }
    }
}

/// The widest row whose sums a warp, or a block, has in registers.
constexpr std::int64_t widest_of(int threads) {
    return std::int64_t{32} * threads;
}

/// f(std::integral_constant<int, numbers>) for columns that each of `threads` threads has.
template <class F>
cudaError_t with_numbers(std::int64_t width, int threads, const F& f) {
    switch (ceil_div(width, 8 * threads)) {
        case 1:
            return f(std::integral_constant<int, 8>{});
        case 2:
            return f(std::integral_constant<int, 16>{});
        case 3:
            return f(std::integral_constant<int, 24>{});
        default:
            return f(std::integral_constant<int, 32>{});
    }
}

template <class T, bool centred>
cudaError_t launch_norm(const NormOperands<T>& o, std::int64_t slices, cudaStream_t stream) {
    const auto with_threads = [&](auto size) {
        constexpr int threads = decltype(size)::value;
        return with_numbers(o.width, threads, [&](auto count) {
            constexpr int numbers = decltype(count)::value;
            return launch<norm_backward_kernel<T, centred, threads, numbers>>(
                static_cast<unsigned>(slices), norm_block, 0, stream, o);
        });
    };
    return o.width <= widest_of(warp_lanes)
               ? with_threads(std::integral_constant<int, warp_lanes>{})
               : with_threads(std::integral_constant<int, norm_block>{});
}

}  // namespace

std::int64_t norm_backward_scratch(std::int64_t rows, std::int64_t width, int sums) {
    const std::int64_t in_one = rows <= 0 ? 0 : norm_slices(rows) * sums * width;
    const std::int64_t in_two = sums * column_sums_scratch(rows, width);
    return in_one < in_two ? in_two : in_one;
}

cudaError_t row_norm_backward(Real real,
                              const RowNorm& norm,
                              const float* statistics,
                              const void* dy,
                              const void* skip,
                              void* dx,
                              const ColumnTotals& gradients,
                              float* scratch,
                              cudaStream_t stream) {
    if (norm.rows <= 0 || norm.width <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [&](auto zero) {
        using T = decltype(zero);
        // Registers have room for the sums of a row, which is moved in packs.
        const bool is_one_pass = norm.width <= widest_of(norm_block) &&
                                 norm.width % pack_size<T> == 0 &&
                                 are_aligned({norm.x, norm.gain, dy, skip, dx});
        if (!is_one_pass) {
            const cudaError_t error =
                row_norm_backward_weight(real, norm, statistics, dy, gradients, scratch, stream);
            return error != cudaSuccess
                       ? error
                       : row_norm_backward_input(real, norm, statistics, dy, skip, dx, stream);
        }
        const std::int64_t slices = norm_slices(norm.rows);
        const NormOperands<T> o{norm.rows,
                                norm.width,
                                ceil_div(norm.rows, slices),
                                static_cast<const T*>(norm.x),
                                static_cast<const T*>(norm.gain),
                                statistics,
                                static_cast<const T*>(dy),
                                static_cast<const T*>(skip),
                                static_cast<T*>(dx),
                                scratch};
        const cudaError_t error = norm.centred != 0 ? launch_norm<T, true>(o, slices, stream)
                                                    : launch_norm<T, false>(o, slices, stream);
        return error != cudaSuccess
                   ? error
                   : add_slices(Slices{slices, norm.width, norm.centred != 0 ? 2 : 1, scratch},
                                gradients,
                                stream);
    });
}

}  // namespace pipetwin::cuda
