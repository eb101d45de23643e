// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "core/scenario/settled_scenario.h"

namespace pipetwin::bench {

/// What `FOLDER SCENARIO.toml [--OPTION ...] [key=value ...]` asks for.
struct CurveCommand {
    std::filesystem::path folder;   ///< for what the program leaves; it is there already
    SettledScenario scenario;       ///< with the values that the command line gave
    std::set<std::string> options;  ///< the words that began with "--"
};

/// Reads the command line and calls `run` with it. Returns the program's exit code: 2, after a line
/// on how it is called, if the command line has another form or an option that is not one of
/// `known`; 1, after the text of the error, if `run` or the scenario's reader throws; else 0.
int run_curve_command(int argc,
                      char** argv,
                      const std::set<std::string>& known,
                      const std::function<void(const CurveCommand&)>& run);

}  // namespace pipetwin::bench
