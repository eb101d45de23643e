// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/scenario/choices.h"
#include "exec/device/device.h"

namespace pipetwin {

class Plan;
struct SettledScenario;

}  // namespace pipetwin

/// The GPUs of a plan's ranks: each rank has one where there are enough, else neighbours share one.
/// All GPUs are used that the program sees (CUDA_VISIBLE_DEVICES), up to one for each rank.
namespace pipetwin::exec {

/// Makes one device per rank. Where those of a GPU have multiprocessors of their own, a bubble is
/// one: without them stages fill each other's gaps. `units` as Scenario::ClusterPart::gpu_units; a
/// list that is not one for each rank is left out. Throws as `check_gpu_memory` and
/// make_cuda_devices.
std::vector<std::unique_ptr<Device>> make_gpu_parts(const Plan& plan,
                                                    GpuShares shares,
                                                    const std::vector<int>& units);

/// [rank] The GPU that so many ranks of this process get; empty where each has one of its own.
std::vector<int> gpus_shared_by(int ranks);

/// Makes the device of one rank that has all of a GPU. Throws as `make_gpu_parts`.
std::unique_ptr<Device> make_whole_gpu(const Plan& plan, int rank, int gpu);

/// Throws Error(Infeasible) with a table of the ranks' peaks by kind, what their GPU has free and
/// `hint`, if they do not fit there together.
void check_gpu_memory(const Plan& plan, const std::string& hint = {});

/// Function that plans a scenario before anything is measured: sizes are right, times need not be.
using PlanOf = std::function<Plan(const SettledScenario&)>;

/// Throws Error(Infeasible) if a scenario does not fit, with what cuDNN's attention works in,
/// before anything is measured; its hint names what would fit, if our own attention, recompute or
/// more micro-batches do.
void check_gpu_memory(const SettledScenario& scenario, const PlanOf& plan_of);

/// A rank of this process, and the GPU that it alone uses.
struct RankOnGpu {
    int rank = 0;
    int gpu = 0;
};
/// Throws Error(Infeasible) as the check of all ranks, but checks only the memory of one rank's
/// GPU.
void check_gpu_memory(const SettledScenario& scenario, const PlanOf& plan_of, const RankOnGpu& own);

}  // namespace pipetwin::exec
