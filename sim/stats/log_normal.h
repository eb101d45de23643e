// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace pipetwin::sim {

/// Factors in units of 2^-16.
constexpr int factor_bits = 16;
/// Number of quantiles in a table, and its logarithm.
constexpr int quantile_bits = 10;
constexpr int quantile_count = 1 << quantile_bits;

/// z with P(Z <= z) = p for a standard normal Z, the same bits everywhere; p in [0.0004, 0.9996].
double normal_quantile(double p);

/// The quantiles (i + 1/2) / 1024 of a log-normal distribution with mean 1, whose logarithm has
/// this standard deviation; scaled so that their own mean is 1, too.
std::array<std::uint32_t, quantile_count> log_normal_quantiles(double deviation);

}  // namespace pipetwin::sim
