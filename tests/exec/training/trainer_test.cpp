// SPDX-License-Identifier: Apache-2.0
#include "exec/training/trainer.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/scenario/settled_scenario.h"
#include "core/timeline/footprint.h"
#include "core/timeline/timeline.h"
#include "exec/data/random_batch.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace trainer_test {

using test::Shape;

SettledScenario training_of(const Shape& shape, int steps) {
    SettledScenario scenario = test::scenario_of(shape);
    scenario.model.kind = ModelKind::Mlp;
    scenario.model.sizes = {6, 9, 8, 10, 7, 9, 8, 8, 5};
    scenario.data.kind = DataKind::Synthetic;
    scenario.training.steps = steps;
    return scenario;
}

TrainingOptions telling(std::function<bool(const StepReport&)> on_step) {
    TrainingOptions options;
    options.on_step = std::move(on_step);
    return options;
}

const Shape two_stages{.stages = 2, .micro_batches = 3, .batch = 8};

TEST(Trainer, ReportsEveryStepInItsOrder) {
    const Model model = test::small_mlp();
    const Plan plan = test::plan_of(model, two_stages);
    std::vector<int> seen;
    const TrainingResult result =
        train(training_of(two_stages, 5), model, plan, telling([&](const StepReport& step) {
                  seen.push_back(step.step);
                  return true;
              }));
    EXPECT_THAT(seen, ::testing::ElementsAre(0, 1, 2, 3, 4));
    ASSERT_EQ(result.steps.size(), 5U);
    for (const StepReport& step : result.steps) {
        EXPECT_GT(step.loss, 0);
        EXPECT_GT(step.grad_norm, 0);
        EXPECT_GT(step.step_ms, 0);
        EXPECT_NEAR(step.samples_per_second.value(),
                    8 / (step.step_ms / 1000),
                    1e-3 * *step.samples_per_second);
        EXPECT_EQ(step.peak_bytes.size(), 2U);
    }
}

TEST(Trainer, TellsTheLearningRateOfEveryStep) {
    const Model model = test::small_mlp();
    SettledScenario scenario = training_of(two_stages, 4);
    scenario.training.learning_rate = 0.01;
    scenario.training.learning_rate_schedule = RateSchedule::Linear;
    scenario.training.warmup_steps = 2;
    std::vector<double> rates;
    train(scenario, model, test::plan_of(model, two_stages), telling([&](const StepReport& step) {
              rates.push_back(step.learning_rate);
              return true;
          }));
    EXPECT_THAT(rates, ::testing::ElementsAre(0.005, 0.01, 0.01, 0.005));
}

/// Of a run with so many stages.
std::vector<std::optional<double>> validation_losses(int stages, int every) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = stages, .micro_batches = 3, .batch = 8};
    SettledScenario scenario = training_of(shape, 5);
    scenario.data.validation_share = 0.5;
    scenario.training.validate_every = every;
    scenario.training.validation_batches = 3;
    std::vector<std::optional<double>> losses;
    train(scenario, model, test::plan_of(model, shape), telling([&](const StepReport& step) {
              losses.push_back(step.validation_loss);
              return true;
          }));
    return losses;
}

TEST(Trainer, ValidatesEverySoManyStepsWhateverTheNumberOfStages) {
    const auto losses = validation_losses(1, 2);
    EXPECT_THAT(losses,
                ::testing::ElementsAre(std::nullopt,
                                       ::testing::Optional(::testing::Gt(0)),
                                       std::nullopt,
                                       ::testing::Optional(::testing::Gt(0)),
                                       std::nullopt));
    EXPECT_EQ(validation_losses(2, 2), losses);
    EXPECT_EQ(validation_losses(4, 2), losses);
    EXPECT_THAT(validation_losses(2, 0), ::testing::Each(std::nullopt));
}

/// The same held-out samples every time: with a learning rate of 0 nothing changes.
TEST(Trainer, ValidatesOnTheSameSamplesAndChangesNothing) {
    const Model model = test::small_mlp();
    SettledScenario scenario = training_of(two_stages, 4);
    const auto run = [&](int every, double rate) {
        scenario.data.validation_share = 0.5;
        scenario.training.validate_every = every;
        scenario.training.learning_rate = rate;
        return train(scenario,
                     model,
                     test::plan_of(model, two_stages),
                     telling([](const StepReport&) { return true; }))
            .steps;
    };
    std::vector<StepReport> still = run(1, 0);
    EXPECT_EQ(still[0].validation_loss, still[3].validation_loss);
    const std::vector<StepReport> with = run(1, 0.01);
    const std::vector<StepReport> without = run(0, 0.01);
    EXPECT_NE(with[0].validation_loss, with[3].validation_loss);
    for (std::size_t step = 0; step < with.size(); ++step) {
        EXPECT_EQ(with[step].loss, without[step].loss);
        EXPECT_EQ(with[step].grad_norm, without[step].grad_norm);
        EXPECT_EQ(with[step].peak_bytes, without[step].peak_bytes);
    }
}

TEST(Trainer, TellsTheShareOfRightClassesOfModelsThatReadNumbers) {
    const Model model = test::small_mlp();
    SettledScenario scenario = training_of(two_stages, 2);
    scenario.data.validation_share = 0.5;
    scenario.training.validate_every = 2;
    const auto steps_of = [&] {
        return train(scenario,
                     model,
                     test::plan_of(model, two_stages),
                     telling([](const StepReport&) { return true; }))
            .steps;
    };
    const std::vector<StepReport> steps = steps_of();
    for (const StepReport& step : steps) {
        ASSERT_TRUE(step.accuracy.has_value());
        const double right = 8 * *step.accuracy;  // of 8 samples
        EXPECT_EQ(right, std::round(right));
        EXPECT_LE(*step.accuracy, 1);
    }
    EXPECT_EQ(steps[0].validation_accuracy, std::nullopt);
    ASSERT_TRUE(steps[1].validation_accuracy.has_value());
    EXPECT_GE(*steps[1].validation_accuracy, 0);
    EXPECT_LE(*steps[1].validation_accuracy, 1);
    scenario.training.accuracy = false;
    const std::vector<StepReport> without = steps_of();
    EXPECT_EQ(without[1].accuracy, std::nullopt);
    EXPECT_EQ(without[1].validation_accuracy, std::nullopt);
    EXPECT_EQ(without[1].loss, steps[1].loss);
    EXPECT_EQ(without[1].peak_bytes, steps[1].peak_bytes);
}

TEST(Trainer, ValidatesWithTheAveragesOfTheWeights) {
    const Model model = test::small_mlp();
    SettledScenario scenario = training_of(two_stages, 4);
    scenario.data.validation_share = 0.5;
    scenario.training.validate_every = 1;
    scenario.training.learning_rate = 0.01;
    const auto run = [&](double decay) {
        Shape shape = two_stages;
        shape.average_decay = decay;
        scenario.training.average_decay = decay;
        return train(scenario, model, test::plan_of(model, shape), telling([](const StepReport&) {
                         return true;
                     }))
            .steps;
    };
    const std::vector<StepReport> plain = run(0);
    const std::vector<StepReport> averaged = run(0.9);
    for (std::size_t step = 0; step < plain.size(); ++step) {
        EXPECT_EQ(averaged[step].loss, plain[step].loss);
        EXPECT_NE(averaged[step].validation_loss, plain[step].validation_loss);
    }
}

TEST(Trainer, TheMeasuredSetHoldsStepsOfThePlansRows) {
    const Model model = test::small_mlp();
    const Plan plan = test::plan_of(model, two_stages);
    const TrainingResult result = train(
        training_of(two_stages, 6), model, plan, telling([](const StepReport&) { return true; }));
    const TimelineSet& measured = result.measured;
    ASSERT_FALSE(measured.steps.empty());
    EXPECT_EQ(measured.noise.steps + measured.noise.dropped_steps, 6);
    for (const Timeline& timeline : measured.steps) {
        EXPECT_EQ(timeline.origin, Origin::Measured);
        ASSERT_EQ(timeline.ranks.size(), plan->schedule.ranks.size());
        for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
            ASSERT_EQ(timeline.ranks[rank].size(), plan->schedule.ranks[rank].size());
            for (std::size_t cell = 0; cell < timeline.ranks[rank].size(); ++cell) {
                EXPECT_EQ(timeline.ranks[rank][cell].action, plan->schedule.ranks[rank][cell]);
            }
        }
    }
    std::vector<Bytes> predicted;
    for (const MemoryUse& peak : peak_memory(plan)) {
        predicted.push_back(peak.total());
    }
    EXPECT_EQ(measured.peak_bytes, predicted);
}

TEST(Trainer, StopsWhereItIsTold) {
    const Model model = test::small_mlp();
    const Plan plan = test::plan_of(model, two_stages);
    const TrainingResult result =
        train(training_of(two_stages, 100), model, plan, telling([](const StepReport& step) {
                  return step.step < 3;
              }));
    EXPECT_EQ(result.steps.size(), 4U);
    EXPECT_FALSE(result.measured.steps.empty());
}

TEST(Trainer, ALossThatIsNotFiniteArrivesAsItIs) {
    const Model model = test::small_mlp();
    Shape shape = two_stages;
    shape.optimizer = OptimizerKind::Sgd;
    SettledScenario scenario = training_of(shape, 20);
    scenario.training.learning_rate = 1e30;
    try {
        train(scenario, model, test::plan_of(model, shape), telling([](const StepReport&) {
                  return true;
              }));
        FAIL() << "expected an error";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::NotFinite);
        EXPECT_THAT(error.place(), ::testing::MatchesRegex("rank [01], step [0-9]+, .*"));
    }
}

class FailedWorker : public ::testing::Test {
  protected:
    Error error_of(const std::function<void()>& failing) {
        ExecutorOptions options = test::options_of(two_stages);
        options.before_action = [&](int, const Action& action) {
            if (action == Action{.op = Op::Backward, .stage = 1, .micro_batch = 1}) {
                failing();
            }
        };
        Executor executor(test::plan_of(model, two_stages), model, options);
        try {
            training_step(executor, random_batch(model, two_stages.batch, 1), 5);
        } catch (const Error& error) {
            return error;
        }
        throw std::logic_error("expected an error");
    }
    const Model model = test::small_mlp();
};

TEST_F(FailedWorker, KeepsItsMessageAndNamesRankStepAndAction) {
    const Error error = error_of([] { throw std::runtime_error("out of luck"); });
    EXPECT_EQ(error.kind(), ErrorKind::WorkerFailed);
    EXPECT_EQ(error.place(), "rank 1, step 5, 1B1 (the backward of micro-batch 1 on stage 1)");
    EXPECT_EQ(error.text(), "out of luck");
}

TEST_F(FailedWorker, KeepsTextAndHintOfAnError) {
    const Error error = error_of([] { throw Error(ErrorKind::Io, "disk", "it is gone", "look"); });
    EXPECT_EQ(error.kind(), ErrorKind::WorkerFailed);
    EXPECT_THAT(error.place(), ::testing::StartsWith("rank 1, step 5, 1B1"));
    EXPECT_EQ(error.text(), "it is gone");
    EXPECT_EQ(error.hint(), "look");
}

TEST(TrainingStep, ABatchThatIsNotThePlansIsABugAndNoFailedWorker) {
    const Model model = test::small_mlp();
    Executor executor(test::plan_of(model, two_stages), model, test::options_of(two_stages));
    EXPECT_THROW(training_step(executor, random_batch(model, 7, 1), 0), InternalError);
}

}  // namespace trainer_test
}  // namespace pipetwin::exec
