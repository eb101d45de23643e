#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plan.h"
#include "exec/executor.h"
#include "exec/random_batch.h"
#include "exec/reference.h"
#include "tests/support/small_training.h"
#include "tests/support/training_step.h"

/// The pipeline computes what the model says, whatever the number of stages, the recompute mode and
/// the schedule.
namespace pipetwin::exec {
namespace {

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

std::string name_of(const testing::TestParamInfo<NamedModel>& named) {
    return named.param.name;
}

class EveryModel : public testing::TestWithParam<NamedModel> {
  protected:
    const Model& model = GetParam().model;
};
INSTANTIATE_TEST_SUITE_P(Numerics,
                         EveryModel,
                         testing::Values(NamedModel{"mlp", test::small_mlp()},
                                         NamedModel{"gpt", test::small_gpt()}),
                         name_of);

TEST_P(EveryModel, C08LossAndGradientsAreBitIdenticalForEveryNumberOfStagesAndEveryRecomputeMode) {
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

TEST_P(EveryModel, C08TheSameHoldsInHalfPrecision) {
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

TEST_P(EveryModel, C09C11TheGradientsAreThoseOfTheUnsplitBatchAlsoWhereItDoesNotDivide) {
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
    for (std::size_t step = 0; step < half.size(); ++step) {
        EXPECT_NEAR(half[step], single[step], 0.01 * single.front()) << "step " << step;
    }
}

TEST_P(EveryModel, C10OneStageAndOneMicroBatchAreBitIdenticalToTheUnpipelinedRun) {
    const Shape shape{.stages = 1, .micro_batches = 1};
    EXPECT_TRUE(pipeline_step(model, shape) ==
                reference_step(model, shape, BackwardOrder::Ascending));
}

TEST_P(EveryModel, C10ARepeatedRunIsBitIdentical) {
    const Shape shape{.stages = 4, .schedule = "1f1b", .recompute = Recompute::Always};
    const StepOutcome first = pipeline_step(model, shape);
    for (int repeat = 0; repeat < 5; ++repeat) {
        EXPECT_TRUE(pipeline_step(model, shape) == first);
    }
}

TEST_P(EveryModel, C14ATrainingCurveEqualsThePlainOne) {
    for (const OptimizerKind optimizer : {OptimizerKind::Sgd, OptimizerKind::AdamW}) {
        const Shape shape{.stages = 3, .precision = Precision::Fp64, .optimizer = optimizer};
        Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        Reference reference(model, test::options_of(shape));
        for (int step = 0; step < 20; ++step) {
            const Batch batch = random_batch(model, shape.batch, static_cast<std::uint64_t>(step));
            const double plain =
                reference.run_step(split(batch, {shape.batch}), BackwardOrder::Ascending, step);
            EXPECT_NEAR(executor.run_step(batch, step).loss, plain, 1e-9 * plain)
                << "step " << step;
        }
    }
}

TEST_P(EveryModel, TheWeightsAfterSomeStepsDoNotDependOnThePartition) {
    const auto trained = [this](int stages) {
        const Shape shape{.stages = stages};
        Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        for (int step = 0; step < 3; ++step) {
            executor.run_step(random_batch(model, shape.batch, static_cast<std::uint64_t>(step)),
                              step);
        }
        return test::weights_of(executor.parameters());
    };
    const auto alone = trained(1);
    EXPECT_TRUE(trained(2) == alone);
    EXPECT_TRUE(trained(4) == alone);
}

}  // namespace
}  // namespace pipetwin::exec
