// SPDX-License-Identifier: Apache-2.0
#include "core/partition/replicated.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "tests/core/partition/brute_force.h"
#include "tests/support/error_of.h"
#include "tests/support/nanoseconds.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace replicated_test {

using testing::Dice;
using testing::error_of;
using testing::nanoseconds_of;
using testing::Sizes;

std::vector<Bytes> bytes_of(const std::vector<int>& numbers) {
    std::vector<Bytes> bytes;
    bytes.reserve(numbers.size());
    for (const int number : numbers) {
        bytes.push_back(Bytes{number});
    }
    return bytes;
}

/// Rounded up, as a whole number of nanoseconds.
AllReduceTime ring(int nanoseconds_per_byte) {
    return [nanoseconds_per_byte](Bytes weights, int replicas) {
        const std::int64_t whole = weights.count * 4 * (replicas - 1) * nanoseconds_per_byte;
        return Duration{(whole + replicas - 1) / replicas};
    };
}

/// The definition: largest, devices, sizes, replicas; smaller is better, in this order.
using Value = std::tuple<std::int64_t, int, Sizes, std::vector<int>>;

Value value_of(const ReplicationProblem& problem,
               const Sizes& sizes,
               const std::vector<int>& replicas) {
    Duration largest{};
    testing::for_each_stage(sizes, [&](int stage, int first, int end) {
        const int r = replicas[static_cast<std::size_t>(stage)];
        Duration work{};
        Bytes weights;
        for (int layer = first; layer < end; ++layer) {
            work += problem.work[static_cast<std::size_t>(layer)];
            weights += problem.weights[static_cast<std::size_t>(layer)];
        }
        largest = std::max(largest, Duration{(work.count() + r - 1) / r});
        if (r > 1) {
            largest = std::max(largest, problem.all_reduce(weights, r));
        }
        if (first > 0 && !problem.boundary.empty()) {
            largest = std::max(largest, problem.boundary[static_cast<std::size_t>(first)]);
        }
    });
    return {largest.count(), std::accumulate(replicas.begin(), replicas.end(), 0), sizes, replicas};
}

void try_replicas(const ReplicationProblem& problem,
                  const Sizes& sizes,
                  std::vector<int>& replicas,
                  std::optional<Value>& best) {
    if (replicas.size() == sizes.size()) {
        const Value value = value_of(problem, sizes, replicas);
        best = best ? std::min(*best, value) : value;
        return;
    }
    const int used = std::accumulate(replicas.begin(), replicas.end(), 0);
    for (int r = 1; used + r <= problem.devices; ++r) {
        const bool allowed = problem.replicas.empty() ||
                             std::ranges::find(problem.replicas, r) != problem.replicas.end();
        if (allowed) {
            replicas.push_back(r);
            try_replicas(problem, sizes, replicas, best);
            replicas.pop_back();
        }
    }
}

Value brute_force(const ReplicationProblem& problem) {
    std::optional<Value> best;
    const auto layers = static_cast<int>(problem.work.size());
    for (int stages = 1; stages <= std::min(layers, problem.devices); ++stages) {
        for (const Sizes& sizes : testing::all_splits(layers, stages)) {
            std::vector<int> replicas;
            try_replicas(problem, sizes, replicas, best);
        }
    }
    return testing::the(best);
}

TEST(ReplicatedPartition, EqualsBruteForce) {
    Dice dice(tests::seed());
    for (int round = 0; round < tests::soaked(50); ++round) {
        const int layers = dice.between(1, 8);
        const int bound = dice.between(1, 40);
        ReplicationProblem problem{.work = dice.several<Duration>(layers, bound),
                                   .weights = dice.several<Bytes>(layers, 12),
                                   .all_reduce = ring(dice.below(3)),
                                   .devices = dice.between(1, 6)};
        if (dice.below(2) == 0) {
            problem.boundary = dice.several<Duration>(layers, bound + 5);
        }
        if (dice.below(3) == 0) {
            problem.replicas = {1, 2, 4};
        }
        const ReplicatedSplit split = replicated_partition(problem);
        const Value found{split.largest.count(),
                          split.devices_used,
                          split.partition.layers_per_stage(),
                          split.replicas};
        ASSERT_EQ(found, brute_force(problem))
            << fmt::format("PIPETWIN_SEED={}, round {}", tests::seed(), round);
    }
}

TEST(ReplicatedPartition, WithoutWeightsSharesTheWorkPerfectly) {
    // 12 of work over 4 devices: three per micro-batch, and no other split has them.
    const ReplicatedSplit split = replicated_partition({.work = nanoseconds_of({5, 5, 2}),
                                                        .weights = bytes_of({0, 0, 0}),
                                                        .all_reduce = ring(1),
                                                        .devices = 4});
    EXPECT_EQ(split.largest, Duration{3});
    EXPECT_EQ(split.replicas, (std::vector<int>{4}));
}

TEST(ReplicatedPartition, ReplicatesWhatIsHeavyInWorkAndNotWhatIsHeavyInWeights) {
    // A convolution part and a fully connected end, as in PipeDream's VGG-16: 15-1 over 16 devices.
    const ReplicatedSplit split = replicated_partition({.work = nanoseconds_of({7500, 7500, 1000}),
                                                        .weights = bytes_of({10, 10, 100'000}),
                                                        .all_reduce = ring(1),
                                                        .devices = 16});
    EXPECT_EQ(split.partition.layers_per_stage(), (std::vector<int>{2, 1}));
    EXPECT_EQ(split.replicas, (std::vector<int>{15, 1}));
    EXPECT_EQ(split.largest, Duration{1000});
}

TEST(ReplicatedPartition, UsesNoMoreDevicesThanItNeeds) {
    const ReplicatedSplit split = replicated_partition({.work = nanoseconds_of({8, 1, 1}),
                                                        .weights = bytes_of({1000, 1000, 1000}),
                                                        .all_reduce = ring(1),
                                                        .devices = 64});
    EXPECT_EQ(split.largest, Duration{8});
    EXPECT_EQ(split.devices_used, 2);
    EXPECT_EQ(split.partition.layers_per_stage(), (std::vector<int>{1, 2}));
}

TEST(ReplicatedPartition, WithoutReplicasIsTheBalancedPartition) {
    Dice dice(4);
    const auto work = dice.several<Duration>(100, 1000);
    const ReplicatedSplit split = replicated_partition({.work = work,
                                                        .weights = std::vector<Bytes>(100),
                                                        .all_reduce = ring(1),
                                                        .devices = 9,
                                                        .replicas = {1}});
    Duration largest{};
    const Partition balanced = balanced_partition(work, 9);
    for (int stage = 0; stage < 9; ++stage) {
        const auto first = work.begin() + balanced.first_layer(stage);
        largest = std::max(largest,
                           std::accumulate(first, first + balanced.layers_in(stage), Duration{}));
    }
    EXPECT_EQ(split.largest, largest);
}

TEST(ReplicatedPartition, RefusesReplicasThatNoDeviceIsThereFor) {
    const Error error = error_of([] {
        replicated_partition({.work = nanoseconds_of({1}),
                              .weights = bytes_of({1}),
                              .all_reduce = ring(1),
                              .devices = 3,
                              .replicas = {4, 8}});
    });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(error.text(), "no stage may be on 3 devices or fewer");
}

}  // namespace replicated_test
}  // namespace pipetwin
