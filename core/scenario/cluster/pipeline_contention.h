// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/costs/contention.h"
#include "core/costs/profile.h"
#include "core/scenario/cluster.h"
#include "core/scenario/scenario.h"
#include "core/schedule/schedule.h"

namespace pipetwin {

/// [pair of stages] (core/schedule/edge.h): the link between their ranks.
std::vector<LinkCost> pair_links(const Cluster& cluster, const Schedule& order);

/// What the ranks and the messages of one replica take from each other. Interference is what the
/// scenario says, else what was measured of ranks on one GPU (`Profile::ranks`); where other
/// numbers of ranks are planned, all have the mean of the measured ones. `host_link`: over which
/// stashes go to host memory; none: they stay.
Contention contention(const Cluster& cluster,
                      const Scenario::ClusterPart& part,
                      const Schedule& order,
                      const std::vector<RankInterference>& measured,
                      const std::optional<LinkCost>& host_link);

/// From each device to its host memory: what the scenario says, else what the profile has between
/// a device and its "host"; none where neither knows one.
std::optional<LinkCost> host_link(const Scenario::ClusterPart& part, const Profile& profile);

/// [stage]: the link to the stage with the same weights; empty where all weights are their own.
std::vector<LinkCost> reduction_links(const Cluster& cluster, const Schedule& order);

}  // namespace pipetwin
