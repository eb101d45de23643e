// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/published/published_runs.h"

#include <string>
#include <vector>

#include "core/costs/profile.h"
#include "core/model/model.h"
#include "sim/calibration/calibration.h"

namespace pipetwin::published {

/// Measured runs of one model on one kind of device, which can calibrate each other.
struct ModelRuns {
    std::string name{};  ///< of the first run
    Profile profile;     ///< estimated
    Model model;
    std::vector<sim::SettledRun> runs{};
};

/// The runs of a set by model, device and estimate; those without a step are left out. Throws
/// Error(BadInput) for a run that is no scenario.
std::vector<ModelRuns> runs_by_model(const Set& set);

}  // namespace pipetwin::published
