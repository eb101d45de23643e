// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shell/completion.h"
#include "cli/shell/option_table.h"
#include "core/base/version.h"

namespace pipetwin::cli {

namespace {

/// The text with '\' before each of the letters.
std::string with_backslashes(std::string_view text, std::string_view letters) {
    std::string result;
    for (const char letter : text) {
        result += letters.find(letter) == std::string_view::npos ? "" : "\\";
        result += letter;
    }
    return result;
}

/// A word of a shell script in single quotes.
std::string zsh_quoted(std::string_view text) {
    std::string result = "'";
    for (const char letter : text) {
        result += letter == '\'' ? "'\\''" : std::string(1, letter);
    }
    return result + "'";
}

std::string zsh_files(const ValueShape& value) {
    return value.endings.empty() ? "_files"
                                 : fmt::format("_files -g \"*{}\"", value.endings.front());
}

/// What `_arguments` does for a value: ":name:action".
std::string zsh_action(const ValueShape& value) {
    const std::string words = fmt::format("{}", fmt::join(value.words, " "));
    const std::string action = value.is_key    ? fmt::format("compadd -S = - {}", words)
                               : value.is_list ? fmt::format("_sequence compadd - {}", words)
                               : !value.words.empty() && value.is_file
                                   ? fmt::format("_pipetwin_words_or_files - {}", words)
                               : !value.words.empty() ? fmt::format("({})", words)
                               : value.is_folder      ? "_files -/"
                               : value.is_file        ? zsh_files(value)
                                                      : " ";
    return fmt::format(":{}:{}", with_backslashes(value.name, ":\\"), action);
}

}  // namespace

std::string zsh_completion(const ProgramTable& table) {
    std::string names;
    std::string cases;
    for (const CommandTable& command : table.commands) {
        names +=
            fmt::format("        {}\n",
                        zsh_quoted(fmt::format("{}:{}", command.name, short_text(command.text))));
        cases += fmt::format("        {})\n            _arguments -S", command.name);
        for (const OptionRow& row : command.options()) {
            for (const std::string& name : row.offered()) {
                const std::string spec = fmt::format("{}{}{}[{}]{}",
                                                     row.is_repeatable ? "*" : "",
                                                     name,
                                                     row.is_flag()            ? ""
                                                     : name.starts_with("--") ? "="
                                                                              : "+",
                                                     with_backslashes(short_text(row.text), "[]\\"),
                                                     row.is_flag() ? "" : zsh_action(row.value));
                cases += fmt::format(" \\\n                {}", zsh_quoted(spec));
            }
        }
        for (std::size_t place = 0; place < command.arguments.size(); ++place) {
            const OptionRow& row = command.arguments[place];
            const std::string number = row.is_repeatable ? "*" : fmt::format("{}", place + 1);
            cases += fmt::format(" \\\n                {}",
                                 zsh_quoted(fmt::format("{}{}", number, zsh_action(row.value))));
        }
        cases += "\n            ;;\n";
    }
    return fmt::format(
        R"zsh(#compdef pipetwin
# zsh completion of pipetwin {}, as 'pipetwin completion zsh' prints it
# SPDX-License-Identifier: Apache-2.0

# Offers words, and files.
_pipetwin_words_or_files() {{
    local found=1
    compadd "$@" && found=0
    _files && found=0
    return found
}}

_pipetwin() {{
    local curcontext=$curcontext state state_descr line
    typeset -A opt_args
    local -a commands
    commands=(
{}        'help:Print the options of a command'
        'version:Print the version'
    )
    _arguments -C \
        '(- *)'{{-h,--help}}'[Print the commands and exit]' \
        '(- *)--version[Print the version and exit]' \
        '1:command:->command' \
        '*::argument:->argument' && return
    if [[ $state == command ]]; then
        _describe -t commands command commands
        return
    fi
    case $words[1] in
        help) _describe -t commands command commands ;;
{}    esac
}}

if [[ $funcstack[1] == _pipetwin ]]; then
    _pipetwin "$@"
else
    compdef _pipetwin pipetwin
fi
)zsh",
        program_version(),
        names,
        cases);
}

}  // namespace pipetwin::cli
