// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/interop/launch/setting.h"
#include "core/interop/launch/setting_problems.h"
#include "core/interop/megatron_flags.h"

/// Configurations of programs that split models as Megatron-LM does, in its flags.
namespace pipetwin {

/// A run of nanotron from its YAML file (nanotron/config/config.py): Llama and Qwen 2, without
/// experts. The blocks of the stages are those that nanotron gives them (nanotron/models/base.py).
/// Throws Error(BadInput) and Error(Infeasible) with the place of a setting.
MegatronFlags nanotron_flags(const LaunchFile& file, LeaveOut leave_out);

/// A run of NeMo 1.x from its YAML file, as the launcher has it or as a run dumps it below "cfg":
/// keys with Megatron's meaning under its names, those of the trainer, and references between them.
/// Throws Error(BadInput) with the place of a setting.
MegatronFlags nemo_flags(const LaunchFile& file, LeaveOut leave_out);

/// A run of GPT-NeoX from its YAML file, or several in one: GPTs without experts, on the devices of
/// `file.all_processes` where the file does not say their number. Throws Error(BadInput) and
/// Error(Infeasible) with the place of a setting.
MegatronFlags neox_flags(const LaunchFile& file, LeaveOut leave_out);

/// Whether a file has the number of stages as GPT-NeoX calls it.
bool has_neox_keys(const LaunchFile& file);

/// Whether a text is a configuration of GPT-NeoX.
bool is_neox(std::string_view text);

/// Whether a file has a key of NeMo that says something of a model, its split or its step.
bool has_nemo_keys(const LaunchFile& file);

/// Whether a file has a key of nanotron that says something of a model, its split or its batch.
bool has_nanotron_keys(const LaunchFile& file);

/// Whether a text is a configuration of NeMo 1.x.
bool is_nemo(std::string_view text);

/// Whether a text is a configuration of NeMo 2, which nemo-run wrote.
bool is_nemo2(std::string_view text);

/// Whether a text is a configuration of nanotron.
bool is_nanotron(std::string_view text);

}  // namespace pipetwin
