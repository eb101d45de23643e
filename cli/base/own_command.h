// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string_view>

#include <CLI/CLI.hpp>

#include "cli/base/options.h"

namespace pipetwin::cli {

/// A command as a row: all of it stands in one file of cli/commands. `own_commands` lists the rows.
struct OwnCommand {
    std::string_view name;
    std::string_view help;  ///< one line
    /// Declares the options of the command; what it returns carries the command out with them.
    OwnOptions (*declare)(CLI::App& app);
};

/// Options into which a parse writes, and `execute`, which gets them. `Options` has the member
/// `common`.
template <class Options>
OwnOptions options_with(std::shared_ptr<Options> options,
                        void (*execute)(const Options& options, Console& console)) {
    return {.common = {}, .run = [options, execute](const CommonOptions& common, Console& console) {
                options->common = common;
                execute(*options, console);
            }};
}

/// Leaves options out of the help of a command on which they have no effect. The command accepts
/// them all the same, because scripts may pass the common options to every command.
void leave_out_of_help(CLI::App& command, std::initializer_list<const char*> options);

/// Leaves out of the help what is for commands that read a scenario.
void reads_no_scenario(CLI::App& command);

/// Makes --out a required file.
void needs_out_file(CLI::App& app);

/// Makes --out a file with the result.
void takes_out_file(CLI::App& app);

}  // namespace pipetwin::cli
