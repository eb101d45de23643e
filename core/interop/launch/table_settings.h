// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
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

/// JSON in which a script fills blanks: "${NAME}" and "$NAME" anywhere, and words outside of
/// strings that begin with a capital and are none of Python's ("train_batch_size": GB_SIZE).
/// Returns the text with each blank written "${NAME}".
std::string with_marked_blanks(std::string_view json);

/// Fills the blanks of such a text by the given values: outside of strings a value that is no
/// number, list, object, true, false or null becomes a string. Throws Error(BadInput) at the
/// first blank without a value, with line and column, and names all such blanks.
std::string with_filled_blanks(std::string_view json,
                               std::string_view place,
                               const LaunchVariables& given);

}  // namespace pipetwin
