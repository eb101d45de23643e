// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/base/simd_targets.h"
#include "exec/cpu/products/bfloat16.h"

/// Functions for the inside of loops. The float versions have no branch and no call, so a loop over
/// them becomes vector code; the double versions are the standard library's.
namespace pipetwin::exec {

/// x y + z, rounded once: one operation where the machine has it, else the library's, which is
/// slow.
PIPETWIN_INLINE float fused(float x, float y, float z) {
    return __builtin_fmaf(x, y, z);
}

/// -87.3, below which e^x is no normal number. Defined out of the compiler's sight: of a maximum
/// with a number that it knows it makes a comparison and two selections in all that follows.
extern const float smallest_exponent;

/// e^x for x up to 88, which is all that a softmax or a density needs; relative error below
/// 2e-7 + 2e-8 |x|. Below -87.3 the smallest normal number, nearly.
///
/// e^x = 2^(n + r) with n + r = x log2 e, whole n and |r| <= 1/2. 2^r by the minimax polynomial for
/// the relative error (9e-8), as a tree, of which much can run at once; 2^n is a number whose only
/// bits are n + 127 in the place of the exponent. The second error is that of log2 e.
PIPETWIN_INLINE float exponential(float x) {
    constexpr float log2_e = 1.44269504F;
    constexpr float round_to_whole = 0x1.8p23F + 127.0F;  // leaves n + 127 in the low bits
    x = x < smallest_exponent ? smallest_exponent : x;
    const float shifted = fused(x, log2_e, round_to_whole);
    const float r = fused(x, log2_e, round_to_whole - shifted);
    const float r2 = r * r;
    const float low = fused(r, 0.693146978F, 1.0F);
    const float middle = fused(r, 0.0555073374F, 0.240222421F);
    const float high = fused(r, 0.00132647272F, 0.00967151269F);
    const float e = fused(fused(high, r2, middle), r2, low);
    return e * std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23U);
}

PIPETWIN_INLINE double exponential(double x) {
    return std::exp(x);
}

/// 1 / (1 + e^-x), exactly 0 or nearly so below -87.
PIPETWIN_INLINE float logistic(float x) {
    // e^-|x| is at most 1, so nothing overflows, whatever the sign of x.
    const float e = exponential(-std::fabs(x));
    const float share = 1.0F / (1.0F + e);
    return x < 0.0F ? e * share : share;
}

PIPETWIN_INLINE double logistic(double x) {
    const double e = std::exp(-std::fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
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

/// The approximation of the normal distribution by tanh, F(x) = (1 + tanh(v)) / 2 with v = sqrt(2 /
/// pi) (x + 0.044715 x^3), and the derivative of x F(x), GELU in its tanh form.
template <class T>
struct TanhGelu {
    T distribution;  ///< F(x); fp32: absolute error below 2e-7
    T slope;         ///< F(x) + x F'(x); fp32: absolute error below 3e-7
};

/// With t = |x| and z = 2 v(t), F(t) = 1 / (1 + e^-z) and F(-t) = 1 - F(t); F'(x) = z' F (1 - F).
/// From `far` on, where F is 0 and 1 or nearly so, t counts as `far`: powers of it stay finite.
template <class T>
PIPETWIN_INLINE TanhGelu<T> tanh_gelu(T x) {
    constexpr long double twice = 1.59576912160573071176L;  // 2 sqrt(2 / pi)
    constexpr T linear = T(twice);
    constexpr T cubic = T(0.044715L * twice);
    constexpr T far = sizeof(T) == sizeof(float) ? T(10) : T(30);
    const T size = std::fabs(x);
    const T t = size > far ? far : size;
    const T e = exponential(-t * (linear + cubic * (t * t)));  // at most 1
    const T share = T(1) / (T(1) + e);
    const T tail = e * share;
    const T rise = t * (linear + T(3) * cubic * (t * t)) * (tail * share);  // t F'(t)
    return x < T(0) ? TanhGelu<T>{tail, tail - rise} : TanhGelu<T>{share, share + rise};
}

PIPETWIN_INLINE double normal_distribution(double x) {
    return 0.5 * std::erfc(-0.70710678118654752440 * x);
}

PIPETWIN_INLINE double gelu_slope(double x) {
    return normal_distribution(x) + x * (0.39894228040143267794 * std::exp(-0.5 * x * x));
}

/// Number of sums that run beside each other: a cache line of them.
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

    /// The sum; may be called once.
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

/// The largest of many numbers; -infinity where none is a number. NaN is passed over: who needs to
/// know finds it in the sum of the exponentials. Many maxima run beside each other, since one has
/// to wait for the one before it.
template <class C>
class LaneMaximum {
  public:
    static constexpr std::size_t width = 4 * lanes<C>;

    LaneMaximum() { lane_.fill(-std::numeric_limits<C>::infinity()); }

    /// Takes element(begin) ... element(end - 1).
    template <class F>
    PIPETWIN_INLINE void add(std::size_t begin, std::size_t end, F&& element) {
        std::size_t i = begin;
        for (; i + width <= end; i += width) {
            take<width>(i, element);
        }
        for (; i + lanes<C> <= end; i += lanes<C>) {
            take<lanes<C>>(i, element);
        }
        for (; i < end; ++i) {
            take<1>(i, element);
        }
    }

    /// The largest number; may be called once.
    PIPETWIN_INLINE C total() {
        for (std::size_t half = width / 2; half > 0; half /= 2) {
            for (std::size_t l = 0; l < half; ++l) {
                lane_[l] = lane_[l + half] > lane_[l] ? lane_[l + half] : lane_[l];
            }
        }
        return lane_[0];
    }

  private:
    template <std::size_t count, class F>
    PIPETWIN_INLINE void take(std::size_t begin, F&& element) {
        for (std::size_t l = 0; l < count; ++l) {
            const C value = element(begin + l);
            lane_[l] = value > lane_[l] ? value : lane_[l];
        }
    }

    std::array<C, width> lane_;
};

/// The largest of x[0] ... x[n - 1].
template <class T>
PIPETWIN_INLINE Computed<T> largest_of(const T* x, std::size_t n) {
    LaneMaximum<Computed<T>> largest;
    largest.add(0, n, [x](std::size_t i) { return computed(x[i]); });
    return largest.total();
}

}  // namespace pipetwin::exec
