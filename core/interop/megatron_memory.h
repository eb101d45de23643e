// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/launch/training_run.h"
#include "core/interop/megatron_flags.h"
#include "core/scenario/choices.h"

/// What Megatron-LM's flags say of what a device keeps, computes again and sends, in the words of a
/// scenario.
namespace pipetwin {

/// Decoder layers of the stage that has most of them; none where --num-layers and the layout are
/// missing. Throws Error(Infeasible) at `place`, naming the flags, where Megatron refuses the
/// split.
std::optional<int> largest_stage(const MegatronFlags& flags, std::string_view place);

/// pipeline.recompute of the flags, pipeline.recompute_blocks and pipeline.recompute_only. The
/// method `block` is of the first layers of each chunk, and of none that predict further tokens
/// (megatron/core/transformer/transformer_block.py, multi_token_prediction.py). Throws as
/// `largest_stage`.
RecomputeWord megatron_recompute(const MegatronFlags& flags, std::string_view place);

/// Modules whose inputs go to host memory.
struct OffloadWords {
    std::vector<std::string_view> modules{};  ///< pipeline.offload_modules
    double fraction = 1;                      ///< pipeline.offload_fraction
    /// What the words say otherwise than the run has it, for a warning; empty: nothing.
    std::string left_out{};

    bool operator==(const OffloadWords&) const = default;
};

/// What --fine-grained-activation-offloading says. Words for what the model has no part of are left
/// out, as Megatron passes over them.
OffloadWords megatron_offload(const MegatronFlags& flags);

/// pipeline.shard of the flags: --use-distributed-optimizer, or the strategy of one of the two
/// kinds of FSDP. Megatron's own, without a strategy, shares weights, as from core 0.19 on.
Shard megatron_shard(const MegatronFlags& flags);

/// training.gradients of the flags; none where weights have four bytes. By default fp32 with
/// --bf16, and two bytes with --fp16 (megatron/training/arguments.py).
std::optional<GradientType> megatron_gradients(const MegatronFlags& flags);

/// training.optimizer_state_bytes of the flags, with --use-precision-aware-optimizer; none where
/// all is in fp32. Copies of bf16 weights in fp32 have the 16 bits alone that the weights do not
/// have, unless Megatron keeps the copies, as with fp8 recipes but for delayed scaling (Transformer
/// Engine from 2.1 on; megatron/core/optimizer).
std::optional<int> megatron_state_bytes(const MegatronFlags& flags);

/// Whether the devices of a rank divide the sequence. Megatron turns --sequence-parallel off where
/// a rank has one device.
bool divides_sequence(const MegatronFlags& flags);

/// Whether a boundary between two stages is there on several devices, whole on each, so that they
/// could send parts of it.
bool has_whole_boundaries(const MegatronFlags& flags);

/// pipeline.scatter_boundaries of the flags. Versions of 2021 and 2022 send parts unless
/// --no-scatter-gather-tensors-in-pipeline is there; since pipelines moved into Megatron core, in
/// March 2023, no version does.
bool scatters_boundaries(const MegatronFlags& flags);

}  // namespace pipetwin
