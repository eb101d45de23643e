// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "core/base/error.h"
#include "core/timeline/linked_place.h"

namespace pipetwin::cli {

namespace {

/// Options of `view`.
struct ViewOptions {
    CommonOptions common;
    std::filesystem::path file;
    std::string at;  ///< a place of the run; empty: none
};

constexpr const char* program = "pipetwin-gui";

/// Becomes the program if it is there.
void become(const std::string& path, std::string file, std::string at) {
    std::string name = program;
    std::string option = "--at";
    const std::array<char*, 5> arguments{name.data(),
                                         file.empty() ? nullptr : file.data(),
                                         at.empty() ? nullptr : option.data(),
                                         at.data(),
                                         nullptr};
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
    if (!options.at.empty()) {
        if (file.empty()) {
            throw Error(ErrorKind::Usage,
                        "--at",
                        fmt::format("'{}' is a place of a run, and none is named", options.at),
                        fmt::format("name it: pipetwin view RUN --at {}", options.at));
        }
        parse_place(options.at, "--at");
    }
    become((here / program).string(), file, options.at);
    become(program, file, options.at);
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
    app.add_option("--at", options->at, "Place of the run to show, as in step=3,rank=1,ms=12.5")
        ->type_name("PLACE");
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
