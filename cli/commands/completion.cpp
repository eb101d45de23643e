// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/completion.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/output_file.h"
#include "cli/base/value_words.h"
#include "cli/commands/commands.h"
#include "cli/interop/exchange.h"
#include "cli/shell/manual_page.h"
#include "cli/shell/option_table.h"
#include "cli/text/json_output.h"
#include "core/base/error.h"
#include "core/base/suggest.h"

namespace pipetwin::cli {

namespace {

/// Options of `completion`.
struct CompletionOptions {
    CommonOptions common;
    std::string shell;
};

struct ShellScript {
    std::string_view shell;
    std::string (*print)(const ProgramTable& table);
};

constexpr std::string_view manual = "man";
constexpr std::array<ShellScript, 3> shells{
    {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}}};
constexpr std::array<std::string_view, 4> shell_words{"bash", "zsh", "fish", manual};

/// Prints the result, of which --out has the files; `text`: what is on stdout without.
void report_written(const CompletionOptions& options,
                    const std::vector<std::string>& files,
                    const std::string& text,
                    Console& console) {
    if (options.common.json) {
        Json json = json_head();
        json["format"] = options.shell;
        json["files"] = files;
        json["text"] = files.empty() ? Json(text) : Json(nullptr);
        console.result(json_text(json));
        return;
    }
    if (files.empty()) {
        console.result(text);
    }
    for (const std::string& file : files) {
        console.note(fmt::format("written: {}", file));
    }
}

/// Writes the page of the program and of each command into the folder of --out.
void write_pages(const CompletionOptions& options, const ProgramTable& table, Console& console) {
    if (options.common.out.empty()) {
        throw Error(ErrorKind::Usage,
                    "--out",
                    "the manual has a page for each command, and needs a folder",
                    "name one: pipetwin completion man --out man1");
    }
    std::vector<const CommandTable*> pages{&table.program};
    for (const CommandTable& command : table.commands) {
        pages.push_back(&command);
    }
    std::vector<std::string> files;
    for (const CommandTable* page : pages) {
        const std::filesystem::path file = options.common.out / manual_page_file(*page);
        std::error_code ignored;
        if (!options.common.force && std::filesystem::exists(file, ignored)) {
            throw Error(ErrorKind::Io,
                        file.string(),
                        "the file is there already",
                        "name another folder with --out FOLDER, or overwrite it with --force");
        }
        files.push_back(file.string());
    }
    std::error_code error;
    std::filesystem::create_directories(options.common.out, error);
    if (error) {
        throw Error(ErrorKind::Io,
                    options.common.out.string(),
                    "cannot make the folder: " + error.message(),
                    "name another one with --out FOLDER");
    }
    for (std::size_t index = 0; index < pages.size(); ++index) {
        write_output(files[index], manual_page(table, *pages[index]), console);
    }
    report_written(options, files, "", console);
}

void execute_completion(const CompletionOptions& options, Console& console) {
    const ProgramTable table = option_table(command_rows());
    if (options.shell == manual) {
        return write_pages(options, table, console);
    }
    for (const ShellScript& script : shells) {
        if (script.shell != options.shell) {
            continue;
        }
        const std::string text = script.print(table);
        if (options.common.out.empty()) {
            return report_written(options, {}, text, console);
        }
        require_free(options.common.out, options.common.force);
        write_output(options.common.out, text, console);
        return report_written(options, {options.common.out.string()}, text, console);
    }
}

/// Throws Error(Usage) for a shell that is not known.
void expect_shell(const std::string& word) {
    if (std::ranges::count(shell_words, word) == 0) {
        const std::string_view near = word == "sh" ? "bash" : nearest_word(word, shell_words);
        throw Error(
            ErrorKind::Usage,
            "",
            fmt::format("'{}' is no shell that is known, expected bash, zsh, fish or man", word),
            near.empty() ? "name one of these" : fmt::format("did you mean '{}'?", near));
    }
}

Command declare_completion(CLI::App& app) {
    const auto options = std::make_shared<CompletionOptions>();
    app.add_option("shell",
                   options->shell,
                   "Shell to complete commands for: bash, zsh or fish; man: manual pages, a file "
                   "for each command in the folder of --out")
        ->check(suggests(shell_words))
        ->type_name("SHELL")
        ->required();
    app.get_option("--out")
        ->description("File to write the script to (default: it is printed); man: folder")
        ->type_name("FILE");
    reads_no_scenario(app);
    Command command = command_with(options, execute_completion);
    command.complete = [options](const std::vector<std::string>&, CommonOptions&) {
        expect_shell(options->shell);
    };
    return command;
}

}  // namespace

CommandRow completion_command() {
    return {.name = "completion",
            .help =
                "Print the script that completes commands and options in a shell, or write "
                "manual pages",
            .declare = declare_completion};
}

}  // namespace pipetwin::cli
