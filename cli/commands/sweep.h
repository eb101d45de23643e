// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cli/base/console.h"
#include "cli/base/options.h"
#include "cli/base/plain_options.h"
#include "cli/predict/plain_sweep.h"

namespace pipetwin::cli {

/// What all plans that are compared have in common.
struct SweepSetting {
    std::string costs{};  ///< in words; empty where scenarios say them
    UncertaintyOptions varying{};
    std::uint64_t seed = 1;  ///< of steps that are drawn
};

/// Takes lists apart, and a schedule file that is alone as that file. Throws Error(Usage) for what
/// is no list, for the rest of a list in place of a scenario, and for files of another kind. `args`
/// are the words of the command line.
void complete_plans(const std::vector<std::string>& args,
                    const std::vector<std::filesystem::path>& scenarios,
                    const SweepFiles& files,
                    PlainOptions& plain);

/// Says that plans without times have unit costs.
void note_unit_times(Console& console);

/// Compares plans: makes them, writes the picture and the table that were asked for, and prints the
/// table. Throws Error(Io) before anything is made if a file stands where one is to be written, and
/// Error(Infeasible) behind the table if a schedule file of the list has no plan.
void show_sweep(const std::function<std::vector<SweepCell>()>& make_cells,
                const SweepFiles& files,
                const CommonOptions& common,
                const SweepSetting& setting,
                Console& console);

}  // namespace pipetwin::cli
