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
#include "core/scenario/settled_scenario.h"

namespace pipetwin {

int node_of(const Scenario::ClusterPart& cluster, const DeviceGrid& grid, int rank, int replica) {
    const int per_node = std::max(1, cluster.per_node);
    const int device = grid.tensor * (replica * grid.ranks + rank);
    switch (cluster.placement) {
        case Placement::ReplicasFirst:
            return grid.tensor * (rank * grid.replicas + replica) / per_node;
        case Placement::Fill:
            return device / per_node;
        case Placement::RoundRobin:
            return device / grid.tensor %
                   ((grid.tensor * grid.ranks * grid.replicas + per_node - 1) / per_node);
        case Placement::Written:
            return cluster.nodes.at(as_index(replica * grid.ranks + rank));
    }
    PIPETWIN_EXPECT(false, "placement out of range");
}

namespace {

/// Replicas of a rank on each of its nodes, if all ranks have as many on all of theirs.
std::optional<int> replicas_on_node(const Scenario::ClusterPart& cluster, const DeviceGrid& grid) {
    std::optional<int> size;
    for (int rank = 0; rank < grid.ranks; ++rank) {
        std::map<int, int> on_node;
        for (int replica = 0; replica < grid.replicas; ++replica) {
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
    return {.ranks = scenario.pipeline.stages,
            .replicas = scenario.pipeline.data_parallel,
            .tensor = scenario.pipeline.tensor_parallel};
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
    if (group.is_all() || grid.replicas == 1) {
        return grid.replicas;
    }
    const std::size_t all = as_index(grid.ranks) * as_index(grid.replicas);
    if (group.of_node && cluster.placement == Placement::Written && cluster.nodes.size() != all) {
        return grid.replicas;  // a cluster of this scenario refuses the list
    }
    const int size = group.of_node ? replicas_on_node(cluster, grid).value_or(1) : group.replicas;
    return size > 1 && grid.replicas % size == 0 ? std::optional(size) : std::nullopt;
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

std::vector<int> group_of_replica(const ShardGroup& group,
                                  const Scenario::ClusterPart& cluster,
                                  const DeviceGrid& grid,
                                  int rank,
                                  int size) {
    std::vector<int> groups;
    std::map<int, int> of_node;
    for (int replica = 0; replica < grid.replicas; ++replica) {
        const bool by_node = group.of_node && size < grid.replicas;
        groups.push_back(by_node ? of_node
                                       .emplace(node_of(cluster, grid, rank, replica),
                                                static_cast<int>(of_node.size()))
                                       .first->second
                                 : replica / size);
    }
    return groups;
}

}  // namespace pipetwin
