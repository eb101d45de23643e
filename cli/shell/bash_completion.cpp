// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shell/completion.h"
#include "cli/shell/option_table.h"
#include "core/base/version.h"

namespace pipetwin::cli {

namespace {

/// What the script does with the tables in front of it.
constexpr std::string_view bash_function = R"bash(
# Adds the files that compgen names to the answer. Compgen divides a name that has a newline, whose parts are left out.
_pipetwin_take() {
    local name plain=${cur//[\\\"\']/}
    while IFS= read -r name; do
        if [[ ${name//[\\\"\']/} == "$plain"* && ($name == '~'* || -e $name || -L $name) ]]; then
            COMPREPLY+=("$name")
        fi
    done
    compopt -o filenames 2>/dev/null
}

# Adds files whose names end in $endings, and folders, to the answer.
_pipetwin_files() {
    local ending
    for ending in $endings; do
        _pipetwin_take < <(compgen -f -X "!*$ending" -- "$cur")
    done
    if [[ -z $endings ]]; then
        _pipetwin_take < <(compgen -f -- "$cur")
    else
        _pipetwin_take < <(compgen -d -- "$cur")
    fi
}

_pipetwin() {
    local cur=${COMP_WORDS[COMP_CWORD]} before= command=${COMP_WORDS[1]-} option= word
    local kind words endings takes options count i place=1
    [[ $COMP_CWORD -gt 0 ]] && before=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 || ($COMP_CWORD -eq 2 && $command == help) ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$_pipetwin_commands" -- "$cur")
        return
    fi
    if [[ $cur == '=' || $before == '=' ]]; then
        option=$before
        [[ $cur == '=' ]] && cur= || option=${COMP_WORDS[COMP_CWORD - 2]}
        [[ $option == -* ]] || return
    elif [[ $before == -* ]]; then
        option=$before
    fi
    _pipetwin_value "$command $option"
    if [[ $kind == flag ]]; then
        if [[ $cur == -* ]]; then
            _pipetwin_options "$command"
            mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
            return
        fi
        for ((i = 2; i < COMP_CWORD; ++i)); do
            word=${COMP_WORDS[i]}
            if [[ $word == -* ]]; then
                _pipetwin_value "$command $word"
                [[ ${COMP_WORDS[i + 1]} == '=' ]] && ((++i))
                [[ $kind == flag ]] || ((++i))
            elif [[ $word != '=' ]]; then
                ((++place))
            fi
        done
        _pipetwin_options "$command"
        ((place > count)) && place=$count
        _pipetwin_value "$command $place"
    fi
    case $kind in
        list)
            word=${cur##*,}
            mapfile -t COMPREPLY < <(compgen -W "$words" -P "${cur%"$word"}" -- "$word")
            ;;
        key)
            mapfile -t COMPREPLY < <(compgen -W "$words" -S = -- "$cur")
            compopt -o nospace 2>/dev/null
            ;;
        word) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
        folder) _pipetwin_take < <(compgen -d -- "$cur") ;;
    esac
    [[ $takes == *file* ]] && _pipetwin_files
}

complete -F _pipetwin pipetwin
)bash";

/// Settings of the script for the value of an option.
std::string bash_settings(const ValueShape& value) {
    const std::string kind = value.is_key           ? "key"
                             : value.is_list        ? "list"
                             : !value.words.empty() ? "word"
                             : value.is_folder      ? "folder"
                                                    : "any";
    std::string text = "kind=" + kind;
    text += value.words.empty() ? "" : fmt::format(" words='{}'", fmt::join(value.words, " "));
    text +=
        value.endings.empty() ? "" : fmt::format(" endings='{}'", fmt::join(value.endings, " "));
    return text + (value.is_file ? " takes=file" : "");
}

/// Options with the same values stand at one place of the script.
class BashValues {
  public:
    void add(const std::string& pattern, const ValueShape& value) {
        const std::string settings = bash_settings(value);
        const auto known =
            std::ranges::find(rows_, settings, &std::pair<std::string, std::string>::first);
        if (known == rows_.end()) {
            rows_.emplace_back(settings, pattern);
        } else {
            known->second += " | \\\n            " + pattern;
        }
    }
    std::string text() const {
        std::string text;
        for (const auto& [settings, patterns] : rows_) {
            text += fmt::format("        {}) {} ;;\n", patterns, settings);
        }
        return text;
    }

  private:
    std::vector<std::pair<std::string, std::string>> rows_;  ///< settings, patterns
};

}  // namespace

std::string bash_completion(const ProgramTable& table) {
    std::string commands = "help version --version";
    std::string options;
    BashValues values;
    for (const OptionRow& row : table.program.options()) {
        commands += row.names.back() == "--version" ? "" : " " + row.names.back();
    }
    for (const CommandTable& command : table.commands) {
        commands += " " + command.name;
        std::string names;
        for (const OptionRow& row : command.options()) {
            names += (names.empty() ? "" : " ") + fmt::format("{}", fmt::join(row.offered(), " "));
            for (const std::string& name : row.names) {
                if (!row.is_flag()) {
                    values.add(fmt::format("'{} {}'", command.name, name), row.value);
                }
            }
        }
        for (std::size_t place = 0; place < command.arguments.size(); ++place) {
            values.add(fmt::format("'{} {}'", command.name, place + 1),
                       command.arguments[place].value);
        }
        options += fmt::format("        {}) count={} options='{}' ;;\n",
                               command.name,
                               command.arguments.size(),
                               names);
    }
    return fmt::format(
        "# bash completion of pipetwin {}, as 'pipetwin completion bash' prints it\n"
        "# SPDX-License-Identifier: Apache-2.0\n\n"
        "_pipetwin_commands='{}'\n\n"
        "# Sets the options of a command, and how many arguments it has.\n"
        "_pipetwin_options() {{\n    options= count=0\n    case $1 in\n{}    esac\n}}\n\n"
        "# Sets what the value of \"COMMAND OPTION\" or the argument \"COMMAND NUMBER\" is.\n"
        "_pipetwin_value() {{\n    kind=flag words= endings= takes=\n    case $1 in\n{}    "
        "esac\n}}\n{}",
        program_version(),
        commands,
        options,
        values.text(),
        bash_function);
}

}  // namespace pipetwin::cli
