// SPDX-License-Identifier: Apache-2.0
#include "exec/base/random.h"

#include <cmath>
#include <numbers>

namespace pipetwin::exec {

double RandomStream::normal(std::uint64_t n) const {
    const std::uint64_t pair = n / 2 * 2;
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(pair)));  // 1 - u lies in (0, 1]
    const double angle = 2.0 * std::numbers::pi * uniform(pair + 1);
    return radius * (n % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace pipetwin::exec
