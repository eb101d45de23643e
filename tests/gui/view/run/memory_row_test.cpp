// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/memory_row.h"

#include <gtest/gtest.h>

namespace pipetwin::gui {
namespace memory_row_test {

RowIndex row_of(int cells) {
    std::vector<Span> spans;
    for (int cell = 0; cell < cells; ++cell) {  // 10 ns each, 10 ns apart
        const Duration begin{20 * cell};
        spans.push_back(
            {.action = {}, .begin = begin, .ready = begin, .end = begin + Duration{10}});
    }
    return RowIndex(spans);
}

/// During action c 100 + c bytes, after it 50 + c.
MemoryCurve curve_of(int cells) {
    MemoryCurve curve;
    for (int cell = 0; cell < cells; ++cell) {
        for (const int after : {0, 1}) {
            MemoryPoint point;
            point.time = Duration{20 * cell + 10 * after};
            point.use[MemoryKind::Stash] = Bytes{100 + cell - 50 * after};
            curve.push_back(point);
        }
    }
    return curve;
}

TEST(MemoryRow, IsAStepFunctionOfTheActions) {
    const RowIndex row = row_of(5);
    const MemoryRow memory(curve_of(5), 5);
    EXPECT_EQ(memory.peak(), Bytes{104});
    EXPECT_EQ(memory.at(row, Duration{0}), Bytes{100});
    EXPECT_EQ(memory.at(row, Duration{9}), Bytes{100});
    EXPECT_EQ(memory.at(row, Duration{10}), Bytes{50});
    EXPECT_EQ(memory.at(row, Duration{19}), Bytes{50});
    EXPECT_EQ(memory.at(row, Duration{20}), Bytes{101});
    EXPECT_EQ(memory.at(row, Duration{1'000}), Bytes{54});
}

TEST(MemoryRow, OfAnotherRowHasTheTimesOfThatRow) {
    std::vector<Span> late = row_of(5).spans();
    for (Span& span : late) {
        span.begin += Duration{7};
        span.ready += Duration{7};
        span.end += Duration{7};
    }
    const MemoryRow memory(curve_of(5), 5);
    EXPECT_EQ(memory.at(RowIndex(late), Duration{10}), Bytes{100});
    EXPECT_EQ(memory.at(RowIndex(late), Duration{17}), Bytes{50});
}

TEST(MemoryRow, WithPointsOfItsOwnHasTheirTimes) {
    MemoryCurve curve = curve_of(5);
    MemoryPoint between = curve.back();
    between.time = Duration{95};
    between.use[MemoryKind::Stash] = Bytes{7};
    curve.push_back(between);
    const MemoryRow memory(curve, 5);
    EXPECT_EQ(memory.at(row_of(5), Duration{94}), Bytes{54});
    EXPECT_EQ(memory.at(row_of(5), Duration{95}), Bytes{7});
}

TEST(MemoryRow, RangesAreThoseOfEveryPointBetween) {
    const int cells = 1'000;
    const RowIndex row = row_of(cells);
    const MemoryRow memory(curve_of(cells), cells);
    for (int begin = 0; begin < 20 * cells; begin += 777) {
        for (const int length : {0, 5, 15, 400, 6'000}) {
            ByteRange expected{.least = memory.at(row, Duration{begin}),
                               .most = memory.at(row, Duration{begin})};
            for (int time = begin; time <= begin + length; ++time) {
                const Bytes held = memory.at(row, Duration{time});
                expected = {.least = std::min(expected.least, held),
                            .most = std::max(expected.most, held)};
            }
            EXPECT_EQ(memory.between(row, Duration{begin}, Duration{begin + length}), expected);
        }
    }
}

TEST(MemoryRow, ColumnsAreTheRangesOfTheirPixels) {
    const RowIndex row = row_of(100);
    const MemoryRow memory(curve_of(100), 100);
    const ViewTransform view{.origin = Duration{40}, .ns_per_pixel = 35};
    const std::vector<ByteRange> columns = memory.columns(row, view, 3, 20);
    ASSERT_EQ(columns.size(), 20U);
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(columns[static_cast<std::size_t>(i)],
                  memory.between(row, view.time_at(3 + i), view.time_at(4 + i)));
    }
}

TEST(MemoryRow, ColumnsOfACrowdHoldAllOfTheirPixelsAndLittleMore) {
    const int cells = 20'000;
    const RowIndex row = row_of(cells);
    const MemoryRow memory(curve_of(cells), cells);
    const double ns = static_cast<double>(row.last_end().count()) / 50;
    const ViewTransform view{.origin = Duration{0}, .ns_per_pixel = ns};
    const std::vector<ByteRange> columns = memory.columns(row, view, 0, 50);
    const Duration border = row.slot_length();
    Bytes most;
    for (int i = 0; i < 50; ++i) {
        const ByteRange& column = columns[static_cast<std::size_t>(i)];
        const Duration begin = view.time_at(i);
        const Duration end = view.time_at(i + 1);
        const ByteRange inner = memory.between(row, begin + border, end - border);
        EXPECT_LE(column.least, inner.least) << i;
        EXPECT_GE(column.most, inner.most) << i;
        const ByteRange outer =
            memory.between(row, std::max(Duration{0}, begin - 2 * border), end + 2 * border);
        EXPECT_GE(column.least, outer.least) << i;
        EXPECT_LE(column.most, outer.most) << i;
        most = std::max(most, column.most);
    }
    EXPECT_EQ(most, memory.peak());
}

}  // namespace memory_row_test
}  // namespace pipetwin::gui
