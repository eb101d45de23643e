// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Options with lists, whose entries have commas between them.
namespace pipetwin::cli {

/// A list that the option takes, for a hint: "8,16" of "--micro-batches".
std::string_view list_example(std::string_view option);

/// The entries of a list, without the blanks around them. Throws Error(Usage) for an empty entry.
std::vector<std::string> list_entries(std::string_view option, std::string_view text);

/// The entries of all lists that were given for an option.
std::vector<std::string> list_entries(std::string_view option,
                                      const std::vector<std::string>& texts);

/// The whole numbers of a list, as they are written. Throws Error(Usage) for an entry that is no
/// whole number, or that has leading zeros.
std::vector<std::string> whole_numbers(std::string_view option, const std::string& text);

/// The words that the command took as a value of the list option before `extra`, which goes on
/// with it: "--stages 2,4" of "--stages 2 4"; empty where no list goes on.
std::string list_with(const std::string& extra, const std::vector<std::string>& args);

}  // namespace pipetwin::cli
