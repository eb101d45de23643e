// SPDX-License-Identifier: Apache-2.0
#include "core/costs/cost_factors.h"

#include <gtest/gtest.h>

#include "core/costs/profile_json.h"

namespace pipetwin {
namespace cost_factors_test {

/// A layer whose input of 1000 bytes is another's output, and which keeps 500 more.
LayerSample second_sample() {
    return {.micro_batch_size = 2,
            .forward = Duration{1000},
            .backward_input = Duration{600},
            .backward_weight = Duration{400},
            .output = Bytes{800},
            .saved = Bytes{1500},
            .workspace = Bytes{200},
            .split = Bytes{100},
            .input_saved = Bytes{1100},
            .core_forward = Duration{300},
            .core_saved = Bytes{300},
            .whole_forward = Duration{50},
            .whole_backward = Duration{20},
            .whole_saved = Bytes{1100}};
}

Profile profile() {
    Profile profile;
    profile.layers.push_back({.name = "a",
                              .parameter_bytes = Bytes{64},
                              .optimizer = Duration{70},
                              .samples = {{.micro_batch_size = 2,
                                           .forward = Duration{10},
                                           .input = Bytes{40},
                                           .output = Bytes{1000},
                                           .saved = Bytes{240}}}});
    profile.layers.push_back({.name = "b", .samples = {second_sample()}});
    profile.layers[1].shared[2] = {second_sample()};
    profile.layers[0].shared[2] = profile.layers[0].samples;
    profile.links = {{.latency = Duration{5}}};
    return profile;
}

TEST(CostFactors, MultiplyEveryTimeOfLayersAlone) {
    const Profile result = with_factors(profile(), {.compute = 1.5});
    for (const LayerSample& sample :
         {result.layers[1].samples.front(), result.layers[1].shared.at(2).front()}) {
        EXPECT_EQ(sample.forward, Duration{1500});
        EXPECT_EQ(sample.backward_input, Duration{900});
        EXPECT_EQ(sample.backward_weight, Duration{600});
        EXPECT_EQ(sample.core_forward, Duration{450});
        EXPECT_EQ(sample.whole_forward, Duration{75});
        EXPECT_EQ(sample.whole_backward, Duration{30});
        EXPECT_EQ(sample.saved, Bytes{1500});
    }
    EXPECT_EQ(result.layers[0].optimizer, Duration{70});
    EXPECT_EQ(result.links, profile().links);
}

/// What a layer keeps without its input, and scratch; no outputs, inputs or weights.
TEST(CostFactors, MultiplyWhatLayersHoldBesideTheirInputs) {
    const Profile result = with_factors(profile(), {.memory = 0.5});
    EXPECT_EQ(result.layers[0].samples.front().saved, Bytes{40 + 100});
    EXPECT_EQ(result.layers[0].samples.front().input, Bytes{40});
    EXPECT_EQ(result.layers[0].samples.front().output, Bytes{1000});
    EXPECT_EQ(result.layers[0].parameter_bytes, Bytes{64});
    for (const LayerSample& sample :
         {result.layers[1].samples.front(), result.layers[1].shared.at(2).front()}) {
        EXPECT_EQ(sample.saved, Bytes{1000 + 250});
        EXPECT_EQ(sample.input_saved, Bytes{1000 + 50});
        EXPECT_EQ(sample.whole_saved, Bytes{1000 + 50});
        EXPECT_EQ(sample.core_saved, Bytes{150});
        EXPECT_EQ(sample.workspace, Bytes{100});
        EXPECT_EQ(sample.split, Bytes{50});
        EXPECT_EQ(sample.output, Bytes{800});
        EXPECT_EQ(sample.forward, Duration{1000});
    }
}

TEST(CostFactors, OfOneChangeNothingAndAnyKeepEveryRuleOfAProfile) {
    EXPECT_EQ(with_factors(profile(), {}), profile());
    for (const double memory : {0.001, 0.3, 7.0}) {
        EXPECT_NO_THROW(
            check_profile(with_factors(profile(), {.compute = 3.3, .memory = memory}), "x"));
    }
}

/// A layer that reads two others has both outputs as its input.
TEST(CostFactors, InputsAreTheOutputsOfTheLayersThatAreRead) {
    Profile branched = profile();
    branched.layers[1].shared.clear();
    branched.layers.push_back({.name = "c",
                               .inputs = {"a", "b"},
                               .samples = {{.micro_batch_size = 2, .saved = Bytes{2800}}}});
    EXPECT_EQ(with_factors(branched, {.memory = 0.5}).layers[2].samples.front().saved,
              Bytes{1800 + 500});
}

TEST(CostFactors, ProfilesRememberByWhatTheyWereCalibrated) {
    Profile calibrated = profile();
    calibrated.run_calibrations = {{.compute_factor = 1.25, .memory_factor = 0.5, .runs = 3},
                                   {.compute_factor = 1, .memory_factor = std::nullopt, .runs = 1}};
    EXPECT_EQ(parse_profile(print_profile(calibrated), "x").run_calibrations,
              calibrated.run_calibrations);
}

}  // namespace cost_factors_test
}  // namespace pipetwin
