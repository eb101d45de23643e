// SPDX-License-Identifier: Apache-2.0
#include "cli/base/help_format.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/value_words.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t text_column = 30;
constexpr std::size_t last_column = 100;

/// Breaks the lines of a text between words, so that each ends before the last column.
std::string in_lines(const std::string& text) {
    constexpr std::size_t width = last_column - text_column;
    std::string result;
    std::size_t column = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        result += result.empty() ? "" : "\n";
        column = 0;
        std::istringstream words(line);
        for (std::string word; words >> word;) {
            if (column > 0) {
                const bool fits = column + 1 + word.size() <= width;
                result += fits ? ' ' : '\n';
                column = fits ? column + 1 : 0;
            }
            result += word;
            column += word.size();
        }
    }
    return result;
}

/// " (not with --verbose)" for the options that the help lists; empty if it lists none of them.
std::string remark_on(std::string_view what, const std::set<CLI::Option*>& options) {
    std::vector<std::string> names;
    for (const CLI::Option* option : options) {
        if (option->get_group() != options_without_effect) {
            names.push_back(option->get_name());
        }
    }
    std::ranges::sort(names);
    return names.empty() ? "" : fmt::format(" ({} {})", what, fmt::join(names, ", "));
}

}  // namespace

std::string option_text(const CLI::Option& option) {
    std::string text = option.get_description();
    if (option.get_required() && !option.get_positional()) {
        text += " (required)";
    }
    text += remark_on("needs", option.get_needs());
    text += remark_on("not with", option.get_excludes());
    return text;
}

HelpFormat::HelpFormat() {
    column_width(text_column);
    label("SUBCOMMAND", "COMMAND");
}

std::string HelpFormat::make_option_name(const CLI::Option* option, bool is_positional) const {
    return is_positional ? value_name(*option) : CLI::Formatter::make_option_name(option, false);
}

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
    const std::string name = option->get_positional() ? "" : value_name(*option);
    return name.empty() ? "" : ' ' + name;
}

std::string HelpFormat::make_option_desc(const CLI::Option* option) const {
    return in_lines(option_text(*option));
}

std::string HelpFormat::make_option_usage(const CLI::Option* option) const {
    const std::string name = value_name(*option);
    return option->get_required() ? name : '[' + name + ']';
}

std::string HelpFormat::make_help(const CLI::App* app,
                                  std::string name,
                                  CLI::AppFormatMode mode) const {
    std::vector<std::string> groups = app->get_groups();
    std::erase(groups, options_without_effect);
    std::ranges::stable_partition(
        groups, [](const std::string& group) { return group != general_options; });
    std::string text =
        make_description(app) + make_usage(app, std::move(name)) + make_positionals(app);
    for (const std::string& group : groups) {
        const std::vector<const CLI::Option*> options =
            app->get_options([&group](const CLI::Option* option) {
                return option->get_group() == group && option->nonpositional();
            });
        text += options.empty() ? "" : make_group(group, false, options);
    }
    return text + make_subcommands(app, mode) + '\n' + make_footer(app);
}

std::string HelpFormat::make_subcommand(const CLI::App* command) const {
    std::ostringstream out;
    CLI::detail::format_help(
        out, command->get_name(), in_lines(command->get_description()), text_column);
    return out.str();
}

}  // namespace pipetwin::cli
