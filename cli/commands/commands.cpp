// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

#include <array>
#include <variant>

#include "cli/base/file_kinds.h"
#include "cli/base/key_place.h"

namespace pipetwin::cli {

OwnCommand run_command();
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
    static const std::array all{
        run_command(),
        OwnCommand{.name = "simulate",
                   .help = "Predict the time, bubble, memory and throughput of a plan, or compare "
                           "several",
                   .declare = nullptr},
        OwnCommand{.name = "sweep",
                   .help = "Predict many combinations of schedule, stages and micro-batches, or "
                           "several scenarios",
                   .declare = nullptr},
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

void execute(const OwnOptions& options, Console& console) {
    options.run(options.common, console);
}

void execute_command(const Command& command, Console& console) {
    expect_kinds_of_files(command);
    try {
        std::visit([&console](const auto& options) { execute(options, console); }, command);
    } catch (const Error& error) {
        throw with_place_of_key(error, scenario_of(command), common_options(command).overrides);
    }
}

}  // namespace pipetwin::cli
