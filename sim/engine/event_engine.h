// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/timeline/timeline.h"
#include "sim/engine/conditions.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

/// The engine for what depends on run time: links that several transfers share, ranks that share
/// processors. Discrete events in integer nanoseconds; of equal times the lower rank's comes first.
namespace pipetwin::sim {

/// Simulates a plan's rows by events; where nothing is shared the result is that of
/// `in_fixed_order`. `recycled` is an older timeline whose memory is used again. Throws
/// InternalError if the rows wait for each other.
///
/// - Cores: with `cores` = c and n > c ranks that compute, each goes on at c / n of its
///   speed. REDUCE_GRAD, NORM and OPT are work of a core, too.
/// - Interference: a rank's speed is 1 / (1 + the sum of its shares with those that compute).
/// - Shared links, Fifo: a message has every link of its way for itself, at the rate of the
///   slowest, in the order in which messages came; one that waits blocks its links for those
///   behind it.
/// - Shared links, Fair: each message goes on at its max-min fair rate.
///
/// An edge carries one message after the other in any case.
Timeline by_events(const Plan& plan, const Conditions& conditions, Timeline recycled = {});

/// A timeline, and the number of events that the queue has handled; for the benchmark.
struct CountedTimeline {
    Timeline timeline;
    std::int64_t events = 0;
};
/// Simulates by events, and counts them.
CountedTimeline by_counted_events(const Plan& plan,
                                  const Conditions& conditions,
                                  Timeline recycled = {});

}  // namespace pipetwin::sim
