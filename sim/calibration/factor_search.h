// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace pipetwin::sim {

/// Factors among which one is looked for: those that are `resolution` apart on a logarithmic scale.
struct FactorRange {
    double least = 1e-3;
    double most = 1e3;
    double first = 1;  ///< tried first
    double resolution = 1e-7;
};

/// The least factor of the range at which `distance`, a logarithm that grows with it, is 0 or more:
/// so that it never falls where a distance falls by ever so little. The largest factor where it is
/// below 0 everywhere.
double factor_where_zero(const std::function<double(double)>& distance, const FactorRange& range);

}  // namespace pipetwin::sim
