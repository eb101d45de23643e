// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/fit_interference.h"

#include <gtest/gtest.h>

#include "core/schedule/generators/generate.h"
#include "sim/simulate/simulate.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::accuracy {
namespace fit_interference_test {

using testing::plain;

/// As if measured with this interference: where no other rank computes, actions are so much shorter
/// than planned.
FitCase measured_with(double interference, int ranks, int micro_batches, double factor = 1) {
    const Plan plan = make_plan(plain(ScheduleKind::OneFOneB, ranks, micro_batches));
    sim::Conditions conditions = sim::planned_conditions(plan);
    for (const std::vector<Action>& row : plan->schedule.ranks) {
        std::vector<Duration>& durations = conditions.durations.emplace_back();
        for (const Action& action : row) {
            durations.push_back(scaled(plan.duration(action), 1 / (1 + interference)));
        }
    }
    const auto count = static_cast<std::size_t>(ranks);
    conditions.contention.interference.assign(count, std::vector<double>(count, interference));
    return {{{.plan = plan, .measured = scaled(sim::replayed_step(plan, conditions), factor)}}};
}

TEST(FitInterference, FindsTheOneThatThereIs) {
    const InterferenceFit fit =
        fit_interference({measured_with(0.08, 2, 4), measured_with(0.08, 2, 9)});
    EXPECT_NEAR(fit.interference, 0.08, 1e-5);
    for (const double error : fit.leave_one_out_percent) {
        EXPECT_NEAR(error, 0, 1e-3);
    }
}

TEST(FitInterference, LeavingOneOutShowsACaseThatTheOthersDoNotExplain) {
    const InterferenceFit fit = fit_interference(
        {measured_with(0.05, 2, 4), measured_with(0.05, 2, 6), measured_with(0.05, 2, 8, 0.95)});
    EXPECT_NEAR(fit.leave_one_out_percent[2], 100 * (1 / 0.95 - 1), 0.01);
    EXPECT_GT(fit.error_percent[2], 1);
    EXPECT_GT(fit.interference, 0.05);
}

/// What overlaps lasts as planned, whatever the interference; what does not is shorter by it. Two
/// ranks with one micro-batch never overlap.
TEST(FitInterference, OnlyWhatIsAloneGetsShorter) {
    const FitCase alone = measured_with(0.25, 2, 1);
    const Plan& plan = alone.steps.front().plan;
    EXPECT_NEAR(to_seconds(alone.steps.front().measured) /
                    to_seconds(sim::replayed_step(plan, sim::planned_conditions(plan))),
                1 / 1.25,
                1e-6);
    EXPECT_NEAR(fit_interference({alone}).interference, 0.25, 1e-5);
}

/// A step that something disturbed is one of many.
TEST(FitInterference, TheMiddleOfACasesStepsCounts) {
    FitCase many = measured_with(0.08, 2, 4);
    for (const double factor : {1.0, 1.0, 1.7}) {
        many.steps.push_back(measured_with(0.08, 2, 4, factor).steps.front());
    }
    many.steps.push_back(measured_with(0.08, 2, 4, 0.9).steps.front());
    const InterferenceFit fit = fit_interference({many});
    EXPECT_NEAR(fit.interference, 0.08, 1e-5);
    EXPECT_NEAR(fit.error_percent[0], 0, 1e-3);
}

TEST(FitInterference, IsNoneWhereStepsAreLongerThanPredicted) {
    const InterferenceFit fit = fit_interference({measured_with(0, 2, 4, 1.25)});
    EXPECT_EQ(fit.interference, 0);
    EXPECT_NEAR(fit.error_percent[0], -20, 1e-6);
    EXPECT_TRUE(fit.leave_one_out_percent.empty());
}

}  // namespace fit_interference_test
}  // namespace pipetwin::accuracy
