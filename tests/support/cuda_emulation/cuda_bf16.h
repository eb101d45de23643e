// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tests/support/cuda_emulation/cuda_runtime.h"

/// The bf16 numbers of CUDA's header of this name: the upper half of a float.
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier, cert-*)

struct __nv_bfloat16 {
    std::uint16_t bits;  ///< the toolkit's has no member of this name
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 value) {
    return __uint_as_float(static_cast<unsigned>(value.bits) << 16U);
}

/// To the nearest, ties to even; NaN becomes 0x7fff.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return {0x7fff};
    }
    const unsigned odd = bits >> 16U & 1U;
    return {static_cast<std::uint16_t>((bits + 0x7fffU + odd) >> 16U)};
}
inline __nv_bfloat16 __float2bfloat16(float value) {
    return __float2bfloat16_rn(value);
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 value) {
    return __floats2bfloat162_rn(value.x, value.y);
}
inline float2 __bfloat1622float2(__nv_bfloat162 value) {
    return {__bfloat162float(value.x), __bfloat162float(value.y)};
}
inline float __low2float(__nv_bfloat162 value) {
    return __bfloat162float(value.x);
}
inline float __high2float(__nv_bfloat162 value) {
    return __bfloat162float(value.y);
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
    return {x, y};
}

// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier, cert-*)
