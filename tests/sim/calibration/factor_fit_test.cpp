// SPDX-License-Identifier: Apache-2.0
#include "sim/calibration/factor_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace pipetwin::sim {
namespace factor_fit_test {

constexpr std::array<double MeasuredFactors::*, 5> kinds{&MeasuredFactors::products,
                                                         &MeasuredFactors::attention,
                                                         &MeasuredFactors::passes,
                                                         &MeasuredFactors::inside,
                                                         &MeasuredFactors::between};

/// What the factors predict of a run's logarithm.
double predicted(const StepShares& shares, const MeasuredFactors& by) {
    return shares.products * std::log(by.products) + shares.attention * std::log(by.attention) +
           shares.passes * std::log(by.passes) + shares.inside * std::log(by.inside) +
           shares.between * std::log(by.between);
}

FittedRun run_of(int number, const StepShares& shares, const MeasuredFactors& truth) {
    return {.model = fmt::format("model {}", number),
            .layout = "1",
            .precision = "bf16",
            .shares = shares,
            .log_ratio = predicted(shares, truth)};
}

constexpr StepShares usual{
    .products = 0.7, .attention = 0.1, .passes = 0.1, .inside = 0.05, .between = 0.05};

MeasuredFactors slower_kernels(double by) {
    return {.products = by, .attention = by, .passes = by};
}

/// One run is all that is known: its own step has to come out, whatever its factor is.
TEST(FactorFit, OneRunIsPredictedByItself) {
    for (const double factor : {0.7, 0.95, 1.0, 1.3, 2.0}) {
        const FittedRun run = run_of(1, usual, slower_kernels(factor));
        const MeasuredFactors found = fitted_factors({run}, "bf16");
        EXPECT_NEAR(predicted(usual, found), run.log_ratio, 0.02 * std::abs(run.log_ratio));
        // Nothing says that kinds differ, and of messages nearly nothing is said.
        EXPECT_NEAR(std::log(found.products), std::log(factor), 0.06 * std::abs(std::log(factor)));
        EXPECT_NEAR(std::log(found.attention), std::log(factor), 0.1 * std::abs(std::log(factor)));
        EXPECT_NEAR(found.between, 1, 0.1 * std::abs(factor - 1) + 1e-12);
    }
}

/// Runs of several models and shares of kinds, all made with one factor of the kernels.
TEST(FactorFit, RunsGiveBackTheFactorThatTheyWereMadeWith) {
    std::vector<FittedRun> runs;
    for (int i = 0; i < 8; ++i) {
        const double messages = 0.02 * i;
        const StepShares shares{.products = 0.8 - messages - 0.01 * i,
                                .attention = 0.05 + 0.02 * i,
                                .passes = 0.1,
                                .inside = messages};
        runs.push_back(run_of(i, shares, slower_kernels(1.2)));
    }
    const MeasuredFactors found = fitted_factors(runs, "bf16");
    for (const auto kind : {&MeasuredFactors::products, &MeasuredFactors::passes}) {
        EXPECT_NEAR(found.*kind, 1.2, 0.02);
    }
    for (const FittedRun& run : runs) {
        EXPECT_NEAR(predicted(run.shares, found), run.log_ratio, 0.015);
    }
}

/// A slow network shows in the runs that wait for it, and not in those that do not.
TEST(FactorFit, ASlowLinkIsFoundByTheRunsThatUseIt) {
    const MeasuredFactors truth{.between = 2};
    std::vector<FittedRun> runs;
    for (int i = 0; i < 6; ++i) {
        const double messages = i < 3 ? 0.01 : 0.4;
        runs.push_back(run_of(i, {.products = 0.99 - messages, .between = messages}, truth));
    }
    const MeasuredFactors found = fitted_factors(runs, "bf16");
    EXPECT_GT(found.between, 1.15);
    EXPECT_LT(found.products, 1.15);
    EXPECT_GT(found.between, found.products);
    EXPECT_LT(predicted(runs.front().shares, found), predicted(runs.back().shares, found));
}

/// One run of seven takes three times as long as it should: the others' factors move by no more
/// than the cut allows.
TEST(FactorFit, OneOddRunDoesNotDecide) {
    std::vector<FittedRun> runs;
    for (int i = 0; i < 7; ++i) {
        runs.push_back(run_of(i, usual, slower_kernels(1.1)));
    }
    const MeasuredFactors right = fitted_factors(runs, "bf16");
    for (const double odd : {-1.1, 1.1}) {
        std::vector<FittedRun> with_odd = runs;
        with_odd[3].log_ratio += odd;
        const MeasuredFactors found = fitted_factors(with_odd, "bf16");
        for (const auto kind : kinds) {
            EXPECT_NEAR(found.*kind / (right.*kind), 1, 0.015);
        }
    }
}

/// Runs in 8 bits say most of products in 8 bits, and something of all products on the device.
TEST(FactorFit, PrecisionsShareWhatIsOfTheDevice) {
    std::vector<FittedRun> runs;
    for (int i = 0; i < 4; ++i) {
        runs.push_back(run_of(i, usual, slower_kernels(1.2)));
        runs.back().precision = "fp8";
    }
    EXPECT_NEAR(fitted_factors(runs, "fp8").products, 1.2, 0.01);
    EXPECT_NEAR(fitted_factors(runs, "bf16").products, 1.2, 0.01);  // all that is known
    for (int i = 4; i < 8; ++i) {
        runs.push_back(run_of(i, usual, {}));
    }
    const double narrow = fitted_factors(runs, "fp8").products;
    const double wide = fitted_factors(runs, "bf16").products;
    EXPECT_GT(narrow, wide + 0.02);
    EXPECT_LT(narrow, 1.2);
    EXPECT_GT(wide, 1);
}

/// No factor falls where any run becomes slower, whatever the runs are like.
TEST(FactorFit, ASlowerRunNeverGivesAFasterFactor) {
    std::mt19937_64 random(1);
    const auto part = [&random] { return std::uniform_real_distribution<>(0, 1)(random); };
    const auto below = [&random](int end) {
        return std::uniform_int_distribution<>(0, end - 1)(random);
    };
    for (int trial = 0; trial < 3000; ++trial) {
        std::vector<FittedRun> runs(static_cast<std::size_t>(1 + below(9)));
        for (FittedRun& run : runs) {
            StepShares shares{part(), part(), part(), part(), part()};
            const double sum = shares.kernels() + shares.inside + shares.between;
            for (const auto share : {&StepShares::products,
                                     &StepShares::attention,
                                     &StepShares::passes,
                                     &StepShares::inside,
                                     &StepShares::between}) {
                shares.*share /= sum;
            }
            run = {.model = std::to_string(below(4)),
                   .layout = std::to_string(below(3)),
                   .precision = below(2) == 0 ? "bf16" : "fp8",
                   .shares = shares,
                   .log_ratio = 2 * part() - 1};
        }
        std::vector<FittedRun> slower = runs;
        slower[static_cast<std::size_t>(below(static_cast<int>(runs.size())))].log_ratio +=
            1.5 * part();
        for (const std::string precision : {"bf16", "fp8"}) {
            const MeasuredFactors before = fitted_factors(runs, precision);
            const MeasuredFactors after = fitted_factors(slower, precision);
            for (const auto kind : kinds) {
                ASSERT_GE(after.*kind, before.*kind * (1 - 1e-12)) << trial;
            }
        }
    }
}

}  // namespace factor_fit_test
}  // namespace pipetwin::sim
