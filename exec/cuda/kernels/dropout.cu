// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/cuda_kernels.h"
#include "exec/cuda/kernels/dispatch.h"
#include "exec/cuda/kernels/random_bits.h"

// Bound by memory, if only just: reads one or two numbers per element and writes one; two elements
// share 64 random bits, which take three multiplications of 64 bits.
namespace pipetwin::cuda {
namespace {

constexpr int block_size = 256;

// A row of blocks per sample; a thread takes two neighbours at a time. Sum and product are rounded
// one by one, as on the CPU.
template <class T>
__global__ void __launch_bounds__(block_size)
    dropout_kernel(Dropout o, const T* x, const T* skip, T* y) {
    const DropoutStep step = *o.step;
    const std::int64_t pairs = (o.numbers_per_sample + 1) / 2;
    for (std::int64_t sample = blockIdx.y; sample < o.samples; sample += gridDim.y) {
        const std::uint64_t key =
            key_of(step.key, static_cast<std::uint64_t>(o.first_sample + sample));
        const std::int64_t begin = sample * o.numbers_per_sample - o.first;
        const auto drop = [&](std::int64_t at, std::uint32_t bits) {
            const std::int64_t i = begin + at;
            if (i < 0 || i >= o.size) {  // another device has it
                return;
            }
            const float kept = bits < step.threshold ? 0.0F : __fmul_rn(to_float(x[i]), step.scale);
            const float sum = skip == nullptr ? kept : __fadd_rn(to_float(skip[i]), kept);
            y[i] = from_float<T>(sum);
        };
        for (std::int64_t pair = static_cast<std::int64_t>(blockIdx.x) * block_size + threadIdx.x;
             pair < pairs;
             pair += static_cast<std::int64_t>(gridDim.x) * block_size) {
            const std::uint64_t bits = bits_of(key, static_cast<std::uint64_t>(pair));
            drop(2 * pair, static_cast<std::uint32_t>(bits));
            if (2 * pair + 1 < o.numbers_per_sample) {
                drop(2 * pair + 1, static_cast<std::uint32_t>(bits >> 32U));
            }
        }
    }
}

}  // namespace

cudaError_t dropout(
    Real real, const Dropout& o, const void* x, const void* skip, void* y, cudaStream_t stream) {
    if (o.samples <= 0 || o.numbers_per_sample <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        constexpr std::int64_t most_rows = 65'535;  // of a grid
        const dim3 grid(grid_for(o.numbers_per_sample, std::int64_t{block_size} * 2),
                        static_cast<unsigned>(o.samples < most_rows ? o.samples : most_rows));
        return launch<dropout_kernel<T>>(grid,
                                         block_size,
                                         0,
                                         stream,
                                         o,
                                         static_cast<const T*>(x),
                                         static_cast<const T*>(skip),
                                         static_cast<T*>(y));
    });
}

// Key and probability change from step to step, so they come from host memory: see `update`.
void CudaKernels::dropout(const exec::DropoutMask& mask,
                          exec::ConstView x,
                          exec::ConstView skip,
                          exec::View y) const {
    const std::int64_t of_sample = mask.numbers_per_sample;
    const std::int64_t first = mask.first_number % of_sample;
    call("dropout",
         cuda::dropout,
         real_of(y.dtype),
         Dropout{.step = calls_.to_device(dropout_step_of(mask)),
                 .first_sample = mask.first_sample + mask.first_number / of_sample,
                 .samples = (first + y.size() + of_sample - 1) / of_sample,
                 .numbers_per_sample = of_sample,
                 .first = first,
                 .size = y.size()},
         x.data,
         skip.data,
         y.data);
}

}  // namespace pipetwin::cuda
