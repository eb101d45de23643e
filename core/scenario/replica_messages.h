// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/costs/devices/lanes.h"
#include "core/costs/replica_sums.h"
#include "core/scenario/choices.h"
#include "core/schedule/schedule.h"

/// Messages of replicas as parts of a plan: sums of gradients and gathers of weights, with what of
/// them goes on beside backwards and forwards.
namespace pipetwin {

class Cluster;
struct PlanParts;
struct Profile;
struct SettledScenario;

/// The replicas of every stage, and what they send.
struct StageReplicas {
    std::vector<ReplicaGroups> groups{};  ///< [stage]; empty: one device has each weight
    /// [stage]: the same of routed experts, where they are divided otherwise; else empty.
    std::vector<ReplicaGroups> experts{};
    Shard divided = Shard::None;          ///< all step long (`divided_all_step`)
    std::int64_t number = 4;              ///< bytes of a weight
    int gradient = 1;                     ///< bytes of a gradient for each byte of its weight
    bool hides_gathers = false;           ///< weights are gathered beside the next forwards
    std::optional<MessageLanes> lanes{};  ///< beside work; none: there is no stack
    /// [layer]: what the gather of its updated weights takes; empty: that follows from links.
    std::vector<Duration> measured_updates{};
};

/// The replicas of every stage of `grid`. `gradient`: bytes of a gradient for each byte of its
/// weight. Throws as `stack_of`.
StageReplicas stage_replicas(const SettledScenario& scenario,
                             const Profile& profile,
                             const Cluster& cluster,
                             const Schedule& grid,
                             int gradient);

/// Adds the sums of every stage's gradients, and the gathers of its weights, from `parts.states`.
/// The first half of a sum leaves each replica with the sums of its share, and the second
/// gives them to all others: the sums themselves, or, where the optimizer is sharded, the weights
/// that came of them (core/costs/replica_sums.h). Gradients that go on to another stage are needed
/// everywhere.
void add_replica_messages(PlanParts& parts, const StageReplicas& replicas, const Schedule& grid);

/// Cuts them into buckets, which go on beside backwards and forwards as the stack and the scenario
/// say. The parts have their rows (core/plan/bucketed_sums.h).
void add_buckets(PlanParts& parts, const StageReplicas& replicas);

}  // namespace pipetwin
