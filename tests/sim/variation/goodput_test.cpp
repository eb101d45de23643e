// SPDX-License-Identifier: Apache-2.0
#include "sim/variation/goodput.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "sim/stats/draws.h"
#include "tests/support/error_of.h"

namespace pipetwin::sim {
namespace goodput_test {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

/// 1024 devices of 50,000 hours each: a failure every 49 hours.
Failures cluster() {
    return {.mtbf_hours = 50'000,
            .devices = 1024,
            .step = seconds(10),
            .checkpoint = seconds(60),
            .restart = minutes(20)};
}

TEST(Goodput, WithoutFailuresIsTheShareOfTheSteps) {
    Failures failures = cluster();
    failures.mtbf_hours = 1e9;
    failures.devices = 1;
    EXPECT_NEAR(expected_goodput(failures, 54).share, 540.0 / 600, 1e-6);
}

/// Young's first-order optimum is sqrt(2 C M) of work between checkpoints; Daly's differs from it
/// by less than the checkpoint itself where that is short.
TEST(Goodput, IsBestNearYoungsInterval) {
    const Failures failures = cluster();
    const double mean = 50'000.0 * 3600 / 1024;
    const double young = std::sqrt(2 * 60 * mean);
    EXPECT_NEAR(best_goodput(failures).checkpoint_every * 10, young, 60);
}

TEST(Goodput, IsBestWhereNoOtherNumberOfStepsIsBetter) {
    for (const double hours : {100.0, 5'000.0, 50'000.0}) {
        Failures failures = cluster();
        failures.mtbf_hours = hours;
        const Goodput best = best_goodput(failures);
        for (int every = 1; every < 3000; ++every) {
            EXPECT_LE(expected_goodput(failures, every).share, best.share) << every;
        }
    }
}

/// How long runs of `steps` steps take, played through, with failures at random moments.
std::vector<Duration> sample_runs(const Failures& failures,
                                  int checkpoint_every,
                                  std::int64_t steps,
                                  int samples,
                                  std::uint64_t seed) {
    const double mean = failures.mtbf_hours * 3600 / failures.devices * std::nano::den;
    constexpr Duration longest_run = std::chrono::seconds(1'000'000'000);
    std::vector<Duration> runs;
    for (int sample = 0; sample < samples; ++sample) {
        Draws draws(seed, static_cast<std::uint32_t>(sample));
        const auto until_failure = [&] {
            const double wait = -mean * std::log(draws.uniform());
            return Duration{static_cast<std::int64_t>(
                std::min(wait, 2 * static_cast<double>(longest_run.count())))};
        };
        Duration now{};
        Duration failure = until_failure();
        for (std::int64_t done = 0; done < steps && now < longest_run;) {
            const std::int64_t next = std::min(steps - done, std::int64_t{checkpoint_every});
            Duration end = now + next * failures.step + failures.checkpoint;
            while (failure < end && end < longest_run) {
                // Restarts until one is not hit, then the same steps once more.
                now = failure + failures.restart;
                failure += until_failure();
                end = failure < now ? now : now + next * failures.step + failures.checkpoint;
            }
            now = end;
            done += next;
        }
        runs.push_back(std::min(now, longest_run));
    }
    std::ranges::sort(runs);
    return runs;
}

/// Played through, the mean is that of the formula. Tolerance: 5 standard errors of the samples.
TEST(Goodput, IsTheMeanOfRunsThatArePlayedThrough) {
    Failures failures = cluster();
    failures.mtbf_hours = 1000;  // a failure every hour, so that they matter
    constexpr int every = 30;
    constexpr std::int64_t steps = 3000;
    constexpr int samples = 5000;
    const std::vector<Duration> runs = sample_runs(failures, every, steps, samples, 1);
    double sum = 0;
    double squares = 0;
    for (const Duration run : runs) {
        sum += to_seconds(run);
        squares += to_seconds(run) * to_seconds(run);
    }
    const double mean = sum / samples;
    const double error = std::sqrt((squares / samples - mean * mean) / samples);
    const double expected =
        static_cast<double>(steps) * 10 / expected_goodput(failures, every).share;
    EXPECT_NEAR(mean, expected, 5 * error);
    EXPECT_LT(5 * error / expected, 0.01);
}

TEST(Goodput, OfARunWithoutFailuresIsItsStepsAndCheckpoints) {
    Failures failures = cluster();
    failures.mtbf_hours = 1e9;
    failures.devices = 1;
    const std::vector<Duration> runs = sample_runs(failures, 30, 100, 3, 1);
    EXPECT_EQ(runs, std::vector<Duration>(3, seconds(100 * 10 + 4 * 60)));
}

TEST(Goodput, RefusesWhatMakesNoSense) {
    const auto refused = [](Failures failures, int every = 1) {
        const Error error = testing::error_of([&] { expected_goodput(failures, every); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        return std::string(error.what());
    };
    for (const double hours : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
        Failures failures = cluster();
        failures.mtbf_hours = hours;
        EXPECT_THAT(refused(failures), HasSubstr("mean time between failures"));
    }
    Failures failures = cluster();
    failures.devices = 0;
    EXPECT_THAT(refused(failures), HasSubstr("0 devices"));
    failures = cluster();
    failures.step = Duration{};
    EXPECT_THAT(refused(failures), HasSubstr("takes no time"));
    failures = cluster();
    failures.restart = seconds(-1);
    EXPECT_THAT(refused(failures), HasSubstr("less than no time"));
    EXPECT_THAT(refused(cluster(), 0), HasSubstr("every 0 steps"));
}

}  // namespace goodput_test
}  // namespace pipetwin::sim
