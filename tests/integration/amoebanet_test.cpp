// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/model/image_models.h"
#include "core/plan/plan.h"
#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "exec/training/checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_training.h"
#include "tests/support/training_step.h"

/// What GPipe's recipe adds to the training of an AmoebaNet: an auxiliary head, which is a loss in
/// the middle of the model, and paths that are dropped ever more often.
namespace pipetwin::exec {
namespace amoebanet_test {

using test::NamedValues;
using test::Shape;

/// The smallest images whose cells the auxiliary head can read.
Model small_amoebanet() {
    const SampleShape image = image_shape({67, 67}, 1);
    return Model::graph(
        image,
        amoebanet_layers(
            AmoebaNetCells::D,
            {.layers = 3, .filters = 16, .classes = 4, .auxiliary_head = true, .drop_path = 0.3},
            image));
}

/// What two steps in the middle of a training leave behind.
struct Outcome {
    double first_loss = 0;
    double second_loss = 0;
    double held_out = 0;
    std::vector<NamedValues> weights{};
    bool operator==(const Outcome&) const = default;
};

/// Steps 30 and 31 of 50, so that paths are dropped. The peaks are those of the plan, to the byte.
Outcome trained(const Model& model, const Shape& shape) {
    const Plan plan = test::plan_of(model, shape);
    Executor executor(plan, model, test::options_of(shape));
    const std::vector<MemoryUse> predicted = peak_memory(plan);
    const auto run = [&](int step) {
        const StepResult result = executor.run_step(random_batch(model, shape.batch, 1), step);
        for (std::size_t rank = 0; rank < predicted.size(); ++rank) {
            EXPECT_EQ(result.peak[rank].total(), predicted[rank].total()) << "rank " << rank;
            EXPECT_EQ(executor.room(static_cast<int>(rank)).unforeseen, 0);
        }
        return result.loss;
    };
    Outcome outcome;
    outcome.first_loss = run(30);
    outcome.second_loss = run(31);
    outcome.held_out = executor.evaluate(random_batch(model, shape.batch, 2), 0);
    outcome.weights = test::weights_of(executor.parameters());
    return outcome;
}

/// Cuts of the ten units: in front of the auxiliary head, behind it, far from it.
const std::vector<std::vector<int>> cuts{{10}, {4, 6}, {6, 4}, {7, 3}, {2, 4, 4}, {6, 1, 3}};

std::string described(const Shape& shape) {
    std::string text = test::to_string(shape) + " cut";
    for (const int units : *shape.partition) {
        text += " " + std::to_string(units);
    }
    return text;
}

TEST(AuxiliaryHead, TrainsWithTheBitsOfOneStageInEveryCutAndTheBytesOfThePlan) {
    const Model model = small_amoebanet();
    ASSERT_EQ(model.layer_count(), 10);
    for (const char* const schedule : {"gpipe", "1f1b"}) {
        Shape shape{.micro_batches = 3, .batch = 7, .schedule = schedule};
        const Outcome whole = trained(model, shape);
        for (const std::vector<int>& cut : cuts) {
            shape.stages = static_cast<int>(cut.size());
            shape.partition = cut;
            for (const Recompute mode :
                 {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
                shape.recompute = mode;
                SCOPED_TRACE(described(shape));
                EXPECT_TRUE(trained(model, shape) == whole);
            }
            shape.recompute = Recompute::None;
            shape.layer_recompute = LayerRecompute::Block;
            for (const int together : {1, 3}) {
                shape.recompute_blocks = together;
                SCOPED_TRACE(described(shape) + " block");
                EXPECT_TRUE(trained(model, shape) == whole);
            }
            shape.layer_recompute = LayerRecompute::None;
            shape.recompute_blocks = 1;
        }
    }
}

TEST(AuxiliaryHead, HasTheBitsOfOneStageAndTheBytesOfThePlanInEveryPrecision) {
    const Model model = small_amoebanet();
    for (const Precision precision : {Precision::Fp64, Precision::Bf16}) {
        Shape shape{.micro_batches = 3, .batch = 6, .schedule = "1f1b", .precision = precision};
        const Outcome whole = trained(model, shape);
        shape.stages = 3;
        shape.partition = std::vector{6, 1, 3};
        shape.schedule = "zb-h1";
        EXPECT_TRUE(trained(model, shape) == whole);
    }
}

/// The largest gradient of some weights of the head, in front of it and behind it. A step of 1e-6
/// passes a few kinks of ReLUs and pools, of which each is a small part of a loss.
TEST(AuxiliaryHead, HasTheGradientsOfFiniteDifferences) {
    const Model model = small_amoebanet();
    const Shape shape{.stages = 2,
                      .micro_batches = 2,
                      .batch = 4,
                      .schedule = "1f1b",
                      .partition = std::vector{7, 3},
                      .precision = Precision::Fp64};
    ExecutorOptions options = test::options_of(shape);
    options.optimizer.learning_rate = 0;
    options.optimizer.weight_decay = 0;
    Executor executor(test::plan_of(model, shape), model, options);
    const Batch batch = random_batch(model, shape.batch, 1);
    executor.run_step(batch, 30);
    const std::vector<Parameter*> parameters = executor.parameters();
    const std::vector<NamedValues> gradients = test::gradients_of(parameters);
    int compared = 0;
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        const std::string& name = parameters[index]->name;
        if (name != "auxiliary.linear.weight" && name != "auxiliary.conv1.weight" &&
            name != "cell1_normal1.state0.norm.gain" && name != "classify.linear.bias") {
            continue;
        }
        ++compared;
        constexpr double h = 1e-6;
        const std::vector<double>& found = gradients[index].values;
        const auto largest =
            std::ranges::max_element(found, {}, [](double gradient) { return std::abs(gradient); });
        double& weight = parameters[index]->value.as<double>()[largest - found.begin()];
        const double before = weight;
        weight = before + h;
        const double above = executor.run_step(batch, 30).loss;
        weight = before - h;
        const double below = executor.run_step(batch, 30).loss;
        weight = before;
        EXPECT_NEAR((above - below) / (2 * h), *largest, 1e-3 * std::abs(*largest)) << name;
        EXPECT_GT(std::abs(*largest), 1e-4) << name;
    }
    EXPECT_EQ(compared, 4);
}

TEST(AuxiliaryHead, GoesOnInAnotherNumberOfStagesFromItsCheckpoint) {
    const Model model = small_amoebanet();
    const tests::ScratchFolder folder;
    const auto executor_in = [&](int stages) {
        const Shape shape{.stages = stages, .micro_batches = 2, .batch = 4, .schedule = "1f1b"};
        return std::make_unique<Executor>(
            test::plan_of(model, shape), model, test::options_of(shape));
    };
    const Batch batch = random_batch(model, 4, 1);
    const auto before = executor_in(2);
    before->run_step(batch, 30);
    Checkpoints(folder.path()).save({.steps_done = 31}, before->trained());
    const double expected = before->run_step(batch, 31).loss;
    const auto after = executor_in(3);
    ASSERT_TRUE(Checkpoints(folder.path()).load(after->trained()));
    EXPECT_EQ(after->run_step(batch, 31).loss, expected);
    EXPECT_TRUE(test::weights_of(after->parameters()) == test::weights_of(before->parameters()));
}

/// Two paths, of which one may be dropped.
Model with_drop_path(double probability, bool rising) {
    const LayerSpec drop{
        .name = "drop", .type = LayerType::DropPath, .dropout = probability, .rising = rising};
    const LayerSpec linear{.name = "linear", .type = LayerType::Linear, .outputs = 6};
    return Model::chain({.positions = 2, .width = 6},
                        {linear,
                         {.name = "branch", .type = LayerType::Residual, .inner = {linear, drop}},
                         {.name = "classes",
                          .type = LayerType::Sequence,
                          .inner = {{.name = "linear", .type = LayerType::Linear, .outputs = 4},
                                    {.name = "loss", .type = LayerType::CrossEntropy}}}});
}

struct Step {
    double loss = 0;
    std::vector<NamedValues> gradients{};
    bool operator==(const Step&) const = default;
};

Step step_of(const Model& model, const Shape& shape, int step, int steps) {
    ExecutorOptions options = test::options_of(shape);
    options.optimizer.steps = steps;
    Executor executor(test::plan_of(model, shape), model, options);
    const double loss = executor.run_step(random_batch(model, shape.batch, 1), step).loss;
    return {.loss = loss, .gradients = test::gradients_of(executor.parameters())};
}

/// In step s of n it is the probability p s / n, whatever the stages; behind the last it stays p.
TEST(DropPath, RisesToItsProbabilityWithTheStepsOfTheTraining) {
    constexpr double p = 0.5;
    const Model rising = with_drop_path(p, true);
    for (const int stages : {1, 2, 3}) {
        const Shape shape{.stages = stages, .batch = 64};
        for (const int step : {0, 3, 5, 8, 10, 12}) {
            const double now = p * std::min(1.0, step / 10.0);
            SCOPED_TRACE(step);
            EXPECT_TRUE(step_of(rising, shape, step, 10) ==
                        step_of(with_drop_path(now, false), {.batch = 64}, step, 10));
        }
        EXPECT_TRUE(step_of(rising, shape, 3, 0) ==
                    step_of(with_drop_path(p, false), {.batch = 64}, 3, 0));
    }
    EXPECT_NE(step_of(rising, {.batch = 64}, 5, 10).loss,
              step_of(rising, {.batch = 64}, 5, 20).loss);
}

TEST(DropPath, DropsTheSameSamplesHoweverManyMicroBatchesThereAre) {
    const Model model = with_drop_path(0.5, true);
    const auto outcome = [&](int micro_batches) {
        const Step step = step_of(model,
                                  {.stages = 2,
                                   .micro_batches = micro_batches,
                                   .batch = 16,
                                   .precision = Precision::Fp64},
                                  7,
                                  10);
        return test::StepOutcome{.loss = step.loss, .gradients = step.gradients};
    };
    for (const int micro_batches : {2, 3, 16}) {
        test::expect_near(outcome(micro_batches), outcome(1), 1e-12);
    }
}

}  // namespace amoebanet_test
}  // namespace pipetwin::exec
