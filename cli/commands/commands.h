// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/base/console.h"
#include "cli/base/options.h"
#include "cli/base/own_command.h"

/// One function per command, one file each. A result goes to the console's stdout; an error is
/// thrown.
namespace pipetwin::cli {

/// Predicts, trains and compares, into a run folder.
void execute(const RunOptions& options, Console& console);
/// Predicts a step from a scenario or from plain numbers.
void execute(const SimulateOptions& options, Console& console);
/// Predicts the steps of several plans side by side.
void execute(const SweepCommand& options, Console& console);
/// Throws Error(Infeasible) with the plan that misses by the least where nothing fits.
void execute(const PlanOptions& options, Console& console);
/// Measures the costs of a scenario's layers.
void execute(const ProfileOptions& options, Console& console);
/// Shows the units of a scenario's model, and draws their graph.
void execute(const ModelOptions& options, Console& console);
/// Trains as one process of several.
void execute(const TrainOptions& options, Console& console);
/// Throws ReportedByPeer with the exit code of the training unless that is 0.
void execute(const LaunchOptions& options, Console& console);
/// Compares a prediction with a measurement.
void execute(const CompareOptions& options, Console& console);
/// Throws Error(Infeasible) after it has printed what is wrong with the schedule.
void execute(const CheckOptions& options, Console& console);
/// Converts a file of another program.
void execute(const ImportOptions& options, Console& console);
/// Writes a file for another program.
void execute(const ExportOptions& options, Console& console);

/// Rows of the commands that stand whole in files of their own, in the order of --help.
std::span<const OwnCommand> own_commands();

/// Reads a command line of any command, as `parse_options` with `own_commands`.
Parsed parse_options(const std::vector<std::string>& args);

/// Executes any command, once its files are found to be of the right kind. An error about a
/// scenario as a whole gets the line of the key that it names.
void execute_command(const Command& command, Console& console);

}  // namespace pipetwin::cli
