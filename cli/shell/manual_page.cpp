// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/manual_page.h"

#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "cli/shell/option_table.h"
#include "core/base/ascii.h"
#include "core/base/version.h"

namespace pipetwin::cli {

namespace {

/// Where the footer of a help text begins to list exit codes.
constexpr std::string_view exit_codes_title = "Exit codes: ";

/// A text as roff prints it letter by letter, with a line for each of its lines.
std::string roff(std::string_view text) {
    std::string result;
    bool begins = true;
    for (const char letter : text) {
        if (begins && (letter == '.' || letter == '\'')) {
            result += "\\&";
        }
        begins = letter == '\n';
        switch (letter) {
            case '\\':
                result += "\\e";
                break;
            case '-':
                result += "\\-";
                break;
            case '\'':
                result += "\\(aq";
                break;
            case '`':
                result += "\\(ga";
                break;
            case '^':
                result += "\\(ha";
                break;
            case '~':
                result += "\\(ti";
                break;
            case '"':
                result += "\\(dq";
                break;
            default:
                result += letter;
        }
    }
    return result;
}

/// The text with a line for each of its sentences, as manual pages have them.
std::string roff_lines(const std::string& text) {
    std::string result;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        for (std::size_t end = line.find(". "); end != std::string::npos; end = line.find(". ")) {
            result += roff(line.substr(0, end + 1)) + "\n";
            line.erase(0, end + 2);
        }
        result += line.empty() ? "" : roff(line) + "\n";
    }
    return result;
}

std::string option_entry(const OptionRow& row) {
    std::string names;
    for (const std::string& name : row.names) {
        names += (names.empty() ? "" : ", ") + fmt::format("\\fB{}\\fR", roff(name));
    }
    if (!row.is_flag()) {
        names += (names.empty() ? "" : " ") + fmt::format("\\fI{}\\fR", roff(row.value.name));
    }
    return fmt::format(".TP\n{}\n{}", names, roff_lines(row.text));
}

/// The words behind the name: arguments, those that may be left out in brackets.
std::string synopsis(const CommandTable& command) {
    std::string text;
    for (const OptionRow& row : command.arguments) {
        const std::string name = fmt::format("\\fI{}\\fR", roff(row.value.name));
        text += row.is_required ? " " + name : " [" + name + "]";
    }
    return text + " [\\fIoptions\\fR]";
}

std::string options_text(const CommandTable& command) {
    std::string text = ".SH OPTIONS\n";
    for (const OptionGroup& group : command.groups) {
        text += command.groups.size() > 1 ? fmt::format(".SS {}\n", roff(group.title)) : "";
        for (const OptionRow& row : group.options) {
            text += option_entry(row);
        }
    }
    return text;
}

std::string see_also(const ProgramTable& table, const CommandTable& command) {
    std::string text = ".SH SEE ALSO\n";
    if (!command.name.empty()) {
        return text + ".BR pipetwin (1)\n";
    }
    for (const CommandTable& other : table.commands) {
        text += fmt::format(
            ".BR pipetwin\\-{} (1){}\n", other.name, &other == &table.commands.back() ? "" : ",");
    }
    return text;
}

}  // namespace

std::string manual_page_file(const CommandTable& command) {
    return command.name.empty() ? "pipetwin.1" : fmt::format("pipetwin-{}.1", command.name);
}

std::string manual_page(const ProgramTable& table, const CommandTable& command) {
    const bool is_program = command.name.empty();
    std::string about = command.text;
    if (is_program) {  // "pipetwin: plan, predict ..."
        about.erase(0, about.find(": ") == std::string::npos ? 0 : about.find(": ") + 2);
    }
    const std::string name =
        is_program ? "pipetwin" : fmt::format("pipetwin\\-{}", roff(command.name));
    std::string title;
    for (const char letter : name) {
        title += ascii::upper(letter);
    }
    std::string text = fmt::format(
        ".\\\" SPDX-License-Identifier: Apache-2.0\n"
        ".\\\" Made by 'pipetwin completion man'.\n"
        ".TH {} 1 {} \"pipetwin {}\" \"User Commands\"\n"
        ".SH NAME\n{} \\- {}\n"
        ".SH SYNOPSIS\n\\fBpipetwin{}\\fR{}\n"
        ".SH DESCRIPTION\n{}",
        title,
        release_date(),
        roff(program_version()),
        name,
        roff(about),
        is_program ? "" : " " + roff(command.name),
        is_program ? " \\fICOMMAND\\fR [\\fIoptions\\fR]" : synopsis(command),
        is_program ? roff_lines("Plans pipeline-parallel training, predicts its time and memory, "
                                "trains, and compares the prediction with the measurement.")
                   : roff_lines(about + "."));
    const std::size_t codes = command.footer.find(exit_codes_title);
    const std::string remarks = command.footer.substr(0, codes);
    text += remarks.empty() ? "" : ".PP\n" + roff_lines(remarks);
    if (is_program) {
        text += ".SH COMMANDS\n";
        for (const CommandTable& other : table.commands) {
            text +=
                fmt::format(".TP\n\\fB{}\\fR\n{}", roff(other.name), roff_lines(other.text + "."));
        }
    }
    if (!command.arguments.empty()) {
        text += ".SH ARGUMENTS\n";
        for (const OptionRow& row : command.arguments) {
            text += option_entry(row);
        }
    }
    text += options_text(command);
    if (codes != std::string::npos) {
        text += ".SH EXIT STATUS\n" +
                roff_lines(command.footer.substr(codes + exit_codes_title.size()));
    }
    return text + see_also(table, command);
}

}  // namespace pipetwin::cli
