#pragma once

#include <exception>
#include <iosfwd>
#include <string>
#include <vector>

#include "cli/console.h"

namespace pipetwin::cli {

/// The whole program but its streams: parses, runs the command, turns what was thrown into text and
/// an exit code. `args` without the program's name.
int run_command_line(const std::vector<std::string>& args,
                     std::ostream& out,
                     std::ostream& err,
                     const Terminal& terminal = {});

/// Says on the console what went wrong and returns the exit code for it.
int report_failure(std::exception_ptr failure, Console& console);

/// The exit code alone.
int exit_code(ErrorKind kind);
int exit_code_of(const std::exception_ptr& failure);

/// Ends the program, all that it has said being out. After a hang at once: a worker may still be at
/// work, and must not see what it uses being destroyed.
[[noreturn]] void end_program(int code);

}  // namespace pipetwin::cli
