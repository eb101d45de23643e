#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

/// The kernels, the only code that nvcc compiles, behind pointers, sizes and a stream. A launch
/// returns at once; the result says whether the launch itself was accepted.
namespace pipetwin::cuda {

/// The type of a call's real operands; sums are fp32 in either.
enum class Real : std::uint8_t { F32, BF16 };

/// y = a * x + y, element by element; both in device memory.
cudaError_t scale_add(std::int64_t size, float a, const float* x, float* y, cudaStream_t stream);

}  // namespace pipetwin::cuda
