#include "gui/timeline_layout.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/step_places.h"
#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Duration us(std::int64_t count) {
    return std::chrono::microseconds(count);
}

Span compute(Op op, Duration begin, Duration end) {
    return {.action = {.op = op}, .begin = begin, .ready = begin, .end = end};
}

Span receive(Duration begin, Duration ready, Duration end) {
    return {.action = {.op = Op::RecvForward}, .begin = begin, .ready = ready, .end = end};
}

RowIndex row_of(const std::vector<Span>& spans) {
    return RowIndex(spans);
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
        const RowMetrics metrics =
            filling(run.twin, Mode::Both, tracks_of(4), false, height, {.least = 20, .most = 60});
        EXPECT_GE(metrics.row_height, 20);
        EXPECT_LE(metrics.row_height, 60);
        if (metrics.row_height > 20) {
            EXPECT_LE(layout_rows(run.twin, Mode::Both, tracks_of(4), metrics).height, height);
        }
    }
}

TEST(Boxes, AnEmptyRowHasNone) {
    EXPECT_THAT(boxes_of(RowIndex(), one_us, 100), IsEmpty());
}

TEST(Boxes, ASpanWithoutLengthHasNone) {
    EXPECT_THAT(boxes_of(row_of({compute(Op::Forward, us(5), us(5))}), one_us, 100), IsEmpty());
}

TEST(Boxes, AWaitAndItsTransferAreTwo) {
    const auto boxes = boxes_of(row_of({receive(us(10), us(30), us(35))}), one_us, 100);
    ASSERT_EQ(boxes.size(), 2U);
    EXPECT_EQ(boxes[0].kind, BoxKind::Wait);
    EXPECT_EQ(boxes[0].x, 10);
    EXPECT_EQ(boxes[0].width, 20);
    EXPECT_EQ(boxes[1].kind, BoxKind::Action);
    EXPECT_EQ(boxes[1].x, 30);
    EXPECT_EQ(boxes[1].width, 5);
}

TEST(Boxes, OutOfSightThereIsNone) {
    const RowIndex row =
        row_of({compute(Op::Forward, us(-50), us(-10)), compute(Op::Forward, us(100), us(140))});
    EXPECT_THAT(boxes_of(row, one_us, 100), IsEmpty());
}

TEST(Boxes, ASpanLargerThanTheWindowIsCutAtItsEdges) {
    const RowIndex row = row_of({compute(Op::Forward, Duration{0}, std::chrono::hours(24 * 365))});
    const auto boxes = boxes_of(row, {.origin = us(1000), .ns_per_pixel = 1}, 300);
    ASSERT_EQ(boxes.size(), 1U);
    EXPECT_EQ(boxes[0].x, -1);
    EXPECT_EQ(boxes[0].width, 302);
}

TEST(Boxes, NeighboursNeitherOverlapNorLeaveAGap) {
    std::vector<Span> row;
    for (int i = 0; i < 50; ++i) {
        row.push_back(compute(Op::Forward, Duration{1730 * i}, Duration{1730 * (i + 1)}));
    }
    const auto boxes = boxes_of(row_of(row), one_us, 200);
    ASSERT_EQ(boxes.size(), row.size());
    for (std::size_t i = 1; i < boxes.size(); ++i) {
        EXPECT_EQ(boxes[i].x, boxes[i - 1].x + boxes[i - 1].width);
    }
}

/// 100 spans of 6 ns in every microsecond: 60 % compute.
std::vector<Span> crowd(int spans) {
    std::vector<Span> row;
    for (int i = 0; i < spans; ++i) {
        row.push_back(compute(Op::Forward, Duration{10 * i}, Duration{10 * i + 6}));
    }
    return row;
}

TEST(Boxes, ManySpansInAPixelAreCoalesced) {
    const ViewTransform ten_a_pixel{.origin = Duration{0}, .ns_per_pixel = 100};
    const auto boxes = boxes_of(row_of(crowd(1'000)), ten_a_pixel, 200);
    ASSERT_EQ(boxes.size(), 1U) << "all pixels look alike";
    EXPECT_EQ(boxes[0].kind, BoxKind::Coalesced);
    EXPECT_EQ(boxes[0].width, 100);
    EXPECT_NEAR(boxes[0].compute, 0.6, 1e-9);
}

TEST(Boxes, OfACrowdComeFromBinsAndLookTheSame) {
    const auto boxes = boxes_of(row_of(crowd(100'000)), one_us, 1'000);
    int right = 0;
    for (const Box& box : boxes) {
        EXPECT_EQ(box.kind, BoxKind::Coalesced);
        EXPECT_EQ(box.op, Op::Forward);
        EXPECT_EQ(box.x, right);
        EXPECT_NEAR(box.compute, 0.6, &box == &boxes.back() ? 0.1 : 0.02)
            << "the end lies in a bin";
        right = box.x + box.width;
    }
    EXPECT_EQ(right, 1'000);
}

TEST(Boxes, CoalescingKeepsTheTimeThatIsCompute) {
    // The property behind it: whatever the zoom, compute shares of the pixels add up to the compute
    // time.
    const RunData run = canned_run({.ranks = 2, .micro_batches = 400, .jitter = 0.1});
    const RowIndex& row = *run.twin.row(Side::Measured, 0, 1);
    Duration busy{0};
    for (const Span& span : row.spans()) {
        busy += is_compute(span.action.op) ? span.end - span.begin : Duration{0};
    }
    const int width = 300;  // all spans are shorter than a pixel
    const ViewTransform view = fitted(Duration{0}, run.twin.length(0), width);
    const auto boxes = boxes_of(row, view, width);
    const double pixels =
        std::accumulate(boxes.begin(), boxes.end(), 0.0, [](double sum, const Box& box) {
            return sum + box.compute * box.width;
        });
    EXPECT_NEAR(pixels * view.ns_per_pixel, static_cast<double>(busy.count()), 1e3);
}

TEST(Boxes, ACoalescedPixelShowsTheOpThatTakesMost) {
    const RowIndex row = row_of({compute(Op::Forward, Duration{5'000}, Duration{5'200}),
                                 compute(Op::Backward, Duration{5'200}, Duration{5'900})});
    const auto boxes = boxes_of(row, one_us, 100);
    ASSERT_EQ(boxes.size(), 1U);
    EXPECT_EQ(boxes[0].op, Op::Backward);
    EXPECT_EQ(boxes[0].cell, 1);
    EXPECT_NEAR(boxes[0].compute, 0.9, 1e-12);
}

TEST(Boxes, AShortSpanAcrossTwoPixelsIsSharedByThem) {
    const auto boxes =
        boxes_of(row_of({compute(Op::Forward, Duration{4'800}, Duration{5'600})}), one_us, 100);
    ASSERT_EQ(boxes.size(), 2U);
    EXPECT_NEAR(boxes[0].compute, 0.2, 1e-12);
    EXPECT_NEAR(boxes[1].compute, 0.6, 1e-12);
}

TEST(Boxes, CoalescedOnesLieBelowWholeOnes) {
    const RowIndex row = row_of({compute(Op::Forward, us(1), us(20)),
                                 compute(Op::Forward, us(20), Duration{20'300}),
                                 compute(Op::Forward, Duration{20'300}, us(40))});
    const auto boxes = boxes_of(row, one_us, 100);
    ASSERT_EQ(boxes.size(), 3U);
    EXPECT_EQ(boxes[0].kind, BoxKind::Coalesced);
    EXPECT_EQ(boxes[1].kind, BoxKind::Action);
}

TEST(ErrorBars, SayHowFarOffThePredictionWas) {
    const RowIndex predicted =
        row_of({compute(Op::Forward, us(0), us(12)), compute(Op::Forward, us(12), us(20))});
    const RowIndex measured =
        row_of({compute(Op::Forward, us(0), us(10)), compute(Op::Forward, us(10), us(20))});
    const auto bars = error_bars_of(predicted, measured, one_us, 100);
    ASSERT_EQ(bars.size(), 2U);
    EXPECT_DOUBLE_EQ(bars[0].error, 0.2);
    EXPECT_DOUBLE_EQ(bars[1].error, -0.2);
    EXPECT_EQ(bars[1].x, 10);
    EXPECT_EQ(bars[1].width, 10);
}

TEST(ErrorBars, OfAPixelShowTheErrorOfTheSum) {
    std::vector<Span> predicted;
    std::vector<Span> measured;
    Duration at{0};
    for (int i = 0; i < 4; ++i) {  // 20 % too long, 10 % too short, in turn
        const Duration begin{100 * i};
        measured.push_back(compute(Op::Forward, begin, begin + Duration{100}));
        const Duration end = at + Duration{i % 2 == 0 ? 120 : 90};
        predicted.push_back(compute(Op::Forward, at, end));
        at = end;
    }
    const auto bars = error_bars_of(row_of(predicted), row_of(measured), one_us, 100);
    ASSERT_EQ(bars.size(), 1U);
    EXPECT_EQ(bars[0].width, 1);
    EXPECT_DOUBLE_EQ(bars[0].error, 0.05);
}

TEST(ErrorBars, LeaveOutWhatTheTwoRowsDoNotShare) {
    const RowIndex predicted = row_of({compute(Op::Forward, us(0), us(10))});
    const RowIndex measured =
        row_of({compute(Op::Backward, us(0), us(10)), compute(Op::Backward, us(10), us(20))});
    EXPECT_THAT(error_bars_of(predicted, measured, one_us, 100), IsEmpty());
}

TEST(Hit, FindsTheSpanUnderTheMouseAndNothingBesideIt) {
    const RowIndex row =
        row_of({compute(Op::Forward, us(10), us(20)), compute(Op::Forward, us(40), us(50))});
    EXPECT_EQ(cell_at(row, one_us, 15), 0);
    EXPECT_EQ(cell_at(row, one_us, 45), 1);
    EXPECT_EQ(cell_at(row, one_us, 30), std::nullopt);
    EXPECT_EQ(cell_at(RowIndex(), one_us, 30), std::nullopt);
}

TEST(Hit, ForgivesTwoPixels) {
    const RowIndex row = row_of({compute(Op::Forward, us(10), us(20))});
    EXPECT_EQ(cell_at(row, one_us, 21.5), 0);
    EXPECT_EQ(cell_at(row, one_us, 8.5), 0);
    EXPECT_EQ(cell_at(row, one_us, 23.5), std::nullopt);
}

TEST(Hit, TakesTheLongestOfManyInAPixel) {
    const RowIndex row = row_of({compute(Op::Forward, Duration{5'000}, Duration{5'200}),
                                 compute(Op::Forward, Duration{5'200}, Duration{5'800}),
                                 compute(Op::Forward, Duration{5'800}, Duration{6'000})});
    EXPECT_EQ(cell_at(row, one_us, 5.1), 1);
}

TEST(Hit, EveryPaintedBoxIsFoundAtItsMiddle) {
    const RunData run = canned_run({.ranks = 3, .micro_batches = 4, .jitter = 0.1});
    const RowLayout layout =
        layout_rows(run.twin, Mode::Both, tracks_of(run.twin.rank_count()), {});
    const StepPlaces places(run.twin, Alignment::Start);
    const ViewTransform view = fitted(Duration{0}, run.twin.length(0), 900);
    for (const Row& row : layout.rows) {
        for (const Box& box : boxes_of(*run.twin.row(row.side, 0, row.rank), view, 900)) {
            const auto found = hit(
                run.twin, places, layout, view, box.x + box.width / 2.0, row.y + row.height / 2);
            ASSERT_TRUE(found);
            EXPECT_EQ(*found, (SpanRef{row.side, 0, row.rank, box.cell}));
        }
    }
}

TEST(Hit, FindsNothingBetweenRows) {
    const RunData run = canned_run();
    const RowLayout layout =
        layout_rows(run.twin, Mode::Both, tracks_of(run.twin.rank_count()), {});
    const StepPlaces places(run.twin, Alignment::Start);
    const ViewTransform view = fitted(Duration{0}, run.twin.length(0), 900);
    EXPECT_EQ(hit(run.twin, places, layout, view, 100, 2), std::nullopt);
    EXPECT_EQ(hit(run.twin, places, layout, view, 100, layout.strips[0].y + 1), std::nullopt);
    EXPECT_EQ(hit(run.twin, places, layout, view, 100, 1e6), std::nullopt);
}

}  // namespace
}  // namespace pipetwin::gui
