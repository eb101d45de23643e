// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "cli/interop/import/importers.h"
#include "core/interop/launch/training_log.h"

namespace pipetwin::cli {

/// Adds what a log measured: a note with the median step, and with --rows-out a row of --calibrate
/// with the settings of `imported.content`. `log`: what was imported, empty where that is no log;
/// the file of --log goes before it. Throws Error(BadInput) where there is a log and rows are asked
/// for, or --log is given, and no step is there, and where rows are asked for without a log, or of
/// a run with open devices (`imported.has_open_devices`).
void add_measured_steps(Imported& imported,
                        const ImportOptions& options,
                        std::string_view log,
                        const StepSizes& sizes);

}  // namespace pipetwin::cli
