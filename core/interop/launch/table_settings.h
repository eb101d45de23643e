// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/interop/launch/setting.h"

namespace pipetwin {

/// Reads the settings of a TOML file: each key with a plain value, or with a list, is one setting,
/// whose `sections` are the tables above it. A list in a list is one word with a blank between its
/// elements. Throws Error(BadInput) with place:line:column for a text that is no TOML.
LaunchFile parse_toml_settings(std::string_view text, std::string_view place);

/// Reads the settings of a JSON file in the same way. The place of a setting is its JSON pointer;
/// null is left out. Throws Error(BadInput) as `parse_json`, and for a text that is no object.
LaunchFile parse_json_settings(std::string_view text, std::string_view place);

}  // namespace pipetwin
