// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

/// Words that a shell completes as the value of an option. The parse takes any other word, too: the
/// command judges it.
namespace pipetwin::cli {

/// Names that ship with the program, or that a scenario knows.
enum class NameList { Clusters, Devices, Keys, Models, Precisions, Schedules, Stacks };

/// What an option or argument has in its `check`, so that shells complete one of the names.
CLI::Validator suggests(NameList names);
/// A check that suggests the words of a table.
CLI::Validator suggests(std::span<const std::string_view> words);

/// The words that an option suggests, and those that it demands (CLI::IsMember); empty: any. Reads
/// the folder of profiles where those are names that ship. Throws Error(Io) if it cannot be read.
std::vector<std::string> suggested_words(const CLI::Option& option);

/// The name of an option's value in the help: "N" of "N:INT in [1 - 65536]". Empty: it is a flag.
std::string value_name(const CLI::Option& option);

}  // namespace pipetwin::cli
