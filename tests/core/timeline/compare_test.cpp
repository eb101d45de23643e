// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/compare.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/error_of.h"
#include "tests/support/spans.h"

namespace pipetwin {
namespace compare_test {

using std::chrono::milliseconds;
using testing::error_of;
using testing::span;
using testing::timeline_of;

/// One rank: F of `forward` ms, B of `backward` ms right after it.
Timeline step(int forward, int backward) {
    return timeline_of(
        {{span(Op::Forward, 0, forward), span(Op::Backward, forward, forward + backward)}});
}

TimelineSet set_of(std::vector<Timeline> steps) {
    TimelineSet set;
    set.steps = std::move(steps);
    return set;
}

TEST(Compare, JoinsActionsByPositionAndGivesErrorsRelativeToTheMeasurement) {
    const Comparison comparison = compare(set_of({step(10, 20)}), set_of({step(8, 24)}));
    EXPECT_EQ(comparison.step.predicted, Duration(milliseconds(30)));
    EXPECT_EQ(comparison.step.measured, Duration(milliseconds(32)));
    EXPECT_DOUBLE_EQ(comparison.step.error_percent(), -6.25);
    ASSERT_EQ(comparison.actions.size(), 2U);
    EXPECT_EQ(comparison.actions[0].action.op, Op::Forward);
    EXPECT_DOUBLE_EQ(comparison.actions[0].duration.error_percent(), 25);
    EXPECT_EQ(comparison.actions[1].cell, 1);
    EXPECT_EQ(comparison.actions[1].begin.measured, Duration(milliseconds(8)));
}

TEST(Compare, TakesMediansOverTheSteps) {
    const Comparison odd =
        compare(set_of({step(10, 10)}), set_of({step(9, 10), step(50, 10), step(11, 10)}));
    EXPECT_EQ(odd.actions[0].duration.measured, Duration(milliseconds(11)));
    EXPECT_EQ(odd.makespan.measured, Duration(milliseconds(21)));

    const Comparison even = compare(set_of({step(10, 10)}), set_of({step(8, 10), step(12, 10)}));
    EXPECT_EQ(even.actions[0].duration.measured, Duration(milliseconds(10)));
}

TEST(Compare, GivesTheMeanTimeInMessagesOfGroupsWhereBothSidesKnowIt) {
    Timeline predicted = step(10, 20);
    Timeline measured = step(8, 24);
    EXPECT_FALSE(compare(set_of({predicted}), set_of({measured})).in_groups);
    note_in_groups(predicted, 0, 0, milliseconds(2));
    note_in_groups(predicted, 0, 1, milliseconds(3));
    EXPECT_FALSE(compare(set_of({predicted}), set_of({measured})).in_groups);
    note_in_groups(measured, 0, 1, milliseconds(4));
    const Comparison comparison = compare(set_of({predicted}), set_of({measured}));
    ASSERT_TRUE(comparison.in_groups);
    EXPECT_EQ(comparison.in_groups->predicted, Duration(milliseconds(5)));
    EXPECT_EQ(comparison.in_groups->measured, Duration(milliseconds(4)));
}

/// Of the drawn step, so that the breakdown of that sums to it.
TEST(Compare, TheStepTimeIsThatOfTheMedianStep) {
    const TimelineSet measured = set_of({step(8, 10), step(12, 10)});
    EXPECT_EQ(compare(set_of({step(10, 10)}), measured).step.measured,
              step_time(median_step(measured)));
}

TEST(Compare, TellsHowFarAReplayIsFromTheMeasuredStep) {
    TimelineSet measured = set_of({step(10, 10)});
    EXPECT_FALSE(compare(set_of({step(1, 1)}), measured).replay.has_value());
    measured.replayed_step = milliseconds(21);
    const Comparison comparison = compare(set_of({step(1, 1)}), measured);
    ASSERT_TRUE(comparison.replay.has_value());
    EXPECT_DOUBLE_EQ(comparison.replay->error_percent(), 5);
}

TEST(Compare, SumsTheOpsThatOccurOverTheRanks) {
    const Comparison comparison = compare(set_of({step(10, 20)}), set_of({step(8, 24)}));
    ASSERT_EQ(comparison.by_op.size(), 2U);
    EXPECT_EQ(comparison.by_op[0].op, Op::Forward);
    EXPECT_EQ(comparison.by_op[1].op, Op::Backward);
    EXPECT_EQ(comparison.by_op[1].total.measured, Duration(milliseconds(24)));
}

TEST(Compare, TellsTheBubbleOfBothSides) {
    Timeline idle = step(10, 20);
    idle.ranks[0][1] = span({.op = Op::Backward}, 20, 40);
    const Comparison comparison = compare(set_of({step(10, 20)}), set_of({idle}));
    EXPECT_EQ(comparison.predicted_bubble_total, 0);
    EXPECT_EQ(comparison.measured_bubble_total, 0.25);
}

/// The host spends 5 ms before the backward: the predicted span of the backward contains them, the
/// measured one begins after them.
TEST(Compare, CountsThePredictedOverheadAsWorkOnBothSides) {
    Timeline predicted = step(10, 30);
    predicted.origin = Origin::Predicted;
    Timeline measured = step(10, 25);
    measured.origin = Origin::Measured;
    measured.ranks[0][1] = span({.op = Op::Backward}, 15, 40);
    TimelineSet prediction = set_of({predicted});
    prediction.breakdown = Breakdown{.overhead = milliseconds(5)};
    const Comparison comparison = compare(prediction, set_of({measured}));
    EXPECT_DOUBLE_EQ(comparison.predicted_bubble_total, 0);
    EXPECT_DOUBLE_EQ(comparison.measured_bubble_total, 0);
}

TEST(Compare, ComparesPeaksOnlyIfBothSidesKnowTheirs) {
    TimelineSet predicted = set_of({step(1, 1)});
    predicted.peak_bytes = {Bytes{110}};
    TimelineSet measured = set_of({step(1, 1)});
    EXPECT_TRUE(compare(predicted, measured).peaks.empty());
    measured.peak_bytes = {Bytes{100}};
    const Comparison comparison = compare(predicted, measured);
    ASSERT_EQ(comparison.peaks.size(), 1U);
    EXPECT_DOUBLE_EQ(comparison.peaks[0].error_percent(), 10);
}

TEST(Compare, CarriesBreakdownsAndTheNoiseOfTheMeasurement) {
    TimelineSet predicted = set_of({step(1, 1)});
    predicted.breakdown = Breakdown{.forward = milliseconds(1)};
    Timeline timed = step(1, 1);
    timed.origin = Origin::Measured;
    TimelineSet measured = set_of({timed});
    measured.noise = {.stolen_percent = 0.5, .steps = 12};
    const Comparison comparison = compare(predicted, measured);
    ASSERT_TRUE(comparison.predicted_breakdown.has_value());
    EXPECT_EQ(comparison.predicted_breakdown->forward, Duration(milliseconds(1)));
    EXPECT_FALSE(comparison.measured_breakdown.has_value());
    EXPECT_EQ(comparison.noise.steps, 12);
}

TEST(Compare, RefusesOtherRowsNamingRankCellAndBothActions) {
    Timeline other = step(1, 1);
    other.ranks[0][1].action = {.op = Op::Backward, .stage = 0, .micro_batch = 3};
    const Error error = error_of([&] {
        compare(set_of({step(1, 1)}), set_of({step(1, 1), other}));
    });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.what(),
                ::testing::StartsWith("rank 0, action number 2: predicted 0B0, measured 0B3\n"));
}

TEST(Compare, RefusesARowThatEndsEarlierAndAMissingRank) {
    Timeline shorter = step(1, 1);
    shorter.ranks[0].pop_back();
    const Error error = error_of([&] { compare(set_of({step(1, 1)}), set_of({shorter})); });
    EXPECT_THAT(error.what(),
                ::testing::StartsWith("rank 0, action number 2: predicted 0B0, measured nothing"));
    EXPECT_THROW(compare(set_of({step(1, 1)}), set_of({Timeline{}})), Error);
}

TEST(Noise, TellsABusyMachineFromAShortRun) {
    EXPECT_FALSE((Noise{.steps = 11}.not_measurable().has_value()));
    EXPECT_FALSE((Noise{.steps = 11}.machine_was_busy()));
    const Noise short_run{.dropped_steps = 2, .steps = 3};
    EXPECT_TRUE(short_run.not_measurable().has_value());
    EXPECT_FALSE(short_run.machine_was_busy());
    EXPECT_EQ((Noise{.dropped_steps = 80}.not_measurable()), "none of the 80 steps was quiet");
    // A thread that lacks its core for more than 1 % of a step disturbs it (exec/base/noise.h).
    EXPECT_TRUE((Noise{.stolen_percent = 20, .dropped_steps = 2, .steps = 3}.machine_was_busy()));
    EXPECT_TRUE((Noise{.dropped_steps = 79, .steps = 1}.machine_was_busy()));
    EXPECT_TRUE((Noise{.steps = 31, .costs_apart = 1.26}.machine_was_busy()));
    const Noise shared{.dropped_steps = 79, .steps = 1, .sharing_ranks = 4, .shared_cores = 2};
    EXPECT_EQ(shared.not_measurable(),
              "4 ranks shared 2 cores, and the prediction gives each one of its own");
    EXPECT_FALSE(shared.machine_was_busy());
    EXPECT_EQ(shared.verdict(), "Ranks shared cores");
}

TEST(Pair, ErrorOfTwoZerosIsZero) {
    EXPECT_EQ(Pair{}.error_percent(), 0);
    EXPECT_TRUE(std::isinf(Pair{.predicted = milliseconds(1)}.error_percent()));
}

TEST(MedianStep, IsTheStepNearestTheMedian) {
    const TimelineSet set = set_of({step(5, 5), step(30, 5), step(8, 5)});
    EXPECT_EQ(&median_step(set), &set.steps[2]);
}

TEST(MedianStep, OfTwoEquallyNearStepsIsTheFirst) {
    const TimelineSet set = set_of({step(5, 5), step(7, 5)});
    EXPECT_EQ(&median_step(set), set.steps.data());
}

}  // namespace compare_test
}  // namespace pipetwin
