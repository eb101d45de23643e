// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shell/completion.h"
#include "cli/shell/option_table.h"
#include "core/base/version.h"

namespace pipetwin::cli {

namespace {

std::string fish_quoted(std::string_view text) {
    std::string result = "'";
    for (const char letter : text) {
        result += letter == '\'' || letter == '\\' ? "\\" : "";
        result += letter;
    }
    return result + "'";
}

/// Options of fish's `complete` for a value.
std::string fish_action(const ValueShape& value) {
    const std::string words = fmt::format("{}", fmt::join(value.words, " "));
    std::string action;
    if (value.is_key) {
        action = fmt::format(" -a '{}='", fmt::join(value.words, "= "));
    } else if (value.is_list) {
        action = " -a " + fish_quoted(fmt::format(
                              "(__fish_complete_list , \"string split ' ' '{}'\")", words));
    } else if (!words.empty()) {
        action = fmt::format(" -a '{}'", words);
    }
    if (value.is_folder) {
        action += " -a '(__fish_complete_directories)'";
    } else if (!value.endings.empty()) {
        action += fmt::format(" -k -a '(__fish_complete_suffix {})'", value.endings.front());
    }
    return action + (value.is_file && value.endings.empty() ? " -F" : " -f");
}

}  // namespace

std::string fish_completion(const ProgramTable& table) {
    std::string text = fmt::format(
        R"fish(# fish completion of pipetwin {}, as 'pipetwin completion fish' prints it
# SPDX-License-Identifier: Apache-2.0

# Whether the command is this one.
function __pipetwin_is
    set -l words (commandline -opc)
    test (count $words) -gt 1; and test "$words[2]" = $argv[1]
end

# Whether a command is still missing.
function __pipetwin_has_none
    set -l words (commandline -opc)
    test (count $words) -lt 2; or test "$words[2]" = help
end

complete -c pipetwin -f
complete -c pipetwin -n __pipetwin_has_none -s h -l help -d 'Print the commands and exit'
complete -c pipetwin -n __pipetwin_has_none -l version -d 'Print the version and exit'
complete -c pipetwin -n __pipetwin_has_none -a help -d 'Print the options of a command'
complete -c pipetwin -n __pipetwin_has_none -a version -d 'Print the version'
)fish",
        program_version());
    for (const CommandTable& command : table.commands) {
        text += fmt::format("\ncomplete -c pipetwin -n __pipetwin_has_none -a {} -d {}\n",
                            command.name,
                            fish_quoted(short_text(command.text)));
        const std::string begin =
            fmt::format("complete -c pipetwin -n '__pipetwin_is {}'", command.name);
        for (const OptionRow& row : command.options()) {
            text += begin;
            for (const std::string& name : row.offered()) {
                text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
            }
            text += row.is_flag() ? "" : " -r" + fish_action(row.value);
            text += " -d " + fish_quoted(short_text(row.text)) + "\n";
        }
        for (const OptionRow& row : command.arguments) {
            text += begin + fish_action(row.value) + "\n";
        }
    }
    return text;
}

}  // namespace pipetwin::cli
