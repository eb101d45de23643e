// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/metrics.h"

#include <gtest/gtest.h>

#include "core/schedule/generators/generate.h"
#include "tests/support/plain_plan.h"
#include "tests/support/spans.h"

namespace pipetwin {
namespace metrics_test {

using testing::milliseconds;
using testing::span;

/// Two ranks, one micro-batch, with recompute and a send that waits:
///
///     ms      0 1 2 3 4 5 6 7 8 9
///     rank 0  F F s . R R B B .
///     rank 1  . . F F F B . . O         s waits 1 ms for room
Timeline by_hand() {
    Span send = span(Op::SendForward, 2, 3);
    send.ready = milliseconds(3);
    Timeline timeline;
    timeline.ranks = {
        {span(Op::Forward, 0, 2), send, span(Op::Recompute, 4, 6), span(Op::Backward, 6, 8)},
        {span(Op::Forward, 2, 5), span(Op::Backward, 5, 6), span(Op::Optimizer, 8, 9)}};
    return timeline;
}

Plan some_plan() {
    return make_plan(testing::plain(ScheduleKind::GPipe, 2, 1));
}

TEST(Measure, FollowsTheDefinitionsOfTheThreeBubbles) {
    const Metrics metrics = measure(some_plan(), by_hand());
    EXPECT_EQ(metrics.makespan, Duration(milliseconds(8)));
    EXPECT_EQ(metrics.step, Duration(milliseconds(9)));
    // work 6 + 4, of it 2 recompute; T 8; ideal 6; the largest extent is that of rank 0, 8.
    EXPECT_EQ(metrics.bubble.total, 1 - 10.0 / 16);
    EXPECT_EQ(metrics.bubble.total_without_recompute, 1 - 8.0 / 16);
    EXPECT_EQ(metrics.bubble.ideal, 2.0 / 6);
    EXPECT_EQ(metrics.bubble.span, 2.0 / 8);
}

TEST(Measure, GivesBusyAndIdleTimeOfEveryRank) {
    const Metrics metrics = measure(some_plan(), by_hand());
    ASSERT_EQ(metrics.devices.size(), 2U);
    EXPECT_EQ(metrics.devices[0].busy, Duration(milliseconds(6)));
    EXPECT_EQ(metrics.devices[0].idle, Duration(milliseconds(2)));
    EXPECT_EQ(metrics.devices[1].busy, Duration(milliseconds(4)));
    EXPECT_EQ(metrics.devices[1].rank, 1);
}

TEST(Measure, ThroughputNeedsSamplesAndCountsTheWholeStep) {
    EXPECT_FALSE(measure(some_plan(), by_hand()).samples_per_second.has_value());
    PlanParts parts = some_plan().parts();
    parts.micro_batch_sizes = {18};
    const Metrics metrics = measure(Plan::make(std::move(parts)), by_hand());
    ASSERT_TRUE(metrics.samples_per_second.has_value());
    EXPECT_DOUBLE_EQ(*metrics.samples_per_second, 2000);  // 18 samples in 9 ms
}

TEST(Measure, ATimelineWithoutTimeHasNoBubble) {
    Timeline empty;
    empty.ranks.resize(2);
    const Metrics metrics = measure(some_plan(), empty);
    EXPECT_EQ(metrics.bubble.total, 0);
    EXPECT_EQ(metrics.bubble.ideal, 0);
    EXPECT_EQ(metrics.bubble.span, 0);
}

TEST(IdleTime, IsSplitByItsPlaceInTheRow) {
    const IdleTime idle = idle_time(some_plan(), by_hand());
    // Rank 0: none before, 1 of 2..4 between, the other held back by the full edge, 8..9 after.
    // Rank 1: 0..2 before, none between, 6..8 after.
    EXPECT_EQ(idle.warm_up, Duration(milliseconds(1)));
    EXPECT_EQ(idle.steady, Duration(milliseconds(1)) / 2);
    EXPECT_EQ(idle.drain, Duration(milliseconds(3)) / 2);
    EXPECT_EQ(idle.back_pressure, Duration(milliseconds(1)) / 2);
}

TEST(IdleTime, HasInItTheWaitOfAnUpdateForGradients) {
    Timeline timeline = by_hand();
    timeline.ranks[1].back().begin = milliseconds(6);  // it waits from 6 to 8
    timeline.ranks[1].back().ready = milliseconds(8);
    EXPECT_EQ(idle_time(some_plan(), timeline).drain, Duration(milliseconds(3)) / 2);
}

TEST(IdleTime, ARankThatComputesNothingWarmsUpForTheWholeStep) {
    Timeline timeline = by_hand();
    timeline.ranks[1].clear();
    EXPECT_EQ(idle_time(some_plan(), timeline).warm_up, Duration(milliseconds(4)));
}

TEST(Breakdown, SumAddsEveryPart) {
    const Breakdown parts{.forward = Duration{1},
                          .backward = Duration{2},
                          .backward_input = Duration{4},
                          .backward_weight = Duration{8},
                          .recompute = Duration{16},
                          .communication_wait = Duration{32},
                          .imbalance = Duration{64},
                          .fill_and_drain = Duration{128},
                          .reduction = Duration{256},
                          .optimizer = Duration{512},
                          .overhead = Duration{1024}};
    EXPECT_EQ(parts.sum(), Duration{2047});
}

}  // namespace metrics_test
}  // namespace pipetwin
