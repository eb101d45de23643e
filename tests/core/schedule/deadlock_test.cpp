// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"
#include "tests/support/builders.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace deadlock_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::lowered;
using testing::schedule_of;

/// The table of smallest capacities: gpipe 0; 1f1b 1 as soon as two ranks exchange two
/// micro-batches.
TEST(SmallestCapacity, OfGPipeIsZero) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
        for (int m = 1; m <= 12; ++m) {
            EXPECT_EQ(smallest_capacity(
                          lowered(ScheduleKind::GPipe, {.ranks = ranks, .micro_batches = m})),
                      0);
        }
    }
}

TEST(SmallestCapacity, OfOneFOneBIsOneFromTwoMicroBatchesOn) {
    for (int ranks = 2; ranks <= 6; ++ranks) {
        for (int m = 1; m <= 12; ++m) {
            EXPECT_EQ(smallest_capacity(
                          lowered(ScheduleKind::OneFOneB, {.ranks = ranks, .micro_batches = m})),
                      m == 1 ? 0 : 1);
        }
    }
}

TEST(SmallestCapacity, IsOneWhereverForwardsAndBackwardsTakeTurns) {
    for (int p = 2; p <= 6; ++p) {
        for (int m = 2; m <= 12; ++m) {
            for (const ScheduleKind kind : {ScheduleKind::ZbH1, ScheduleKind::ZbH2}) {
                EXPECT_EQ(smallest_capacity(lowered(kind, {.ranks = p, .micro_batches = m})), 1);
            }
        }
        for (int v = 2; v <= 3; ++v) {
            EXPECT_EQ(smallest_capacity(lowered(ScheduleKind::Interleaved1F1B, {p, v, 2 * p})), 1);
        }
    }
}

TEST(SmallestCapacity, OfLoopedBfsHoldsWhatComesRoundBeforeItsTurn) {
    for (int p = 2; p <= 6; ++p) {
        for (int v = 2; v <= 3; ++v) {
            for (int m = p; m <= 4 * p; ++m) {
                EXPECT_EQ(smallest_capacity(lowered(ScheduleKind::LoopedBfs, {p, v, m})), m / p)
                    << "p " << p << " v " << v << " m " << m;
            }
        }
    }
}

TEST(SmallestCapacity, OfInterleavedZbIsAtMostFour) {
    for (int p = 2; p <= 6; ++p) {
        for (int v = 1; v <= 4; ++v) {
            for (const int m : {p, 2 * p, 4 * p}) {
                EXPECT_LE(smallest_capacity(lowered(ScheduleKind::InterleavedZb, {p, v, m})), 4);
            }
        }
    }
}

TEST(FindDeadlock, UpdatesThatWaitForNormsBehindUpdatesWaitForEachOther) {
    const DeadlockReport report =
        find_deadlock(schedule_of({"0F0 0B0 0NORM 0OPT 2F0 2B0 2NORM 2OPT",
                                   "1F0 1B0 1NORM 1OPT 3F0 3B0 3NORM 3OPT"}),
                      1);
    EXPECT_FALSE(report.deadlock_free);
    ASSERT_EQ(report.waiting.size(), 2U);
    EXPECT_EQ(report.waiting[0].action, "0OPT");
    EXPECT_THAT(report.waiting[0].why,
                HasSubstr("waits for 3NORM on rank 1 (cell 6), which comes after 1OPT"));
    EXPECT_TRUE(find_deadlock(schedule_of({"0F0 0B0 2F0 2B0 0NORM 2NORM 0OPT 2OPT",
                                           "1F0 1B0 3F0 3B0 1NORM 3NORM 1OPT 3OPT"}),
                              1)
                    .deadlock_free);
}

TEST(FindDeadlock, WhatRunsAtACapacityRunsAtALargerOne) {
    for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (int ranks = 1; ranks <= 6; ++ranks) {
            for (int m = 1; m <= 12; ++m) {
                const Schedule schedule =
                    lowered(kind, {.ranks = ranks, .micro_batches = m}, Recompute::Always);
                bool ran = false;
                for (int capacity = 0; capacity <= m; ++capacity) {
                    const bool runs = find_deadlock(schedule, capacity).deadlock_free;
                    EXPECT_TRUE(runs || !ran)
                        << "K=" << ranks << " M=" << m << " capacity " << capacity;
                    ran = runs;
                }
                EXPECT_TRUE(ran);
            }
        }
    }
}

/// Which is why ranks in processes of their own begin them: with NCCL a message takes both ends,
/// and nothing lies in between.
TEST(FindDeadlock, ReceivesThatAreBegunFirstNeedNoRoom) {
    for (const auto& [kind, shape] :
         testing::every_schedule({1, 2, 3, 4}, {1, 2, 3}, {1, 2, 4, 8})) {
        const Schedule schedule = lowered(kind, shape);
        EXPECT_GE(smallest_capacity(schedule), 0);
        EXPECT_TRUE(find_deadlock_with_preposted_receives(schedule).deadlock_free)
            << testing::to_string({kind, shape});
    }
}

TEST(FindDeadlock, ReceivesThatAreBegunFirstDoNotHelpAWrongOrder) {
    const Schedule schedule =
        schedule_of({"0RECV_B0 0F0 0SEND_F0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"});
    EXPECT_EQ(find_deadlock_with_preposted_receives(schedule).waiting,
              find_deadlock(schedule, 5).waiting);
    const DeadlockReport unreceived =
        find_deadlock_with_preposted_receives(schedule_of({"0F0 0SEND_F0 0B0", "1F0 1B0"}));
    ASSERT_EQ(unreceived.waiting.size(), 1U);
    EXPECT_EQ(unreceived.waiting[0].why, "waits for room, but no rank receives this message");
}

TEST(FindDeadlock, NamesTheCycleOfWaitingActions) {
    const Schedule schedule =
        schedule_of({"0RECV_B0 0F0 0SEND_F0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"});
    const DeadlockReport report = find_deadlock(schedule, 5);
    EXPECT_FALSE(report.deadlock_free);
    EXPECT_THAT(
        report.waiting,
        ElementsAre(
            Violation{0,
                      0,
                      "0RECV_B0",
                      "waits for 1SEND_B0 on rank 1 (cell 3), which comes after 1RECV_F0"},
            Violation{1,
                      0,
                      "1RECV_F0",
                      "waits for 0SEND_F0 on rank 0 (cell 2), which comes after 0RECV_B0"}));
}

TEST(FindDeadlock, NamesTheSendsThatWaitForRoom) {
    const Schedule schedule = lowered(ScheduleKind::OneFOneB, {.ranks = 2, .micro_batches = 2});
    const DeadlockReport report = find_deadlock(schedule, 0);
    ASSERT_EQ(report.waiting.size(), 2U);
    EXPECT_EQ(report.waiting[0].action, "0SEND_F1");
    EXPECT_THAT(report.waiting[0].why, HasSubstr("waits for 1RECV_F1 on rank 1"));
    EXPECT_EQ(report.waiting[1].action, "1SEND_B0");
    EXPECT_THAT(report.waiting[1].why, HasSubstr("waits for 0RECV_B0 on rank 0"));
}

TEST(FindDeadlock, LeavesOutRanksThatOnlyWaitForTheCycle) {
    // Ranks 1 and 2 wait on each other; rank 0 waits for them, but is not to blame.
    const Schedule schedule = schedule_of({"0F0 0SEND_F0 0RECV_B0 0B0",
                                           "1RECV_F0 1RECV_B0 1F0 1SEND_F0 1B0 1SEND_B0",
                                           "2RECV_F0 2F0 2B0 2SEND_B0"});
    const DeadlockReport report = find_deadlock(schedule, 3);
    ASSERT_EQ(report.waiting.size(), 2U);
    EXPECT_EQ(report.waiting[0].rank, 1);
    EXPECT_EQ(report.waiting[1].rank, 2);
}

/// It wrote behind the end of an array: the exhaustive oracle found it in 100,000 damaged
/// schedules.
TEST(FindDeadlock, PassesReductionsAndUpdatesOfStagesThatDoNotExist) {
    for (const int stage : {-1, 4, 1'000'000}) {
        Schedule schedule = add_optimizer(
            add_reduction(lowered(ScheduleKind::Chimera, {.ranks = 2, .micro_batches = 2})));
        schedule.ranks[0].push_back({.op = Op::ReduceGradient, .stage = stage});
        schedule.ranks[0].push_back({.op = Op::Optimizer, .stage = stage});
        EXPECT_TRUE(find_deadlock(schedule, 1).deadlock_free) << "stage " << stage;
    }
}

TEST(FindDeadlock, SaysSoWhereNobodySendsOrReceives) {
    const DeadlockReport unsent = find_deadlock(schedule_of({"0F0 0RECV_B0 0B0", "1F0 1B0"}), 1);
    ASSERT_EQ(unsent.waiting.size(), 1U);
    EXPECT_EQ(unsent.waiting[0].why, "waits for a message that no rank sends");
    const DeadlockReport unreceived =
        find_deadlock(schedule_of({"0F0 0SEND_F0 0B0", "1F0 1B0"}), 0);
    ASSERT_EQ(unreceived.waiting.size(), 1U);
    EXPECT_EQ(unreceived.waiting[0].why, "waits for room, but no rank receives this message");
    const DeadlockReport outside = find_deadlock(schedule_of({"0RECV_F0 0F0 0B0"}), 1);
    EXPECT_EQ(outside.waiting.size(), 1U);
}

TEST(SmallestCapacity, IsMinusOneWhereNoCapacityHelps) {
    EXPECT_EQ(
        smallest_capacity(schedule_of({"0RECV_B0 0F0 0SEND_F0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"})),
        -1);
}

TEST(RequireDeadlockFree, NamesTheSmallestCapacityThatWorks) {
    const Schedule schedule = lowered(ScheduleKind::OneFOneB, {.ranks = 3, .micro_batches = 4});
    EXPECT_NO_THROW(require_deadlock_free(schedule, std::nullopt, "x"));
    EXPECT_NO_THROW(require_deadlock_free(schedule, 1, "x"));
    const Error error = testing::error_of([&] { require_deadlock_free(schedule, 0, "x"); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_THAT(error.text(), HasSubstr("deadlock with channel capacity 0"));
    EXPECT_THAT(error.text(), HasSubstr("waits for"));
    EXPECT_THAT(error.hint(), HasSubstr("works is 1"));
}

TEST(FindDeadlock, SeesUpdatesThatWaitForEachOthersGradients) {
    Schedule schedule = schedule_of({"0F0 3F1 3B1 0B0 0REDUCE_GRAD 0OPT 3REDUCE_GRAD 3OPT",
                                     "2F1 1F0 1B0 1REDUCE_GRAD 1OPT 2B1 2REDUCE_GRAD 2OPT"});
    schedule.weights_of_stage = {0, 1, 0, 1};
    ASSERT_TRUE(validate(schedule).empty());
    schedule = add_communication(schedule, RecomputeTiming::Eager);
    const auto waiting = find_deadlock(schedule, 1).waiting;
    ASSERT_EQ(waiting.size(), 2U);
    EXPECT_EQ(waiting[0].action, "0OPT");
    EXPECT_EQ(waiting[1].action, "1OPT");
    EXPECT_THAT(waiting[1].why, HasSubstr("waits for 3REDUCE_GRAD on rank 0"));
    EXPECT_EQ(smallest_capacity(schedule), -1);
}

TEST(FindDeadlock, AllowsUpdatesAsTheyAreAppended) {
    const Schedule schedule = add_optimizer(add_reduction(
        add_communication(generate(ScheduleKind::Chimera, {.ranks = 4, .micro_batches = 4}),
                          RecomputeTiming::Eager)));
    EXPECT_TRUE(find_deadlock(schedule, 1).deadlock_free);
}

}  // namespace deadlock_test
}  // namespace pipetwin
