// SPDX-License-Identifier: Apache-2.0
#include "sim/simulate/simulate.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/validate.h"
#include "core/timeline/footprint.h"
#include "sim/explain/breakdown.h"
#include "sim/explain/critical_path.h"
#include "sim/simulate/settled_capacity.h"
#include "tests/support/critical_path.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::sim {
namespace simulate_test {

using testing::milliseconds;
using testing::plain;

/// The span of an action, found by its text.
const Span& span_of(const Timeline& timeline, const std::string& action) {
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            if (to_string(span.action) == action) {
                return span;
            }
        }
    }
    throw std::logic_error("no " + action);
}

/// "begin..ready..end" in milliseconds; ready is left out where it tells nothing.
std::string times(const Span& span) {
    const auto ms = [](Duration time) { return std::to_string(time.count() / 1'000'000); };
    const bool waited = span.ready != span.begin && span.ready != span.end;
    return ms(span.begin) + (waited ? ".." + ms(span.ready) : "") + ".." + ms(span.end);
}

Bytes megabytes(int count) {
    return Bytes{count * 1'000'000LL};
}

/// Four equal stages, four micro-batches; 1 ms on each link.
PlainCosts documented_example() {
    PlainCosts costs = plain(ScheduleKind::GPipe, 4, 4);
    costs.forward.assign(4, milliseconds(10));
    costs.backward.assign(4, milliseconds(20));
    costs.recompute = Recompute::Always;
    costs.link = {.bytes_per_second = 1e9};
    costs.boundary = megabytes(1);
    return costs;
}

TEST(Simulate, GivesTheTimesOfTheWorkedExample) {
    const Timeline timeline = simulate(make_plan(documented_example()));
    EXPECT_EQ(times(span_of(timeline, "1RECV_F2")), "31..31");
    EXPECT_EQ(times(span_of(timeline, "1F2")), "31..41");
    EXPECT_EQ(times(timeline.links[2][2]), "41..42");
    EXPECT_EQ(times(span_of(timeline, "1R2")), "145..155");
    EXPECT_EQ(times(span_of(timeline, "1RECV_B2")), "155..155");
    EXPECT_EQ(times(span_of(timeline, "1B2")), "155..175");
    EXPECT_EQ(times(timeline.links[1][1]), "175..176");
}

TEST(Simulate, RowsOfTheTimelineAreTheRowsOfThePlan) {
    const Plan plan = make_plan(documented_example());
    const Timeline timeline = simulate(plan);
    ASSERT_EQ(timeline.ranks.size(), plan->schedule.ranks.size());
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
        std::vector<Action> actions;
        for (const Span& span : timeline.ranks[rank]) {
            actions.push_back(span.action);
        }
        EXPECT_EQ(actions, plan->schedule.ranks[rank]);
    }
    EXPECT_EQ(timeline.origin, Origin::Predicted);
}

TEST(Simulate, ALinkCarriesOneMessageAfterTheOther) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 3);
    costs.link = {.latency = milliseconds(2), .bytes_per_second = 1e9};
    costs.boundary = megabytes(5);
    const Timeline timeline = simulate(make_plan(costs));
    // Handed over at 1, 2 and 3; each occupies the link for 5 and arrives 2 later.
    EXPECT_EQ(times(timeline.links[0][0]), "1..6");
    EXPECT_EQ(times(timeline.links[0][1]), "6..11");
    EXPECT_EQ(times(timeline.links[0][2]), "11..16");
    EXPECT_EQ(times(span_of(timeline, "0SEND_F2")), "3..3");
    EXPECT_EQ(times(span_of(timeline, "1RECV_F0")), "0..8");
    EXPECT_EQ(times(span_of(timeline, "1RECV_F1")), "9..13");
    EXPECT_EQ(times(span_of(timeline, "1RECV_F2")), "14..18");
}

TEST(Simulate, AMessageOfTheHalfBandwidthSizeTravelsAtHalfTheRate) {
    const LinkCost link{.bytes_per_second = 1e9, .half_bandwidth = megabytes(4)};
    EXPECT_EQ(occupation(link, megabytes(4)), Duration(milliseconds(8)));
    EXPECT_EQ(occupation(link, megabytes(1)), Duration(milliseconds(5)));
    EXPECT_EQ(occupation(link, Bytes{0}), Duration{});
    EXPECT_EQ(occupation(LinkCost{}, megabytes(4)), Duration{});
}

TEST(Simulate, AFullEdgeHoldsItsSenderBack) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 3);
    costs.forward = {milliseconds(1), milliseconds(10)};
    costs.channel_capacity = 1;
    const Timeline timeline = simulate(make_plan(costs));
    // Micro-batch 1 waits on the edge while rank 1 works on 0 (1..11), so 2 is handed over at 11
    // only.
    EXPECT_EQ(times(span_of(timeline, "0SEND_F1")), "2..2");
    EXPECT_EQ(times(span_of(timeline, "0SEND_F2")), "3..11");
}

TEST(Simulate, WithoutCapacityASendWaitsForItsReceive) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 2);
    costs.forward = {milliseconds(1), milliseconds(10)};
    costs.link.latency = milliseconds(3);
    costs.channel_capacity = 0;
    const Timeline timeline = simulate(make_plan(costs));
    // The receive of 0 begins at 0; that of 1 when F0 of rank 1 has ended.
    EXPECT_EQ(times(span_of(timeline, "0SEND_F0")), "1..1");
    EXPECT_EQ(times(span_of(timeline, "1RECV_F0")), "0..4");
    EXPECT_EQ(times(span_of(timeline, "0SEND_F1")), "2..14");
    EXPECT_EQ(times(span_of(timeline, "1RECV_F1")), "14..17");
}

TEST(Simulate, TwoRunsAreIdentical) {
    const Plan plan = make_plan(documented_example());
    EXPECT_EQ(simulate(plan), simulate(plan));
}

TEST(Simulate, OneStageSendsNothing) {
    const Timeline timeline = simulate(make_plan(plain(ScheduleKind::GPipe, 1, 3)));
    EXPECT_TRUE(timeline.links.empty());
    EXPECT_EQ(pipeline_time(timeline), Duration(milliseconds(9)));
}

TEST(SettledCapacity, WithoutBytesNoSendBlocksAndTheTimelineIsThatOfUnboundedEdges) {
    std::mt19937 random(7);
    for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (int ranks = 2; ranks <= 6; ++ranks) {
            for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
                PlainCosts costs = testing::random_costs(kind, ranks, micro_batches, random);
                costs.boundary = Bytes{};
                const Plan plan = make_plan(costs);
                const int capacity = settled_capacity(plan);
                ASSERT_EQ(simulate(plan.with_capacity(capacity)), simulate(plan))
                    << to_string(kind) << " p " << ranks << " m " << micro_batches;
            }
        }
    }
}

TEST(SettledCapacity, OneLessWouldBlockASend) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 6);
    costs.forward = {milliseconds(1), milliseconds(10)};
    const Plan plan = make_plan(costs);
    const int capacity = settled_capacity(plan);
    // At 6 the last of six messages is handed over, and rank 1 has taken only the first.
    EXPECT_EQ(capacity, 5);
    EXPECT_NE(simulate(plan.with_capacity(capacity - 1)), simulate(plan));
}

/// At 512 ms the first of two ranks has handed over its last message, and the second has taken 171,
/// one every 3 ms from 1 ms on. Whether messages wait in the channel or one by one for their
/// hand-over makes no difference to the step: the first rank has nothing else to do until its first
/// gradient comes.
TEST(SettledCapacity, LeavesOutRoomThatSavesNoTime) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 512);
    costs.forward = {milliseconds(1), milliseconds(3)};
    const Plan without_bytes = make_plan(costs);
    costs.boundary = megabytes(100);
    const Plan plan = make_plan(costs);
    EXPECT_EQ(settled_capacity(without_bytes), 512 - 171);
    EXPECT_EQ(settled_capacity(plan), 1);
    EXPECT_EQ(step_time(simulate(plan.with_capacity(1))), step_time(simulate(plan)));
    EXPECT_EQ(resident_memory(with_settled_capacity(plan), 1)[MemoryKind::Boundary],
              megabytes(100));
}

TEST(SettledCapacity, AllowsAThousandthOfTheStep) {
    const Duration step = milliseconds(5'000);
    EXPECT_TRUE(is_as_fast(step, step));
    EXPECT_TRUE(is_as_fast(step + milliseconds(5), step));
    EXPECT_FALSE(is_as_fast(step + milliseconds(5) + Duration{1}, step));
    EXPECT_FALSE(is_as_fast(Duration{1'000}, Duration{999}));
}

TEST(SettledCapacity, IsAtLeastOneAndZeroWithoutEdges) {
    EXPECT_EQ(settled_capacity(make_plan(plain(ScheduleKind::GPipe, 2, 1))), 1);
    EXPECT_EQ(settled_capacity(make_plan(plain(ScheduleKind::GPipe, 1, 4))), 0);
}

TEST(SettledCapacity, ActionsWithoutDurationDoNotDeadlockAtIt) {
    PlainCosts costs = plain(ScheduleKind::OneFOneB, 4, 8);
    costs.forward.assign(4, Duration{});
    costs.backward.assign(4, Duration{});
    const Plan plan = make_plan(costs);
    EXPECT_EQ(pipeline_time(simulate(plan.with_capacity(settled_capacity(plan)))), Duration{});
}

/// chimera on `ranks` ranks with updates of 1 ms and weights that take `way` to the other copy.
Plan two_pipelines(int ranks, Duration way) {
    PlanParts parts = make_plan(plain(ScheduleKind::Chimera, ranks, ranks)).parts();
    parts.schedule = add_optimizer(add_reduction(std::move(parts.schedule)));
    for (StageState& state : parts.states) {
        state.optimizer = milliseconds(1);
        state.weights = Bytes{1'000};
    }
    for (LinkCost& link : parts.reductions) {
        link.latency = way / 2;
        link.bytes_per_second = 1'000 / to_seconds(way - way / 2);
    }
    return Plan::make(std::move(parts));
}

TEST(TwoPipelines, AnUpdateWaitsForTheGradientsOfTheOtherCopy) {
    // On both ranks the first stage's gradients set out last, at 6 ms, and it is updated first.
    const Timeline timeline = simulate(two_pipelines(2, milliseconds(10)));
    EXPECT_EQ(pipeline_time(timeline), milliseconds(6));
    EXPECT_EQ(step_time(timeline), milliseconds(6 + 10 + 2));
}

TEST(TwoPipelines, GradientsThatCameInTimeDelayNothing) {
    EXPECT_EQ(step_time(simulate(two_pipelines(2, Duration{2}))),
              milliseconds(6 + 2) + Duration{2});
}

TEST(TwoPipelines, BothEnginesAgreeAndTheCriticalPathIsWhole) {
    for (const int ranks : {2, 4, 6}) {
        for (const Duration way :
             {Duration{2}, Duration{milliseconds(1)}, Duration{milliseconds(30)}}) {
            const Plan plan = two_pipelines(ranks, way);
            const Timeline timeline = simulate(plan);
            EXPECT_EQ(timeline, testing::longest_path(plan));
            Duration sum{};
            for (const CriticalStep& step : critical_path(plan, timeline)) {
                sum += step.end - step.begin;
            }
            EXPECT_EQ(sum, step_time(timeline));
            EXPECT_EQ(breakdown(plan, timeline).sum(), step_time(timeline));
        }
    }
}

}  // namespace simulate_test
}  // namespace pipetwin::sim
