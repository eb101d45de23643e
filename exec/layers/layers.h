// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/base/units.h"
#include "core/plan/layer_recompute.h"
#include "core/plan/routes.h"
#include "core/scenario/choices.h"
#include "core/schedule/action.h"
#include "exec/device/number_format.h"

namespace pipetwin::exec {

class Group;
struct GroupTimes;
class Tensor;
class WeightRooms;
struct ShardGroups;

/// Function that is called when a part of a layer's work is done: how the profiler times the layers
/// inside a stage. `waited`: what the stage had spent in calls of groups (exec/device/group.h) by
/// then. `layer` is the index in the model; `part` is Forward (in F and R), BackwardInput,
/// BackwardWeight (in B, I and W), Recompute (of core attention, before a B or I) or Optimizer (in
/// OPT). For a layer made of others it is called for each of them first: parts of one layer come
/// several times and add up.
using LayerTimer = std::function<void(
    int layer, Op part, std::chrono::steady_clock::time_point done, const GroupTimes& waited)>;

/// Function that is called with the output of every layer of a forward but the loss; the tensor is
/// valid during the call.
using LayerWatch = std::function<void(int layer, const Tensor& output)>;

/// Options of a stage: number format, memory, optimizer, and functions to call.
struct StageOptions {
    NumberFormat format{};
    std::uint64_t seed = 1;
    int training_steps = 0;  ///< of the whole run, with which a rising drop path rises; 0: unknown,
                             ///< it has risen
    int micro_batches = 1;
    int largest_micro_batch = 1;                     ///< samples; sizes the workspace
    OptimizerKind optimizer = OptimizerKind::AdamW;  ///< whose state is allocated
    bool averages_weights = false;  ///< a running average of every weight is allocated, too
    bool counts_right = false;      ///< the loss layer counts the rows whose class is right
    bool input_gradient = false;
    bool shared_weights = false;  ///< with a stage of another pipeline
    /// The optimizer's state is that of one share of each layer's weights (ZeRO-1, `ShareCut`), the
    /// one of `replica` among those that have them between them.
    int replica = 0;
    int optimizer_shards = 1;
    /// A parameter that replicas divide begins at a multiple of so many numbers.
    std::int64_t parameter_alignment = 1;
    /// Where replicas divide gradients (ZeRO-2), or weights, too (ZeRO-3), layer by layer: the room
    /// of the rank, and those that have the stage between them; null: they do not. Both outlive the
    /// stage. Then there is one share of the optimizer's state for each of the layer's.
    WeightRooms* rooms = nullptr;
    const ShardGroups* shards = nullptr;
    bool divides_weights = false;
    /// The devices that compute the stage together, where they divide layers (`LayerSpec::cut`);
    /// null: there is one. Outlives the stage.
    Group* group = nullptr;
    /// Blocks of the model that keep their input, and are computed again before their backward.
    std::vector<LayerRange> recomputed_blocks{};
    /// F drops what core attention makes, and a backward computes it again before it begins.
    bool recomputes_core = false;
    int blocks_together =
        1;  ///< of these, from the stage's first one on: the first keeps its input
    /// What it exchanges with other stages, where the model has branches; none: of a chain, a stage
    /// has one message from the stage before, and one to the next.
    std::optional<PieceMessages> messages{};
    LayerTimer layer_done;                 ///< may be empty
    std::function<bool()> times_layers{};  ///< as ExecutorOptions
    /// Called between layers, where messages go on only while they are polled; may be empty.
    std::function<void()> between_layers{};
};

}  // namespace pipetwin::exec
