// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/timeline_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace timeline_layout_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Duration us(std::int64_t count) {
    return std::chrono::microseconds(count);
}

/// One pixel per microsecond from time 0.
constexpr ViewTransform one_us{.origin = Duration{0}, .ns_per_pixel = 1000};

TEST(ViewTransform, TimeAndPlaceAreInverse) {
    const ViewTransform view{.origin = us(250), .ns_per_pixel = 125};
    for (const double x : {-40.0, 0.0, 1.0, 999.0}) {
        EXPECT_DOUBLE_EQ(view.x_of(view.time_at(x)), x);
    }
}

TEST(ViewTransform, ZoomKeepsTheTimeUnderTheCursor) {
    for (const double factor : {1.2, 0.5, 30.0}) {
        for (const double x : {0.0, 17.0, 800.0}) {
            const ViewTransform zoomed = one_us.zoomed(factor, x);
            EXPECT_NEAR(static_cast<double>(zoomed.time_at(x).count()),
                        static_cast<double>(one_us.time_at(x).count()),
                        1);
            EXPECT_DOUBLE_EQ(zoomed.ns_per_pixel * factor, one_us.ns_per_pixel);
        }
    }
}

TEST(ViewTransform, PanMovesByPixels) {
    EXPECT_EQ(one_us.panned(25).origin, us(25));
    EXPECT_EQ(one_us.panned(25).panned(-25), one_us);
}

TEST(ViewTransform, FittedShowsTheRangeWithAMargin) {
    const ViewTransform view = fitted(us(100), us(200), 1040);
    EXPECT_NEAR(view.x_of(us(100)), 20, 0.1);
    EXPECT_NEAR(view.x_of(us(200)), 1020, 0.1);
}

TEST(ViewTransform, FittedShowsAnEmptyRangeAsAMicrosecond) {
    const ViewTransform view = fitted(us(5), us(5), 1000);
    EXPECT_GT(view.ns_per_pixel, 0);
    EXPECT_NEAR(view.x_of(us(6)) - view.x_of(us(5)), 961.5, 1);
}

TEST(ViewTransform, ClampedNeverLosesTheRun) {
    constexpr double width = 500;
    const Duration length = us(1000);
    for (const double ns_per_pixel : {1e-9, 1.0, 77.0, 1e4, 1e30}) {
        for (const Duration origin : {us(-1'000'000), us(0), us(400), us(1'000'000)}) {
            const ViewTransform view =
                clamped({.origin = origin, .ns_per_pixel = ns_per_pixel}, length, width);
            EXPECT_GE(view.ns_per_pixel, 1);
            EXPECT_LE(view.ns_per_pixel * width, 2e6);
            EXPECT_GE(view.time_at(width / 2), Duration{-1});
            EXPECT_LE(view.time_at(width / 2), length + Duration{1});
        }
    }
}

TEST(ViewTransform, ClampedLeavesAGoodViewAlone) {
    const ViewTransform view{.origin = us(100), .ns_per_pixel = 500};
    EXPECT_EQ(clamped(view, us(1000), 600), view);
}

TEST(ViewTransform, ClampedStandsARunWithoutTimeAndAWindowWithoutWidth) {
    EXPECT_GE(clamped(one_us, Duration{0}, 0).ns_per_pixel, 1);
}

std::vector<std::string> labels_of(const Axis& axis) {
    std::vector<std::string> labels;
    for (const Tick& tick : axis.ticks) {
        if (!tick.label.empty()) {
            labels.push_back(tick.label);
        }
    }
    return labels;
}

TEST(Axis, LabelsAreRoundNumbers) {
    const Axis axis = axis_ticks({.origin = Duration{0}, .ns_per_pixel = 20'000}, 1000, 150);
    EXPECT_EQ(axis.unit, "ms");
    EXPECT_THAT(labels_of(axis), ElementsAre("0", "5", "10", "15", "20"));
}

TEST(Axis, LabelsKeepTheDecimalsThatTellThemApart) {
    const Axis axis = axis_ticks({.origin = us(12'340), .ns_per_pixel = 1}, 250, 100);
    EXPECT_EQ(axis.unit, "ms");
    EXPECT_THAT(labels_of(axis), ElementsAre("12.3400", "12.3401", "12.3402"));
}

TEST(Axis, UnitFitsTheLatestTimeThatIsSeen) {
    const auto unit = [](double ns_per_pixel) {
        return axis_ticks({.origin = Duration{0}, .ns_per_pixel = ns_per_pixel}, 900, 100).unit;
    };
    EXPECT_EQ(unit(1), "ns");
    EXPECT_EQ(unit(100), "us");
    EXPECT_EQ(unit(1e6), "ms");
    EXPECT_EQ(unit(1e8), "s");
}

TEST(Axis, NeverLabelsCloserThanAsked) {
    for (double ns_per_pixel = 1; ns_per_pixel < 1e12; ns_per_pixel *= 1.7) {
        const Axis axis = axis_ticks({.origin = us(3), .ns_per_pixel = ns_per_pixel}, 2000, 90);
        double last = -1e9;
        for (const Tick& tick : axis.ticks) {
            if (!tick.label.empty()) {
                EXPECT_GE(tick.x - last, 89.999);
                last = tick.x;
            }
        }
        EXPECT_LT(axis.ticks.size(), 150U);
    }
}

TEST(Axis, HasNoTickBeforeTheStepBegins) {
    const Axis axis = axis_ticks({.origin = us(-500), .ns_per_pixel = 1000}, 1000, 100);
    ASSERT_FALSE(axis.ticks.empty());
    EXPECT_EQ(axis.ticks.front().time, Duration{0});
}

TEST(Rows, PredictedStandsAboveMeasuredWithTheStripBetween) {
    const RunData run = canned_run();
    const RowLayout layout =
        layout_rows(run.twin,
                    Mode::Both,
                    tracks_of(2),
                    {.row_height = 20, .strip_height = 8, .memory_height = 0, .gap = 10});
    ASSERT_EQ(layout.rows.size(), 4U);
    ASSERT_EQ(layout.strips.size(), 2U);
    EXPECT_EQ(layout.rows[0].side, Side::Predicted);
    EXPECT_EQ(layout.rows[0].y, 10);
    EXPECT_EQ(layout.strips[0].y, 30);
    EXPECT_EQ(layout.rows[1].side, Side::Measured);
    EXPECT_EQ(layout.rows[1].y, 38);
    EXPECT_EQ(layout.rows[2].rank, 1);
    EXPECT_EQ(layout.rows[2].y, 68);
    EXPECT_EQ(layout.height, 126);
}

TEST(Rows, LinksStandBelowTheMemoryOfTheirRank) {
    const RunData run = canned_run();
    Tracks tracks = tracks_of(2);
    tracks[1].folded = true;
    const RowLayout layout = layout_rows(run.twin,
                                         Mode::Predicted,
                                         tracks,
                                         {.row_height = 20, .memory_height = 12, .link_height = 8});
    ASSERT_EQ(layout.links.size(), 1U);
    EXPECT_EQ(layout.links[0].rank, 0);
    EXPECT_EQ(layout.links[0].y, layout.curves[0].y + 12);
    EXPECT_EQ(layout.links[0].height, 8);
    EXPECT_EQ(layout.rank_at(layout.links[0].y + 4), 0);
}

// A folded rank had nothing at all among the errors, no name either to unfold it by.
TEST(Rows, AFoldedRankIsThereInEveryMode) {
    const RunData run = canned_run();
    Tracks tracks = tracks_of(2);
    tracks[0].folded = true;
    for (Mode mode = Mode::Both;; mode = next(mode)) {
        const RowLayout layout =
            layout_rows(run.twin, mode, tracks, {.row_height = 40, .folded_height = 8});
        EXPECT_EQ(layout.rank_at(layout.rows.empty() ? layout.strips.at(0).y : layout.rows[0].y), 0)
            << static_cast<int>(mode);
        if (next(mode) == Mode::Both) {
            break;
        }
    }
    const RowLayout errors =
        layout_rows(run.twin, Mode::Error, tracks, {.row_height = 40, .folded_height = 8});
    ASSERT_EQ(errors.strips.size(), 2U);
    EXPECT_LT(errors.strips[0].height, errors.strips[1].height);
}

TEST(Rows, OneSideNeedsNoStrip) {
    const RunData run = canned_run();
    for (const Mode mode : {Mode::Predicted, Mode::Measured}) {
        const RowLayout layout = layout_rows(run.twin, mode, tracks_of(2), {});
        EXPECT_EQ(layout.rows.size(), 2U);
        EXPECT_THAT(layout.strips, IsEmpty());
    }
}

TEST(Rows, NothingTakesNoRoom) {
    EXPECT_EQ(layout_rows(Twin{}, Mode::Both, {}, {}).height, 0);
    EXPECT_EQ(layout_rows(Twin{}, Mode::Both, {}, {}).row_at(0), nullptr);
}

TEST(Rows, FillTheHeightBetweenTheirLimits) {
    const RunData run = canned_run({.ranks = 4});
    for (const double height : {50.0, 300.0, 500.0, 5000.0}) {
        const RowMetrics metrics = filling(run.twin,
                                           Mode::Both,
                                           tracks_of(4),
                                           {.memory = false},
                                           height,
                                           {.least = 20, .most = 60});
        EXPECT_GE(metrics.row_height, 20);
        EXPECT_LE(metrics.row_height, 60);
        if (metrics.row_height > 20) {
            EXPECT_LE(layout_rows(run.twin, Mode::Both, tracks_of(4), metrics).height, height);
        }
    }
}

}  // namespace timeline_layout_test
}  // namespace pipetwin::gui
