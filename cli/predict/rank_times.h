// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "cli/base/plain_options.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/schedule_traits.h"

/// Times of ranks on the command line (--rank-forward-ms): a rank's share of the model takes the
/// same time however many stages it is cut into, so plans of several schedules do the same work.
namespace pipetwin::cli {

/// Chunks of a schedule that are not named: one, or two for a schedule of two or several.
int default_chunks(const ScheduleTraits& schedule);

/// Whether times of ranks are given.
bool has_rank_times(const PlainOptions& options);

/// Fills in unit costs, a forward of 1 ms and a backward of 2 ms on each stage, where plans are
/// named and no times are given at all; whether it did.
bool add_unit_times(PlainOptions& options);

/// The options with the times of the stages in place of those of the ranks: each stage takes an
/// equal part of its rank's. `costs` has the schedule and its shape. Throws Error(Usage) for times
/// of ranks beside times of stages and for another number of times than ranks, Error(Infeasible)
/// for unequal ranks where each stage is on two.
PlainOptions with_stage_times(PlainOptions options, const PlainCosts& costs);

}  // namespace pipetwin::cli
