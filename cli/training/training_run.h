// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cli/base/console.h"
#include "cli/processes/processes.h"
#include "cli/run_folder/finished_run.h"
#include "cli/training/run_options.h"
#include "exec/training/trainer.h"

namespace pipetwin::cli {

/// What becomes of an "auto" that has to be planned.
enum class Open { Planned, Refused };

/// The whole loop, which `run` and `train` share: measure costs, plan, predict, train, compare;
/// everything lands in the run folder as soon as the first step begins. A first signal that asks
/// for a stop (cli/base/stop_signal.h) ends the training after the current step; then everything is
/// written as far as it goes, and Stopped is thrown. What cannot be written is kept and tried
/// again; what cannot be written in the end either is thrown as Error(Io).
///
/// To be called by all processes, which take the same steps together. The first of them writes and
/// speaks, and has the result; the others train along, write nothing and have none.
std::optional<FinishedRun> train_and_compare(
    const RunOptions& options,
    Open open,
    Console& console,
    const std::function<void(const exec::StepReport&)>& on_step,
    Processes& processes);

/// report.json, and the result of `run --json`.
std::string report_json_text(const FinishedRun& run);

}  // namespace pipetwin::cli
