// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

#include "core/base/units.h"

namespace pipetwin {

/// What the devices of a group do together. M is a number of bytes:
enum class Collective {
    AllGather,      ///< each has M / n of M bytes, and then all of them
    ReduceScatter,  ///< each has M bytes, and then the sums of M / n of them
    AllReduce,      ///< each has M bytes, and then the sums of all of them
    AllToAll,       ///< each has M bytes, M / n for every member, its own part included
    /// All-to-all of rows of tokens, one row for each of a token's experts: a token is sent once to
    /// a node that has any of its experts, and there once to a device.
    AllToAllDeduplicated,
};

/// The words of the collectives, in their order.
inline constexpr std::array<std::string_view, 5> collective_words{
    "all-gather", "reduce-scatter", "all-reduce", "all-to-all", "all-to-all-deduplicated"};

/// The collective's word.
constexpr std::string_view to_string(Collective kind) {
    return collective_words[static_cast<std::size_t>(kind)];
}

/// Collectives that are measured: all but those that a table of all-to-alls answers, too.
inline constexpr std::size_t measured_collectives = 4;

/// Measured times of collectives among devices of one node.
struct CollectiveTable {
    std::vector<Bytes> sizes{};  ///< M, ascending; at least two
    /// [collective]: by members (at least two), [size]: a time that is no shorter than that of the
    /// size before.
    std::array<std::map<int, std::vector<Duration>>, measured_collectives> times{};

    /// Whether anything is known of the collective. Deduplicated ones are all-to-alls.
    bool has(Collective kind) const;

    /// Nanoseconds of a collective of which something is known. Between two sizes the logarithm of
    /// the time is linear in that of the size, below the first one the same line goes on, and
    /// beyond the last one time is linear in bytes. Between two numbers of members n, time is
    /// linear in (n - 1) / n. Fewer members than were measured take (n - 1) / n of that, and more
    /// take besides as much longer for each as the last measured one did for the first size.
    double nanoseconds(Collective kind, int members, double bytes) const;

    bool operator==(const CollectiveTable&) const = default;
};

}  // namespace pipetwin
