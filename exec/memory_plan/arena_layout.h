// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pipetwin::exec {

/// A block of memory with the time for which it is needed: from one event of a rank's row up to
/// another, which does not need it any more.
struct Block {
    std::size_t bytes = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
};

/// The places of blocks in one piece of memory. Two that are needed at the same time do not
/// overlap.
struct ArenaLayout {
    std::vector<std::size_t> offsets;  ///< [block]
    std::size_t extent = 0;
};

/// Finds places for all blocks; equal blocks give equal layouts. `bytes` of all blocks are
/// multiples of what they are to be aligned to. Uses `lay_out_by_size` for up to `most_by_size`
/// blocks, else `lay_out_in_order`.
ArenaLayout lay_out(std::span<const Block> blocks);
/// Most blocks that `lay_out` places by their size.
constexpr std::size_t most_by_size = 30'000;

/// Places the largest first, each into the smallest gap between those that are needed at the same
/// time and lie there already; the lowest of several. What is large is hard to place, and what is
/// small fits into what is left. Time grows with the square of the number of blocks: 0.3 s for
/// 15,000.
ArenaLayout lay_out_by_size(std::span<const Block> blocks);

/// Places blocks as a heap would that serves the requests as they come: a little more extent, at
/// once.
ArenaLayout lay_out_in_order(std::span<const Block> blocks);

/// The most bytes that are needed at a time: no layout has a smaller extent.
std::size_t most_needed(std::span<const Block> blocks);

}  // namespace pipetwin::exec
