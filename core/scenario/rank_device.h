// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/costs/device_profile.h"
#include "core/costs/profile.h"

namespace pipetwin {

struct SettledScenario;

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
    Bytes context{};        ///< taken before a model is there
    Bytes communication{};  ///< part of `context` in buffers of the process groups
    bool scaled = false;    ///< the profile's costs are of another device
};

/// One device for each of `ranks` ranks, or one for the T alike that share the work of a rank
/// (core/plan/tensor_parallel.h), each of which takes a T-th of the time. Where a rank's device is
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
