// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/timeline/timeline.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace watchdog_test {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

/// Three stages of two micro-batches, two units of 1 ms forward each: rank 1 receives in cell 0,
/// computes in cell 1 and sends in cell 2.
class Watching : public ::testing::Test {
  protected:
    Watching(Duration unit = milliseconds(1), Backend backend = Backend::Cpu)
        : plan(test::plan_of(test::small_mlp(),
                             {.stages = 3, .micro_batches = 2, .batch = 4, .backend = backend},
                             {.forward = unit, .backward = 2 * unit})),
          watchdog(plan, HangLimits{.first_step = seconds(10)}) {
        watchdog.begin_step(now);
    }

    int cell_of(Op op, int stage, int micro_batch) const {
        const auto rank =
            static_cast<std::size_t>(plan->schedule.rank_of_stage[static_cast<std::size_t>(stage)]);
        const auto& row = plan->schedule.ranks[rank];
        const Action action{.op = op, .stage = stage, .micro_batch = micro_batch};
        return static_cast<int>(std::ranges::find(row, action) - row.begin());
    }

    /// Looks as often as it should while so much time goes by.
    std::optional<Hang> look_for(const std::vector<int>& cells, Duration time) {
        const TimePoint end = now + time;
        while (now < end) {
            now += watchdog.interval();
            if (auto hang = watchdog.look(cells, now)) {
                return hang;
            }
        }
        return std::nullopt;
    }

    const Plan plan;
    Watchdog watchdog;
    TimePoint now{hours(1)};
};

TEST_F(Watching, NamesTheRankAtTheRootOfTheChainOfWaits) {
    // Rank 1 is at its first forward; rank 2 waits for it, and so does rank 0 for a gradient.
    const std::vector<int> cells{cell_of(Op::RecvBackward, 0, 1),
                                 cell_of(Op::Forward, 1, 0),
                                 cell_of(Op::RecvForward, 2, 0)};
    EXPECT_FALSE(look_for(cells, milliseconds(9'900)));
    const std::optional<Hang> hang = look_for(cells, seconds(1));
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->rank, 1);
    EXPECT_EQ(hang->cell, cell_of(Op::Forward, 1, 0));
    EXPECT_THAT(hang->text, HasSubstr("waiting for no other rank"));
    EXPECT_THAT(hang->text, HasSubstr("rank 0: at 0RECV_B1 ("));
    EXPECT_THAT(hang->text, HasSubstr("waits for 1SEND_B1 of rank 1"));
    EXPECT_THAT(hang->text, HasSubstr("rank 1: at 1F0 (the forward of micro-batch 0 on stage 1)"));
    EXPECT_THAT(hang->text, HasSubstr("rank 2: at 2RECV_F0 ("));
    EXPECT_THAT(hang->text, HasSubstr("waits for 1SEND_F0 of rank 1"));
}

TEST_F(Watching, ARankThatGoesOnNeverHangs) {
    std::vector<int> cells{0, cell_of(Op::RecvForward, 1, 1), cell_of(Op::RecvForward, 2, 1)};
    for (cells[0] = 0; cells[0] < cell_of(Op::SendForward, 0, 1); ++cells[0]) {
        EXPECT_FALSE(look_for(cells, seconds(9)));
    }
}

TEST_F(Watching, AReceiverHangsOnceItsMessageHasBeenSent) {
    const std::vector<int> before{cell_of(Op::Forward, 0, 0), 0, 0};
    EXPECT_FALSE(look_for(before, seconds(9)));
    const std::vector<int> after{
        cell_of(Op::RecvBackward, 0, 1), cell_of(Op::RecvForward, 1, 0), 0};
    EXPECT_FALSE(look_for(after, milliseconds(9'900)));  // counted from the sending
    const std::optional<Hang> hang = look_for(after, seconds(1));
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->rank, 1);
    EXPECT_THAT(hang->text, HasSubstr("waits for 0SEND_F0 of rank 0, which has come"));
}

TEST_F(Watching, TimeInWhichItWasNotLookingDoesNotCount) {
    const std::vector<int> cells{0, 0, 0};
    EXPECT_FALSE(look_for(cells, seconds(5)));
    now += hours(2);  // the process was stopped, or the machine slept
    EXPECT_FALSE(watchdog.look(cells, now));
    EXPECT_FALSE(look_for(cells, seconds(4)));
    EXPECT_TRUE(look_for(cells, seconds(2)));
}

TEST_F(Watching, WhoIsPreparedWaitsForWhoIsNot) {
    const std::optional<Hang> hang = look_for({prepared, preparing, prepared}, seconds(11));
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->rank, 1);
    EXPECT_FALSE(hang->cell);
    EXPECT_THAT(hang->text, HasSubstr("rank 0: before its first action"));
    EXPECT_THAT(hang->text, HasSubstr("waits for rank 1"));
}

TEST_F(Watching, ARankAtTheEndOfItsRowNeitherHangsNorIsWaitedFor) {
    const auto end = [&](std::size_t rank) {
        return static_cast<int>(plan->schedule.ranks[rank].size());
    };
    EXPECT_FALSE(look_for({end(0), end(1), end(2)}, hours(1)));
}

TEST_F(Watching, WhatLastedLongBeforeMayLastTenTimesAsLong) {
    std::vector<Span> row;
    for (const Action& action : plan->schedule.ranks[1]) {
        row.push_back({.action = action, .end = seconds(3)});
    }
    watchdog.learn(row, 1);
    const std::vector<int> cells{0, cell_of(Op::Forward, 1, 0), 0};
    EXPECT_EQ(look_for(cells, seconds(20)).value().rank, 0);
    watchdog.begin_step(now);
    const std::vector<int> later{cell_of(Op::RecvBackward, 0, 1), cells[1], 0};
    EXPECT_FALSE(look_for(later, seconds(29)));
    EXPECT_TRUE(look_for(later, seconds(2)));
}

class WatchingLongActions : public Watching {
  protected:
    WatchingLongActions() : Watching(seconds(5)) {}
};

// A stage has two or three units of 5 s: the first has three, so 15 s forward and 30 s backward.
TEST_F(WatchingLongActions, WaitTenTimesWhatIsPlanned) {
    const Duration planned = plan.duration({.op = Op::Forward, .stage = 0, .micro_batch = 0});
    const std::vector<int> cells{0, 0, 0};
    EXPECT_FALSE(look_for(cells, 10 * planned - milliseconds(100)));
    EXPECT_TRUE(look_for(cells, seconds(1)));
}

TEST(Watchdog, AFirstStepHasMorePatience) {
    const Plan plan = test::plan_of(test::small_mlp(), {.stages = 1, .micro_batches = 1});
    Watchdog watchdog(plan, HangLimits{});
    for (const Duration patience : {seconds(60), seconds(10)}) {
        TimePoint now{};
        watchdog.begin_step(now);
        const std::vector<int> cells{0};
        while (!watchdog.look(cells, now)) {
            now += watchdog.interval();
        }
        EXPECT_GE(now - TimePoint{}, patience);
        EXPECT_LE(now - TimePoint{}, patience + 2 * watchdog.interval());
        watchdog.end_step();
    }
}

}  // namespace watchdog_test
}  // namespace pipetwin::exec
