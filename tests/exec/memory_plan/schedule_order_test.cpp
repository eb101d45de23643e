// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan/schedule_order.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/schedule/lower.h"

namespace pipetwin::exec {
namespace schedule_order_test {

using ::testing::ElementsAre;

Schedule two_ranks(std::vector<Action> first, std::vector<Action> second) {
    Schedule schedule;
    schedule.micro_batches = 2;
    schedule.rank_of_stage = {0, 1};
    schedule.weights_of_stage = {0, 1};
    schedule.ranks = {std::move(first), std::move(second)};
    return schedule;
}

TEST(ScheduleOrder, ReadsThePictureColumnByColumn) {
    //  column   0   1   2      a message belongs to the column before which it is needed
    //  rank 0   F0  F1
    //  rank 1       F0  F1
    const Schedule schedule = two_ranks({{Op::Forward, 0, 0},
                                         {Op::SendForward, 0, 0},
                                         {Op::Forward, 0, 1},
                                         {Op::SendForward, 0, 1}},
                                        {{Op::RecvForward, 1, 0},
                                         {Op::Forward, 1, 0},
                                         {Op::RecvForward, 1, 1},
                                         {Op::Forward, 1, 1}});
    EXPECT_THAT(schedule_order(schedule, -1),
                ElementsAre(ElementsAre(0, 1, 2, 5), ElementsAre(3, 4, 6, 7)));
}

TEST(ScheduleOrder, AFullChannelPutsASendAfterTheReceiveThatMakesRoom) {
    // Rank 1 works on its own first; at capacity 1 the second send has to wait for it, unbounded it
    // does not.
    const Schedule schedule =
        two_ranks({{Op::SendForward, 0, 0}, {Op::SendForward, 0, 1}},
                  {{Op::Optimizer, 1, 0}, {Op::RecvForward, 1, 0}, {Op::RecvForward, 1, 1}});
    const auto unbounded = schedule_order(schedule, -1);
    EXPECT_LT(unbounded[0][1], unbounded[1][1]);
    const auto full = schedule_order(schedule, 1);
    EXPECT_GT(full[0][1], full[1][1]);
}

TEST(ScheduleOrder, ARendezvousIsOneEventOfTwoRanks) {
    const Schedule schedule = two_ranks({{Op::SendForward, 0, 0}, {Op::Forward, 0, 1}},
                                        {{Op::RecvForward, 1, 0}, {Op::Forward, 1, 0}});
    EXPECT_THAT(schedule_order(schedule, 0), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(ScheduleOrder, RefusesADeadlock) {
    const Schedule schedule = two_ranks({{Op::RecvBackward, 0, 0}}, {{Op::RecvForward, 1, 0}});
    EXPECT_THROW(schedule_order(schedule, -1), InternalError);
}

}  // namespace schedule_order_test
}  // namespace pipetwin::exec
