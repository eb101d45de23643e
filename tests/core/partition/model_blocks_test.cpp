// SPDX-License-Identifier: Apache-2.0
#include "core/partition/model_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipetwin {
namespace model_blocks_test {

using ::testing::ElementsAre;

using Names = std::vector<std::string>;

TEST(ModelBlocks, AreTheLayersOfOneNameAndNumber) {
    const std::optional<ModelBlocks> halves = model_blocks(Names{"embedding",
                                                                 "block0.attention",
                                                                 "block0.feed_forward",
                                                                 "block1.attention",
                                                                 "block1.feed_forward",
                                                                 "head"});
    EXPECT_EQ(halves, (ModelBlocks{.before = 1, .layers = {2, 2}, .after = 1}));
    const std::optional<ModelBlocks> uneven =
        model_blocks(Names{"a", "b", "layers.0.x", "layers.0.y", "layers.1", "norm", "out"});
    EXPECT_EQ(uneven, (ModelBlocks{.before = 2, .layers = {2, 1}, .after = 2}));
    EXPECT_EQ(model_blocks(Names{"e", "block0", "h"}),
              (ModelBlocks{.before = 1, .layers = {1}, .after = 1}));
}

/// The last block may be followed by further numbered layers, such as those that predict one token
/// more.
TEST(ModelBlocks, AreThoseOfTheNameThatHasMost) {
    EXPECT_EQ(model_blocks(Names{"embedding", "block0", "block1", "mtp0", "head"}),
              (ModelBlocks{.before = 1, .layers = {1, 1}, .after = 2}));
}

TEST(ModelBlocks, AreNoneWhereNoNameOrMoreThanOneQualifies) {
    EXPECT_EQ(model_blocks(Names{"a", "b", "c"}), std::nullopt);
    EXPECT_EQ(model_blocks(Names{}), std::nullopt);
    // Every layer is a block: layers and blocks are the same.
    EXPECT_EQ(model_blocks(Names{"linear0", "linear1"}), std::nullopt);
    EXPECT_EQ(model_blocks(Names{"linear0", "gelu1", "linear2", "gelu3"}), std::nullopt);
    EXPECT_EQ(model_blocks(Names{"x", "enc0", "enc1", "dec0", "dec1"}), std::nullopt);
    // Gaps, another order, and another layer between two blocks.
    EXPECT_EQ(model_blocks(Names{"e", "block0", "block2", "h"}), std::nullopt);
    EXPECT_EQ(model_blocks(Names{"e", "block1", "block0", "h"}), std::nullopt);
    EXPECT_EQ(model_blocks(Names{"e", "block0", "pool", "block1", "h"}), std::nullopt);
    EXPECT_EQ(model_blocks(Names{"node2", "node4_1x", "node3"}), std::nullopt);
}

TEST(LayersOfBlocks, PutWhatIsOutsideToTheEnds) {
    const ModelBlocks blocks{.before = 1, .layers = {2, 1, 3}, .after = 2};
    EXPECT_THAT(layers_of_blocks(blocks, std::vector{1, 2}).value(), ElementsAre(3, 6));
    EXPECT_THAT(layers_of_blocks(blocks, std::vector{0, 3, 0}).value(), ElementsAre(1, 6, 2));
    EXPECT_THAT(layers_of_blocks(blocks, std::vector{3}).value(), ElementsAre(9));
    EXPECT_EQ(layers_of_blocks(blocks, std::vector{1, 1}), std::nullopt);
    EXPECT_EQ(layers_of_blocks(blocks, std::vector{1, 0, 2}), std::nullopt);
    EXPECT_EQ(layers_of_blocks(blocks, std::vector{4, -1}), std::nullopt);
    EXPECT_EQ(layers_of_blocks(blocks, std::vector<int>{}), std::nullopt);
    EXPECT_EQ(layers_of_blocks({.before = 0, .layers = {1, 1}, .after = 1}, std::vector{0, 2}),
              std::nullopt);
}

TEST(ModelBlocks, NeighboursOfOneNumberedNameAreTogether) {
    EXPECT_EQ(neighbours_of_one_name(Names{"stem",
                                           "cell0.left",
                                           "cell0.right",
                                           "join",
                                           "cell0.sum",
                                           "cell1",
                                           "up12",
                                           "up12.norm",
                                           "head"}),
              (std::vector{1, 2, 1, 1, 1, 2, 1}));
    EXPECT_TRUE(neighbours_of_one_name(Names{}).empty());
}

}  // namespace model_blocks_test
}  // namespace pipetwin
