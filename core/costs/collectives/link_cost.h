// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/base/units.h"

namespace pipetwin {

/// A link between neighbouring ranks: transfer = latency + n / bytes_per_second.
struct LinkCost {
    std::string between = "ranks";
    Duration latency{};
    double bytes_per_second = 0;  ///< 0: infinitely fast
    Bytes half_bandwidth{};       ///< message size that reaches half the rate; 0 = full rate always

    bool operator==(const LinkCost&) const = default;
};

/// Nanoseconds of a time.
inline double ns_of(Duration time) {
    return static_cast<double>(time.count());
}

/// Nanoseconds in which a link carries so many bytes at its full rate.
inline double carried_ns(const LinkCost& link, double bytes) {
    constexpr double nanoseconds = 1e9;
    return link.bytes_per_second > 0 ? nanoseconds * bytes / link.bytes_per_second : 0;
}

/// Nanoseconds of a message over a link, with its latency and half bandwidth.
inline double message_ns(const LinkCost& link, double bytes) {
    return ns_of(link.latency) +
           carried_ns(link, bytes + static_cast<double>(link.half_bandwidth.count));
}

}  // namespace pipetwin
