// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/interop/launch/setting.h"

namespace pipetwin {

/// Whether the settings of a YAML file are all of a run, as Megatron-Bridge prints and saves them:
/// its class stands at the top.
bool is_bridge_dump(const LaunchFile& file);

/// Makes plain settings of the objects in such a file: types of numbers ("torch.bfloat16" becomes
/// bf16), kernels of attention, the function of the feed-forward half. Functions, timers and
/// tokenizers say nothing, and the class of the model nothing that its keys do not say. The tokens
/// of a sample are those of the data, with a note where the model says others, and its words those
/// of the model where it says them.
void settle_bridge_dump(LaunchFile& file);

}  // namespace pipetwin
