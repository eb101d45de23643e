// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/dispatch.h"

// Bound by memory: dy is read once, of a norm x, too. Many rows are cut into slices, one block per
// slice and tile of columns; a second kernel adds the slices. Few rows, mostly in the second cache
// by then, are added by one kernel: there the start of a second one takes as long as the sums. The
// order of adding follows from the shape.
namespace pipetwin::cuda {
namespace {

constexpr int column_threads = 32;
constexpr int row_threads = 8;
constexpr int slice_threads = 32;

/// The threads of a block that adds all rows.
constexpr int whole_threads = 1024;

/// Rows that one kernel adds; more keep too few multiprocessors busy.
constexpr std::int64_t most_whole_rows = 8192;

/// Enough slices for a thousand blocks, which fill the largest GPU, but of 32 rows or more.
std::int64_t slice_count(std::int64_t rows, std::int64_t columns) {
    const std::int64_t wanted = ceil_div(1024, ceil_div(columns, 128));
    const std::int64_t most = ceil_div(rows, 32);
    return wanted < most ? wanted : most;
}

/// What is added up along the columns.
enum class Summed : std::uint8_t {
    Gradient,   ///< dy
    LayerNorm,  ///< dy z, z = (x - mean) s, and dy
    RmsNorm     ///< dy z, z = x s
};

/// Sums per column.
template <Summed what>
constexpr int sums_of = what == Summed::LayerNorm ? 2 : 1;

template <class T>
struct Operands {
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t slice_rows;
    const T* dy;
    const T* x;               ///< of a norm
    const float* statistics;  ///< of a norm: mean and s of each row, or s
    float* slices;            ///< (slices, sums, columns)
};

/// Adds row `row` of `pack` columns from `column` on to their sums.
template <class T, int pack, Summed what>
__device__ __forceinline__ void take_row(const Operands<T>& o,
                                         std::int64_t row,
                                         std::int64_t column,
                                         Pack<float, pack>* sums) {
    const Pack<T, pack> dy = load_pack<T, pack>(o.dy + row * o.columns + column);
    Pack<T, pack> x{};
    float mean = 0;
    float s = 0;
    if constexpr (what != Summed::Gradient) {
        x = load_pack<T, pack>(o.x + row * o.columns + column);
    }
    if constexpr (what == Summed::LayerNorm) {
        mean = o.statistics[2 * row];
        s = o.statistics[2 * row + 1];
    } else if constexpr (what == Summed::RmsNorm) {
        s = o.statistics[row];
    }
    PIPETWIN_UNROLL
    for (int k = 0; k < pack; ++k) {
        const float value = to_float(dy.at[k]);
        if constexpr (what != Summed::RmsNorm) {
            sums[sums_of<what> - 1].at[k] += value;
        }
        if constexpr (what == Summed::LayerNorm) {
            sums[0].at[k] += value * ((to_float(x.at[k]) - mean) * s);
        } else if constexpr (what == Summed::RmsNorm) {
            sums[0].at[k] += value * (to_float(x.at[k]) * s);
        }
    }
}

template <class T, int pack, Summed what>
__global__ void __launch_bounds__(column_threads* row_threads) slices_kernel(Operands<T> o) {
    constexpr int sum_count = sums_of<what>;
    constexpr int tile = column_threads * pack;
    const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * tile;
    const std::int64_t column = first_column + static_cast<std::int64_t>(threadIdx.x) * pack;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * o.slice_rows;
    const std::int64_t behind = begin + o.slice_rows;
    const std::int64_t end = behind < o.rows ? behind : o.rows;
    Pack<float, pack> sums[2] = {};
    if (column < o.columns) {
        PIPETWIN_UNROLL_4
        for (std::int64_t row = begin + threadIdx.y; row < end; row += row_threads) {
            take_row<T, pack, what>(o, row, column, sums);
        }
    }
    // Neighbouring threads write to neighbouring places.
    constexpr auto lines = static_cast<std::size_t>(sum_count * pack);
    PIPETWIN_SHARED(of_threads, float[row_threads][lines][column_threads]);
    PIPETWIN_UNROLL
    for (int i = 0; i < sum_count; ++i) {
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            of_threads[threadIdx.y][i * pack + k][threadIdx.x] = sums[i].at[k];
        }
    }
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.y * column_threads + threadIdx.x);
    for (int place = thread; place < sum_count * tile; place += column_threads * row_threads) {
        const int i = place / tile;
        const int in_tile = place % tile;
        if (first_column + in_tile < o.columns) {
            float sum = 0;
            PIPETWIN_UNROLL
            for (int y = 0; y < row_threads; ++y) {
                sum += of_threads[y][i * pack + in_tile % pack][in_tile / pack];
            }
            const std::int64_t line = static_cast<std::int64_t>(blockIdx.y) * sum_count + i;
            o.slices[line * o.columns + first_column + in_tile] = sum;
        }
    }
}

/// Puts the sum of a column, or of its products, where it goes: to the first total or to the
/// second.
__device__ __forceinline__ void put(const ColumnTotals& totals,
                                    std::int64_t which,
                                    std::int64_t column,
                                    float sum) {
    float* const total = which == 0 ? totals.first : totals.second;
    total[column] = totals.adds != 0 ? total[column] + sum : sum;
}

/// Threads side by side that read 64 bytes of a row.
template <class T, int pack>
constexpr int whole_columns = pack == 1 ? 32 : 64 / static_cast<int>(pack * sizeof(T));

// total i (+)= the sum of all rows' i-th numbers; block (whole_columns, the rest of its threads).
template <class T, int pack, Summed what>
__global__ void __launch_bounds__(whole_threads) whole_kernel(Operands<T> o, ColumnTotals totals) {
    constexpr int sum_count = sums_of<what>;
    constexpr int columns = whole_columns<T, pack>;
    constexpr int rows = whole_threads / columns;
    constexpr int tile = columns * pack;
    constexpr int warps = whole_threads / warp_lanes;
    const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * tile;
    const std::int64_t column = first_column + static_cast<std::int64_t>(threadIdx.x) * pack;
    Pack<float, pack> sums[2] = {};
    if (column < o.columns) {
        PIPETWIN_UNROLL_4
        for (std::int64_t row = threadIdx.y; row < o.rows; row += rows) {
            take_row<T, pack, what>(o, row, column, sums);
        }
    }
    const int thread = static_cast<int>(threadIdx.y) * columns + static_cast<int>(threadIdx.x);
    PIPETWIN_SHARED(of_warps, float[warps][static_cast<std::size_t>(sum_count * tile)]);
    PIPETWIN_UNROLL
    for (int i = 0; i < sum_count; ++i) {
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            float sum = sums[i].at[k];
            PIPETWIN_UNROLL
            for (int with = warp_lanes / 2; with >= columns; with /= 2) {
                sum += __shfl_xor_sync(all_lanes, sum, with);
            }
            if (thread % warp_lanes < columns) {
                of_warps[thread / warp_lanes][i * tile + static_cast<int>(threadIdx.x) * pack + k] =
                    sum;
            }
        }
    }
    __syncthreads();
    const int i = thread / tile;
    const int in_tile = thread % tile;
    if (i < sum_count && first_column + in_tile < o.columns) {
        float sum = 0;
        PIPETWIN_UNROLL
        for (int warp = 0; warp < warps; ++warp) {
            sum += of_warps[warp][i * tile + in_tile];
        }
        put(totals, i, first_column + in_tile, sum);
    }
}

// total i (+)= the sum of the slices' i-th sums; block (32 columns, 32 slices at a time).
__global__ void __launch_bounds__(column_threads* slice_threads)
    totals_kernel(Slices of, ColumnTotals totals) {
    const std::int64_t column =
        static_cast<std::int64_t>(blockIdx.x) * column_threads + threadIdx.x;
    const std::int64_t i = blockIdx.y;
    float sum = 0;
    if (column < of.columns) {
        PIPETWIN_UNROLL_4
        for (std::int64_t slice = threadIdx.y; slice < of.slices; slice += slice_threads) {
            sum += of.from[(slice * of.sums + i) * of.columns + column];
        }
    }
    PIPETWIN_SHARED(of_threads, float[slice_threads][column_threads]);
    of_threads[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < of.columns) {
        for (int y = 1; y < slice_threads; ++y) {
            sum += of_threads[y][threadIdx.x];
        }
        put(totals, i, column, sum);
    }
}

template <class T, int pack, Summed what>
cudaError_t sum_in_one(const Operands<T>& o, ColumnTotals totals, cudaStream_t stream) {
    constexpr int columns = whole_columns<T, pack>;
    return launch<whole_kernel<T, pack, what>>(
        static_cast<unsigned>(ceil_div(o.columns, columns * pack)),
        dim3(columns, whole_threads / columns),
        0,
        stream,
        o,
        totals);
}

template <class T, int pack, Summed what>
cudaError_t sum_in_slices(Operands<T> o, ColumnTotals totals, cudaStream_t stream) {
    const std::int64_t slices = slice_count(o.rows, o.columns);
    o.slice_rows = ceil_div(o.rows, slices);
    const dim3 grid(static_cast<unsigned>(ceil_div(o.columns, column_threads * pack)),
                    static_cast<unsigned>(slices));
    const cudaError_t error =
        launch<slices_kernel<T, pack, what>>(grid, dim3(column_threads, row_threads), 0, stream, o);
    if (error != cudaSuccess) {
        return error;
    }
    return add_slices(Slices{slices, o.columns, sums_of<what>, o.slices}, totals, stream);
}

template <Summed what, class T>
cudaError_t sum_rows(const Operands<T>& o, ColumnTotals totals, cudaStream_t stream) {
    const auto sum = [&](auto size) {
        constexpr int pack = decltype(size)::value;
        return o.rows <= most_whole_rows ? sum_in_one<T, pack, what>(o, totals, stream)
                                         : sum_in_slices<T, pack, what>(o, totals, stream);
    };
    constexpr int pack = pack_size<T>;
    return are_aligned({o.dy, o.x}) && o.columns % pack == 0
               ? sum(std::integral_constant<int, pack>{})
               : sum(std::integral_constant<int, 1>{});
}

}  // namespace

cudaError_t add_slices(const Slices& slices, const ColumnTotals& totals, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(ceil_div(slices.columns, column_threads)),
                    static_cast<unsigned>(slices.sums));
    return launch<totals_kernel>(
        grid, dim3(column_threads, slice_threads), 0, stream, slices, totals);
}

std::int64_t column_sums_scratch(std::int64_t rows, std::int64_t columns) {
    return rows <= most_whole_rows || columns <= 0 ? 0 : slice_count(rows, columns) * columns;
}

cudaError_t column_sums(Real real,
                        std::int64_t rows,
                        std::int64_t columns,
                        const void* dy,
                        const ColumnTotals& db,
                        float* scratch,
                        cudaStream_t stream) {
    if (rows <= 0 || columns <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Operands<T> o{rows, columns, 0, static_cast<const T*>(dy), nullptr, nullptr, scratch};
        return sum_rows<Summed::Gradient>(o, db, stream);
    });
}

cudaError_t row_norm_backward_weight(Real real,
                                     const RowNorm& norm,
                                     const float* statistics,
                                     const void* dy,
                                     const ColumnTotals& totals,
                                     float* scratch,
                                     cudaStream_t stream) {
    if (norm.rows <= 0 || norm.width <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Operands<T> o{norm.rows,
                            norm.width,
                            0,
                            static_cast<const T*>(dy),
                            static_cast<const T*>(norm.x),
                            statistics,
                            scratch};
        return norm.centred != 0 ? sum_rows<Summed::LayerNorm>(o, totals, stream)
                                 : sum_rows<Summed::RmsNorm>(o, totals, stream);
    });
}

}  // namespace pipetwin::cuda
