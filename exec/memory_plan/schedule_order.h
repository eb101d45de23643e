// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/schedule/schedule.h"

namespace pipetwin::exec {

/// The place of every action in schedule order: order[r][i] of schedule.ranks[r][i], counted from
/// 0.
///
/// Schedule order is the picture read column by column, and top to bottom within a column, where
/// every compute action takes one column and messages take none:
///
///     rank 0  0 1 2 . . . . 2 1 0      0F0 comes first, then (0F1, 1F0), (0F2, 1F1), (1F2), ...
///     rank 1  . 0 1 2 2 1 0 . . .
///
/// No action comes before one that it depends on, whether through its row, a message or the room in
/// a channel of `capacity` (negative: unbounded). So of several actions that fail there is a first
/// that does not depend on timing: everything before it can be run to its end. Expects a schedule
/// without deadlock.
std::vector<std::vector<int>> schedule_order(const Schedule& schedule, int capacity);

}  // namespace pipetwin::exec
