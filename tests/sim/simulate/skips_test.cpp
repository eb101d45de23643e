// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/edge.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"
#include "core/timeline/footprint.h"
#include "sim/simulate/simulate.h"
#include "tests/support/plain_plan.h"

/// Outputs that are read by a stage which is not the next one.
namespace pipetwin::sim {
namespace skips_test {

using ::testing::ElementsAre;

/// Every stage of the first half sends to its mirror image, as the levels of a U-Net do.
std::vector<StagePair> mirrored(int stages) {
    std::vector<StagePair> skips;
    for (int stage = 0; stages - 1 - 2 * stage > 1; ++stage) {
        skips.push_back({.from = stage, .to = stages - 1 - stage});
    }
    return skips;
}

PlainCosts with_mirrored_skips(ScheduleKind kind, int stages, int micro_batches) {
    PlainCosts costs = testing::plain(kind, stages, micro_batches);
    costs.skips = mirrored(stages);
    return costs;
}

std::int64_t steps_in_units(const Plan& plan) {
    return step_time(simulate(plan)) / testing::milliseconds(1);
}

struct Lengths {
    ScheduleKind kind;
    int stages;
    std::int64_t without_skips;
    std::int64_t rendezvous;  ///< -1: deadlock
    std::int64_t one;         ///< with channels of one message, and one place for each boundary
};

class MirroredSkips : public ::testing::TestWithParam<Lengths> {};

/// Step lengths with F 1 and B 2, 16 micro-batches and free links, worked out by a program of its
/// own that walks the rows: gpipe and 1f1b take (M + K - 1) * 3 where nothing waits for room.
TEST_P(MirroredSkips, TakeAsLongAsWasWorkedOut) {
    const Lengths& expected = GetParam();
    constexpr int micro_batches = 16;
    PlainCosts costs = with_mirrored_skips(expected.kind, expected.stages, micro_batches);
    EXPECT_EQ(steps_in_units(make_plan(costs)), expected.without_skips);
    EXPECT_EQ(expected.without_skips, (micro_batches + expected.stages - 1) * 3);
    costs.channel_capacity = 1;
    EXPECT_EQ(steps_in_units(make_plan(costs)), expected.one);
    costs.channel_capacity = 0;
    if (expected.rendezvous < 0) {
        EXPECT_THROW(make_plan(costs), Error);
    } else {
        EXPECT_EQ(steps_in_units(make_plan(costs)), expected.rendezvous);
    }
}

INSTANTIATE_TEST_SUITE_P(UnitCosts,
                         MirroredSkips,
                         ::testing::Values(Lengths{ScheduleKind::GPipe, 4, 57, 147, 57},
                                           Lengths{ScheduleKind::GPipe, 8, 69, 339, 69},
                                           Lengths{ScheduleKind::OneFOneB, 4, 57, -1, 57},
                                           Lengths{ScheduleKind::OneFOneB, 8, 69, -1, 69}));

/// One place for each boundary between is enough for gpipe and 1f1b, whatever the number of stages.
TEST(Skips, WithAPlaceForEachBoundaryNeverDeadlockAndCostNoTime) {
    for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (int stages = 3; stages <= 8; ++stages) {
            for (const int micro_batches : {1, 4, 16}) {
                SCOPED_TRACE(::testing::Message() << to_string(kind) << " " << stages << " stages, "
                                                  << micro_batches << " micro-batches");
                PlainCosts costs = testing::plain(kind, stages, micro_batches);
                costs.channel_capacity = 1;
                const std::int64_t without = steps_in_units(make_plan(costs));
                costs.skips = mirrored(stages);
                EXPECT_EQ(steps_in_units(make_plan(costs)), without);
            }
        }
    }
}

/// The word of a skip message names the stage at its other end, boundaries' messages come first.
TEST(Skips, StandBehindTheMessagesOfNeighboursTheShortestFirst) {
    Schedule schedule =
        generate(ScheduleKind::GPipe, {.ranks = 4, .chunks = 1, .micro_batches = 1});
    schedule.skips = {{0, 2}, {0, 3}, {1, 3}};
    schedule = add_communication(std::move(schedule), RecomputeTiming::Eager);
    const auto words = [&schedule](std::size_t rank) {
        std::vector<std::string> row;
        for (const Action& action : schedule.ranks[rank]) {
            row.push_back(to_string(action));
        }
        return row;
    };
    EXPECT_THAT(words(0),
                ElementsAre("0F0",
                            "0SEND_F0",
                            "0SEND_F0>2",
                            "0SEND_F0>3",
                            "0RECV_B0",
                            "0RECV_B0<2",
                            "0RECV_B0<3",
                            "0B0"));
    EXPECT_THAT(words(3),
                ElementsAre("3RECV_F0",
                            "3RECV_F0<1",
                            "3RECV_F0<0",
                            "3F0",
                            "3B0",
                            "3SEND_B0",
                            "3SEND_B0>1",
                            "3SEND_B0>0"));
    EXPECT_TRUE(validate(schedule).empty());
}

/// A link of its own carries each pair's messages: those of a skip arrive after its own latency,
/// and neither engine makes them wait for others.
TEST(Skips, HaveALinkOfTheirOwn) {
    PlainCosts costs = testing::plain(ScheduleKind::GPipe, 3, 1);
    costs.skips = {{0, 2}};
    costs.link.latency = testing::milliseconds(10);
    const Plan plan = make_plan(costs);
    const Timeline timeline = simulate(plan);
    ASSERT_EQ(timeline.links.size(), 6U);
    ASSERT_EQ(timeline.links[4].size(), 1U);
    EXPECT_EQ(to_string(timeline.links[4].front().action), "0SEND_F0>2");
    EXPECT_EQ(to_string(timeline.links[5].front().action), "2SEND_B0>0");
    // F 1 and 10 for each of two boundaries, then back with B 2: the skip is there long before.
    EXPECT_EQ(step_time(timeline), testing::milliseconds(3 * 1 + 3 * 2 + 4 * 10));
}

/// Only where a message is read is it held: a rank that it leads past has nothing of it.
TEST(Skips, TakeNoMemoryOfTheRanksBetween) {
    PlainCosts costs = testing::plain(ScheduleKind::OneFOneB, 4, 8);
    costs.boundary = Bytes{100};
    costs.channel_capacity = 1;
    const std::vector<Bytes> without = peak_totals(make_plan(costs));
    costs.skips = {{0, 3}};
    const Plan plan = make_plan(costs);
    const std::vector<Bytes> with = peak_totals(plan);
    EXPECT_GT(with[0], without[0]);
    EXPECT_EQ(with[1], without[1]);
    EXPECT_EQ(with[2], without[2]);
    EXPECT_GT(with[3], without[3]);
    // Room for a boundary's message each way, and for one skip message a boundary between.
    EXPECT_EQ(resident_memory(plan, 3)[MemoryKind::Boundary], Bytes{100 + 3 * 100});
    EXPECT_EQ(resident_memory(plan, 1)[MemoryKind::Boundary], Bytes{200});
}

/// After its last action a rank holds what it held before the first one.
TEST(Skips, AreFreedAtTheEndOfAStep) {
    for (const ScheduleKind kind :
         {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1, ScheduleKind::ZbV}) {
        for (const Recompute recompute : {Recompute::None, Recompute::Always}) {
            PlainCosts costs = testing::plain(kind, 4, 8);
            costs.boundary = Bytes{100};
            if (kind == ScheduleKind::ZbV) {
                costs.shape.chunks = 2;
                costs.forward.assign(8, testing::milliseconds(1));
                costs.backward.assign(8, testing::milliseconds(2));
            }
            costs.recompute = recompute;
            costs.channel_capacity = 2;
            costs.skips = {{0, 2}, {1, 3}};
            const Plan plan = make_plan(costs);
            for (int rank = 0; rank < plan.rank_count(); ++rank) {
                const MemoryCurve curve =
                    footprint(plan, simulate(plan)).at(static_cast<std::size_t>(rank));
                EXPECT_EQ(curve.back().use, resident_memory(plan, rank)) << to_string(kind);
            }
        }
    }
}

}  // namespace skips_test
}  // namespace pipetwin::sim
