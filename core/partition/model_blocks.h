// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pipetwin {

/// The repeated blocks of a model, as the names of its layers tell them: "block0.attention",
/// "block0.feed_forward", "block1.attention", ..., or "block0", "block1", ... .
struct ModelBlocks {
    int before = 0;           ///< layers that stand before the first block, such as an embedding
    std::vector<int> layers;  ///< [block]: how many layers it has
    int after = 0;            ///< layers that stand behind the last block, such as a head

    /// Number of blocks.
    int count() const { return static_cast<int>(layers.size()); }

    bool operator==(const ModelBlocks&) const = default;
};

/// The blocks of a model whose layers have these names, in the order of the model. A block is the
/// layers that follow each other under one name with one number, up to a dot; all blocks share the
/// name and are numbered without gaps. Where several names qualify, the one with the most blocks
/// counts. None where no name does, where two have equally many blocks, and where every layer is a
/// block by itself.
std::optional<ModelBlocks> model_blocks(std::span<const std::string> layer_names);

/// Number of layers of each run of neighbours that stand under one name with one number, up to a
/// dot; every other layer is a run by itself.
std::vector<int> neighbours_of_one_name(std::span<const std::string> layer_names);

/// Layers of each piece that holds so many whole blocks: what stands before the blocks joins the
/// first piece, what stands behind them the last. Returns none where the list does not sum to the
/// number of blocks, has a negative entry, or leaves a piece without any layer.
std::optional<std::vector<int>> layers_of_blocks(const ModelBlocks& blocks,
                                                 std::span<const int> blocks_per_piece);

}  // namespace pipetwin
