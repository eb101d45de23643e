// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/cluster/network_notes.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/number_text.h"
#include "core/scenario/cluster.h"

namespace pipetwin {

namespace {

struct NamedGroup {
    std::string name;
    DeviceGroup group;
};

/// All groups of a rank's devices, and of the replicas of the first rank.
std::vector<NamedGroup> groups_of(const Cluster& cluster) {
    std::vector<NamedGroup> groups;
    const TensorParallel tensor = cluster.tensor_parallel();
    if (tensor.per_node > 0) {
        groups.push_back(
            {"tensor parallelism", {.members = tensor.devices, .per_node = tensor.per_node}});
    }
    if (const ContextParallel context = cluster.context_parallel(); context.devices > 1) {
        groups.push_back(
            {"context parallelism", nodes_of(context.ring) > 1 ? context.ring : context.heads});
    }
    if (auto experts = cluster.expert_parallel()) {
        groups.push_back({"experts", std::move(experts->parts)});
    }
    groups.push_back({"replicas", cluster.replica_groups(0).all});
    return groups;
}

/// Whether a boundary between ranks leaves domains, or leaves: by `place_of` a device.
template <class PlaceOf>
bool boundaries_leave(const Cluster& cluster, PlaceOf place_of) {
    const auto ranks = static_cast<int>(cluster.devices().size());
    for (int rank = 1; rank < ranks; ++rank) {
        for (int replica = 0; replica < cluster.replicas(); ++replica) {
            for (int device = 0; device < cluster.devices_of_rank(); ++device) {
                if (place_of(rank - 1, replica, device) != place_of(rank, replica, device)) {
                    return true;
                }
            }
        }
    }
    return false;
}

}  // namespace

std::vector<std::string> network_notes(const Cluster& cluster) {
    const Scenario::ClusterPart& part = cluster.part();
    const NodeLevels levels = part.levels();
    if (levels.nodes_of_domain == 1 && levels.nodes_of_leaf == 0) {
        return {};
    }
    std::vector<std::string> leave_domain;
    std::vector<std::string> leave_leaf;
    for (const NamedGroup& of : groups_of(cluster)) {
        if (const int domains = nodes_of(of.group); domains > 1) {
            leave_domain.push_back(fmt::format("{} ({})", of.name, counted(domains, "domain")));
        }
        if (of.group.between_exchange) {  // as one of them does that shares a leaf's uplinks
            leave_leaf.push_back(of.name);
        }
    }
    if (boundaries_leave(cluster, [&](int rank, int replica, int device) {
            return cluster.domain_of(rank, replica, device);
        })) {
        leave_domain.emplace_back("messages between stages");
    }
    if (boundaries_leave(cluster, [&](int rank, int replica, int device) {
            return levels.leaf_of(cluster.node_of(rank, replica, device));
        })) {
        leave_leaf.emplace_back("messages between stages");
    }
    std::vector<std::string> notes;
    if (levels.nodes_of_domain > 1 && !leave_domain.empty()) {
        notes.push_back(fmt::format("over the network, between NVLink domains of {}: {}",
                                    counted(part.domain_devices(), "device"),
                                    fmt::join(leave_domain, ", ")));
    }
    if (!leave_leaf.empty()) {
        notes.push_back(fmt::format(
            "over uplinks of leaves of {}, with 1/{:g} of what their adapters carry: {}",
            counted(levels.nodes_of_leaf, "node"),
            part.oversubscription,
            fmt::join(leave_leaf, ", ")));
    }
    return notes;
}

}  // namespace pipetwin
