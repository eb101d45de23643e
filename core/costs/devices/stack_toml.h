// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/costs/devices/stack.h"

namespace pipetwin {

/// Reads the file of a stack. Every device with products has rows of the sustained share and of
/// attention, every narrow precision one of casts, and every number a kind and a source that the
/// file explains. Throws Error(BadInput) with `place`, line, column, what was found and what was
/// expected.
Stack parse_stack(std::string_view text, std::string place);

/// What the file of a stack says of its sources `keys`, with ", " between them, as a fact has them:
/// one text for each. Throws as `parse_stack`.
std::vector<std::string> source_texts(std::string_view text,
                                      std::string place,
                                      std::string_view keys);

/// The source of what was calibrated, in the table [sources] of its file.
inline constexpr std::string_view source_of_runs = "measured-runs";

/// The file of a stack that was calibrated: the text `base` of the file before, with its comments,
/// and the name, the description and the corrections of `stack`. Read again it is that stack.
/// Throws Error(BadInput) at `place`, the file before, where it has no lines that begin with `name
/// = `, `description = ` and `[sources]`, which those that come with the program have.
std::string print_calibrated(std::string base, const std::string& place, const Stack& stack);

}  // namespace pipetwin
