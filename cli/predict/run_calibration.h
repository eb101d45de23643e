// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>

#include "cli/base/console.h"
#include "sim/calibration/calibration.h"
#include "sim/questions/prediction.h"

/// --calibrate FILE of `simulate` and `plan`: costs corrected by measured runs.
namespace pipetwin::cli {

/// Corrects the costs by the measured runs of `file`, whose keys change those of `source`; none
/// where `file` is empty. Notes say what is implausible, and that the costs were corrected before.
/// Throws Error(BadInput) as `parse_measured_runs`, `settled_run` and `calibrate_by_runs`.
std::optional<sim::Calibration> calibrate_by_file(const std::filesystem::path& file,
                                                  const sim::ScenarioSource& source,
                                                  sim::FoundProfile& costs,
                                                  Console& console);

}  // namespace pipetwin::cli
