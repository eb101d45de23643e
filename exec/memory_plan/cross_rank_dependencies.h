// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/schedule/schedule.h"

namespace pipetwin::exec {

/// One action of a schedule by its place: schedule.ranks[rank][cell].
struct Cell {
    int rank = 0;
    int cell = 0;

    bool operator==(const Cell&) const = default;
};

/// [rank][cell]: the action of another rank that must be turned to before the one there can be done
/// (a happens-before edge between ranks); none where nothing is waited for. A receive waits for its
/// send, a norm or an update for the gradient reduction of the stage that hands it gradients, and a
/// send for the receive that makes room in a channel of `capacity` (negative: unbounded; 0: for its
/// own). So a rank that has done the action knows that the other rank has done all before that
/// cell. That an update waits for the norms of all ranks is not listed here: `last_norms` says
/// where they stand. Expects a valid schedule.
std::vector<std::vector<std::optional<Cell>>> cross_rank_dependencies(const Schedule& schedule,
                                                                      int capacity);

/// [rank]: the cell of its last NORM; -1 where it has none.
std::vector<int> last_norms(const Schedule& schedule);

}  // namespace pipetwin::exec
