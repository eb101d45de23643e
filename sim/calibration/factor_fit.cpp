// SPDX-License-Identifier: Apache-2.0
#include "sim/calibration/factor_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "core/base/error.h"

namespace pipetwin::sim {

namespace {

constexpr double square(double value) {
    return value * value;
}

/// Variances that are expected of the logarithms.
constexpr double of_kernels = square(0.15);
constexpr double of_products = square(0.1) / 2;
constexpr double of_precision = square(0.1) / 2;
constexpr double of_attention = square(0.15);
constexpr double of_passes = square(0.15);
constexpr double of_messages = square(0.2);
constexpr double of_model = square(0.04);
constexpr double of_layout = square(0.04);
constexpr double of_run = square(0.03);

/// The covariance of two runs' logarithms, but for what is of one run alone.
double covariance(const FittedRun& a, const FittedRun& b) {
    const double products = a.precision == b.precision ? of_products + of_precision : of_products;
    double sum = of_kernels * a.shares.kernels() * b.shares.kernels() +
                 products * a.shares.products * b.shares.products +
                 of_attention * a.shares.attention * b.shares.attention +
                 of_passes * a.shares.passes * b.shares.passes +
                 of_messages * a.shares.inside * b.shares.inside +
                 of_messages * a.shares.between * b.shares.between;
    if (a.model == b.model) {
        sum += of_model + (a.layout == b.layout ? of_layout : 0);
    }
    return sum;
}

using Vector = std::vector<double>;

/// Weights, none negative, with which the sum of the runs' logarithms is nearest to a factor's: the
/// least w * (covariances) * w - 2 w * `with_factor`, by coordinate descent.
Vector weights(const std::vector<Vector>& covariances, const Vector& with_factor) {
    constexpr int most_rounds = 20'000;
    constexpr double close = 1e-12;
    Vector weights(with_factor.size(), 0);
    for (int round = 0; round < most_rounds; ++round) {
        double change = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            double rest = with_factor[i];
            for (std::size_t j = 0; j < weights.size(); ++j) {
                rest -= covariances[i][j] * weights[j];
            }
            const double next = std::max(0.0, weights[i] + rest / covariances[i][i]);
            change = std::max(change, std::abs(next - weights[i]));
            weights[i] = next;
        }
        if (change < close) {
            break;
        }
    }
    return weights;
}

/// The logarithms, with those cut off that are far from all others but a fifth.
Vector without_odd(const std::vector<FittedRun>& runs) {
    constexpr double slack = 0.05;
    constexpr std::size_t odd_of = 5;
    Vector all;
    for (const FittedRun& run : runs) {
        all.push_back(run.log_ratio);
    }
    if (all.size() < 3) {
        return all;
    }
    Vector sorted = all;
    std::ranges::sort(sorted);
    const std::size_t odd = std::max<std::size_t>(1, all.size() / odd_of);
    for (double& value : all) {
        value = std::clamp(value, sorted[odd] - slack, sorted[sorted.size() - 1 - odd] + slack);
    }
    return all;
}

}  // namespace

MeasuredFactors fitted_factors(const std::vector<FittedRun>& runs, std::string_view precision) {
    PIPETWIN_EXPECT(!runs.empty(), "factors need a measured run");
    std::vector<Vector> covariances;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        Vector& row = covariances.emplace_back();
        for (const FittedRun& other : runs) {
            row.push_back(covariance(runs[i], other));
        }
        row[i] += of_run;
    }
    const Vector logarithms = without_odd(runs);
    const auto weights_of = [&](const auto& covariance_with) {
        Vector with_factor;
        std::ranges::transform(runs, std::back_inserter(with_factor), covariance_with);
        return weights(covariances, with_factor);
    };
    const auto sum_of = [&](const Vector& weight, const auto& value) {
        double sum = 0;
        for (std::size_t i = 0; i < runs.size(); ++i) {
            sum += weight[i] * value(i);
        }
        return sum;
    };
    const auto logarithm = [&](std::size_t i) { return logarithms[i]; };
    // Where all kernels are slower by one factor, that is the factor of each kind.
    const auto of_kind = [&](double variance, double StepShares::*kind) {
        const Vector weight = weights_of([&](const FittedRun& run) {
            const bool is_other = kind == &StepShares::products && run.precision != precision;
            return of_kernels * run.shares.kernels() +
                   (variance - (is_other ? of_precision : 0)) * run.shares.*kind;
        });
        const double all = sum_of(weight, [&](std::size_t i) { return runs[i].shares.kernels(); });
        return all > 0 ? std::exp(sum_of(weight, logarithm) / all) : 1;
    };
    const auto of_link = [&](double StepShares::*kind) {
        return std::exp(
            sum_of(weights_of([&](const FittedRun& run) { return of_messages * run.shares.*kind; }),
                   logarithm));
    };
    return {.products = of_kind(of_products + of_precision, &StepShares::products),
            .attention = of_kind(of_attention, &StepShares::attention),
            .passes = of_kind(of_passes, &StepShares::passes),
            .inside = of_link(&StepShares::inside),
            .between = of_link(&StepShares::between)};
}

}  // namespace pipetwin::sim
