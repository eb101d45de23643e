// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gtest/gtest.h>

#include "core/timeline/compare.h"
#include "core/timeline/metrics.h"
#include "core/timeline/timeline.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "exec/profiling/interference.h"
#include "sim/simulate/simulate.h"
#include "tests/support/plain_plan.h"
#include "tests/support/small_training.h"
#include "tests/support/training_step.h"

/// What is predicted of a step and what is measured of it, where both must be the same exactly.
namespace pipetwin::exec {
namespace agreement_test {

using test::expect_predicted_peaks;
using test::Shape;

/// Every schedule, recompute mode and timing at small sizes, even and uneven.
std::vector<Shape> many_shapes() {
    std::vector<Shape> shapes;
    for (const char* schedule : {"gpipe", "1f1b"}) {
        for (const int stages : {1, 2, 4}) {
            for (const RecomputeRules& recompute : test::every_recompute(stages)) {
                for (const int micro_batches : {1, 3, 4}) {
                    for (const int batch : {8, 10}) {
                        shapes.push_back({.stages = stages,
                                          .micro_batches = micro_batches,
                                          .batch = batch,
                                          .schedule = schedule,
                                          .recompute = recompute});
                    }
                }
            }
        }
    }
    return shapes;
}

TEST(Agreement, PeakBytesPerRankAreThoseOfThePlanByteForByteForAnMlp) {
    const Model model = test::small_mlp();
    for (const Shape& shape : many_shapes()) {
        expect_predicted_peaks(model, shape);
    }
}

TEST(Agreement, PeakBytesPerRankAreThoseOfThePlanByteForByteForAGpt) {
    const Model model = test::small_gpt();
    for (const Shape& shape : many_shapes()) {
        expect_predicted_peaks(model, shape);
    }
}

TEST(Agreement, PeakBytesPerRankAreThoseOfThePlanByteForByteForATranslation) {
    for (const double dropout : {0.0, 0.25}) {
        const Model model = test::small_translation_with(TranslationTables::TiedTarget, dropout);
        for (const Shape& shape : many_shapes()) {
            expect_predicted_peaks(model, shape);
        }
    }
}

TEST(Agreement, PeakBytesPerRankAreThoseOfThePlanByteForByteForNorms) {
    const Model model = test::small_norms();
    for (const Shape& shape : many_shapes()) {
        expect_predicted_peaks(model, shape);
    }
    for (const Precision precision : {Precision::Fp64, Precision::Bf16}) {
        for (const char* schedule : {"zb-h1", "chimera"}) {
            expect_predicted_peaks(model,
                                   {.stages = 4, .schedule = schedule, .precision = precision});
        }
    }
}

TEST(Agreement, TheRoomOfTheChannelsIsPartOfThePeak) {
    const Model model = test::small_gpt();
    for (const int capacity : {0, 1, 3}) {
        for (const char* schedule : {"gpipe", "1f1b"}) {
            if (capacity == 0 && std::string_view(schedule) == "1f1b") {
                continue;  // deadlocks
            }
            expect_predicted_peaks(
                model, {.stages = 3, .schedule = schedule, .channel_capacity = capacity});
        }
    }
}

TEST(Agreement, InDoublePrecisionAndWithOtherOptimizersToo) {
    const Model model = test::small_mlp();
    for (const OptimizerKind optimizer : {OptimizerKind::Sgd,
                                          OptimizerKind::RmsProp,
                                          OptimizerKind::RmsPropMomentum,
                                          OptimizerKind::Adam}) {
        expect_predicted_peaks(model,
                               {.stages = 2, .precision = Precision::Fp64, .optimizer = optimizer});
    }
}

TEST(Agreement, AveragesOfWeightsAreOneNumberMoreForEachWeight) {
    const Model model = test::small_mlp();
    for (const Precision precision : {Precision::Fp32, Precision::Fp64, Precision::Bf16}) {
        for (const OptimizerKind optimizer : {OptimizerKind::Sgd, OptimizerKind::RmsPropMomentum}) {
            Shape shape{.stages = 2, .precision = precision, .optimizer = optimizer};
            const Bytes without = test::plan_of(model, shape)->states[0].optimizer_state;
            shape.average_decay = 0.9;
            expect_predicted_peaks(model, shape);
            const StageState with = test::plan_of(model, shape)->states[0];
            const std::int64_t exact = precision == Precision::Bf16 ? 2 : 1;
            EXPECT_EQ(with.optimizer_state - without, with.weights * exact);
        }
    }
}

TEST(Agreement, SimulatorAndExecutorHaveTheSameActionsInTheSameOrder) {
    const Model model = test::small_mlp();
    for (const Shape& shape : many_shapes()) {
        const Plan plan = test::plan_of(model, shape);
        Executor executor(plan, model, test::options_of(shape));
        const StepResult step = executor.run_step(random_batch(model, shape.batch, 1), 0);
        const TimelineSet predicted{
            .steps = {sim::simulate(plan)}, .peak_bytes = {}, .breakdown = {}, .noise = {}};
        const TimelineSet measured{
            .steps = {step.timeline}, .peak_bytes = {}, .breakdown = {}, .noise = {}};
        EXPECT_NO_THROW(compare(predicted, measured)) << test::to_string(shape);
    }
}

TEST(Agreement, RecomputesPerStageAreMOrOneLessOrNone) {
    const Model model = test::small_mlp();
    const auto recomputes = [&](const RecomputeRules& recompute) {
        const Shape shape{.stages = 2, .micro_batches = 4, .recompute = recompute};
        Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        const StepResult step = executor.run_step(random_batch(model, shape.batch, 1), 0);
        const std::vector<Span>& row = step.timeline.ranks[1];
        return std::ranges::count_if(
            row, [](const Span& span) { return span.action.op == Op::Recompute; });
    };
    EXPECT_EQ(recomputes(Recompute::Always), 4);
    EXPECT_EQ(recomputes(Recompute::ExceptLast), 3);
    EXPECT_EQ(recomputes(Recompute::None), 0);
    EXPECT_EQ(recomputes(RecomputeRules({Recompute::Always, Recompute::ExceptLast})), 3);
    EXPECT_EQ(recomputes(RecomputeRules({Recompute::Always, Recompute::None})), 0);
}

/// A prediction slows ranks by shares that it was given; a fit to its timeline finds them.
TEST(Agreement, FittedInterferenceIsThatOfTheSimulatedStep) {
    const std::vector<double> shares{0.08, 0.3, 0.15};
    const Plan plan = make_plan(testing::plain(ScheduleKind::OneFOneB, 3, 8));
    sim::Conditions conditions = sim::planned_conditions(plan);
    for (const double share : shares) {
        conditions.contention.interference.emplace_back(shares.size(), share);
    }
    const Timeline timeline = sim::replay(plan, conditions);
    const std::vector<double> fitted = fitted_interference({action_times(timeline, {0, 0, 0})});
    ASSERT_EQ(fitted.size(), shares.size());
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
        EXPECT_NEAR(fitted[rank], shares[rank], 1e-3) << rank;
    }
}

}  // namespace agreement_test
}  // namespace pipetwin::exec
