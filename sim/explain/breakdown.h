// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/timeline/metrics.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::sim {

/// Where a step's time went, as the mean over ranks. Works on predicted and measured timelines
/// alike: the durations of the actions come from the timeline, and the plan's rows are replayed
/// with them three times.
///
///     timeline as it is            |------------ step -------------------------|
///     replay                       |-----------------------------------|         overhead
///     ... links free and instant   |---------------------------| communication_wait
///     ... and every piece alike    |-----------------------|                     imbalance
///     work of a mean rank          |--------------|                              fill_and_drain
///                                  forward, backward, ..., optimizer
///
/// - overhead: what the replay does not explain (gaps between measured spans), the dispatch time
/// that a plan puts before
///   each compute action, and the nanoseconds lost in dividing by the number of ranks;
/// - communication_wait: idle that vanishes when links are free and instant and have room for every
/// message;
/// - imbalance: idle that then vanishes when every action lasts the mean of its op, rounded up;
/// - fill_and_drain: the idle left.
///
/// The parts sum to the step time exactly, and none is negative. Two of the differences could be:
/// equal pieces can make a step longer (its order suits the unequal stages), and a measured step
/// can be shorter than its replay (links faster than the plan says). Such a difference counts as 0,
/// and the part below it in the picture is as much smaller.
Breakdown breakdown(const Plan& plan, const Timeline& timeline);

/// Host time that the span of each compute action includes: the plan's dispatch in a predicted step
/// and on a paced device, 0 in a measured step, where it is a gap between spans.
Duration dispatch_in_actions(const Plan& plan, const Timeline& timeline);

/// Time of a predicted step in which actions wait for messages that are part of them
/// (core/plan/action_messages.h), in nanoseconds. It is part of the work, not of the idle time.
struct MessagesInActions {
    Duration shards{};  ///< waiting for weights and gradients of other replicas, mean over ranks
    Duration tensor{};  ///< sums among the devices of a rank, mean over ranks

    int busiest = 0;            ///< the rank with the most work
    Duration work{};            ///< of that rank: its actions, without sends and receives
    Duration busiest_shards{};  ///< of that rank
    Duration busiest_tensor{};  ///< of that rank
};

/// Computes the messages inside of actions of a predicted step.
MessagesInActions messages_in_actions(const Plan& plan, const Timeline& timeline);

/// Times of a predicted step for Timeline::in_groups.
std::vector<std::vector<Duration>> times_in_groups(const Plan& plan);

/// Whether messages take enough of a step to be spoken of: 1 % or more.
bool is_notable(Duration messages, Duration step);

}  // namespace pipetwin::sim
