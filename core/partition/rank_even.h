// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/partition/rank_partition.h"

/// Splits of a chain made better layer by layer.
namespace pipetwin {

/// The split that is as even as can be in layers: the first pieces have one more.
std::vector<int> equal_counts(int layers, int pieces);

/// A split whose score is not worse, and that no boundary moved by one layer makes better, nor a
/// layer taken from a piece of the largest rank to any other piece, whose boundaries between move
/// along.
std::vector<int> evened(const RankChain& chain, std::vector<int> sizes);

/// What `evened` makes of several splits: of equal numbers of layers, and of equal parts of every
/// quantity. The pieces of each are about alike, too. They may exceed limits.
std::vector<std::vector<int>> even_splits(const RankChain& chain);

/// The best of `even_splits`; none where each exceeds a limit.
std::optional<std::vector<int>> searched_split(const RankChain& chain);

}  // namespace pipetwin
