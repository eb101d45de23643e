// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/override.h"

namespace pipetwin::cli {

/// The key of a scenario that an option has the name of, with its table: "pipeline.schedule" for
/// "--schedule"; empty if there is none.
std::string key_of_option(const std::string& option);

/// The key of a scenario that a text names, with its table: "pipeline.stages" for "stages", "pp"
/// and "pipeline.pp"; empty if there is none.
std::string whole_key(std::string_view text);

/// "--set KEY=VALUE", with the word that the key takes for the value, and more devices where it
/// needs them; the scenario, if there is one, can be read with it. Else what to do without it.
std::string tried_setting(const std::string& key,
                          const std::string& value,
                          const std::filesystem::path& scenario,
                          std::vector<Override> overrides);

/// A command line with an option that the command does not have.
struct UnknownOption {
    std::string command;
    std::string word;                     ///< "--pp", without "=4"
    std::vector<std::string> args;        ///< all words behind the program's name
    std::vector<std::string_view> known;  ///< the command's options, "--out"
};

/// What to write in place of the option, with its value: another option, a key of the scenario
/// whose value was tried where the scenario can be read, or what to do without it.
std::string hint_for_option(const UnknownOption& unknown);

/// What to write in place of a word that is no command.
std::string hint_for_command(const std::string& word, const std::vector<std::string_view>& known);

}  // namespace pipetwin::cli
