// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "core/plan/plan.h"
#include "core/scenario/scenario_words.h"
#include "core/schedule/generators/generate.h"
#include "exec/data/random_batch.h"
#include "exec/device/device.h"
#include "exec/device/kernels.h"
#include "exec/executor/executor.h"
#include "tests/support/reference.h"
#include "tests/support/small_training.h"
#include "tests/support/training_step.h"

/// The pipeline computes what the model says, whatever the number of stages, the recompute mode and
/// the schedule.
namespace pipetwin::exec {
namespace numerics_test {

using test::pipeline_step;
using test::reference_step;
using test::Shape;
using test::StepOutcome;

struct NamedModel {
    const char* name;
    Model model;
};
void PrintTo(const NamedModel& named, std::ostream* out) {
    *out << named.name;
}

std::string name_of(const ::testing::TestParamInfo<NamedModel>& named) {
    return named.param.name;
}

class EveryModel : public ::testing::TestWithParam<NamedModel> {
  protected:
    const Model& model = GetParam().model;
};
INSTANTIATE_TEST_SUITE_P(
    Numerics,
    EveryModel,
    ::testing::Values(NamedModel{"mlp", test::small_mlp()},
                      NamedModel{"gpt", test::small_gpt()},
                      NamedModel{"gpt_with_dropout", test::small_gpt_with(0.25, false)},
                      NamedModel{"tied_gpt", test::small_gpt_with(0, true)},
                      NamedModel{"llama", test::small_llama()},
                      NamedModel{"tied_llama", test::small_llama_with(true)},
                      NamedModel{"translation",
                                 test::small_translation_with(TranslationTables::Shared, 0)},
                      NamedModel{"translation_of_two_tables",
                                 test::small_translation_with(TranslationTables::TiedTarget, 0.25)},
                      NamedModel{"norms", test::small_norms()}),
    name_of);

/// Models without batch norms, which do not know how a mini-batch is cut into micro-batches.
class EveryModelOfSamples : public EveryModel {};
INSTANTIATE_TEST_SUITE_P(
    Numerics,
    EveryModelOfSamples,
    ::testing::Values(NamedModel{"mlp", test::small_mlp()},
                      NamedModel{"gpt", test::small_gpt()},
                      NamedModel{"gpt_with_dropout", test::small_gpt_with(0.25, false)},
                      NamedModel{"tied_gpt", test::small_gpt_with(0, true)},
                      NamedModel{"llama", test::small_llama()},
                      NamedModel{"tied_llama", test::small_llama_with(true)},
                      NamedModel{"translation",
                                 test::small_translation_with(TranslationTables::Shared, 0)},
                      NamedModel{"translation_of_three_tables",
                                 test::small_translation_with(TranslationTables::Separate, 0.25)}),
    name_of);

TEST_P(EveryModel, LossAndGradientsAreBitIdenticalForEveryNumberOfStagesAndEveryRecomputeMode) {
    for (const char* schedule : {"gpipe", "1f1b"}) {
        for (const int micro_batches : {1, 3, 4}) {
            Shape shape{.stages = 1, .micro_batches = micro_batches, .schedule = schedule};
            const StepOutcome alone = pipeline_step(model, shape);
            for (const int stages : {1, 2, 4}) {
                for (const RecomputeRules& recompute : test::every_recompute(stages)) {
                    shape.stages = stages;
                    shape.recompute = recompute;
                    EXPECT_TRUE(pipeline_step(model, shape) == alone) << test::to_string(shape);
                }
            }
        }
    }
}

TEST_P(EveryModel, TheSameHoldsInHalfPrecision) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
        Shape shape{.stages = 1, .schedule = schedule, .precision = Precision::Bf16};
        const StepOutcome alone = pipeline_step(model, shape);
        for (const int stages : {2, 4}) {
            for (const RecomputeRules& recompute : test::every_recompute(stages)) {
                shape.stages = stages;
                shape.recompute = recompute;
                EXPECT_TRUE(pipeline_step(model, shape) == alone) << test::to_string(shape);
            }
        }
    }
}

TEST_P(EveryModel, GPipeEqualsTheReferenceWithDescendingBackwardBitForBit) {
    const Shape shape{.stages = 3, .micro_batches = 4, .batch = 10};
    EXPECT_TRUE(pipeline_step(model, shape) ==
                reference_step(model, shape, BackwardOrder::Descending));
}

TEST_P(EveryModel, OneFOneBEqualsTheReferenceWithAscendingBackwardBitForBit) {
    const Shape shape{.stages = 3, .micro_batches = 4, .batch = 10, .schedule = "1f1b"};
    EXPECT_TRUE(pipeline_step(model, shape) ==
                reference_step(model, shape, BackwardOrder::Ascending));
}

TEST_P(EveryModelOfSamples, TheGradientsAreThoseOfTheUnsplitBatchAlsoWhereItDoesNotDivide) {
    for (const int batch : {8, 7, 10}) {
        for (const int micro_batches : {2, 3, 4}) {
            Shape shape{.stages = 2, .micro_batches = micro_batches, .batch = batch};
            Shape whole{.stages = 1, .micro_batches = 1, .batch = batch};
            SCOPED_TRACE(test::to_string(shape));
            test::expect_near(pipeline_step(model, shape),
                              reference_step(model, whole, BackwardOrder::Ascending),
                              1e-5);
            shape.precision = whole.precision = Precision::Fp64;
            test::expect_near(pipeline_step(model, shape),
                              reference_step(model, whole, BackwardOrder::Ascending),
                              1e-12);
            // Rows are computed alike in every micro-batch, and gradients are summed in fp32.
            shape.precision = whole.precision = Precision::Bf16;
            test::expect_near(pipeline_step(model, shape),
                              reference_step(model, whole, BackwardOrder::Ascending),
                              1e-5);
        }
    }
}

TEST_P(EveryModel, HalfPrecisionTrainsAsWellAsSingle) {
    const auto losses = [this](Precision precision) {
        const Shape shape{.stages = 2, .precision = precision};
        Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        std::vector<double> all;
        for (int step = 0; step < 20; ++step) {
            all.push_back(executor.run_step(random_batch(model, shape.batch, 1), step).loss);
        }
        return all;
    };
    const std::vector<double> half = losses(Precision::Bf16);
    const std::vector<double> single = losses(Precision::Fp32);
    EXPECT_LT(half.back(), half.front());
    // A table that both ends read is rounded for both; a norm over 12 numbers divides what they
    // were rounded by, too, by their small deviation.
    const bool has_norms = std::string_view(GetParam().name) == "norms";
    const double bound = model.tied_count() > 0 || has_norms ? 0.02 : 0.01;
    // The Llama learns these random targets by heart fastest. From step 12 on its loss in fp32 goes
    // up in some steps, and what rounding does is a matter of luck: PyTorch's bf16
    // (bench/peers/token_models.py) is up to 0.032 off its fp32 then. Half must not be worse.
    const bool is_llama = std::string_view(GetParam().name) == "llama";
    const std::size_t compared = is_llama ? 12 : half.size();
    for (std::size_t step = 0; step < compared; ++step) {
        EXPECT_NEAR(half[step], single[step], bound * single.front()) << "step " << step;
    }
    for (std::size_t step = compared; step < half.size(); ++step) {
        EXPECT_LT(half[step], single[step] + 0.032 * single.front()) << "step " << step;
    }
}

TEST_P(EveryModel, OneStageAndOneMicroBatchAreBitIdenticalToTheUnpipelinedRun) {
    const Shape shape{.stages = 1, .micro_batches = 1};
    EXPECT_TRUE(pipeline_step(model, shape) ==
                reference_step(model, shape, BackwardOrder::Ascending));
}

TEST_P(EveryModel, ARepeatedRunIsBitIdentical) {
    const Shape shape{.stages = 4, .schedule = "1f1b", .recompute = Recompute::Always};
    const StepOutcome first = pipeline_step(model, shape);
    for (int repeat = 0; repeat < 5; ++repeat) {
        EXPECT_TRUE(pipeline_step(model, shape) == first);
    }
}

TEST_P(EveryModelOfSamples, ATrainingCurveEqualsThePlainOne) {
    for (const OptimizerKind optimizer : {OptimizerKind::Sgd, OptimizerKind::AdamW}) {
        const Shape shape{.stages = 3, .precision = Precision::Fp64, .optimizer = optimizer};
        Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        test::Reference reference(model, test::options_of(shape));
        for (int step = 0; step < 20; ++step) {
            const Batch batch = random_batch(model, shape.batch, static_cast<std::uint64_t>(step));
            const double plain =
                reference.run_step(split(batch, {shape.batch}), BackwardOrder::Ascending, step);
            EXPECT_NEAR(executor.run_step(batch, step).loss, plain, 1e-9 * plain)
                << "step " << step;
        }
    }
}

/// What three steps lead to.
struct Trained {
    std::vector<test::NamedValues> weights;
    std::vector<test::NamedValues> statistics;
    std::vector<double> losses;
    std::vector<double> grad_norms;
    bool operator==(const Trained&) const = default;
};

Trained trained(const Model& model, const Shape& shape) {
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    Trained trained;
    for (int step = 0; step < 3; ++step) {
        const StepResult result = executor.run_step(
            random_batch(model, shape.batch, static_cast<std::uint64_t>(step)), step);
        trained.losses.push_back(result.loss);
        trained.grad_norms.push_back(result.grad_norm);
    }
    trained.weights = test::weights_of(executor.parameters());
    trained.statistics = test::weights_of(executor.state());
    return trained;
}

TEST_P(EveryModel, WeightsAndNormsAfterSomeStepsDoNotDependOnThePartition) {
    for (const double clip_norm : {0.0, 0.05}) {
        const Trained alone = trained(model, {.stages = 1, .clip_norm = clip_norm});
        for (const int stages : {2, 4}) {
            const Shape shape{.stages = stages, .clip_norm = clip_norm};
            EXPECT_TRUE(trained(model, shape) == alone) << test::to_string(shape);
        }
    }
}

TEST_P(EveryModel, ThreeStepsHaveTheSameBitsWithEverySchedule) {
    const Shape plain{.stages = 1, .schedule = "1f1b", .clip_norm = 0.05};
    const Trained alone = trained(model, plain);
    for (const char* schedule : {"1f1b", "zb-h1", "zb-v", "interleaved-1f1b"}) {
        const bool chunks = std::string_view(schedule) == "zb-v" ||
                            std::string_view(schedule) == "interleaved-1f1b";
        const Shape shape{.stages = 2,
                          .chunks = chunks ? 2 : 1,
                          .schedule = schedule,
                          .recompute = Recompute::Always,
                          .clip_norm = 0.05};
        EXPECT_TRUE(trained(model, shape) == alone) << test::to_string(shape);
    }
}

// --- Gradient clipping. ---

TEST_P(EveryModel, ClippingScalesTheGradientsOfTheUpdateAndTheNormIsTheOneBefore) {
    for (const int stages : {1, 3}) {
        Shape shape{
            .stages = stages, .precision = Precision::Fp64, .optimizer = OptimizerKind::Sgd};
        const Batch batch = random_batch(model, shape.batch, 1);
        Executor plain(test::plan_of(model, shape), model, test::options_of(shape));
        const auto before = test::weights_of(plain.parameters());
        const double norm = plain.run_step(batch, 0).grad_norm;
        const auto gradients = test::gradients_of(plain.parameters());

        shape.clip_norm = norm / 3;
        Executor clipped(test::plan_of(model, shape), model, test::options_of(shape));
        EXPECT_EQ(clipped.run_step(batch, 0).grad_norm, norm);
        const double scale = shape.clip_norm / (norm + 1e-6);
        const auto after = test::weights_of(clipped.parameters());
        for (std::size_t i = 0; i < after.size(); ++i) {
            for (std::size_t k = 0; k < after[i].values.size(); ++k) {
                EXPECT_NEAR(after[i].values[k],
                            before[i].values[k] - 1e-2 * (scale * gradients[i].values[k]),
                            1e-15)
                    << after[i].name;
            }
        }
    }
}

TEST_P(EveryModel, AGradientShorterThanTheLimitIsNotChangedByABit) {
    const Trained plain = trained(model, {.stages = 2});
    EXPECT_TRUE(trained(model, {.stages = 2, .clip_norm = 1e6}) == plain);
}

TEST(Chimera, ClipsByTheNormOfTheSumsOfBothPipelines) {
    const Model model = test::small_gpt();
    const Shape one{
        .stages = 1, .micro_batches = 2, .precision = Precision::Fp64, .clip_norm = 0.05};
    Shape two = one;
    two.stages = 2;
    two.schedule = "chimera";
    const Trained alone = trained(model, one);
    const Trained both = trained(model, two);
    for (std::size_t step = 0; step < alone.losses.size(); ++step) {
        EXPECT_NEAR(both.losses[step], alone.losses[step], 1e-12);
        EXPECT_NEAR(both.grad_norms[step], alone.grad_norms[step], 1e-11);
    }
}

// --- Dropout. ---

TEST(DropoutInAModel, MasksOfRecomputeAndOfEveryPartitionAreThoseOfTheForward) {
    const Model model = test::small_gpt_with(0.5, false);
    const StepOutcome alone = pipeline_step(model, {.stages = 1});
    for (const int stages : {1, 2, 4}) {
        for (const RecomputeRules& recompute : test::every_recompute(stages)) {
            EXPECT_TRUE(pipeline_step(model, {.stages = stages, .recompute = recompute}) == alone);
        }
    }
}

TEST(DropoutInAModel, MasksDoNotDependOnTheNumberOfMicroBatches) {
    const Model model = test::small_gpt_with(0.5, false);
    for (const int micro_batches : {2, 3, 8}) {
        test::expect_near(
            pipeline_step(
                model, {.stages = 2, .micro_batches = micro_batches, .precision = Precision::Fp64}),
            pipeline_step(model, {.micro_batches = 1, .precision = Precision::Fp64}),
            1e-12);
    }
}

TEST(DropoutInAModel, EveryStepDropsSomethingElseAndTheSameStepTheSame) {
    const Model model = test::small_gpt_with(0.5, false);
    const Shape shape{.stages = 2};
    const Batch batch = random_batch(model, shape.batch, 1);
    const auto loss_at = [&](int step) {
        Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        return executor.run_step(batch, step).loss;
    };
    EXPECT_EQ(loss_at(3), loss_at(3));
    EXPECT_NE(loss_at(3), loss_at(4));
}

TEST(Evaluation, DropsNothingChangesNothingAndIsTheSameForEveryPartition) {
    const Model model = test::small_gpt_with(0.5, true);
    const Model without = test::small_gpt_with(0, true);
    const Batch batch = random_batch(model, 8, 7);
    Shape shape{.stages = 1};
    Executor plain(test::plan_of(without, shape), without, test::options_of(shape));
    const double expected = plain.run_step(batch, 0).loss;  // before its update
    for (const char* schedule : {"gpipe", "1f1b", "zb-v"}) {
        for (const int stages : {1, 2, 4}) {
            shape = {.stages = stages,
                     .chunks = std::string_view(schedule) == "zb-v" ? 2 : 1,
                     .micro_batches = 8,
                     .schedule = schedule,
                     .recompute = Recompute::Always};
            if (shape.stages * shape.chunks > model.layer_count()) {
                continue;
            }
            Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
            EXPECT_EQ(executor.evaluate(batch, 0), executor.evaluate(batch, 5));
            EXPECT_NEAR(executor.evaluate(batch, 0), expected, 1e-6) << test::to_string(shape);
            Executor other(test::plan_of(model, shape), model, test::options_of(shape));
            EXPECT_EQ(executor.run_step(batch, 0).loss, other.run_step(batch, 0).loss);
        }
    }
}

TEST(Evaluation, BetweenStepsChangesNoBitOfThemAndNoPlannedPlace) {
    const Model model = test::small_gpt_with(0.25, true);
    for (const Recompute recompute : {Recompute::None, Recompute::Always}) {
        const Shape shape{
            .stages = 2, .schedule = "1f1b", .recompute = recompute, .clip_norm = 0.05};
        const Plan plan = test::plan_of(model, shape);
        Executor plain(plan, model, test::options_of(shape));
        Executor validated(plan, model, test::options_of(shape));
        for (int step = 0; step < 4; ++step) {
            const Batch batch = random_batch(model, shape.batch, static_cast<std::uint64_t>(step));
            const StepResult expected = plain.run_step(batch, step);
            const StepResult found = validated.run_step(batch, step);
            EXPECT_EQ(found.loss, expected.loss);
            EXPECT_EQ(found.grad_norm, expected.grad_norm);
            EXPECT_EQ(found.peak, expected.peak);
            validated.evaluate(random_batch(model, shape.batch, 99), step);
        }
        EXPECT_TRUE(test::weights_of(validated.parameters()) ==
                    test::weights_of(plain.parameters()));
        EXPECT_THAT(validated.notes(), ::testing::IsEmpty());
    }
}

TEST(Evaluation, RunsEveryForwardOnceAndNothingElse) {
    const Model model = test::small_gpt();
    const Shape shape{.stages = 2, .schedule = "1f1b", .recompute = Recompute::Always};
    std::atomic<int> forwards = 0;
    std::atomic<int> others = 0;
    ExecutorOptions options = test::options_of(shape);
    options.before_action = [&](int, const Action& action) {
        forwards += action.op == Op::Forward ? 1 : 0;
        const bool is_message = action.op == Op::SendForward || action.op == Op::RecvForward;
        others += action.op == Op::Forward || is_message ? 0 : 1;
    };
    Executor executor(test::plan_of(model, shape), model, options);
    executor.evaluate(random_batch(model, shape.batch, 1), 0);
    EXPECT_EQ(forwards, 2 * 4);
    EXPECT_EQ(others, 0);
    EXPECT_EQ(executor.stage(0).stash_count(), 0);
}

/// The loss is that of a model whose weights are the averages.
TEST(Evaluation, TakesTheAveragesOfTheWeightsAndGivesTheWeightsBack) {
    const Model model = test::small_gpt_with(0, true);
    for (const Precision precision : {Precision::Fp32, Precision::Fp64, Precision::Bf16}) {
        Shape shape{.stages = 2, .precision = precision};
        Executor plain(test::plan_of(model, shape), model, test::options_of(shape));
        shape.average_decay = 0.5;
        Executor averaged(test::plan_of(model, shape), model, test::options_of(shape));
        shape.average_decay = 0;
        Executor other(test::plan_of(model, shape), model, test::options_of(shape));
        const Batch held_out = random_batch(model, shape.batch, 99);
        for (int step = 0; step < 3; ++step) {
            const Batch batch = random_batch(model, shape.batch, static_cast<std::uint64_t>(step));
            EXPECT_EQ(averaged.run_step(batch, step).loss, plain.run_step(batch, step).loss);
            EXPECT_TRUE(test::weights_of(averaged.parameters()) ==
                        test::weights_of(plain.parameters()));
            for (int stage = 0; stage < shape.stages; ++stage) {
                const std::vector<Parameter*> from = averaged.stage(stage).parameters();
                const std::vector<Parameter*> to = other.stage(stage).parameters();
                for (std::size_t i = 0; i < from.size(); ++i) {
                    cpu_kernels().upload(test::values_of(from[i]->average), to[i]->value);
                }
            }
            EXPECT_EQ(averaged.evaluate(held_out, step), other.evaluate(held_out, step));
            EXPECT_NE(averaged.evaluate(held_out, step), plain.evaluate(held_out, step));
            EXPECT_TRUE(test::weights_of(averaged.parameters()) ==
                        test::weights_of(plain.parameters()));
        }
    }
}

TEST(AveragesOfWeights, BeginWithTheFirstWeightsAndAreTheSameForEveryNumberOfStages) {
    const Model model = test::small_mlp();
    const auto averages_after = [&](int steps, int stages) {
        const Shape shape{.stages = stages, .average_decay = 0.9};
        Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        for (int step = 0; step < steps; ++step) {
            executor.run_step(random_batch(model, shape.batch, 1), step);
        }
        std::vector<test::NamedValues> averages;
        for (const Parameter* const parameter : executor.parameters()) {
            averages.push_back({parameter->name, test::values_of(parameter->average)});
        }
        return averages;
    };
    const Shape shape{.stages = 1};
    Executor fresh(test::plan_of(model, shape), model, test::options_of(shape));
    EXPECT_TRUE(averages_after(0, 2) == test::weights_of(fresh.parameters()));
    const auto alone = averages_after(3, 1);
    EXPECT_TRUE(averages_after(3, 2) == alone);
    EXPECT_TRUE(averages_after(3, 4) == alone);
}

// --- Accuracy. ---

Batch with_targets(Batch batch, std::int32_t target) {
    std::ranges::fill(batch.targets, target);
    return batch;
}

/// Every row has one largest number, so the shares of all classes add up to 1.
TEST(Accuracy, OfAllClassesIsOneTogetherForEveryPartitionAndSchedule) {
    const Model model = test::small_mlp();
    constexpr int classes = 5;
    const Batch batch = random_batch(model, 8, 7);
    std::vector<double> expected;
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
        for (const int stages : {1, 2, 4}) {
            for (const Recompute recompute : {Recompute::None, Recompute::Always}) {
                const Shape shape{.stages = stages,
                                  .micro_batches = 3,
                                  .schedule = schedule,
                                  .recompute = recompute};
                Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
                double right = 0;
                std::vector<double> found;
                for (int target = 0; target < classes; ++target) {
                    const Score score = executor.score(with_targets(batch, target), 0);
                    EXPECT_EQ(score.accuracy.rows, 8);
                    right += score.accuracy.right;
                    found.push_back(score.accuracy.right);
                }
                EXPECT_EQ(right, 8) << test::to_string(shape);
                expected = expected.empty() ? found : expected;
                EXPECT_EQ(found, expected) << test::to_string(shape);
                // A step counts with the weights that it begins with.
                const StepResult step = executor.run_step(with_targets(batch, 2), 0);
                EXPECT_EQ(step.accuracy.right, expected[2]);
                EXPECT_EQ(step.accuracy.share(), expected[2] / 8);
            }
        }
    }
}

TEST(Accuracy, OfAModelThatReadsTokensIsCountedWhereItIsAskedFor) {
    const Model model = test::small_gpt();
    const Shape shape{.stages = 2};
    ExecutorOptions options = test::options_of(shape);
    const Batch batch = random_batch(model, shape.batch, 1);
    Executor plain(test::plan_of(model, shape), model, options);
    const StepResult without = plain.run_step(batch, 0);
    EXPECT_EQ(without.accuracy.share(), std::nullopt);
    options.counts_right = true;
    Executor counting(test::plan_of(model, shape), model, options);
    const StepResult with = counting.run_step(batch, 0);
    EXPECT_EQ(with.accuracy.rows, 8 * 6);  // positions of all samples
    EXPECT_EQ(with.loss, without.loss);
    EXPECT_EQ(with.grad_norm, without.grad_norm);
    EXPECT_EQ(with.peak, without.peak);
}

// --- Tied embeddings. ---

/// The gradient of the table is that of the embedding's rows and that of the head's matrix, turned
/// round, in a model that has both.
TEST(TiedEmbedding, ItsGradientIsTheSumOfThoseOfBothUses) {
    const Model untied = test::small_gpt_with(0, false, GeluForm::Tanh);
    const Model tied = test::small_gpt_with(0, true, GeluForm::Tanh);
    for (const int stages : {1, 2, 4}) {
        const Shape shape{.stages = stages, .precision = Precision::Fp64};
        const Batch batch = random_batch(tied, shape.batch, 1);
        Executor two(test::plan_of(untied, shape), untied, test::options_of(shape));
        const std::vector<Parameter*> parameters = two.parameters();
        Parameter& table = *parameters.front();
        Parameter& head = *parameters.back();
        ASSERT_EQ(table.name, "embedding.tokens");
        ASSERT_EQ(head.name, "head.projection.weight");
        const std::int64_t rows = table.value.rows();
        const std::int64_t columns = table.value.columns();
        const auto turned = [&](std::int64_t row, std::int64_t column) {
            return static_cast<std::size_t>(column * rows + row);
        };
        for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t column = 0; column < columns; ++column) {
                head.value.as<double>()[turned(row, column)] =
                    table.value.as<double>()[row * columns + column];
            }
        }
        const double loss = two.run_step(batch, 0).loss;
        std::vector<double> expected = test::values_of(table.gradient);
        const std::vector<double> of_head = test::values_of(head.gradient);
        for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t column = 0; column < columns; ++column) {
                expected[static_cast<std::size_t>(row * columns + column)] +=
                    of_head[turned(row, column)];
            }
        }
        Executor one(test::plan_of(tied, shape), tied, test::options_of(shape));
        EXPECT_NEAR(one.run_step(batch, 0).loss, loss, 1e-13);
        const std::vector<double> found = test::values_of(one.parameters().front()->gradient);
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
            EXPECT_NEAR(found[i], expected[i], 1e-15) << i;
        }
    }
}

TEST(TiedEmbedding, BothCopiesStayEqualBitForBitAndCountOnce) {
    const Model model = test::small_gpt_with(0, true);
    for (const char* schedule : {"1f1b", "zb-v"}) {
        const Shape shape{.stages = 2,
                          .chunks = std::string_view(schedule) == "zb-v" ? 2 : 1,
                          .schedule = schedule,
                          .clip_norm = 0.05};
        Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        for (int step = 0; step < 3; ++step) {
            executor.run_step(random_batch(model, shape.batch, static_cast<std::uint64_t>(step)),
                              step);
        }
        const int last = executor.plan().stage_count() - 1;
        const Parameter& table = *executor.stage(0).parameters().front();
        const Parameter& copy = *executor.stage(last).parameters().back();
        EXPECT_EQ(copy.name, table.name);
        EXPECT_TRUE(copy.is_copy);
        EXPECT_EQ(test::values_of(copy.value), test::values_of(table.value));
        EXPECT_EQ(test::values_of(copy.second), test::values_of(table.second));
        for (const Parameter* const parameter : executor.parameters()) {
            EXPECT_NE(parameter, &copy);
        }
    }
}

TEST(TiedEmbedding, OneStageHasTheTableOnce) {
    const Model model = test::small_gpt_with(0, true);
    const Shape shape{.stages = 1};
    const Plan plan = test::plan_of(model, shape);
    const Plan untied = test::plan_of(test::small_gpt(), shape);
    constexpr std::int64_t table = 11 * 8 * 4;  // bytes
    EXPECT_EQ(plan->states[0].weights.count, untied->states[0].weights.count - table);
    // Two gradients of it, as of the two matrices of the other model.
    EXPECT_EQ(plan->states[0].gradients, untied->states[0].gradients);
    EXPECT_EQ(plan->states[0].optimizer_state.count,
              untied->states[0].optimizer_state.count - 2 * table);
    for (const auto& row : plan->schedule.ranks) {
        EXPECT_EQ(std::ranges::count(row, Op::ReduceGradient, &Action::op), 0);
    }
}

class EveryHostBackend : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends,
                         EveryHostBackend,
                         ::testing::ValuesIn(test::every_host_backend()),
                         [](const auto& backend) {
                             return std::string(words::backends.at(as_index(backend.param)));
                         });

TEST_P(EveryHostBackend, ComputesTheNumbersOfTheCpu) {
    const Model model = test::small_mlp();
    for (const Precision precision : {Precision::Fp32, Precision::Bf16}) {
        Shape shape{.stages = 2, .schedule = "1f1b", .precision = precision};
        const StepOutcome cpu = pipeline_step(model, shape);
        shape.backend = GetParam();
        EXPECT_EQ(pipeline_step(model, shape), cpu);
    }
}

TEST_P(EveryHostBackend, HoldsTheBytesThatThePlanSays) {
    const Model model = test::small_gpt();
    for (const Recompute recompute : {Recompute::None, Recompute::ExceptLast}) {
        test::expect_predicted_peaks(model,
                                     {.stages = 2,
                                      .schedule = "1f1b",
                                      .recompute = recompute,
                                      .channel_capacity = 1,
                                      .backend = GetParam()});
    }
}

}  // namespace numerics_test
}  // namespace pipetwin::exec
