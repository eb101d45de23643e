// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "core/interop/megatron_flags.h"
#include "core/model/decoder_model.h"

/// Blocks of a model that differ from each other, by Megatron-LM's flags.
namespace pipetwin {

/// Sets the attention of all blocks, and which of them have a window or linear attention. Sizes of
/// the flags are there. Throws Error(BadInput) at `place` for sizes that do not fit each other,
/// naming the flags.
void set_megatron_attention(const MegatronFlags& flags,
                            DecoderModel& model,
                            std::string_view place);

/// Which layers have experts, empty ones included: every N-th from the first on, or as a pattern
/// lists them. Throws Error(BadInput) at `place`.
std::vector<bool> megatron_expert_layers(const MegatronFlags& flags, std::string_view place);

/// Takes what belongs to layers that stand for nothing (--noop-layers) out of a list with an entry
/// for each layer.
std::vector<bool> without_empty_layers(const MegatronFlags& flags, const std::vector<bool>& all);

/// Whether --noop-layers names this layer.
bool is_empty_layer(const MegatronFlags& flags, int layer);

/// The adapters that the flags train in place of the weights; none: they train these. By default of
/// rank 8 beside all products of blocks, behind dropout (ms-swift, swift/megatron/arguments).
/// Throws Error(BadInput) at `place` for other products, and for a model whose costs have none.
std::optional<AdapterShape> megatron_adapters(const MegatronFlags& flags,
                                              const DecoderModel& model,
                                              std::string_view place);

/// Whether the blocks of the flags are halves: Mamba-2, attention, a feed-forward half or experts.
bool has_halves(const MegatronFlags& flags);

/// Writes the letters of all layers for flags of models with state spaces, "M*M-", and what stages
/// they say: --num-layers, and where stages are written a layout. Of a ratio they stand evenly
/// (megatron/core/models/hybrid/hybrid_layer_allocation.py, pattern_from_ratios). Throws
/// Error(BadInput) at `place` for other letters, and where --num-layers is missing.
void settle_halves(MegatronFlags& flags, std::string_view place);

/// Makes each block the half that its letter says. The attention of the model is that of blocks
/// which have it. Throws Error(BadInput) at `place`.
void set_halves(const MegatronFlags& flags, DecoderModel& model, std::string_view place);

}  // namespace pipetwin
