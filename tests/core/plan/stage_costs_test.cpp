#include "core/plan/stage_costs.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/plan/layer_recompute.h"
#include "tests/support/error_of.h"

/// From samples of layers to costs of stages, with parts that are computed again.
namespace pipetwin {
namespace stage_costs_test {

using testing::error_of;
using ::testing::HasSubstr;

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
    EXPECT_EQ(with_layer_recompute(two_blocks(), block_samples(), LayerRecompute::None),
              block_samples());
}

TEST(LayerRecompute, SelectiveKeepsAllButCoreAttention) {
    const LayerSamples before = block_samples();
    const LayerSamples samples =
        with_layer_recompute(two_blocks(), before, LayerRecompute::Selective);
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
    const LayerSamples samples = with_layer_recompute(
        chain_of({"a", "b", "c", "d", "e", "f"}), block_samples(), LayerRecompute::Selective);
    EXPECT_EQ(samples[1].saved, Bytes{50});
}

/// The first layer of a block keeps what it reads (10), the second nothing. Embedding and head stay
/// as they are.
TEST(LayerRecompute, BlockKeepsTheInputOfABlock) {
    const LayerSamples before = block_samples();
    const LayerSamples samples = with_layer_recompute(two_blocks(), before, LayerRecompute::Block);
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
        with_layer_recompute(
            chain_of({"a", "b", "c", "d", "e", "f"}), block_samples(), LayerRecompute::Block);
    });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_THAT(error.place(), HasSubstr("pipeline.recompute"));
    EXPECT_THAT(error.text(), HasSubstr("tell no blocks"));
}

// --- Stages of them. ---

/// Both blocks. F: at the second block's feed-forward the inputs of both blocks (10 + 10), and what
/// it drops with its output (210 + 10). B: the inputs of both, all of one block (100 + 210), the
/// gradient of its output (10), and its output made again (10).
TEST(StageCosts, WholeBlocksKeepTheirInputs) {
    const Model model = two_blocks();
    const LayerSamples samples =
        with_layer_recompute(model, block_samples(), LayerRecompute::Block);
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
}

/// A stage that begins with block 0's feed-forward keeps its own input (10), which is part of what
/// the layer saves (210), and block 1's.
TEST(StageCosts, AStageThatBeginsInsideOfABlockKeepsItsInput) {
    const Model model = two_blocks();
    const LayerSamples samples =
        with_layer_recompute(model, block_samples(), LayerRecompute::Block);
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
    const LayerSamples again = with_layer_recompute(model, plain, LayerRecompute::Block);
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

/// What I alone reads is never kept where it is computed again: of attention's 100 bytes 50 are
/// there for W.
TEST(StageCosts, WhatWReadsOfABlockIsThereUntilW) {
    const Model model = two_blocks();
    const LayerSamples samples =
        with_layer_recompute(model, block_samples(), LayerRecompute::Block);
    const StageCost cost = StageCosts(model, samples).of(1, 3);
    EXPECT_EQ(cost.input_saved, Bytes{0});
    EXPECT_EQ(cost.split, Bytes{4 + 50 + 8 + 210 + 10});
}

}  // namespace stage_costs_test
}  // namespace pipetwin
