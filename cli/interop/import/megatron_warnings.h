// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/interop/megatron_model.h"
#include "core/interop/megatron_sizes.h"

/// Warnings about what a fragment of Megatron-LM's flags does not say, or says otherwise than a
/// reader of the flags may think. Each is a sentence without a full stop; an empty one: nothing is
/// to be said.
namespace pipetwin::cli {

/// Separate kernels of attention take other time, and keep all scores. `estimates`: costs are
/// estimated, for a device.
std::string attention_warning(const CoreAttention& attention, bool estimates);

/// The last of `count` micro-batches of a pipeline would be a group that Megatron refuses: it takes
/// groups of as many micro-batches as ranks unless a flag says otherwise, and the fragment leaves
/// the size of the groups open.
std::string group_warning(const MegatronFlags& flags,
                          const MegatronSizes& sizes,
                          std::int64_t count);

/// Flags, and missing ones, that no line of the fragment says. What connects nodes follows from the
/// device (cli/interop/import/nodes_of_run.h) where `knows_device`.
std::vector<std::string> unsaid_warnings(const MegatronFlags& flags, bool knows_device);

}  // namespace pipetwin::cli
