#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/clones.h"
#include "exec/cpu/bfloat16.h"

/// Functions for the inside of loops. The float versions have no branch and no call, so a loop over
/// them becomes vector code; the double versions are the standard library's.
namespace pipetwin::exec {

/// x y + z, rounded once: one operation where the machine has it, else the library's, which is
/// slow.
PIPETWIN_INLINE float fused(float x, float y, float z) {
    return __builtin_fmaf(x, y, z);
}

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
    const float shifted = fused(x, log2_e, round_to_whole);
    const float n = shifted - round_to_whole;
    const float r = fused(-n, ln2_low, fused(-n, ln2_high, x));
    float e = 0.00138144711F;
    e = fused(e, r, 0.00836878036F);
    e = fused(e, r, 0.0416683941F);
    e = fused(e, r, 0.166665201F);
    e = fused(e, r, 0.499999934F);
    e = fused(e, r, 1.0F);
    e = fused(e, r, 1.0F);
    const auto whole =
        std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(round_to_whole);
    return e * std::bit_cast<float>((whole + 127U) << 23U);
}

PIPETWIN_INLINE double exponential(double x) {
    return std::exp(x);
}

/// c[0] + c[1] x + c[2] x^2 + ...
template <std::size_t n>
PIPETWIN_INLINE float polynomial(const float (&c)[n], float x) {
    float sum = c[n - 1];
#pragma GCC unroll 16
    for (std::size_t i = n - 1; i > 0; --i) {
        sum = fused(sum, x, c[i - 1]);
    }
    return sum;
}

/// The normal distribution Phi(x) = (1 + erf(x / sqrt 2)) / 2; absolute error below 2e-7, exactly 0
/// and 1 beyond 5.5.
///
/// Phi - 1/2 is odd: x times a quotient of polynomials of x^2, minimax for the absolute error
/// (7e-9) on |x| <= 5.5, beyond which fp32 knows no difference to 1/2.
PIPETWIN_INLINE float normal_distribution(float x) {
    constexpr float above[] = {0.398942235F,
                               0.0338526925F,
                               0.00467726237F,
                               0.000168825973F,
                               6.35210565e-06F,
                               2.27492863e-08F};
    constexpr float below[] = {
        1.0F, 0.251522035F, 0.0286458951F, 0.00188444664F, 7.36475209e-05F, 1.19750068e-06F};
    const float size = std::fabs(x);
    const float u = size > 5.5F ? 5.5F : size;
    const float half = u * polynomial(above, u * u) / polynomial(below, u * u);
    return 0.5F + std::copysign(half, x);
}

/// The derivative of GELU, Phi(x) + x phi(x) with the normal density phi; absolute error below
/// 3e-7. Odd but for its 1/2, too; the quotient is minimax (5e-9) on |x| <= 6.
PIPETWIN_INLINE float gelu_slope(float x) {
    constexpr float above[] = {0.797884522F,
                               -0.0180379243F,
                               0.0135690065F,
                               0.00028522577F,
                               3.20271585e-05F,
                               1.12193943e-06F,
                               1.30030985e-08F,
                               -2.88803375e-11F};
    constexpr float below[] = {1.0F,
                               0.310725665F,
                               0.0455828521F,
                               0.00415022438F,
                               0.000258606574F,
                               1.08122573e-05F,
                               3.63637922e-07F};
    const float size = std::fabs(x);
    const float u = size > 6.0F ? 6.0F : size;
    const float rest = u * polynomial(above, u * u) / polynomial(below, u * u);
    return 0.5F + std::copysign(rest, x);
}

PIPETWIN_INLINE double normal_distribution(double x) {
    return 0.5 * std::erfc(-0.70710678118654752440 * x);
}

PIPETWIN_INLINE double gelu_slope(double x) {
    return normal_distribution(x) + x * (0.39894228040143267794 * std::exp(-0.5 * x * x));
}

/// So many sums run beside each other: a cache line of them.
template <class T>
constexpr std::size_t lanes = 64 / sizeof(T);

/// A sum whose i-th number goes to lane i mod lanes; the lanes are joined in a fixed tree. By this
/// definition it does not depend on the width of the machine's vectors, and becomes vector code all
/// the same.
template <class T>
class LaneSum {
  public:
    static constexpr std::size_t width = lanes<T>;

    /// Adds element(begin) ... element(end - 1). All calls but the last have whole lanes of them.
    template <class F>
    PIPETWIN_INLINE void add(std::size_t begin, std::size_t end, F&& element) {
        std::size_t i = begin;
        for (; i + width <= end; i += width) {
            for (std::size_t l = 0; l < width; ++l) {
                lane_[l] += element(i + l);
            }
        }
        for (std::size_t l = 0; i < end; ++i, ++l) {
            lane_[l] += element(i);
        }
    }

    PIPETWIN_INLINE T total() {
        for (std::size_t half = width / 2; half > 0; half /= 2) {
            for (std::size_t l = 0; l < half; ++l) {
                lane_[l] += lane_[l + half];
            }
        }
        return lane_[0];
    }

  private:
    std::array<T, width> lane_{};
};

/// The sum of element(0) ... element(n - 1).
template <class T, class F>
PIPETWIN_INLINE T sum_of(std::size_t n, F&& element) {
    LaneSum<T> sum;
    sum.add(0, n, element);
    return sum.total();
}

/// Bits of floats are ordered as whole numbers are, but for those of negative ones, which run the
/// other way; turned round here, and turned back by the same.
template <class Whole>
PIPETWIN_INLINE Whole ordered(Whole bits) {
    constexpr int sign = 8 * static_cast<int>(sizeof(Whole)) - 1;
    return static_cast<Whole>(bits ^ ((bits >> sign) & std::numeric_limits<Whole>::max()));
}

/// The largest of x[0] ... x[n - 1]; n is at least 1. Where one is NaN, any of them. Found among
/// whole numbers, of whose maxima, which are the same in any order, the compiler makes vector code.
template <class T>
PIPETWIN_INLINE Computed<T> largest_of(const T* x, std::size_t n) {
    using Whole =
        std::conditional_t<sizeof(T) == 2,
                           std::int16_t,
                           std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>;
    Whole largest = std::numeric_limits<Whole>::min();
    for (std::size_t i = 0; i < n; ++i) {
        const Whole value = ordered(std::bit_cast<Whole>(x[i]));
        largest = largest > value ? largest : value;
    }
    return computed(std::bit_cast<T>(ordered(largest)));
}

}  // namespace pipetwin::exec
