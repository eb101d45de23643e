#include "core/costs/all_reduce.h"

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace all_reduce_test {

using testing::error_of;
using ::testing::HasSubstr;

constexpr Bytes bytes{96'000};

/// 1 ns per byte and 100 ns; 4 ns per byte and 1000 ns.
const LinkCost inside{.latency = Duration(100), .bytes_per_second = 1e9};
const LinkCost between{.latency = Duration(1000), .bytes_per_second = 0.25e9};

ReplicaGroup group(int replicas, int per_node) {
    return {.replicas = replicas, .per_node = per_node, .inside = inside, .between = between};
}

TEST(AllReduce, OneReplicaHasNothingToSum) {
    for (const auto kind : {AllReduceKind::Ring, AllReduceKind::Tree, AllReduceKind::TwoLevel}) {
        EXPECT_EQ(all_reduce_time(kind, group(1, 8), bytes), Duration{});
        EXPECT_EQ(all_reduce_time(kind, group(4, 8), Bytes{}), Duration{});
    }
}

TEST(AllReduce, ARingTakesTwoRoundsOfAllButOne) {
    EXPECT_EQ(all_reduce_time(AllReduceKind::Ring, group(4, 8), bytes),
              2 * 3 * Duration(100 + 24'000));
    EXPECT_EQ(all_reduce_time(AllReduceKind::Ring, group(8, 8), bytes),
              2 * 7 * Duration(100 + 12'000));
}

/// For large messages a ring moves 2 (D - 1) / D of the bytes, whatever D.
TEST(AllReduce, ARingIsBoundByTheRateForLargeMessages) {
    const Bytes large{std::int64_t{1} << 36};
    const auto time = all_reduce_time(AllReduceKind::Ring, group(16, 16), large);
    EXPECT_NEAR(to_seconds(time), 2.0 * 15 / 16 * 68.719476736, 1e-5);
}

TEST(AllReduce, ARingOverNodesIsAsFastAsItsSlowestLink) {
    EXPECT_EQ(all_reduce_time(AllReduceKind::Ring, group(4, 2), bytes),
              2 * 3 * Duration(1000 + 4 * 24'000));
    EXPECT_EQ(all_reduce_time(AllReduceKind::Ring, group(4, 1), bytes),
              2 * 3 * Duration(1000 + 4 * 24'000));
}

TEST(AllReduce, ATreeTakesTheLogarithmTwice) {
    const Duration step = Duration(100 + 96'000);
    EXPECT_EQ(all_reduce_time(AllReduceKind::Tree, group(2, 8), bytes), 2 * 1 * step);
    EXPECT_EQ(all_reduce_time(AllReduceKind::Tree, group(8, 8), bytes), 2 * 3 * step);
    EXPECT_EQ(all_reduce_time(AllReduceKind::Tree, group(5, 8), bytes), 2 * 3 * step);
    EXPECT_EQ(all_reduce_time(AllReduceKind::Tree, group(8, 4), bytes),
              2 * (2 * step + Duration(1000 + 4 * 96'000)));
}

TEST(AllReduce, ATreeBeatsARingForSmallMessagesAndLosesForLargeOnes) {
    const auto time = [](AllReduceKind kind, std::int64_t count) {
        return all_reduce_time(kind, group(64, 64), Bytes{count});
    };
    EXPECT_LT(time(AllReduceKind::Tree, 64), time(AllReduceKind::Ring, 64));
    EXPECT_GT(time(AllReduceKind::Tree, 1 << 24), time(AllReduceKind::Ring, 1 << 24));
}

TEST(AllReduce, TwoLevelsSendAShareOfTheBytesBetweenNodes) {
    // 4 nodes of 2: shares of a half inside, then eighths between.
    EXPECT_EQ(all_reduce_time(AllReduceKind::TwoLevel, group(8, 2), bytes),
              2 * 1 * Duration(100 + 48'000) + 2 * 3 * Duration(1000 + 4 * 12'000));
}

TEST(AllReduce, TwoLevelsAreARingWhereOneOfThemIsMissing) {
    for (const int per_node : {1, 8}) {
        EXPECT_EQ(all_reduce_time(AllReduceKind::TwoLevel, group(8, per_node), bytes),
                  all_reduce_time(AllReduceKind::Ring, group(8, per_node), bytes));
    }
}

TEST(AllReduce, HalfBandwidthCountsInEveryMessage) {
    ReplicaGroup with = group(4, 8);
    with.inside.half_bandwidth = Bytes{1000};
    EXPECT_EQ(all_reduce_time(AllReduceKind::Ring, with, bytes), 2 * 3 * Duration(100 + 25'000));
}

TEST(AllReduce, LinksWithoutARateAreInstant) {
    ReplicaGroup instant = group(4, 8);
    instant.inside = {};
    EXPECT_EQ(all_reduce_time(AllReduceKind::Ring, instant, bytes), Duration{});
}

TEST(AllReduce, RefusesMoreThanAStepMayLast) {
    ReplicaGroup slow = group(4096, 1);
    slow.between.latency = Duration{std::int64_t{1} << 53};
    const Error error =
        error_of([&] { all_reduce_time(AllReduceKind::Ring, slow, Bytes{1 << 20}); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.place(), HasSubstr("all-reduce"));
}

}  // namespace all_reduce_test
}  // namespace pipetwin
