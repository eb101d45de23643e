#pragma once

#include <functional>
#include <vector>

#include "cli/base/console.h"
#include "cli/base/options.h"
#include "cli/predict/plain_sweep.h"

namespace pipetwin::cli {

/// Compares plans: makes them, writes the picture and the table that were asked for, and prints the
/// table. Throws Error(Io) before anything is made if a file stands where one is to be written.
void show_sweep(const std::function<std::vector<SweepCell>()>& make_cells,
                const SweepOptions& lists,
                const CommonOptions& common,
                Console& console);

}  // namespace pipetwin::cli
