// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/row_index.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace pipetwin::gui {
namespace row_index_test {

constexpr int seed = 11;

/// Actions of every kind, waits among them, with gaps between; some take no time.
std::vector<Span> random_row(int size) {
    std::mt19937 random(seed);
    const auto up_to = [&](int most) {
        return static_cast<int>(random() % (static_cast<unsigned>(most) + 1));
    };
    std::vector<Span> row;
    Duration now{0};
    for (int i = 0; i < size; ++i) {
        Span span;
        span.action = {.op = static_cast<Op>(up_to(op_count - 1)),
                       .stage = 3 * up_to(2),
                       .micro_batch = up_to(65'535),
                       .with_next = up_to(9) == 0};
        if (is_message(span.action.op)) {
            span.action.hop = static_cast<std::int16_t>(span.action.micro_batch % 4);
        }
        span.begin = now + Duration{up_to(300)};
        span.ready = span.begin + Duration{up_to(2) == 0 ? up_to(900) : 0};
        span.end = span.ready + Duration{up_to(4) == 0 ? 0 : up_to(2'000)};
        now = span.end;
        row.push_back(span);
    }
    return row;
}

/// By looking at every span.
PartTimes walked(const std::vector<Span>& row, Duration begin, Duration end) {
    const auto overlap = [&](Duration from, Duration to) {
        return std::max(Duration{0}, std::min(end, to) - std::max(begin, from));
    };
    PartTimes times;
    for (const Span& span : row) {
        times[RowPart::Wait] += overlap(span.begin, span.ready);
        times[part_of(span.action.op)] += overlap(span.ready, span.end);
    }
    return times;
}

TEST(RowIndex, GivesBackWhatItWasMadeFrom) {
    const std::vector<Span> row = random_row(5'000);
    EXPECT_EQ(RowIndex(row).spans(), row);
}

// Rows once dropped it: a skip message was then called, and searched for, as one of neighbours.
TEST(RowActions, KeepTheOtherEndOfASkipMessage) {
    const std::vector<Action> row{{.op = Op::Forward, .stage = 0},
                                  {.op = Op::SendForward, .stage = 0},
                                  {.op = Op::SendForward, .stage = 0, .hop = 2},
                                  {.op = Op::RecvBackward, .stage = 0, .micro_batch = 1, .hop = 2}};
    const RowActions actions(row);
    for (int cell = 0; cell < actions.size(); ++cell) {
        EXPECT_EQ(actions[cell], row[static_cast<std::size_t>(cell)]);
    }
    EXPECT_TRUE(actions.has_skip_messages());
    EXPECT_FALSE(RowActions(std::span(row).first(2)).has_skip_messages());
    EXPECT_EQ(actions.compute_count(), 1);
}

TEST(RowIndex, AnEmptyOneAnswersNothing) {
    const RowIndex row;
    EXPECT_EQ(row.size(), 0);
    EXPECT_EQ(row.last_end(), Duration{0});
    EXPECT_EQ(row.first_ending_after(Duration{5}), 0);
    EXPECT_EQ(row.between(Duration{0}, Duration{9}), PartTimes{});
    EXPECT_EQ(row.compute_between(0, 0), Duration{0});
    std::vector<RowIndex::Column> columns(3);
    EXPECT_FALSE(row.columns(Duration{0}, 1e9, columns));
}

TEST(RowIndex, HoldsTimesThatDoNotFitIn32Bits) {
    const Duration hour = std::chrono::hours(1);
    const std::vector<Span> row{{.action = {.op = Op::RecvForward, .stage = 1},
                                 .begin = hour,
                                 .ready = 3 * hour,
                                 .end = 7 * hour},
                                {.action = {.op = Op::Forward, .stage = 1},
                                 .begin = 8 * hour,
                                 .ready = 8 * hour,
                                 .end = 8 * hour + Duration{0xffffffffLL}}};
    const RowIndex index(row);
    EXPECT_EQ(index.spans(), row);
    EXPECT_EQ(index.between(Duration{0}, 100 * hour)[RowPart::Wait], 2 * hour);
}

TEST(RowIndex, SumsAreThoseOfEverySpanWhateverTheBorders) {
    const std::vector<Span> row = random_row(3'000);
    const RowIndex index(row);
    std::mt19937_64 random(seed);
    const auto last = static_cast<std::uint64_t>(index.last_end().count());
    for (int i = 0; i < 300; ++i) {
        Duration begin{static_cast<std::int64_t>(random() % (last + 1'000))};
        Duration end{static_cast<std::int64_t>(random() % (last + 1'000))};
        if (end < begin) {
            std::swap(begin, end);
        }
        ASSERT_EQ(index.between(begin, end), walked(row, begin, end))
            << begin.count() << " to " << end.count();
    }
}

TEST(RowIndex, FindsTheFirstSpanThatEndsLater) {
    const std::vector<Span> row = random_row(500);
    const RowIndex index(row);
    for (std::int64_t time = -10; time < index.last_end().count() + 10; time += 37) {
        const auto expected =
            std::ranges::find_if(row, [&](const Span& span) { return span.end > Duration{time}; });
        const auto found = static_cast<int>(expected - row.begin());
        ASSERT_EQ(index.first_ending_after(Duration{time}), found) << time;
        for (int near = std::max(0, found - 40); near <= found; ++near) {
            ASSERT_EQ(index.first_ending_after(Duration{time}, near), found) << time << ' ' << near;
        }
    }
}

TEST(RowIndex, ComputeBetweenCellsIsThatOfAllBetween) {
    const std::vector<Span> row = random_row(400);
    const RowIndex index(row);
    for (int first = 0; first <= index.size(); ++first) {
        Duration sum{0};
        for (int last = first; last <= index.size(); ++last) {
            ASSERT_EQ(index.compute_between(first, last), sum) << first << ' ' << last;
            if (last < index.size()) {
                const Span& span = row[static_cast<std::size_t>(last)];
                sum += pipetwin::is_compute(span.action.op) ? span.end - span.begin : Duration{0};
            }
        }
    }
}

TEST(RowIndex, SlotsStandAtEqualTimesAndHoldTheComputeOfTheirCells) {
    const RowIndex index(random_row(5'000));
    ASSERT_GT(index.slot_count(), 300);
    EXPECT_EQ(index.cell_of_slot(0), 0);
    EXPECT_EQ(index.cell_of_slot(index.slot_count() - 1), index.size());
    std::mt19937_64 random(seed);
    for (int i = 0; i < 300; ++i) {
        const int slot = static_cast<int>(random() % static_cast<unsigned>(index.slot_count()));
        const Duration begin = slot * index.slot_length();
        EXPECT_EQ(index.slot_at(begin), slot);
        EXPECT_EQ(index.cell_of_slot(slot), index.first_ending_after(begin));
        const int next = std::min(slot + i % 40, index.slot_count() - 1);
        const auto exact = static_cast<double>(
            index.compute_between(index.cell_of_slot(slot), index.cell_of_slot(next)).count());
        EXPECT_NEAR(index.compute_of_slots(slot, next), exact, 1e-7 * exact);
    }
    EXPECT_EQ(index.slot_at(Duration{-5'000'000}), 0);
    EXPECT_EQ(index.slot_at(2 * index.last_end()), index.slot_count() - 1);
}

TEST(RowIndex, ARowOfFewSpansHasNoSlots) {
    EXPECT_EQ(RowIndex(random_row(10)).slot_count(), 0);
}

TEST(RowIndex, ColumnsShowEveryPartWithinFourPercentOfAPixel) {
    const std::vector<Span> row = random_row(200'000);
    const RowIndex index(row);
    for (const int width : {200, 977}) {
        const double ns = static_cast<double>(index.last_end().count()) / width;
        std::vector<RowIndex::Column> columns(static_cast<std::size_t>(width));
        ASSERT_TRUE(index.columns(Duration{0}, ns, columns));
        for (int x = 0; x < width; x += 13) {
            const Duration begin{static_cast<std::int64_t>(x * ns)};
            const Duration end{static_cast<std::int64_t>((x + 1) * ns)};
            const PartTimes exact = index.between(begin, end);
            for (std::size_t part = 0; part < row_part_count; ++part) {
                const double share = static_cast<double>(exact.of[part].count()) / ns;
                EXPECT_NEAR(columns[static_cast<std::size_t>(x)].share.of[part], share, 0.04)
                    << "column " << x << " of " << width << ", part " << part;
            }
        }
    }
}

TEST(RowIndex, AddsUpToTheWholeInItsColumns) {
    const std::vector<Span> row = random_row(100'000);
    const RowIndex index(row);
    const int width = 500;
    const double ns = static_cast<double>(index.last_end().count()) / width;
    std::vector<RowIndex::Column> columns(width);
    ASSERT_TRUE(index.columns(Duration{0}, ns, columns));
    double forward = 0;
    for (const RowIndex::Column& column : columns) {
        forward += static_cast<double>(column.share[RowPart::Forward]) * ns;
    }
    const auto exact =
        static_cast<double>(index.between(Duration{0}, index.last_end())[RowPart::Forward].count());
    EXPECT_NEAR(forward / exact, 1, 0.01);
}

TEST(RowIndex, HasNoColumnsFinerThanItsBins) {
    const RowIndex index(random_row(50'000));
    std::vector<RowIndex::Column> columns(10);
    EXPECT_FALSE(index.columns(Duration{0}, 100, columns));
}

TEST(RowIndex, TakesAtMost24BytesASpan) {
    const int size = 300'000;
    const RowIndex index(random_row(size));
    EXPECT_LE(static_cast<double>(index.bytes()) / size, 24);
}

TEST(RowIndex, RefusesSpansThatOverlap) {
    const std::vector<Span> row{
        {.action = {}, .begin = {}, .ready = {}, .end = Duration{10}},
        {.action = {}, .begin = Duration{5}, .ready = Duration{5}, .end = Duration{15}}};
    EXPECT_THROW(const RowIndex index(row), InternalError);
}

}  // namespace row_index_test
}  // namespace pipetwin::gui
