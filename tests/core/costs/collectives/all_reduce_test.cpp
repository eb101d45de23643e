// SPDX-License-Identifier: Apache-2.0
#include "core/costs/collectives/all_reduce.h"

#include <algorithm>
#include <optional>
#include <set>

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

DeviceGroup group(int replicas, int per_node) {
    return {.members = replicas, .per_node = per_node, .inside = inside, .between = between};
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

/// One share of D crosses a link inside a node, or, as g rings share the way, a g-th of it between
/// nodes: 96'000 / 8 = 12'000 bytes at 1 ns, or 6'000 at 4 ns.
TEST(AllReduce, RingsGoBetweenNodesWithAShareEach) {
    EXPECT_EQ(all_reduce_time(AllReduceKind::Rings, group(8, 2), bytes),
              2 * 7 * Duration(1000 + 4 * 6'000));
    // Links between nodes that are eight times as slow are no bound, as four rings use them.
    DeviceGroup near = group(16, 8);
    near.between = {.latency = Duration(100), .bytes_per_second = 0.25e9};
    EXPECT_EQ(all_reduce_time(AllReduceKind::Rings, near, bytes), 2 * 15 * Duration(100 + 6'000));
}

/// A large message takes 2 (D - 1) / D of its bytes, at the rate inside, or at eight times that of
/// one of the eight links between nodes.
TEST(AllReduce, RingsAreBoundByTheSlowerOfInsideAndAllLinksBetween) {
    const Bytes large{std::int64_t{1} << 36};
    const double seconds = 2.0 * 31 / 32 * 68.719476736;
    for (const double rate : {1e9, 0.25e9, 0.125e9, 0.0625e9}) {
        DeviceGroup nodes = group(32, 8);
        nodes.between.bytes_per_second = rate;
        EXPECT_NEAR(to_seconds(all_reduce_time(AllReduceKind::Rings, nodes, large)),
                    seconds * std::max(1.0, 1e9 / (8 * rate)),
                    1e-4)
            << rate;
    }
}

TEST(AllReduce, RingsAreOneRingWhereThereIsOneNodeOrOneReplicaToANode) {
    for (const int per_node : {1, 8}) {
        EXPECT_EQ(all_reduce_time(AllReduceKind::Rings, group(8, per_node), bytes),
                  all_reduce_time(AllReduceKind::Ring, group(8, per_node), bytes));
    }
}

TEST(AllReduce, TheFastestIsTheLeastOfAll) {
    std::set<AllReduceKind> won;
    for (const int replicas : {2, 3, 8, 64, 100}) {
        for (const int per_node : {1, 4, 8, 128}) {
            for (const std::int64_t count : {1, 1'000, 100'000, 100'000'000}) {
                const DeviceGroup of = group(replicas, per_node);
                std::optional<Duration> least;
                AllReduceKind best = AllReduceKind::Fastest;
                for (const auto kind : {AllReduceKind::Ring,
                                        AllReduceKind::Tree,
                                        AllReduceKind::TwoLevel,
                                        AllReduceKind::Rings}) {
                    const Duration time = all_reduce_time(kind, of, Bytes{count});
                    if (!least || time < *least) {
                        least = time;
                        best = kind;
                    }
                }
                won.insert(best);
                EXPECT_EQ(all_reduce_time(AllReduceKind::Fastest, of, Bytes{count}), *least)
                    << replicas << " replicas, " << per_node << " a node, " << count << " bytes";
            }
        }
    }
    EXPECT_GE(won.size(), 3U);  // else the minimum would not be tested
    EXPECT_EQ(all_reduce_time(AllReduceKind::Fastest, group(1, 8), bytes), Duration{});
}

TEST(AllReduce, HalfBandwidthCountsInEveryMessage) {
    DeviceGroup with = group(4, 8);
    with.inside.half_bandwidth = Bytes{1000};
    EXPECT_EQ(all_reduce_time(AllReduceKind::Ring, with, bytes), 2 * 3 * Duration(100 + 25'000));
}

TEST(AllReduce, LinksWithoutARateAreInstant) {
    DeviceGroup instant = group(4, 8);
    instant.inside = {};
    EXPECT_EQ(all_reduce_time(AllReduceKind::Ring, instant, bytes), Duration{});
}

/// 22 us, 2.5 us a device of a node, 10 us a further node.
DeviceGroup timed(int replicas, int per_node) {
    DeviceGroup with = group(replicas, per_node);
    with.latency = {
        .fixed = Duration(22'000), .per_device = Duration(2500), .per_node = Duration(10'000)};
    return with;
}

/// Each half of a sum has them once, in place of a latency of every link.
TEST(AllReduce, LatenciesOfAGroupTakeThePlaceOfThoseOfLinks) {
    EXPECT_EQ(all_reduce_time(AllReduceKind::Ring, timed(8, 8), bytes),
              2 * (7 * Duration(12'000) + Duration(22'000 + 8 * 2500)));
    // Eight links between nodes carry an eighth of a share each, 4 ns a byte: no longer than
    // inside.
    EXPECT_EQ(all_reduce_time(AllReduceKind::Rings, timed(16, 8), bytes),
              2 * (15 * Duration(6000) + Duration(22'000 + 8 * 2500 + 10'000)));
    EXPECT_EQ(
        all_reduce_time(AllReduceKind::TwoLevel, timed(16, 8), bytes),
        2 * (7 * Duration(12'000) + Duration(4 * 6000) + Duration(22'000 + 8 * 2500 + 10'000)));
    // A tree has as many levels as the logarithms of 8 devices and 4 nodes.
    EXPECT_EQ(all_reduce_time(AllReduceKind::Tree, timed(32, 8), bytes),
              2 * (3 * Duration(96'000) + 2 * Duration(4 * 96'000) +
                   Duration(22'000 + 4 * 2500 + 2 * 10'000)));
    DeviceGroup halved = timed(8, 8);
    halved.inside.half_bandwidth = Bytes{1000};
    EXPECT_EQ(all_reduce_time(AllReduceKind::Ring, halved, bytes),
              all_reduce_time(AllReduceKind::Ring, timed(8, 8), bytes));
}

TEST(AllReduce, EveryBucketHasTheLatenciesOfItsGroup) {
    const auto sums = [](const DeviceGroup& of, int buckets) {
        return all_reduce_time(AllReduceKind::Rings, of, bytes, buckets);
    };
    EXPECT_EQ(sums(timed(16, 8), 5) - sums(timed(16, 8), 1),
              4 * 2 * Duration(22'000 + 8 * 2500 + 10'000));
    EXPECT_EQ(sums(group(16, 8), 5), sums(group(16, 8), 1));
}

TEST(AllReduce, MoreBytesOrReplicasWithLatenciesAreNeverFaster) {
    for (const auto kind : {AllReduceKind::Ring,
                            AllReduceKind::Tree,
                            AllReduceKind::TwoLevel,
                            AllReduceKind::Rings,
                            AllReduceKind::Fastest}) {
        SCOPED_TRACE(to_string(kind));
        Duration of_fewer{};
        for (int replicas = 1; replicas <= 128; replicas *= 2) {
            const Duration time = all_reduce_time(kind, timed(replicas, 8), bytes);
            EXPECT_GE(time, of_fewer) << replicas;
            EXPECT_GE(all_reduce_time(kind, timed(replicas, 8), bytes * 2), time) << replicas;
            of_fewer = time;
        }
    }
}

TEST(AllReduce, RefusesMoreThanAStepMayLast) {
    DeviceGroup slow = group(4096, 1);
    slow.between.latency = Duration{std::int64_t{1} << 53};
    const Error error =
        error_of([&] { all_reduce_time(AllReduceKind::Ring, slow, Bytes{1 << 20}); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.place(), HasSubstr("all-reduce"));
}

}  // namespace all_reduce_test
}  // namespace pipetwin
