// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/scenario/cluster.h"
#include "core/scenario/settled_scenario.h"

/// Parts of a plan that no partition changes: what stands in scenario and profile as it is, room on
/// the devices, and notes.
namespace pipetwin {

/// Parts with what stands in the scenario and the profile as it is.
PlanParts plan_settings(const SettledScenario& scenario, const Profile& profile);

/// Adds what the devices of the ranks have room for. Throws as `stack_of`.
void add_memory(PlanParts& parts,
                const SettledScenario& scenario,
                const Profile& profile,
                const Cluster& cluster);

/// What notes tell of beside the parts of a plan.
struct NotedPlan {
    const SettledScenario& scenario;
    const Profile& profile;
    const Cluster& cluster;
    const Schedule& grid;
    const std::vector<int>& micro_batch_sizes;  ///< each once
    int offloaded_blocks = 0;
    Bytes in_host_memory{};  ///< of a device
    const WeightRules& rules;
};

/// Adds notes on costs, shape and offload, and whether any cost is an estimate.
void add_notes(PlanParts& parts, const NotedPlan& of);

}  // namespace pipetwin
