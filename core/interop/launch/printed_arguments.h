// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/interop/launch/setting.h"

/// The arguments that Megatron-LM prints when it begins (megatron/training/arguments.py,
/// _print_args): a line for each, with its value, all defaults among them. Megatron-DeepSpeed and
/// other programs that grew out of it print the same.
namespace pipetwin {

/// Whether a text has the line that begins a block of printed arguments.
bool has_printed_arguments(std::string_view text);

/// Reads the arguments out of a log as it stands: what other programs write in front of a line
/// (ranks, times, colours) and between the lines is passed over. Each argument is a key of
/// `LaunchFile::settings`; one whose value is None has `is_unset`. Those that the program works out
/// from others, as the number of replicas, are left out; the number of processes goes into
/// `all_processes`. A padded vocabulary that a later line says is one of the settings.
///
/// Several blocks, as of several ranks or of a run that went on, have to have the same values but
/// for what no prediction sees; a block without an end needs another that has one. Throws
/// Error(BadInput) with place:line for both, and for a block without arguments.
LaunchFile parse_printed_arguments(std::string_view text, std::string_view place);

}  // namespace pipetwin
