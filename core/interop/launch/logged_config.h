// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

/// Configurations that training programs print when they begin: as JSON, over several lines, or as
/// Python writes a dict.
namespace pipetwin {

/// What stands in front of a printed configuration, in the words of the program.
constexpr auto titan_config_marks =
    std::to_array<std::string_view>({"Running with configs: ", "Running with args: "});
constexpr auto deepspeed_config_marks = std::to_array<std::string_view>({"json = "});

/// A configuration out of a log.
struct LoggedConfig {
    std::string json;
    int line = 0;  ///< where it begins, from 1; 0: the log has none
};

/// Whether a line of a text has a mark and behind it the brace that begins a configuration.
bool has_logged_config(std::string_view text, std::span<const std::string_view> marks);

/// The configuration of a log as JSON. Lines that another rank writes in between are passed over,
/// where launchers put ranks in front of lines ("[rank3]:"). A run that went on prints it again,
/// and has to print the same. Throws Error(BadInput) with place:line for a configuration without an
/// end, for one that is neither JSON nor a dict of plain values, and for two that differ.
LoggedConfig logged_config(std::string_view text,
                           std::span<const std::string_view> marks,
                           std::string_view place);

}  // namespace pipetwin
