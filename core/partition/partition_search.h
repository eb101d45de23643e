// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/base/units.h"

/// Helpers that all ways of splitting layers into stages share.
namespace pipetwin {

/// The cost of a stage that is not allowed, far above all others; a few of them can be added up.
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max() / 4;

/// [i] = cost of the layers before i; one more entry than layers. Costs are not negative. Throws
/// Error(BadInput) where they add up to more than a Duration can hold.
std::vector<std::int64_t> prefix_sums(std::span<const Duration> layer_costs);

/// [i] = bytes of the layers before i; one more entry than layers. Throws Error(BadInput) above 8
/// EiB.
std::vector<std::int64_t> prefix_sums(std::span<const Bytes> layer_bytes);

/// In how many ways so many layers can be split into stages, none empty; about, where it is large.
double split_count(int layers, int stages);

/// Throws Error(Infeasible), naming both numbers, unless every stage can have a layer. A rank has
/// `chunks` of the stages.
void check_stage_count(int stages, int layers, int chunks = 1);

/// The smallest limit, 0 to `high`, for which `keeps` is true. It is true for `high`, and for all
/// limits above one for which it is true; costs are integers, so bisection is exact.
template <class Keeps>
std::int64_t smallest_limit(std::int64_t high, Keeps keeps) {
    std::int64_t low = 0;
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (keeps(middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return high;
}

}  // namespace pipetwin
