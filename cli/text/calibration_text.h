// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "cli/base/console.h"
#include "cli/text/json_output.h"
#include "sim/calibration/calibration.h"
#include "sim/questions/calibrated_stack.h"

/// Costs corrected by measured runs, as text and as JSON.
namespace pipetwin::cli {

/// "layers take 1.2 times as long as estimated", behind the factors of messages and of the update
/// where there are such.
std::string times_over_estimates(const sim::Calibration& calibration);

/// A paragraph on the factors and what they mean, with a line for each run; empty for none.
std::string calibration_text(const std::optional<sim::Calibration>& calibration,
                             const Console& console);

/// Paragraphs on the factors of a stack that runs of any models corrected, and on each run.
std::string stack_calibration_text(const sim::StackCalibration& calibration,
                                   const Console& console);

/// Adds to a result what the calibration of a stack found.
void add_stack_calibration(const sim::StackCalibration& calibration, Json& json);

/// The factors and the runs; null for none.
Json calibration_json(const std::optional<sim::Calibration>& calibration);

}  // namespace pipetwin::cli
