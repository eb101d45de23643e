// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/base/units.h"

namespace pipetwin {

/// A message between two ranks, each of whose times is on the clock of that rank.
struct SentMessage {
    int from = 0;
    int to = 0;
    Duration departure{};  ///< it did not leave before
    Duration arrival{};    ///< it had arrived by then
};

/// What to add to the times of each rank so that no message arrives before it has left.
struct ClockOffsets {
    std::vector<Duration> add;       ///< [rank]
    std::vector<std::string> notes;  ///< which clocks were moved, in sentences
};

/// Takes the clocks of neighbours as one where all of their messages can be so. Else the messages
/// there and back bound by how much they differ, and the middle is taken, as if both took equally
/// long; with messages one way only, the least that makes them possible. Of many messages the
/// extreme two percent are not looked at. The clock of the lowest rank stays.
ClockOffsets clock_offsets(int ranks, const std::vector<SentMessage>& messages);

}  // namespace pipetwin
