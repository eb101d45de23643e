// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan/block_heap.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace pipetwin::exec {
namespace block_heap_test {

TEST(BlockHeap, TakesTheSmallestPartThatHoldsTheBlock) {
    BlockHeap heap(100);
    EXPECT_EQ(heap.take(30), 0U);
    EXPECT_EQ(heap.take(10), 30U);
    EXPECT_EQ(heap.take(20), 40U);
    EXPECT_EQ(heap.take(10), 60U);
    heap.give_back(0, 30);
    heap.give_back(40, 20);
    EXPECT_EQ(heap.take(15), 40U);  // 20 bytes are free there, 30 at both ends
    EXPECT_EQ(heap.take(30), 0U);   // of equal ones the first
    EXPECT_EQ(heap.take(31), std::nullopt);
    EXPECT_EQ(heap.free_bytes(), 35U);
    EXPECT_EQ(heap.largest_free(), 30U);
}

TEST(BlockHeap, NeighboursThatAreFreeBecomeOne) {
    BlockHeap heap(90);
    ASSERT_EQ(heap.take(30), 0U);
    ASSERT_EQ(heap.take(30), 30U);
    ASSERT_EQ(heap.take(30), 60U);
    heap.give_back(0, 30);
    heap.give_back(60, 30);
    EXPECT_EQ(heap.largest_free(), 30U);
    heap.give_back(30, 30);
    EXPECT_EQ(heap.largest_free(), 90U);
    EXPECT_THROW(heap.give_back(30, 30), InternalError);
}

// No two blocks share a byte, every byte is either taken or free, and the same requests get the
// same places.
TEST(BlockHeap, KeepsBlocksApartWhateverComesAndGoes) {
    struct Block {
        std::size_t offset;
        std::size_t bytes;
    };
    static constexpr std::size_t size = 5000;
    const auto play = [] {
        std::mt19937 random(7);
        BlockHeap heap(size);
        std::vector<Block> taken;
        std::vector<std::size_t> offsets;
        for (int turn = 0; turn < 5000; ++turn) {
            if (random() % 2 == 0 || taken.empty()) {
                const std::size_t bytes = 1 + random() % 400;
                if (const auto offset = heap.take(bytes)) {
                    taken.push_back({*offset, bytes});
                    offsets.push_back(*offset);
                }
            } else {
                const auto index = static_cast<std::ptrdiff_t>(random() % taken.size());
                heap.give_back(taken[static_cast<std::size_t>(index)].offset,
                               taken[static_cast<std::size_t>(index)].bytes);
                taken.erase(taken.begin() + index);
            }
            std::ranges::sort(taken, {}, &Block::offset);
            std::size_t end = 0;
            std::size_t sum = 0;
            for (const Block& block : taken) {
                EXPECT_GE(block.offset, end);
                end = block.offset + block.bytes;
                sum += block.bytes;
            }
            EXPECT_LE(end, size);
            EXPECT_EQ(heap.free_bytes(), size - sum);
        }
        return offsets;
    };
    EXPECT_EQ(play(), play());
}

}  // namespace block_heap_test
}  // namespace pipetwin::exec
