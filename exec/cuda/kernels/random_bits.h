// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "exec/cuda/kernels/launch.h"

/// The random numbers of exec/base/random.h, which is no header for nvcc, on the device.
namespace pipetwin::cuda {

inline constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15U;

/// A permutation of 64 bits.
__device__ __forceinline__ std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
}
/// Key of stream `index` of the stream with this key.
__device__ __forceinline__ std::uint64_t key_of(std::uint64_t key, std::uint64_t index) {
    return mix(key ^ mix(index + golden_ratio));
}
/// The bits of number n of a stream.
__device__ __forceinline__ std::uint64_t bits_of(std::uint64_t key, std::uint64_t n) {
    return mix(key + (n + 1) * golden_ratio);
}

}  // namespace pipetwin::cuda
