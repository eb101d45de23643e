// SPDX-License-Identifier: Apache-2.0
#include "sim/simulate/replay_error.h"

#include <random>

#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "sim/simulate/simulate.h"
#include "tests/support/plain_plan.h"
#include "tests/support/spans.h"

namespace pipetwin::sim {
namespace replay_error_test {

using testing::microseconds;
using testing::milliseconds;
using testing::plain;

Timeline as_measured(Timeline timeline) {
    timeline.origin = Origin::Measured;
    timeline.links.clear();
    return timeline;
}

/// An action lasts what it lasted, whatever the plan said about it.
TEST(ReplayError, APlanThatRanAsSimulatedIsReplayedExactly) {
    std::mt19937 random(7);
    for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (int ranks = 1; ranks <= 5; ++ranks) {
            PlainCosts costs = testing::random_costs(kind, ranks, 6, random);
            const Timeline measured = as_measured(simulate(make_plan(costs)));
            for (Duration& forward : costs.forward) {
                forward *= 3;
            }
            EXPECT_EQ(replay_of_own_durations(make_plan(costs), measured), step_time(measured));
        }
    }
}

//     rank 0   F 0..1, 1 ms of nothing, B 2..4: the gap belongs to B
TEST(ReplayError, GapsBetweenSpansBelongToTheActionBehindThem) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 1, 1));
    const Timeline measured = as_measured(testing::timeline_of(
        {{testing::span(Op::Forward, 0, 1), testing::span(Op::Backward, 2, 4)}}));
    EXPECT_EQ(own_conditions(plan, measured).durations[0],
              (std::vector<Duration>{milliseconds(1), milliseconds(3)}));
    EXPECT_EQ(replay_of_own_durations(plan, measured), Duration(milliseconds(4)));
}

/// A rank that stood still although its message was there: no rule of the simulator says so, and
/// the replay shows it.
TEST(ReplayError, AWaitWithoutAReasonIsTheSimulatorsError) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 2, 1));
    Timeline measured = as_measured(simulate(plan));
    const Duration late = microseconds(500);
    for (Span& span : measured.ranks[1]) {  // all of rank 1 is late, as if the message had been
        const bool first = &span == &measured.ranks[1].front();
        span.begin += first ? Duration{} : late;
        span.ready += late;
        span.end += late;
    }
    for (Span& span : measured.ranks[0]) {  // and so is what rank 0 waits for
        if (span.action.op == Op::RecvBackward || span.action.op == Op::Backward) {
            span.begin += span.action.op == Op::Backward ? late : Duration{};
            span.ready += late;
            span.end += late;
        }
    }
    EXPECT_EQ(step_time(measured) - replay_of_own_durations(plan, measured), late);
}

}  // namespace replay_error_test
}  // namespace pipetwin::sim
