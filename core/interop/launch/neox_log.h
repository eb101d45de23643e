// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/interop/launch/setting.h"

namespace pipetwin {

/// Whether GPT-NeoX printed its arguments (megatron/neox_arguments/arguments.py, print): a line for
/// each, which ends with "updated" or "default".
bool has_neox_log(std::string_view text);

/// The arguments of a log that are not defaults, as GPT-NeoX's file has them, without those that it
/// works out from others. Throws Error(BadInput) where the block has no end, and with the line of
/// one that differs in what makes the run.
LaunchFile parse_neox_log(std::string_view text, std::string_view place);

}  // namespace pipetwin
