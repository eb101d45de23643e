// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/training_bill.h"

#include <cmath>

#include <gtest/gtest.h>

namespace pipetwin::sim {
namespace training_bill_test {

const BillQuestion asked{.step = std::chrono::seconds(10),
                         .tokens_per_second = 1e6,
                         .devices = 64,
                         .tokens = 86.4e9,
                         .price = 2.0};

TEST(TrainingBill, IsTheTimeOfTheTokensOnAllDevices) {
    const TrainingBill bill = training_bill(asked);
    EXPECT_DOUBLE_EQ(*bill.days, 1);  // 86,400 s
    EXPECT_DOUBLE_EQ(*bill.device_hours, 24 * 64);
    EXPECT_DOUBLE_EQ(*bill.cost, 2 * 24 * 64);
    BillQuestion open = asked;
    open.tokens.reset();
    EXPECT_FALSE(training_bill(open).days || training_bill(open).cost);
}

/// To the first order (Young 1974) a run loses sqrt(2 c / M) of its time to checkpoints of c and
/// the work behind them, and restart / M to restarts.
TEST(TrainingBill, WithFailuresIsNearYoungsEstimate) {
    const FailureAssumptions failures{.mtbf_hours = 50'000,
                                      .checkpoint = std::chrono::seconds(60),
                                      .restart = std::chrono::seconds(1200)};
    const BillWithFailures bill = bill_with_failures(asked, failures);
    const double between = 50'000.0 * 3600 / 64;
    const double lost = std::sqrt(2 * 60 / between) + 1200 / between;
    EXPECT_NEAR(1 - bill.share, lost, 0.05 * lost);
    EXPECT_NEAR(*bill.days, 1 / bill.share, 1e-12);
    EXPECT_NEAR(*bill.more_cost, *bill.cost - 2 * 24 * 64, 1e-9);
    EXPECT_NEAR(*bill.failures, *bill.device_hours / 50'000, 1e-12);
}

TEST(TrainingBill, FrontAndDeadlineFollowFromTimeAndCost) {
    const std::vector<TimeAndCost> choices{{40, 10}, {20, 12}, {30, 15}, {10, 30}, {20, 12}};
    EXPECT_EQ(time_cost_front(choices), (std::vector<std::size_t>{3, 1, 0}));
    EXPECT_EQ(cheapest_in_time(choices, 50), 0U);
    EXPECT_EQ(cheapest_in_time(choices, 35), 1U);
    EXPECT_EQ(cheapest_in_time(choices, 10), 3U);
    EXPECT_EQ(cheapest_in_time(choices, 9), std::nullopt);
}

}  // namespace training_bill_test
}  // namespace pipetwin::sim
