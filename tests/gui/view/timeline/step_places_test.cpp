// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/step_places.h"

#include <gtest/gtest.h>

#include "core/schedule/lower.h"
#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace step_places_test {

const Action b0_of_1{.op = Op::Backward, .stage = 1, .micro_batch = 0};

TEST(StepPlaces, OneStepFollowsTheOtherAfterItsLongerSide) {
    const RunData run = canned_run({.jitter = 0.1, .steps = 4});
    const StepPlaces places(run.twin, Alignment::Start);
    ASSERT_EQ(places.step_count(), 4);
    EXPECT_EQ(places.begin(0), Duration{0});
    for (int step = 0; step < 4; ++step) {
        EXPECT_EQ(places.end(step) - places.begin(step), run.twin.length(step));
        EXPECT_EQ(places.of(Side::Predicted, step).begin, places.begin(step));
        EXPECT_EQ(places.of(Side::Measured, step).begin, places.begin(step));
    }
    EXPECT_EQ(places.length(), places.end(3));
}

TEST(StepPlaces, KnowsTheStepOfATimeAndOutsideTheNearest) {
    const RunData run = canned_run({.steps = 3});
    const StepPlaces places(run.twin, Alignment::Start);
    EXPECT_EQ(places.step_at(Duration{-5}), 0);
    EXPECT_EQ(places.step_at(places.begin(1) - Duration{1}), 0);
    EXPECT_EQ(places.step_at(places.begin(1)), 1);
    EXPECT_EQ(places.step_at(places.end(2)), 2);
    EXPECT_EQ(places.step_at(places.length() + std::chrono::hours(1)), 2);
}

TEST(StepPlaces, AlignedAtAnActionBothSidesOfItBeginTogetherInEveryStep) {
    const RunData run = canned_run({.jitter = 0.1, .steps = 3});
    for (const Side side : {Side::Predicted, Side::Measured}) {
        const SpanRef ref = find(run, side, b0_of_1);
        const StepPlaces places(run.twin, Alignment::Selected, ref);
        for (int step = 0; step < 3; ++step) {
            SpanRef upper = ref;
            upper.side = Side::Predicted;
            upper.step = step;
            const SpanRef lower = *twin_of(run.twin, upper);
            EXPECT_EQ(places.of(Side::Predicted, step).on_axis(run.twin.span(upper)->begin),
                      places.of(Side::Measured, step).on_axis(run.twin.span(lower)->begin));
            EXPECT_GE(places.of(Side::Predicted, step).begin, places.begin(step));
            EXPECT_GE(places.of(Side::Measured, step).begin, places.begin(step));
        }
    }
}

TEST(StepPlaces, StretchedBothSidesAreEquallyLong) {
    const RunData run = canned_run({.jitter = 0.1, .steps = 2});
    const StepPlaces places(run.twin, Alignment::Stretched);
    for (int step = 0; step < 2; ++step) {
        const StepPlace& upper = places.of(Side::Predicted, step);
        const StepRows& predicted = *run.twin.step(Side::Predicted, step);
        const StepRows& measured = *run.twin.step(Side::Measured, step);
        EXPECT_NEAR(static_cast<double>(upper.on_axis(predicted.length).count()),
                    static_cast<double>((places.begin(step) + measured.length).count()),
                    2);
        EXPECT_EQ(places.of(Side::Measured, step).stretch, 1);
    }
}

TEST(StepPlaces, AViewOfTheAxisAndOfTheStepShowATimeAtTheSamePlace) {
    const RunData run = canned_run({.jitter = 0.1, .steps = 3});
    const StepPlaces places(run.twin, Alignment::Stretched);
    const ViewTransform view{.origin = places.begin(1), .ns_per_pixel = 1e4};
    const StepPlace& place = places.of(Side::Predicted, 2);
    for (const std::int64_t time : {0, 1'000'000, 7'654'321}) {
        EXPECT_NEAR(place.inside(view).x_of(Duration{time}),
                    view.x_of(place.on_axis(Duration{time})),
                    1e-3);
    }
}

/// Rank 0 of the canned step: F0 F1 F2 to 3 ms, idle to 6 ms (where its receive waits), B2 B1 B0 to
/// 12 ms. Rank 1: idle to 1 ms, F and B to 10 ms, OPT to 10.5 ms, then idle to the end at 12.5 ms.
TEST(IdleAt, IsNamedByTheActionThatItEndsAt) {
    const RunData run = canned_run({.ranks = 2, .micro_batches = 3});
    const StepPlaces places(run.twin, Alignment::Start);
    const RowLayout layout = layout_rows(run.twin, Mode::Predicted, tracks_of(2), {});
    const ViewTransform view{.ns_per_pixel = 1e5};  // ten pixels are a millisecond
    const auto idle = [&](int rank, double milliseconds) -> std::optional<SpanRef> {
        const Row* const row = layout.row_of(Side::Predicted, rank);
        return idle_at(run.twin, places, layout, view, 10 * milliseconds, row->y + row->height / 2);
    };
    const auto action = [&](const std::optional<SpanRef>& ref) -> std::string {
        const auto span = ref ? run.twin.span(*ref) : std::nullopt;
        return span ? to_string(span->action) : ref ? "end" : "none";
    };
    EXPECT_EQ(action(idle(0, 4)), "0B2");
    EXPECT_EQ(action(idle(1, 0.5)), "1F0");
    EXPECT_EQ(action(idle(1, 11.5)), "end");
    EXPECT_EQ(action(idle(0, 1.5)), "none");   // at work
    EXPECT_EQ(action(idle(0, 12.8)), "none");  // behind the step
    EXPECT_EQ(action(idle(0, -1)), "none");
    EXPECT_FALSE(idle_at(run.twin, places, layout, view, 40, -5));
    EXPECT_FALSE(idle_at(Twin{}, StepPlaces(), layout, view, 40, 10));
}

TEST(StepPlaces, OfNothingHaveNoLength) {
    EXPECT_EQ(StepPlaces(Twin{}, Alignment::Start).step_count(), 0);
    EXPECT_EQ(StepPlaces().length(), Duration{0});
}

TEST(Twin, TheOnePredictedStepStandsForEveryStep) {
    const RunData run = canned_run({.steps = 3});
    EXPECT_EQ(run.twin.step_count(), 3);
    EXPECT_EQ(run.twin.step(Side::Predicted, 2), run.twin.step(Side::Predicted, 0));
    EXPECT_EQ(run.twin.step(Side::Predicted, 3), nullptr);
    EXPECT_NE(run.twin.step(Side::Measured, 2), run.twin.step(Side::Measured, 0));
}

TEST(Navigation, GoesOnIntoTheNextStepAndBack) {
    const RunData run = canned_run({.steps = 2});
    const RowIndex& row = *run.twin.row(Side::Measured, 0, 0);
    const SpanRef last{.side = Side::Measured, .step = 0, .rank = 0, .cell = row.size() - 1};
    const auto next = next_in_row(run.twin, last, +1);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->step, 1);
    EXPECT_EQ(next_in_row(run.twin, *next, -1), last);
}

}  // namespace step_places_test
}  // namespace pipetwin::gui
