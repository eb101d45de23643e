#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/clones.h"
#include "exec/cpu/bfloat16.h"

/// Functions for the inside of loops. The float versions have no branch and no call, so a loop over
/// them becomes vector code; the double versions are the standard library's.
namespace pipetwin::exec {

/// e^x for x up to 88, which is all that a softmax or a density needs; relative error below 2e-7 (3
/// units in the last place). Below -87.3, where e^x is no normal number, the smallest normal
/// number.
///
/// x = n ln 2 + r with whole n and |r| <= ln 2 / 2, e^x = 2^n e^r. ln 2 is subtracted in two parts,
/// the first of few bits, so that n times it is exact. e^r = 1 + r + r^2 p(r) with p the minimax
/// polynomial for the relative error (3e-9).
PIPETWIN_INLINE float exponential(float x) {
    constexpr float log2_e = 1.44269504F;
    constexpr float ln2_high = 0.693359375F;
    constexpr float ln2_low = -2.12194440e-4F;
    constexpr float round_to_whole =
        0x1.8p23F;  // adding it leaves the nearest whole number in the low bits
    x = x < -87.3F ? -87.3F : x;
    const float shifted = x * log2_e + round_to_whole;
    const float n = shifted - round_to_whole;
    const float r = (x - n * ln2_high) - n * ln2_low;
    float p = 0.00138144711F;
    p = p * r + 0.00836878036F;
    p = p * r + 0.0416683941F;
    p = p * r + 0.166665201F;
    p = p * r + 0.499999934F;
    const float e = (p * r) * r + r + 1.0F;
    const auto whole =
        std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(round_to_whole);
    return e * std::bit_cast<float>((whole + 127U) << 23U);
}

PIPETWIN_INLINE double exponential(double x) {
    return std::exp(x);
}

/// The normal distribution and its density at one place.
template <class T>
struct Normal {
    T distribution;  ///< Phi(x) = (1 + erf(x / sqrt 2)) / 2
    T density;       ///< phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
};

/// Absolute error below 2e-7; in the left tail the relative error is below 1.5e-6 down to x = -5.
///
/// With t = |x| and u = 1 / (1 + t / 4): Phi(-t) = exp(-t^2 / 2) u q(u), q the minimax polynomial
/// of degree 8 for the relative error (6e-8) on 0 <= t <= 14; so both gradients of GELU share one
/// exponential.
PIPETWIN_INLINE Normal<float> normal(float x) {
    const float t = std::fabs(x);
    const float e = exponential(-0.5F * t * t);
    const float u = 1.0F / (1.0F + 0.25F * t);
    float q = 0.0257233237991F;
    q = q * u - 0.152808587704F;
    q = q * u + 0.296120453687F;
    q = q * u - 0.20578185346F;
    q = q * u + 0.201757513961F;
    q = q * u + 0.0329281450566F;
    q = q * u + 0.10374664832F;
    q = q * u + 0.0985168466711F;
    q = q * u + 0.0997974812096F;
    const float tail = e * (q * u);
    return {.distribution = x < 0.0F ? tail : 1.0F - tail, .density = 0.398942280F * e};
}

PIPETWIN_INLINE Normal<double> normal(double x) {
    return {.distribution = 0.5 * std::erfc(-0.70710678118654752440 * x),
            .density = 0.39894228040143267794 * std::exp(-0.5 * x * x)};
}

/// So many sums run beside each other: a cache line of them.
template <class T>
constexpr std::size_t lanes = 64 / sizeof(T);

/// The sum of element(0) ... element(n - 1): element i goes to lane i mod lanes, and the lanes are
/// joined in a fixed tree. By this definition the sum does not depend on the width of the machine's
/// vectors, and becomes vector code all the same.
template <class T, class F>
PIPETWIN_INLINE T sum_of(std::size_t n, F&& element) {
    constexpr std::size_t width = lanes<T>;
    std::array<T, width> lane{};
    std::size_t i = 0;
    for (; i + width <= n; i += width) {
        for (std::size_t l = 0; l < width; ++l) {
            lane[l] += element(i + l);
        }
    }
    for (std::size_t l = 0; i < n; ++i, ++l) {
        lane[l] += element(i);
    }
    for (std::size_t half = width / 2; half > 0; half /= 2) {
        for (std::size_t l = 0; l < half; ++l) {
            lane[l] += lane[l + half];
        }
    }
    return lane[0];
}

/// The largest of x[0] ... x[n - 1]; n is at least 1. Where one is NaN, any of them.
template <class T>
PIPETWIN_INLINE T largest_of(const T* x, std::size_t n) {
    // The compiler makes vector code of sums by itself, but not of this: hence its own vectors, of
    // the width that every x86-64 has, and two of them, so that one need not wait for the other.
    using Pack [[gnu::vector_size(16)]] = T;
    constexpr std::size_t width = 16 / sizeof(T);
    T largest = x[0];
    std::size_t i = 0;
    if (n >= 2 * width) {
        const auto pack_at = [x](std::size_t place) __attribute__((always_inline)) {
            Pack pack{};
            std::memcpy(&pack, x + place, sizeof(Pack));
            return pack;
        };
        Pack even = pack_at(0);
        Pack odd = pack_at(width);
        for (i = 2 * width; i + 2 * width <= n; i += 2 * width) {
            const Pack next_even = pack_at(i);
            const Pack next_odd = pack_at(i + width);
            even = even > next_even ? even : next_even;
            odd = odd > next_odd ? odd : next_odd;
        }
        even = even > odd ? even : odd;
        for (std::size_t l = 0; l < width; ++l) {
            largest = std::max(largest, static_cast<T>(even[l]));
        }
    }
    for (; i < n; ++i) {
        largest = std::max(largest, x[i]);
    }
    return largest;
}

PIPETWIN_INLINE float largest_of(const BFloat16* x, std::size_t n) {
    // Bits of floats are ordered as whole numbers are, but for the sign; the compiler makes vector
    // code of whole numbers' maxima, which are the same in any order.
    std::int16_t largest = -0x8000;
    for (std::size_t i = 0; i < n; ++i) {
        const auto bits = static_cast<std::int16_t>(x[i].bits);
        const auto ordered = static_cast<std::int16_t>(bits ^ ((bits >> 15) & 0x7FFF));
        largest = largest > ordered ? largest : ordered;
    }
    const auto bits = static_cast<std::uint16_t>(largest ^ ((largest >> 15) & 0x7FFF));
    return computed(BFloat16{bits});
}

}  // namespace pipetwin::exec
