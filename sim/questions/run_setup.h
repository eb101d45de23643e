// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/costs/estimate.h"
#include "core/model/decoder_model.h"
#include "core/scenario/scenario.h"
#include "core/text/override.h"
#include "sim/calibration/settled_runs.h"

/// Training runs that say everything about themselves: model, device, stack and scenario.
namespace pipetwin::sim {

/// A run of a model that estimates are known of.
struct RunSetup {
    std::string place{};  ///< for errors
    DecoderModel model{};
    std::string device{};
    EstimateOptions estimate{};    ///< with its stack, where it has one
    std::vector<Override> keys{};  ///< of the scenario
};

/// The scenario of the run, whose costs stand in place of a model. Throws as `parse_scenario`.
Scenario scenario_of(const RunSetup& setup);

/// The costs of the run, as its stack estimates them, and the model that they are of. Throws
/// Error(BadInput) for an unknown device.
RunCosts costs_of(const RunSetup& setup, const Scenario& scenario);

}  // namespace pipetwin::sim
