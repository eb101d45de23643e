// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/interop/import/importers.h"
#include "core/interop/launch/setting.h"
#include "core/interop/launch/setting_problems.h"

/// Parts that importers of other systems' launch files share.
namespace pipetwin::cli {

/// The profile that an importer writes beside its result: "x.toml" has "x.profile.json".
std::filesystem::path profile_beside(const std::filesystem::path& out);

/// "# text" as one line of a TOML file: line ends and other control characters become blanks, and
/// where the text is no UTF-8 each byte beyond ASCII a question mark.
std::string toml_comment(std::string_view text);

/// Throws Error(BadInput) for bytes that no text of the `expected` kind has.
void expect_text(std::string_view text, const std::string& place, std::string_view expected);

/// Throws Error(BadInput) for a configuration of GPT-NeoX, nanotron or NeMo, which other formats
/// read.
void expect_known_program(std::string_view text, const std::string& place);

/// The values of --variable. Throws Error(Usage) for one that is not NAME=VALUE, and for a variable
/// that `text` does not have.
LaunchVariables given_variables(const ImportOptions& options, std::string_view text);

/// Throws Error(BadInput) where --devices is given, and a file says (none: it does not) that its
/// run has another number.
void expect_devices(std::optional<std::int64_t> said, const ImportOptions& options);

/// Puts --devices into the settings of a file that leaves them open. Throws as expect_devices.
void take_devices(LaunchFile& file, const ImportOptions& options);

/// What --ignore-unknown and --insist ask for.
LeaveOut leave_out(const ImportOptions& options);

/// A comment that says which settings --insist left out; empty where there are none.
std::string left_out_comment(const std::vector<std::string>& left_out);

}  // namespace pipetwin::cli
