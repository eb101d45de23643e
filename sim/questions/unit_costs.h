// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/plan/plain_plan.h"
#include "core/plan/plan.h"
#include "core/schedule/schedule.h"
#include "core/timeline/timeline.h"

/// Times for schedules whose costs are not known: on every stage F, I, W and R last one unit, B
/// two.
namespace pipetwin::sim {

/// The duration of one unit.
constexpr Duration cost_unit = std::chrono::milliseconds(1);

/// The plan of `costs`, whose schedule is `schedule_from_file`, with unit costs in place of its
/// own.
Plan unit_plan(PlainCosts costs);

/// The timeline of a schedule at unit costs. It is valid and does not deadlock at the capacity;
/// without one no send ever blocks.
Timeline unit_timeline(const Schedule& schedule, std::optional<int> capacity);

}  // namespace pipetwin::sim
