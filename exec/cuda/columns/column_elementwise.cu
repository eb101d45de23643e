// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/columns/cuda_column_kernels.h"
#include "exec/cuda/kernels/dispatch.h"
#include "exec/cuda/kernels/random_bits.h"

// Bound by memory: one or two numbers are read for each that is written.
namespace pipetwin::cuda {
namespace {

constexpr int block_size = 256;

// With slope 0 an infinite x gives 0, which a product would not; what is not a number stays so.
__device__ __forceinline__ float rectified(float x, float value, float slope) {
    if (slope == 0.0F) {
        return x <= 0.0F ? 0.0F : value;
    }
    return x > 0.0F ? value : __fmul_rn(value, slope);
}

template <class T>
__global__ void __launch_bounds__(block_size)
    rectify_kernel(std::int64_t size, float slope, const T* x, const T* from, T* to) {
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const float of_x = to_float(x[i]);
        to[i] = from_float<T>(rectified(of_x, from == x ? of_x : to_float(from[i]), slope));
    }
}

// A row of blocks per sample. Sum and product are rounded one by one, as on the CPU.
template <class T>
__global__ void __launch_bounds__(block_size)
    drop_kernel(ColumnDrop o, const T* x, const T* skip, T* y) {
    const DropoutStep step = *o.dropout.step;
    const std::int64_t size = o.rows * o.columns;
    for (std::int64_t sample = blockIdx.y; sample < o.dropout.samples; sample += gridDim.y) {
        const std::uint64_t key =
            key_of(step.key, static_cast<std::uint64_t>(o.dropout.first_sample + sample));
        const std::int64_t begin = sample * size;
        for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * block_size + threadIdx.x;
             i < size;
             i += static_cast<std::int64_t>(gridDim.x) * block_size) {
            const std::int64_t number = o.dropout.numbers_per_sample == 1 ? 0 : i % o.columns;
            const std::uint64_t both = bits_of(key, static_cast<std::uint64_t>(number / 2));
            const auto bits = static_cast<std::uint32_t>(number % 2 == 0 ? both : both >> 32U);
            const float kept =
                bits < step.threshold ? 0.0F : __fmul_rn(to_float(x[begin + i]), step.scale);
            y[begin + i] =
                from_float<T>(skip == nullptr ? kept : __fadd_rn(to_float(skip[begin + i]), kept));
        }
    }
}

}  // namespace

cudaError_t rectify(Real real,
                    std::int64_t size,
                    float slope,
                    const void* x,
                    const void* from,
                    void* to,
                    cudaStream_t stream) {
    if (size <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        return launch<rectify_kernel<T>>(grid_for(size, block_size),
                                         block_size,
                                         0,
                                         stream,
                                         size,
                                         slope,
                                         static_cast<const T*>(x),
                                         static_cast<const T*>(from),
                                         static_cast<T*>(to));
    });
}

cudaError_t drop_columns(Real real,
                         const ColumnDrop& drop,
                         const void* x,
                         const void* skip,
                         void* y,
                         cudaStream_t stream) {
    if (drop.dropout.samples <= 0 || drop.rows <= 0 || drop.columns <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        constexpr std::int64_t most_rows = 65'535;  // of a grid
        const std::int64_t samples = drop.dropout.samples;
        const dim3 grid(grid_for(drop.rows * drop.columns, block_size),
                        static_cast<unsigned>(samples < most_rows ? samples : most_rows));
        return launch<drop_kernel<T>>(grid,
                                      block_size,
                                      0,
                                      stream,
                                      drop,
                                      static_cast<const T*>(x),
                                      static_cast<const T*>(skip),
                                      static_cast<T*>(y));
    });
}

void CudaColumnKernels::copy(exec::ConstView x, exec::View y) const {
    calls_.list_copy(y.data, x.data, x.bytes());
}

void CudaColumnKernels::rectify(double slope,
                                exec::ConstView x,
                                exec::ConstView from,
                                exec::View to) const {
    call("rectify",
         cuda::rectify,
         real_of(x.dtype),
         x.size(),
         static_cast<float>(slope),
         x.data,
         from.data,
         to.data);
}

// Key and probability change from step to step, so they come from host memory.
void CudaColumnKernels::drop_columns(const exec::DropoutMask& mask,
                                     int samples,
                                     exec::ConstView x,
                                     exec::ConstView skip,
                                     exec::View y) const {
    call("drop_columns",
         cuda::drop_columns,
         real_of(y.dtype),
         ColumnDrop{.dropout = {.step = calls_.to_device(dropout_step_of(mask)),
                                .first_sample = mask.first_sample,
                                .samples = samples,
                                .numbers_per_sample = mask.numbers_per_sample},
                    .rows = y.rows / samples,
                    .columns = y.columns},
         x.data,
         skip.data,
         y.data);
}

}  // namespace pipetwin::cuda
