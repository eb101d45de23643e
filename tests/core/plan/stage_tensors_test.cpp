// SPDX-License-Identifier: Apache-2.0
#include "core/plan/stage_tensors.h"

#include <vector>

#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "core/model/layer_spec.h"
#include "core/model/model.h"
#include "core/plan/layer_recompute.h"
#include "core/plan/routes.h"
#include "core/plan/stage_costs.h"

namespace pipetwin {
namespace stage_tensors_test {

/// One layer whose output two branches read, and what joins them. Bytes of outputs: 10, 20, 30, 50,
/// 5; the model's input has 4. The loss keeps 7 beside what it reads.
///
///     stem --+--> left --+--> both --> classes --> loss
///            '--> right -'
Model two_branches() {
    return Model::graph(
        {.positions = 1, .width = 4},
        {{.name = "stem", .type = LayerType::Linear, .outputs = 10},
         {.name = "left", .type = LayerType::Linear, .outputs = 20},
         {.name = "right", .type = LayerType::Linear, .outputs = 30, .inputs = {"stem"}},
         {.name = "both", .type = LayerType::Concat, .inputs = {"left", "right"}},
         {.name = "classes", .type = LayerType::Linear, .outputs = 5},
         {.name = "loss", .type = LayerType::CrossEntropy}});
}

LayerSamples samples() {
    const auto layer = [](int input, int output, int saved, int unread_gradient = 0) {
        LayerSample sample;
        sample.input = Bytes{input};
        sample.output = Bytes{output};
        sample.saved = Bytes{saved};
        sample.unread_gradient = Bytes{unread_gradient};
        return sample;
    };
    return {layer(4, 10, 4),
            layer(10, 20, 10),
            layer(10, 30, 10),
            layer(0, 50, 0, 50),  // a join keeps nothing, and has no W
            layer(50, 5, 50),
            layer(5, 0, 5 + 7)};
}

std::vector<int> over_layers(const StageTensors& tensors,
                             Bytes (StageTensors::*bytes)(int) const,
                             int first,
                             int end) {
    std::vector<int> all;
    for (int layer = first; layer < end; ++layer) {
        all.push_back(static_cast<int>((tensors.*bytes)(layer).count));
    }
    return all;
}

TEST(StageTensors, OfAWholeModelComeAndGoWithTheirReaders) {
    const Model model = two_branches();
    const LayerSamples of_layer = samples();
    const StageTensors whole(model, of_layer, 0, 6);
    const auto each = [&](Bytes (StageTensors::*bytes)(int) const) {
        return over_layers(whole, bytes, 0, 6);
    };
    EXPECT_EQ(whole.input(), Bytes{4});
    EXPECT_EQ(whole.output(), Bytes{});
    EXPECT_EQ(whole.kept_values(), Bytes{10 + 50 + 5});  // what 'both' reads is read by no backward
    EXPECT_EQ(whole.inner_gradients(), Bytes{10 + 20 + 30 + 5});
    EXPECT_EQ(each(&StageTensors::kept_by), (std::vector{0, 0, 0, 0, 0, 7}));
    EXPECT_EQ(
        each(&StageTensors::values_in_forward),
        (std::vector{10, 10 + 20, 10 + 20 + 30, 10 + 20 + 30 + 50, 10 + 50 + 5, 10 + 50 + 5}));
    EXPECT_EQ(each(&StageTensors::values_in_drop),
              (std::vector{10, 10 + 20, 10 + 20 + 30, 20 + 30 + 50, 50 + 5, 5}));
    EXPECT_EQ(each(&StageTensors::values_in_backward),
              (std::vector{0, 10, 10, 10, 10 + 50, 10 + 50 + 5}));
    // 'left' writes its part of the stem's gradient beside that of 'right'.
    EXPECT_EQ(each(&StageTensors::gradients_in_backward),
              (std::vector{10, 10 + 20 + 10, 10 + 20 + 30, 20 + 30 + 50, 50 + 5, 5}));
    EXPECT_EQ(each(&StageTensors::gradients_in_input_half),
              (std::vector{65, 65 + 10, 65, 20 + 30 + 50 + 5, 50 + 5, 5}));
}

TEST(StageTensors, OfAPartLieInItsMessagesWhereTheyCross) {
    const Model model = two_branches();
    const LayerSamples of_layer = samples();
    const StageTensors middle(model, of_layer, 1, 4);  // left, right, both
    EXPECT_EQ(middle.input(), Bytes{10});
    EXPECT_EQ(middle.output(), Bytes{50});
    EXPECT_EQ(middle.kept_values(), Bytes{});
    EXPECT_EQ(middle.inner_gradients(), Bytes{20 + 30});
    EXPECT_EQ(over_layers(middle, &StageTensors::values_in_forward, 1, 4),
              (std::vector{20, 20 + 30, 20 + 30}));
    const StageTensors left(model, of_layer, 1, 2);  // the stem's output is handed on
    EXPECT_EQ(left.output(), Bytes{10 + 20});
    EXPECT_EQ(left.values_in_forward(1), Bytes{});
    EXPECT_EQ(left.gradients_in_backward(1), Bytes{10});  // beside what has come back
}

TEST(StageTensors, MakeThePeaksOfAStage) {
    const Model model = two_branches();
    const LayerSamples of_layer = samples();
    const StageCost whole = StageCosts(model, of_layer).of(0, 6);
    EXPECT_EQ(whole.saved, Bytes{4 + 65 + 7});
    EXPECT_EQ(whole.split, Bytes{65});
    EXPECT_EQ(whole.input_saved, Bytes{});
    EXPECT_EQ(whole.forward_peak, Bytes{4 + 110});          // in 'both'
    EXPECT_EQ(whole.forward_drop_peak, Bytes{4 + 100});     // in 'both'
    EXPECT_EQ(whole.backward_peak, Bytes{4 + 60 + 55});     // in 'classes'
    EXPECT_EQ(whole.backward_input_peak, Bytes{76 + 105});  // in 'both'
    const StageCost middle = StageCosts(model, of_layer).of(1, 4);
    EXPECT_EQ(middle.saved, Bytes{10});
    EXPECT_EQ(middle.forward_peak, Bytes{10 + 50 + 20 + 30});
    EXPECT_EQ(middle.backward_peak, Bytes{10 + 50 + 10 + 20 + 30});
}

/// The samples, where 'left' keeps 6 bytes beside what it reads, with blocks that are computed
/// again.
LayerSamples samples_of_groups(const Model& model, int together) {
    LayerSamples plain = samples();
    for (LayerSample& sample : plain) {
        sample.forward = Duration(3);
    }
    plain[1].saved = Bytes{10 + 6};
    return with_layer_recompute(model, plain, {.mode = LayerRecompute::Block, .blocks = together});
}

/// By itself only 'left' has anything to drop.
TEST(StageTensors, OfBlocksThatAreComputedAgainOneByOne) {
    const Model model = two_branches();
    const LayerSamples of_layer = samples_of_groups(model, 1);
    for (std::size_t layer = 0; layer < of_layer.size(); ++layer) {
        EXPECT_EQ(of_layer[layer].rebuilt_blocks, layer == 1 ? 1 : 0);
        EXPECT_EQ(of_layer[layer].backward_input, Duration(layer == 1 ? 3 : 0));
    }
    const StageCost whole = StageCosts(model, of_layer).of(0, 6);
    EXPECT_EQ(whole.saved, Bytes{4 + 65 + 7});
    EXPECT_EQ(whole.forward_peak, Bytes{4 + 110});       // in 'both'
    EXPECT_EQ(whole.backward_peak, Bytes{4 + 60 + 55});  // in 'classes'
    EXPECT_EQ(whole.split, Bytes{65 + 6});
    // 'left' alone: its output is made again beside the gradients of both.
    const StageCost left = StageCosts(model, of_layer).of(1, 2);
    EXPECT_EQ(left.saved, Bytes{10});
    EXPECT_EQ(left.forward_peak, Bytes{10 + 30 + 6});         // the stem's output is handed on
    EXPECT_EQ(left.backward_peak, Bytes{10 + 6 + 20 + 40});   // and sent back
    EXPECT_EQ(left.backward_again, Bytes{6 + 20 + 40 - 30});  // less the output's gradient
}

/// left, right | both, classes: what the second group reads of the first one stays; 'both' is read
/// in its own group alone, and is made again.
TEST(StageTensors, OfGroupsOfTwoBlocks) {
    const Model model = two_branches();
    const LayerSamples of_layer = samples_of_groups(model, 2);
    for (std::size_t layer = 1; layer < 5; ++layer) {
        EXPECT_EQ(of_layer[layer].backward_input, Duration(3));
    }
    const StageCost whole = StageCosts(model, of_layer).of(0, 6);
    EXPECT_EQ(whole.saved, Bytes{4 + 10 + 20 + 30 + 5 + 7});
    EXPECT_EQ(whole.forward_peak, Bytes{4 + 10 + 20 + 30 + 50 + 5});          // in 'classes'
    EXPECT_EQ(whole.backward_peak, Bytes{4 + 10 + 20 + 30 + 50 + (50 + 5)});  // in its backward
    EXPECT_EQ(whole.backward_again, Bytes{50 + (50 + 5)});
    EXPECT_EQ(whole.split, Bytes{10 + 20 + 30 + 5 + 50 + 6});
    // In 'both', whose output stays for W of 'classes'.
    EXPECT_EQ(whole.backward_input_peak, Bytes{76 + 50 + (50 + 20 + 30 + 5)});
    // Groups count from a stage's first layer on: right, both | classes.
    const StageCost behind = StageCosts(model, of_layer).of(2, 6);
    EXPECT_EQ(behind.saved, Bytes{10 + 20 + 50 + 5 + 7});
    EXPECT_EQ(behind.forward_peak, Bytes{10 + 20 + 30 + 50});
}

/// A unit that reads two outputs, of which its backward reads the second alone: the first goes when
/// its forward has read it, and what the unit saves has the second in it.
TEST(StageTensors, OfAUnitWithBranchesKeepWhatItsBackwardReads) {
    const Model model = Model::graph(
        {.positions = 1, .width = 4},
        {{.name = "a", .type = LayerType::Linear, .outputs = 20},
         {.name = "b", .type = LayerType::Linear, .outputs = 30},
         {.name = "cell",
          .type = LayerType::Sequence,
          .inner = {{.name = "x", .type = LayerType::Linear, .outputs = 20, .inputs = {"input1"}},
                    {.name = "sum", .type = LayerType::Add, .inputs = {"x", "input0"}}},
          .inputs = {"a", "b"}},
         {.name = "loss", .type = LayerType::CrossEntropy, .inputs = {"cell"}}});
    const auto layer = [](int input, int output, int saved) {
        LayerSample sample;
        sample.input = Bytes{input};
        sample.output = Bytes{output};
        sample.saved = Bytes{saved};
        return sample;
    };
    // 'a' is read by 'b', too, which keeps it.
    const LayerSamples of_layer{
        layer(4, 20, 4), layer(20, 30, 20), layer(0, 20, 30 + 11), layer(20, 0, 20)};
    const StageTensors cell(model, of_layer, 2, 4);
    EXPECT_EQ(cell.input(), Bytes{20 + 30});
    EXPECT_EQ(cell.kept_by(2), Bytes{11});
    const StageTensors both(model, of_layer, 1, 4);
    EXPECT_EQ(both.kept_values(), Bytes{30 + 20});
    const StageTensors whole(model, of_layer, 0, 4);
    EXPECT_EQ(whole.kept_values(), Bytes{20 + 30 + 20}) << "'b' keeps what 'a' makes";
    // The unit adds its part of a's gradient from its scratch, and 'b' beside what is there.
    EXPECT_EQ(whole.gradients_in_backward(2), Bytes{20 + 20 + 30});
    EXPECT_EQ(whole.gradients_in_backward(1), Bytes{20 + 30 + 20});
    EXPECT_EQ(whole.values_in_backward(1), Bytes{20});
}

LayerSample bytes_of(int output, int saved) {
    LayerSample sample;
    sample.output = Bytes{output};
    sample.saved = Bytes{saved};
    return sample;
}

/// Bytes of outputs: 10, 10, 10, 20, 30; the model's input has 4. 'left' keeps what it reads, which
/// the rectifier reads in its backward in place of what the stem makes.
///
///     stem --> relu --> same --+--> left --+--> both --> loss
///                              '-----------'
Model rectified_branches() {
    return Model::graph({.positions = 1, .width = 4},
                        {{.name = "stem", .type = LayerType::Linear, .outputs = 10},
                         {.name = "relu", .type = LayerType::Relu},
                         {.name = "same", .type = LayerType::Identity},
                         {.name = "left", .type = LayerType::Linear, .outputs = 20},
                         {.name = "both", .type = LayerType::Concat, .inputs = {"left", "same"}},
                         {.name = "loss", .type = LayerType::CrossEntropy}});
}

LayerSamples rectified_samples() {
    LayerSamples all{bytes_of(10, 4),
                     bytes_of(10, 0),
                     bytes_of(10, 0),
                     bytes_of(20, 10),
                     bytes_of(30, 0),
                     bytes_of(0, 30 + 7)};
    all.front().input = Bytes{4};
    return all;
}

TEST(StageTensors, OfARectifierAreKeptOnceForAllThatReadThem) {
    const Model model = rectified_branches();
    const LayerSamples of_layer = rectified_samples();
    const StageTensors whole(model, of_layer, 0, 6);
    const auto each = [&](Bytes (StageTensors::*bytes)(int) const) {
        return over_layers(whole, bytes, 0, 6);
    };
    EXPECT_EQ(whole.kept_values(), Bytes{10 + 30});
    EXPECT_EQ(each(&StageTensors::values_in_forward),
              (std::vector{10, 10 + 10, 10, 10 + 20, 10 + 20 + 30, 10 + 30}));
    EXPECT_EQ(each(&StageTensors::values_in_backward), (std::vector{0, 10, 10, 10, 10, 10 + 30}));
    // 'left' writes its part of the rectifier's gradient beside that of 'both'.
    EXPECT_EQ(each(&StageTensors::gradients_in_backward),
              (std::vector{10, 10 + 10, 10, 10 + 20 + 10, 10 + 20 + 30, 30}));
}

/// Cut behind the rectifier, its output goes away with the message.
TEST(StageTensors, OfARectifierWhoseOutputTheStageDoesNotKeepAreItsInput) {
    const Model model = rectified_branches();
    const LayerSamples of_layer = rectified_samples();
    EXPECT_EQ(StageTensors(model, of_layer, 0, 2).kept_values(), Bytes{10});
    EXPECT_EQ(StageTensors(model, of_layer, 1, 2).kept_input(), Bytes{10});
    EXPECT_EQ(StageTensors(model, of_layer, 1, 3).kept_input(), Bytes{10});
    EXPECT_EQ(StageTensors(model, of_layer, 1, 4).kept_input(), Bytes{});
    EXPECT_EQ(StageTensors(model, of_layer, 2, 5).kept_input(), Bytes{10}) << "'left' keeps it";
}

TEST(StageTensors, GoWithTheLastForwardWhereNoBackwardReadsWhatTheStageWasSent) {
    const Model model = rectified_branches();
    const LayerSamples of_layer = rectified_samples();
    const StageTensors end(model, of_layer, 4, 6);
    EXPECT_EQ(end.input(), Bytes{20 + 10});
    EXPECT_EQ(end.kept_input(), Bytes{});
    EXPECT_EQ(end.input_in_forward(4), Bytes{20 + 10});
    EXPECT_EQ(end.input_in_forward(5), Bytes{});
    const StageCost cost = StageCosts(model, of_layer).of(4, 6);
    EXPECT_EQ(cost.saved, Bytes{30 + 7});
    EXPECT_EQ(cost.forward_peak, Bytes{30 + 30});  // in 'both'
    EXPECT_EQ(cost.forward_drop_peak, Bytes{30 + 30 + 7});
}

/// Bytes of outputs: 10, 10, 5, 5; the model's input has 4.
TEST(StageCosts, OfAChainHaveInputsThatNoBackwardReadsInTheForwardAlone) {
    const Model model = Model::chain({.positions = 1, .width = 4},
                                     {{.name = "up", .type = LayerType::Linear, .outputs = 10},
                                      {.name = "relu", .type = LayerType::Relu},
                                      {.name = "down", .type = LayerType::Linear, .outputs = 5},
                                      {.name = "drop", .type = LayerType::Dropout, .dropout = 0.5},
                                      {.name = "loss", .type = LayerType::CrossEntropy}});
    LayerSamples of_layer{
        bytes_of(10, 4), bytes_of(10, 0), bytes_of(5, 10), bytes_of(5, 0), bytes_of(0, 5 + 7)};
    of_layer.front().input = Bytes{4};
    const StageCosts costs(model, of_layer);
    const StageCost whole = costs.of(0, 5);
    EXPECT_EQ(whole.saved, Bytes{4 + 10 + 5 + 7});
    EXPECT_EQ(whole.forward_peak, Bytes{4 + 10 + 5 + 7});       // in the loss
    EXPECT_EQ(whole.backward_peak, Bytes{4 + 10 + (10 + 10)});  // in 'relu', which reads its output
    // The output of 'relu' is sent away, so that its input stays.
    EXPECT_EQ(costs.of(0, 2).saved, Bytes{4 + 10});
    EXPECT_EQ(costs.of(0, 2).forward_peak, Bytes{});
    const StageCost drop = costs.of(3, 4);
    EXPECT_EQ(drop.saved, Bytes{});
    EXPECT_EQ(drop.forward_peak, Bytes{5 + 5});
    EXPECT_EQ(drop.forward_drop_peak, Bytes{5 + 5});
}

TEST(PieceMessages, AreThoseOfItsRoutesAndOfItsNeighbours) {
    // stem | left | right | both, classes, loss: the third stage has nothing of the second but the
    // stem's output, which it reads behind it.
    const Model model = two_branches();
    const std::vector<Route> routes = routes_of(model, Partition({1, 1, 1, 3}, 6));
    const PieceMessages second = messages_of(routes, 1, 4);
    EXPECT_EQ(second.from, std::vector{0});
    EXPECT_EQ(second.received, std::vector<std::vector<int>>({{0}}));
    EXPECT_EQ(second.to, (std::vector{2, 3}));
    EXPECT_EQ(second.sent, (std::vector{std::vector{0}, std::vector{1}}));
    const PieceMessages last = messages_of(routes, 3, 4);
    EXPECT_EQ(last.from, (std::vector{1, 2}));
    EXPECT_EQ(last.received, (std::vector{std::vector{1}, std::vector{2}}));
    EXPECT_TRUE(last.to.empty());
    // Neighbours have a message without anything in it where nothing goes between them.
    const PieceMessages nothing = messages_of({}, 0, 2);
    EXPECT_EQ(nothing.to, std::vector{1});
    EXPECT_TRUE(nothing.sent.at(0).empty());
}

}  // namespace stage_tensors_test
}  // namespace pipetwin
