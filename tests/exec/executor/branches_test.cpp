// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/routes.h"
#include "core/schedule/edge.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "exec/replicas/replicas.h"
#include "exec/training/checkpoint.h"
#include "tests/exec/executor/every_cut.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_training.h"
#include "tests/support/soak.h"
#include "tests/support/training_step.h"

/// Models whose layers read outputs from anywhere before them, cut anywhere.
namespace pipetwin::exec {
namespace branches_test {

using namespace every_cut;
using ::testing::HasSubstr;

LayerSpec linear(const std::string& name, int outputs, std::vector<std::string> inputs = {}) {
    return {
        .name = name, .type = LayerType::Linear, .outputs = outputs, .inputs = std::move(inputs)};
}
LayerSpec of_type(LayerType type, const std::string& name, std::vector<std::string> inputs = {}) {
    return {.name = name, .type = type, .inputs = std::move(inputs)};
}
/// A linear layer and its GELU, as one unit.
LayerSpec activated(const std::string& name, int outputs, std::vector<std::string> inputs = {}) {
    return {.name = name,
            .type = LayerType::Sequence,
            .inner = {linear("linear", outputs), of_type(LayerType::Gelu, "gelu")},
            .inputs = std::move(inputs)};
}
LayerSpec loss() {
    return of_type(LayerType::CrossEntropy, "loss");
}

/// The shape of a U-Net: what goes down is read again on the way up, the last first.
Model unet() {
    return Model::graph({.positions = 3, .width = 6},
                        {activated("down0", 8),
                         activated("down1", 6),
                         activated("down2", 4),
                         activated("bottom", 5),
                         of_type(LayerType::Concat, "join2", {"bottom", "down2"}),
                         activated("up2", 6),
                         of_type(LayerType::Concat, "join1", {"up2", "down1"}),
                         activated("up1", 7),
                         of_type(LayerType::Concat, "join0", {"up1", "down0"}),
                         linear("classes", 5),
                         loss()});
}

/// Two branches, one of which begins with a layer that has no product, and a way around both.
Model two_branches() {
    return Model::graph({.positions = 1, .width = 6},
                        {linear("stem", 7),
                         activated("left0", 9, {"stem"}),
                         linear("left1", 7),
                         of_type(LayerType::Gelu, "right0", {"stem"}),
                         linear("right1", 7),
                         of_type(LayerType::Add, "sum", {"stem", "right1", "left1"}),
                         linear("classes", 4),
                         loss()});
}

/// Twelve layers, three of whose outputs are read by several, of every kind that has a backward of
/// its own.
Model fan_outs() {
    LayerSpec block = of_type(LayerType::Residual, "block", {"a"});
    block.inner = {of_type(LayerType::LayerNorm, "norm"), linear("linear", 6)};
    LayerSpec dropout = of_type(LayerType::Dropout, "dropout", {"c"});
    dropout.dropout = 0.3;
    return Model::graph({.positions = 2, .width = 5},
                        {linear("a", 6),
                         of_type(LayerType::Gelu, "b", {"a"}),
                         of_type(LayerType::LayerNorm, "c", {"a"}),
                         block,
                         of_type(LayerType::Add, "d", {"block", "b", "c"}),
                         dropout,
                         of_type(LayerType::Concat, "e", {"dropout", "d"}),
                         linear("f", 6, {"e"}),
                         linear("g", 6, {"d"}),
                         of_type(LayerType::Add, "h", {"f", "g", "a"}),
                         linear("classes", 4),
                         loss()});
}

/// Two blocks of several layers, with sums that no product follows in their block, and outputs that
/// a block and layers behind it read.
Model cells() {
    LayerSpec dropout = of_type(LayerType::Dropout, "cell1.dropout", {"cell0.sum"});
    dropout.dropout = 0.3;
    LayerSpec residual = of_type(LayerType::Residual, "cell1.residual", {"cell1.dropout"});
    residual.inner = {of_type(LayerType::LayerNorm, "norm"), linear("linear", 6)};
    return Model::graph({.positions = 2, .width = 5},
                        {linear("stem", 6),
                         of_type(LayerType::LayerNorm, "cell0.norm"),
                         linear("cell0.left", 6),
                         of_type(LayerType::Gelu, "cell0.right", {"cell0.norm"}),
                         of_type(LayerType::Add, "cell0.both", {"cell0.left", "cell0.right"}),
                         of_type(LayerType::Add, "cell0.sum", {"cell0.both", "stem"}),
                         dropout,
                         residual,
                         of_type(LayerType::Concat, "join", {"cell1.residual", "cell0.both"}),
                         of_type(LayerType::Concat, "cell2.wide", {"join", "cell1.dropout"}),
                         linear("cell2.narrow", 6),
                         of_type(LayerType::Add, "cell2.sum", {"cell2.narrow", "cell0.sum"}),
                         linear("classes", 4),
                         loss()});
}

/// A second loss beside the model's own, of a branch in the middle. `inside`: the two stand in one
/// unit with the classes, as in AmoebaNet.
Model two_losses(bool inside) {
    const auto both = [](std::vector<std::string> inputs) {
        LayerSpec spec = of_type(LayerType::CrossEntropy, "loss", std::move(inputs));
        spec.label_smoothing = 0.1;
        spec.auxiliary_weight = 0.3;
        return spec;
    };
    LayerSpec path = of_type(LayerType::DropPath, "path", {"linear"});
    path.dropout = 0.3;
    const LayerSpec side{.name = "side",
                         .type = LayerType::Sequence,
                         .inner = {of_type(LayerType::Gelu, "gelu"), linear("linear", 4)},
                         .inputs = {"cell0"}};
    const LayerSpec cell1{
        .name = "cell1",
        .type = LayerType::Sequence,
        .inner = {linear("linear", 7), path, of_type(LayerType::Add, "sum", {"path", "input1"})},
        .inputs = {"cell0", "stem"}};
    std::vector<LayerSpec> units{
        activated("stem", 7), activated("cell0", 6), side, cell1, activated("cell2", 5)};
    if (inside) {
        units.push_back({.name = "classify",
                         .type = LayerType::Sequence,
                         .inner = {linear("linear", 4), both({"linear", "input1"})},
                         .inputs = {"cell2", "side"}});
    } else {
        units.push_back(linear("classes", 4));
        units.push_back(both({"classes", "side"}));
    }
    return Model::graph({.positions = 2, .width = 6}, std::move(units));
}

/// Rectifiers whose outputs layers of their own stage keep, or of later ones alone; layers that
/// hand on; and a dropout, a concat and a sum, whose backwards read nothing.
Model handed_on() {
    const auto product = [](const char* name, int outputs) {
        return LayerSpec{
            .name = name, .type = LayerType::Conv2d, .outputs = outputs, .kernel = {1, 1}};
    };
    LayerSpec dropout = of_type(LayerType::Dropout, "cell1.drop", {"cell0.same"});
    dropout.dropout = 0.3;
    return Model::graph(image_shape({.height = 1, .width = 2}, 5),
                        {product("stem", 6),
                         of_type(LayerType::Relu, "cell0.relu", {"stem"}),
                         of_type(LayerType::Identity, "cell0.same", {"cell0.relu"}),
                         product("cell0.left", 6),
                         of_type(LayerType::LeakyRelu, "cell0.again", {"cell0.left"}),
                         of_type(LayerType::Identity, "cell1.same", {"cell0.again"}),
                         dropout,
                         of_type(LayerType::Add, "cell1.sum", {"cell1.same", "cell1.drop"}),
                         of_type(LayerType::Relu, "cell2.relu", {"cell1.sum"}),
                         of_type(LayerType::Flatten, "cell2.flat", {"cell2.relu"}),
                         linear("cell2.narrow", 7),
                         of_type(LayerType::Relu, "cell2.end", {"cell2.narrow"}),
                         of_type(LayerType::Identity, "last", {"cell2.end"}),
                         of_type(LayerType::Concat, "both", {"last", "cell2.flat"}),
                         {.name = "unit",
                          .type = LayerType::Sequence,
                          .inner = {linear("linear", 6),
                                    of_type(LayerType::LayerNorm, "norm"),
                                    of_type(LayerType::LeakyRelu, "relu")}},
                         linear("classes", 4),
                         loss()});
}

struct NamedModel {
    const char* name;
    Model model;
};
void PrintTo(const NamedModel& named, std::ostream* out) {
    *out << named.name;
}

/// All ways to cut `layers` layers into `pieces`.
void add_cuts(int layers, int pieces, std::vector<int> begun, std::vector<std::vector<int>>& all) {
    if (pieces == 1) {
        begun.push_back(layers);
        all.push_back(begun);
        return;
    }
    for (int first = 1; first + pieces - 1 <= layers; ++first) {
        begun.push_back(first);
        add_cuts(layers - first, pieces - 1, begun, all);
        begun.pop_back();
    }
}

/// Every cut into 1 to 4 pieces, with a schedule and a recompute mode that fit.
std::vector<Shape> every_shape(const Model& model) {
    std::vector<Shape> shapes;
    for (int pieces = 1; pieces <= 4; ++pieces) {
        std::vector<std::vector<int>> cuts;
        add_cuts(model.layer_count(), pieces, {}, cuts);
        for (const std::vector<int>& cut : cuts) {
            for (const char* const schedule :
                 {"gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "zb-v"}) {
                const bool two_chunks = std::string_view(schedule) == "interleaved-1f1b" ||
                                        std::string_view(schedule) == "zb-v";
                if (two_chunks && pieces != 4 && pieces != 2) {
                    continue;
                }
                Shape shape{.stages = two_chunks ? pieces / 2 : pieces,
                            .chunks = two_chunks ? 2 : 1,
                            .micro_batches = 4,
                            .batch = 7,
                            .schedule = schedule,
                            .partition = cut};
                for (const Recompute mode :
                     {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
                    shape.recompute = mode;
                    shapes.push_back(shape);
                }
                shape.recompute = Recompute::None;
                shape.layer_recompute = LayerRecompute::Block;
                for (const int together : {1, 2, 3, 100}) {
                    shape.recompute_blocks = together;
                    shapes.push_back(shape);
                }
            }
        }
    }
    return shapes;
}

class EveryGraph : public ::testing::TestWithParam<NamedModel> {
  protected:
    const Model& model = GetParam().model;
};
INSTANTIATE_TEST_SUITE_P(Branches,
                         EveryGraph,
                         ::testing::Values(NamedModel{"unet", unet()},
                                           NamedModel{"two_branches", two_branches()},
                                           NamedModel{"fan_outs", fan_outs()},
                                           NamedModel{"cells", cells()},
                                           NamedModel{"handed_on", handed_on()},
                                           NamedModel{"two_losses", two_losses(false)},
                                           NamedModel{"two_losses_in_a_unit", two_losses(true)},
                                           NamedModel{"units_with_branches", test::small_cells()}),
                         [](const auto& named) { return named.param.name; });

/// C25: gradients through skips equal the unsplit model for every balance and mode. The peaks are
/// those that the plan predicts, to the byte.
TEST_P(EveryGraph, EveryCutHasTheBitsOfTheWholeModelAndTheBytesOfThePlan) {
    std::vector<Shape> shapes = every_shape(model);
    SCOPED_TRACE(::testing::Message() << "PIPETWIN_SEED=" << tests::seed());
    std::mt19937_64 random(tests::seed());
    std::ranges::shuffle(shapes, random);
    shapes.resize(std::min(shapes.size(), as_index(tests::soaked(140))));
    for (const BackwardOrder order : {BackwardOrder::Ascending, BackwardOrder::Descending}) {
        const StepOutcome whole = reference(model, {.batch = 7}, order);
        for (const Shape& shape : shapes) {
            if (order_of(shape) != order) {
                continue;
            }
            expect_bits_and_bytes(model, shape, whole);
        }
    }
}

TEST_P(EveryGraph, HasTheSameBitsAgainInTheNextStep) {
    const Shape shape{.stages = 4, .batch = 7, .schedule = "zb-h1"};
    const Plan plan = test::plan_of(model, shape);
    ExecutorOptions options = test::options_of(shape);
    options.optimizer.learning_rate = 0;
    options.optimizer.weight_decay = 0;
    Executor executor(plan, model, options);
    const Batch batch = random_batch(model, shape.batch, 1);
    executor.run_step(batch, 0);
    const auto first = test::gradients_of(executor.parameters());
    executor.run_step(batch, 0);
    EXPECT_TRUE(test::gradients_of(executor.parameters()) == first);
}

TEST_P(EveryGraph, HasItsBitsInHalfPrecisionAndWithBoundedChannelsAndStashesInHostMemory) {
    Shape shape{.stages = 1, .batch = 7, .schedule = "1f1b", .precision = Precision::Bf16};
    const StepOutcome alone = test::pipeline_step(model, shape);
    shape.stages = 4;
    EXPECT_TRUE(test::pipeline_step(model, shape) == alone);
    shape.channel_capacity = 1;
    EXPECT_TRUE(test::pipeline_step(model, shape) == alone);
    shape.backend = Backend::Paced;
    shape.host_link_gbps = 10;
    EXPECT_TRUE(test::pipeline_step(model, shape) == alone);
}

TEST_P(EveryGraph, GradientsAreDifferencesOfTheLoss) {
    const Shape shape{.stages = 3, .batch = 7, .schedule = "1f1b", .precision = Precision::Fp64};
    ExecutorOptions options = test::options_of(shape);
    options.optimizer.learning_rate = 0;
    options.optimizer.weight_decay = 0;
    Executor executor(test::plan_of(model, shape), model, options);
    const Batch batch = random_batch(model, shape.batch, 1);
    executor.run_step(batch, 0);
    const auto gradients = test::gradients_of(executor.parameters());
    const std::vector<Parameter*> parameters = executor.parameters();
    constexpr double h = 1e-5;
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        double& weight = parameters[index]->value.as<double>()[0];
        const double before = weight;
        weight = before + h;
        const double above = executor.run_step(batch, 0).loss;
        weight = before - h;
        const double below = executor.run_step(batch, 0).loss;
        weight = before;
        EXPECT_NEAR((above - below) / (2 * h), gradients[index].values[0], 1e-8)
            << parameters[index]->name;
    }
}

TEST_P(EveryGraph, AnEvaluationHasTheLossOfTheWholeModelAndDropsNothing) {
    const Batch batch = random_batch(model, 7, 2);
    const auto evaluated = [&](int stages) {
        const Shape shape{.stages = stages, .batch = 7, .schedule = "1f1b"};
        Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        return executor.evaluate(batch, 0);
    };
    EXPECT_EQ(evaluated(4), evaluated(1));
    EXPECT_GT(evaluated(1), 0);
}

/// Two pipelines that share the weights sum the gradients of their halves.
TEST_P(EveryGraph, TrainsInTwoPipelines) {
    const Shape shape{.stages = 2, .micro_batches = 2, .batch = 8, .schedule = "chimera"};
    const Shape whole{.stages = 1, .micro_batches = 2, .batch = 8, .schedule = "1f1b"};
    test::expect_near(test::pipeline_step(model, shape), test::pipeline_step(model, whole), 1e-5);
}

/// A weight of 0 leaves the loss of the first output, which is all that an evaluation looks at.
TEST(Branches, AnEvaluationLooksAtTheFirstOfTwoLossesAlone) {
    const Shape shape{.stages = 2, .batch = 7, .schedule = "1f1b"};
    const Batch batch = random_batch(two_losses(false), shape.batch, 2);
    const auto executor_with = [&](double weight) {
        LayerSpec loss = of_type(LayerType::CrossEntropy, "loss", {"classes", "side"});
        loss.auxiliary_weight = weight;
        const Model model = Model::graph({.positions = 2, .width = 6},
                                         {linear("stem", 5),
                                          linear("classes", 4, {"stem"}),
                                          linear("side", 4, {"stem"}),
                                          std::move(loss)});
        ExecutorOptions options = test::options_of(shape);
        options.optimizer.learning_rate = 0;
        options.optimizer.weight_decay = 0;
        return std::make_unique<Executor>(test::plan_of(model, shape), model, options);
    };
    const StepResult first_alone = executor_with(0)->run_step(batch, 0);
    const auto executor = executor_with(1);
    const StepResult both = executor->run_step(batch, 0);
    EXPECT_GT(both.loss, first_alone.loss);
    EXPECT_EQ(both.accuracy.right, first_alone.accuracy.right);
    const Score score = executor->score(batch, 0);
    EXPECT_EQ(score.loss, first_alone.loss);
    EXPECT_EQ(score.accuracy.right, first_alone.accuracy.right);
}

TEST_P(EveryGraph, TrainsInReplicas) {
    const Shape alone{.stages = 1, .batch = 8, .schedule = "1f1b"};
    const Shape shape{
        .stages = 3, .micro_batches = 2, .batch = 8, .schedule = "1f1b", .replicas = 2};
    Replicas pipelines(test::plan_of(model, shape), model, test::options_of(shape));
    StepResult step;
    pipelines.run_step(random_batch(model, shape.batch, 1), 0, step);
    test::expect_near(
        {.loss = step.loss, .gradients = test::gradients_of(pipelines.first().parameters())},
        test::pipeline_step(model, alone),
        1e-5);
}

TEST_P(EveryGraph, GoesOnInAnotherNumberOfStagesFromItsCheckpoint) {
    const tests::ScratchFolder folder;
    const Batch batch = random_batch(model, 8, 1);
    const auto executor_in = [&](int stages) {
        const Shape shape{.stages = stages, .batch = 8, .schedule = "1f1b"};
        return std::make_unique<Executor>(
            test::plan_of(model, shape), model, test::options_of(shape));
    };
    const auto before = executor_in(2);
    before->run_step(batch, 0);
    Checkpoints(folder.path()).save({.steps_done = 1}, before->trained());
    before->run_step(batch, 1);
    const auto after = executor_in(4);
    ASSERT_TRUE(Checkpoints(folder.path()).load(after->trained()));
    after->run_step(batch, 1);
    EXPECT_TRUE(test::weights_of(after->parameters()) == test::weights_of(before->parameters()));
}

/// AmoebaNet's cells: each reads the outputs of the two units before it, and has branches inside.
TEST(Branches, AChainOfCellsHasItsBitsInEveryCut) {
    const Model model = test::small_cells();
    std::vector<Shape> shapes = every_shape(model);
    std::erase_if(shapes, [](const Shape& shape) {
        return shape.chunks > 1 || shape.recompute.of(0) == Recompute::ExceptLast;
    });
    // 64 cuts into 1 to 4 stages, three schedules, two modes; blocks: none, one by one, in twos.
    ASSERT_EQ(shapes.size(), (1U + 7 + 21 + 35) * 3 * 2 * 3);
    for (const BackwardOrder order : {BackwardOrder::Ascending, BackwardOrder::Descending}) {
        const StepOutcome whole = reference(model, {.batch = 7}, order);
        for (const Shape& shape : shapes) {
            if (order_of(shape) == order) {
                expect_bits_and_bytes(model, shape, whole);
            }
        }
    }
}

/// C23: a skip tensor goes from its producing stage to its consuming stage once, not through the
/// stages between; same-stage skips are not copied. One that two stages read goes from the first of
/// them to the second.
TEST(Branches, ASkipGoesFromItsProducerToItsReaderOnce) {
    const Model model = unet();
    // down0 | down1, down2, bottom | join2, up2, join1 | up1, join0, classes, loss
    const Shape shape{.stages = 4,
                      .micro_batches = 3,
                      .batch = 6,
                      .schedule = "1f1b",
                      .partition = std::vector{1, 3, 3, 4}};
    const Plan plan = test::plan_of(model, shape);
    Executor executor(plan, model, test::options_of(shape));
    const StepResult step = executor.run_step(random_batch(model, shape.batch, 1), 0);
    std::multiset<std::tuple<int, int, int>> sent;  // from, to, micro-batch
    for (const std::vector<Span>& row : step.timeline.ranks) {
        for (const Span& span : row) {
            EXPECT_TRUE(is_message(span.action.op) || span.action.hop == 0);
            if (span.action.op == Op::SendForward) {
                const StagePair stages = stages_of(span.action);
                sent.insert({stages.from, stages.to, span.action.micro_batch});
            }
        }
    }
    std::multiset<std::tuple<int, int, int>> expected;
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
        for (const auto& [from, to] :
             std::vector<std::pair<int, int>>{{0, 1}, {1, 2}, {2, 3}, {1, 3}}) {
            expected.insert({from, to, micro_batch});
        }
    }
    EXPECT_EQ(sent, expected);
    // Samples of 3 positions in fp32, two in a micro-batch: 24 bytes for each number of a position.
    const Bytes position{2 * 3 * 4};
    EXPECT_EQ(plan.message_bytes(0, 0), position * 8);            // down0 for down1
    EXPECT_EQ(plan.message_bytes(2, 0), position * (6 + 4 + 5));  // down1, down2, bottom
    EXPECT_EQ(plan.message_bytes(4, 0), position * 12);           // join1
    EXPECT_EQ(plan.message_bytes(6, 0), position * 8);  // down0 for join0, from its first reader
}

TEST(Branches, WhereALossIsNotFiniteTheFirstLayerIsNamed) {
    const Model model = unet();
    const Shape shape{.stages = 4, .batch = 7, .schedule = "1f1b"};
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    for (Parameter* const parameter : executor.parameters()) {
        if (parameter->name == "up2.linear.weight") {
            parameter->value.as<float>()[0] = std::numeric_limits<float>::infinity();
        }
    }
    try {
        executor.run_step(random_batch(model, shape.batch, 1), 0);
        FAIL() << "the loss is not finite";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("that of layer 'up2'"));
    }
}

}  // namespace branches_test
}  // namespace pipetwin::exec
