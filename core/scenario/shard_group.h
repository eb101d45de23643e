// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/scenario/scenario.h"

/// Groups of replicas that divide a rank's state among them (pipeline.shard_group).
namespace pipetwin {

struct SettledScenario;

/// Ranks, their replicas, and the devices that share a rank's layers.
struct DeviceGrid {
    int ranks = 1;
    int replicas = 1;
    int tensor = 1;
};

/// Index of the node that the first device of a rank's replica is on, from 0.
int node_of(const Scenario::ClusterPart& cluster, const DeviceGrid& grid, int rank, int replica);

/// Replicas of a group; all, where there is one replica. None where groups would not be alike, or
/// have one replica each.
std::optional<int> group_size(const ShardGroup& group,
                              const Scenario::ClusterPart& cluster,
                              const DeviceGrid& grid);

/// Replicas of a group of the scenario; all, where nothing is divided. Throws Error(BadInput) where
/// groups would not be alike.
int group_size(const SettledScenario& scenario);

/// [replica]: the group that it is in, of the replicas of a rank; groups have `size` each.
std::vector<int> group_of_replica(const ShardGroup& group,
                                  const Scenario::ClusterPart& cluster,
                                  const DeviceGrid& grid,
                                  int rank,
                                  int size);

}  // namespace pipetwin
