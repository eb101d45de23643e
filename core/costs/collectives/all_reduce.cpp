// SPDX-License-Identifier: Apache-2.0
#include "core/costs/collectives/all_reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/error.h"

namespace pipetwin {

namespace {

/// The depth of a binomial tree.
int rounds(int members) {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(members - 1)));
}

/// What messages of a group on so many nodes take beside their bytes, there or back.
Duration latency_of(AllReduceKind kind, const GroupLatency& group, int in_node, int nodes) {
    const bool is_tree = kind == AllReduceKind::Tree;
    return group.fixed + group.per_device * (is_tree ? 1 + rounds(in_node) : in_node) +
           group.per_node * (is_tree ? rounds(nodes) : nodes - 1);
}

}  // namespace

Duration all_reduce_time(AllReduceKind kind, const DeviceGroup& group, Bytes bytes, int buckets) {
    PIPETWIN_EXPECT(group.members >= 1 && group.per_node >= 1, "at least one member");
    if (group.members == 1 || bytes.count <= 0) {
        return Duration{};
    }
    if (kind == AllReduceKind::Fastest) {
        Duration least = Duration::max();
        for (std::size_t other = 0; other < static_cast<std::size_t>(kind); ++other) {
            least = std::min(
                least, all_reduce_time(static_cast<AllReduceKind>(other), group, bytes, buckets));
        }
        return least;
    }
    const int in_node = members_in_node(group);
    const int nodes = nodes_of(group);
    const auto all = static_cast<double>(bytes.count);
    const auto message = [&group](const LinkCost& link, double size) {
        return group.latency ? carried_ns(link, size) : message_ns(link, size);
    };
    const auto inside = [&](double size) { return message(group.inside, size); };
    const auto between = [&](double size) { return message(group.between, size); };
    const auto alone = [&](double size) {
        return message(group.between_alone ? *group.between_alone : group.between, size);
    };
    const auto slowest = [&](double size) {
        const double within = in_node > 1 ? inside(size) : 0;
        return nodes > 1 ? std::max(within, alone(size)) : within;
    };
    double nanoseconds = 0;
    switch (kind) {
        case AllReduceKind::Ring:
            nanoseconds = 2 * (group.members - 1) * slowest(all / group.members);
            break;
        case AllReduceKind::Tree:
            nanoseconds =
                2 * (rounds(in_node) * inside(all) + (nodes > 1 ? rounds(nodes) * alone(all) : 0));
            break;
        case AllReduceKind::TwoLevel:
            nanoseconds = 2 * (in_node - 1) * inside(all / in_node) +
                          2 * (nodes - 1) * between(all / in_node / nodes);
            break;
        case AllReduceKind::Rings: {
            const double share = all / group.members;
            const double crossing = nodes > 1 ? between(share / in_node) : 0;
            const double staying = in_node > 1 ? inside(share) : 0;
            nanoseconds = 2 * (group.members - 1) * std::max(staying, crossing);
            break;
        }
        case AllReduceKind::Fastest:
            break;
    }
    if (group.latency) {
        nanoseconds +=
            2.0 * buckets *
            static_cast<double>(latency_of(kind, *group.latency, in_node, nodes).count());
    }
    require_bounded_step(nanoseconds / 1e9, "all-reduce");
    return Duration{static_cast<std::int64_t>(std::ceil(nanoseconds))};
}

}  // namespace pipetwin
