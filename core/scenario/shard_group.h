// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/grid/device_grid.h"
#include "core/scenario/scenario.h"

/// Where ranks and their replicas lie, and groups of replicas that divide a rank's state among them
/// (pipeline.shard_group).
namespace pipetwin {

struct SettledScenario;

/// Whether nodes take devices by their numbers.
bool is_in_order(Placement placement);

/// Devices after which places on nodes, in domains and below leaves come again.
int devices_of_places(const Scenario::ClusterPart& cluster);

/// Index of the node that a device of a rank's replica is on, from 0.
int node_of(const Scenario::ClusterPart& cluster,
            const DeviceGrid& grid,
            int rank,
            int replica,
            int device = 0);

/// Replicas of a group; all, where there is one replica. None where groups would not be alike, or
/// have one replica each.
std::optional<int> group_size(const ShardGroup& group,
                              const Scenario::ClusterPart& cluster,
                              const DeviceGrid& grid);

/// Replicas of a group of the scenario; all, where nothing is divided. Throws Error(BadInput) where
/// groups would not be alike.
int group_size(const SettledScenario& scenario);

/// Lists of a rank's replicas that have its state between them, `size` in each.
DeviceGroups shard_groups(const ShardGroup& group,
                          const Scenario::ClusterPart& cluster,
                          const DeviceGrid& grid,
                          int rank,
                          int size);

}  // namespace pipetwin
