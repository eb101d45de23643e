// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"
#include "core/costs/contention.h"

namespace pipetwin::testing {

/// Something that links of one node carry: from a device to another, or to host memory and back.
struct Transfer {
    static constexpr int host = -1;
    int from = 0;
    int to = 0;
    double bytes = 0;
    double bytes_per_second = 0;  ///< of its own link; 0: it takes no time
    Duration begin{};
};

/// How many bytes pass each direction of each link for one byte of a transfer: [2 * link] out of
/// the devices, [2 * link + 1] in to them, and for links with one rate [2 * link] only.
std::vector<int> passes(const std::vector<NodeLink>& links, const Transfer& transfer);

/// The oracle of links that are shared fairly: when each transfer ends, in nanoseconds.
///
/// A fluid in floating-point numbers, of which all rates are found anew whenever a transfer begins
/// or ends: again and again the narrowest link, the one with the least left for each byte that has
/// to pass it, gives all of its transfers what it has (Bertsekas and Gallager, section 6.5.2).
std::vector<double> fair_ends(const std::vector<NodeLink>& links,
                              const std::vector<Transfer>& transfers);

}  // namespace pipetwin::testing
