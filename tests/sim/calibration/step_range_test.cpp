// SPDX-License-Identifier: Apache-2.0
#include "sim/calibration/step_range.h"

#include <gmock/gmock.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "tests/support/plain_plan.h"
#include "tests/support/scenario_plans.h"

/// Where a measured step is to be expected around a predicted one.
namespace pipetwin::sim {
namespace step_range_test {

using pipetwin::testing::chain_profile;
using pipetwin::testing::partitioned;
using pipetwin::testing::plan_of;

std::optional<ErrorRange> range_of(const SettledScenario& scenario, const Profile& profile) {
    constexpr Duration long_step = std::chrono::hours(1);
    return step_range(plan_of(scenario, profile), scenario, profile, long_step);
}

TEST(StepRange, IsThatOfTheKindOfSetUpWhereCostsAreEstimated) {
    Profile profile = chain_profile();
    const SettledScenario scenario = partitioned({2, 3});
    profile.source = CostSource::Estimated;
    profile.device = "h100-sxm";
    EXPECT_EQ(range_of(scenario, profile), estimate_error({}));
    SettledScenario sharded = scenario;
    sharded.pipeline.shard = Shard::Weights;
    EXPECT_EQ(range_of(sharded, profile), estimate_error({.shards_weights = true}));
    profile.run_calibrations.push_back({.compute_factor = 1.1, .runs = 1});
    EXPECT_EQ(range_of(scenario, profile), estimate_error({.calibrated = true}));
}

/// A range was printed for an RTX 4090 as if some of its runs had been on one.
TEST(StepRange, NamesADeviceThatNoRunOfItsKindWasOn) {
    Profile profile = chain_profile();
    profile.source = CostSource::Estimated;
    const auto unseen = [&](const std::string& device, Shard shard) {
        profile.device = device;
        SettledScenario scenario = partitioned({2, 3});
        scenario.pipeline.shard = shard;
        const std::optional<ErrorRange> range = range_of(scenario, profile);
        return range ? unseen_text(*range) : "no range";
    };
    EXPECT_EQ(unseen("rtx-4090", Shard::None), "; none of them was on rtx-4090");
    EXPECT_EQ(unseen("b200", Shard::None), "");
    EXPECT_EQ(unseen("b200", Shard::Weights), "; none of them was on b200");
    EXPECT_EQ(unseen("h100-sxm", Shard::Weights), "");
    profile.run_calibrations.push_back({.compute_factor = 1.1, .runs = 1});
    EXPECT_EQ(unseen("rtx-4090", Shard::None), "");  // the measured run was on one
}

/// A step of estimates with a stack is off as runs with that stack were.
TEST(StepRange, WithAStackIsThatOfItsRunsOnTheDevice) {
    Profile profile = chain_profile();
    profile.source = CostSource::Estimated;
    profile.device = "h100-sxm";
    profile.stack = "nemo-2024";
    const SettledScenario scenario = partitioned({2, 3});
    EXPECT_EQ(range_of(scenario, profile),
              estimate_error({.stack = "nemo-2024", .device = "h100-sxm", .devices = 2}));
    profile.device = "h200-sxm";
    EXPECT_EQ(range_of(scenario, profile)->unseen_device, "h200-sxm");
}

/// No step is shorter than kernels alone allow, however wide the range of its runs is.
TEST(StepRange, WithAStackEndsWhereKernelsAloneDo) {
    Profile profile = chain_profile();
    profile.source = CostSource::Estimated;
    profile.device = "mi300x";
    profile.precision = "bf16";
    profile.stack = "nemo-2024";  // another device: a wider range
    const SettledScenario scenario = partitioned({2, 3});
    const ErrorRange wide =
        estimate_error({.stack = "nemo-2024", .device = "mi300x", .devices = 2});
    EXPECT_EQ(range_of(scenario, profile), wide);
    profile.device = "h100-sxm";
    const Plan plan = plan_of(scenario, profile);
    const double sustained = find_stack("nemo-2024")->sustained_of("h100-sxm", "bf16")->share.value;
    const Duration least = time_of_kernels(plan, sustained);
    const Duration step = scaled(least, 1 / 0.97);
    EXPECT_NEAR(step_range(plan, scenario, profile, step)->low, 0.97, 1e-3);
    EXPECT_LE(step_range(plan, scenario, profile, least / 2)->low, 1);
}

/// Forward 1 ms and backward 2 ms of two micro-batches, the busiest of two equal ranks.
TEST(TimeOfKernels, IsWhatTheBusiestRankComputes) {
    const Plan plan = make_plan(pipetwin::testing::plain(ScheduleKind::GPipe, 2, 2));
    EXPECT_EQ(time_of_kernels(plan, 1), std::chrono::milliseconds(6));
    EXPECT_EQ(time_of_kernels(plan, 0.5), std::chrono::milliseconds(3));
}

/// The factors of one row of docs/validation.md were printed with the words of another.
TEST(StepRange, OfCalibratedCostsIsTheNarrowerOfTheKindsAndThatOfCorrectedRuns) {
    EXPECT_EQ(estimate_error({.calibrated = true}), estimate_error({}));
    EXPECT_EQ(estimate_error({.shards_weights = true, .calibrated = true}),
              estimate_error({.shards_weights = true}));
    EXPECT_EQ(estimate_error({.tensor_parallel = 8, .calibrated = true}), corrected_error());
}

TEST(StepRange, SaysNothingOfMeasuredAndImportedCosts) {
    Profile profile = chain_profile();
    for (const CostSource source : {CostSource::Measured, CostSource::Imported}) {
        profile.source = source;
        EXPECT_EQ(range_of(partitioned({2, 3}), profile), std::nullopt);
    }
}

/// Without a stack no published run of a model with experts was compared.
TEST(StepRange, SaysNothingOfEstimatesWithRoutedExperts) {
    Profile profile = chain_profile();
    profile.source = CostSource::Estimated;
    profile.tokens_per_sample = 100;
    LayerCost& layer = profile.layers.front();
    layer.parameter_count = 1000;
    layer.operations = 2.0 * 100 * 1000;  // of all weights, for each token
    EXPECT_NE(range_of(partitioned({2, 3}), profile), std::nullopt);
    layer.operations = 2.0 * 100 * 1000 / 4;  // two experts of eight
    EXPECT_EQ(range_of(partitioned({2, 3}), profile), std::nullopt);
    profile.device = "b200";
    profile.stack = "megatron-bridge-2025";
    const RunKind of_experts{
        .stack = profile.stack, .device = profile.device, .devices = 2, .experts = true};
    EXPECT_EQ(range_of(partitioned({2, 3}), profile), estimate_error(of_experts));
    profile.stack = "";
    profile.run_calibrations.push_back({.compute_factor = 1.1, .runs = 1});
    EXPECT_EQ(range_of(partitioned({2, 3}), profile), corrected_error());
}

TEST(StepRange, IsWrittenInTheUnitOfTheStep) {
    const ErrorRange range{.low = 0.9, .high = 1.2, .of = "runs"};
    EXPECT_EQ(range_text(std::chrono::milliseconds(123), range), "111 to 148 ms");
    EXPECT_EQ(range_text(std::chrono::milliseconds(17'000), range), "15.3 to 20.4 s");
    EXPECT_EQ(range_text(std::chrono::microseconds(1'500), range), "1.35 to 1.80 ms");
    EXPECT_EQ(range_text(std::chrono::microseconds(1'000), range), "0.90 to 1.20 ms");
}

}  // namespace step_range_test
}  // namespace pipetwin::sim
