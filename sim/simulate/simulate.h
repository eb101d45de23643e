// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/timeline/span_times.h"
#include "core/timeline/timeline.h"
#include "sim/engine/conditions.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::sim {

/// Predicts what every device would do, and when, in integer nanoseconds: the same on every
/// machine, byte for byte.
///
/// A transfer leaves when its link is free and occupies it for bytes / rate; it arrives `latency`
/// later. Links are FIFO, one per boundary and direction. With a channel capacity c a send waits
/// while c messages that the receiver has not taken are under way or waiting on its edge (c = 0:
/// until the receive begins). Two actions that are issued together run one after the other here. A
/// validated plan always finishes; InternalError otherwise.
///
/// Where nothing is shared, times follow from the rows alone and sim/engine/fixed_order.h finds
/// them; where ranks or messages contend, sim/engine/event_engine.h. Where both can be asked they
/// agree to the nanosecond.
///
/// `recycled` is an older timeline whose memory is used again: touching new memory takes longer
/// than the simulation.
Timeline simulate(const Plan& plan, Timeline recycled = {});

/// Simulates a plan under other conditions than its own. The timeline counts as predicted.
/// `recycled` is an older timeline whose memory is used again.
Timeline replay(const Plan& plan, const Conditions& conditions, Timeline recycled = {});

/// The step time of a replay.
Duration replayed_step(const Plan& plan, const Conditions& conditions);

}  // namespace pipetwin::sim
