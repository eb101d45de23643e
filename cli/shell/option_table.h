// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/base/command_row.h"

/// All commands with their options, as they are declared: what completions of shells and manual
/// pages are made from.
namespace pipetwin::cli {

/// What a shell completes as the value of an option or as an argument.
struct ValueShape {
    std::string name;                  ///< "FILE.svg", as in the help; empty: there is no value
    std::vector<std::string> words{};  ///< empty: any
    bool is_list = false;              ///< words with commas between them
    bool is_key = false;               ///< a word, then '=' and a value
    bool is_file = false;
    bool is_folder = false;              ///< a folder, not a file
    std::vector<std::string> endings{};  ///< ".toml": of files; empty: any
};

/// An option or an argument without a name.
struct OptionRow {
    std::vector<std::string> names{};  ///< "--out", "-h"; empty: an argument
    std::string text{};                ///< what the help says of it
    bool is_required = false;
    bool is_repeatable = false;
    ValueShape value{};

    bool is_flag() const { return value.name.empty(); }
    /// The names that shells offer: without those that older scripts have.
    std::vector<std::string> offered() const;
};

/// Options with a title of their own in the help.
struct OptionGroup {
    std::string title;
    std::vector<OptionRow> options{};
};

struct CommandTable {
    std::string name;  ///< empty: the program itself
    std::string text{};
    std::vector<OptionRow> arguments{};  ///< in their order
    std::vector<OptionGroup> groups{};   ///< in the order of the help
    std::string footer{};

    /// All options, in the order of the help.
    std::vector<OptionRow> options() const;
};

struct ProgramTable {
    CommandTable program;
    std::vector<CommandTable> commands{};  ///< in the order of the help
};

/// Reads the declarations of commands. Options without effect are left out, as in the help. Throws
/// Error(Io) if the folder of profiles, whose names are words, cannot be read.
ProgramTable option_table(std::span<const CommandRow> rows);

/// The first sentence of a text about an option, without what stands in brackets, at most `width`
/// characters.
std::string short_text(const std::string& text, std::size_t width = 76);

}  // namespace pipetwin::cli
