// SPDX-License-Identifier: Apache-2.0
#include "core/costs/collectives/collective_time.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/costs/collectives/all_reduce.h"

namespace pipetwin {

double expected_places(double experts, double places, int chosen) {
    double none_there = 1;  // probability that a place has none of the experts
    for (int i = 0; i < chosen; ++i) {
        none_there *= std::max(0.0, experts - experts / places - i) / (experts - i);
    }
    return places * (1 - none_there);
}

namespace {

Bytes whole(double bytes) {
    return Bytes{static_cast<std::int64_t>(std::ceil(bytes))};
}

bool is_all_to_all(Collective kind) {
    return kind == Collective::AllToAll || kind == Collective::AllToAllDeduplicated;
}

double from_links(Collective kind, AllReduceKind algorithm, const DeviceGroup& group, Bytes bytes) {
    const Duration there_and_back = all_reduce_time(algorithm, group, bytes);
    return ns_of(kind == Collective::AllReduce ? there_and_back
                                               : there_and_back - there_and_back / 2);
}

/// Between nodes, where each member of a node has a share of the node's bytes.
double between_nodes(Collective kind, const DeviceGroup& group, double bytes) {
    const DeviceGroup across{.members = nodes_of(group),
                             .per_node = 1,
                             .between = group.between,
                             .latency = group.latency};
    return from_links(kind, AllReduceKind::Fastest, across, whole(bytes / members_in_node(group)));
}

double in_switch(Collective kind, const DeviceGroup& group, double bytes) {
    const int in_node = members_in_node(group);
    const double latency = ns_of(group.latency ? group.latency->fixed : group.inside.latency);
    const double half = group.latency ? 0 : static_cast<double>(group.inside.half_bandwidth.count);
    const auto through = [&](double sent) {
        return latency + carried_ns(group.inside, sent + half);
    };
    const bool is_sum = kind == Collective::AllReduce;
    const double one_way = in_node > 1 ? through(bytes * (in_node - 1) / in_node) : 0;
    if (nodes_of(group) > 1) {
        return (is_sum ? 2 : 1) * one_way + between_nodes(kind, group, bytes);
    }
    return is_sum ? latency + through(bytes) : one_way;
}

bool is_measured(Collective kind, const DeviceGroup& group) {
    return group.table && group.table->has(kind) && members_in_node(group) > 1;
}

double measured(Collective kind, const DeviceGroup& group, double bytes) {
    const CollectiveTable& table = *group.table;
    const double all = table.nanoseconds(kind, group.members, bytes);
    if (nodes_of(group) == 1) {
        return all;
    }
    DeviceGroup network = group;
    network.inside = {};
    const double rings =
        std::max(all, from_links(kind, AllReduceKind::Rings, network, whole(bytes)));
    double inside = 0;
    for (const Collective part : {Collective::ReduceScatter, Collective::AllGather}) {
        if (part == kind || kind == Collective::AllReduce) {
            if (!table.has(part)) {
                return rings;
            }
            inside += table.nanoseconds(part, members_in_node(group), bytes);
        }
    }
    return std::min(rings, inside + between_nodes(kind, group, bytes));
}

/// Bytes that each device gives in an all-to-all.
struct GivenBytes {
    double inside = 0;   ///< to the members of a node, its own part included
    double between = 0;  ///< to other nodes
};

GivenBytes given_bytes(Collective kind,
                       const DeviceGroup& group,
                       double bytes,
                       const RoutedTokens& tokens) {
    const double nodes = nodes_of(group);
    if (kind == Collective::AllToAll) {
        return {.inside = bytes / nodes, .between = bytes * (nodes - 1) / nodes};
    }
    PIPETWIN_EXPECT(tokens.chosen >= 1 && tokens.experts >= tokens.chosen,
                    "a token chooses from the experts");
    const double most = tokens.most_nodes > 0 ? std::min<double>(tokens.most_nodes, nodes) : nodes;
    const double experts = tokens.experts * most / nodes;
    const double token = bytes / tokens.chosen;
    return {.inside = token * expected_places(experts, group.members * most / nodes, tokens.chosen),
            .between = token * expected_places(experts, most, tokens.chosen) * (nodes - 1) / nodes};
}

double all_to_all(Collective kind,
                  CollectiveAlgorithm algorithm,
                  const DeviceGroup& group,
                  double bytes,
                  const RoutedTokens& tokens) {
    const int in_node = members_in_node(group);
    const int nodes = nodes_of(group);
    const bool is_hierarchical = algorithm == CollectiveAlgorithm::Hierarchical;
    GivenBytes given = given_bytes(kind, group, bytes, tokens);
    if (is_hierarchical && kind == Collective::AllToAll) {
        given.inside = bytes;
    }
    const auto message = [&group, in_node](const LinkCost& link, double sent, int other_nodes) {
        return !group.latency
                   ? message_ns(link, sent)
                   : carried_ns(link, sent) +
                         ns_of(group.latency->fixed + group.latency->per_device * in_node +
                               group.latency->per_node * other_nodes);
    };
    double inside = 0;
    if (algorithm == CollectiveAlgorithm::Auto && is_measured(kind, group)) {
        inside = group.table->nanoseconds(kind, in_node, given.inside);
    } else if (in_node > 1) {
        inside = message(group.inside, given.inside * (in_node - 1) / in_node, 0);
    }
    const double between =
        nodes > 1
            ? message(group.between_exchange.value_or(group.between), given.between, nodes - 1)
            : 0;
    return is_hierarchical ? inside + between : std::max(inside, between);
}

double nanoseconds(Collective kind,
                   CollectiveAlgorithm algorithm,
                   const DeviceGroup& group,
                   Bytes bytes,
                   const RoutedTokens& tokens) {
    const auto all = static_cast<double>(bytes.count);
    if (is_all_to_all(kind)) {
        return all_to_all(kind, algorithm, group, all, tokens);
    }
    switch (algorithm) {
        case CollectiveAlgorithm::Ring:
            return from_links(kind, AllReduceKind::Rings, group, bytes);
        case CollectiveAlgorithm::Tree:
            return from_links(kind, AllReduceKind::Tree, group, bytes);
        case CollectiveAlgorithm::Hierarchical:
            return from_links(kind, AllReduceKind::TwoLevel, group, bytes);
        case CollectiveAlgorithm::InSwitch:
            return in_switch(kind, group, all);
        case CollectiveAlgorithm::Auto:
            return is_measured(kind, group)
                       ? measured(kind, group, all)
                       : from_links(kind, AllReduceKind::Fastest, group, bytes);
    }
    PIPETWIN_EXPECT(false, "algorithm out of range");
}

}  // namespace

Duration collective_time(Collective kind,
                         CollectiveAlgorithm algorithm,
                         const DeviceGroup& group,
                         Bytes bytes,
                         const RoutedTokens& tokens) {
    PIPETWIN_EXPECT(group.members >= 1 && group.per_node >= 1, "at least one member");
    if (group.members == 1 || bytes.count <= 0) {
        return Duration{};
    }
    const double time = nanoseconds(kind, algorithm, group, bytes, tokens);
    constexpr double second = 1e9;
    require_bounded_step(time / second, to_string(kind));
    return Duration{static_cast<std::int64_t>(std::ceil(time))};
}

Bytes sent_bytes(Collective kind,
                 const DeviceGroup& group,
                 Bytes bytes,
                 const RoutedTokens& tokens) {
    auto sent = static_cast<double>(bytes.count);
    if (kind == Collective::AllToAllDeduplicated) {
        sent *= expected_places(tokens.experts, group.members, tokens.chosen) / tokens.chosen;
    } else if (kind == Collective::AllReduce) {
        sent *= 2;
    }
    return Bytes{std::llround(sent * (group.members - 1) / group.members)};
}

}  // namespace pipetwin
