// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/lanes.h"

#include <random>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/scenario_plans.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace lanes_test {

TEST(Lanes, AMessageWithoutPartsOrShareTakesNoTimeBesideLongerWork) {
    EXPECT_EQ(beside(Duration(100), Duration(60), {}), Duration(100));
    EXPECT_EQ(beside(Duration(60), Duration(100), {}), Duration(100));
}

/// Four parts: the first of the shorter one has nothing beside it.
TEST(Lanes, OnePartIsNotHidden) {
    const MessageLane lane{.share = 0, .chunks = 4};
    EXPECT_EQ(beside(Duration(100), Duration(60), lane), Duration(100 + 60 / 4));
    EXPECT_EQ(beside(Duration(60), Duration(100), lane), Duration(100 + 60 / 4));
}

/// A tenth of the multiprocessors is taken while both go on.
TEST(Lanes, AMessageSlowsTheWorkBesideIt) {
    const MessageLane lane{.share = 0.1, .chunks = 0};
    EXPECT_EQ(beside(Duration(100), Duration(60), lane), Duration(100 + 6));
    EXPECT_EQ(beside(Duration(60), Duration(1000), lane), Duration(1000));
}

TEST(Lanes, OneChunkIsOneAfterTheOther) {
    EXPECT_EQ(beside(Duration(100), Duration(60), {.share = 0, .chunks = 1}), Duration(160));
    EXPECT_EQ(beside(Duration(60), Duration(100), {.share = 0.5, .chunks = 1}), Duration(160));
}

TEST(Lanes, NothingBesideNothing) {
    for (const int chunks : {0, 1, 4}) {
        const MessageLane lane{.share = 0.2, .chunks = chunks};
        EXPECT_EQ(beside({}, {}, lane), Duration{});
        EXPECT_EQ(beside(Duration(70), {}, lane), Duration(70));
        EXPECT_EQ(beside({}, Duration(70), lane), Duration(70));
    }
}

/// Whatever the lane: no shorter than either, no longer than both one after the other, longer where
/// either is longer or more is taken, and shorter with more parts.
TEST(Lanes, StayBetweenTheLongerAndTheSum) {
    std::mt19937_64 random(tests::seed());
    const auto below = [&random](int end) { return testing::below(random, end); };
    for (int round = 0; round < tests::soaked(5000); ++round) {
        const Duration work(below(100'000));
        const Duration message(below(100'000));
        const MessageLane lane{.share = below(1000) / 1000.0, .chunks = below(9)};
        const Duration both = beside(work, message, lane);
        EXPECT_GE(both, std::max(work, message));
        EXPECT_LE(both, work + message);
        EXPECT_GE(beside(work + Duration(below(1000)), message, lane), both);
        EXPECT_GE(beside(work, message + Duration(below(1000)), lane), both);
        MessageLane other = lane;
        other.share += 0.1;
        EXPECT_GE(beside(work, message, other), both);
        if (lane.chunks > 0) {
            other = lane;
            ++other.chunks;
            EXPECT_LE(beside(work, message, other), both);
        }
    }
}

TEST(Lanes, StaysWithinTheLongestStep) {
    EXPECT_THROW(beside(10 * longest_step, 10 * longest_step, {.share = 0.5}), Error);
}

}  // namespace lanes_test
}  // namespace pipetwin
