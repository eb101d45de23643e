// SPDX-License-Identifier: Apache-2.0
#include "exec/base/normal_numbers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>

#include "core/base/simd_targets.h"

namespace pipetwin::exec {
namespace {

/// Pairs that one loop makes: their numbers stay in the nearest cache.
constexpr std::size_t pairs_at_once = 256;

/// Bound of the error of `Approximation`, and of the library's functions in the formula: as a share
/// of the radius. Both together are about 5e-15 of it.
constexpr double error_bound = 1e-13;

/// c[0] + c[1] x + c[2] x^2 + ...
template <std::size_t n>
PIPETWIN_INLINE double series(const double (&c)[n], double x) {
    double sum = c[n - 1];
#pragma GCC unroll 16
    for (std::size_t i = n - 1; i > 0; --i) {
        sum = sum * x + c[i - 1];
    }
    return sum;
}

/// log(x) for normal x; relative error below 2e-15.
///
/// x = 2^k m with sqrt(1/2) <= m < sqrt(2). log m = 2 atanh s with s = (m - 1) / (m + 1), whose
/// series ends where its next term is below 1e-16: |s| <= 0.1716.
PIPETWIN_INLINE double logarithm(double x) {
    constexpr std::uint64_t root_of_half = 0x3fe6a09e667f3bcdU;
    constexpr std::uint64_t lifted = std::uint64_t{1024} << 52U;  // keeps the difference positive
    constexpr double odd[] = {
        1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19};
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t exponent = (bits - root_of_half + lifted) >> 52U;  // k + 1024
    const auto m = std::bit_cast<double>(bits - (exponent << 52U) + lifted);
    // The exponent as the low bits of a number from 2^52 on: AVX2 converts no 64-bit integers.
    const double k = std::bit_cast<double>(exponent | 0x4330000000000000U) - (0x1p52 + 1024);
    const double s = (m - 1) / (m + 1);
    return k * std::numbers::ln2 + 2 * s * series(odd, s * s);
}

/// Cosine and sine of 2 pi times `turns` in [0, 1]; absolute error below 1e-15.
///
/// turns = q / 4 + r with whole q and |r| <= 1/8: the sine and the cosine of 2 pi r by their Taylor
/// series, whose next terms are below 1e-16, and q says which is which.
struct Circle {
    double cosine = 0;
    double sine = 0;
};
PIPETWIN_INLINE Circle circle(double turns) {
    constexpr double whole = 0x1.8p52;  // leaves q in the low bits
    constexpr double of_sine[] = {1.0,
                                  -1.0 / 6,
                                  1.0 / 120,
                                  -1.0 / 5040,
                                  1.0 / 362880,
                                  -1.0 / 39916800,
                                  1.0 / 6227020800,
                                  -1.0 / 1307674368000};
    constexpr double of_cosine[] = {1.0,
                                    -1.0 / 2,
                                    1.0 / 24,
                                    -1.0 / 720,
                                    1.0 / 40320,
                                    -1.0 / 3628800,
                                    1.0 / 479001600,
                                    -1.0 / 87178291200,
                                    1.0 / 20922789888000};
    const double shifted = 4 * turns + whole;
    const auto q = std::bit_cast<std::uint64_t>(shifted);
    const double angle = (4 * turns - (shifted - whole)) * (std::numbers::pi / 2);
    const double square = angle * angle;
    const auto s = std::bit_cast<std::uint64_t>(angle * series(of_sine, square));
    const auto c = std::bit_cast<std::uint64_t>(series(of_cosine, square));
    const std::uint64_t changed = (s ^ c) & (0 - (q & 1U));
    const std::uint64_t sign_of_sine = (q & 2U) << 62U;
    const std::uint64_t sign_of_cosine = ((q + 1) & 2U) << 62U;
    return {.cosine = std::bit_cast<double>(c ^ changed ^ sign_of_cosine),
            .sine = std::bit_cast<double>(s ^ changed ^ sign_of_sine)};
}

/// The float nearest to a number that is within `error` of x, or NaN where there are several.
PIPETWIN_INLINE float certain(double x, double error) {
    const auto low = static_cast<float>(x - error);
    const auto high = static_cast<float>(x + error);
    return low == high && low != 0 ? low : std::numeric_limits<float>::quiet_NaN();
}

/// Pairs of numbers from element `first` on, which is even. NaN: not certain.
PIPETWIN_SIMD_TARGETS void certain_pairs(
    std::uint64_t key, double scale, std::uint64_t first, std::size_t pairs, float* to) {
    const RandomStream stream = RandomStream::with_key(key);
    PIPETWIN_ELEMENTWISE
    for (std::size_t i = 0; i < pairs; ++i) {
        const std::uint64_t element = first + 2 * i;
        const double radius = scale * std::sqrt(-2.0 * logarithm(1.0 - stream.uniform(element)));
        const Circle point = circle(stream.uniform(element + 1));
        const double error = error_bound * std::fabs(radius);
        to[2 * i] = certain(radius * point.cosine, error);
        to[2 * i + 1] = certain(radius * point.sine, error);
    }
}

}  // namespace

void normal_numbers(const RandomStream& stream,
                    double scale,
                    std::uint64_t first,
                    std::span<float> to) {
    std::array<float, 2 * pairs_at_once> pairs{};
    std::uint64_t begin = first / 2 * 2;
    auto* out = to.data();
    const std::uint64_t end = first + to.size();
    while (begin < end) {
        const std::size_t count = std::min<std::size_t>(pairs_at_once, (end - begin + 1) / 2);
        certain_pairs(stream.key(), scale, begin, count, pairs.data());
        for (std::size_t i = 0; i < 2 * count; ++i) {
            const std::uint64_t n = begin + i;
            if (n >= first && n < end) {
                *out++ =
                    std::isnan(pairs[i]) ? static_cast<float>(scale * stream.normal(n)) : pairs[i];
            }
        }
        begin += 2 * count;
    }
}

void normal_numbers(const RandomStream& stream,
                    double scale,
                    std::uint64_t first,
                    std::span<double> to) {
    for (double& number : to) {
        number = scale * stream.normal(first++);
    }
}

}  // namespace pipetwin::exec
