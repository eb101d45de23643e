#pragma once

#include <optional>
#include <vector>

#include "core/plan.h"
#include "core/timeline.h"

namespace pipetwin::sim {

/// What a replay of a plan's rows takes as given: the plan's own numbers, or others.
struct Conditions {
    std::vector<std::vector<Duration>>
        durations;                     ///< [rank][cell]; those of sends and receives are not read
    std::vector<LinkCost> links;       ///< [boundary]
    std::vector<LinkCost> reductions;  ///< as in the plan
    std::optional<int> channel_capacity;  ///< none: no send ever waits
};

/// What the plan itself says.
Conditions planned_conditions(const Plan& plan);

/// Durations as they stand in a timeline of the plan's rows; links and capacity as in the plan.
/// Throws InternalError if the rows differ in length.
Conditions conditions_of(const Plan& plan, const Timeline& timeline);

/// The same with links that are free and instant, and with room for every message.
Conditions without_communication(Conditions conditions);

/// How long a message occupies a link: n / rate(n) with rate(n) = rate * n / (n + half_bandwidth),
/// that is (n + half_bandwidth) / rate. The latency is not in it: the next message may follow at
/// once.
Duration occupation(const LinkCost& link, Bytes message);

}  // namespace pipetwin::sim
