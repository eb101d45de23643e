// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

#include <array>

#include "cli/base/key_place.h"

namespace pipetwin::cli {

CommandRow run_command();
CommandRow simulate_command();
CommandRow sweep_command();
CommandRow plan_command();
CommandRow profile_command();
CommandRow model_command();
CommandRow train_command();
CommandRow launch_command();
CommandRow compare_command();
CommandRow check_command();
CommandRow import_command();
CommandRow export_command();
CommandRow calibrate_command();
CommandRow translate_command();
CommandRow devices_command();
CommandRow view_command();
CommandRow demo_command();
CommandRow completion_command();

std::span<const CommandRow> command_rows() {
    static const std::array all{run_command(),
                                simulate_command(),
                                sweep_command(),
                                plan_command(),
                                profile_command(),
                                model_command(),
                                train_command(),
                                launch_command(),
                                compare_command(),
                                check_command(),
                                import_command(),
                                export_command(),
                                calibrate_command(),
                                translate_command(),
                                devices_command(),
                                view_command(),
                                demo_command(),
                                completion_command()};
    return all;
}

Parsed parse_options(const std::vector<std::string>& args) {
    return parse_options(args, command_rows());
}

void execute_command(const Command& options, Console& console) {
    if (options.expect_files) {
        options.expect_files();
    }
    try {
        options.run(options.common, console);
    } catch (const Error& error) {
        throw with_place_of_key(error,
                                options.scenario ? options.scenario() : std::filesystem::path(),
                                options.common.overrides);
    }
}

}  // namespace pipetwin::cli
