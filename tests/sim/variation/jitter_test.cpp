// SPDX-License-Identifier: Apache-2.0
#include "sim/variation/jitter.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/validate.h"
#include "sim/simulate/simulate.h"
#include "sim/stats/log_normal.h"
#include "sim/stats/portable_math.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/error_of.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"

namespace pipetwin::sim {
namespace jitter_test {

using testing::expect_relation;
using ::testing::HasSubstr;
using testing::plain;

constexpr double scale = 1 << factor_bits;

TEST(PortableMath, HasTheExponential) {
    for (int i = -160; i <= 160; ++i) {
        const double x = i / 10.0;
        EXPECT_NEAR(portable_exp(x) / std::exp(x), 1, 1e-13) << x;
    }
}

/// P(Z <= z) = erfc(-z / sqrt 2) / 2.
TEST(NormalQuantile, IsTheInverseOfTheDistribution) {
    for (int i = 1; i < 1024; ++i) {
        const double p = i / 1024.0;
        EXPECT_NEAR(std::erfc(-normal_quantile(p) / std::sqrt(2.0)) / 2, p, 2e-14) << p;
    }
}

/// E(X) = 1, Var(X) = exp(s^2) - 1. A table of 1024 leaves out what lies beyond its last quantile,
/// 3.3 deviations: 3 % of the variance at s = 0.3.
TEST(LogNormalQuantiles, HaveTheMomentsOfTheDistribution) {
    for (const double s : {0.0, 0.02, 0.1, 0.3}) {
        const auto table = log_normal_quantiles(s);
        double sum = 0;
        double squares = 0;
        for (const std::uint32_t factor : table) {
            sum += factor / scale;
            squares += (factor / scale - 1) * (factor / scale - 1);
        }
        EXPECT_NEAR(sum / quantile_count, 1, 1e-5) << s;
        EXPECT_NEAR(squares / quantile_count, std::exp(s * s) - 1, 0.03 * s * s + 1e-9) << s;
    }
}

StepSamples sampled(const Plan& plan, const Jitter& jitter, int samples, std::uint64_t seed = 1) {
    return sample_steps(plan, planned_conditions(plan), jitter, samples, seed);
}

TEST(SampleSteps, WithoutJitterAreTheStep) {
    expect_relation(50, [] {
        const Plan plan = plan_with_updates(random_pipeline());
        const StepSamples samples = sampled(plan, {}, 9);
        RC_ASSERT(samples.steps == std::vector<Duration>(9, step_time(simulate(plan))));
    });
}

/// One rank, M micro-batches: the step is a sum of 2 M independent actions. Its mean is the plan's,
/// its variance the sum of (exp(s^2) - 1) d^2. Tolerances: 5 standard errors of 4096 samples.
TEST(SampleSteps, OfOneRankHaveTheMeanAndTheVarianceOfASum) {
    constexpr int micro_batches = 64;
    constexpr int count = 4096;
    constexpr double s = 0.2;
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 1, micro_batches));
    const StepSamples samples = sampled(plan, {.compute = s}, count);
    const double forward = 1e6;
    const double backward = 2e6;
    const double variance =
        (std::exp(s * s) - 1) * micro_batches * (forward * forward + backward * backward);
    const double expected = micro_batches * (forward + backward);
    EXPECT_NEAR(
        static_cast<double>(samples.mean().count()), expected, 5 * std::sqrt(variance / count));
    double squares = 0;
    for (const Duration step : samples.steps) {
        const double difference = static_cast<double>(step.count()) - expected;
        squares += difference * difference;
    }
    EXPECT_NEAR(squares / count / variance, 1, 5 * std::sqrt(2.0 / count) + 0.03);
}

/// A rank's own factor multiplies all of its actions: the deviation of one rank's step is that of
/// the factor, however many actions there are.
TEST(SampleSteps, OfASlowDeviceAreSlowThroughout) {
    constexpr int count = 4096;
    constexpr double s = 0.1;
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 1, 64));
    const StepSamples samples = sampled(plan, {.device = s}, count);
    const double step = static_cast<double>(step_time(simulate(plan)).count());
    double squares = 0;
    for (const Duration sample : samples.steps) {
        const double factor = static_cast<double>(sample.count()) / step;
        squares += (factor - 1) * (factor - 1);
    }
    EXPECT_NEAR(squares / count / (std::exp(s * s) - 1), 1, 5 * std::sqrt(2.0 / count) + 0.03);
}

/// Of n actions each is hit with probability p and then lasts f times as long: n (1 + p (f - 1)).
/// Tolerance: 5 standard errors.
TEST(SampleSteps, HaveSpikesAsOftenAsIsSaid) {
    constexpr int micro_batches = 100;
    constexpr int count = 4096;
    constexpr double p = 0.01;
    constexpr double f = 11;
    PlainCosts costs = plain(ScheduleKind::GPipe, 1, micro_batches);
    costs.backward = costs.forward;
    const Plan plan = make_plan(costs);
    const StepSamples samples = sampled(plan, {.spike_probability = p, .spike_factor = f}, count);
    const double actions = 2 * micro_batches;
    const double error = 1e6 * (f - 1) * std::sqrt(p * (1 - p) * actions / count);
    EXPECT_NEAR(
        static_cast<double>(samples.mean().count()), 1e6 * actions * (1 + p * (f - 1)), 5 * error);
}

/// A step waits for the latest, so the mean of many steps is longer than the step of the means
/// (Jensen's inequality: for a fixed order the step is convex in the durations).
TEST(SampleSteps, AreLongerOnAverageThanTheStepOfTheMeans) {
    const Plan plan = make_plan(plain(ScheduleKind::OneFOneB, 8, 32));
    const StepSamples samples = sampled(plan, {.compute = 0.2}, fewest_samples);
    EXPECT_GT(samples.mean(), step_time(simulate(plan)));
    EXPECT_LE(samples.quantile(0.5), samples.quantile(0.95));
    EXPECT_EQ(samples.quantile(0), samples.steps.front());
    EXPECT_EQ(samples.quantile(1), samples.steps.back());
}

TEST(SampleSteps, DependOnTheSeedAndOnNothingElse) {
    const Plan plan = make_plan(plain(ScheduleKind::ZbH1, 4, 12));
    const Jitter jitter{.compute = 0.1,
                        .transfer = 0.1,
                        .device = 0.05,
                        .spike_probability = 0.01,
                        .spike_factor = 3};
    const StepSamples first = sampled(plan, jitter, 300, 7);
    EXPECT_EQ(first.steps, sampled(plan, jitter, 300, 7).steps);
    EXPECT_NE(first.steps, sampled(plan, jitter, 300, 8).steps);
}

/// A processor for every rank is nothing shared: what is played through by events is what the tasks
/// say, draw by draw, with every kind of schedule, transfer, capacity, update, reduction and
/// offload.
TEST(SampleSteps, PlayedThroughByEventsAreTheSame) {
    const Jitter jitter{.compute = 0.3,
                        .transfer = 0.5,
                        .device = 0.1,
                        .spike_probability = 0.05,
                        .spike_factor = 3};
    expect_relation(100, [&] {
        const Pipeline pipeline = random_pipeline();
        const int smallest = smallest_capacity(plan_of(pipeline)->schedule);
        const bool bounded = number(0, 1) == 1;
        const Plan on_device = plan_with_updates(
            pipeline, bounded ? std::optional(smallest + number(0, 2)) : std::nullopt);
        const Plan plan = number(0, 1) == 1 ? with_offload(on_device) : on_device;
        Conditions shared = planned_conditions(plan);
        shared.contention.cores = plan.rank_count();
        RC_ASSERT(sample_steps(plan, shared, jitter, 9, 5).steps ==
                  sampled(plan, jitter, 9, 5).steps);
    });
}

/// One processor for all ranks is never idle, so a step is the sum of all its actions, whatever
/// they wait for: K M independent forwards and backwards, with their mean and variance.
/// Tolerances: 5 standard errors.
TEST(SampleSteps, OnOneProcessorAreTheSumOfAllWork) {
    constexpr int ranks = 3;
    constexpr int micro_batches = 16;
    constexpr int count = 1024;
    constexpr double s = 0.2;
    const Plan plan = make_plan(plain(ScheduleKind::OneFOneB, ranks, micro_batches));
    Conditions shared = planned_conditions(plan);
    shared.contention.cores = 1;
    const StepSamples samples = sample_steps(plan, shared, {.compute = s}, count, 1);
    const double forward = static_cast<double>(plan.cost(0, 0).forward.count());
    const double backward = static_cast<double>(plan.cost(0, 0).backward.count());
    const double expected = ranks * micro_batches * (forward + backward);
    const double variance =
        (std::exp(s * s) - 1) * ranks * micro_batches * (forward * forward + backward * backward);
    EXPECT_NEAR(
        static_cast<double>(samples.mean().count()), expected, 5 * std::sqrt(variance / count));
    double squares = 0;
    for (const Duration step : samples.steps) {
        squares += std::pow(static_cast<double>(step.count()) - expected, 2);
    }
    EXPECT_NEAR(squares / count / variance, 1, 5 * std::sqrt(2.0 / count) + 0.03);
}

/// Times are kept in doubles, which hold whole nanoseconds far beyond the longest step.
TEST(SampleSteps, OfVeryLongActionsAreExact) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 3);
    costs.forward.assign(2, std::chrono::seconds(20'000) + Duration{1});
    costs.backward.assign(2, std::chrono::seconds(40'000) + Duration{1});
    const Plan plan = make_plan(costs);
    EXPECT_EQ(sampled(plan, {}, 1).steps.front(), step_time(simulate(plan)));
}

TEST(SampleSteps, RefuseWhatIsNoDeviation) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 2, 3));
    for (const double bad : {-0.1, 2.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
        const Error error = testing::error_of([&] { sampled(plan, {.compute = bad}, 1); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.what(), HasSubstr("jitter of actions"));
    }
    EXPECT_THROW(sampled(plan, {.spike_probability = 1.5}, 1), Error);
    EXPECT_THROW(sampled(plan, {.spike_factor = 0.5}, 1), Error);
}

}  // namespace jitter_test
}  // namespace pipetwin::sim
