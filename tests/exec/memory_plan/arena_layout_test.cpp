// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan/arena_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/base/random.h"

namespace pipetwin::exec {
namespace arena_layout_test {

using ::testing::ElementsAre;

/// The claim itself: what is needed at the same time lies apart, within the extent.
void expect_apart(const std::vector<Block>& blocks, const ArenaLayout& layout) {
    ASSERT_EQ(layout.offsets.size(), blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        EXPECT_LE(layout.offsets[i] + blocks[i].bytes, layout.extent);
        for (std::size_t k = i + 1; k < blocks.size(); ++k) {
            if (blocks[i].begin < blocks[k].end && blocks[k].begin < blocks[i].end) {
                EXPECT_TRUE(layout.offsets[i] + blocks[i].bytes <= layout.offsets[k] ||
                            layout.offsets[k] + blocks[k].bytes <= layout.offsets[i])
                    << i << " and " << k;
            }
        }
    }
}

TEST(ArenaLayout, BlocksThatFollowEachOtherShareTheirPlace) {
    const std::vector<Block> blocks{{.bytes = 64, .begin = 0, .end = 2},
                                    {.bytes = 64, .begin = 2, .end = 4},
                                    {.bytes = 64, .begin = 4, .end = 6}};
    const ArenaLayout layout = lay_out(blocks);
    EXPECT_THAT(layout.offsets, ElementsAre(0, 0, 0));
    EXPECT_EQ(layout.extent, 64U);
    EXPECT_EQ(most_needed(blocks), 64U);
}

TEST(ArenaLayout, BlocksAtTheSameTimeLieApart) {
    const std::vector<Block> blocks{{.bytes = 64, .begin = 0, .end = 3},
                                    {.bytes = 128, .begin = 1, .end = 2},
                                    {.bytes = 64, .begin = 2, .end = 3}};
    const ArenaLayout layout = lay_out(blocks);
    expect_apart(blocks, layout);
    EXPECT_EQ(layout.extent, 192U);
    EXPECT_EQ(most_needed(blocks), 192U);
}

TEST(ArenaLayout, WhatIsSmallGoesIntoTheSmallestGap) {
    const std::vector<Block> blocks{{.bytes = 256, .begin = 0, .end = 4},
                                    {.bytes = 192, .begin = 0, .end = 2},
                                    {.bytes = 128, .begin = 0, .end = 4},
                                    {.bytes = 64, .begin = 2, .end = 4}};
    const ArenaLayout layout = lay_out(blocks);
    expect_apart(blocks, layout);
    EXPECT_EQ(layout.extent, 576U);
    EXPECT_EQ(layout.offsets[3], layout.offsets[1]);
}

TEST(ArenaLayout, NothingNeedsNothing) {
    EXPECT_EQ(lay_out({}).extent, 0U);
    EXPECT_EQ(most_needed({}), 0U);
}

TEST(ArenaLayout, NeverOverlapsAndIsNeverSmallerThanWhatIsNeeded) {
    const RandomStream random = RandomStream(1).of(4);
    for (std::uint64_t trial = 0; trial < 200; ++trial) {
        const RandomStream draws = random.of(trial);
        std::vector<Block> blocks(1 + draws.below(0, 40));
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            const std::size_t begin = draws.below(3 * i + 1, 50);
            blocks[i] = {.bytes = 64 * (1 + draws.below(3 * i + 2, 20)),
                         .begin = begin,
                         .end = begin + 1 + draws.below(3 * i + 3, 20)};
        }
        for (const ArenaLayout& layout : {lay_out_by_size(blocks), lay_out_in_order(blocks)}) {
            expect_apart(blocks, layout);
            EXPECT_GE(layout.extent, most_needed(blocks));
        }
    }
}

TEST(ArenaLayout, ManyBlocksAreLaidOutInTheirOrder) {
    std::vector<Block> blocks(most_by_size + 1);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        blocks[i] = {.bytes = 64, .begin = i, .end = i + 3};
    }
    EXPECT_EQ(lay_out(blocks).extent, most_needed(blocks));
}

/// Stashes of one size, kept and freed as gpipe and 1f1b do: nothing is lost between them.
TEST(ArenaLayout, WastesNothingOnStashesOfOneSize) {
    for (const bool descending : {true, false}) {
        std::vector<Block> blocks;
        for (std::size_t m = 0; m < 8; ++m) {
            const std::size_t freed = descending ? 15 - m : 8 + m;
            for (const std::size_t bytes : {64U, 256U, 640U}) {
                blocks.push_back({.bytes = bytes, .begin = m, .end = freed});
            }
        }
        EXPECT_EQ(lay_out(blocks).extent, most_needed(blocks));
    }
}

}  // namespace arena_layout_test
}  // namespace pipetwin::exec
