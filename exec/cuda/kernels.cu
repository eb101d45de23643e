#include "exec/cuda/kernels.h"
#include "exec/cuda/launch.h"

namespace pipetwin::cuda {
namespace {

constexpr int threads_per_block = 256;
constexpr std::int64_t most_blocks = 65535;

// A grid-stride loop: right for any size, whatever number of blocks was launched.
__global__ void scale_add_kernel(std::int64_t size, float a, const float* x, float* y) {
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; index < size; index += stride) {
        y[index] = a * x[index] + y[index];
    }
}

unsigned blocks_for(std::int64_t size) {
    const std::int64_t blocks = (size + threads_per_block - 1) / threads_per_block;
    return static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks);
}

}  // namespace

cudaError_t scale_add(std::int64_t size, float a, const float* x, float* y, cudaStream_t stream) {
    if (size <= 0) {  // a grid of no blocks is an error to CUDA
        return cudaSuccess;
    }
    return launch<scale_add_kernel>(blocks_for(size), threads_per_block, 0, stream, size, a, x, y);
}

}  // namespace pipetwin::cuda
