// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/scenario/choices.h"
#include "exec/executor/process_place.h"
#include "exec/executor/watchdog.h"
#include "exec/layers/optimizer.h"
#include "exec/stage/stage.h"
#include "exec/transport/channel.h"

namespace pipetwin {

struct ScenarioParts;

}  // namespace pipetwin

namespace pipetwin::exec {

/// What a channel between replicas carries. Each kind has an order of its own.
enum class ReplicaLane {
    Step,     ///< gradients, weights and squares, once a step
    Gathers,  ///< weights that replicas divide
    Sums,     ///< gradients of a micro-batch, to those that have shares of them
    Groups    ///< their sums, between groups of such replicas
};
/// Number of values of `ReplicaLane`.
inline constexpr int replica_lane_count = 4;

/// One of the pipelines of a training, which share its mini-batch.
struct ReplicaPlace {
    int index = 0;
    /// What leads from one replica to another, for a stage; empty where there is one replica, or
    /// processes have one each. Outlives the executor.
    std::function<Channel*(int from, int to, int stage, ReplicaLane lane)> channel{};
};

/// One of the devices that compute all layers of a pipeline together. Each has an executor of its
/// own, which walks the same rows.
struct TensorPlace {
    int device = 0;
    int devices = 1;
    /// What leads from one of them to another, for a stage; empty where there is one, or processes
    /// have one each. Outlives the executor.
    std::function<Channel&(int from, int to, int stage)> channel{};
};

/// What an executor is to do, beside the plan and the model.
struct ExecutorOptions {
    Backend backend = Backend::Cpu;
    Precision precision = Precision::Fp32;
    std::uint64_t seed = 1;
    OptimizerSettings optimizer;
    /// Whether the rows are counted whose class is right; none: where the model reads no token ids.
    std::optional<bool> counts_right{};
    GpuShares gpu_shares = GpuShares::Own;
    std::vector<int> gpu_units{};  ///< as Scenario::ClusterPart
    bool input_gradient = false;   ///< the first stage produces the gradient of its input, too
    /// Messages take no less than the plan says; within a process those of paced devices always do.
    bool emulate_links = false;
    /// Makes the device of a rank; empty: one as `backend` says.
    std::function<std::unique_ptr<Device>(int rank)> make_device;
    /// Called by every worker before every action; what it throws is that action's failure. For
    /// tests of failing.
    std::function<void(int rank, const Action&)> before_action;
    /// Called on the thread of the layer's rank; for the profiler.
    LayerTimer layer_done;
    /// Called with the moment at which a rank's device began with an action that computes or
    /// updates, once all that the action waits for was there; for the profiler, as `layer_done`.
    std::function<void(int rank, Op, TimePoint, const GroupTimes& waited)> action_begun{};
    /// Whether these two are called in the step under way; empty: in every step. Asked on the
    /// ranks' threads, and the same from the begin of a step to its end.
    std::function<bool()> times_layers{};
    HangLimits hang_limits{};
    ProcessPlace place{};    ///< which ranks are here, and what they may use
    ReplicaPlace replica{};  ///< which pipeline of the training this is
    TensorPlace tensor{};    ///< which device of those that have this pipeline
};

/// The options that a scenario states.
ExecutorOptions executor_options(const ScenarioParts& scenario);

}  // namespace pipetwin::exec
