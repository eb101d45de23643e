// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "exec/replicas/replicas.h"
#include "exec/training/checkpoint.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_training.h"

/// Running statistics of batch norms in a training: one commit a step, the same in all stages,
/// twins and replicas, and nothing of a step that fails.
namespace pipetwin::exec {
namespace batch_norm_test {

using test::NamedValues;
using test::Shape;
using ::testing::HasSubstr;

/// Whole-batch statistics of the first norm of `small_norms`, which reads the batch itself.
struct Exact {
    std::vector<double> mean;
    std::vector<double> variance;
};
Exact exact(const Batch& batch) {
    const auto width = static_cast<std::size_t>(batch.width);
    const std::size_t rows = batch.values.size() / width;
    Exact all;
    for (std::size_t j = 0; j < width; ++j) {
        double sum = 0;
        double squares = 0;
        for (std::size_t r = 0; r < rows; ++r) {
            sum += batch.values[r * width + j];
        }
        const double mean = sum / static_cast<double>(rows);
        for (std::size_t r = 0; r < rows; ++r) {
            const double off = batch.values[r * width + j] - mean;
            squares += off * off;
        }
        all.mean.push_back(mean);
        all.variance.push_back(squares / static_cast<double>(rows - 1));
    }
    return all;
}

Batch batch_of(const Model& model, const Shape& shape, int step) {
    return random_batch(model, shape.batch, static_cast<std::uint64_t>(step));
}

void expect_first_norm(const std::vector<Parameter*>& state,
                       const std::vector<double>& mean,
                       const std::vector<double>& variance,
                       double bound) {
    ASSERT_EQ(state[0]->name, "bn1.running_mean");
    ASSERT_EQ(state[1]->name, "bn1.running_var");
    const auto near = [&](const Parameter& found, const std::vector<double>& expected) {
        const std::vector<double> values = test::values_of(found.value);
        ASSERT_EQ(values.size(), expected.size());
        for (std::size_t j = 0; j < values.size(); ++j) {
            EXPECT_NEAR(values[j], expected[j], bound) << found.name;
        }
    };
    near(*state[0], mean);
    near(*state[1], variance);
}

/// C21 with pipelines, twins and replicas: however a mini-batch is shared out, the values follow
/// that of the whole. The bound is the rounding of fp64.
TEST(RunningStatistics, AreThoseOfTheWholeMiniBatchHoweverItIsSharedOut) {
    const Model model = test::small_norms();
    for (const Shape& given : std::vector<Shape>{
             {.stages = 1, .micro_batches = 1, .batch = 12},
             {.stages = 4, .micro_batches = 5, .batch = 12},
             {.stages = 4, .micro_batches = 4, .batch = 12, .schedule = "chimera"},
             {.stages = 2, .micro_batches = 2, .batch = 12, .replicas = 2},
             {.stages = 1, .micro_batches = 2, .batch = 12, .clip_norm = 0.5, .replicas = 3},
             {.stages = 2,
             .micro_batches = 3,
             .batch = 12,
             .schedule = "zb-h1",
             .recompute = Recompute::Always,
             .replicas = 2,
             .overlap_reduction = true},
             {.stages = 2,
             .micro_batches = 2,
             .batch = 12,
             .replicas = 2,
             .shard_optimizer = true}}) {
        Shape shape = given;
        shape.precision = Precision::Fp64;
        SCOPED_TRACE(test::to_string(shape));
        Replicas pipelines(test::plan_of(model, shape), model, test::options_of(shape));
        StepResult result;
        std::vector<double> mean(6, 0.0);
        std::vector<double> variance(6, 1.0);
        for (int step = 0; step < 2; ++step) {
            const Batch batch = batch_of(model, shape, step);
            pipelines.run_step(batch, step, result);
            const Exact now = exact(batch);
            for (std::size_t j = 0; j < mean.size(); ++j) {
                mean[j] = 0.9 * mean[j] + 0.1 * now.mean[j];
                variance[j] = 0.9 * variance[j] + 0.1 * now.variance[j];
            }
        }
        expect_first_norm(pipelines.first().state(), mean, variance, 1e-14);
        // All stages that have the norm have the same values, bit for bit.
        for (int stage = 0; stage < pipelines.first().plan().stage_count(); ++stage) {
            const std::vector<Parameter*> trained = pipelines.first().trained_of_stage(stage);
            for (const Parameter* const state : trained) {
                for (const Parameter* const other : pipelines.first().state()) {
                    if (other->name == state->name) {
                        EXPECT_EQ(test::values_of(state->value), test::values_of(other->value));
                    }
                }
            }
        }
    }
}

TEST(RunningStatistics, AreTheSameInAllReplicasBitForBit) {
    const Model model = test::small_norms();
    const Shape shape{.stages = 2, .micro_batches = 2, .batch = 12, .replicas = 3};
    Replicas pipelines(test::plan_of(model, shape), model, test::options_of(shape));
    StepResult result;
    for (int step = 0; step < 2; ++step) {
        pipelines.run_step(batch_of(model, shape, step), step, result);
    }
    // An evaluation of the same samples in every replica has the same loss in each.
    Batch batch = batch_of(model, shape, 7);
    const std::size_t third = batch.values.size() / 3;
    const std::size_t targets = batch.targets.size() / 3;
    for (std::size_t i = third; i < batch.values.size(); ++i) {
        batch.values[i] = batch.values[i - third];
    }
    for (std::size_t i = targets; i < batch.targets.size(); ++i) {
        batch.targets[i] = batch.targets[i - targets];
    }
    Executor alone(test::plan_of(model, {.stages = 1, .micro_batches = 2, .batch = 12}),
                   model,
                   test::options_of({}));
    const std::vector<Parameter*> from = pipelines.first().parameters();
    const std::vector<Parameter*> to = alone.parameters();
    for (std::size_t i = 0; i < from.size(); ++i) {
        std::copy_n(from[i]->value.as<float>(), from[i]->value.size(), to[i]->value.as<float>());
    }
    for (std::size_t i = 0; i < pipelines.first().state().size(); ++i) {
        const Tensor& value = pipelines.first().state()[i]->value;
        if (value.dtype() == DType::F32) {
            std::copy_n(value.as<float>(), value.size(), alone.state()[i]->value.as<float>());
        }
    }
    EXPECT_NEAR(pipelines.evaluate(batch, 0), alone.evaluate(batch, 0), 1e-6);
}

struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A step that throws in its third micro-batch, then a good one: as if the first had not been.
TEST(RunningStatistics, OfAFailedStepNothingIsLeft) {
    const Model model = test::small_norms();
    for (const bool deferred : {true, false}) {
        LayerSpec norm{.name = "bn1", .type = LayerType::BatchNorm};
        norm.deferred = deferred;
        LayerSpec product{.name = "product", .type = LayerType::Linear, .outputs = 5};
        const Model small =
            Model::chain(image_shape({3, 2}, 6),
                         {norm, product, {.name = "loss", .type = LayerType::CrossEntropy}});
        for (const int stages : {1, 2}) {
            const Shape shape{.stages = stages, .micro_batches = 4};
            const Plan plan = test::plan_of(small, shape);
            Executor untouched(plan, small, test::options_of(shape));
            untouched.run_step(batch_of(small, shape, 0), 0);

            bool armed = true;
            ExecutorOptions options = test::options_of(shape);
            options.before_action = [&](int, const Action& action) {
                if (armed && action == Action{.op = Op::Forward, .stage = 0, .micro_batch = 2}) {
                    throw Broken("broken on purpose");
                }
            };
            Executor executor(plan, small, options);
            const auto before = test::weights_of(executor.state());
            EXPECT_THROW(executor.run_step(batch_of(small, shape, 5), 0), Broken);
            EXPECT_EQ(test::weights_of(executor.state()), before);
            armed = false;
            executor.run_step(batch_of(small, shape, 0), 0);
            EXPECT_EQ(test::weights_of(executor.state()), test::weights_of(untouched.state()));
        }
    }
}

/// The last stage has updated its weights when the first fails in its last backward; its running
/// statistics wait for the end of the step.
TEST(RunningStatistics, OfAStepThatFailsLateNoStageCommitsAny) {
    const Model model = test::small_norms();
    const Shape shape{.stages = 3};
    ExecutorOptions options = test::options_of(shape);
    options.before_action = [](int rank, const Action& action) {
        if (rank == 0 && action.op == Op::Optimizer) {
            throw Broken("broken on purpose");
        }
    };
    Executor executor(test::plan_of(model, shape), model, options);
    const auto before = test::weights_of(executor.state());
    EXPECT_THROW(executor.run_step(batch_of(model, shape, 0), 0), Broken);
    EXPECT_EQ(test::weights_of(executor.state()), before);
}

TEST(RunningStatistics, AStepWhoseLossIsNoNumberCommitsNothing) {
    const Model model = test::small_norms();
    const Shape shape{.stages = 2};
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    Executor untouched(test::plan_of(model, shape), model, test::options_of(shape));
    const auto before = test::weights_of(executor.state());
    Batch broken = batch_of(model, shape, 0);
    broken.values.back() = std::nanf("");
    EXPECT_THROW(executor.run_step(broken, 0), Error);
    EXPECT_EQ(test::weights_of(executor.state()), before);
    executor.run_step(batch_of(model, shape, 1), 0);
    untouched.run_step(batch_of(model, shape, 1), 0);
    EXPECT_EQ(test::weights_of(executor.state()), test::weights_of(untouched.state()));
}

TEST(RunningStatistics, EvaluationsReadThemAndChangeNothing) {
    const Model model = test::small_norms();
    const Shape shape{.stages = 2, .recompute = Recompute::Always};
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    const Batch batch = batch_of(model, shape, 3);
    const double untrained = executor.evaluate(batch, 0);
    const auto before = test::weights_of(executor.state());
    EXPECT_EQ(executor.evaluate(batch, 0), untrained);
    EXPECT_EQ(test::weights_of(executor.state()), before);
    for (Parameter* const state : executor.state()) {
        if (state->name == "bn2.running_mean") {
            state->value.as<float>()[0] += 1;
        }
    }
    EXPECT_NE(executor.evaluate(batch, 0), untrained);
}

/// Saved with two stages, resumed with one or four: as if there had been no end.
TEST(RunningStatistics, AreInACheckpointUnderNamesThatNoPartitionChanges) {
    const Model model = test::small_norms();
    const tests::ScratchFolder scratch;
    const Checkpoints checkpoints(scratch.path() / "checkpoints");
    const auto train = [&](Executor& executor, int first, int end) {
        for (int step = first; step < end; ++step) {
            executor.run_step(batch_of(model, {}, step), step);
        }
    };
    const Shape two{.stages = 2};
    Executor uninterrupted(test::plan_of(model, two), model, test::options_of(two));
    train(uninterrupted, 0, 4);
    Executor first(test::plan_of(model, two), model, test::options_of(two));
    train(first, 0, 2);
    checkpoints.save({.steps_done = 2,
                      .optimizer = "adamw",
                      .precision = "fp32",
                      .seed = 1,
                      .batch = 8,
                      .data = "random",
                      .tool_version = "0"},
                     first.trained());
    for (const int stages : {1, 4}) {
        const Shape shape{.stages = stages};
        Executor resumed(test::plan_of(model, shape), model, test::options_of(shape));
        ASSERT_TRUE(checkpoints.load(resumed.trained()));
        EXPECT_EQ(test::weights_of(resumed.state()), test::weights_of(first.state()));
        train(resumed, 2, 4);
        EXPECT_EQ(test::weights_of(resumed.state()), test::weights_of(uninterrupted.state()));
        EXPECT_EQ(test::weights_of(resumed.parameters()),
                  test::weights_of(uninterrupted.parameters()));
    }
    // Twins and replicas all get what was loaded.
    for (const Shape& shape :
         std::vector<Shape>{{.stages = 2, .micro_batches = 2, .schedule = "chimera"},
                            {.stages = 2, .micro_batches = 2, .replicas = 2}}) {
        Replicas pipelines(test::plan_of(model, shape), model, test::options_of(shape));
        pipelines.with_parameters(
            [&](const TrainedParameters& all) { ASSERT_TRUE(checkpoints.load(all)); });
        EXPECT_EQ(test::weights_of(pipelines.first().state()), test::weights_of(first.state()));
        for (int stage = 2; stage < pipelines.first().plan().stage_count(); ++stage) {
            EXPECT_EQ(test::weights_of(pipelines.first().stage(stage).state()),
                      test::weights_of(pipelines.first().stage(stage - 2).state()));
        }
    }
}

// --- Inside of units of partition ---

LayerSpec named(const char* name, LayerType type, std::vector<std::string> inputs = {}) {
    return {.name = name, .type = type, .inputs = std::move(inputs)};
}

LayerSpec product_of(const char* name, int outputs, std::vector<std::string> inputs = {}) {
    LayerSpec product = named(name, LayerType::Linear, std::move(inputs));
    product.outputs = outputs;
    return product;
}

/// A cell with a norm of what it reads and one behind a product, beside each other, and a residual
/// with one in its branch, and one in a cell in it.
Model norms_in_cells() {
    LayerSpec cell = named("block0", LayerType::Sequence);
    cell.inner = {named("left", LayerType::BatchNorm, {"input0"}),
                  product_of("right", 6, {"input0"}),
                  named("norm", LayerType::BatchNorm),
                  named("relu", LayerType::Relu),
                  named("sum", LayerType::Add, {"left", "relu"})};
    LayerSpec inner = cell;
    inner.name = "inner";
    LayerSpec block = named("block1", LayerType::Residual);
    block.inner = {named("norm", LayerType::BatchNorm), product_of("product", 6), inner};
    return Model::chain(
        image_shape({3, 2}, 6),
        {cell, block, product_of("classes", 5), named("loss", LayerType::CrossEntropy)});
}

/// After some steps, by name.
std::vector<NamedValues> states_after(const Model& model, const Shape& shape, int steps) {
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    for (int step = 0; step < steps; ++step) {
        executor.run_step(batch_of(model, shape, step), step);
    }
    return test::weights_of(executor.state());
}

/// A forward that is done again for the backward counts no micro-batch twice, whichever part of a
/// stage is done again.
TEST(RunningStatistics, InsideOfCellsMoveOnceAStepHoweverMuchIsRecomputed) {
    const Model model = norms_in_cells();
    constexpr int steps = 3;
    const Shape plain{.stages = 1, .precision = Precision::Fp64};
    const std::vector<NamedValues> expected = states_after(model, plain, steps);
    ASSERT_EQ(expected.size(), 15U);  // 5 norms, 3 tensors each
    for (const char* schedule : {"gpipe", "1f1b"}) {
        for (const int stages : {1, 2, 3}) {
            for (const RecomputeRules& rules : test::every_recompute(stages)) {
                for (const LayerRecompute layers : {LayerRecompute::None, LayerRecompute::Block}) {
                    Shape shape = plain;
                    shape.schedule = schedule;
                    shape.stages = stages;
                    shape.recompute = rules;
                    shape.layer_recompute = layers;
                    SCOPED_TRACE(test::to_string(shape));
                    const std::vector<NamedValues> found = states_after(model, shape, steps);
                    for (const NamedValues& state : found) {
                        if (state.name.ends_with("num_batches_tracked")) {
                            EXPECT_EQ(state.values, std::vector<double>{steps}) << state.name;
                        }
                    }
                    // The orders of gpipe's and of other backwards differ, and so do weights.
                    if (std::string_view(schedule) == "gpipe") {
                        EXPECT_EQ(found, expected);
                    } else {
                        ASSERT_EQ(found.size(), expected.size());
                        EXPECT_EQ(found[0], expected[0]);  // of what the first norm reads
                        EXPECT_EQ(found[1], expected[1]);
                    }
                }
            }
        }
    }
}

TEST(RunningStatistics, InsideOfCellsAreThoseOfTheWholeMiniBatch) {
    const Model model = norms_in_cells();
    const Shape shape{.stages = 2,
                      .micro_batches = 5,
                      .batch = 12,
                      .recompute = Recompute::Always,
                      .precision = Precision::Fp64};
    const std::vector<NamedValues> found = states_after(model, shape, 1);
    const Exact now = exact(batch_of(model, shape, 0));
    ASSERT_EQ(found[0].name, "block0.left.running_mean");
    ASSERT_EQ(found[1].name, "block0.left.running_var");
    for (std::size_t j = 0; j < now.mean.size(); ++j) {
        EXPECT_NEAR(found[0].values[j], 0.1 * now.mean[j], 1e-14);
        EXPECT_NEAR(found[1].values[j], 0.9 + 0.1 * now.variance[j], 1e-14);
    }
}

/// torch's words for what a norm keeps, behind the path to it; saved with two stages, read with one
/// and with three.
TEST(RunningStatistics, InsideOfCellsHaveTheirPathAsNameInACheckpoint) {
    const Model model = norms_in_cells();
    const tests::ScratchFolder scratch;
    const Checkpoints checkpoints(scratch.path() / "checkpoints");
    const auto make = [&](int stages) {
        const Shape shape{.stages = stages};
        return std::make_unique<Executor>(
            test::plan_of(model, shape), model, test::options_of(shape));
    };
    const auto first = make(2);
    first->run_step(batch_of(model, {}, 0), 0);
    checkpoints.save({.steps_done = 1,
                      .optimizer = "adamw",
                      .precision = "fp32",
                      .seed = 1,
                      .batch = 8,
                      .data = "random",
                      .tool_version = "0"},
                     first->trained());
    std::vector<std::string> names;
    for (const char* norm :
         {"block0.left", "block0.norm", "block1.norm", "block1.inner.left", "block1.inner.norm"}) {
        for (const char* tensor : {"running_mean", "running_var", "num_batches_tracked"}) {
            names.push_back(std::string(norm) + '.' + tensor);
        }
    }
    for (const int stages : {1, 3}) {
        const auto resumed = make(stages);
        std::vector<std::string> found;
        for (const Parameter* const state : resumed->state()) {
            found.push_back(state->name);
        }
        EXPECT_EQ(found, names);
        ASSERT_TRUE(checkpoints.load(resumed->trained()));
        EXPECT_EQ(test::weights_of(resumed->state()), test::weights_of(first->state()));
    }
}

// --- Beside torch ---

/// Every number is an exact fraction, so that torch and we begin with the same bits.
double fraction(int index, int factor, int modulus, double divisor, double less) {
    return index * factor % modulus / divisor - less;
}

void set(Parameter& parameter, int factor, int modulus, double divisor, double less) {
    auto* const values = parameter.value.as<double>();
    for (std::int64_t i = 0; i < parameter.value.size(); ++i) {
        values[i] = fraction(static_cast<int>(i), factor, modulus, divisor, less);
    }
}

void expect_values(const Tensor& found, const std::vector<double>& expected, double bound) {
    const std::vector<double> values = test::values_of(found);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(values[i], expected[i], bound * std::max(1.0, std::fabs(expected[i]))) << i;
    }
}

/// Values of torch 1.13 (Debian 12's python3-torch) in fp64: Linear(4, 6), BatchNorm1d(6), ReLU,
/// Linear(6, 5), cross_entropy over 8 samples of 6 positions in two micro-batches whose gradients
/// add up, three steps of SGD at 0.5. The deferred statistics are those of a second BatchNorm1d
/// that reads the outputs of the first product for the whole mini-batch. Bound: 1e-10 relative.
class BesideTorch : public ::testing::TestWithParam<bool> {
  protected:
    static Model model(bool deferred) {
        LayerSpec norm{.name = "bn", .type = LayerType::BatchNorm};
        norm.deferred = deferred;
        return Model::chain({.positions = 6, .width = 4},
                            {{.name = "l1", .type = LayerType::Linear, .outputs = 6},
                             norm,
                             {.name = "relu", .type = LayerType::Relu},
                             {.name = "l2", .type = LayerType::Linear, .outputs = 5},
                             {.name = "loss", .type = LayerType::CrossEntropy}});
    }

    static Batch batch(int step) {
        Batch batch{.samples = 8,
                    .positions = 6,
                    .width = 4,
                    .target_positions = 6,
                    .tokens = {},
                    .values = {},
                    .targets = {}};
        for (int i = 0; i < 8 * 6 * 4; ++i) {
            batch.values.push_back(static_cast<float>((i * 37 + step * 11) % 64 / 16.0 - 2));
        }
        for (int i = 0; i < 8 * 6; ++i) {
            batch.targets.push_back((i * 7 + step) % 5);
        }
        return batch;
    }
};
INSTANTIATE_TEST_SUITE_P(BatchNorm, BesideTorch, ::testing::Bool());

TEST_P(BesideTorch, ThreeStepsHaveItsLossesWeightsAndRunningStatistics) {
    constexpr double bound = 1e-10;
    const Model small = model(GetParam());
    for (const int stages : {1, 3}) {
        const Shape shape{.stages = stages,
                          .micro_batches = 2,
                          .schedule = "1f1b",
                          .precision = Precision::Fp64,
                          .optimizer = OptimizerKind::Sgd};
        ExecutorOptions options = test::options_of(shape);
        options.optimizer.learning_rate = 0.5;
        Executor executor(test::plan_of(small, shape), small, options);
        const std::vector<Parameter*> weights = executor.parameters();
        ASSERT_EQ(weights.size(), 6U);
        set(*weights[0], 13, 16, 16, 0.5);
        set(*weights[1], 5, 8, 16, 0.25);
        set(*weights[2], 3, 8, 8, -0.5);
        set(*weights[3], 7, 8, 8, 0.5);
        set(*weights[4], 11, 16, 16, 0.5);
        set(*weights[5], 3, 8, 16, 0.25);
        const std::vector<double> losses{
            1.7281781428397829, 1.6444401771689243, 1.6329519705344822};
        for (int step = 0; step < 3; ++step) {
            EXPECT_NEAR(executor.run_step(batch(step), step).loss,
                        losses[static_cast<std::size_t>(step)],
                        bound);
        }
        expect_values(weights[0]->value,
                      {-0.4993968421230904,
                       0.25908499298833115,
                       0.16776743485322254,
                       -0.10041251602106874,
                       -0.2649829186669067,
                       -0.4366547176178298},
                      bound);
        expect_values(weights[2]->value,
                      {0.46373550893545923,
                       0.8436017975537267,
                       1.23525503170934,
                       0.6043097056591062,
                       0.9922004377031992,
                       1.3184025992996484},
                      bound);
        expect_values(weights[3]->value,
                      {-0.5291378076945262,
                       0.34163229282385127,
                       0.24865307055771274,
                       0.11409328725917504,
                       -0.008980108535618682,
                       -0.17150293489189353},
                      bound);
        const std::vector<Parameter*> state = executor.state();
        if (GetParam()) {
            expect_values(state[0]->value,
                          {-0.07392111240477836,
                           0.012186573346696285,
                           -0.03222387411643706,
                           0.05883647535238821,
                           0.01309518857392755,
                           -0.059402090454145566},
                          bound);
            expect_values(state[1]->value,
                          {0.9233696985261913,
                           0.7603070552700046,
                           0.7620817756396354,
                           0.7901213056521186,
                           0.924413930100272,
                           0.9229660903489637},
                          bound);
            expect_values(state[2]->value, {3}, 0);
        } else {
            expect_values(state[0]->value,
                          {-0.12897621112629803,
                           0.022114815505609405,
                           -0.05489272133287551,
                           0.1025308087865317,
                           0.021554775088895667,
                           -0.10388560043986497},
                          bound);
            expect_values(state[1]->value,
                          {0.8729632872190891,
                           0.5861638125150775,
                           0.5898103024888326,
                           0.6382026712670501,
                           0.8761078608727869,
                           0.8719359200146058},
                          bound);
            expect_values(state[2]->value, {6}, 0);
        }
    }
}

// --- What a plan refuses ---

Model norm_of_one_pixel(bool deferred) {
    LayerSpec norm{.name = "bn", .type = LayerType::BatchNorm};
    norm.deferred = deferred;
    return Model::chain({.positions = 1, .width = 4},
                        {{.name = "body", .type = LayerType::Sequence, .inner = {norm}},
                         {.name = "l", .type = LayerType::Linear, .outputs = 5},
                         {.name = "loss", .type = LayerType::CrossEntropy}});
}

TEST(BatchNormInAPlan, OneValuePerChannelIsRefusedWithLayerAndSize) {
    const Error error = pipetwin::testing::error_of(
        [] { test::plan_of(norm_of_one_pixel(true), {.micro_batches = 5, .batch = 8}); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.place(), HasSubstr("body.bn"));
    EXPECT_THAT(error.text(), HasSubstr("micro-batches of 1 sample of 1 x 4"));
    test::plan_of(norm_of_one_pixel(true), {.micro_batches = 4, .batch = 8});
}

TEST(BatchNormInAPlan, RunningStatisticsOfMicroBatchesAreRefusedWhereSeveralPipelinesHaveThem) {
    const Model model = norm_of_one_pixel(false);
    for (const Shape& shape :
         std::vector<Shape>{{.micro_batches = 2, .replicas = 2},
                            {.stages = 2, .micro_batches = 2, .schedule = "chimera"}}) {
        const Error error = pipetwin::testing::error_of([&] { test::plan_of(model, shape); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.text(), HasSubstr("deferred = false"));
    }
}

}  // namespace batch_norm_test
}  // namespace pipetwin::exec
