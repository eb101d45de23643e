// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "exec/cuda/kernels/kernels.h"

/// Kernels of layers whose columns are channels of images; formulas: exec/device/column_kernels.h.
/// Pointers, types and promises are those of exec/cuda/kernels/kernels.h; sums over rows are taken
/// in double.
namespace pipetwin::cuda {

// column_elementwise.cu

/// to = from where x > 0, else slope from; `to` may be x or `from`.
cudaError_t rectify(Real real,
                    std::int64_t size,
                    float slope,
                    const void* x,
                    const void* from,
                    void* to,
                    cudaStream_t stream);

/// y = skip + scale x, or skip where the column is dropped, of `dropout.samples` samples of `rows`
/// rows each; `dropout.numbers_per_sample` decisions a sample, as many as columns or 1. skip may be
/// null; y may be x or skip.
struct ColumnDrop {
    Dropout dropout;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
};
/// Launches the dropout of whole columns of `ColumnDrop`.
cudaError_t drop_columns(Real real,
                         const ColumnDrop& drop,
                         const void* x,
                         const void* skip,
                         void* y,
                         cudaStream_t stream);

// column_norms.cu

/// Blocks of `rows` rows each, whose columns are cut into groups.
struct NormBlocks {
    std::int64_t blocks = 1;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t groups = 1;
};

/// Number of double scratch numbers that the statistics of a norm, or its gradients, need.
std::int64_t norm_scratch(const NormBlocks& blocks);

/// statistics [block] (2, groups) = means, 1 / sqrt(variance + epsilon); moments (2, columns), of
/// one block: means, sums of squares around them; null: not wanted.
cudaError_t norm_statistics(Real real,
                            const NormBlocks& blocks,
                            double epsilon,
                            const void* x,
                            float* statistics,
                            double* moments,
                            double* scratch,
                            cudaStream_t stream);

/// statistics (2, columns) = the means, 1 / sqrt(variances + epsilon).
cudaError_t running_statistics(std::int64_t columns,
                               double epsilon,
                               const float* mean,
                               const float* variance,
                               float* statistics,
                               cudaStream_t stream);

/// Operands of a norm over columns; gain, bias and skip may be null.
struct ColumnNorm {
    NormBlocks blocks;
    const void* x = nullptr;
    const float* statistics = nullptr;
    const void* gain = nullptr;
    const void* bias = nullptr;
    const void* dy = nullptr;
    const void* skip = nullptr;
};
/// y = skip + gain z + bias; y may be x or skip.
cudaError_t normalise_columns(Real real, const ColumnNorm& norm, void* y, cudaStream_t stream);

/// Where the gradients of a norm go: dx, which may be x, dy or skip, or null; dgain and dbias,
/// added to, or null.
struct ColumnNormGradients {
    void* dx = nullptr;
    float* dgain = nullptr;
    float* dbias = nullptr;
};
/// Launches the gradients of a norm over columns.
cudaError_t column_norm_backward(Real real,
                                 const ColumnNorm& norm,
                                 const ColumnNormGradients& to,
                                 double* scratch,
                                 cudaStream_t stream);

/// sums (2, columns), of `before` rows so far, get those of `added` more rows.
cudaError_t add_moments(std::int64_t columns,
                        double before,
                        double added,
                        const double* more,
                        double* sums,
                        cudaStream_t stream);

/// Running values of `columns` columns, and how they follow the moments of `rows` rows.
struct MovingAverages {
    std::int64_t columns = 0;
    double rows = 0;
    double momentum = 0;
    std::int64_t cumulative = 0;  ///< 1: the share is 1 / updates; 0: it is the momentum
    float* mean = nullptr;
    float* variance = nullptr;
    std::int32_t* updates = nullptr;
};
/// Moves the running values towards the moments, and counts the update.
cudaError_t move_averages(const MovingAverages& averages,
                          const double* moments,
                          cudaStream_t stream);

}  // namespace pipetwin::cuda
