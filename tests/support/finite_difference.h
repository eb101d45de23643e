// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace pipetwin::testing {

/// The gradient of `f` by the numbers in `at`, which f reads: central differences of fourth order,
/// error O(step^4).
inline std::vector<double> finite_difference(const std::function<double()>& f,
                                             std::span<double> at,
                                             double step) {
    std::vector<double> gradient;
    gradient.reserve(at.size());
    for (double& x : at) {
        const double middle = x;
        const auto value = [&](double offset) {
            x = middle + offset;
            return f();
        };
        gradient.push_back(
            (8 * (value(step) - value(-step)) - (value(2 * step) - value(-2 * step))) /
            (12 * step));
        x = middle;
    }
    return gradient;
}

}  // namespace pipetwin::testing
