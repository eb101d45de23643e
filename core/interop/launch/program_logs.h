// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/interop/launch/setting.h"

/// Configurations that programs print into their logs as Python prints objects, or as YAML.
namespace pipetwin {

/// A text that a program printed, without what stands in front of its lines.
struct PrintedText {
    std::string text{};
    int line = 0;  ///< of the log, from 1, where it begins

    bool operator==(const PrintedText&) const = default;
};

/// Whether nanotron printed its configuration ("Config(general=GeneralArgs(...").
bool has_nanotron_log(std::string_view text);

/// The settings of that configuration as its YAML file has them. Throws Error(BadInput) where it
/// has no end, and with the line of one that differs in what makes the run.
LaunchFile parse_nanotron_log(std::string_view text, std::string_view place);

/// Whether a program printed its TrainingArguments, or a class that continues them, line by line.
bool has_trainer_log(std::string_view text);

/// The arguments that the Trainer printed, as a file of them has them; `all_processes`: devices
/// that follow from "Total train batch size". Throws Error(BadInput) where the arguments have no
/// end, or two differ in what makes the run.
LaunchFile parse_trainer_log(std::string_view text, std::string_view place);

/// The config.json of the model that transformers printed ("Model config LlamaConfig {"): the last
/// one before the training begins; none: it printed none.
std::optional<PrintedText> logged_model_config(std::string_view text);

/// Whether ms-swift printed the arguments of a run of Megatron ("args: MegatronSftArguments(").
bool has_swift_log(std::string_view text);

/// The arguments that ms-swift printed, as the args.json that it saves. Throws Error(BadInput)
/// where they have no end, or two differ in what makes the run.
PrintedText swift_log_arguments(std::string_view text, std::string_view place);

/// Whether Megatron-Bridge printed its configuration ("------- Task Configuration -------"), or, as
/// since 2026, a summary of it.
bool has_bridge_log(std::string_view text);

/// Whether it printed the summary alone: what differs from the defaults of Megatron Core, and none
/// of the model's words, positions and shared weights.
bool has_bridge_summary(std::string_view text);

/// The configuration, or its summary, as the YAML file that Megatron-Bridge saves. Throws
/// Error(BadInput) where it has no end, two differ, or a value is none of Python's.
PrintedText bridge_log_yaml(std::string_view text, std::string_view place);

/// Whether GPT-NeoX printed its arguments (megatron/neox_arguments/arguments.py, print): a line for
/// each, which ends with "updated" or "default".
bool has_neox_log(std::string_view text);

/// The arguments of a log that are not defaults, as GPT-NeoX's file has them, without those that it
/// works out from others. Throws Error(BadInput) where the block has no end, and with the line of
/// one that differs in what makes the run.
LaunchFile parse_neox_log(std::string_view text, std::string_view place);

}  // namespace pipetwin
