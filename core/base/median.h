// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "core/base/error.h"

namespace pipetwin {

/// The middle value; of an even number the mean of the two in the middle. At least one value.
template <class Value>
Value median(std::vector<Value> values) {
    PIPETWIN_EXPECT(!values.empty(), "a median needs a value");
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) {
        return *middle;
    }
    const Value below = *std::max_element(values.begin(), middle);
    return below + (*middle - below) / 2;
}

}  // namespace pipetwin
