// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/base/command_row.h"
#include "cli/base/console.h"
#include "cli/base/options.h"

/// One function per command, one file each. A result goes to the console's stdout; an error is
/// thrown.
namespace pipetwin::cli {

/// Rows of the commands, in the order of --help.
std::span<const CommandRow> command_rows();

/// Reads a command line of any command, as `parse_options` with `command_rows`.
Parsed parse_options(const std::vector<std::string>& args);

/// Executes any command, once its files are found to be of the right kind. An error about a
/// scenario as a whole gets the line of the key that it names.
void execute_command(const Command& options, Console& console);

}  // namespace pipetwin::cli
