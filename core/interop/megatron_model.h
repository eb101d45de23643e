// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/profile.h"
#include "core/interop/megatron_flags.h"
#include "core/model/decoder_model.h"

/// What Megatron-LM's flags say about the model and its split, with the rules and defaults of
/// megatron/training/arguments.py and megatron/core/transformer/transformer_block.py.
namespace pipetwin {

/// Sizes that are missing for a model, in words that hold for flags and for keys of a YAML file;
/// empty: all are there.
std::vector<std::string_view> missing_sizes(const MegatronFlags& flags);

/// Rows of the embedding: the vocabulary, padded so that the devices of tensor parallelism share it
/// equally. None where neither the flags nor the name of the tokenizer say it.
std::optional<int> padded_vocabulary(const MegatronFlags& flags);

/// The model that is trained; its vocabulary is `padded_vocabulary`, 1 where that is not known. All
/// sizes that `missing_sizes` asks for are there. Throws Error(BadInput) at `place` for sizes that
/// do not fit each other, naming the flags.
DecoderModel megatron_model(const MegatronFlags& flags, std::string_view place);

/// The first property that a scenario's `kind = "gpt"` cannot say, in words that hold for flags and
/// for keys of a YAML file; empty: it can say all. The model is that of the flags.
std::string more_than_gpt(const MegatronFlags& flags, const DecoderModel& model);

/// Stages that a rank holds: 1, or as many as any of three flags says. Throws Error(Infeasible) at
/// `place`, naming the flags, where stages or layers cannot be shared out.
int megatron_chunks(const MegatronFlags& flags, int ranks, std::string_view place);

/// Throws Error(Infeasible) at `place` for groups of micro-batches that Megatron's interleaved
/// schedule refuses (megatron/core/pipeline_parallel/schedules.py), naming the flag: a group has a
/// micro-batch for each rank and no more than a pipeline has in a step, and so the last one.
/// `micro_batches`: of a pipeline; none: not known. Without the flag, and with one chunk, there is
/// nothing to check.
void check_group_size(const MegatronFlags& flags,
                      int ranks,
                      int chunks,
                      std::optional<std::int64_t> micro_batches,
                      std::string_view place);

/// Decoder layers of every stage, where there is no layout: [chunk * ranks + rank], as the flags of
/// the first and last stage and those that count embedding and loss as layers say; empty where
/// --num-layers is missing. Throws Error(Infeasible) at `place`, naming the flags, where Megatron
/// refuses them.
std::vector<int> megatron_blocks(const MegatronFlags& flags,
                                 int ranks,
                                 int chunks,
                                 std::string_view place);

/// Throws Error(Infeasible) at `place` where a layout has not as many decoder and prediction layers
/// as the flags say, or stands beside flags that split the model, too.
void check_layout(const MegatronFlags& flags, std::string_view place);

/// How a run computes core attention.
struct CoreAttention {
    bool is_standard =
        false;  ///< separate kernels over all scores, which are kept; else fused ones
    /// The flag that says so, or, where none does, what it follows from; empty: nothing to say.
    std::string reason{};
    bool is_certain = true;  ///< false: the flags fit versions that do it otherwise
};

/// Core attention of the flags: --attention-backend, --use-flash-attn, --transformer-impl, and
/// which versions of Megatron-LM have the other flags. Until June 2024 it was standard unless
/// --use-flash-attn or Transformer Engine was asked for.
CoreAttention megatron_attention(const MegatronFlags& flags);

}  // namespace pipetwin
