// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"
#include "core/plan/plan.h"
#include "core/timeline/span_times.h"
#include "core/timeline/timeline.h"
#include "sim/engine/conditions.h"
#include "sim/engine/record_links.h"

namespace pipetwin::sim {

/// Whether a step that lasts `step` counts as no longer than one with room for every message,
/// `unblocked`: by a thousandth of that at most.
bool is_as_fast(Duration step, Duration unblocked);

/// The capacity that a plan gets which states none, if its ranks have the memory for it. Room for a
/// message takes its bytes on the receiving rank, so it is the smallest one, at least 1, with which
/// the step `is_as_fast` as with room for every message; where ranks or messages contend, the
/// smallest that is found. Where messages have no bytes, and room takes none, it is the largest
/// number of messages that ever wait on an edge while no send blocks; 0 where the plan has no
/// edges.
int settled_capacity(const Plan& plan);

/// The plan's conditions for costs that may change: where messages have no bytes and the plan's
/// capacity holds no send up, room for every message. A settled capacity is what the plan's own
/// costs need, and other costs may need more.
Conditions conditions_for_other_costs(const Plan& plan);

/// Returns the plan with its settled capacity, unless it has a capacity already. Where a rank lacks
/// the memory for it, the plan gets the largest capacity that fits, and sends wait for room; where
/// none fits, the settled one.
Plan with_settled_capacity(Plan plan);

/// A plan with its capacity, and its simulation.
struct SettledStep {
    Plan plan;
    StepTimes times;
};

/// Settles the plan's capacity and simulates it.
SettledStep simulate_settled(Plan plan, RecordLinks links = RecordLinks::Yes);

/// A plan with its capacity, and its timeline.
struct SettledTimeline {
    Plan plan;
    Timeline timeline;
    std::vector<Bytes> room;  ///< [rank]: what the settled capacity adds to its memory
};

/// Settles the plan's capacity (`with_settled_capacity`) and simulates it. `recycled` is an older
/// timeline whose memory is used again.
SettledTimeline settled_timeline(Plan plan, Timeline recycled = {});

}  // namespace pipetwin::sim
