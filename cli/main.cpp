// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string>
#include <vector>

#include "cli/base/exit.h"
#include "cli/command_line.h"
#include "core/text/open_file.h"

int main(int count, char** words) {
    pipetwin::take_size_limits_as_errors();
    const std::vector<std::string> args(words + (count > 0 ? 1 : 0), words + count);
    pipetwin::cli::end_program(pipetwin::cli::run_command_line(
        args, std::cout, std::cerr, pipetwin::cli::this_terminal()));
}
