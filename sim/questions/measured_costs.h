// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "sim/calibration/calibration.h"
#include "sim/questions/found_profile.h"

/// Costs corrected by a file of measured runs.
namespace pipetwin::sim {

/// Corrects the costs by the measured runs of `file`, whose keys change those of `source`; none
/// where `file` is empty. `note` gets each sentence that a reader has to know: what is implausible,
/// and that the costs were corrected before. Throws Error(BadInput) as `parse_measured_runs`,
/// `settled_run` and `calibrate_by_runs`.
std::optional<Calibration> calibrate_by_file(
    const std::filesystem::path& file,
    const ScenarioSource& source,
    FoundProfile& costs,
    const std::function<void(const std::string& sentence)>& note);

}  // namespace pipetwin::sim
