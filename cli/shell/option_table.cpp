// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/option_table.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/base/grammar.h"
#include "cli/base/help_format.h"
#include "cli/base/value_words.h"
#include "core/base/ascii.h"

namespace pipetwin::cli {

namespace {

/// Names of values that are files, and how the names of these files end.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> file_values{
    {{"SCENARIO.toml", ".toml"},
     {"FILE.svg", ".svg"},
     {"FILE.csv", ".csv"},
     {"FILE.profile.json", ".profile.json"},
     {"FILE", ""},
     {"TRACE", ""},
     {"SOURCE", ""},
     {"PREDICTED", ""},
     {"MEASURED", ""}}};
constexpr std::array<std::string_view, 3> folder_values{"DIR", "FOLDER", "RUN"};

/// "SCENARIO.toml" of "SCENARIO.toml|MODEL" and of "SCENARIO.toml...".
std::string_view first_name(std::string_view value) {
    value = value.substr(0, value.find('|'));
    return value.substr(0, value.find("..."));
}

/// Whether a word means itself in every shell: a profile's file may have any name, and a script
/// with its quotes or blanks would be another one.
bool is_plain_word(const std::string& word) {
    return std::ranges::all_of(word, [](char sign) {
        return ascii::is_letter(sign) || ascii::is_digit(sign) ||
               std::string_view("._+-").find(sign) != std::string_view::npos;
    });
}

/// Whether an option with words takes a file in place of one of them.
bool takes_file_for_word(std::string_view option) {
    return option == "--stack" || option == "--cluster" || option == "--schedule" ||
           option == "--model";
}

ValueShape shape_of(const CLI::Option& option) {
    ValueShape shape{.name = option.get_type_size_max() == 0 ? "" : value_name(option)};
    if (shape.name.empty()) {
        return shape;
    }
    shape.words = suggested_words(option);
    std::erase_if(shape.words, [](const std::string& word) { return !is_plain_word(word); });
    std::ranges::sort(shape.words);
    shape.words.erase(std::ranges::unique(shape.words).begin(), shape.words.end());
    shape.is_key = shape.name.starts_with("KEY=");
    shape.is_list = option.get_name() == "--schedule";
    const std::string_view name = first_name(shape.name);
    const auto* const file =
        std::ranges::find(file_values, name, &std::pair<std::string_view, std::string_view>::first);
    shape.is_file = file != file_values.end() || takes_file_for_word(option.get_name());
    if (file != file_values.end() && !file->second.empty()) {
        shape.endings.emplace_back(file->second);
    }
    shape.is_folder = std::ranges::count(folder_values, name) > 0;
    return shape;
}

OptionRow row_of(const CLI::Option& option) {
    OptionRow row{
        .text = option_text(option),
        .is_required = option.get_required(),
        .is_repeatable = option.get_items_expected_max() > 1 ||
                         option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll,
        .value = shape_of(option)};
    for (const std::string& name : option.get_snames()) {
        row.names.push_back("-" + name);
    }
    for (const std::string& name : option.get_lnames()) {
        row.names.push_back("--" + name);
    }
    return row;
}

CommandTable table_of(const CLI::App& app) {
    CommandTable table{.name = app.get_parent() == nullptr ? "" : app.get_name(),
                       .text = app.get_description(),
                       .footer = app.get_footer()};
    std::vector<std::string> titles = app.get_groups();
    std::erase(titles, options_without_effect);
    std::ranges::stable_partition(
        titles, [](const std::string& title) { return title != general_options; });
    for (const std::string& title : titles) {
        OptionGroup group{.title = title};
        for (const CLI::Option* option : app.get_options()) {
            if (option->get_positional() && option->get_group() == title) {
                table.arguments.push_back(row_of(*option));
            } else if (option->get_group() == title) {
                group.options.push_back(row_of(*option));
            }
        }
        if (!group.options.empty()) {
            table.groups.push_back(std::move(group));
        }
    }
    return table;
}

}  // namespace

std::vector<std::string> OptionRow::offered() const {
    std::vector<std::string> known;
    bool has_long_name = false;
    for (const std::string& name : names) {
        const bool is_long = name.starts_with("--");
        if (!is_long || !has_long_name) {
            known.push_back(name);
        }
        has_long_name = has_long_name || is_long;
    }
    return known;
}

std::vector<OptionRow> CommandTable::options() const {
    std::vector<OptionRow> all;
    for (const OptionGroup& group : groups) {
        std::ranges::copy(group.options, std::back_inserter(all));
    }
    return all;
}

ProgramTable option_table(std::span<const CommandRow> rows) {
    const Grammar grammar(rows);
    ProgramTable table{.program = table_of(grammar.app())};
    for (const CLI::App* command : grammar.app().get_subcommands({})) {
        table.commands.push_back(table_of(*command));
    }
    return table;
}

std::string short_text(const std::string& text, std::size_t width) {
    constexpr std::array<std::string_view, 4> ends{" (", "; ", ". ", "\n"};
    std::string line = text;
    for (const std::string_view end : ends) {
        line.resize(std::min(line.size(), line.find(end)));
    }
    if (line.size() > width) {
        line.resize(line.rfind(' ', width - 3));
        line += "...";
    }
    return line;
}

}  // namespace pipetwin::cli
