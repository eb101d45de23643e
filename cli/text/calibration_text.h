// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "cli/base/console.h"
#include "cli/text/json_output.h"
#include "sim/calibration/calibration.h"

/// Costs corrected by measured runs, as text and as JSON.
namespace pipetwin::cli {

/// A paragraph on the factors and what they mean, with a line for each run; empty for none.
std::string calibration_text(const std::optional<sim::Calibration>& calibration,
                             const Console& console);

/// The factors and the runs; null for none.
Json calibration_json(const std::optional<sim::Calibration>& calibration);

}  // namespace pipetwin::cli
