// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <string>
#include <system_error>

#include "cli/commands/commands.h"
#include "core/base/error.h"

namespace pipetwin::cli {

namespace {

constexpr const char* program = "pipetwin-gui";

/// Becomes the program if it is there.
void become(const std::string& path, std::string file) {
    std::string name = program;
    const std::array<char*, 3> arguments{
        name.data(), file.empty() ? nullptr : file.data(), nullptr};
    execvp(path.c_str(), arguments.data());
}

}  // namespace

/// Looks beside this program, where an installation and a build folder hold it, then in PATH.
void execute(const ViewOptions& options, Console&) {
    std::error_code ignored;
    const std::filesystem::path here =
        std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    const std::string file = options.file.string();
    become((here / program).string(), file);
    become(program, file);
    throw Error(
        ErrorKind::Unavailable,
        program,
        "the desktop program was not found",
        "it is built where Qt 6 is installed; report.html in the run folder opens in a browser");
}

}  // namespace pipetwin::cli
