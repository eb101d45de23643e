// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/overview.h"

#include <numeric>

#include <gtest/gtest.h>

#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace overview_test {

Duration compute_of_all(const Twin& twin, Side side, int step) {
    Duration sum{0};
    for (const RowIndex& row : twin.step(side, step)->ranks) {
        for (const Span& span : row.spans()) {
            sum += pipetwin::is_compute(span.action.op) ? span.end - span.begin : Duration{0};
        }
    }
    return sum;
}

TEST(Overview, PixelsAddUpToTheComputeOfTheRun) {
    const RunData run = canned_run({.ranks = 3, .micro_batches = 5, .jitter = 0.1, .steps = 4});
    const StepPlaces places(run.twin, Alignment::Start);
    for (const Side side : {Side::Predicted, Side::Measured}) {
        Duration expected{0};
        for (int step = 0; step < 4; ++step) {
            expected += compute_of_all(run.twin, side, step);
        }
        const auto use = utilisation_over_run(run.twin, places, side, 800);
        const double share = std::accumulate(use.begin(), use.end(), 0.0) / 800;
        EXPECT_NEAR(share, to_seconds(expected) / 3 / to_seconds(places.length()), 1e-3);
    }
}

TEST(Overview, OfNothingIsNothing) {
    const RunData run = canned_run();
    EXPECT_TRUE(utilisation_over_run(Twin{}, StepPlaces(), Side::Measured, 10) ==
                std::vector<float>(10));
    EXPECT_TRUE(
        utilisation_over_run(run.twin, StepPlaces(run.twin, Alignment::Start), Side::Measured, 0)
            .empty());
}

TEST(RangeUse, OfAWholeStepIsGPipesBubble) {
    // F 1 ms, B 2 ms, OPT 0.5 ms; K = 2, M = 3: the bubble is (K - 1) / (K - 1 + M) of the time
    // without the update.
    const RunData run = canned_run({.ranks = 2, .micro_batches = 3});
    const StepPlaces places(run.twin, Alignment::Start);
    const Duration pipeline = run.predicted->pipeline;
    const RangeUse use = use_of_range(run.twin, places, Side::Predicted, Duration{0}, pipeline);
    EXPECT_EQ(use.length, pipeline);
    EXPECT_DOUBLE_EQ(use.busy_share(), 3.0 / 4);
    EXPECT_EQ(use.compute + use.wait + use.update + use.message + use.idle, use.length);
}

TEST(RangeUse, OfTwoPartsIsThatOfTheWhole) {
    const RunData run = canned_run({.jitter = 0.1, .steps = 3});
    const StepPlaces places(run.twin, Alignment::Start);
    const Duration middle = places.length() / 3;
    const auto use = [&](Duration begin, Duration end) {
        return use_of_range(run.twin, places, Side::Measured, begin, end);
    };
    const RangeUse whole = use(Duration{0}, places.length());
    const RangeUse first = use(Duration{0}, middle);
    const RangeUse second = use(middle, places.length());
    EXPECT_EQ(first.length + second.length, whole.length);
    // A mean over ranks is rounded down in each step and part.
    EXPECT_NEAR(static_cast<double>((first.compute + second.compute).count()),
                static_cast<double>(whole.compute.count()),
                10);
}

TEST(RangeUse, OutsideTheRunIsNothing) {
    const RunData run = canned_run();
    const StepPlaces places(run.twin, Alignment::Start);
    const RangeUse use =
        use_of_range(run.twin, places, Side::Measured, places.length() * 2, places.length() * 3);
    EXPECT_EQ(use.length, Duration{0});
    EXPECT_EQ(use.busy_share(), 0);
}

}  // namespace overview_test
}  // namespace pipetwin::gui
