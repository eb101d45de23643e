// SPDX-License-Identifier: Apache-2.0
#include "sim/calibration/factor_search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace pipetwin::sim {

double factor_where_zero(const std::function<double(double)>& distance, const FactorRange& range) {
    constexpr int most_guesses = 20;
    constexpr double close = 100;  // steps: then the next guess is to be beyond the zero
    const double resolution = range.resolution;
    double low = std::floor(std::log(range.least) / resolution);
    double high = std::ceil(std::log(range.most) / resolution);
    double at = std::clamp(std::round(std::log(range.first) / resolution), low + 1, high - 1);
    std::optional<std::pair<double, double>> before;  // where, and the distance there
    for (int tries = 1; high - low > 1; ++tries) {
        const double value = distance(std::exp(at * resolution));
        (value < 0 ? low : high) = at;
        // At first as if the result grew with the factor itself.
        const double slope = before && before->first != at && before->second != value
                                 ? (value - before->second) / (at - before->first)
                                 : resolution;
        before.emplace(at, value);
        double next = std::round(at - value / slope);
        if (std::abs(next - at) < close) {
            next += value < 0 ? 1 : -1;
        }
        if (tries >= most_guesses || !(next > low && next < high)) {
            // Upwards in steps of e, as costs far above those measured cannot be added up.
            next = std::min(std::floor((low + high) / 2), low + std::ceil(1 / resolution));
        }
        if (high - low > 1) {
            at = std::clamp(next, low + 1, high - 1);
        }
    }
    return std::exp(high * resolution);
}

}  // namespace pipetwin::sim
