// SPDX-License-Identifier: Apache-2.0
#include "exec/profiling/calibrate.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/base/cores.h"
#include "exec/base/noise.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace calibrate_test {

using std::chrono::milliseconds;

TEST(Calibrate, AProfileCanCarryInterferenceAndLadder) {
    const Model model = test::small_mlp();
    Profile profile = test::even_profile(model, {});
    const Profile before = profile;
    CalibrateOptions options;
    options.fewest_clean = 1;
    options.most_steps = 2;
    add_interference_and_ladder(profile, model, options);
    EXPECT_EQ(profile.layers, before.layers);
    ASSERT_EQ(profile.calibration.has_value(), allowed_cores().size() > 1);
    if (profile.calibration) {
        EXPECT_TRUE(profile.calibration->interference.has_value());
        EXPECT_TRUE(std::ranges::is_sorted(
            profile.calibration->ladder, {}, [](const LadderRung& rung) { return rung.message; }));
    }
}

TEST(TransferLadder, HasARungForEachSize) {
    const std::vector<LadderRung> rungs = transfer_ladder();
    ASSERT_GE(rungs.size(), 8U);
    for (const LadderRung& rung : rungs) {
        EXPECT_GT(rung.time, Duration{});
    }
}

std::vector<GatedStep> steps_of(int clean, int stolen, double spread) {
    std::vector<GatedStep> steps;
    for (int step = 0; step < clean; ++step) {
        const double late = clean > 1 ? spread * step / (clean - 1) : 0;
        steps.push_back({.time = Duration(static_cast<std::int64_t>(1e7 * (1 + late)))});
    }
    for (int step = 0; step < stolen; ++step) {
        steps.push_back({.time = milliseconds(50), .stolen = 0.011});
    }
    return steps;
}

TEST(NoiseVerdict, DropsStepsThatLostMoreThanOnePercentAndNeedsElevenOthers) {
    EXPECT_TRUE(evaluate_gate(steps_of(11, 30, 0.01)).passes());
    EXPECT_FALSE(evaluate_gate(steps_of(10, 0, 0.01)).passes());
    EXPECT_EQ(evaluate_gate(steps_of(11, 30, 0)).dropped, 30);
    EXPECT_NEAR(evaluate_gate(steps_of(11, 11, 0)).dropped_share(), 0.5, 1e-12);
}

TEST(NoiseVerdict, RefusesASpreadBeyondTenPercent) {
    EXPECT_TRUE(evaluate_gate(steps_of(21, 0, 0.11)).passes());
    EXPECT_FALSE(evaluate_gate(steps_of(21, 0, 0.15)).passes());
    EXPECT_FALSE(evaluate_gate({}).passes());
}

}  // namespace calibrate_test
}  // namespace pipetwin::exec
