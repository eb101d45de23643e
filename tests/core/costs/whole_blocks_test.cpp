// SPDX-License-Identifier: Apache-2.0
#include "core/costs/whole_blocks.h"

#include <gmock/gmock.h>

#include "core/interop/torchtitan.h"
#include "core/model/model.h"
#include "core/plan/stage_costs.h"
#include "tests/support/scenario_plans.h"

namespace pipetwin {
namespace whole_blocks_test {

using ::testing::ElementsAre;
using testing::layer;

/// Two blocks; every size is another, so that no sum is right by accident.
Profile halves() {
    Profile profile;
    profile.layers.push_back(layer("embedding", 3, 7, 11));
    profile.layers.push_back(layer("block0.attention", 13, 17, 19));
    profile.layers.push_back(layer("block0.feed_forward", 23, 29, 31));
    profile.layers.push_back(layer("block1.attention", 37, 41, 43));
    profile.layers.push_back(layer("block1.feed_forward", 47, 53, 59));
    profile.layers.push_back(layer("head", 61, 0, 67));
    for (LayerCost& one : profile.layers) {
        one.samples.front().split = Bytes{static_cast<std::int64_t>(one.name.size())};
    }
    return profile;
}

std::vector<std::string> names_of(const Profile& profile) {
    std::vector<std::string> names;
    for (const LayerCost& one : profile.layers) {
        names.push_back(one.name);
    }
    return names;
}

Model model_of(const Profile& profile) {
    std::vector<Model::Named> layers;
    for (const std::string& name : names_of(profile)) {
        layers.push_back({.name = name});
    }
    return Model::opaque(layers);
}

/// Two devices share both halves, and four only one of them.
TEST(WholeBlocks, HaveTheSharesThatAreKnownOfBothHalves) {
    Profile profile = halves();
    const auto shared = [](int forward, std::vector<int> sizes) {
        std::vector<LayerSample> samples;
        for (const int size : sizes) {
            samples.push_back({.micro_batch_size = size,
                               .forward = Duration(forward),
                               .output = Bytes{5},
                               .saved = Bytes{forward},
                               .input_saved = Bytes{forward - 1},
                               .unread_gradient = Bytes{3},
                               .core_saved = Bytes{forward - 2},
                               .whole_saved = Bytes{forward - 3}});
        }
        return samples;
    };
    profile.layers[1].shared = {{2, shared(10, {1, 16})}, {4, shared(6, {1})}, {8, shared(5, {1})}};
    profile.layers[2].shared = {{2, shared(20, {1, 16})}, {8, shared(5, {2})}};
    const Profile whole = with_whole_blocks(profile);
    ASSERT_EQ(whole.layers[1].shared.size(), 1U);
    const LayerSample block = cost_at(whole.layers[1], 16, 2);
    EXPECT_EQ(block.forward, Duration(10 + 20));
    EXPECT_EQ(block.saved, Bytes{10 + 20});
    EXPECT_EQ(block.input_saved, Bytes{9 + 19});
    // W reads 2 of the 5 bytes of the gradient between the two halves. The gradient of the block's
    // output is that of the second half's.
    EXPECT_EQ(block.split, Bytes{5 - 3});
    EXPECT_EQ(block.unread_gradient, Bytes{3});
    EXPECT_EQ(block.core_saved, Bytes{8 + 18});
    EXPECT_EQ(block.whole_saved, Bytes{7 + 17});
    EXPECT_EQ(whole.layers[1].tensor_sums, 2);  // Shoeybi et al., section 3: two each way
    EXPECT_EQ(whole.layers[0].tensor_sums, 1);
}

TEST(WholeBlocks, AreOneLayerForTwoHalves) {
    const Profile profile = with_whole_blocks(halves());
    EXPECT_THAT(names_of(profile), ElementsAre("embedding", "block0", "block1", "head"));
    EXPECT_EQ(transformer_blocks(names_of(profile)), 2);
    EXPECT_EQ(with_whole_blocks(profile), profile);
}

// A stage of whole blocks is the same stage, whichever way its layers are counted.
TEST(WholeBlocks, CostAStageWhatTheirHalvesDo) {
    const Profile whole = with_whole_blocks(halves());
    const LayerSamples of_halves = samples_at(halves(), 1);
    const LayerSamples of_blocks = samples_at(whole, 1);
    const Model model = model_of(halves());
    const Model block_model = model_of(whole);
    const StageCosts expected(model, of_halves);
    const StageCosts found(block_model, of_blocks);
    struct Range {
        int first;
        int end;
    };
    const std::vector<Range> in_halves{{0, 3}, {1, 3}, {1, 5}, {3, 6}, {0, 6}};
    const std::vector<Range> in_blocks{{0, 2}, {1, 2}, {1, 3}, {2, 4}, {0, 4}};
    for (std::size_t i = 0; i < in_halves.size(); ++i) {
        const StageCost a = expected.of(in_halves[i].first, in_halves[i].end);
        const StageCost b = found.of(in_blocks[i].first, in_blocks[i].end);
        EXPECT_EQ(b.forward, a.forward);
        EXPECT_EQ(b.backward, a.backward);
        EXPECT_EQ(b.backward_input, a.backward_input);
        EXPECT_EQ(b.backward_weight, a.backward_weight);
        EXPECT_EQ(b.input, a.input);
        EXPECT_EQ(b.output, a.output);
        EXPECT_EQ(b.saved, a.saved);
        EXPECT_EQ(b.split, a.split);
        EXPECT_GE(b.forward_drop_peak, a.forward_drop_peak);  // one layer at a time
    }
}

TEST(WholeBlocks, ArePlacedWhereTheirHalvesWouldBe) {
    const Profile whole = with_whole_blocks(halves());
    EXPECT_EQ(partition_in_halves(Partition({2, 2}, 4), names_of(whole)), Partition({3, 3}, 6));
    EXPECT_EQ(partition_in_halves(Partition({1, 2, 1}, 4), names_of(whole)),
              Partition({1, 4, 1}, 6));
    EXPECT_EQ(partition_in_halves(Partition({4}, 4), names_of(whole)), Partition({6}, 6));
    EXPECT_EQ(partition_in_halves(Partition({2, 4}, 6), names_of(halves())), Partition({2, 4}, 6));
}

}  // namespace whole_blocks_test
}  // namespace pipetwin
