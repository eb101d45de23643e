#include <csignal>
#include <iostream>
#include <string>
#include <vector>

#include "cli/base/exit.h"
#include "cli/command_line.h"

int main(int count, char** words) {
    // A write beyond the limit on a file's size then fails, as one to a full disk does.
    std::signal(SIGXFSZ, SIG_IGN);
    const std::vector<std::string> args(words + (count > 0 ? 1 : 0), words + count);
    pipetwin::cli::end_program(pipetwin::cli::run_command_line(
        args, std::cout, std::cerr, pipetwin::cli::this_terminal()));
}
