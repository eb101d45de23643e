// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/critical_path.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"

namespace pipetwin::sim {
namespace critical_path_test {

using testing::milliseconds;
using testing::plain;

/// "0F0@0 0SEND_F0@1": actions and when they begin, in ms.
std::string path_of(const PlainCosts& costs) {
    const Plan plan = make_plan(costs);
    std::string text;
    for (const CriticalStep& step : critical_path(plan, simulate(plan))) {
        text += fmt::format("{}{}@{}",
                            text.empty() ? "" : " ",
                            to_string(step.action),
                            step.begin / milliseconds(1));
    }
    return text;
}

TEST(CriticalPath, OfOneMicroBatchGoesThroughEveryStageAndBack) {
    EXPECT_EQ(path_of(plain(ScheduleKind::GPipe, 3, 1)), "0F0@0 1F0@1 2F0@2 2B0@3 1B0@5 0B0@7");
}

TEST(CriticalPath, AMessageOnItsWayIsAPieceOfItsOwn) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 1);
    costs.link.latency = milliseconds(4);
    EXPECT_EQ(path_of(costs), "0F0@0 0SEND_F0@1 1F0@5 1B0@6 1SEND_B0@8 0B0@12");
}

TEST(CriticalPath, StaysInItsRowWhereItCan) {
    // Rank 1 ends B0 at 7, too, but for B0 of rank 0 its own row is as good a reason to begin then.
    EXPECT_EQ(path_of(plain(ScheduleKind::GPipe, 2, 2)), "0F0@0 1F0@1 1F1@2 1B1@3 0B1@5 0B0@7");
}

TEST(CriticalPath, FollowsTheMessagesOfABusyLink) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 2);
    costs.link.bytes_per_second = 1e9;
    costs.boundary = Bytes{5'000'000};
    EXPECT_EQ(path_of(costs),
              "0F0@0 0SEND_F0@1 0SEND_F1@6 1F1@11 1B1@12 1SEND_B1@14 1SEND_B0@19 0B0@24");
}

TEST(CriticalPath, GoesThroughTheReceiverThatMadeRoom) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 3);
    costs.forward = {milliseconds(1), milliseconds(4)};
    costs.backward = {milliseconds(9), milliseconds(1)};
    costs.channel_capacity = 1;
    // Rank 0 hands micro-batch 2 over at 5, when rank 1 takes 1; then it is idle until B2 of rank 1
    // ends at 14.
    EXPECT_EQ(path_of(costs), "0F0@0 1F0@1 1F1@5 1F2@9 1B2@13 0B2@14 0B1@23 0B0@32");
}

/// From 0 to the end of the step without a gap.
void expect_whole(const Plan& plan) {
    const Timeline timeline = simulate(plan);
    Duration at{};
    for (const CriticalStep& step : critical_path(plan, timeline)) {
        ASSERT_EQ(step.begin, at) << to_string(step.action);
        ASSERT_GT(step.end, step.begin);
        at = step.end;
    }
    ASSERT_EQ(at, step_time(timeline));
}

TEST(CriticalPath, CoversTheWholeStepWithoutAGap) {
    std::mt19937 random(41);
    for (int ranks = 1; ranks <= 6; ++ranks) {
        for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
            for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
                PlainCosts costs = testing::random_costs(kind, ranks, micro_batches, random);
                costs.recompute = static_cast<Recompute>(random() % 3);
                SCOPED_TRACE(fmt::format("{} p {} m {}", to_string(kind), ranks, micro_batches));
                ASSERT_NO_FATAL_FAILURE(expect_whole(make_plan(costs)));
                costs.channel_capacity =
                    (kind == ScheduleKind::GPipe ? 0 : 1) + static_cast<int>(random() % 2);
                ASSERT_NO_FATAL_FAILURE(expect_whole(make_plan(costs)));
            }
        }
    }
}

TEST(CriticalPath, CoversStepsWithUpdatesWithoutAGap) {
    testing::expect_relation(100, [] {
        const Plan plan = plan_with_updates(random_pipeline());
        const Timeline timeline = simulate(plan);
        Duration at{};
        for (const CriticalStep& step : critical_path(plan, timeline)) {
            RC_ASSERT(step.begin == at);
            RC_ASSERT(step.end > step.begin);
            at = step.end;
        }
        RC_ASSERT(at == step_time(timeline));
    });
}

TEST(CriticalPath, GoesOverGradientsThatTheUpdateOfTheirOwnStageWaitsFor) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 2, 1)).parts();
    parts.overlap_reduction = true;
    parts.all_reduce.assign(2, milliseconds(50));
    parts.schedule.ranks[0].push_back({.op = Op::ReduceGradient, .stage = 0});
    parts.schedule.ranks[1].push_back({.op = Op::ReduceGradient, .stage = 1});
    parts.schedule = add_optimizer(std::move(parts.schedule));
    parts.states[0].optimizer = milliseconds(3);
    const Plan plan = Plan::make(std::move(parts));
    const auto path = critical_path(plan, simulate(plan));
    ASSERT_GE(path.size(), 2U);
    EXPECT_EQ(to_string(path[path.size() - 2].action), "0REDUCE_GRAD");
    EXPECT_EQ(path[path.size() - 2].begin, Duration(milliseconds(6)));
    EXPECT_EQ(path.back().begin, Duration(milliseconds(56)));
}

/// The first bucket sets out 1 ms before the backward ends at 6 ms.
TEST(CriticalPath, GoesOverBucketsThatSetOutBesideTheBackward) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 2, 1)).parts();
    parts.overlap_reduction = true;
    parts.all_reduce.assign(2, milliseconds(50));
    const BucketedSums halves{.head = milliseconds(1), .tail = milliseconds(25)};
    parts.bucketed_sums.assign(2, halves);
    parts.schedule.ranks[0].push_back({.op = Op::ReduceGradient, .stage = 0});
    parts.schedule.ranks[1].push_back({.op = Op::ReduceGradient, .stage = 1});
    parts.schedule = add_optimizer(std::move(parts.schedule));
    parts.states[0].optimizer = milliseconds(3);
    const Plan plan = Plan::make(std::move(parts));
    const auto path = critical_path(plan, simulate(plan));
    ASSERT_GE(path.size(), 2U);
    EXPECT_EQ(to_string(path[path.size() - 2].action), "0REDUCE_GRAD");
    EXPECT_EQ(path[path.size() - 2].begin, Duration(milliseconds(6)));
    EXPECT_EQ(path.back().begin, Duration(milliseconds(55)));
}

TEST(CriticalPath, EndsWithTheOptimizerWhereThatEndsLast) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 2, 1)).parts();
    parts.schedule = add_optimizer(std::move(parts.schedule));
    parts.states[1].optimizer = milliseconds(50);
    const Plan plan = Plan::make(std::move(parts));
    const auto path = critical_path(plan, simulate(plan));
    EXPECT_EQ(to_string(path.back().action), "1OPT");
    EXPECT_EQ(path.back().rank, 1);
}

TEST(CriticalPath, IsKnownForPredictedTimelinesOnly) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 2, 1));
    Timeline measured = simulate(plan);
    measured.origin = Origin::Measured;
    EXPECT_THROW(critical_path(plan, measured), InternalError);
}

}  // namespace critical_path_test
}  // namespace pipetwin::sim
