// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <string>
#include <system_error>

#include "cli/commands/commands.h"
#include "core/base/error.h"

namespace pipetwin::cli {

namespace {

/// Options of `view`.
struct ViewOptions {
    CommonOptions common;
    std::filesystem::path file;
};

constexpr const char* program = "pipetwin-gui";

/// Becomes the program if it is there.
void become(const std::string& path, std::string file) {
    std::string name = program;
    const std::array<char*, 3> arguments{
        name.data(), file.empty() ? nullptr : file.data(), nullptr};
    execvp(path.c_str(), arguments.data());
}

/// Looks beside this program, where an installation and a build folder hold it, then in PATH.
void execute_view(const ViewOptions& options, Console&) {
    if (!options.common.out.empty()) {
        throw Error(ErrorKind::Usage, "--out", "'view' writes nothing", "leave it out");
    }
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

Command declare_view(CLI::App& app) {
    const auto options = std::make_shared<ViewOptions>();
    leave_out_of_help(app,
                      {"--json", "--out", "--set", "--seed", "--quiet", "--verbose", "--force"});
    app.add_option(
           "file", options->file, "Run folder, trace, scenario, schedule or profile to open")
        ->type_name("FILE");
    Command command = command_with(options, execute_view);
    command.input = [options] { return options->file; };
    return command;
}

}  // namespace

CommandRow view_command() {
    return {
        .name = "view", .help = "Open the desktop program (pipetwin-gui)", .declare = declare_view};
}

}  // namespace pipetwin::cli
