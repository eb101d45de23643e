// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cli/base/console.h"

namespace pipetwin::cli {

/// The whole program but its streams: parses, runs the command, turns what was thrown into text and
/// an exit code. `args` without the program's name; `listener` as for Console.
int run_command_line(const std::vector<std::string>& args,
                     std::ostream& out,
                     std::ostream& err,
                     const Terminal& terminal = {},
                     const Listener* listener = nullptr);

}  // namespace pipetwin::cli
