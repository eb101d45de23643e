// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/costs/devices/device_profile.h"
#include "core/costs/profile.h"
#include "core/plan/context_parts.h"

namespace pipetwin {

struct ScenarioParts;
struct SettledScenario;
struct Stack;

/// How fast a device is, told by the times of a profile.
struct DeviceSpeed {
    double factor = 1;  ///< its times over the profile's; with T devices a rank, a T-th of that
    Duration launch{};  ///< host time per kernel; 0: not known

    bool operator==(const DeviceSpeed&) const = default;
};

/// The device that a rank computes on.
struct RankDevice {
    std::shared_ptr<const DeviceProfile> profile;  ///< null for "this-machine"
    DeviceSpeed speed;
    /// The limit that is written, or all memory of the device, without what `allocator_reserve`
    /// takes of it.
    std::optional<Bytes> memory_limit;
    Bytes context{};       ///< taken before a model is there
    ContextParts parts{};  ///< of `context`; without buffers of messages beside products
    bool scaled = false;   ///< the profile's costs are of another device
};

/// The stack of training software that a run has: that of its costs, else the cluster's; null: none
/// is named. Throws Error(BadInput) for one that is not known.
std::shared_ptr<const Stack> stack_of(const ScenarioParts& scenario, const Profile& profile);

/// Throws Error(BadInput) about cluster.stack: where it is another than that of the costs, is not
/// known, or says nothing of the scenario's devices.
void expect_stack_of_costs(const ScenarioParts& scenario, const Profile& profile);

/// What a memory pool reserves beyond the tensors in it, as a share of them: what is written, in
/// per cent, else what the stack says (null: none), else nothing.
double allocator_reserve(const std::optional<double>& written, const Stack* stack);

/// Whether gradients of two-byte weights are in fp32: as `training.gradients` says, else as the
/// stack does, else they are. Throws as `stack_of`.
bool has_fp32_gradients(const ScenarioParts& scenario, const Profile& profile);
/// With that stack; null: none.
bool has_fp32_gradients(const ScenarioParts& scenario, const Profile& profile, const Stack* stack);

/// Whether gradients of two-byte weights stay in two bytes beside their sums in fp32, as the stack
/// says. Replicas that divide gradients keep none. Throws as `stack_of`.
bool has_gradients_beside_sums(const SettledScenario& scenario, const Profile& profile);

/// How many times as long computation takes as on a device of mean speed: what the slowest of all
/// devices is expected to take, 1 + spread sqrt(2 ln N), where the scenario or the stack says how
/// much their speeds vary. Exactly 1 for one device, and where neither does. Throws as `stack_of`.
double slowest_device(const SettledScenario& scenario, const Profile& profile, int ranks);

/// One device for each of `ranks` ranks, or one for the T alike that share the work of a rank
/// (core/plan/tensor_parallel.h), each of which takes a T-th of the time. All are as slow as the
/// slowest (`slowest_device`). Where a rank's device is
/// not the one that the profile was made for, its costs are scaled as `cluster.scale_costs` says.
/// Throws Error(BadInput) naming both devices where it says nothing, and if a list of the scenario
/// has not one entry per rank.
std::vector<RankDevice> rank_devices(const SettledScenario& scenario,
                                     const Profile& profile,
                                     int ranks);

/// One line for each device that the costs are scaled to, or taken for without a proof.
std::vector<std::string> device_notes(const SettledScenario& scenario,
                                      const Profile& profile,
                                      const std::vector<RankDevice>& devices);

/// What the sample takes on a device: its times, then no part shorter than its launches.
LayerSample on_device(LayerSample sample, const DeviceSpeed& speed);

}  // namespace pipetwin
