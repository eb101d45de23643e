// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/artifacts/measured_runs.h"
#include "core/costs/devices/stack.h"
#include "sim/calibration/calibration.h"
#include "sim/questions/run_setup.h"

/// A stack that measured runs of any models and layouts correct.
namespace pipetwin::sim {

/// A measured run with all that its prediction needs.
struct StackRow {
    RunSetup setup{};
    SettledRun run{};
    std::string model{};  ///< as the row names it
};

/// Reads what a row says of its run. What it leaves out of model, device, stack, precision and
/// tokens per sample is that of `otherwise`, where this says it. Links are those of the device's
/// nodes as they come with the program, where the row names no cluster. Throws Error(BadInput) at
/// the row for what is missing or unknown, and as `settled_run`.
StackRow stack_row(const MeasuredRun& row, const MeasuredRun& otherwise = {});

/// What a calibration of a stack found.
struct StackCalibration {
    Stack stack{};
    std::vector<CalibratedRun> runs{};
    std::vector<std::string> warnings{};  ///< sentences
};

/// Corrects the stack of the rows by them, as `fitted_factors` says, device by device, but makes no
/// kernel faster than its device: a warning says what is left out. Throws
/// Error(BadInput) at the row for a stack that is another than the first row's, or that was
/// calibrated before, and as make_settled_plan and `calibrate_by_runs`.
StackCalibration calibrated_stack(const std::vector<StackRow>& rows, const std::string& file);

/// The stack with the corrections that follow from some of the rows, which are of it.
Stack corrected_stack(const Stack& base, const std::vector<StackRow>& rows);

/// Whether the step of a row is off what its stack predicts by more than 10 %. Of published runs
/// that such a one corrects nearly half are more than 10 % off, of others one in ten.
bool is_unusual(const StackRow& row, double predicted_step);

/// The prediction of a row with a stack in place of its own.
PredictedRun predicted_row(const StackRow& row, std::shared_ptr<const Stack> stack);

}  // namespace pipetwin::sim
