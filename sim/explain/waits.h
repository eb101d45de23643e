// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/explain/causes.h"

namespace pipetwin::sim {

/// Kind of a wait: what the rank waited for.
enum class WaitKind {
    Message,    ///< a receive, for its message
    Room,       ///< a send, for room in its channel
    Link,       ///< a send that goes on when the link has carried its message
    Gradients,  ///< an update, for the gradients
    Stash,      ///< a compute action, for its stash to come back from host memory
    StepEnd,    ///< after its last action, for the other ranks
};

/// A time in which a rank had nothing to do.
struct Wait {
    int rank = 0;
    WaitKind kind{};
    int cell = 0;  ///< the action in the rank's row that waited; the length of the row at the end
    Duration begin{};
    Duration end{};

    bool operator==(const Wait&) const = default;
};

/// All waits of a step, rank by rank, in the order of time. Of a predicted timeline they are all
/// that a rank does besides computing, summing gradients and updating. O(actions).
std::vector<Wait> waits_of(const Timeline& timeline);

/// The `most` longest waits of a step, longest first; equal ones by rank and time.
std::vector<Wait> longest_waits(const Timeline& timeline, std::size_t most);

/// The causes that a rank waited for in turn, from the begin of the wait to its end, without gaps:
/// each piece had to end before the next could begin. The first is the one that was going on when
/// the wait began, and is cut off there.
std::vector<Cause> chain_of(const Causes& causes, const Wait& wait);

}  // namespace pipetwin::sim
