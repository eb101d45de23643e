// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <exception>
#include <variant>

#include "cli/base/exit.h"
#include "cli/base/options.h"
#include "cli/commands/commands.h"

namespace pipetwin::cli {

namespace {

void run(const std::vector<std::string>& args, Console& console) {
    const Parsed parsed = parse_options(args);
    if (const auto* text = std::get_if<std::string>(&parsed)) {
        console.result(*text);
    } else {
        const Command& options = std::get<Command>(parsed);
        console.configure(options.common);
        execute_command(options, console);
    }
    console.finish();
}

}  // namespace

int run_command_line(const std::vector<std::string>& args,
                     std::ostream& out,
                     std::ostream& err,
                     const Terminal& terminal,
                     const Listener* listener) {
    Console console(out, err, terminal, listener);
    try {
        run(args, console);
        return 0;
    } catch (...) {
        return report_failure(std::current_exception(), console);
    }
}

}  // namespace pipetwin::cli
