// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/receives.h"

#include <gtest/gtest.h>

#include "core/schedule/lower.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/validate.h"
#include "tests/support/builders.h"

namespace pipetwin {
namespace receives_test {

using testing::row_text;

std::string waiting_row(std::string_view row) {
    return row_text(wait_where_used(parse_schedule_csv(row, "x.csv")), 0);
}

TEST(WaitWhereUsed, AReceiveGoesToTheActionThatUsesItsTensor) {
    EXPECT_EQ(waiting_row("1RECV_F0,1RECV_F1,1F0,1W9,1F1,1RECV_B0,1F2,1B0\n"),
              "1RECV_F0 1F0 1W9 1RECV_F1 1F1 1F2 1RECV_B0 1B0");
    EXPECT_EQ(waiting_row("1RECV_B0,1F1,1I0,1W0\n"), "1F1 1RECV_B0 1I0 1W0");
}

/// Messages of one edge are taken in the order in which they were sent.
TEST(WaitWhereUsed, MessagesOfAnEdgeKeepTheirOrder) {
    EXPECT_EQ(waiting_row("1RECV_F0,1RECV_F1,1F1,1F0\n"), "1RECV_F0 1RECV_F1 1F1 1F0");
}

TEST(WaitWhereUsed, ARecomputeThatStandsBehindAReceiveWaitsForIt) {
    EXPECT_EQ(waiting_row("1F0,1RECV_B0,1F1,1R0,1B0\n"), "1F0 1F1 1RECV_B0 1R0 1B0");
    EXPECT_EQ(waiting_row("1F0,1R0,1RECV_B0,1F1,1B0\n"), "1F0 1R0 1F1 1RECV_B0 1B0");
}

TEST(WaitWhereUsed, BothOfAPairWaitBeforeTheFirst) {
    EXPECT_EQ(waiting_row("1RECV_B0,1F1,(1F2;1B0)OVERLAP_F_B\n"), "1F1 1RECV_B0 1F2 1B0");
}

TEST(WaitWhereUsed, AReceiveThatNoActionNeedsStaysWhereItIs) {
    EXPECT_EQ(waiting_row("1F0,1RECV_F5,1F1\n"), "1F0 1RECV_F5 1F1");
}

/// What this program lowers receives where it needs a tensor, whatever the schedule.
TEST(WaitWhereUsed, LoweredSchedulesStayAsTheyAre) {
    for (const auto& shaped : testing::every_schedule({1, 2, 4}, {1, 2}, {1, 4, 8})) {
        for (const RecomputeTiming timing : {RecomputeTiming::Eager, RecomputeTiming::Lazy}) {
            const Schedule schedule = testing::lowered(
                shaped.kind,
                shaped.shape,
                is_forward_only(generate(shaped.kind, shaped.shape)) ? Recompute::None
                                                                     : Recompute::Always,
                timing);
            EXPECT_EQ(wait_where_used(schedule), schedule) << to_string(shaped);
        }
    }
}

}  // namespace receives_test
}  // namespace pipetwin
