// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan/block_heap.h"

#include <iterator>

#include "core/base/error.h"

namespace pipetwin::exec {

BlockHeap::BlockHeap(std::size_t bytes) {
    if (bytes > 0) {
        insert(0, bytes);
    }
}

std::optional<std::size_t> BlockHeap::take(std::size_t bytes) {
    PIPETWIN_EXPECT(bytes > 0, "a block has bytes");
    const auto found = by_size_.lower_bound({bytes, 0});
    if (found == by_size_.end()) {
        return std::nullopt;
    }
    const auto [size, offset] = *found;
    erase(by_offset_.find(offset));
    if (size > bytes) {
        insert(offset + bytes, size - bytes);
    }
    return offset;
}

void BlockHeap::give_back(std::size_t offset, std::size_t bytes) {
    const auto next = by_offset_.lower_bound(offset);
    PIPETWIN_EXPECT(next == by_offset_.end() || offset + bytes <= next->first,
                    "a block is given back once");
    if (next != by_offset_.end() && next->first == offset + bytes) {
        bytes += next->second;
        erase(next);
    }
    const auto behind = by_offset_.lower_bound(offset);
    if (behind != by_offset_.begin()) {
        const auto before = std::prev(behind);
        PIPETWIN_EXPECT(before->first + before->second <= offset, "a block is given back once");
        if (before->first + before->second == offset) {
            offset = before->first;
            bytes += before->second;
            erase(before);
        }
    }
    insert(offset, bytes);
}

void BlockHeap::insert(std::size_t offset, std::size_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
    free_bytes_ += bytes;
}

void BlockHeap::erase(Parts::iterator part) {
    by_size_.erase({part->second, part->first});
    free_bytes_ -= part->second;
    by_offset_.erase(part);
}

}  // namespace pipetwin::exec
