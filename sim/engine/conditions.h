// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "core/costs/contention.h"
#include "core/costs/profile.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::sim {

/// Costs and limits under which a plan's rows are replayed: the plan's own, or others.
struct Conditions {
    /// [rank][cell]; those of sends and receives are not read. Empty: as the plan says.
    std::vector<std::vector<Duration>> durations;
    /// [op]: every action of an op lasts the same, in place of the plan's durations and of
    /// `durations`.
    std::optional<std::array<Duration, op_count>> duration_of_op;
    std::vector<LinkCost> links;  ///< [boundary]
    /// [edge][micro-batch]: factor of each message's time on its link; empty: 1.
    std::vector<std::vector<double>> message_factors;
    /// [rank][cell]: factor of the time of each copy of a stash, by the F that makes it (out) and
    /// the action that needs it (in); empty: 1.
    std::vector<std::vector<double>> copy_factors;
    std::vector<LinkCost> reductions;  ///< as in the plan
    /// [stage]: reductions over replicas that their rank does not wait for; empty: none.
    std::vector<Duration> overlapped_reductions;
    std::optional<int> channel_capacity;  ///< none: no send ever waits
    TransferMode transfer = TransferMode::Asynchronous;
    std::optional<LinkCost> host_link;  ///< none: stashes stay on their devices
    Contention contention;
};

/// The conditions that the plan itself states.
Conditions planned_conditions(const Plan& plan);

/// Durations as they stand in a timeline of the plan's rows; the rest as in the plan, but with a
/// processor for every rank, as the durations have the sharing in them. Throws InternalError if the
/// rows differ in length.
Conditions conditions_of(const Plan& plan, const Timeline& timeline);

/// Returns the conditions with links that are free and instant, that to host memory among them, and
/// with room for every message.
Conditions without_communication(Conditions conditions);

/// Returns the conditions with every action at the mean of its op, rounded up so that no rank gets
/// less than its share of the work. Where model stages recompute differently, each gets its share
/// of that, too. The conditions must have durations.
Conditions with_equal_pieces(const Plan& plan, Conditions conditions);

/// The plan's own conditions, with the duration of every action written down.
Conditions with_planned_durations(const Plan& plan);

/// The plan's own conditions, with all that a rank does lasting `factor` times as long, rounded to
/// a nanosecond.
Conditions with_slower_rank(const Plan& plan, int rank, double factor);

/// time * factor, rounded to a nanosecond; half a nanosecond to the even one.
Duration times(Duration time, double factor);

/// Time for which a message occupies a link: n / rate(n) with rate(n) = rate * n / (n +
/// half_bandwidth), that is (n + half_bandwidth) / rate. The latency is not in it: the next message
/// may follow at once.
Duration occupation(const LinkCost& link, Bytes message);

/// Bytes of a message over an edge (core/schedule/edge.h): of the output of the stage before a
/// boundary, or of the gradient of the input of the stage behind it.
Bytes message_bytes(const Plan& plan, int edge, int micro_batch);

}  // namespace pipetwin::sim
