// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/units.h"
#include "core/costs/collectives/all_reduce.h"

/// What replicas send each other once a step: gradients, and weights where they divide the
/// optimizer's state among them.
namespace pipetwin {

struct Stack;

/// The replicas of a rank, and the groups in which they divide its state.
struct ReplicaGroups {
    DeviceGroup all{};
    DeviceGroup sharing{};  ///< one group; each has a whole copy of the state
    DeviceGroup between{};  ///< one replica of each group; of one: all replicas are one group
    AllReduceKind kind = AllReduceKind::Ring;
    std::shared_ptr<const Stack> stack{};  ///< null: messages are not cut into buckets
    /// Weights are sent by one replica of a group after the other, each with this beside its
    /// bytes; none: all gather them at once.
    std::optional<Duration> broadcast{};

    bool operator==(const ReplicaGroups&) const = default;
};

/// Numbers that are sent, and their size.
struct SentNumbers {
    std::int64_t count = 0;
    Bytes bytes{};
};

/// Buckets in which they send so many numbers, as the stack says; at least one.
int buckets_of(const ReplicaGroups& groups, const SentNumbers& numbers);

/// Time in which every replica gets all sums of these gradients, in the stack's buckets.
Duration whole_sums_time(const ReplicaGroups& groups, const SentNumbers& gradients);

/// Time in which each gets the sums of its share of the gradients: half of an all-reduce inside a
/// group, then an all-reduce of a share between groups. Replicas that broadcast weights have all of
/// the sums first.
Duration share_sums_time(const ReplicaGroups& groups, const SentNumbers& gradients);

/// Time in which each gets the weights of all others of its group: the other half of an all-reduce,
/// or one broadcast after the other, weights / rate + broadcast x replicas of the group.
Duration weights_time(const ReplicaGroups& groups, const SentNumbers& weights);

}  // namespace pipetwin
