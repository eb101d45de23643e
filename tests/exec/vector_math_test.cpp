#include "exec/cpu/vector_math.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace pipetwin::exec {
namespace {

/// Calls check(x) for floats from `from` to `to`, evenly spaced, ends included.
template <class F>
void over(float from, float to, F check) {
    constexpr int steps = 200000;
    for (int i = 0; i <= steps; ++i) {
        check(from + (to - from) * static_cast<float>(i) / steps);
    }
}

TEST(Exponential, IsWithinTwoTenMillionthsOfTheExactValue) {
    double worst = 0;
    over(-87.0F, 88.0F, [&](float x) {
        const double exact = std::exp(static_cast<double>(x));
        worst = std::max(worst, std::fabs(static_cast<double>(exponential(x)) / exact - 1));
    });
    EXPECT_LT(worst, 2e-7);
    EXPECT_EQ(exponential(0.0F), 1.0F);
}

TEST(Exponential, StaysInRangeAndHandsOnWhatIsNotANumber) {
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_LT(exponential(-infinity), 1.3e-38F);
    EXPECT_GE(exponential(-infinity), 0.0F);
    EXPECT_TRUE(std::isnan(exponential(std::nanf(""))));
}

TEST(Normal, DistributionAndDensityAreCloseToTheExactOnes) {
    double distribution = 0;
    double density = 0;
    double tail = 0;
    over(-14.0F, 14.0F, [&](float x) {
        const Normal<float> found = normal(x);
        const Normal<double> exact = normal(static_cast<double>(x));
        distribution = std::max(
            distribution, std::fabs(static_cast<double>(found.distribution) - exact.distribution));
        density = std::max(density, std::fabs(static_cast<double>(found.density) - exact.density));
        if (x > -5.0F && x < 0.0F) {
            tail = std::max(
                tail, std::fabs(static_cast<double>(found.distribution) / exact.distribution - 1));
        }
    });
    EXPECT_LT(distribution, 2e-7);
    EXPECT_LT(density, 2e-7);
    EXPECT_LT(tail, 1.5e-6);
}

TEST(Normal, IsExactAtZeroAndFarOut) {
    EXPECT_NEAR(normal(0.0F).distribution, 0.5F, 1e-7F);
    EXPECT_EQ(normal(30.0F).distribution, 1.0F);
    EXPECT_NEAR(normal(-30.0F).distribution, 0.0F, 1e-37F);
    EXPECT_TRUE(std::isnan(normal(std::nanf("")).distribution));
}

TEST(LaneSums, ReachEveryElementForEveryLength) {
    for (std::size_t n = 0; n <= 70; ++n) {
        std::vector<float> x(n);
        std::iota(x.begin(), x.end(), 1.0F);
        const auto element = [&](std::size_t i) { return x[i]; };
        EXPECT_EQ(sum_of<float>(n, element), static_cast<float>(n * (n + 1) / 2));
        EXPECT_EQ(sum_of<double>(n, element), static_cast<double>(n * (n + 1) / 2));
        if (n > 0) {
            EXPECT_EQ(largest_of(x.data(), n), static_cast<float>(n));
        }
    }
}

}  // namespace
}  // namespace pipetwin::exec
