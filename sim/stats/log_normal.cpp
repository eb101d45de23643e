// SPDX-License-Identifier: Apache-2.0
#include "sim/stats/log_normal.h"

#include "sim/stats/portable_math.h"

namespace pipetwin::sim {

namespace {

constexpr double one_over_sqrt_two_pi = 0.39894228040143267794;

double density(double z) {
    return one_over_sqrt_two_pi * portable_exp(-z * z / 2);
}

/// 1/2 + density(z) (z + z^3 / 3 + z^5 / (3 5) + ...)
double cumulative(double z) {
    double term = z;
    double sum = z;
    for (int odd = 3; odd < 200; odd += 2) {
        term *= z * z / odd;
        sum += term;
    }
    return 0.5 + density(z) * sum;
}

/// Newton's steps from 0: the cumulative distribution is concave on this side, so they never go too
/// far.
double upper_quantile(double p) {
    double z = 0;
    for (int step = 0; step < 16; ++step) {
        z += (p - cumulative(z)) / density(z);
    }
    return z;
}

const std::array<double, quantile_count>& standard_quantiles() {
    static const std::array<double, quantile_count> table = [] {
        std::array<double, quantile_count> values{};
        for (std::size_t i = quantile_count / 2; i < quantile_count; ++i) {
            const double p = (static_cast<double>(i) + 0.5) / quantile_count;
            values[i] = upper_quantile(p);
            values[quantile_count - 1 - i] = -values[i];
        }
        return values;
    }();
    return table;
}

}  // namespace

double normal_quantile(double p) {
    return p < 0.5 ? -upper_quantile(1 - p) : upper_quantile(p);
}

std::array<std::uint32_t, quantile_count> log_normal_quantiles(double deviation) {
    std::array<double, quantile_count> factors{};
    double sum = 0;
    for (std::size_t i = 0; i < factors.size(); ++i) {
        factors[i] = portable_exp(deviation * standard_quantiles()[i]);
        sum += factors[i];
    }
    const double scale = static_cast<double>(1 << factor_bits) * quantile_count / sum;
    std::array<std::uint32_t, quantile_count> table{};
    for (std::size_t i = 0; i < table.size(); ++i) {
        table[i] = static_cast<std::uint32_t>(factors[i] * scale + 0.5);
    }
    return table;
}

}  // namespace pipetwin::sim
