// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

#include <variant>

#include "cli/base/file_kinds.h"
#include "cli/base/key_place.h"

namespace pipetwin::cli {

void execute_command(const Command& command, Console& console) {
    expect_kinds_of_files(command);
    try {
        std::visit([&console](const auto& options) { execute(options, console); }, command);
    } catch (const Error& error) {
        throw with_place_of_key(error, scenario_of(command), common_options(command).overrides);
    }
}

}  // namespace pipetwin::cli
