// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/interop/launch/setting_problems.h"
#include "core/interop/megatron_flags.h"

/// Numbers of devices, stages and micro-batches of the run that Megatron-LM's flags speak of.
namespace pipetwin {

/// Devices and stages of a run.
struct MegatronSizes {
    int ranks = 1;                        ///< of a pipeline
    int chunks = 1;                       ///< stages of a rank
    std::optional<int> replicas{};        ///< none: the flags do not say how many GPUs there are
    std::optional<int> shard_group{};     ///< replicas that divide the state; none: all do
    std::vector<std::string> left_out{};  ///< flags that no scenario can say, with LeaveOut::All
};

/// The sizes of the flags. Throws Error(Infeasible) at `place` where Megatron refuses them, and
/// Error(BadInput) where a flag that decides about them is not seen or no scenario can say it.
MegatronSizes megatron_sizes(const MegatronFlags& flags,
                             LeaveOut leave_out,
                             const std::string& place);

/// Samples of a step, over all replicas; none where the flags do not say all that they follow from.
/// Throws Error(Infeasible) at `place` for more than 2^30.
std::optional<int> megatron_batch(const MegatronFlags& flags,
                                  const MegatronSizes& sizes,
                                  const std::string& place);

/// Micro-batches of a pipeline in a step, or of all pipelines where nobody knows how many there
/// are; none where the flags do not say all that they follow from. Throws Error(Infeasible) at
/// `place` where they cannot be shared out.
std::optional<std::int64_t> megatron_micro_batches(const MegatronFlags& flags,
                                                   const MegatronSizes& sizes,
                                                   const std::string& place);

/// Decoder layers of every stage, as the layout or `megatron_blocks` says; empty where neither
/// does. Throws Error(Infeasible) at `place` for a layer m in front of the last stage.
std::vector<int> megatron_stage_blocks(const MegatronFlags& flags,
                                       const MegatronSizes& sizes,
                                       const std::string& place);

}  // namespace pipetwin
