// SPDX-License-Identifier: Apache-2.0
#include "exec/training/slow_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace slow_stages_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OfThreeStages : public ::testing::Test {
  protected:
    /// Every compute action takes so many times what is planned for its stage.
    Timeline step(const std::vector<double>& factors) const {
        Timeline timeline;
        for (const std::vector<Action>& row : plan->schedule.ranks) {
            auto& spans = timeline.ranks.emplace_back();
            for (const Action& action : row) {
                const double factor = factors[static_cast<std::size_t>(action.stage)];
                const auto time = std::chrono::duration_cast<Duration>(
                    factor * std::chrono::duration<double, std::nano>(plan.duration(action)));
                spans.push_back({.action = action, .begin = {}, .ready = {}, .end = time});
            }
        }
        return timeline;
    }

    std::vector<std::string> after(int steps, const std::vector<double>& factors) {
        std::vector<std::string> all;
        for (int i = 0; i < steps; ++i) {
            for (std::string& sentence : slow.add(step(factors))) {
                all.push_back(std::move(sentence));
            }
        }
        return all;
    }

    const Plan plan = test::plan_of(test::small_mlp(), {.stages = 3, .schedule = "1f1b"});
    SlowStages slow{plan};
};

TEST_F(OfThreeStages, TheSlowOneIsNamedWithItsFactorAfterTwentySteps) {
    EXPECT_THAT(after(19, {1, 3, 1}), IsEmpty());
    const std::vector<std::string> told = after(1, {1, 3, 1});
    ASSERT_EQ(told.size(), 1U);
    EXPECT_THAT(told[0], HasSubstr("stage 1 (rank 1)"));
    EXPECT_THAT(told[0], HasSubstr("3.0 times as long as planned"));
    EXPECT_THAT(told[0], HasSubstr("the other stages take 1.0 times"));
}

TEST_F(OfThreeStages, ItIsToldOnceHoweverLongItStaysSlow) {
    EXPECT_EQ(after(20, {1, 3, 1}).size(), 1U);
    EXPECT_THAT(after(60, {1, 3, 1}), IsEmpty());
}

TEST_F(OfThreeStages, OneThatBecomesSlowLaterIsFound) {
    EXPECT_THAT(after(40, {1, 1, 1}), IsEmpty());
    EXPECT_EQ(after(20, {1, 1, 2}).size(), 1U);
}

TEST_F(OfThreeStages, AMachineThatIsSlowEverywhereHasNoSlowStage) {
    EXPECT_THAT(after(40, {4, 4.2, 3.9}), IsEmpty());
}

TEST_F(OfThreeStages, OthersBeingFasterThanPlannedMakeNoStageSlow) {
    EXPECT_THAT(after(40, {1, 0.4, 0.4}), IsEmpty());
}

TEST_F(OfThreeStages, AFewDisturbedStepsAreForgiven) {
    EXPECT_THAT(after(9, {1, 9, 1}), IsEmpty());
    EXPECT_THAT(after(11, {1, 1, 1}), IsEmpty());
}

TEST(SlowStages, OneStageHasNoOthers) {
    const Plan plan = test::plan_of(test::small_mlp(), {.stages = 1});
    SlowStages slow(plan);
    Timeline timeline;
    timeline.ranks.emplace_back();
    for (const Action& action : plan->schedule.ranks[0]) {
        timeline.ranks[0].push_back({.action = action, .end = std::chrono::hours(1)});
    }
    for (int step = 0; step < 40; ++step) {
        EXPECT_THAT(slow.add(timeline), IsEmpty());
    }
}

}  // namespace slow_stages_test
}  // namespace pipetwin::exec
