// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/interop/launch/setting.h"
#include "core/interop/megatron_flags.h"

/// Keys of Primus that it turns into others before Megatron-LM sees them.
namespace pipetwin {

/// Whether the settings are of a Primus experiment.
bool is_primus_run(const LaunchFile& file);

/// Whether Primus gives the key its meaning, which `settle_primus` takes, or reads it only beside
/// another one that is refused here; and keys of Megatron-LM's that it overwrites.
bool is_key_of_primus(std::string_view name);

/// Takes the keys that `is_key_of_primus` names (primus/backends/megatron/patches, version of
/// August 2026): `mock_data` has a vocabulary of its own, `turbo_sync_free_moe_stage` turns others
/// on, and Primus-Turbo's attention has sinks and a window. What has no effect without
/// `enable_primus_turbo` is off without it.
void settle_primus(const LaunchFile& file, MegatronFlags& flags);

}  // namespace pipetwin
