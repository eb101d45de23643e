// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace pipetwin::cli {

/// A cluster, a number of its nodes and a stack.
struct Combination {
    std::string cluster;
    int nodes = 1;
    std::optional<std::string> stack{};  ///< none: the newest that knows the device
    std::optional<double> price{};       ///< of one device for an hour

    bool operator==(const Combination&) const = default;
};

}  // namespace pipetwin::cli
