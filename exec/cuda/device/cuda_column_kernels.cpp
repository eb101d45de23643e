// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/device/cuda_column_kernels.h"

#include <cstring>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/cuda/device/real_of.h"

namespace pipetwin::cuda {
namespace {

using exec::ConstView;
using exec::DType;
using exec::View;

cudaError_t copy_bytes(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

NormBlocks blocks_of(const exec::NormParts& parts, ConstView x) {
    return {.blocks = parts.blocks,
            .rows = x.rows / parts.blocks,
            .columns = x.columns,
            .groups = parts.groups};
}

}  // namespace

double* CudaColumnKernels::scratch(const NormBlocks& blocks) const {
    return static_cast<double*>(lane_.scratch(as_index(norm_scratch(blocks)) * sizeof(double)));
}

void CudaColumnKernels::copy(ConstView x, View y) const {
    lane_.list().add("cudaMemcpyAsync", copy_bytes, y.data, x.data, x.bytes());
}

void CudaColumnKernels::rectify(double slope, ConstView x, View y) const {
    lane_.list().add("rectify",
                     cuda::rectify,
                     real_of(x.dtype),
                     x.size(),
                     static_cast<float>(slope),
                     x.data,
                     y.data);
}

void CudaColumnKernels::rectify_backward(double slope, ConstView x, ConstView dy, View dx) const {
    lane_.list().add("rectify_backward",
                     cuda::rectify_backward,
                     real_of(x.dtype),
                     x.size(),
                     static_cast<float>(slope),
                     x.data,
                     dy.data,
                     dx.data);
}

// Key and probability change from step to step, so they come from host memory.
void CudaColumnKernels::drop_columns(
    const exec::DropoutMask& mask, int samples, ConstView x, ConstView skip, View y) const {
    const DropoutStep step = dropout_step_of(mask);
    auto* const here = static_cast<DropoutStep*>(lane_.scratch(sizeof(step)));
    std::byte* staged = lane_.stage(sizeof(step));
    if (staged == nullptr) {
        lane_.finish();
        staged = lane_.stage(sizeof(step));
    }
    std::memcpy(staged, &step, sizeof(step));
    lane_.list().add("cudaMemcpyAsync", copy_bytes, here, staged, sizeof(step));
    lane_.list().add("drop_columns",
                     cuda::drop_columns,
                     real_of(y.dtype),
                     ColumnDrop{.dropout = {.step = here,
                                            .first_sample = mask.first_sample,
                                            .samples = samples,
                                            .numbers_per_sample = mask.numbers_per_sample},
                                .rows = y.rows / samples,
                                .columns = y.columns},
                     x.data,
                     skip.data,
                     y.data);
}

void CudaColumnKernels::norm_statistics(const exec::NormParts& parts,
                                        double epsilon,
                                        ConstView x,
                                        View statistics,
                                        View moments) const {
    const NormBlocks blocks = blocks_of(parts, x);
    lane_.list().add("norm_statistics",
                     cuda::norm_statistics,
                     real_of(x.dtype),
                     blocks,
                     epsilon,
                     x.data,
                     statistics.as<float>(),
                     parts.blocks == 1 ? moments.as<double>() : nullptr,
                     scratch(blocks));
}

void CudaColumnKernels::running_statistics(const exec::RunningValues& running,
                                           double epsilon,
                                           View statistics) const {
    const ConstView mean = running.mean;
    const ConstView variance = running.variance;
    lane_.list().add("running_statistics",
                     cuda::running_statistics,
                     statistics.columns,
                     epsilon,
                     mean.as<float>(),
                     variance.as<float>(),
                     statistics.as<float>());
}

void CudaColumnKernels::normalise(const exec::NormParts& parts,
                                  ConstView x,
                                  ConstView statistics,
                                  ConstView gain,
                                  ConstView bias,
                                  ConstView skip,
                                  View y) const {
    lane_.list().add("normalise_columns",
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
    lane_.list().add("column_norm_backward",
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
                     scratch(blocks));
}

void CudaColumnKernels::add_moments(const exec::Moments& more, std::int64_t rows, View sums) const {
    lane_.list().add("add_moments",
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
    lane_.list().add("move_averages",
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
