// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/base/options.h"
#include "core/artifacts/model_flops.h"

namespace pipetwin::cli {

/// A command as a row: all of it stands in one file of cli/commands. `command_rows` lists the rows.
struct CommandRow {
    std::string_view name;
    std::string_view help;  ///< one line
    /// Declares the options of the command; what it returns carries the command out with them.
    Command (*declare)(CLI::App& app);
};

/// Options into which a parse writes, and `execute`, which gets them. `Options` has the member
/// `common`.
template <class Options>
Command command_with(std::shared_ptr<Options> options,
                     void (*execute)(const Options& options, Console& console)) {
    Command command;
    command.run = [options, execute](const CommonOptions& common, Console& console) {
        options->common = common;
        execute(*options, console);
    };
    return command;
}

/// Throws as `expect_kind` for a file that is no scenario, and Error(Io) for the name of a shipped
/// example that is not there.
void expect_scenario(const std::filesystem::path& file);

/// Throws as `expect_kind` for a file that has no costs of layers.
void expect_costs(const std::filesystem::path& file);

/// Options of a command that reads the member `scenario` of them as a scenario, and `profile`, if
/// there is one, as its costs.
template <class Options>
Command scenario_command(std::shared_ptr<Options> options,
                         void (*execute)(const Options& options, Console& console)) {
    Command command = command_with(options, execute);
    command.input = command.scenario = [options] { return options->scenario; };
    command.expect_files = [options] {
        expect_scenario(options->scenario);
        if constexpr (requires { options->profile; }) {
            expect_costs(options->profile);
        }
    };
    return command;
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

/// The scenario, which the command needs.
void add_scenario(CLI::App& app, std::filesystem::path& file);

/// --profile, the costs of a scenario's layers.
void add_profile(CLI::App& app,
                 std::filesystem::path& file,
                 const std::string& text = "Costs of the layers: *.profile.json or CSV");

/// What --stack says of the scenarios that a command reads.
inline constexpr const char* stack_help =
    "Training software of the scenario, as 'pipetwin devices' names it, or a stack's file; costs "
    "of another one are refused (default: cluster.stack)";

/// --stack of commands that read scenarios.
void add_stack(CLI::App& app, std::optional<std::string>& stack, const std::string& text);

/// Makes --stack the key of the scenario that it sets, cluster.stack. Throws Error(Usage) if --set
/// sets it, too, and Error(BadInput) for an unknown stack.
void set_stack_key(const std::optional<std::string>& stack, std::vector<Override>& overrides);

/// --sequence, whose k is the 1024 of models' contexts, and whose M is that squared.
void add_sequence(CLI::App& app, std::optional<int>& tokens, const std::string& text);

/// --calibrate of `simulate` and `plan`; `import hf` has another one.
void add_run_calibration(CLI::App& app, std::filesystem::path& file);

/// --mfu
void add_flops_count(CLI::App& app, std::optional<FlopsCount>& count);
/// Throws Error(Usage) for an option whose key --set sets, too.
void refuse_key_of_option(std::string_view option,
                          std::string_view key,
                          const std::vector<Override>& overrides);

}  // namespace pipetwin::cli
