// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/columns/cuda_column_kernels.h"
#include "exec/cuda/kernels/dispatch.h"

// Bound by memory. The rows of a block of the matrix are cut into slices: one thread block for each
// slice, tile of columns and block of rows. Of the sums that need all rows a second kernel joins
// the slices in their order; which rows are in one follows from the shape.
namespace pipetwin::cuda {
namespace {

constexpr int column_threads = 32;
constexpr int row_threads = 8;
constexpr int flat_threads = 128;

/// How the work on a matrix is cut up.
struct Cut {
    NormBlocks of;
    std::int64_t slices = 1;  ///< of a block's rows
    std::int64_t slice_rows = 1;
};

/// Enough slices for a thousand thread blocks, but of 64 rows or more.
Cut cut_of(const NormBlocks& of) {
    const std::int64_t wanted = ceil_div(1024, ceil_div(of.columns, column_threads) * of.blocks);
    const std::int64_t most = ceil_div(of.rows, 64);
    const std::int64_t slices = wanted < most ? wanted : most;
    return {of, slices, ceil_div(of.rows, slices)};
}

dim3 grid_of(const Cut& cut) {
    constexpr std::int64_t most = 65'535;
    return {static_cast<unsigned>(ceil_div(cut.of.columns, column_threads)),
            static_cast<unsigned>(cut.slices),
            static_cast<unsigned>(cut.of.blocks < most ? cut.of.blocks : most)};
}

/// The rows of a thread block's slice in a block of the matrix.
struct Rows {
    std::int64_t begin;
    std::int64_t end;
};
__device__ __forceinline__ Rows rows_of_slice(const Cut& cut, std::int64_t block) {
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * cut.slice_rows;
    const std::int64_t behind = begin + cut.slice_rows;
    const std::int64_t end = behind < cut.of.rows ? behind : cut.of.rows;
    const std::int64_t first = block * cut.of.rows;
    return {first + begin, first + (end < begin ? begin : end)};
}

/// Mean, sum of squares around it, and how many numbers they are of.
struct Moment {
    double count = 0;
    double mean = 0;
    double squares = 0;
};

/// Chan, Golub and LeVeque, 1983.
__device__ __forceinline__ void join(Moment& sum, const Moment& more) {
    if (more.count == 0) {
        return;
    }
    if (sum.count == 0) {
        sum = more;
        return;
    }
    const double share = more.count / (sum.count + more.count);
    const double apart = more.mean - sum.mean;
    sum.mean += apart * share;
    sum.squares += more.squares + apart * apart * sum.count * share;
    sum.count += more.count;
}

// slices [block][slice] (2, columns): means, sums of squares of the slice's rows.
template <class T>
__global__ void __launch_bounds__(column_threads* row_threads)
    moments_kernel(Cut cut, const T* x, double* slices) {
    PIPETWIN_SHARED(of_threads, double[3][row_threads][column_threads]);
    const std::int64_t columns = cut.of.columns;
    const std::int64_t column =
        static_cast<std::int64_t>(blockIdx.x) * column_threads + threadIdx.x;
    for (std::int64_t block = blockIdx.z; block < cut.of.blocks; block += gridDim.z) {
        const Rows rows = rows_of_slice(cut, block);
        Moment own;
        if (column < columns) {
            double sum = 0;
            PIPETWIN_UNROLL_4
            for (std::int64_t row = rows.begin + threadIdx.y; row < rows.end; row += row_threads) {
                sum += static_cast<double>(to_float(x[row * columns + column]));
                own.count += 1;
            }
            own.mean = own.count > 0 ? sum / own.count : 0;
            PIPETWIN_UNROLL_4
            for (std::int64_t row = rows.begin + threadIdx.y; row < rows.end; row += row_threads) {
                const double off =
                    static_cast<double>(to_float(x[row * columns + column])) - own.mean;
                own.squares += off * off;
            }
        }
        __syncthreads();  // the last block's have been read
        of_threads[0][threadIdx.y][threadIdx.x] = own.count;
        of_threads[1][threadIdx.y][threadIdx.x] = own.mean;
        of_threads[2][threadIdx.y][threadIdx.x] = own.squares;
        __syncthreads();
        if (threadIdx.y == 0 && column < columns) {
            for (int y = 1; y < row_threads; ++y) {
                join(own,
                     {of_threads[0][y][threadIdx.x],
                      of_threads[1][y][threadIdx.x],
                      of_threads[2][y][threadIdx.x]});
            }
            double* const to = slices + (block * cut.slices + blockIdx.y) * 2 * columns + column;
            to[0] = own.mean;
            to[columns] = own.squares;
        }
    }
}

// moments [block] (2, columns), from the slices in their order.
__global__ void __launch_bounds__(flat_threads)
    join_kernel(Cut cut, const double* slices, double* moments) {
    const std::int64_t columns = cut.of.columns;
    for (std::int64_t i = thread_of_grid(); i < cut.of.blocks * columns; i += threads_of_grid()) {
        const std::int64_t block = i / columns;
        const std::int64_t column = i % columns;
        Moment all;
        for (std::int64_t slice = 0; slice < cut.slices; ++slice) {
            const std::int64_t begin = slice * cut.slice_rows;
            const std::int64_t left = cut.of.rows - begin;
            const std::int64_t count = left < cut.slice_rows ? left : cut.slice_rows;
            const double* const from = slices + (block * cut.slices + slice) * 2 * columns + column;
            join(all, {static_cast<double>(count > 0 ? count : 0), from[0], from[columns]});
        }
        moments[2 * block * columns + column] = all.mean;
        moments[(2 * block + 1) * columns + column] = all.squares;
    }
}

// statistics [block] (2, groups), from the moments of the columns.
__global__ void __launch_bounds__(flat_threads)
    groups_kernel(NormBlocks of, double epsilon, const double* moments, float* statistics) {
    const std::int64_t per_group = of.columns / of.groups;
    const auto rows = static_cast<double>(of.rows);
    for (std::int64_t i = thread_of_grid(); i < of.blocks * of.groups; i += threads_of_grid()) {
        const std::int64_t block = i / of.groups;
        const std::int64_t group = i % of.groups;
        const double* const means = moments + 2 * block * of.columns + group * per_group;
        const double* const squares = means + of.columns;
        double mean = 0;
        for (std::int64_t j = 0; j < per_group; ++j) {
            mean += means[j];
        }
        mean /= static_cast<double>(per_group);
        double sum = 0;
        for (std::int64_t j = 0; j < per_group; ++j) {
            sum += squares[j] + rows * (means[j] - mean) * (means[j] - mean);
        }
        const double variance = sum / (rows * static_cast<double>(per_group));
        statistics[2 * block * of.groups + group] = static_cast<float>(mean);
        statistics[(2 * block + 1) * of.groups + group] =
            static_cast<float>(1 / sqrt(variance + epsilon));
    }
}

__global__ void __launch_bounds__(flat_threads) running_kernel(std::int64_t columns,
                                                               double epsilon,
                                                               const float* mean,
                                                               const float* variance,
                                                               float* statistics) {
    for (std::int64_t j = thread_of_grid(); j < columns; j += threads_of_grid()) {
        statistics[j] = mean[j];
        statistics[columns + j] =
            static_cast<float>(1 / sqrt(static_cast<double>(variance[j]) + epsilon));
    }
}

template <class T>
struct Operands {
    Cut cut;
    const T* x;
    const float* statistics;
    const T* gain;
    const T* bias;
    const T* dy;
    const T* skip;

    Operands(const Cut& of, const ColumnNorm& norm)
        : cut(of),
          x(static_cast<const T*>(norm.x)),
          statistics(norm.statistics),
          gain(static_cast<const T*>(norm.gain)),
          bias(static_cast<const T*>(norm.bias)),
          dy(static_cast<const T*>(norm.dy)),
          skip(static_cast<const T*>(norm.skip)) {}
};

/// Mean and 1 / deviation of a column in a block.
struct Statistics {
    float mean;
    float inverse;
};
template <class T>
__device__ __forceinline__ Statistics statistics_of(const Operands<T>& o,
                                                    std::int64_t block,
                                                    std::int64_t column) {
    const std::int64_t groups = o.cut.of.groups;
    const std::int64_t group = column / (o.cut.of.columns / groups);
    return {o.statistics[2 * block * groups + group],
            o.statistics[(2 * block + 1) * groups + group]};
}

// y = skip + (x - mean) (gain / deviation) + bias
template <class T>
__global__ void __launch_bounds__(column_threads* row_threads)
    normalise_kernel(Operands<T> o, T* y) {
    const std::int64_t columns = o.cut.of.columns;
    const std::int64_t column =
        static_cast<std::int64_t>(blockIdx.x) * column_threads + threadIdx.x;
    if (column >= columns) {
        return;
    }
    const float gain = o.gain == nullptr ? 1.0F : to_float(o.gain[column]);
    const float bias = o.bias == nullptr ? 0.0F : to_float(o.bias[column]);
    for (std::int64_t block = blockIdx.z; block < o.cut.of.blocks; block += gridDim.z) {
        const Statistics of = statistics_of(o, block, column);
        const float factor = of.inverse * gain;
        const Rows rows = rows_of_slice(o.cut, block);
        PIPETWIN_UNROLL_4
        for (std::int64_t row = rows.begin + threadIdx.y; row < rows.end; row += row_threads) {
            const std::int64_t at = row * columns + column;
            const float own = (to_float(o.x[at]) - of.mean) * factor + bias;
            y[at] = from_float<T>(o.skip == nullptr ? own : to_float(o.skip[at]) + own);
        }
    }
}

// slices [block][slice] (2, columns): sums of dy and of dy z over the slice's rows.
template <class T>
__global__ void __launch_bounds__(column_threads* row_threads)
    gradient_sums_kernel(Operands<T> o, double* slices) {
    PIPETWIN_SHARED(of_threads, double[2][row_threads][column_threads]);
    const std::int64_t columns = o.cut.of.columns;
    const std::int64_t column =
        static_cast<std::int64_t>(blockIdx.x) * column_threads + threadIdx.x;
    for (std::int64_t block = blockIdx.z; block < o.cut.of.blocks; block += gridDim.z) {
        double of_dy = 0;
        double of_product = 0;
        if (column < columns) {
            const Statistics of = statistics_of(o, block, column);
            const Rows rows = rows_of_slice(o.cut, block);
            PIPETWIN_UNROLL_4
            for (std::int64_t row = rows.begin + threadIdx.y; row < rows.end; row += row_threads) {
                const std::int64_t at = row * columns + column;
                const float dy = to_float(o.dy[at]);
                of_dy += static_cast<double>(dy);
                of_product +=
                    static_cast<double>(dy * ((to_float(o.x[at]) - of.mean) * of.inverse));
            }
        }
        __syncthreads();  // the last block's have been read
        of_threads[0][threadIdx.y][threadIdx.x] = of_dy;
        of_threads[1][threadIdx.y][threadIdx.x] = of_product;
        __syncthreads();
        if (threadIdx.y == 0 && column < columns) {
            for (int y = 1; y < row_threads; ++y) {
                of_dy += of_threads[0][y][threadIdx.x];
                of_product += of_threads[1][y][threadIdx.x];
            }
            double* const to = slices + (block * o.cut.slices + blockIdx.y) * 2 * columns + column;
            to[0] = of_dy;
            to[columns] = of_product;
        }
    }
}

// sums [block] (2, columns), from the slices in their order; dgain and dbias += those of all blocks
// in their order. One thread a column.
__global__ void __launch_bounds__(flat_threads) gradient_totals_kernel(
    Cut cut, const double* slices, double* sums, float* dgain, float* dbias) {
    const std::int64_t columns = cut.of.columns;
    for (std::int64_t j = thread_of_grid(); j < columns; j += threads_of_grid()) {
        for (std::int64_t block = 0; block < cut.of.blocks; ++block) {
            double of_dy = 0;
            double of_product = 0;
            for (std::int64_t slice = 0; slice < cut.slices; ++slice) {
                const double* const from = slices + (block * cut.slices + slice) * 2 * columns + j;
                of_dy += from[0];
                of_product += from[columns];
            }
            sums[2 * block * columns + j] = of_dy;
            sums[(2 * block + 1) * columns + j] = of_product;
            if (dgain != nullptr) {
                dbias[j] += static_cast<float>(of_dy);
                dgain[j] += static_cast<float>(of_product);
            }
        }
    }
}

// dx = skip + (g - mean(g) - z mean(g z)) / deviation,  g = gain dy. A number is read and written
// by one thread only, so dx may be x, dy or skip.
template <class T>
__global__ void __launch_bounds__(column_threads* row_threads)
    input_gradient_kernel(Operands<T> o, const double* sums, T* dx) {
    const std::int64_t columns = o.cut.of.columns;
    const std::int64_t column =
        static_cast<std::int64_t>(blockIdx.x) * column_threads + threadIdx.x;
    if (column >= columns) {
        return;
    }
    const std::int64_t per_group = columns / o.cut.of.groups;
    const std::int64_t first = column / per_group * per_group;
    const double count = static_cast<double>(o.cut.of.rows) * static_cast<double>(per_group);
    const float gain = o.gain == nullptr ? 1.0F : to_float(o.gain[column]);
    for (std::int64_t block = blockIdx.z; block < o.cut.of.blocks; block += gridDim.z) {
        double mean_g = 0;
        double mean_gz = 0;
        for (std::int64_t j = first; j < first + per_group; ++j) {
            const double of_j = o.gain == nullptr ? 1.0 : static_cast<double>(to_float(o.gain[j]));
            mean_g += of_j * sums[2 * block * columns + j];
            mean_gz += of_j * sums[(2 * block + 1) * columns + j];
        }
        mean_g /= count;
        mean_gz /= count;
        const Statistics of = statistics_of(o, block, column);
        const auto inverse = static_cast<double>(of.inverse);
        const float of_dy = of.inverse * gain;
        const auto constant = static_cast<float>(inverse * mean_g);
        const auto of_x = static_cast<float>(inverse * inverse * mean_gz);
        const Rows rows = rows_of_slice(o.cut, block);
        PIPETWIN_UNROLL_4
        for (std::int64_t row = rows.begin + threadIdx.y; row < rows.end; row += row_threads) {
            const std::int64_t at = row * columns + column;
            const float own =
                of_dy * to_float(o.dy[at]) - constant - of_x * (to_float(o.x[at]) - of.mean);
            dx[at] = from_float<T>(o.skip == nullptr ? own : to_float(o.skip[at]) + own);
        }
    }
}

__global__ void __launch_bounds__(flat_threads) add_moments_kernel(
    std::int64_t columns, double before, double added, const double* more, double* sums) {
    for (std::int64_t j = thread_of_grid(); j < columns; j += threads_of_grid()) {
        Moment all{before, sums[j], sums[columns + j]};
        join(all, {added, more[j], more[columns + j]});
        sums[j] = all.mean;
        sums[columns + j] = all.squares;
    }
}

// One block: its threads count the update once.
__global__ void __launch_bounds__(flat_threads)
    move_averages_kernel(MovingAverages o, const double* moments) {
    const std::int32_t updates = *o.updates + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        *o.updates = updates;
    }
    const double share = o.cumulative != 0 ? 1 / static_cast<double>(updates) : o.momentum;
    for (std::int64_t j = threadIdx.x; j < o.columns; j += flat_threads) {
        const double variance = moments[o.columns + j] / (o.rows - 1);
        o.mean[j] =
            static_cast<float>((1 - share) * static_cast<double>(o.mean[j]) + share * moments[j]);
        o.variance[j] =
            static_cast<float>((1 - share) * static_cast<double>(o.variance[j]) + share * variance);
    }
}

/// Numbers of the slices' part of the scratch.
std::int64_t slice_numbers(const Cut& cut) {
    return cut.of.blocks * cut.slices * 2 * cut.of.columns;
}

bool is_empty(const NormBlocks& blocks) {
    return blocks.blocks <= 0 || blocks.rows <= 0 || blocks.columns <= 0;
}

}  // namespace

std::int64_t norm_scratch(const NormBlocks& blocks) {
    return is_empty(blocks) ? 0
                            : slice_numbers(cut_of(blocks)) + blocks.blocks * 2 * blocks.columns;
}

cudaError_t norm_statistics(Real real,
                            const NormBlocks& blocks,
                            double epsilon,
                            const void* x,
                            float* statistics,
                            double* moments,
                            double* scratch,
                            cudaStream_t stream) {
    if (is_empty(blocks)) {
        return cudaSuccess;
    }
    const Cut cut = cut_of(blocks);
    double* const all = moments == nullptr ? scratch + slice_numbers(cut) : moments;
    cudaError_t error = with_real(real, [=](auto zero) {
        using T = decltype(zero);
        return launch<moments_kernel<T>>(grid_of(cut),
                                         dim3(column_threads, row_threads),
                                         0,
                                         stream,
                                         cut,
                                         static_cast<const T*>(x),
                                         scratch);
    });
    if (error == cudaSuccess) {
        error = launch<join_kernel>(grid_for(blocks.blocks * blocks.columns, flat_threads),
                                    flat_threads,
                                    0,
                                    stream,
                                    cut,
                                    static_cast<const double*>(scratch),
                                    all);
    }
    if (error != cudaSuccess) {
        return error;
    }
    return launch<groups_kernel>(grid_for(blocks.blocks * blocks.groups, flat_threads),
                                 flat_threads,
                                 0,
                                 stream,
                                 blocks,
                                 epsilon,
                                 static_cast<const double*>(all),
                                 statistics);
}

cudaError_t running_statistics(std::int64_t columns,
                               double epsilon,
                               const float* mean,
                               const float* variance,
                               float* statistics,
                               cudaStream_t stream) {
    return launch<running_kernel>(grid_for(columns, flat_threads),
                                  flat_threads,
                                  0,
                                  stream,
                                  columns,
                                  epsilon,
                                  mean,
                                  variance,
                                  statistics);
}

cudaError_t normalise_columns(Real real, const ColumnNorm& norm, void* y, cudaStream_t stream) {
    if (is_empty(norm.blocks)) {
        return cudaSuccess;
    }
    const Cut cut = cut_of(norm.blocks);
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        return launch<normalise_kernel<T>>(grid_of(cut),
                                           dim3(column_threads, row_threads),
                                           0,
                                           stream,
                                           Operands<T>(cut, norm),
                                           static_cast<T*>(y));
    });
}

cudaError_t column_norm_backward(Real real,
                                 const ColumnNorm& norm,
                                 const ColumnNormGradients& to,
                                 double* scratch,
                                 cudaStream_t stream) {
    if (is_empty(norm.blocks)) {
        return cudaSuccess;
    }
    const Cut cut = cut_of(norm.blocks);
    double* const sums = scratch + slice_numbers(cut);
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Operands<T> o(cut, norm);
        const dim3 threads(column_threads, row_threads);
        cudaError_t error =
            launch<gradient_sums_kernel<T>>(grid_of(cut), threads, 0, stream, o, scratch);
        if (error == cudaSuccess) {
            error = launch<gradient_totals_kernel>(grid_for(cut.of.columns, flat_threads),
                                                   flat_threads,
                                                   0,
                                                   stream,
                                                   cut,
                                                   static_cast<const double*>(scratch),
                                                   sums,
                                                   to.dgain,
                                                   to.dbias);
        }
        if (error != cudaSuccess || to.dx == nullptr) {
            return error;
        }
        return launch<input_gradient_kernel<T>>(grid_of(cut),
                                                threads,
                                                0,
                                                stream,
                                                o,
                                                static_cast<const double*>(sums),
                                                static_cast<T*>(to.dx));
    });
}

cudaError_t add_moments(std::int64_t columns,
                        double before,
                        double added,
                        const double* more,
                        double* sums,
                        cudaStream_t stream) {
    return launch<add_moments_kernel>(grid_for(columns, flat_threads),
                                      flat_threads,
                                      0,
                                      stream,
                                      columns,
                                      before,
                                      added,
                                      more,
                                      sums);
}

cudaError_t move_averages(const MovingAverages& averages,
                          const double* moments,
                          cudaStream_t stream) {
    return launch<move_averages_kernel>(1, flat_threads, 0, stream, averages, moments);
}

namespace {

NormBlocks blocks_of(const exec::NormParts& parts, exec::ConstView x) {
    return {.blocks = parts.blocks,
            .rows = x.rows / parts.blocks,
            .columns = x.columns,
            .groups = parts.groups};
}

double* scratch_of(CallSite& calls, const NormBlocks& blocks) {
    return calls.scratch_of<double>(norm_scratch(blocks));
}

}  // namespace

void CudaColumnKernels::norm_statistics(const exec::NormParts& parts,
                                        double epsilon,
                                        exec::ConstView x,
                                        exec::View statistics,
                                        exec::View moments) const {
    const NormBlocks blocks = blocks_of(parts, x);
    call("norm_statistics",
         cuda::norm_statistics,
         real_of(x.dtype),
         blocks,
         epsilon,
         x.data,
         statistics.as<float>(),
         parts.blocks == 1 ? moments.as<double>() : nullptr,
         scratch_of(calls_, blocks));
}

void CudaColumnKernels::running_statistics(const exec::RunningValues& running,
                                           double epsilon,
                                           exec::View statistics) const {
    const exec::ConstView mean = running.mean;
    const exec::ConstView variance = running.variance;
    call("running_statistics",
         cuda::running_statistics,
         statistics.columns,
         epsilon,
         mean.as<float>(),
         variance.as<float>(),
         statistics.as<float>());
}

void CudaColumnKernels::normalise(const exec::NormParts& parts,
                                  exec::ConstView x,
                                  exec::ConstView statistics,
                                  exec::ConstView gain,
                                  exec::ConstView bias,
                                  exec::ConstView skip,
                                  exec::View y) const {
    call("normalise_columns",
         cuda::normalise_columns,
         real_of(x.dtype),
         ColumnNorm{.blocks = blocks_of(parts, x),
                    .x = x.data,
                    .statistics = statistics.as<float>(),
                    .gain = gain.data,
                    .bias = bias.data,
                    .skip = skip.data},
         y.data);
}

void CudaColumnKernels::normalise_backward(const exec::NormParts& parts,
                                           const exec::NormGradients& operands,
                                           std::byte* /*scratch*/) const {
    const NormBlocks blocks = blocks_of(parts, operands.x);
    call("column_norm_backward",
         cuda::column_norm_backward,
         real_of(operands.x.dtype),
         ColumnNorm{.blocks = blocks,
                    .x = operands.x.data,
                    .statistics = operands.statistics.as<float>(),
                    .gain = operands.gain.data,
                    .dy = operands.dy.data,
                    .skip = operands.skip.data},
         ColumnNormGradients{.dx = operands.dx.data,
                             .dgain = operands.dgain.as<float>(),
                             .dbias = operands.dbias.as<float>()},
         scratch_of(calls_, blocks));
}

void CudaColumnKernels::add_moments(const exec::Moments& more,
                                    std::int64_t rows,
                                    exec::View sums) const {
    call("add_moments",
         cuda::add_moments,
         sums.columns,
         static_cast<double>(rows),
         static_cast<double>(more.rows),
         more.values.as<double>(),
         sums.as<double>());
}

void CudaColumnKernels::move_averages(const exec::RunningRule& rule,
                                      const exec::Moments& moments,
                                      const exec::RunningValues& running) const {
    call("move_averages",
         cuda::move_averages,
         MovingAverages{.columns = moments.values.columns,
                        .rows = static_cast<double>(moments.rows),
                        .momentum = rule.momentum,
                        .cumulative = rule.cumulative ? 1 : 0,
                        .mean = running.mean.as<float>(),
                        .variance = running.variance.as<float>(),
                        .updates = running.updates.as<std::int32_t>()},
         moments.values.as<double>());
}

}  // namespace pipetwin::cuda
