// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/row_boxes.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/view/timeline/step_places.h"
#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace row_boxes_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

/// The whole step of a large plan showed backwards alone, though a third of the time was forwards.
TEST(Boxes, CoalescedPixelsShowEachOpByItsShareOfTheTime) {
    for (const int pairs : {600, 20'000}) {  // the second from bins
        std::vector<Span> row;
        for (int i = 0; i < pairs; ++i) {
            const Duration begin{9 * i};
            row.push_back(compute(Op::Forward, begin, begin + Duration{3}));
            row.push_back(compute(Op::Backward, begin + Duration{3}, begin + Duration{9}));
        }
        constexpr int width = 300;
        const auto boxes =
            boxes_of(row_of(row), fitted(Duration{0}, Duration{9 * pairs}, width), width);
        int forwards = 0;
        int all = 0;
        for (const Box& box : boxes) {
            EXPECT_LE(box.width, 3) << "neighbours take turns";
            all += box.width;
            forwards += box.op == Op::Forward ? box.width : 0;
        }
        EXPECT_GT(all, width * 9 / 10);  // a view leaves a margin
        EXPECT_NEAR(forwards, all / 3.0, 2) << pairs;
    }
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

TEST(ErrorBars, LeaveOutTheDispatchOfEachSide) {
    const RowIndex predicted =
        row_of({compute(Op::Forward, us(0), us(12)), compute(Op::Forward, us(12), us(20))});
    const RowIndex measured =
        row_of({compute(Op::Forward, us(0), us(10)), compute(Op::Forward, us(10), us(20))});
    const auto bars = error_bars_of(predicted, measured, one_us, 100, {}, {.predicted = us(4)});
    ASSERT_EQ(bars.size(), 2U);
    EXPECT_DOUBLE_EQ(bars[0].error, -0.2);  // 8 of 10
    EXPECT_DOUBLE_EQ(bars[1].error, -0.6);  // 4 of 10
    const auto paced = error_bars_of(
        predicted, measured, one_us, 100, {}, {.predicted = us(4), .measured = us(4)});
    EXPECT_DOUBLE_EQ(paced[0].error, 8.0 / 6 - 1);
    EXPECT_DOUBLE_EQ(paced[1].error, 4.0 / 6 - 1);
    // From far away, too, where many share a pixel: half of 6 ns is dispatch.
    const RowIndex row = row_of(crowd(100'000));
    const auto crowded = error_bars_of(row, row, one_us, 1'000, {}, {.predicted = Duration{3}});
    EXPECT_FALSE(crowded.empty());
    for (const ErrorBar& bar : crowded) {
        EXPECT_NEAR(bar.error, -0.5, 1e-9);
    }
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

TEST(ErrorBars, OfACrowdShowTheErrorOfTheirSums) {
    std::vector<Span> predicted = crowd(100'000);
    std::vector<Span> measured = crowd(100'000);
    for (Span& span : predicted) {
        span.end -= Duration{3};  // 3 ns instead of 6
    }
    const auto bars = error_bars_of(row_of(predicted), row_of(measured), one_us, 1'000);
    EXPECT_EQ(bars.size(), 1'000U);
    for (const ErrorBar& bar : bars) {
        EXPECT_NEAR(bar.error, -0.5, 1e-6);
    }
}

TEST(ErrorBars, OfACrowdWithoutSlotsAreWalked) {
    const ViewTransform far{.origin = Duration{0}, .ns_per_pixel = 1'000};
    const auto bars = error_bars_of(row_of(crowd(60)), row_of(crowd(60)), far, 100);
    ASSERT_FALSE(bars.empty());
    for (const ErrorBar& bar : bars) {
        EXPECT_EQ(bar.error, 0);
    }
}

TEST(ErrorBars, LeaveOutWhatTheTwoRowsDoNotShare) {
    const RowIndex predicted = row_of({compute(Op::Forward, us(0), us(10))});
    const RowIndex measured =
        row_of({compute(Op::Backward, us(0), us(10)), compute(Op::Backward, us(10), us(20))});
    const std::vector<int> none{-1, -1};
    EXPECT_THAT(error_bars_of(predicted, measured, one_us, 100, none), IsEmpty());
}

TEST(ErrorBars, OfRowsInAnotherOrderCompareTheSameActions) {
    const RowIndex predicted =
        row_of({compute(Op::Forward, us(0), us(12)), compute(Op::Backward, us(12), us(42))});
    const RowIndex measured =
        row_of({compute(Op::Backward, us(0), us(40)), compute(Op::Forward, us(40), us(50))});
    const std::vector<int> twins{1, 0};
    const auto bars = error_bars_of(predicted, measured, one_us, 100, twins);
    ASSERT_EQ(bars.size(), 2U);
    EXPECT_NEAR(bars[0].error, -0.25, 1e-12);
    EXPECT_NEAR(bars[1].error, 0.2, 1e-12);
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

}  // namespace row_boxes_test
}  // namespace pipetwin::gui
