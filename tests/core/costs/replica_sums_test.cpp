// SPDX-License-Identifier: Apache-2.0
#include "core/costs/replica_sums.h"

#include <memory>

#include <gtest/gtest.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"

namespace pipetwin {
namespace replica_sums_test {

constexpr SentNumbers numbers{.count = 90'000'000, .bytes = Bytes{180'000'000}};

/// 100 GB/s inside of nodes of 8, 10 GB/s for each device between them; 10 us a message.
DeviceGroup group(int replicas, int per_node) {
    return {.members = replicas,
            .per_node = per_node,
            .inside = {.bytes_per_second = 100e9},
            .between = {.bytes_per_second = 10e9},
            .latency = GroupLatency{.fixed = Duration(10'000)}};
}

std::shared_ptr<const Stack> stack_with_buckets(double least, double per_replica) {
    auto stack = std::make_shared<Stack>();
    stack->collectives.bucket_numbers.value = {.least = least, .per_replica = per_replica};
    return stack;
}

ReplicaGroups one_group(int replicas) {
    return {.all = group(replicas, 8), .sharing = group(replicas, 8), .kind = AllReduceKind::Rings};
}

/// 32 replicas on four nodes, of which each has a copy of the state.
ReplicaGroups group_of_node() {
    ReplicaGroups groups = one_group(32);
    groups.sharing = group(8, 8);
    groups.between = group(4, 1);
    return groups;
}

TEST(ReplicaSums, SharesAndWhatComesOfThemTakeAsLongAsAWholeSum) {
    const ReplicaGroups groups = one_group(32);
    EXPECT_EQ(share_sums_time(groups, numbers) + weights_time(groups, numbers),
              whole_sums_time(groups, numbers));
}

/// Megatron-LM, core/distributed/distributed_data_parallel.py: 40 million numbers, or a million for
/// each replica.
TEST(ReplicaSums, BucketsAreOfSoManyNumbersOrMoreForMoreReplicas) {
    ReplicaGroups groups = one_group(8);
    const Duration of_one = whole_sums_time(groups, numbers);
    groups.stack = stack_with_buckets(40e6, 1e6);
    EXPECT_EQ(whole_sums_time(groups, numbers) - of_one, 2 * 2 * Duration(10'000));  // of 3
    EXPECT_EQ(groups.stack->collectives.buckets_of(90'000'000, Bytes{}, 40), 3);
    EXPECT_EQ(groups.stack->collectives.buckets_of(90'000'000, Bytes{}, 64), 2);
    EXPECT_EQ(groups.stack->collectives.buckets_of(90'000'000, Bytes{}, 1024), 1);
    EXPECT_EQ(groups.stack->collectives.buckets_of(0, Bytes{}, 8), 1);
    EXPECT_EQ(stack_with_buckets(0, 0)->collectives.buckets_of(9, Bytes{}, 8), 1);
}

TEST(ReplicaSums, BucketsOfBytesHaveTheSizeOfTheirNumbers) {
    Stack stack;
    stack.collectives.bucket_bytes = Fact<double>{.value = 512.0 * 1024 * 1024};
    EXPECT_EQ(stack.collectives.buckets_of(1, Bytes{14'000'000'000}, 8), 27);
    EXPECT_EQ(stack.collectives.buckets_of(1, Bytes{512 * 1024 * 1024}, 8), 1);
}

/// 180 MB: 7/8 of 1.8 ms inside; then sums of 22.5 MB over four nodes, 2 x 3/4 of 2.25 ms.
TEST(ReplicaSums, GroupsSumInsideAndTheirSharesBetweenThem) {
    const ReplicaGroups groups = group_of_node();
    const Duration inside{7 * 1'800'000 / 8 + 10'000};
    EXPECT_EQ(share_sums_time(groups, numbers),
              inside + Duration(2 * 3 * 2'250'000 / 4 + 2 * 10'000));
    EXPECT_EQ(weights_time(groups, numbers), inside);
}

/// The prototype's formula: bytes / rate + 2.6 ms x D, with all sums before.
TEST(ReplicaSums, OneBroadcastAfterTheOtherTakesItsTimeForEachReplica) {
    ReplicaGroups groups = one_group(32);
    groups.broadcast = Duration(2'600'000);
    EXPECT_EQ(weights_time(groups, numbers), Duration(18'000'000 + 32 * 2'600'000));
    EXPECT_EQ(share_sums_time(groups, numbers), whole_sums_time(groups, numbers));
    groups = group_of_node();
    groups.broadcast = Duration(2'600'000);
    EXPECT_EQ(weights_time(groups, numbers), Duration(1'800'000 + 8 * 2'600'000));
    EXPECT_EQ(share_sums_time(groups, numbers), whole_sums_time(groups, numbers));
    groups.sharing.members = 1;
    EXPECT_EQ(weights_time(groups, numbers), Duration{});
}

TEST(ReplicaSums, TheShippedStacksSayHowTheirReplicasSum) {
    const auto broadcasting = find_stack("internevo-2023");
    EXPECT_EQ(broadcasting->collectives.zero1, WeightUpdates::Broadcast);
    EXPECT_TRUE(broadcasting->collectives.broadcast_us_per_device);
    EXPECT_EQ(find_stack("nemo-2024")->collectives.zero1, WeightUpdates::Bucketed);
}

}  // namespace replica_sums_test
}  // namespace pipetwin
