// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/windows/window_math.h"

// Weights of convolutions between our layout, (depth, outputs), and cuDNN's, (outputs, depth): a
// block of 256 threads turns 32 x 32 numbers at a time over in shared memory.
namespace pipetwin::cuda {
namespace {

constexpr int filter_tile = 32;
constexpr int filter_lines = window_block / filter_tile;  ///< that a block brings at once

// to (columns, rows) = from (rows, columns), or is added to.
template <class From, class To, bool adds>
__global__ void __launch_bounds__(window_block)
    turn_kernel(std::int64_t rows, std::int64_t columns, const From* from, To* to) {
    PIPETWIN_SHARED(tile, float[filter_tile][filter_tile + 1]);
    const int lane = static_cast<int>(threadIdx.x) % filter_tile;
    const int line = static_cast<int>(threadIdx.x) / filter_tile;
    const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * filter_tile;
    const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * filter_tile;
    PIPETWIN_UNROLL
    for (int i = line; i < filter_tile; i += filter_lines) {
        const std::int64_t row = first_row + i;
        const std::int64_t column = first_column + lane;
        tile[i][lane] =
            row < rows && column < columns ? to_float(from[row * columns + column]) : 0.0F;
    }
    __syncthreads();
    PIPETWIN_UNROLL
    for (int i = line; i < filter_tile; i += filter_lines) {
        const std::int64_t column = first_column + i;
        const std::int64_t row = first_row + lane;
        if (row < rows && column < columns) {
            To& place = to[column * rows + row];
            place = from_float<To>(adds ? to_float(place) + tile[lane][i] : tile[lane][i]);
        }
    }
}

template <class From, class To, bool adds>
cudaError_t turn(
    std::int64_t rows, std::int64_t columns, const void* from, void* to, cudaStream_t stream) {
    if (rows <= 0 || columns <= 0) {
        return cudaSuccess;
    }
    const dim3 grid(static_cast<unsigned>(ceil_div(columns, filter_tile)),
                    static_cast<unsigned>(ceil_div(rows, filter_tile)));
    return launch<turn_kernel<From, To, adds>>(grid,
                                               window_block,
                                               0,
                                               stream,
                                               rows,
                                               columns,
                                               static_cast<const From*>(from),
                                               static_cast<To*>(to));
}

template <class T>
__global__ void __launch_bounds__(window_block)
    add_row_kernel(std::int64_t size, std::int64_t columns, const T* row, T* y) {
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        y[i] = from_float<T>(to_float(y[i]) + to_float(row[i % columns]));
    }
}

}  // namespace

cudaError_t turn_filters(Real real,
                         std::int64_t depth,
                         std::int64_t outputs,
                         const void* w,
                         void* to,
                         cudaStream_t stream) {
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        return turn<T, T, false>(depth, outputs, w, to, stream);
    });
}

cudaError_t add_turned_filters(Real real,
                               std::int64_t depth,
                               std::int64_t outputs,
                               const void* from,
                               float* dw,
                               cudaStream_t stream) {
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        return turn<T, float, true>(outputs, depth, from, dw, stream);
    });
}

cudaError_t add_row(Real real,
                    std::int64_t rows,
                    std::int64_t columns,
                    const void* row,
                    void* y,
                    cudaStream_t stream) {
    if (rows <= 0 || columns <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        return launch<add_row_kernel<T>>(grid_for(rows * columns, window_block),
                                         window_block,
                                         0,
                                         stream,
                                         rows * columns,
                                         columns,
                                         static_cast<const T*>(row),
                                         static_cast<T*>(y));
    });
}

}  // namespace pipetwin::cuda
