#include "cli/base/help_format.h"

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pipetwin::cli {

namespace {

constexpr std::size_t text_column = 30;
constexpr std::size_t last_column = 100;

/// "N" of "N:INT in [1 - 65536]": the name of a value, without what its checks say of themselves.
std::string value_name(const CLI::Option& option) {
    constexpr std::array<std::string_view, 5> checks{
        ":INT", ":FLOAT", ":POSITIVE", ":NONNEGATIVE", ":{"};
    std::string type = option.get_type_name();
    for (const std::string_view check : checks) {
        type.resize(std::min(type.size(), type.find(check)));
    }
    return type;
}

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

std::string names_of(const std::set<CLI::Option*>& options) {
    std::vector<std::string> names;
    std::ranges::transform(options, std::back_inserter(names), [](const CLI::Option* option) {
        return option->get_name();
    });
    std::ranges::sort(names);
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

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
    std::string text = option->get_description();
    if (option->get_required() && !option->get_positional()) {
        text += " (required)";
    }
    if (!option->get_needs().empty()) {
        text += fmt::format(" (needs {})", names_of(option->get_needs()));
    }
    if (!option->get_excludes().empty()) {
        text += fmt::format(" (not with {})", names_of(option->get_excludes()));
    }
    return in_lines(text);
}

std::string HelpFormat::make_option_usage(const CLI::Option* option) const {
    const std::string name = value_name(*option);
    return option->get_required() ? name : '[' + name + ']';
}

std::string HelpFormat::make_subcommand(const CLI::App* command) const {
    std::ostringstream out;
    CLI::detail::format_help(
        out, command->get_name(), in_lines(command->get_description()), text_column);
    return out.str();
}

}  // namespace pipetwin::cli
