// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"

namespace pipetwin::testing {

/// Plain numbers as durations.
inline std::vector<Duration> nanoseconds_of(const std::vector<int>& numbers) {
    return {numbers.begin(), numbers.end()};
}

}  // namespace pipetwin::testing
