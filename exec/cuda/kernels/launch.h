// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

// What the kernels' sources need so that nvcc and a plain C++ compiler can read them; the latter
// compiles them against tests/support/cuda_emulation, which runs them without a GPU. Hence no
// <<<>>> and no bare __shared__ in any kernel.

#ifdef __CUDACC__
/// `type` may be an array: PIPETWIN_SHARED(tile, float[32][33]);
#define PIPETWIN_SHARED(name, ...)   \
    using name##_type = __VA_ARGS__; \
    __shared__ __align__(16) name##_type name
/// The bytes that the launch asked for, as unsigned char*; aligned to 128 bytes.
#define PIPETWIN_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#define PIPETWIN_UNROLL _Pragma("unroll")
/// Unrolls a loop of unknown length four times, so that several loads are in flight.
#define PIPETWIN_UNROLL_4 _Pragma("unroll 4")
#else
#define PIPETWIN_SHARED(name, ...)                  \
    using name##_type = __VA_ARGS__;                \
    static const char name##_tag = 0;               \
    name##_type& name = *static_cast<name##_type*>( \
        ::pipetwin::cuda::emulation::shared_memory(&name##_tag, sizeof(name##_type), 16))
#define PIPETWIN_DYNAMIC_SHARED(name) \
    unsigned char* const name =       \
        static_cast<unsigned char*>(::pipetwin::cuda::emulation::dynamic_shared_memory())
#define PIPETWIN_UNROLL
#define PIPETWIN_UNROLL_4
#endif

namespace pipetwin::cuda {

/// launch<kernel>(grid, block, shared_bytes, stream, arguments...): returns at once; the result
/// says whether the launch itself was accepted. An empty grid is an error to CUDA.
template <auto kernel, class... Arguments>
cudaError_t launch(
    dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream, Arguments... arguments) {
#ifdef __CUDACC__
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
#else
    const char* const name = __PRETTY_FUNCTION__;
    return emulation::submit(stream, [=] {
        emulation::run({name, reinterpret_cast<const void*>(kernel), grid, block, shared_bytes},
                       [=] { kernel(arguments...); });
    });
#endif
}

}  // namespace pipetwin::cuda
