// SPDX-License-Identifier: Apache-2.0
#include "core/plan/stage_costs.h"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/partition/partition.h"
#include "core/plan/layer_recompute.h"
#include "tests/support/error_of.h"

/// From samples of layers to costs of stages, with parts that are computed again.
namespace pipetwin {
namespace stage_costs_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Pair;

Model chain_of(const std::vector<std::string>& names) {
    std::vector<Model::Named> named;
    for (const std::string& name : names) {
        named.push_back({.name = name});
    }
    return Model::opaque(named);
}

/// Two blocks between an embedding and a head.
Model two_blocks() {
    return chain_of({"embedding",
                     "block0.attention",
                     "block0.feed_forward",
                     "block1.attention",
                     "block1.feed_forward",
                     "head"});
}

/// One digit for each layer:
///
///     layer       0     1      2      3      4      5
///     forward     1    20     30     20     30    400
///     input       2 of the model, else 10
///     output     10    10     10     10     10      0
///     saved       2   110    210    110    210   1000
///
/// A half of a block whose core attention has 7 ns and 60 bytes; I gives back 50 of its bytes.
LayerSamples block_samples() {
    const LayerSample attention{.forward = Duration(20),
                                .backward_input = Duration(25),
                                .backward_weight = Duration(15),
                                .output = Bytes{10},
                                .saved = Bytes{110},
                                .split = Bytes{4},
                                .input_saved = Bytes{50},
                                .core_forward = Duration(7),
                                .core_saved = Bytes{60}};
    const LayerSample feed_forward{.forward = Duration(30),
                                   .backward_input = Duration(35),
                                   .backward_weight = Duration(32),
                                   .output = Bytes{10},
                                   .saved = Bytes{210},
                                   .split = Bytes{8}};
    return {{.forward = Duration(1), .input = Bytes{2}, .output = Bytes{10}, .saved = Bytes{2}},
            attention,
            feed_forward,
            attention,
            feed_forward,
            {.forward = Duration(400), .backward_input = Duration(450), .saved = Bytes{1000}}};
}

// --- Layers that are computed again. ---

TEST(LayerRecompute, NoneChangesNothing) {
    EXPECT_EQ(with_layer_recompute(two_blocks(), block_samples(), {.mode = LayerRecompute::None}),
              block_samples());
}

TEST(LayerRecompute, SelectiveKeepsAllButCoreAttention) {
    const LayerSamples before = block_samples();
    const LayerSamples samples =
        with_layer_recompute(two_blocks(), before, {.mode = LayerRecompute::Selective});
    for (const std::size_t layer : {1U, 3U}) {
        EXPECT_EQ(samples[layer].saved, Bytes{110 - 60});
        EXPECT_EQ(samples[layer].rebuilt, Bytes{60});
        EXPECT_EQ(samples[layer].backward_input, Duration(25 + 7));
        EXPECT_EQ(samples[layer].backward_weight, Duration(15));
        EXPECT_EQ(samples[layer].forward, Duration(20));
        EXPECT_FALSE(samples[layer].rebuilt_with_next);
    }
    for (const std::size_t layer : {0U, 2U, 4U, 5U}) {
        EXPECT_EQ(samples[layer], before[layer]);
    }
}

TEST(LayerRecompute, SelectiveNeedsNoBlocks) {
    const LayerSamples samples = with_layer_recompute(chain_of({"a", "b", "c", "d", "e", "f"}),
                                                      block_samples(),
                                                      {.mode = LayerRecompute::Selective});
    EXPECT_EQ(samples[1].saved, Bytes{50});
}

/// 12 of 30 ns of the layer that ends a block make nothing that is read again; of the first layer's
/// output the second one's backward needs all.
TEST(LayerRecompute, ThatStopsEarlyLeavesOutTheEndOfABlock) {
    LayerSamples before = block_samples();
    before[1].tail_forward = before[3].tail_forward = Duration(5);
    before[2].tail_forward = before[4].tail_forward = Duration(12);
    LayerRecomputeRules rules{.mode = LayerRecompute::Block};
    LayerSamples whole = with_layer_recompute(two_blocks(), before, rules);
    EXPECT_EQ(whole[2].backward_input, Duration(35 + 30));
    rules.stops_early = true;
    const LayerSamples early = with_layer_recompute(two_blocks(), before, rules);
    whole[2].backward_input = whole[4].backward_input = Duration(35 + 30 - 12);
    EXPECT_EQ(early, whole);
    // With two blocks to a group the second one reads what the first makes to its end.
    rules.blocks = 2;
    EXPECT_EQ(with_layer_recompute(two_blocks(), before, rules)[2].backward_input,
              Duration(35 + 30));
}

/// The first layer of a block keeps what it reads (10), the second nothing. Embedding and head stay
/// as they are.
TEST(LayerRecompute, BlockKeepsTheInputOfABlock) {
    const LayerSamples before = block_samples();
    const LayerSamples samples =
        with_layer_recompute(two_blocks(), before, {.mode = LayerRecompute::Block});
    for (const std::size_t first : {1U, 3U}) {
        EXPECT_EQ(samples[first].saved, Bytes{10});
        EXPECT_EQ(samples[first].rebuilt, Bytes{100});
        EXPECT_EQ(samples[first].backward_input, Duration(25 + 20));
        EXPECT_TRUE(samples[first].rebuilt_with_next);
        EXPECT_EQ(samples[first + 1].saved, Bytes{0});
        EXPECT_EQ(samples[first + 1].rebuilt, Bytes{210});
        EXPECT_EQ(samples[first + 1].backward_input, Duration(35 + 30));
        EXPECT_FALSE(samples[first + 1].rebuilt_with_next);
    }
    EXPECT_EQ(samples[0], before[0]);
    EXPECT_EQ(samples[5], before[5]);
}

TEST(LayerRecompute, BlocksHaveToBeTold) {
    const Error error = error_of([] {
        with_layer_recompute(chain_of({"a", "b", "c", "d", "e", "f"}),
                             block_samples(),
                             {.mode = LayerRecompute::Block});
    });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_THAT(error.place(), HasSubstr("pipeline.recompute"));
    EXPECT_THAT(error.text(), HasSubstr("show no blocks"));
}

// --- Stages of them. ---

/// First and end of each group.
std::vector<std::pair<int, int>> groups_of(const std::vector<LayerRange>& blocks,
                                           LayerRange stage,
                                           int together) {
    std::vector<std::pair<int, int>> groups;
    for (const LayerRange& group : block_groups(blocks, stage, together)) {
        groups.emplace_back(group.first, group.end);
    }
    return groups;
}

/// Both blocks. F: at the second block's feed-forward the inputs of both blocks (10 + 10), and what
/// it drops with its output (210 + 10). B: the inputs of both, all of one block (100 + 210), the
/// gradient of its output (10), and its output made again (10).
TEST(StageCosts, WholeBlocksKeepTheirInputs) {
    const Model model = two_blocks();
    const LayerSamples samples =
        with_layer_recompute(model, block_samples(), {.mode = LayerRecompute::Block});
    const StageCost cost = StageCosts(model, samples).of(1, 5);
    EXPECT_EQ(cost.input, Bytes{10});
    EXPECT_EQ(cost.output, Bytes{10});
    EXPECT_EQ(cost.saved, Bytes{10 + 10});
    EXPECT_EQ(cost.forward, Duration(100));
    EXPECT_EQ(cost.backward_input, Duration(2 * (25 + 35) + 100));
    EXPECT_EQ(cost.backward_weight, Duration(2 * (15 + 32)));
    EXPECT_EQ(cost.backward, cost.backward_input + cost.backward_weight);
    EXPECT_EQ(cost.forward_peak, Bytes{20 + 210 + 10});
    EXPECT_EQ(cost.backward_peak, Bytes{20 + 100 + 210 + 10 + 10});
    // All of that but both inputs, and the gradient of the output, which came as a message.
    EXPECT_EQ(cost.backward_again, Bytes{100 + 210 + 10});
}

/// Both blocks together. F: the first block's input (10), at the second block's feed-forward what
/// it drops with its output (210 + 10). B: the input, all else of both blocks, whose second has its
/// input again (100 + 210 + 110 + 210), the gradient of the output (10), and the output made again
/// (10).
TEST(StageCosts, BlocksThatAreComputedAgainTogetherKeepOneInput) {
    const Model model = two_blocks();
    for (const int together : {2, 3, 100}) {
        const LayerSamples samples = with_layer_recompute(
            model, block_samples(), {.mode = LayerRecompute::Block, .blocks = together});
        const StageCosts costs(model, samples);
        const StageCost cost = costs.of(1, 5);
        EXPECT_EQ(cost.saved, Bytes{10});
        EXPECT_EQ(cost.forward, Duration(100));
        EXPECT_EQ(cost.backward_input, Duration(2 * (25 + 35) + 100));
        EXPECT_EQ(cost.backward_weight, Duration(2 * (15 + 32)));
        EXPECT_EQ(cost.forward_peak, Bytes{10 + 210 + 10});
        EXPECT_EQ(cost.backward_peak, Bytes{10 + 100 + 210 + 110 + 210 + 10 + 10});
        // At the second attention's I: its 10 bytes of input, gradients of its output and input (10
        // each), its own 4, all up to it (100 + 210 + 110), and what W reads of the feed-forward
        // behind it (210 + 8) with the gradient of its output (10).
        EXPECT_EQ(cost.backward_input_peak, Bytes{10 + 420 + 20 + 4 + 218 + 10});
        EXPECT_EQ(cost.backward_again, Bytes{100 + 210 + 110 + 210 + 10});
        // Until W: the layers' own, gradients of three inner outputs, and what W reads.
        EXPECT_EQ(cost.split, Bytes{2 * (4 + 8) + 3 * 10 + 50 + 210 + 60 + 210});
        // A stage counts its own blocks: one alone is a group.
        EXPECT_EQ(costs.of(3, 5).saved, Bytes{10});
        EXPECT_EQ(costs.of(3, 5).backward_peak, Bytes{10 + 100 + 210 + 10 + 10});
        // The rest of block 0 begins the group; the stage's input is part of what is saved.
        EXPECT_EQ(costs.of(2, 5).saved, Bytes{10});
        EXPECT_EQ(costs.of(2, 5).backward_peak, Bytes{10 + 200 + 110 + 210 + 10 + 10});
    }
}

/// Five blocks in groups of n keep ceil(5 / n) inputs of 10 bytes, and a backward has n blocks
/// again (320 bytes each) beside the inputs of the groups before its own.
TEST(StageCosts, EveryNthBlockKeepsItsInput) {
    std::vector<std::string> names{"embedding"};
    LayerSamples plain{block_samples().front()};
    for (int block = 0; block < 5; ++block) {
        names.push_back("block" + std::to_string(block));
        plain.push_back({.forward = Duration(50), .output = Bytes{10}, .saved = Bytes{320}});
    }
    names.emplace_back("head");
    plain.push_back(block_samples().back());
    const Model model = chain_of(names);
    for (int together = 1; together <= 6; ++together) {
        const LayerSamples samples =
            with_layer_recompute(model, plain, {.mode = LayerRecompute::Block, .blocks = together});
        const StageCosts costs(model, samples);
        const StageCost five = costs.of(1, 6);
        EXPECT_EQ(five.saved, Bytes{10 * ((5 + together - 1) / together)}) << together;
        Bytes most;
        for (int first = 0; first < 5; first += together) {
            const int blocks = std::min(together, 5 - first);
            const int groups_before = first / together;
            most = std::max(most, Bytes{10 * groups_before + 320 * blocks + 10 + 10});
        }
        EXPECT_EQ(five.backward_peak, most) << together;
        // A bound of a stage may add up what its layers save.
        for (int first = 0; first < 7; ++first) {
            Bytes sum;
            for (int end = first + 1; end <= 7; ++end) {
                sum += samples[static_cast<std::size_t>(end - 1)].saved;
                EXPECT_LE(sum, costs.of(first, end).saved) << together;
            }
        }
    }
}

TEST(BlockGroups, CountFromTheStagesFirstBlock) {
    const std::vector<LayerRange> blocks{{1, 3}, {3, 5}, {5, 7}, {7, 9}};
    EXPECT_THAT(groups_of(blocks, {0, 10}, 1),
                ElementsAre(Pair(1, 3), Pair(3, 5), Pair(5, 7), Pair(7, 9)));
    EXPECT_THAT(groups_of(blocks, {0, 10}, 3), ElementsAre(Pair(1, 7), Pair(7, 9)));
    EXPECT_THAT(groups_of(blocks, {0, 10}, 5), ElementsAre(Pair(1, 9)));
    // Half of the second block, the third, and half of the fourth.
    EXPECT_THAT(groups_of(blocks, {4, 8}, 2), ElementsAre(Pair(0, 3), Pair(3, 4)));
    EXPECT_THAT(groups_of(blocks, {9, 10}, 2), ElementsAre());
}

/// A stage that begins with block 0's feed-forward keeps its own input (10), which is part of what
/// the layer saves (210), and block 1's.
TEST(StageCosts, AStageThatBeginsInsideOfABlockKeepsItsInput) {
    const Model model = two_blocks();
    const LayerSamples samples =
        with_layer_recompute(model, block_samples(), {.mode = LayerRecompute::Block});
    const StageCosts costs(model, samples);
    EXPECT_EQ(costs.of(2, 3).saved, Bytes{10});
    EXPECT_EQ(costs.of(2, 3).forward_peak, Bytes{210 + 10});
    EXPECT_EQ(costs.of(2, 3).backward_peak, Bytes{210 + 10 + 10});
    EXPECT_EQ(costs.of(2, 5).saved, Bytes{10 + 10});
    // The last layer's B has the whole of block 1 again beside both inputs.
    EXPECT_EQ(costs.of(2, 5).backward_peak, Bytes{10 + 10 + 100 + 210 + 10 + 10});
    // The stage before it ends inside of the block, and has no more than the input of that.
    EXPECT_EQ(costs.of(0, 2).saved, Bytes{2 + 10});
}

/// What is kept and what is computed again are together what is saved without recompute.
TEST(StageCosts, RecomputeOfBlocksHoldsNoMoreInABackwardOfOneBlock) {
    const Model model = two_blocks();
    const LayerSamples plain = block_samples();
    const LayerSamples again = with_layer_recompute(model, plain, {.mode = LayerRecompute::Block});
    for (int first = 0; first < 6; ++first) {
        for (int end = first + 1; end <= 6; ++end) {
            const StageCost all = StageCosts(model, plain).of(first, end);
            const StageCost less = StageCosts(model, again).of(first, end);
            EXPECT_LE(less.saved, all.saved) << first << " to " << end;
            EXPECT_EQ(less.forward, all.forward);
            EXPECT_GE(less.backward_peak, less.saved);
            EXPECT_LE(less.backward_peak, all.backward_peak + Bytes{10}) << first << " to " << end;
        }
    }
}

/// Attention: 50 of 110 bytes go with I. Gradients of inner outputs (10 each), and 4 and 8 bytes
/// of the layers' own, are added until W.
TEST(StageCosts, InputSavedIsASum) {
    const Model model = two_blocks();
    const LayerSamples samples = block_samples();
    const StageCost cost = StageCosts(model, samples).of(1, 5);
    EXPECT_EQ(cost.saved, Bytes{2 * (110 + 210)});
    EXPECT_EQ(cost.input_saved, Bytes{2 * 50});
    EXPECT_EQ(cost.split, Bytes{2 * (4 + 8) + 3 * 10});
    EXPECT_EQ(cost.forward_peak, Bytes{0});  // no more than saved and output
}

/// What I holds, counted tensor by tensor on its way from the last layer to the first.
struct InputHalf {
    Bytes peak;
    Bytes left;  ///< for W, and the gradient of the stage's input
};

InputHalf walk_input_half(const Model& model,
                          const LayerSamples& plain,
                          const std::vector<LayerRange>& groups,
                          LayerRange stage,
                          const StageCost& cost) {
    const auto plain_of = [&](int layer) { return plain[static_cast<std::size_t>(layer)]; };
    Bytes live = cost.saved + cost.output;
    Bytes peak;
    for (int layer = stage.end - 1; layer >= stage.first; --layer) {
        for (const LayerRange& group : groups) {
            if (group.end + stage.first == layer + 1) {
                const int first = group.first + stage.first;
                live -= std::min(input_gradient(model, plain, first), plain_of(first).saved);
                for (int again = first; again <= layer; ++again) {
                    live += plain_of(again).saved;
                }
                peak = std::max(peak, live + plain_of(layer).output);
            }
        }
        live += plain_of(layer).split + input_gradient(model, plain, layer);
        peak = std::max(peak, live);
        live -= plain_of(layer).input_saved + plain_of(layer).unread_gradient;
    }
    return {.peak = peak, .left = live};
}

/// Bytes by bytes for chains of five blocks of two layers whose sizes are drawn, for every stage of
/// them, without recompute and with groups of one to three blocks.
TEST(StageCosts, InputHalfHoldsWhatItHasNotGivenBack) {
    std::mt19937 random(7);
    const auto below = [&random](int end) {
        return Bytes{static_cast<std::int64_t>(random() % static_cast<unsigned>(end))};
    };
    std::vector<std::string> names{"embedding"};
    for (int block = 0; block < 5; ++block) {
        names.push_back("block" + std::to_string(block) + ".attention");
        names.push_back("block" + std::to_string(block) + ".feed_forward");
    }
    names.emplace_back("head");
    const Model model = chain_of(names);
    for (int round = 0; round < 20; ++round) {
        LayerSamples plain;
        for (std::size_t layer = 0; layer < names.size(); ++layer) {
            const Bytes output = Bytes{10};
            const Bytes saved = Bytes{10} + below(100);
            const bool reads_gradient = below(2) == Bytes{};
            plain.push_back({.output = output,
                             .saved = saved,
                             .split = below(50),
                             .input_saved = below(static_cast<int>(saved.count) + 1),
                             .unread_gradient = reads_gradient ? Bytes{} : output});
        }
        plain.front().input = Bytes{4};
        plain.back().output = plain.back().unread_gradient = Bytes{};
        for (int together = 0; together <= 3; ++together) {
            const LayerSamples samples =
                together == 0
                    ? plain
                    : with_layer_recompute(
                          model, plain, {.mode = LayerRecompute::Block, .blocks = together});
            for (int first = 0; first < model.layer_count(); ++first) {
                for (int end = first + 1; end <= model.layer_count(); ++end) {
                    const StageCost cost = StageCosts(model, samples).of(first, end);
                    const LayerRange stage{.first = first, .end = end};
                    const auto groups =
                        together == 0 ? std::vector<LayerRange>{}
                                      : block_groups(recomputed_blocks(model), stage, together);
                    const InputHalf found = walk_input_half(model, plain, groups, stage, cost);
                    EXPECT_EQ(cost.backward_input_peak, found.peak) << first << " to " << end;
                    EXPECT_EQ(cost.saved + cost.split - cost.input_saved + cost.output -
                                  cost.unread_gradient + (first > 0 ? cost.input : Bytes{}),
                              found.left)
                        << first << " to " << end;
                }
            }
        }
    }
}

/// What I alone reads is never kept where it is computed again: of attention's 100 bytes 50 are
/// there for W.
TEST(StageCosts, WhatWReadsOfABlockIsThereUntilW) {
    const Model model = two_blocks();
    const LayerSamples samples =
        with_layer_recompute(model, block_samples(), {.mode = LayerRecompute::Block});
    const StageCost cost = StageCosts(model, samples).of(1, 3);
    EXPECT_EQ(cost.input_saved, Bytes{0});
    EXPECT_EQ(cost.split, Bytes{4 + 50 + 8 + 210 + 10});
}

/// Two layers of 1,040 bytes in fp32, 640 of which are routed experts on two devices. Four replicas
/// divide the other 400 of each, and two the 320 of experts. Gathered are the weights of two
/// layers, with the gradient of one: 3 x 400 and 3 x 320.
TEST(StageStates, ExpertsThatAreGatheredNeedRoomBesideOtherWeights) {
    const LayerParameters layer{.parameters = Bytes{1040}, .experts = Bytes{640}};
    const ModelParameters weights{.precision = "fp32", .layers = {layer, layer}};
    const auto divided_by = [](int replicas) {
        return StateShards{.weights = replicas, .gradients = replicas, .optimizer = replicas};
    };
    WeightRules rules{.shards = divided_by(4)};
    rules.experts = ExpertRules{.devices = 2, .shards = divided_by(2)};
    const StageState state = stage_states(weights, {}, Partition({2}, 2), rules).front();
    EXPECT_EQ(state.weights, Bytes{2 * (400 / 4 + 320 / 2)});
    EXPECT_EQ(state.gathered, Bytes{3 * 400 + 3 * 320});
}

}  // namespace stage_costs_test
}  // namespace pipetwin
