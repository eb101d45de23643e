// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan/arena_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "exec/memory_plan/block_heap.h"

namespace pipetwin::exec {
namespace {

bool overlap(const Block& a, const Block& b) {
    return a.begin < b.end && b.begin < a.end;
}

/// A block begins or ends.
struct Change {
    std::size_t event = 0;
    bool begins = false;  // what ends goes first
    std::size_t block = 0;
};

std::vector<Change> changes_of(std::span<const Block> blocks) {
    std::vector<Change> changes;
    for (std::size_t index = 0; index < blocks.size(); ++index) {
        if (blocks[index].begin < blocks[index].end) {
            changes.push_back({.event = blocks[index].begin, .begins = true, .block = index});
            changes.push_back({.event = blocks[index].end, .begins = false, .block = index});
        }
    }
    std::ranges::sort(changes, {}, [](const Change& change) {
        return std::tuple(change.event, change.begins, change.block);
    });
    return changes;
}

}  // namespace

ArenaLayout lay_out(std::span<const Block> blocks) {
    return blocks.size() <= most_by_size ? lay_out_by_size(blocks) : lay_out_in_order(blocks);
}

ArenaLayout lay_out_in_order(std::span<const Block> blocks) {
    ArenaLayout layout{.offsets = std::vector<std::size_t>(blocks.size()), .extent = 0};
    std::size_t all = 0;
    for (const Block& block : blocks) {
        all += block.bytes;
    }
    BlockHeap heap(all);
    for (const Change& change : changes_of(blocks)) {
        const std::size_t bytes = blocks[change.block].bytes;
        std::size_t& offset = layout.offsets[change.block];
        if (change.begins) {
            offset = heap.take(bytes).value();
            layout.extent = std::max(layout.extent, offset + bytes);
        } else {
            heap.give_back(offset, bytes);
        }
    }
    return layout;
}

ArenaLayout lay_out_by_size(std::span<const Block> blocks) {
    ArenaLayout layout{.offsets = std::vector<std::size_t>(blocks.size()), .extent = 0};
    std::vector<std::size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t index) {
        const Block& block = blocks[index];
        return std::tuple(std::numeric_limits<std::size_t>::max() - block.bytes, block.begin);
    });
    std::vector<std::size_t> placed;  // by offset
    for (const std::size_t index : order) {
        const Block& block = blocks[index];
        std::size_t place = 0;
        std::size_t smallest = std::numeric_limits<std::size_t>::max();
        std::size_t free_from = 0;
        for (const std::size_t other : placed) {
            if (!overlap(block, blocks[other])) {
                continue;
            }
            const std::size_t offset = layout.offsets[other];
            if (offset >= free_from + block.bytes && offset - free_from < smallest) {
                smallest = offset - free_from;
                place = free_from;
            }
            free_from = std::max(free_from, offset + blocks[other].bytes);
        }
        if (smallest == std::numeric_limits<std::size_t>::max()) {
            place = free_from;
        }
        layout.offsets[index] = place;
        layout.extent = std::max(layout.extent, place + block.bytes);
        const auto behind = std::ranges::upper_bound(
            placed, place, {}, [&](std::size_t other) { return layout.offsets[other]; });
        placed.insert(behind, index);
    }
    return layout;
}

std::size_t most_needed(std::span<const Block> blocks) {
    std::size_t now = 0;
    std::size_t most = 0;
    for (const Change& change : changes_of(blocks)) {
        const std::size_t bytes = blocks[change.block].bytes;
        now = change.begins ? now + bytes : now - bytes;
        most = std::max(most, now);
    }
    return most;
}

}  // namespace pipetwin::exec
