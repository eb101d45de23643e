// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/launch/setting_problems.h"

/// What is known of the flags of Megatron-LM's command line that `MegatronFlags` has no member for.
/// Names are written without dashes in front, as in "seq-length". Source: megatron/training/
/// arguments.py, and the names that Megatron-Core's, Megatron-Bridge's and Primus' files use.
namespace pipetwin {

/// The group of a flag that changes the model, the split, the memory or the schedule in a way that
/// no scenario can say; null: it is none of them.
const SettingGroup* refused_flag(std::string_view name);

/// The group of a flag of which a prediction leaves something out; null: it is none of them. Of a
/// flag without a value, the value is "given".
const SettingGroup* noted_flag(std::string_view name);

/// Whether a flag changes neither the model nor its split, memory and schedule: data, logs,
/// checkpoints, learning rates, numerics.
bool is_harmless_flag(std::string_view name);

/// Whether a key of a table, "checkpoint.hf_source_path" as the file has it, is harmless there.
bool is_harmless_key(std::string_view written);

/// The group of the table among these whose keys train something else than the model's weights;
/// null: none is.
const SettingGroup* refused_table(const std::vector<std::string>& sections);

/// Another name of a flag, as Megatron-Core's configuration has it.
struct FlagAlias {
    std::string_view alias;
    std::string_view name;
    bool is_inverted = false;  ///< true there is false here
};

/// The flag that the name stands for; none: it is no alias.
std::optional<FlagAlias> flag_alias(std::string_view name);

/// All names that are known here, for suggestions.
std::vector<std::string_view> known_flags();

}  // namespace pipetwin
