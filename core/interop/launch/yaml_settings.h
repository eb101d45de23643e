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
/// value that is `given` for the name, else the one behind the colon, or an unknown one. A key
/// whose value is null or empty has `is_unset`. "model" of a Primus module is no setting: its file
/// goes into `models`, as do those of "extends", "bases" and "includes".
///
/// Everything of YAML is understood but a second document, tags of a program's own, and keys that
/// are no names; anchors, aliases and the key "<<" stand for what they name. A plain scalar is what
/// YAML 1.1 sees in it, as PyYAML and OmegaConf do: `yes` and `on` are true, 0x20, 040, 3_2 and
/// 1:30 whole numbers, 1e6 and 0o17 none. A text of several lines, and a mapping in a list, are
/// left out. Throws Error(BadInput) with place:line:column for what is no YAML, a key that stands
/// twice with two values, more than 64 levels, and aliases that stand for more than 10,000 values.
LaunchFile parse_yaml_settings(std::string_view text,
                               std::string_view place,
                               const LaunchVariables& given = {});

}  // namespace pipetwin
