// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/base/simd_targets.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {

/// The upper half of a float: 8 bits of significand. Memory only: everything is computed in float.
struct BFloat16 {
    std::uint16_t bits;
};

template <>
inline constexpr DType dtype_of<BFloat16> = DType::BF16;

/// Maps a number's type to the type in which it is computed.
template <class T>
struct ComputedIn {
    using Type = T;
};
template <>
struct ComputedIn<BFloat16> {
    using Type = float;
};
/// The type in which numbers of type T are computed.
template <class T>
using Computed = typename ComputedIn<T>::Type;

/// The number in the type in which it is computed.
PIPETWIN_INLINE float computed(float x) {
    return x;
}
PIPETWIN_INLINE double computed(double x) {
    return x;
}
PIPETWIN_INLINE float computed(BFloat16 x) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16U);
}

/// The number rounded to T: to the nearest, ties to even; what is not a number stays so. No branch.
template <class T>
PIPETWIN_INLINE T stored(Computed<T> x) {
    return x;
}
template <>
PIPETWIN_INLINE BFloat16 stored<BFloat16>(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16U) & 1U);
    const std::uint32_t quiet = bits | 0x400000U;
    return {static_cast<std::uint16_t>((std::isnan(x) ? quiet : rounded) >> 16U)};
}

}  // namespace pipetwin::exec
