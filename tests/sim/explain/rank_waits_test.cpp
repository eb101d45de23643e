// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/rank_waits.h"

#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "sim/explain/waits.h"
#include "sim/simulate/simulate.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::sim {
namespace rank_waits_test {

using testing::milliseconds;
using testing::plain;
using testing::random_costs;

/// GPipe with equal stages: rank r waits r forwards before its first action, r backwards after its
/// last, and the rest of (K - 1)(F + B) in between.
TEST(RankWaits, OfGPipeAreThoseOfTheClosedForm) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
        const Plan plan = make_plan(plain(ScheduleKind::GPipe, ranks, 4));
        const std::vector<RankWaits> waits = rank_waits(plan, simulate(plan));
        ASSERT_EQ(waits.size(), static_cast<std::size_t>(ranks));
        for (int rank = 0; rank < ranks; ++rank) {
            const RankWaits& of = waits[static_cast<std::size_t>(rank)];
            EXPECT_EQ(of.rank, rank);
            EXPECT_EQ(of.step, (4 + ranks - 1) * milliseconds(3));
            EXPECT_EQ(of.wait, (ranks - 1) * milliseconds(3));
            EXPECT_EQ(of.before_first, rank * milliseconds(1));
            EXPECT_EQ(of.after_last, rank * milliseconds(2));
        }
    }
}

TEST(RankWaits, HaveReasonsThatSumToThem) {
    std::mt19937 random(5);
    for (const ScheduleKind schedule :
         {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1}) {
        for (int ranks = 1; ranks <= 4; ++ranks) {
            PlainCosts costs = random_costs(schedule, ranks, 5, random);
            if (ranks % 2 == 0) {
                costs.channel_capacity = 1;
            }
            const Plan plan = make_plan(costs);
            const Timeline timeline = simulate(plan);
            Duration all{};
            for (const RankWaits& of : rank_waits(plan, timeline)) {
                Duration sum{};
                for (const WaitedFor& reason : of.reasons) {
                    EXPECT_GT(reason.time, Duration{});
                    sum += reason.time;
                }
                EXPECT_EQ(sum, of.wait);
                EXPECT_LE(of.before_first + of.after_last, of.wait);
                all += of.wait;
            }
            Duration expected{};
            for (const Wait& wait : waits_of(timeline)) {
                expected += wait.end - wait.begin;
            }
            EXPECT_EQ(all, expected);
        }
    }
}

// rank 0  0..aa
// rank 1  .0aa..
TEST(RankWaits, AreSaidInASentence) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 2, 1));
    const std::vector<RankWaits> waits = rank_waits(plan, simulate(plan));
    EXPECT_EQ(rank_wait_sentence(waits[0]),
              "Rank 0 waits 3.00 ms of 6.00 ms (50.0 %): 2.00 ms for backwards of rank 1, 1.00 ms "
              "for forwards of rank 1.");
    EXPECT_EQ(rank_wait_sentence(waits[1]),
              "Rank 1 waits 3.00 ms of 6.00 ms (50.0 %): 2.00 ms for backwards of rank 0, 1.00 ms "
              "for forwards of rank 0. It waits 1.00 ms before its first action and 2.00 ms after "
              "its last action.");
    EXPECT_EQ(rank_wait_sentence(waits[0], 1), rank_wait_sentence(waits[0]))
        << "a single smaller cause is named";
}

/// Seven ranks whose forwards and backwards take the same time are no "smaller causes": their time
/// together was larger than any that was named.
TEST(RankWaits, AreSummedByKindWhereTheCausesAreManyAndAlike) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 8, 1));
    EXPECT_EQ(rank_wait_sentence(rank_waits(plan, simulate(plan)).front()),
              "Rank 0 waits 21.0 ms of 24.0 ms (87.5 %): 14.0 ms for backwards of 7 ranks, 7.00 ms "
              "for forwards of 7 ranks.");
}

TEST(RankWaits, OfOneRankAreNone) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 1, 3));
    EXPECT_EQ(rank_wait_sentence(rank_waits(plan, simulate(plan)).front()),
              "Rank 0 does not wait.");
}

/// Messages of 5 ms and 1 ms of latency: rank 1 begins 6 ms after the end of 0F0.
TEST(RankWaits, NameTheLinkOfAMessage) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 1);
    costs.link = {.latency = milliseconds(1), .bytes_per_second = 1e9};
    costs.boundary = Bytes{5'000'000};
    const Plan plan = make_plan(costs);
    const std::vector<RankWaits> waits = rank_waits(plan, simulate(plan));
    const auto link = [&](std::size_t rank, int from) {
        for (const WaitedFor& reason : waits[rank].reasons) {
            if (reason.reason == Reason::Transfer && reason.rank == from) {
                EXPECT_EQ(words_of(reason),
                          from == 0 ? "the link from rank 0 to rank 1"
                                    : "the link from rank 1 to rank 0");
                return reason.time;
            }
        }
        return Duration{};
    };
    EXPECT_EQ(link(1, 0), milliseconds(6));
    EXPECT_EQ(link(0, 0), milliseconds(6));  // it waits for both ways
    EXPECT_EQ(link(0, 1), milliseconds(6));
}

}  // namespace rank_waits_test
}  // namespace pipetwin::sim
