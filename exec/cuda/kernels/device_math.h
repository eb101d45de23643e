// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "exec/cuda/kernels/launch.h"

/// Helpers that kernels share on the device: numbers of both types, 16 bytes at a time, sums in
/// fixed order.
// Plain arrays: the functions of std::array are none of the device.
// NOLINTBEGIN(modernize-avoid-c-arrays)
namespace pipetwin::cuda {

/// CUDA's type of a bf16 number.
using Bf16 = __nv_bfloat16;

/// Threads of a warp.
constexpr int warp_lanes = 32;
/// Mask of a warp's lanes for shuffles and votes: all take part.
constexpr unsigned all_lanes = 0xffffffffU;

/// The number as a float, exactly.
__device__ __forceinline__ float to_float(float value) {
    return value;
}
__device__ __forceinline__ float to_float(Bf16 value) {
    return __bfloat162float(value);
}

/// The number as float or bf16, rounded to the nearest, ties to even.
template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
    return value;
}
template <>
__device__ __forceinline__ Bf16 from_float<Bf16>(float value) {
    return __float2bfloat16_rn(value);
}

/// Number of elements of T in 16 bytes, the most that one load brings.
template <class T>
constexpr int pack_size = static_cast<int>(16 / sizeof(T));

/// `size` elements, moved at once.
template <class T, int size = pack_size<T>>
struct alignas(sizeof(T) * size) Pack {
    T at[static_cast<std::size_t>(size)];
};

/// Loads a pack at once; `address` is a multiple of its size.
template <class T, int size = pack_size<T>>
__device__ __forceinline__ Pack<T, size> load_pack(const T* address) {
#ifndef __CUDACC__
    emulation::expect_aligned(address, sizeof(Pack<T, size>));
#endif
    return *reinterpret_cast<const Pack<T, size>*>(address);
}
/// Stores a pack at once in global memory; `address` is a multiple of its size.
template <class T, int size = pack_size<T>>
__device__ __forceinline__ void store_pack(T* address, const Pack<T, size>& pack) {
#ifndef __CUDACC__
    emulation::expect_aligned(address, sizeof(Pack<T, size>));
    emulation::expect_outside_shared(address, sizeof(Pack<T, size>));
#endif
#ifdef __CUDACC__
    // Said so, the compiler moves them at once; else it often stores them one by one.
    if constexpr (sizeof(Pack<T, size>) == sizeof(uint4)) {
        uint4 bits;
        memcpy(&bits, &pack, sizeof(bits));
        __stwb(reinterpret_cast<uint4*>(address), bits);
        return;
    }
#endif
    *reinterpret_cast<Pack<T, size>*>(address) = pack;
}
/// Stores 16 bytes at once in shared memory; `address` is a multiple of their size.
template <class T>
__device__ __forceinline__ void keep_pack(T* address, const Pack<T>& pack) {
#ifdef __CUDACC__
    uint4 bits;
    memcpy(&bits, &pack, sizeof(bits));
    *reinterpret_cast<uint4*>(address) = bits;
#else
    emulation::expect_aligned(address, sizeof(pack));
    emulation::expect_in_shared(address, sizeof(pack));
    *reinterpret_cast<Pack<T>*>(address) = pack;
#endif
}

/// Index of the calling thread in a one-dimensional grid.
__device__ __forceinline__ std::int64_t thread_of_grid() {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
/// Number of threads in a one-dimensional grid.
__device__ __forceinline__ std::int64_t threads_of_grid() {
    return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

/// The sum over a warp's lanes, the same bits in all of them.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
    PIPETWIN_UNROLL
    for (int with = warp_lanes / 2; with > 0; with /= 2) {
        value += __shfl_xor_sync(all_lanes, value, with);
    }
    return value;
}

/// The largest value of a warp's lanes, in all of them.
__device__ __forceinline__ float warp_max(float value) {
    PIPETWIN_UNROLL
    for (int with = warp_lanes / 2; with > 0; with /= 2) {
        value = fmaxf(value, __shfl_xor_sync(all_lanes, value, with));
    }
    return value;
}

/// The sum over a one-dimensional block of whole warps, the same bits in all threads. All threads
/// call it; it may be called again and again.
template <class T>
__device__ __forceinline__ T block_sum(T value) {
    PIPETWIN_SHARED(of_warps, T[32]);
    const unsigned lane = threadIdx.x % warp_lanes;
    value = warp_sum(value);
    __syncthreads();  // the last call's sums have been read
    if (lane == 0) {
        of_warps[threadIdx.x / warp_lanes] = value;
    }
    __syncthreads();
    return warp_sum(lane < blockDim.x / warp_lanes ? of_warps[lane] : T(0));
}

/// The largest value of a one-dimensional block of whole warps, in all threads. All threads call
/// it; it may be called again and again.
__device__ __forceinline__ float block_max(float value) {
    PIPETWIN_SHARED(of_warps, float[32]);
    const unsigned lane = threadIdx.x % warp_lanes;
    value = warp_max(value);
    __syncthreads();  // the last call's maxima have been read
    if (lane == 0) {
        of_warps[threadIdx.x / warp_lanes] = value;
    }
    __syncthreads();
    return warp_max(lane < blockDim.x / warp_lanes ? of_warps[lane] : of_warps[0]);
}

/// The sum over the `threads` neighbours that share a row: a warp, or the block.
template <int threads, class T>
__device__ __forceinline__ T group_sum(T value) {
    if constexpr (threads == warp_lanes) {
        return warp_sum(value);
    } else {
        return block_sum(value);
    }
}
/// The largest value of the `threads` neighbours that share a row: a warp, or the block.
template <int threads>
__device__ __forceinline__ float group_max(float value) {
    if constexpr (threads == warp_lanes) {
        return warp_max(value);
    } else {
        return block_max(value);
    }
}

}  // namespace pipetwin::cuda
// NOLINTEND(modernize-avoid-c-arrays)
