// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/support/cuda_emulation/cuda_runtime_api.h"
#include "tests/support/cuda_emulation/emulation.h"

/// What device code uses of CUDA's language, for a plain C++ compiler. Shared memory is declared by
/// the macros of exec/cuda/kernels/launch.h: a bare __shared__ does not compile here, on purpose.
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier, cert-*)

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    constexpr dim3(unsigned in_x = 1, unsigned in_y = 1, unsigned in_z = 1)  // NOLINT
        : x(in_x), y(in_y), z(in_z) {}
};

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) {
    return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
    return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}

/// Of the thread that runs now.
inline uint3 threadIdx{};
inline uint3 blockIdx{};
inline dim3 blockDim;
inline dim3 gridDim;
constexpr int warpSize = 32;

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

/// Throws emulation::Failure above what a block of an H200 can have.
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute, int bytes) {
    pipetwin::cuda::emulation::allow_dynamic_shared(reinterpret_cast<const void*>(kernel), bytes);
    return cudaSuccess;
}

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    pipetwin::cuda::emulation::synchronize_block({file, line});
}
inline void __threadfence_block() {}

namespace pipetwin::cuda::emulation {

/// The value that lane `source(lane)` has put in.
template <class T, class Source>
T shuffle(unsigned mask, T value, Source source, Place place) {
    static_assert(sizeof(T) <= 8, "as the toolkit's");
    const Lanes& lanes = collect("a shuffle", mask, &value, sizeof(T), place);
    T result;
    std::memcpy(&result, lanes.input(checked_source(mask, source(lane()))), sizeof(T));
    return result;
}

/// `source` unless it comes after the lane's part of `width` lanes; then the lane itself.
inline int unless_behind(int source, int lane, int width) {
    return source < (lane & ~(width - 1)) + width ? source : lane;
}

}  // namespace pipetwin::cuda::emulation

inline void __syncwarp(unsigned mask = 0xffffffffU,
                       const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    const char nothing = 0;
    pipetwin::cuda::emulation::collect("__syncwarp", mask, &nothing, 1, {file, line});
}

// A shuffle that would leave its part of `width` lanes returns the caller's own value.
template <class T>
T __shfl_sync(unsigned mask,
              T value,
              int source,
              int width = 32,
              const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
    return pipetwin::cuda::emulation::shuffle(
        mask,
        value,
        [=](int lane) { return (lane & ~(width - 1)) + (source & (width - 1)); },
        {file, line});
}
template <class T>
T __shfl_xor_sync(unsigned mask,
                  T value,
                  int with,
                  int width = 32,
                  const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
    return pipetwin::cuda::emulation::shuffle(mask,
                                              value,
                                              [=](int lane) {
                                                  return pipetwin::cuda::emulation::unless_behind(
                                                      lane ^ with, lane, width);
                                              },
                                              {file, line});
}
template <class T>
T __shfl_down_sync(unsigned mask,
                   T value,
                   unsigned distance,
                   int width = 32,
                   const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
    return pipetwin::cuda::emulation::shuffle(
        mask,
        value,
        [=](int lane) {
            const int source = lane + static_cast<int>(distance);
            return pipetwin::cuda::emulation::unless_behind(source, lane, width);
        },
        {file, line});
}
template <class T>
T __shfl_up_sync(unsigned mask,
                 T value,
                 unsigned distance,
                 int width = 32,
                 const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
    return pipetwin::cuda::emulation::shuffle(
        mask,
        value,
        [=](int lane) {
            const int source = lane - static_cast<int>(distance);
            return source >= (lane & ~(width - 1)) ? source : lane;
        },
        {file, line});
}

inline unsigned __ballot_sync(unsigned mask,
                              int predicate,
                              const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
    using pipetwin::cuda::emulation::Lanes;
    const char bit = predicate != 0 ? 1 : 0;
    const Lanes& lanes = pipetwin::cuda::emulation::collect("a vote", mask, &bit, 1, {file, line});
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1U) != 0 && *lanes.input(static_cast<int>(lane)) != std::byte{0}) {
            votes |= 1U << lane;
        }
    }
    return votes;
}
inline int __any_sync(unsigned mask,
                      int predicate,
                      const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, file, line) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask,
                      int predicate,
                      const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, file, line) == mask ? 1 : 0;
}

template <class T>
T __ldg(const T* address) {
    return *address;
}

inline float __expf(float x) {
    return std::exp(x);
}
inline float __logf(float x) {
    return std::log(x);
}
inline float rsqrtf(float x) {
    return 1.0F / std::sqrt(x);
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fdividef(float x, float y) {
    return x / y;
}
inline float __uint_as_float(unsigned bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline unsigned __float_as_uint(float value) {
    unsigned bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline int __popc(unsigned bits) {
    return __builtin_popcount(bits);
}

// Device code calls these without a namespace.
inline int min(int a, int b) {
    return b < a ? b : a;
}
inline int max(int a, int b) {
    return a < b ? b : a;
}
inline unsigned min(unsigned a, unsigned b) {
    return b < a ? b : a;
}
inline unsigned max(unsigned a, unsigned b) {
    return a < b ? b : a;
}
inline long long min(long long a, long long b) {
    return b < a ? b : a;
}
inline long long max(long long a, long long b) {
    return a < b ? b : a;
}

// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier, cert-*)
