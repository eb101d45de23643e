// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/interop/launch/setting.h"

namespace pipetwin {

/// Whether a text looks like a YAML file: its first line with content is "name:", "name: value" or
/// "---".
bool is_yaml(std::string_view text);

/// Reads the settings of a YAML file: each key with a plain value, or with a list of such, is one
/// setting, whose `sections` are the keys above it. Keys of Primus' experiments stand under
/// "modules", "overrides"; those of Megatron-Bridge under "model", "train", ... ; names are the
/// last key with "-" for "_". `${NAME:otherwise}` and `${NAME}`, which Primus replaces, become the
/// value written behind the colon, or an unknown one. A key whose value is null or empty has
/// `is_unset`. "model" of a Primus module is no setting: its file goes into `models`, as do those
/// of "extends", "bases" and "includes".
///
/// Understood: block mappings and lists, flow lists, quotes, comments, block texts. Throws
/// Error(BadInput) with place:line:column for tabs as indentation, anchors, aliases, flow mappings,
/// a second document and lines that are none of these, and for a key that stands twice.
LaunchFile parse_yaml_settings(std::string_view text, std::string_view place);

}  // namespace pipetwin
