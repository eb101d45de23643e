// SPDX-License-Identifier: Apache-2.0
#include "core/costs/replica_sums.h"

#include <cmath>

#include "core/base/error.h"
#include "core/costs/devices/stack.h"

namespace pipetwin {

int buckets_of(const ReplicaGroups& groups, const SentNumbers& numbers) {
    return groups.stack ? groups.stack->collectives.buckets_of(
                              numbers.count, numbers.bytes, groups.all.members)
                        : 1;
}

namespace {

/// The way from one replica, while it alone sends, to all others of its group.
const LinkCost& slowest_way(const DeviceGroup& group) {
    if (group.members <= group.per_node) {
        return group.inside;
    }
    return group.between_alone ? *group.between_alone : group.between;
}

}  // namespace

Duration whole_sums_time(const ReplicaGroups& groups, const SentNumbers& gradients) {
    return all_reduce_time(groups.kind, groups.all, gradients.bytes, buckets_of(groups, gradients));
}

Duration share_sums_time(const ReplicaGroups& groups, const SentNumbers& gradients) {
    if (groups.broadcast) {
        return whole_sums_time(groups, gradients);
    }
    const int buckets = buckets_of(groups, gradients);
    const int shares = groups.sharing.members;
    const Bytes share{(gradients.bytes.count + shares - 1) / shares};
    const Duration inside = all_reduce_time(groups.kind, groups.sharing, gradients.bytes, buckets);
    return inside - inside / 2 + all_reduce_time(groups.kind, groups.between, share, buckets);
}

Duration weights_time(const ReplicaGroups& groups, const SentNumbers& weights) {
    const DeviceGroup& group = groups.sharing;
    if (!groups.broadcast) {
        return all_reduce_time(groups.kind, group, weights.bytes, buckets_of(groups, weights)) / 2;
    }
    if (group.members == 1 || weights.bytes.count <= 0) {
        return {};
    }
    const double rate = slowest_way(group).bytes_per_second;
    const double seconds = (rate > 0 ? static_cast<double>(weights.bytes.count) / rate : 0) +
                           to_seconds(*groups.broadcast) * group.members;
    require_bounded_step(seconds, "broadcast of weights");
    constexpr double nanoseconds = 1e9;
    return Duration{static_cast<std::int64_t>(std::ceil(nanoseconds * seconds))};
}

}  // namespace pipetwin
