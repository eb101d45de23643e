// SPDX-License-Identifier: Apache-2.0
#include "core/costs/collectives/collective_table.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace pipetwin {
namespace collective_table_test {

constexpr Collective gather = Collective::AllGather;

/// Two and eight members, three sizes.
CollectiveTable table() {
    CollectiveTable table{.sizes = {Bytes{1000}, Bytes{4000}, Bytes{16'000}}};
    auto& curves = table.times[static_cast<std::size_t>(gather)];
    curves[2] = {Duration(100), Duration(200), Duration(800)};
    curves[8] = {Duration(160), Duration(300), Duration(1200)};
    return table;
}

TEST(CollectiveTable, HasItsPoints) {
    const CollectiveTable known = table();
    EXPECT_TRUE(known.has(gather));
    EXPECT_FALSE(known.has(Collective::AllReduce));
    for (const auto& [members, curve] : known.times[static_cast<std::size_t>(gather)]) {
        for (std::size_t size = 0; size < known.sizes.size(); ++size) {
            const auto bytes = static_cast<double>(known.sizes[size].count);
            EXPECT_EQ(known.nanoseconds(gather, members, bytes),
                      static_cast<double>(curve[size].count()));
        }
    }
}

/// Half way in the logarithm of 1000 and 4000 is 2000; time is a power of the size there.
TEST(CollectiveTable, BetweenSizesTimeIsAPowerOfTheSize) {
    EXPECT_NEAR(table().nanoseconds(gather, 2, 2000), std::sqrt(100.0 * 200), 1e-9);
    EXPECT_NEAR(table().nanoseconds(gather, 2, 8000), 400, 1e-9);
}

TEST(CollectiveTable, GoesOnBeyondItsEnds) {
    // 200 / 100 for four times the bytes: half of that for a sixteenth.
    EXPECT_NEAR(table().nanoseconds(gather, 2, 250), 50, 1e-9);
    // 600 ns for 12,000 bytes at the end.
    EXPECT_NEAR(table().nanoseconds(gather, 2, 36'000), 1800, 1e-9);
    EXPECT_EQ(table().nanoseconds(gather, 2, 0), 0);
}

/// (n - 1) / n is 1/2, 3/4 and 7/8 for 2, 4 and 8 members: 4 are two thirds of the way.
TEST(CollectiveTable, BetweenMembersTimeIsLinearInTheShareThatLeavesADevice) {
    EXPECT_NEAR(table().nanoseconds(gather, 4, 16'000), 800 + 400 * 2.0 / 3, 1e-9);
    EXPECT_EQ(table().nanoseconds(gather, 1, 16'000), 0);
}

TEST(CollectiveTable, MoreMembersThanMeasuredAddStepsAsTheLastOnesDid) {
    // 15/16 of the bytes in place of 7/8, and 10 ns for each member beyond eight.
    EXPECT_NEAR(
        table().nanoseconds(gather, 16, 16'000), 1200 * (15.0 / 16) / (7.0 / 8) + 8 * 10, 1e-9);
    CollectiveTable of_eight = table();
    of_eight.times[static_cast<std::size_t>(gather)].erase(2);
    EXPECT_NEAR(of_eight.nanoseconds(gather, 2, 16'000), 1200 * (1.0 / 2) / (7.0 / 8), 1e-9);
    EXPECT_NEAR(of_eight.nanoseconds(gather, 16, 16'000), 1200 * (15.0 / 16) / (7.0 / 8), 1e-9);
}

TEST(CollectiveTable, DeduplicatedAllToAllsAreAllToAlls) {
    CollectiveTable known = table();
    known.times[static_cast<std::size_t>(Collective::AllToAll)] =
        known.times[static_cast<std::size_t>(gather)];
    EXPECT_TRUE(known.has(Collective::AllToAllDeduplicated));
    EXPECT_EQ(known.nanoseconds(Collective::AllToAllDeduplicated, 8, 4000), 300);
}

/// Drawn tables whose times grow with size and members: so do all times between and beyond.
TEST(CollectiveTable, GrowsWithSizeAndMembersWhereItsPointsDo) {
    std::mt19937 random(59);
    for (int drawn = 0; drawn < 200; ++drawn) {
        CollectiveTable known;
        std::int64_t size = 1 + static_cast<std::int64_t>(random() % 5000);
        for (int i = 0; i < 5; ++i, size += 1 + static_cast<std::int64_t>(random()) % (3 * size)) {
            known.sizes.emplace_back(size);
        }
        std::vector<Duration> curve(known.sizes.size());
        for (const int members : {2, 4, 8}) {
            Duration least{1};
            for (Duration& time : curve) {
                least = time = std::max(least, time) + Duration(random() % 1000);
            }
            known.times[static_cast<std::size_t>(gather)][members] = curve;
        }
        for (int i = 0; i < 20; ++i) {
            const double bytes = 1 + static_cast<double>(random() % 100'000);
            const double more = bytes + static_cast<double>(random() % 100'000);
            const int members = 2 + static_cast<int>(random() % 20);
            const double time = known.nanoseconds(gather, members, bytes);
            EXPECT_LE(time, known.nanoseconds(gather, members, more) * (1 + 1e-12));
            // Beyond the ends of the curves each goes on as it ended.
            const double measured = std::clamp(bytes,
                                               static_cast<double>(known.sizes.front().count),
                                               static_cast<double>(known.sizes.back().count));
            EXPECT_LE(known.nanoseconds(gather, members, measured),
                      known.nanoseconds(gather, members + 1, measured) * (1 + 1e-12));
        }
    }
}

}  // namespace collective_table_test
}  // namespace pipetwin
