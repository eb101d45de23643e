// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/vector_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace pipetwin::exec {
namespace vector_math_test {

/// Calls check(x) for floats from `from` to `to`, evenly spaced, ends included.
template <class F>
void over(float from, float to, F check) {
    constexpr int steps = 200000;
    for (int i = 0; i <= steps; ++i) {
        check(from + (to - from) * static_cast<float>(i) / steps);
    }
}

TEST(Exponential, IsCloseToTheExactValue) {
    double worst = 0;  // as a share of what the header allows
    over(-87.0F, 88.0F, [&](float x) {
        const double exact = std::exp(static_cast<double>(x));
        const double error = std::fabs(static_cast<double>(exponential(x)) / exact - 1);
        worst = std::max(worst, error / (2e-7 + 2e-8 * std::fabs(static_cast<double>(x))));
    });
    EXPECT_LT(worst, 1);
    EXPECT_EQ(exponential(0.0F), 1.0F);
}

TEST(Exponential, StaysInRangeAndHandsOnWhatIsNotANumber) {
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_LT(exponential(-infinity), 1.3e-38F);
    EXPECT_GE(exponential(-infinity), 0.0F);
    for (const std::uint32_t payload : {0U, 1U, 255U, 0x3FFFFFU}) {
        EXPECT_TRUE(std::isnan(exponential(std::bit_cast<float>(0x7FC00000U + payload))));
        EXPECT_TRUE(std::isnan(exponential(std::bit_cast<float>(0xFFC00000U + payload))));
    }
}

TEST(Normal, DistributionIsCloseToTheExactOne) {
    double worst = 0;
    over(-14.0F, 14.0F, [&](float x) {
        const double exact = normal_distribution(static_cast<double>(x));
        worst = std::max(worst, std::fabs(static_cast<double>(normal_distribution(x)) - exact));
    });
    EXPECT_LT(worst, 2e-7);
}

TEST(Normal, IsExactFarOutAndHandsOnWhatIsNotANumber) {
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(normal_distribution(0.0F), 0.5F);
    for (const float far : {5.5F, 30.0F, infinity}) {
        EXPECT_EQ(normal_distribution(far), 1.0F);
        EXPECT_EQ(normal_distribution(-far), 0.0F);
    }
    EXPECT_TRUE(std::isnan(normal_distribution(std::nanf(""))));
}

/// The formula as it is published; the double version is checked against it.
TEST(TanhDistribution, IsCloseToTheExactOne) {
    double worst = 0;
    double worst_exact = 0;
    over(-14.0F, 14.0F, [&](float at) {
        const auto x = static_cast<double>(at);
        const double cubic = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
        const double exact = 0.5 * (1 + std::tanh(cubic));
        worst = std::max(worst, std::fabs(static_cast<double>(tanh_gelu(at).distribution) - exact));
        worst_exact = std::max(worst_exact, std::fabs(tanh_gelu(x).distribution - exact));
    });
    EXPECT_LT(worst, 2e-7);
    EXPECT_LT(worst_exact, 1e-15);
}

TEST(TanhDistribution, IsExactFarOutAndHandsOnWhatIsNotANumber) {
    EXPECT_EQ(tanh_gelu(0.0F).distribution, 0.5F);
    EXPECT_EQ(tanh_gelu(0.0).distribution, 0.5);
    for (const double far : {1e2, 1e13, 1e30, 1e160, std::numeric_limits<double>::infinity()}) {
        const auto at = static_cast<float>(std::min(far, 1e38));
        EXPECT_EQ(tanh_gelu(at).distribution, 1.0F) << far;
        EXPECT_LT(tanh_gelu(-at).distribution, 1e-37F) << far;
        EXPECT_EQ(tanh_gelu(far).distribution, 1.0) << far;
        EXPECT_EQ(tanh_gelu(-far).distribution, 0.0) << far;
    }
    EXPECT_TRUE(std::isnan(tanh_gelu(std::nanf("")).distribution));
}

/// Each double version is checked against the slope between two values of x times its distribution.
TEST(Gelu, SlopeIsCloseToTheExactOne) {
    double worst = 0;
    double worst_exact = 0;
    over(-14.0F, 14.0F, [&](float at) {
        const auto x = static_cast<double>(at);
        const double exact = gelu_slope(x);
        worst = std::max(worst, std::fabs(static_cast<double>(gelu_slope(at)) - exact));
        constexpr double h = 1e-5;
        const double difference =
            (x + h) * normal_distribution(x + h) - (x - h) * normal_distribution(x - h);
        worst_exact = std::max(worst_exact, std::fabs(difference / (2 * h) - exact));
    });
    EXPECT_LT(worst, 3e-7);
    EXPECT_LT(worst_exact, 1e-9);
    EXPECT_EQ(gelu_slope(0.0F), 0.5F);
    EXPECT_TRUE(std::isnan(gelu_slope(std::nanf(""))));
}

TEST(Gelu, SlopeOfTheTanhFormIsCloseToTheExactOne) {
    double worst = 0;
    double worst_exact = 0;
    over(-14.0F, 14.0F, [&](float at) {
        const auto x = static_cast<double>(at);
        const double exact = tanh_gelu(x).slope;
        worst = std::max(worst, std::fabs(static_cast<double>(tanh_gelu(at).slope) - exact));
        constexpr double h = 1e-5;
        const double difference =
            (x + h) * tanh_gelu(x + h).distribution - (x - h) * tanh_gelu(x - h).distribution;
        worst_exact = std::max(worst_exact, std::fabs(difference / (2 * h) - exact));
    });
    EXPECT_LT(worst, 3e-7);
    EXPECT_LT(worst_exact, 1e-9);
    EXPECT_EQ(tanh_gelu(0.0F).slope, 0.5F);
    for (const float far : {100.0F, 1e13F, 1e30F}) {
        EXPECT_EQ(tanh_gelu(far).slope, 1.0F);
        EXPECT_NEAR(tanh_gelu(-far).slope, 0.0F, 1e-6F);
    }
    EXPECT_TRUE(std::isnan(tanh_gelu(std::nanf("")).slope));
}

TEST(LaneSums, ReachEveryElementForEveryLength) {
    for (std::size_t n = 0; n <= 70; ++n) {
        std::vector<float> x(n);
        std::iota(x.begin(), x.end(), 1.0F);
        const auto element = [&](std::size_t i) { return x[i]; };
        EXPECT_EQ(sum_of<float>(n, element), static_cast<float>(n * (n + 1) / 2));
        EXPECT_EQ(sum_of<double>(n, element), static_cast<double>(n * (n + 1) / 2));
        LaneSum<float> in_pieces;
        in_pieces.add(0, std::min<std::size_t>(n, 32), element);
        in_pieces.add(std::min<std::size_t>(n, 32), n, element);
        EXPECT_EQ(in_pieces.total(), sum_of<float>(n, element));
    }
}

TEST(Largest, IsTheStandardLibrarysForEveryType) {
    std::vector<float> x{-3.5F, -0.0F, -1e-30F, -7.0F};
    const auto check = [&x](float expected) {
        EXPECT_EQ(largest_of(x.data(), x.size()), expected);
        const std::vector<double> doubles(x.begin(), x.end());
        EXPECT_EQ(largest_of(doubles.data(), doubles.size()), static_cast<double>(expected));
        std::vector<BFloat16> halves;
        for (const float number : x) {
            halves.push_back(stored<BFloat16>(number));
        }
        EXPECT_EQ(largest_of(halves.data(), halves.size()), computed(stored<BFloat16>(expected)));
    };
    check(0);
    for (int i = 1; i < 80; ++i) {
        x.push_back(static_cast<float>((i * 37) % 80) - 90.0F);
        check(0);
    }
    x.erase(x.begin(), x.begin() + 3);
    check(-7);
    x.push_back(123.25F);
    check(123.25F);
    x.insert(x.begin(), std::numeric_limits<float>::infinity());
    check(std::numeric_limits<float>::infinity());
    x.push_back(std::nanf(""));
    check(std::numeric_limits<float>::infinity());
    EXPECT_EQ(largest_of(x.data() + x.size() - 1, 1), -std::numeric_limits<float>::infinity());
}

}  // namespace vector_math_test
}  // namespace pipetwin::exec
