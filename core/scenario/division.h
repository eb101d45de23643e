// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/costs/layer_division.h"
#include "core/grid/parallel_grids.h"
#include "core/plan/layer_modules.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/choices.h"

/// How the devices of a scenario divide samples and experts.
namespace pipetwin {

struct Profile;
struct RankDevice;
struct SettledScenario;

/// Whether layers have routed experts, and the costs say of which model: they can be divided.
bool routes_experts(const Profile& profile);

/// The numbers of the model that degrees divide, as far as its costs say them.
DividedModel divided_model(const Profile& profile);

/// The degrees of parallelism of a scenario, with `ranks` in its pipeline.
ParallelSizes parallel_sizes(const SettledScenario& scenario, int ranks);

/// By which devices are numbered: `pipeline.order`, or what the placement says. Nodes take them by
/// these numbers: with `replicas-first` all replicas of a rank before the next rank, else all ranks
/// of a replica before the next replica.
AxisOrder axis_order(const SettledScenario& scenario);
AxisOrder axis_order(const std::optional<AxisOrder>& written, Placement placement);

/// The part of every layer that a device computes. `context_nodes`: over which the devices lie that
/// have parts of one sample. Loads of experts that the scenario says by expert become those of the
/// fullest device. Throws Error(BadInput) for loads of another number of experts.
LayerDivision layer_division(const SettledScenario& scenario,
                             const Profile& profile,
                             int context_nodes = 1);

/// What is done with modules of layers, and over which link inputs go to host memory: what the
/// scenario or the profile says, or that of the device. Throws Error(BadInput) about
/// pipeline.offload_modules where none of them knows a link.
ModuleRules module_rules(const SettledScenario& scenario,
                         const Profile& profile,
                         const RankDevice& device);

/// Replicas of a sample's part, or of an expert, that have its state between them, of one copy.
struct SharingDevices {
    int dense = 1;    ///< of all but routed experts: DP x CP, or fewer with pipeline.shard_group
    int experts = 1;  ///< EDP, or fewer
};

/// Throws as `group_size`.
SharingDevices sharing_devices(const SettledScenario& scenario, const Profile& profile);

/// How routed experts are divided; none where that is as all other weights are.
std::optional<ExpertRules> expert_rules(const SettledScenario& scenario, const Profile& profile);

/// Throws Error(BadInput), about the key, where samples or experts cannot be divided so: degrees
/// that do not divide (`require_grid`), experts that the model does not have, or divided ones
/// without divided sequences (Megatron-LM, megatron/training/arguments.py).
void require_division(const SettledScenario& scenario, const Profile& profile, int ranks);

}  // namespace pipetwin
