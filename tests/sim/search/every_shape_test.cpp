// SPDX-License-Identifier: Apache-2.0
#include "sim/search/every_shape.h"

#include <random>

#include <gmock/gmock.h>

namespace pipetwin::sim {
namespace every_shape_test {

FoundPlan plan_of(std::int64_t step, std::int64_t peak) {
    FoundPlan plan;
    plan.step = Duration{step};
    plan.peak = Bytes{peak};
    return plan;
}

TEST(TimeMemoryFront, LeavesOutWhatAnotherPlanBeatsInBoth) {
    using ::testing::ElementsAre;
    EXPECT_THAT(time_memory_front({}), ElementsAre());
    EXPECT_THAT(time_memory_front({plan_of(5, 5)}), ElementsAre(0));
    EXPECT_THAT(time_memory_front({plan_of(1, 9), plan_of(2, 9), plan_of(3, 4), plan_of(4, 6)}),
                ElementsAre(0, 2));
    // Equal plans do not beat each other.
    EXPECT_THAT(time_memory_front({plan_of(1, 9), plan_of(1, 9)}), ElementsAre(0, 1));
}

TEST(TimeMemoryFront, IsWhatASortSays) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 200; ++round) {
        std::vector<FoundPlan> plans;
        for (std::size_t i = 0; i < 1 + random() % 12; ++i) {
            plans.push_back(plan_of(static_cast<std::int64_t>(random() % 9),
                                    static_cast<std::int64_t>(random() % 9)));
        }
        const std::vector<std::size_t> front = time_memory_front(plans);
        for (std::size_t i = 0; i < plans.size(); ++i) {
            // By step and then by peak, a plan is on the front if no earlier one is as small.
            bool expected = true;
            for (const FoundPlan& other : plans) {
                const bool earlier = std::pair(other.step, other.peak.count) <
                                     std::pair(plans[i].step, plans[i].peak.count);
                expected = expected && !(earlier && other.peak <= plans[i].peak);
            }
            EXPECT_EQ(std::ranges::count(front, i), expected ? 1 : 0);
        }
    }
}

}  // namespace every_shape_test
}  // namespace pipetwin::sim
