// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "exec/device/device.h"
#include "exec/device/number_format.h"
#include "exec/gpu/gpu_parts.h"

namespace pipetwin {

class Model;
class Plan;
struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::exec {

struct ExecutorOptions;

/// What sets a kind of device apart from the others: one row of the table in backend.cpp. Nothing
/// else in `exec` and `cli` tells backends apart, so a new one is a `Backend`, its word in
/// core/scenario/scenario_words.h, and a row. In `core`, expect_host_link (scenario_cluster.cpp)
/// asks for the backend whose link to host memory is measured.
struct BackendTraits {
    std::string_view device;  ///< what it computes on, as the subject of a sentence

    /// A rank computes at full speed on a core of this machine: ranks are limited by the cores,
    /// and others can steal their time.
    bool on_cores = false;
    /// Actions and messages last what the plan says, whatever the host does; ranks share its cores.
    bool is_emulated = false;
    /// Tensors lie in memory of the device, and messages go from there to there.
    bool has_memory = false;
    /// Each process needs a GPU of its own; processes that have them may talk by NCCL alone.
    bool needs_gpu = false;
    /// Stashes can go to host memory and come back.
    bool offloads = false;
    /// An action that comes again at the same addresses was recorded, and is replayed.
    bool replays_actions = false;
    /// Device::mark makes what follows it later, so layers that are timed take longer.
    bool marks_take_time = false;
    /// Replicas, and devices of a rank, can be threads of one process.
    bool groups_share_process = true;
    /// A parameter begins at a multiple of so many numbers of its memory.
    std::int64_t parameter_alignment = 1;
    /// Whether it computes in fp64, too, and not in fp32 and bf16 alone.
    bool has_fp64 = true;
    bool trains_experts = true;  ///< has the kernels of routers
    SoftmaxKept softmax = SoftmaxKept::Probabilities;
    /// Whether products are slow where the vocabulary of a head is no multiple of a few numbers.
    bool pads_vocabulary = false;

    /// Where the costs of its plans are measured: itself, or what it emulates them with.
    Backend measured_on = Backend::Cpu;

    /// The device of a rank.
    std::unique_ptr<Device> (*make_device)(const Plan& plan,
                                           int rank,
                                           const ExecutorOptions& options) = nullptr;
    /// Makes the devices of all ranks of a process at once, which share the hardware; null: one by
    /// one.
    std::vector<std::unique_ptr<Device>> (*make_devices)(const Plan& plan,
                                                         const ExecutorOptions& options) = nullptr;
    /// Throws Error(Unavailable) where this machine lacks such a device, whose number among several
    /// is `gpu`; null: it is everywhere.
    void (*require)(int gpu) = nullptr;
    /// Throws Error(Infeasible) if a scenario does not fit, before anything is measured; `own` is
    /// the rank of this process where it has only one. Null: the host's memory is not looked at.
    void (*check_memory)(const SettledScenario& scenario,
                         const PlanOf& plan_of,
                         const RankOnGpu* own) = nullptr;
};

/// The row of a backend.
const BackendTraits& traits(Backend backend);
/// Every backend, in the order of the enum.
std::vector<Backend> every_backend();
/// The words of the backends whose row says yes, as a hint writes them: `"paced" or "cuda"`.
std::string backends_where(bool BackendTraits::*trait);

/// The format of a precision on a backend.
NumberFormat number_format(Precision precision, Backend backend);

/// Columns that a GPU adds to the logits of a vocabulary, so that the products of the head are
/// fast: up to a multiple of 64, or of 8 where that would be more than an eighth of the vocabulary.
int vocabulary_padding(int vocabulary);

/// The model as a backend keeps and computes it. What a user sees, and what is in files, is without
/// the padding. `devices`: that divide its layers; parts of a matrix have no padding.
Model model_on(Backend backend, const Model& model, int devices = 1);

}  // namespace pipetwin::exec
