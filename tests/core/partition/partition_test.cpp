// SPDX-License-Identifier: Apache-2.0
#include "core/partition/partition.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "core/schedule/generators/generate.h"
#include "tests/support/error_of.h"
#include "tests/support/nanoseconds.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace partition_test {

using testing::error_of;
using testing::nanoseconds_of;

Duration largest_stage(const std::vector<Duration>& costs, const std::vector<int>& sizes) {
    Duration largest{};
    auto layer = costs.begin();
    for (const int size : sizes) {
        largest = std::max(largest, std::accumulate(layer, layer + size, Duration{}));
        layer += size;
    }
    return largest;
}

/// Every way to write `layers` as `stages` positive sizes, in lexicographic order.
void all_splits(int layers,
                int stages,
                std::vector<int>& prefix,
                std::vector<std::vector<int>>& splits) {
    if (stages == 1) {
        prefix.push_back(layers);
        splits.push_back(prefix);
        prefix.pop_back();
        return;
    }
    for (int size = 1; size <= layers - stages + 1; ++size) {
        prefix.push_back(size);
        all_splits(layers - size, stages - 1, prefix, splits);
        prefix.pop_back();
    }
}

/// The first of the best splits: the definition, tried out.
std::vector<int> brute_force(const std::vector<Duration>& costs, int stages) {
    std::vector<std::vector<int>> splits;
    std::vector<int> prefix;
    all_splits(static_cast<int>(costs.size()), stages, prefix, splits);
    return *std::ranges::min_element(
        splits, {}, [&](const std::vector<int>& sizes) { return largest_stage(costs, sizes); });
}

TEST(Partition, KnowsTheLayersOfEveryStage) {
    const Partition partition({2, 1, 3}, 6);
    EXPECT_EQ(partition.stage_count(), 3);
    EXPECT_EQ(partition.layer_count(), 6);
    EXPECT_EQ(partition.first_layer(0), 0);
    EXPECT_EQ(partition.first_layer(2), 3);
    EXPECT_EQ(partition.layers_in(2), 3);
    const std::vector<int> stages{0, 0, 1, 2, 2, 2};
    for (int layer = 0; layer < 6; ++layer) {
        EXPECT_EQ(partition.stage_of_layer(layer), stages[static_cast<std::size_t>(layer)]);
    }
    EXPECT_THROW((void)partition.layers_in(3), InternalError);
    EXPECT_THROW((void)partition.first_layer(-1), InternalError);
    EXPECT_THROW((void)partition.stage_of_layer(6), InternalError);
}

TEST(Partition, RefusesAWrongSumNamingBothNumbersAndTheBalancer) {
    const Error error = error_of([] { Partition({2, 3}, 6); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_NE(error.text().find("5 layers"), std::string::npos) << error.text();
    EXPECT_NE(error.text().find("6"), std::string::npos) << error.text();
    EXPECT_NE(error.hint().find("partition = \"auto\""), std::string::npos) << error.hint();
    EXPECT_THROW(Partition({2'000'000'000, 2'000'000'000, 294'967'302}, 6), Error);  // 6 mod 2^32
    EXPECT_THROW(Partition({}, 6), Error);
}

TEST(Partition, RefusesAnEmptyStageNamingIt) {
    const Error error = error_of([] { Partition({4, 0, 2}, 6); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_NE(error.text().find("stage 1 has 0 layers"), std::string::npos) << error.text();
    EXPECT_THROW(Partition({7, -1}, 6), Error);
}

TEST(BalancedPartition, RefusesMoreStagesThanLayersNamingBoth) {
    const std::vector<Duration> costs = nanoseconds_of({1, 2, 3});
    const Error error = error_of([&] { balanced_partition(costs, 4); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(error.text(), "3 units cannot fill 4 stages");
    EXPECT_THROW(balanced_partition(costs, 0), Error);
    EXPECT_THROW(balanced_partition({}, 1), Error);
}

TEST(BalancedPartition, SplitsOneToSixWhereTheLargestStageIsSmallest) {
    // Block partition by count gives [3, 3] with 15; by variance [4, 2] with 11.
    EXPECT_EQ(balanced_partition(nanoseconds_of({1, 2, 3, 4, 5, 6}), 2).layers_per_stage(),
              (std::vector<int>{4, 2}));
}

TEST(BalancedPartition, EqualsBruteForceOnEverySmallVector) {
    // Every vector over {0, 1, 2, 5} of up to 6 layers, and every number of stages.
    const std::vector<int> values{0, 1, 2, 5};
    for (int layers = 1; layers <= 6; ++layers) {
        const int vectors = 1 << (2 * layers);
        for (int code = 0; code < vectors; ++code) {
            std::vector<int> numbers;
            for (int layer = 0; layer < layers; ++layer) {
                numbers.push_back(values[static_cast<std::size_t>(code >> (2 * layer)) & 3U]);
            }
            const std::vector<Duration> costs = nanoseconds_of(numbers);
            const int stages = 1 + code % layers;
            ASSERT_EQ(balanced_partition(costs, stages).layers_per_stage(),
                      brute_force(costs, stages))
                << fmt::format("costs [{}], {} stages", fmt::join(numbers, " "), stages);
        }
    }
}

TEST(BalancedPartition, EqualsBruteForceOnRandomVectors) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    std::mt19937_64 random(seed);
    for (int round = 0; round < tests::soaked(200); ++round) {
        std::vector<int> numbers(1 + random() % 11);
        std::ranges::generate(numbers, [&] { return static_cast<int>(random() % 100); });
        const std::vector<Duration> costs = nanoseconds_of(numbers);
        const int stages = 1 + static_cast<int>(random() % numbers.size());
        ASSERT_EQ(balanced_partition(costs, stages).layers_per_stage(), brute_force(costs, stages))
            << fmt::format("costs [{}], {} stages", fmt::join(numbers, " "), stages);
    }
}

/// The least possible largest stage by the textbook recurrence, slow and independent of the order
/// of the search:  best(n, k) = min over m of max(best(m, k - 1), cost of layers m..n-1).
Duration by_recurrence(const std::vector<Duration>& costs, int stages) {
    std::vector<Duration> sums{Duration{}};
    for (const Duration cost : costs) {
        sums.push_back(sums.back() + cost);
    }
    std::vector<Duration> best = sums;
    for (int stage = 2; stage <= stages; ++stage) {
        std::vector<Duration> next(sums.size(), Duration::max());
        for (std::size_t n = static_cast<std::size_t>(stage); n < sums.size(); ++n) {
            for (std::size_t m = static_cast<std::size_t>(stage) - 1; m < n; ++m) {
                next[n] = std::min(next[n], std::max(best[m], sums[n] - sums[m]));
            }
        }
        best = std::move(next);
    }
    return best.back();
}

TEST(BalancedPartition, IsExactAndNotWorseThanBlocksUpTo200LayersAnd16Stages) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 8; ++round) {
        std::vector<Duration> costs(50 + random() % 151);
        std::ranges::generate(costs, [&] { return Duration{static_cast<int>(random() % 10'000)}; });
        const auto layers = static_cast<int>(costs.size());
        for (const int stages : {1, 2, 3, 8, 16}) {
            const Partition partition = balanced_partition(costs, stages);
            const Duration largest = largest_stage(costs, partition.layers_per_stage());
            ASSERT_EQ(largest, by_recurrence(costs, stages)) << layers << " in " << stages;
            std::vector<int> blocks(static_cast<std::size_t>(stages), layers / stages);
            blocks.back() += layers % stages;
            EXPECT_LE(largest, largest_stage(costs, blocks));
        }
    }
}

TEST(BalancedPartition, CoversEveryLayerWhereAllCostsAreZero) {
    const Partition partition = balanced_partition(nanoseconds_of({0, 0, 0, 0, 0}), 3);
    EXPECT_EQ(partition.layers_per_stage(), (std::vector<int>{1, 1, 3}));
}

TEST(BalancedPartition, HandlesTwoHundredThousandLayersAtOnce) {
    std::mt19937_64 random(3);
    std::vector<Duration> costs(200'000);
    std::ranges::generate(costs, [&] { return Duration{static_cast<int>(random() % 1'000'000)}; });
    const Partition partition = balanced_partition(costs, 16);
    const Duration total = std::accumulate(costs.begin(), costs.end(), Duration{});
    const Duration largest = largest_stage(costs, partition.layers_per_stage());
    EXPECT_GE(largest, total / 16);
    EXPECT_LE(largest, total / 16 + Duration{1'000'000});  // no more than one layer above the mean
}

TEST(BalancedPartition, RefusesCostsWhoseSumOverflows) {
    const std::vector<Duration> costs(3, Duration::max() / 2);
    EXPECT_EQ(error_of([&] { balanced_partition(costs, 2); }).kind(), ErrorKind::BadInput);
}

}  // namespace partition_test
}  // namespace pipetwin
