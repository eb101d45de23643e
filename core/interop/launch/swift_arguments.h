// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/interop/launch/setting.h"

/// The args.json that ms-swift writes beside the checkpoints of a run with Megatron-LM.
namespace pipetwin {

/// Whether a text is such a file.
bool is_swift_arguments(std::string_view text);

/// The arguments of such a file as Megatron's flags, without those that have no value and those
/// that change no step. Throws Error(BadInput) as `parse_json_settings`.
LaunchFile parse_swift_arguments(std::string_view text, std::string_view place);

}  // namespace pipetwin
