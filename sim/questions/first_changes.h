// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/text/override.h"
#include "sim/calibration/calibration.h"

namespace pipetwin {

struct Scenario;

}  // namespace pipetwin

/// What to change first in a run that is there.
namespace pipetwin::sim {

/// What the program of a run can do.
struct RunAbilities {
    std::vector<std::string_view> schedules{};  ///< those of scenarios, "1f1b" among them
    bool tensor = true;                         ///< tensor parallelism
    bool overlaps = false;  ///< gradients, weights and parts of layers beside computation
    bool selective = true;  ///< recompute of core attention
};

/// One change of a run, and what is predicted with it.
struct PlanChange {
    std::string what{};            ///< "micro-batches of 2 samples"
    std::vector<Override> keys{};  ///< of the scenario
    double step = 0;               ///< seconds
    Bytes peak{};                  ///< of the rank that holds most
};

struct FirstChanges {
    PredictedRun now{};  ///< the scenario as it is
    /// By a hundredth or more faster, the fastest first. They fit, or take no more than now.
    std::vector<PlanChange> faster{};
    std::vector<PlanChange> too_large{};  ///< faster, too, but they do not fit
    int tried = 0;
};

/// Predicts the scenario, and with every single change of a list: other sizes of micro-batches,
/// less recompute, other schedules and numbers of chunks, devices moved between stages, replicas
/// and tensor parallelism, overlap. Mini-batch and devices stay, and blocks stay whole where the
/// scenario has a partition of blocks. What the scenario has that a change does not allow is no
/// change. Throws as `predicted_run` for the scenario itself.
FirstChanges first_changes(const Scenario& scenario,
                           const Model& model,
                           const Profile& profile,
                           const RunAbilities& abilities);

}  // namespace pipetwin::sim
