#pragma once

#include "cli/base/console.h"
#include "cli/base/options.h"

/// One function per command, one file each. A result goes to the console's stdout; what cannot be
/// done is thrown.
namespace pipetwin::cli {

void execute(const RunOptions& options, Console& console);
void execute(const SimulateOptions& options, Console& console);
/// Throws Error(Infeasible) with the plan that misses by the least where nothing fits.
void execute(const PlanOptions& options, Console& console);
void execute(const ProfileOptions& options, Console& console);
void execute(const TrainOptions& options, Console& console);
/// Throws ReportedByPeer with the exit code of the training unless that is 0.
void execute(const LaunchOptions& options, Console& console);
void execute(const CompareOptions& options, Console& console);
/// Throws Error(Infeasible) after it has printed what is wrong with the schedule.
void execute(const CheckOptions& options, Console& console);
void execute(const ImportOptions& options, Console& console);
void execute(const ExportOptions& options, Console& console);
void execute(const DevicesOptions& options, Console& console);
/// Does not return where the desktop program was found.
void execute(const ViewOptions& options, Console& console);

}  // namespace pipetwin::cli
