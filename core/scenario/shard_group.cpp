// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/shard_group.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/scenario/choices.h"
#include "core/scenario/division.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin {

bool is_in_order(Placement placement) {
    return placement == Placement::ReplicasFirst || placement == Placement::Fill;
}

int devices_of_places(const Scenario::ClusterPart& cluster) {
    const NodeLevels levels = cluster.levels();
    return std::max(1, cluster.per_node) *
           std::lcm(levels.nodes_of_domain, std::max(1, levels.nodes_of_leaf));
}

int node_of(const Scenario::ClusterPart& cluster,
            const DeviceGrid& grid,
            int rank,
            int replica,
            int device) {
    const int per_node = std::max(1, cluster.per_node);
    const AxisSizes& sizes = grid.sizes();
    const int number = grid.device_at({.tensor = device % sizes.tensor,
                                       .context = device / sizes.tensor,
                                       .data = replica,
                                       .pipeline = rank});
    const int in_order = number / (sizes.tensor * sizes.context);
    switch (cluster.placement) {
        case Placement::ReplicasFirst:
        case Placement::Fill:
            return number / per_node;
        case Placement::RoundRobin:
            return in_order % ((grid.devices() + per_node - 1) / per_node);
        case Placement::Written:
            return cluster.nodes.at(as_index(in_order));
    }
    PIPETWIN_EXPECT(false, "placement out of range");
}

namespace {

/// Replicas of a rank on each of its nodes, if all ranks have as many on all of theirs.
std::optional<int> replicas_on_node(const Scenario::ClusterPart& cluster, const DeviceGrid& grid) {
    std::optional<int> size;
    for (int rank = 0; rank < grid.sizes().pipeline; ++rank) {
        std::map<int, int> on_node;
        for (int replica = 0; replica < grid.sizes().data; ++replica) {
            ++on_node[node_of(cluster, grid, rank, replica)];
        }
        for (const auto& [node, count] : on_node) {
            if (count != size.value_or(count)) {
                return std::nullopt;
            }
            size = count;
        }
    }
    return size;
}

DeviceGrid device_grid(const SettledScenario& scenario) {
    return DeviceGrid({.tensor = scenario.pipeline.tensor_parallel,
                       .context = scenario.pipeline.context_parallel,
                       .data = scenario.pipeline.data_parallel,
                       .pipeline = scenario.pipeline.stages},
                      axis_order(scenario));
}

/// The largest part of the replicas that is no larger than `most`; 1: there is none.
int divisor_up_to(int replicas, int most) {
    int divisor = std::clamp(most, 1, replicas);
    while (replicas % divisor != 0) {
        --divisor;
    }
    return divisor;
}

}  // namespace

std::optional<int> group_size(const ShardGroup& group,
                              const Scenario::ClusterPart& cluster,
                              const DeviceGrid& grid) {
    if (group.is_all() || grid.sizes().data == 1) {
        return grid.sizes().data;
    }
    const std::size_t all = as_index(grid.sizes().pipeline) * as_index(grid.sizes().data);
    if (group.of_node && cluster.placement == Placement::Written && cluster.nodes.size() != all) {
        return grid.sizes().data;  // a cluster of this scenario refuses the list
    }
    const int size = group.of_node ? replicas_on_node(cluster, grid).value_or(1) : group.replicas;
    return size > 1 && grid.sizes().data % size == 0 ? std::optional(size) : std::nullopt;
}

int group_size(const SettledScenario& scenario) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    const int replicas = pipeline.data_parallel;
    const ShardGroup& group = pipeline.shard_group;
    if (pipeline.shard == Shard::None) {
        return replicas;
    }
    if (const auto size = group_size(group, scenario.cluster, device_grid(scenario))) {
        return *size;
    }
    const int per_node = std::max(1, scenario.cluster.per_node / pipeline.tensor_parallel);
    const int fits =
        group.of_node ? std::gcd(replicas, per_node) : divisor_up_to(replicas, group.replicas);
    Hint hint = fits > 1 ? Hint("set {}", {{"pipeline.shard_group", fmt::to_string(fits)}})
                         : Hint("leave pipeline.shard_group out: then all replicas are one group");
    throw Error(ErrorKind::BadInput,
                scenario.file.string(),
                group.of_node
                    ? fmt::format("pipeline.shard_group = \"node\", but the {} of a rank do not "
                                  "sit on nodes in groups of equal size, two or more on each",
                                  counted(replicas, "replica"))
                    : fmt::format("pipeline.shard_group = {}, but there are {} "
                                  "(pipeline.data_parallel), expected a divisor of that",
                                  group.replicas,
                                  counted(replicas, "replica")),
                std::move(hint))
        .about("pipeline.shard_group");
}

DeviceGroups shard_groups(const ShardGroup& group,
                          const Scenario::ClusterPart& cluster,
                          const DeviceGrid& grid,
                          int rank,
                          int size) {
    std::vector<int> replicas(as_index(grid.sizes().data));
    std::iota(replicas.begin(), replicas.end(), 0);
    if (!group.of_node || size == grid.sizes().data) {
        return parts_of(replicas, grid.sizes().data / size);
    }
    DeviceGroups groups;
    std::map<int, std::size_t> of_node;
    for (const int replica : replicas) {
        const auto [node, is_new] =
            of_node.emplace(node_of(cluster, grid, rank, replica), groups.size());
        if (is_new) {
            groups.emplace_back();
        }
        groups[node->second].push_back(replica);
    }
    return groups;
}

}  // namespace pipetwin
