// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/scale_series.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "core/costs/devices/shipped_profiles.h"

namespace pipetwin {
namespace scale_series_test {

PublishedRun run_of(int devices, const std::string& layout, double measured, double predicted) {
    PublishedRun run;
    run.set = "a";
    run.devices = devices;
    run.layout = layout;
    run.measured = measured;
    run.predicted = predicted;
    return run;
}

TEST(ScaleSeries, JoinsRunsWhoseLayoutsDifferInReplicasAlone) {
    const Evidence evidence{
        .runs = {run_of(64, "4 stages, 16 replicas that divide the optimizer", 90, 98),
                 run_of(8, "4 stages, 2 replicas that divide the optimizer", 100, 100),
                 run_of(8, "4 stages, 2 replicas that divide the optimizer", 80, 100),
                 run_of(64, "8 stages, 8 replicas that divide the optimizer", 70, 70)}};
    const std::vector<ScaleSeries> series = scale_series(evidence);
    ASSERT_EQ(series.size(), 1U);
    EXPECT_EQ(series.front().least.measured, 100);  // the faster of two on 8
    EXPECT_NEAR(series.front().measured_loss(), 0.10, 1e-12);
    EXPECT_NEAR(series.front().predicted_loss(), 0.02, 1e-12);
    EXPECT_NEAR(*median_unexplained_loss(series), 0.08, 1e-12);
    EXPECT_EQ(median_unexplained_loss({}), std::nullopt);
    EXPECT_EQ(nearest_series({}, {}), std::nullopt);
}

/// NVIDIA's DGX Cloud benchmarks, GPT-3 175B in fp8: 728 tokens/s for each of 128 H100, 687 of
/// 2,048.
TEST(ScaleSeries, OfShippedEvidenceHasWhatGpt3LostOn2048Devices) {
    const std::vector<ScaleSeries> series = scale_series(*shipped_evidence());
    const std::optional<ScaleSeries> near = nearest_series(
        series, {.stack = "nemo-2024", .device = "h100-sxm", .precision = "fp8", .devices = 2048});
    ASSERT_TRUE(near);
    EXPECT_EQ(near->least.devices, 128);
    EXPECT_EQ(near->most.devices, 2048);
    EXPECT_NEAR(near->measured_loss(), 1 - 687.0 / 728, 0.002);
    EXPECT_GT(near->unexplained_loss(), 0.03);
}

}  // namespace scale_series_test
}  // namespace pipetwin
