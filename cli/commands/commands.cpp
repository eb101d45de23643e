// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

#include <array>

#include "cli/base/key_place.h"

namespace pipetwin::cli {

OwnCommand run_command();
OwnCommand simulate_command();
OwnCommand sweep_command();
OwnCommand plan_command();
OwnCommand profile_command();
OwnCommand model_command();
OwnCommand train_command();
OwnCommand launch_command();
OwnCommand compare_command();
OwnCommand check_command();
OwnCommand import_command();
OwnCommand export_command();
OwnCommand calibrate_command();
OwnCommand translate_command();
OwnCommand devices_command();
OwnCommand view_command();
OwnCommand demo_command();

std::span<const OwnCommand> own_commands() {
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
                                demo_command()};
    return all;
}

Parsed parse_options(const std::vector<std::string>& args) {
    return parse_options(args, own_commands());
}

void execute_command(const OwnOptions& options, Console& console) {
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
