// SPDX-License-Identifier: Apache-2.0
#include "exec/training/noise_gate.h"

#include <gmock/gmock.h>

#include "core/base/error.h"

namespace pipetwin::exec {
namespace noise_gate_test {

/// A step of one action that lasted so long.
StepResult step_of(double milliseconds, double stolen = 0, std::int64_t peak = 100) {
    const Duration time = from_milliseconds(milliseconds, "a step");
    StepResult step;
    step.stolen = stolen;
    step.timeline.origin = Origin::Measured;
    step.timeline.ranks = {{{.action = {.op = Op::Forward, .stage = 0, .micro_batch = 0},
                             .begin = Duration{},
                             .ready = Duration{},
                             .end = time}}};
    step.peak.resize(1);
    step.peak.front()[MemoryKind::Stash] = Bytes{peak};
    return step;
}

class Gate : public ::testing::Test {
  protected:
    void add(int count, double milliseconds, double stolen = 0) {
        for (int index = 0; index < count; ++index) {
            add(step_of(milliseconds, stolen));
        }
    }
    void add(const StepResult& step) { gate.add(step, next_number_++); }

    NoiseGate gate;

  private:
    int next_number_ = 0;  ///< of a step in its training
};

TEST_F(Gate, DropsTheWarmUp) {
    add(2, 50);
    add(11, 10);
    const TimelineSet set = gate.result();
    EXPECT_EQ(set.noise.steps, 11);
    EXPECT_EQ(set.noise.dropped_steps, 2);
    EXPECT_EQ(step_time(set.steps.front()), std::chrono::milliseconds(10));
}

/// The window numbered the steps of a trace from 0, so its step 0 was another one than that of the
/// terminal.
TEST_F(Gate, StepsKeepTheirNumbersInTheTraining) {
    add(2, 10);
    add(1, 10.1);
    add(2, 10, 0.5);
    add(2, 10.1);
    EXPECT_THAT(gate.result().numbers, ::testing::ElementsAre(2, 5, 6));
}

TEST_F(Gate, DropsStepsWithStolenTime) {
    add(2, 10);
    add(5, 10, 0.009);
    add(4, 10, 0.011);
    const TimelineSet set = gate.result();
    EXPECT_EQ(set.noise.steps, 5);
    EXPECT_EQ(set.noise.dropped_steps, 6);
    EXPECT_NEAR(set.noise.stolen_percent, 0.9, 1e-9);
}

/// A disturbed step is a longer one; how many there are must not change the result.
TEST_F(Gate, KeepsTheFastEndHoweverManyStepsWereDisturbed) {
    for (const int disturbed : {0, 1, 10, 60}) {
        gate = {};
        add(2, 10);
        add(20, 10);
        add(20, 10.4);
        for (int step = 0; step < disturbed; ++step) {
            add(step_of(10.6 + 0.1 * step));
        }
        const TimelineSet set = gate.result();
        EXPECT_EQ(set.noise.steps, 40);
        EXPECT_EQ(set.noise.dropped_steps, 2 + disturbed);
    }
}

TEST_F(Gate, OneFreakIsNotTheFastEnd) {
    add(2, 10);
    add(1, 8);
    add(19, 10);
    EXPECT_EQ(gate.result().noise.steps, 20);
}

double milliseconds_of(const Timeline& step) {
    return to_milliseconds(step_time(step));
}

double median_of(const TimelineSet& set) {
    return milliseconds_of(median_step(set));
}

/// A machine whose speed drifts: the calmest steps were once taken, all from the run's fast end,
/// and the step was said to be 15 % faster than it was.
TEST_F(Gate, KeepsAtMost31FromAllOverTheRun) {
    add(2, 10);
    for (int index = 0; index < 100; ++index) {
        add(step_of(10 + 0.004 * index, index < 60 ? 0.005 : 0.001));
    }
    const TimelineSet set = gate.result();
    EXPECT_EQ(set.noise.steps, 100);
    EXPECT_EQ(set.noise.dropped_steps, 2);
    ASSERT_EQ(set.steps.size(), 31U);
    for (std::size_t index = 1; index < set.steps.size(); ++index) {
        EXPECT_NEAR(milliseconds_of(set.steps[index]) - milliseconds_of(set.steps[index - 1]),
                    0.004 * 100 / 31,
                    0.004);
    }
    EXPECT_NEAR(median_of(set), 10.2, 0.005);
}

/// Every fourth step is slow: a choice of every fourth would be far off.
TEST_F(Gate, TheMedianOfWhatItKeepsIsThatOfTheRun) {
    for (int index = 0; index < 150; ++index) {
        add(step_of(index % 4 == 2 ? 10.4 : 10 + 0.001 * index));
    }
    const TimelineSet set = gate.result();
    EXPECT_EQ(set.noise.steps, 148);
    // 37 of 148 are slow, so the median is number 74 of the 111 others, two thirds of the way.
    EXPECT_NEAR(median_of(set), 10.1, 0.005);
}

/// So that the median is the time of a step that was kept, whose breakdown sums to it.
TEST_F(Gate, KeepsAnOddNumber) {
    for (int steps = 3; steps < 40; ++steps) {
        gate = {};
        for (int index = 0; index < steps; ++index) {
            add(step_of(10 + 0.01 * index));
        }
        const TimelineSet set = gate.result();
        EXPECT_EQ(set.noise.steps, steps - 2);
        EXPECT_EQ(set.steps.size() % 2, 1U) << steps;
        EXPECT_NEAR(median_of(set), 10 + 0.01 * (steps + 1) / 2, 0.0051);
    }
}

TEST_F(Gate, RemembersPartOfALongRunOnly) {
    for (int index = 0; index < 5000; ++index) {
        add(step_of(10 + 0.0001 * index));
    }
    const TimelineSet set = gate.result();
    EXPECT_EQ(set.noise.steps, 4998);
    EXPECT_EQ(set.steps.size(), 31U);
    EXPECT_NEAR(median_of(set), 10.25, 0.005);
}

TEST_F(Gate, ReportsTheSpreadOfAllStepsAfterTheWarmUp) {
    add(2, 10);
    for (int index = 0; index <= 10; ++index) {
        add(step_of(10 + 0.1 * index));
    }
    EXPECT_NEAR(gate.result().noise.p90_over_p10, 10.9 / 10.1, 1e-6);
}

TEST_F(Gate, WhereNothingPassesItKeepsTheStepNearestTheMedianAndSaysSo) {
    add(2, 10);
    add(1, 20, 0.5);
    add(1, 30, 0.5);
    add(1, 70, 0.5);
    const TimelineSet set = gate.result();
    EXPECT_EQ(set.noise.steps, 0);
    EXPECT_EQ(set.noise.dropped_steps, 5);
    ASSERT_EQ(set.steps.size(), 1U);
    EXPECT_EQ(step_time(set.steps.front()), std::chrono::milliseconds(30));
    EXPECT_NEAR(set.noise.p90_over_p10, 3.5, 1e-9);
    EXPECT_NEAR(set.noise.stolen_percent, 50, 1e-9);
}

/// A run of four ranks on two cores: the only step that lost no time to others took twice as long
/// as those that did.
TEST_F(Gate, AStepThatIsSlowerThanDisturbedOnesIsNotQuiet) {
    add(2, 10);
    add(10, 30, 0.5);
    add(1, 52);
    const TimelineSet set = gate.result();
    EXPECT_EQ(set.noise.steps, 0);
    EXPECT_EQ(set.noise.dropped_steps, 13);
    ASSERT_EQ(set.steps.size(), 1U);
    EXPECT_EQ(step_time(set.steps.front()), std::chrono::milliseconds(30));
}

TEST_F(Gate, AWarmUpIsBetterThanNothing) {
    add(1, 10);
    const TimelineSet set = gate.result();
    EXPECT_EQ(set.noise.steps, 0);
    ASSERT_EQ(set.steps.size(), 1U);
    EXPECT_EQ(step_time(set.steps.front()), std::chrono::milliseconds(10));
}

TEST_F(Gate, PeaksAreTheHighestOfAllSteps) {
    add(step_of(10, 0, 100));
    add(step_of(10, 0, 300));
    add(step_of(10, 0, 200));
    EXPECT_EQ(gate.result().peak_bytes, std::vector<Bytes>{Bytes{300}});
}

TEST_F(Gate, RefusesToJudgeNothing) {
    EXPECT_THROW(gate.result(), InternalError);
}

}  // namespace noise_gate_test
}  // namespace pipetwin::exec
