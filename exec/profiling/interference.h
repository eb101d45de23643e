// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/timeline/timeline.h"

/// How ranks slow each other that compute on one GPU at the same time. Each has multiprocessors of
/// its own there, but memory, its cache and the power belong to all of them.
namespace pipetwin::exec {

/// One action on a rank's device, and how long others computed on the same device meanwhile.
struct ActionTime {
    int stage = 0;
    Op op{};
    /// The first backward of its stage in the step, which writes the gradients of weights where the
    /// others add to them.
    bool writes = false;
    std::vector<Duration> beside;  ///< [n]: the part of its time in which n others computed

    Duration time() const;
};

/// [rank] The actions of a step.
using StepActions = std::vector<std::vector<ActionTime>>;

/// The forwards, backwards and updates of a step, without their waits. `device_of_rank` says which
/// ranks share a device.
StepActions action_times(const Timeline& timeline, const std::vector<int>& device_of_rank);

/// [rank] The share of its time by which an action of the rank takes longer for each other rank of
/// its device that computes at the same time (`Contention::interference`). It is fitted: with it,
/// actions of one kind would all take the same time if the rank computed alone. It is 0 if the
/// actions cannot show it, because the number of ranks that compute beside this one never changes,
/// or if it explains less than a tenth of the differences.
std::vector<double> fitted_interference(const std::vector<StepActions>& steps);

/// How long the actions of a stage and of these kinds would last alone, over how long they lasted:
/// the sum of each. 1: there are none.
double share_alone(const std::vector<ActionTime>& actions,
                   int stage,
                   const std::vector<Op>& ops,
                   double interference);

}  // namespace pipetwin::exec
