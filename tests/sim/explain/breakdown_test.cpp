// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/breakdown.h"

#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "sim/simulate/simulate.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::sim {
namespace breakdown_test {

using testing::microseconds;
using testing::milliseconds;
using testing::plain;

Breakdown of(const PlainCosts& costs) {
    const Plan plan = make_plan(costs);
    return breakdown(plan, simulate(plan));
}

/// What the executor would record if every compute action began `gap` after the rank turned to it:
/// the rows run as simulated with longer actions, but the spans show the actions alone.
Timeline with_gaps(const Plan& plan, Duration gap) {
    Conditions conditions = conditions_of(plan, simulate(plan));
    for (std::size_t rank = 0; rank < conditions.durations.size(); ++rank) {
        for (std::size_t cell = 0; cell < conditions.durations[rank].size(); ++cell) {
            const bool compute = is_compute(plan->schedule.ranks[rank][cell].op);
            conditions.durations[rank][cell] += compute ? gap : Duration{};
        }
    }
    Timeline timeline = replay(plan, conditions);
    timeline.origin = Origin::Measured;
    timeline.links.clear();
    for (auto& row : timeline.ranks) {
        for (Span& span : row) {
            if (is_compute(span.action.op)) {
                span.begin += gap;
                span.ready = span.begin;
            }
        }
    }
    return timeline;
}

TEST(Breakdown, OfEqualStagesWithoutLatencyIsWorkAndBubble) {
    const Breakdown parts = of(plain(ScheduleKind::GPipe, 4, 8));
    EXPECT_EQ(parts.forward, Duration(milliseconds(8)));
    EXPECT_EQ(parts.backward, Duration(milliseconds(16)));
    EXPECT_EQ(parts.fill_and_drain, Duration(milliseconds(9)));  // (p - 1)(F + B)
    EXPECT_EQ(parts.sum(), Duration(milliseconds(33)));
    EXPECT_EQ(parts.communication_wait + parts.imbalance + parts.overhead, Duration{});
}

TEST(Breakdown, LatencyIsTimeSpentWaitingForCommunication) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 4, 8);
    costs.link.latency = milliseconds(1);
    const Breakdown parts = of(costs);
    EXPECT_EQ(parts.communication_wait, Duration(milliseconds(6)));  // 2 (p - 1) c
    EXPECT_EQ(parts.fill_and_drain, Duration(milliseconds(9)));
}

TEST(Breakdown, BackPressureIsTimeSpentWaitingForCommunication) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 3, 6);
    costs.link.latency = milliseconds(2);
    const Breakdown unbounded = of(costs);
    costs.channel_capacity = 0;
    const Breakdown bounded = of(costs);
    EXPECT_GT(bounded.communication_wait, unbounded.communication_wait);
    EXPECT_EQ(bounded.fill_and_drain, unbounded.fill_and_drain);
}

TEST(Breakdown, WhatASlowStageCostsIsImbalance) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 4, 8);
    costs.forward[3] = microseconds(1'400);
    costs.backward[3] = microseconds(2'800);
    // T = sum f + sum b + 7 (max f + max b) = 4.4 + 8.8 + 29.4 = 42.6; with the means 1.1 and 2.2:
    // 11 * 3.3 = 36.3.
    const Breakdown parts = of(costs);
    EXPECT_EQ(parts.imbalance, Duration(microseconds(6'300)));
    EXPECT_EQ(parts.fill_and_drain, Duration(microseconds(9'900)));
    EXPECT_EQ(parts.forward + parts.backward, Duration(microseconds(26'400)));
    EXPECT_EQ(parts.sum(), Duration(microseconds(42'600)));
}

TEST(Breakdown, AllIdleOfOneStageIsGone) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 1, 3);
    costs.recompute = Recompute::ExceptLast;
    const Breakdown parts = of(costs);
    EXPECT_EQ(parts.recompute, Duration(milliseconds(2)));
    EXPECT_EQ(parts.sum(), Duration(milliseconds(11)));
    EXPECT_EQ(parts.fill_and_drain + parts.imbalance + parts.communication_wait, Duration{});
}

TEST(Breakdown, DispatchInsidePredictedActionsIsOverhead) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 2, 2)).parts();
    parts.dispatch = microseconds(10);
    const Plan plan = Plan::make(std::move(parts));
    const Breakdown result = breakdown(plan, simulate(plan));
    EXPECT_EQ(result.forward, Duration(milliseconds(2)));
    EXPECT_EQ(result.overhead, Duration(microseconds(40)));  // two F and two B per rank
    EXPECT_EQ(result.sum(), step_time(simulate(plan)));
}

/// A paced run was said to have spent twice the predicted time on forwards, and nothing on
/// overhead.
TEST(Breakdown, DispatchInsideActionsOfAPacedDeviceIsOverheadToo) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 2, 2)).parts();
    parts.dispatch = microseconds(10);
    const Plan plan = Plan::make(std::move(parts));
    Timeline paced = simulate(plan);
    paced.origin = Origin::Emulated;
    EXPECT_EQ(breakdown(plan, paced).overhead, Duration(microseconds(40)));
    EXPECT_EQ(breakdown(plan, paced).forward, Duration(milliseconds(2)));
    // An action that is shorter than planned was not paced: it was measured, on emulated links. All
    // that nothing explains then is the gap behind it.
    paced.ranks[0].front().end -= microseconds(1);
    EXPECT_EQ(breakdown(plan, paced).overhead, Duration(microseconds(1)));
    EXPECT_EQ(dispatch_in_actions(plan, paced), Duration{});
}

TEST(Breakdown, GapsBetweenMeasuredSpansAreOverhead) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 3, 4));
    const Timeline measured = with_gaps(plan, microseconds(50));
    const Breakdown parts = breakdown(plan, measured);
    EXPECT_EQ(parts.forward, Duration(milliseconds(4)));
    EXPECT_EQ(parts.fill_and_drain, Duration(milliseconds(6)));
    // 2 (m + p - 1) gaps lie on the path; the first of them before the step's first begin.
    EXPECT_EQ(parts.overhead, step_time(measured) - step_time(simulate(plan)));
    EXPECT_EQ(parts.sum(), step_time(measured));
}

TEST(Breakdown, OptimizerHasItsOwnPart) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 2, 2)).parts();
    parts.schedule = add_optimizer(std::move(parts.schedule));
    parts.states[0].optimizer = milliseconds(3);
    parts.states[1].optimizer = milliseconds(1);
    const Plan plan = Plan::make(std::move(parts));
    const Breakdown result = breakdown(plan, simulate(plan));
    EXPECT_EQ(result.optimizer, Duration(milliseconds(2)));
    EXPECT_EQ(result.sum(), Duration(milliseconds(12)));
}

TEST(Breakdown, PartsSumToTheStepAndNoneIsNegative) {
    std::mt19937 random(31);
    for (int ranks = 1; ranks <= 6; ++ranks) {
        for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
            for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
                PlainCosts costs = testing::random_costs(kind, ranks, micro_batches, random);
                std::vector<Recompute> modes;
                for (int stage = 0; stage < ranks; ++stage) {
                    modes.push_back(static_cast<Recompute>(random() % 3));
                }
                costs.recompute = random() % 2 == 0 ? RecomputeRules(modes.front())
                                                    : RecomputeRules(std::move(modes));
                const Plan plan = make_plan(costs);
                const Timeline predicted = simulate(plan);
                const Timeline measured =
                    with_gaps(plan, Duration{static_cast<std::int64_t>(random() % 999'999)});
                for (const Timeline* timeline : {&predicted, &measured}) {
                    const Breakdown parts = breakdown(plan, *timeline);
                    ASSERT_EQ(parts.sum(), step_time(*timeline));
                    ASSERT_GE(parts.communication_wait, Duration{});
                    ASSERT_GE(parts.imbalance, Duration{});
                    ASSERT_GE(parts.fill_and_drain, Duration{});
                    ASSERT_GE(parts.overhead, Duration{});
                }
                // Nothing but the division by the ranks is left over where every wait has a cause.
                ASSERT_LT(breakdown(plan, predicted).overhead, Duration{8});
            }
        }
    }
}

// With an R of 2 ms on the last stage alone, and what it would be with 1 ms on each:
//
//     rank 0  01.....bb..aa   13 ms
//     rank 1  .01rrbbrraa..
//
//     rank 0  01....bbbaaa   12 ms: each backward of rank 0 is longer by its share
//     rank 1  .01rbbraa...
TEST(Breakdown, RecomputeOnSomeStagesAloneIsImbalance) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 2);
    costs.recompute_cost = {milliseconds(2), milliseconds(2)};
    costs.recompute = RecomputeRules({Recompute::None, Recompute::Always});
    const Breakdown parts = of(costs);
    EXPECT_EQ(parts.sum(), Duration(milliseconds(13)));
    EXPECT_EQ(parts.recompute, Duration(milliseconds(2)));
    EXPECT_EQ(parts.imbalance, Duration(milliseconds(1)));
    EXPECT_EQ(parts.fill_and_drain, Duration(milliseconds(4)));
}

// Found by the property above: equal pieces make this step longer, so imbalance would have been
// negative.
TEST(Breakdown, AnOrderThatSuitsItsUnequalStagesHasNoImbalance) {
    PlainCosts costs = plain(ScheduleKind::OneFOneB, 2, 10);
    costs.forward = {milliseconds(6), milliseconds(1)};
    costs.backward = {milliseconds(1), milliseconds(6)};
    const Breakdown parts = of(costs);
    EXPECT_EQ(parts.imbalance, Duration{});
    EXPECT_EQ(parts.fill_and_drain, Duration(milliseconds(7)));
    EXPECT_EQ(parts.sum(), Duration(milliseconds(77)));
}

}  // namespace breakdown_test
}  // namespace pipetwin::sim
