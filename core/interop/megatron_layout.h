// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/partition/partition.h"
#include "core/schedule/schedule.h"

/// Megatron-LM's `--pipeline-model-parallel-layout`: which layers every stage holds, as in
/// "Et*3|(tt|)*29,m|L".
namespace pipetwin {

/// The letters of every stage in model order: E embedding, t decoder layer, m
/// multi-token-prediction layer, L loss. Stage index = chunk * ranks + rank. A stage may be empty.
struct MegatronLayout {
    std::vector<std::string> stages;

    bool operator==(const MegatronLayout&) const = default;
};

/// The most letters and stage ends that a layout may have once its repetitions are written out.
constexpr std::size_t largest_layout = 262'144;

/// Reads the string. `*n` repeats the letter, the `|` or the ( ) group before it; groups do not
/// nest; commas mean nothing. Throws Error(BadInput) with place:1:column, what was found and what
/// was expected; for a layout that Megatron would refuse (E not first, L not last, either of them
/// twice, t after m, m on two stages) with the stage.
MegatronLayout parse_megatron_layout(std::string_view text, std::string_view place);

/// Reads the same written as lists of words, as files of Megatron-Bridge have it:
/// [["embedding", "decoder"], ["decoder", "mtp", "loss"]]. Throws as `parse_megatron_layout`.
MegatronLayout parse_megatron_layout_lists(std::string_view text, std::string_view place);

/// parse(print(x)) = x. Three and more of a letter, or of a stage, are written as a repetition.
std::string print_megatron_layout(const MegatronLayout& layout);

/// The layout of a gpt (units of `gpt_model`) that is cut like this. Throws Error(Infeasible),
/// naming the stage, where a cut goes through a block or a stage is not on the rank where Megatron
/// puts it, stage mod ranks; or where the model is there twice (chimera).
MegatronLayout megatron_layout(const Partition& partition, const Schedule& schedule);

/// Unit that the numbers of a partition count.
enum class LayoutUnit {
    Blocks,     ///< whole blocks; the embedding joins the first stage, the head the last
    AllLayers,  ///< letters: for models with layers for E, m and L
};

/// A partition as the scenario's pipeline.partition writes it, and the unit of its numbers.
struct LayoutPartition {
    LayoutUnit unit = LayoutUnit::Blocks;
    std::vector<int> sizes;     ///< one per stage, in the form of the scenario's pipeline.partition
    int decoder_layers = 0;     ///< how many t there are
    int prediction_layers = 0;  ///< how many m there are

    bool operator==(const LayoutPartition&) const = default;
};

/// The partition that the layout describes. Throws Error(Infeasible), naming the stage, where one
/// is empty: a stage of ours holds a layer at least.
LayoutPartition layout_partition(const MegatronLayout& layout);

}  // namespace pipetwin
