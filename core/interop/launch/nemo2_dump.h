// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/interop/launch/setting.h"

namespace pipetwin {

/// Whether the settings are those of a run of NeMo 2, as nemo-run writes them: classes of
/// nemo.collections.llm stand among them.
bool is_nemo2_dump(const LaunchFile& file);

/// Puts such settings into the tables of Megatron-Bridge, whose names they have: what strategy,
/// plugins, data, optimizer and the model's configuration say. The class of the model becomes the
/// name of a published model where it is one of those that come with the program. Throws
/// Error(BadInput) for passes that are repeated before an update.
void settle_nemo2_dump(LaunchFile& file);

}  // namespace pipetwin
