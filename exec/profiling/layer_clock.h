// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/schedule/action.h"
#include "exec/device/device.h"
#include "exec/device/group.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::exec {

/// How long the layers of a pipeline took during one step. Every rank has a watch of its own, which
/// starts when the rank's device begins with an action and laps after every layer; a layer belongs
/// to one rank, so threads do not meet.
class LayerClock {
  public:
    explicit LayerClock(const Plan& plan);

    /// A new step; no thread is inside.
    void restart();
    /// The rank's device begins with an action: what forwards do during an R is recompute.
    /// `waited`: what the rank has spent in groups by then, which is in no lap.
    void turn(int rank, Op op, TimePoint begin, const GroupTimes& waited);
    /// A part of a layer's work was done: Forward, BackwardInput, BackwardWeight, Recompute
    /// of core attention, or Optimizer.
    void lap(int layer, Op part, TimePoint done, const GroupTimes& waited);

    /// How long the parts of a layer's work took, over all micro-batches of a step.
    struct Laps {
        Duration forward{};
        Duration recompute{};
        Duration core{};         ///< recompute of core attention in a backward
        Duration any_forward{};  ///< mean of all F and R; of averages only
        Duration backward_input{};
        Duration backward_weight{};
        Duration optimizer{};
        GroupTimes in_forward{};  ///< beside them: in groups, during F and R; of averages a mean
        GroupTimes in_backward{};
        /// All parts; `any_forward` is not among them, as it repeats two.
        Duration sum() const {
            return forward + recompute + core + backward_input + backward_weight + optimizer;
        }
    };
    /// Sums over the step, one per layer.
    const std::vector<Laps>& laps() const { return laps_; }

  private:
    struct alignas(64) Watch {  // a cache line each
        TimePoint last;
        GroupTimes waited{};
        Op action{};
    };
    std::vector<std::size_t> rank_of_layer_;
    std::vector<Watch> watches_;
    std::vector<Laps> laps_;
};

}  // namespace pipetwin::exec
