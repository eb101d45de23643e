// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/timeline/span_times.h"
#include "core/timeline/timeline.h"
#include "sim/engine/conditions.h"
#include "sim/engine/occupancy.h"
#include "sim/engine/record_links.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

/// The engine for plans whose times depend on their rows alone: every time is the largest of the
/// times it has to wait for, the longest path through rows and messages. One visit per action, no
/// queue.
namespace pipetwin::sim {

/// The timeline of a plan's rows under some conditions. `recycled` is an older timeline whose
/// memory is used again. Throws InternalError for conditions with contention, or if the rows wait
/// for each other.
Timeline in_fixed_order(const Plan& plan, const Conditions& conditions, Timeline recycled = {});

/// Times of a plan where no send waits for room, and the room that its messages took.
struct Unblocked {
    StepTimes times;
    Occupancy::Room room;
};
/// Simulates a plan with unbounded channels.
Unblocked in_fixed_order_unblocked(const Plan& plan, RecordLinks links);

/// The step time of `in_fixed_order`, without making the timeline.
Duration step_in_fixed_order(const Plan& plan, const Conditions& conditions);

/// A step that runs to its end.
struct EndedStep {
    Duration step{};
    /// The step time of the same conditions with room for every message; none: not computed, as the
    /// channels have no capacity or the plan copies to host memory.
    std::optional<Duration> unblocked{};
};
/// The step time of `in_fixed_order`; none if the rows wait for each other.
std::optional<EndedStep> step_if_it_ends(const Plan& plan, const Conditions& conditions);

/// A step that runs to its end, with its times.
struct TimedStep : EndedStep {
    StepTimes times;
};
/// The times of `in_fixed_order`; none if the rows wait for each other.
std::optional<TimedStep> times_if_it_ends(const Plan& plan,
                                          const Conditions& conditions,
                                          RecordLinks links);

/// A step that runs to its end, with its timeline.
struct EndedTimeline : EndedStep {
    Timeline timeline;
};
/// The timeline of `in_fixed_order`; none if the rows wait for each other.
std::optional<EndedTimeline> timeline_if_it_ends(const Plan& plan,
                                                 const Conditions& conditions,
                                                 Timeline recycled = {});

}  // namespace pipetwin::sim
