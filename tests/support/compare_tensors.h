// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// How two tensors are compared wherever equal bits cannot be asked for.
namespace pipetwin::testing {

template <class T>
double norm(std::span<const T> values) {
    double sum = 0;
    for (const T value : values) {
        sum += static_cast<double>(value) * static_cast<double>(value);
    }
    return std::sqrt(sum);
}

/// Agrees if ||a - b|| / ||b|| is at most `bound`, and no element is off by more than 100 times the
/// bound times the root mean square of b. Two zero tensors agree.
template <class T>
::testing::AssertionResult agree(std::span<const T> a, std::span<const T> b, double bound) {
    if (a.size() != b.size()) {
        return ::testing::AssertionFailure()
               << fmt::format("{} elements against {}", a.size(), b.size());
    }
    double squares = 0;
    double largest = 0;
    std::size_t where = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double off = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        squares += off * off;
        if (!(off <= largest)) {
            largest = off;
            where = i;
        }
    }
    const double length = norm(b);
    const double off = std::sqrt(squares);
    const double mean = length / std::sqrt(std::max<double>(1, static_cast<double>(b.size())));
    if (off <= bound * length && largest <= 100 * bound * mean) {
        return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << fmt::format(
               "relative difference {:.3g}, at most {:.3g} allowed; element {} is {:.9g} against "
               "{:.9g}",
               length > 0 ? off / length : off,
               bound,
               where,
               static_cast<double>(a.empty() ? 0 : a[where]),
               static_cast<double>(b.empty() ? 0 : b[where]));
}

}  // namespace pipetwin::testing
