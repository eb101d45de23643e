#include "core/partition/unequal_partition.h"

#include <algorithm>
#include <random>

#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "core/schedule/generators/generate.h"
#include "tests/support/error_of.h"
#include "tests/support/nanoseconds.h"

namespace pipetwin {
namespace unequal_partition_test {

using ::testing::ElementsAre;
using testing::error_of;
using testing::nanoseconds_of;

std::vector<int> sizes_of(const UnequalCosts& costs) {
    return unequal_partition(costs).layers_per_stage();
}

Duration largest_stage(const UnequalCosts& costs, const std::vector<int>& sizes) {
    Duration largest{};
    std::size_t layer = 0;
    for (std::size_t stage = 0; stage < sizes.size(); ++stage) {
        const auto kind = static_cast<std::size_t>(costs.kind_of_stage[stage]);
        Duration sum{};
        for (int i = 0; i < sizes[stage]; ++i) {
            sum += costs.of_layer[kind][layer++];
        }
        largest = std::max(largest, sum);
    }
    return largest;
}

/// Every split in lexicographic order; keeps the first of the best.
struct BruteForce {
    const UnequalCosts& costs;
    std::vector<int> sizes{};
    std::vector<int> best{};
    Duration least = Duration::max();

    void extend(int layers) {
        const int left = static_cast<int>(costs.kind_of_stage.size() - sizes.size());
        if (left == 1) {
            sizes.push_back(layers);
            const Duration largest = largest_stage(costs, sizes);
            if (largest < least) {
                least = largest;
                best = sizes;
            }
            sizes.pop_back();
            return;
        }
        for (int size = 1; size <= layers - left + 1; ++size) {
            sizes.push_back(size);
            extend(layers - size);
            sizes.pop_back();
        }
    }
};

TEST(UnequalPartition, AFastDeviceTakesMore) {
    // Two devices, the second twice as slow: 4 layers and 2 last 4 each.
    const UnequalCosts costs{
        {nanoseconds_of({1, 1, 1, 1, 1, 1}), nanoseconds_of({2, 2, 2, 2, 2, 2})}, {0, 1}};
    EXPECT_THAT(sizes_of(costs), ElementsAre(4, 2));
    const UnequalCosts other{costs.of_layer, {1, 0}};
    EXPECT_THAT(sizes_of(other), ElementsAre(2, 4));
}

TEST(UnequalPartition, AgreesWithTheBalancedOneWhereAllAreAlike) {
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
        std::vector<int> numbers(1 + random() % 12);
        std::ranges::generate(numbers, [&] { return static_cast<int>(random() % 10); });
        const std::size_t stages = 1 + random() % numbers.size();
        const UnequalCosts costs{{nanoseconds_of(numbers)}, std::vector<int>(stages, 0)};
        EXPECT_EQ(unequal_partition(costs),
                  balanced_partition(costs.of_layer.front(), static_cast<int>(stages)))
            << fmt::format("{} in {}", numbers, stages);
    }
}

TEST(UnequalPartition, IsTheFirstOfTheBestSplits) {
    std::mt19937 random(2);
    for (int round = 0; round < 400; ++round) {
        const std::size_t layers = 1 + random() % 9;
        const std::size_t kinds = 1 + random() % 3;
        UnequalCosts costs;
        for (std::size_t kind = 0; kind < kinds; ++kind) {
            std::vector<int> numbers(layers);
            std::ranges::generate(numbers, [&] { return static_cast<int>(random() % 12); });
            costs.of_layer.push_back(nanoseconds_of(numbers));
        }
        const std::size_t stages = 1 + random() % layers;
        for (std::size_t stage = 0; stage < stages; ++stage) {
            costs.kind_of_stage.push_back(static_cast<int>(random() % kinds));
        }
        BruteForce brute{costs};
        brute.extend(static_cast<int>(layers));
        EXPECT_EQ(sizes_of(costs), brute.best) << fmt::format("round {}", round);
    }
}

TEST(UnequalPartition, MoreStagesThanLayersAreRefusedNamingBoth) {
    const Error error = error_of([] {
        unequal_partition({{nanoseconds_of({1, 2})}, std::vector<int>(3, 0)});
    });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(error.text(), "2 layers cannot fill 3 stages");
}

}  // namespace unequal_partition_test
}  // namespace pipetwin
