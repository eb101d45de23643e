// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/path_shares.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "sim/simulate/simulate.h"
#include "tests/gui/canned.h"
#include "tests/gui/planned.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::gui {
namespace path_shares_test {

using pipetwin::testing::plain;
using pipetwin::testing::random_costs;
using std::chrono::microseconds;
using std::chrono::milliseconds;

const PathShare& share_of(const std::vector<PathShare>& shares, std::string_view name) {
    const auto found = std::ranges::find(shares, name, &PathShare::name);
    if (found == shares.end()) {
        throw std::out_of_range("no share " + std::string(name));
    }
    return *found;
}

double sum_of_shares(const std::vector<PathShare>& shares) {
    double sum = 0;
    for (const PathShare& share : shares) {
        sum += share.share;
    }
    return sum;
}

Duration sum(const std::vector<PathShare>& shares) {
    Duration sum{};
    for (const PathShare& share : shares) {
        sum += share.time;
    }
    return sum;
}

PathShares of(const std::shared_ptr<const RunData>& run, Side side) {
    return path_shares(StepAnalysis(run, side, 0));
}

TEST(PathShares, OfGPipeAreThoseOfTheClosedForm) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
        for (int micro_batches = 1; micro_batches <= 6; ++micro_batches) {
            const Plan plan = make_plan(plain(ScheduleKind::GPipe, ranks, micro_batches));
            const PathShares shares = of(planned_run(plan), Side::Predicted);
            // (M + K - 1) (F + B), and a tenth of each kind is gained exactly.
            const int turns = micro_batches + ranks - 1;
            const PathShare& forward = share_of(shares.kinds, "forward");
            const PathShare& backward = share_of(shares.kinds, "backward");
            EXPECT_EQ(forward.time, turns * milliseconds(1));
            EXPECT_EQ(backward.time, turns * milliseconds(2));
            EXPECT_NEAR(forward.share, 1.0 / 3, 1e-12);
            EXPECT_NEAR(static_cast<double>(forward.gain.value().count()),
                        static_cast<double>(turns) * 1e5,
                        turns);
            EXPECT_NEAR(static_cast<double>(backward.gain.value().count()),
                        static_cast<double>(turns) * 2e5,
                        turns);
        }
    }
}

TEST(PathShares, AreThoseOfTheWholeStepAndBoundTheGain) {
    std::mt19937 random(17);
    for (const ScheduleKind schedule : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (int ranks = 1; ranks <= 4; ++ranks) {
            const Plan plan = make_plan(random_costs(schedule, ranks, 5, random));
            const auto run = planned_run(plan, {jittered_step(plan, random)});
            for (const Side side : {Side::Predicted, Side::Measured}) {
                const StepAnalysis analysis(run, side, 0);
                const PathShares shares = path_shares(analysis);
                EXPECT_EQ(sum(shares.kinds) + shares.unexplained, analysis.length());
                EXPECT_EQ(sum(shares.stages) + sum(shares.links), analysis.length());
                EXPECT_NEAR(sum_of_shares(shares.kinds), 1, 1e-12);
                for (const auto* const list : {&shares.kinds, &shares.stages, &shares.links}) {
                    for (const PathShare& share : *list) {
                        // Rounding down leaves a nanosecond for each piece.
                        const auto most =
                            share.time.count() / 10 + 2 * std::ssize(analysis.critical_path()) + 1;
                        ASSERT_TRUE(share.gain) << share.name;
                        EXPECT_GE(*share.gain, Duration{});
                        EXPECT_LE(share.gain->count(), most) << share.name;
                    }
                }
            }
        }
    }
}

/// Two ways to the same number: the plan's costs changed, and the step's durations.
TEST(PathShares, OfAStepThatWentAsPredictedAreTheSameOnBothSides) {
    std::mt19937 random(23);
    for (int ranks = 2; ranks <= 4; ++ranks) {
        PlainCosts costs = random_costs(ScheduleKind::OneFOneB, ranks, 6, random);
        costs.link.latency = microseconds(300);
        const Plan plan = make_plan(costs);
        Timeline step = sim::simulate(plan);
        step.origin = Origin::Measured;
        const auto run = planned_run(plan, {step});
        const PathShares predicted = of(run, Side::Predicted);
        const PathShares measured = of(run, Side::Measured);
        for (const auto list : {&PathShares::kinds, &PathShares::stages, &PathShares::links}) {
            ASSERT_EQ((predicted.*list).size(), (measured.*list).size());
            for (std::size_t i = 0; i < (predicted.*list).size(); ++i) {
                const PathShare& p = (predicted.*list)[i];
                const PathShare& m = (measured.*list)[i];
                EXPECT_EQ(p.name, m.name);
                EXPECT_EQ(p.time, m.time);
                EXPECT_NEAR(static_cast<double>(p.gain.value().count()),
                            static_cast<double>(m.gain.value().count()),
                            1000)  // both round down, in another place
                    << p.name;
            }
        }
    }
}

/// "10 % less" left dispatch out of a predicted backward and not out of an emulated one: 13.3 ms
/// beside 45.2 ms of the same chain.
TEST(PathShares, HaveTheDispatchApartOnBothSides) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 3, 4)).parts();
    parts.dispatch = microseconds(600);
    const Plan plan = Plan::make(std::move(parts));
    Timeline step = sim::simulate(plan);
    step.origin = Origin::Measured;
    const auto run = planned_run(plan, {step});
    RunData with_dispatch = *run;
    with_dispatch.predicted->dispatch = plan->dispatch;
    with_dispatch.measured->dispatch = plan->dispatch;
    const auto emulated = std::make_shared<const RunData>(std::move(with_dispatch));
    for (const Side side : {Side::Predicted, Side::Measured}) {
        const PathShares shares = of(emulated, side);
        // (M + K - 1) (F + B) of work, and a dispatch for each of its forwards and backwards.
        const int turns = 4 + 3 - 1;
        EXPECT_EQ(share_of(shares.kinds, "forward").time, turns * milliseconds(1));
        EXPECT_EQ(share_of(shares.kinds, "backward").time, turns * milliseconds(2));
        EXPECT_EQ(share_of(shares.kinds, "dispatch").time, 2 * turns * microseconds(600));
        EXPECT_NEAR(sum_of_shares(shares.kinds), 1, 1e-12);
        for (const PathShare& share : shares.kinds) {
            EXPECT_NEAR(static_cast<double>(share.gain.value().count()),
                        static_cast<double>(share.time.count()) / 10,
                        100)
                << share.name;
        }
    }
}

/// Shares of the measured step would add up to more than 100 % where the simulation with its
/// durations takes longer.
TEST(PathShares, AreOfTheReplayWhereThatIsLongerThanTheMeasuredStep) {
    PlainCosts costs = plain(ScheduleKind::OneFOneB, 3, 4);
    costs.link.latency = milliseconds(5);
    const Plan plan = make_plan(costs);
    costs.link.latency = {};
    Timeline measured = sim::simulate(make_plan(costs));  // its messages took no time
    measured.origin = Origin::Measured;
    measured.links.clear();
    const auto run = planned_run(plan, {measured});
    const StepAnalysis analysis(run, Side::Measured, 0);
    const PathShares shares = path_shares(analysis);
    ASSERT_LT(shares.unexplained, Duration{});
    EXPECT_GT(sum(shares.kinds), analysis.length());
    EXPECT_NEAR(sum_of_shares(shares.kinds), 1, 1e-12);
    EXPECT_NEAR(sum_of_shares(shares.stages) + sum_of_shares(shares.links), 1, 1e-12);
    EXPECT_TRUE(shares.predicted_messages);
    EXPECT_EQ(share_of(shares.kinds, "messages").time % milliseconds(5), Duration{});
    EXPECT_FALSE(of(run, Side::Predicted).predicted_messages) << "nothing to tell apart";
}

TEST(PathShares, OfAMeasuredStepWithoutMessagesInItsChainHaveNoPredictedOnes) {
    const Plan plan = make_plan(plain(ScheduleKind::OneFOneB, 1, 4));
    std::mt19937 random(5);
    EXPECT_FALSE(
        of(planned_run(plan, {jittered_step(plan, random)}), Side::Measured).predicted_messages);
}

TEST(PathShares, WithoutAPlanAreNone) {
    const PathShares shares = of(std::make_shared<const RunData>(canned_run()), Side::Measured);
    EXPECT_TRUE(shares.kinds.empty() && shares.stages.empty() && shares.links.empty());
}

}  // namespace path_shares_test
}  // namespace pipetwin::gui
