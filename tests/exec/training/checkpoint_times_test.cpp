// SPDX-License-Identifier: Apache-2.0
#include "exec/training/checkpoint_times.h"

#include <vector>

#include <gmock/gmock.h>

namespace pipetwin::exec {
namespace checkpoint_times_test {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A training whose steps last one second each.
struct Run {
    Scenario::OutputPart output;
    int steps = 0;
    bool resumed = false;
    int full_from = -1;  ///< the disk is full from this second
    int full_to = -1;    ///< to the one before this
};

/// After how many steps a checkpoint was tried.
std::vector<int> tries(const Run& run) {
    const CheckpointTimes::Clock::time_point start{};
    CheckpointTimes times(run.output, run.resumed, start);
    std::vector<int> all;
    for (int done = 1; done <= run.steps; ++done) {
        const auto now = start + seconds(done);
        if (times.is_due(done, done == run.steps, now)) {
            all.push_back(done);
            if (done >= run.full_from && done < run.full_to) {
                times.failed(now);
            } else {
                times.written(now);
            }
        }
    }
    return all;
}

TEST(CheckpointTimes, ByStepsAreEverySoManyAndTheLast) {
    const Scenario::OutputPart every_five{.checkpoint_every = 5, .checkpoint_period = {}};
    EXPECT_THAT(tries({.output = every_five, .steps = 12}), ElementsAre(5, 10, 12));
    EXPECT_THAT(tries({.output = every_five, .steps = 3}), ElementsAre(3));
}

TEST(CheckpointTimes, NoneAreWrittenWhereTheScenarioSaysNone) {
    const Scenario::OutputPart none{.checkpoint_every = 0, .checkpoint_period = {}};
    EXPECT_THAT(tries({.output = none, .steps = 5000, .resumed = true}), IsEmpty());
}

TEST(CheckpointTimes, ByDefaultOneIsWrittenEveryTenMinutesAndThenAtTheEnd) {
    EXPECT_THAT(tries({.output = {}, .steps = 120}), IsEmpty());  // a demo
    EXPECT_THAT(tries({.output = {}, .steps = 599}), IsEmpty());
    EXPECT_THAT(tries({.output = {}, .steps = 1500}), ElementsAre(600, 1200, 1500));
    // The steps since the checkpoint that it went on from are not to be lost.
    EXPECT_THAT(tries({.output = {}, .steps = 30, .resumed = true}), ElementsAre(30));
}

TEST(CheckpointTimes, OneThatFailedIsTriedAgainEverMoreSeldomUpToAMinute) {
    EXPECT_THAT(tries({.output = {}, .steps = 1500, .full_from = 600, .full_to = 850}),
                ElementsAre(600, 601, 603, 607, 615, 631, 663, 723, 783, 843, 903, 1500));
    const Scenario::OutputPart every_hundred{.checkpoint_every = 100, .checkpoint_period = {}};
    EXPECT_THAT(tries({.output = every_hundred, .steps = 210, .full_from = 100, .full_to = 102}),
                ElementsAre(100, 101, 103, 200, 210));
}

}  // namespace checkpoint_times_test
}  // namespace pipetwin::exec
