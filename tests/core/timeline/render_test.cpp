// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>

#include <gtest/gtest.h>

#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/render_schedule.h"
#include "core/timeline/render_timeline.h"
#include "tests/support/builders.h"

namespace pipetwin {
namespace render_test {

using testing::action_of;
using testing::schedule_of;
using Ms = std::chrono::milliseconds;

Span span(const char* action, int begin, int end) {
    return {action_of(action), Ms(begin), Ms(begin), Ms(end)};
}

/// Walks the rows of a compute-only schedule without links: every action begins when its rank is
/// free and what it needs is there. Forward and recompute last 10 ms, backward 20.
Timeline timed(const Schedule& schedule) {
    Timeline timeline;
    timeline.ranks.resize(schedule.ranks.size());
    std::map<std::pair<Op, std::pair<int, int>>, Duration> done;
    const auto end_of = [&done](Op op, int stage, int micro_batch) {
        const auto found = done.find({op, {stage, micro_batch}});
        return found == done.end() ? Duration::max() : found->second;
    };
    const auto input_of = [&](const Action& a) {
        if (a.op == Op::Forward) {
            return a.stage == 0 ? Duration{} : end_of(Op::Forward, a.stage - 1, a.micro_batch);
        }
        const bool needs_gradient = a.op == Op::Backward && a.stage + 1 < schedule.stage_count();
        return needs_gradient ? end_of(Op::Backward, a.stage + 1, a.micro_batch) : Duration{};
    };
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
            auto& row = timeline.ranks[rank];
            while (row.size() < schedule.ranks[rank].size()) {
                const Action action = schedule.ranks[rank][row.size()];
                const Duration input = input_of(action);
                if (input == Duration::max()) {
                    break;
                }
                const Duration begin = std::max(input, row.empty() ? Duration{} : row.back().end);
                const Duration end = begin + (action.op == Op::Backward ? Ms(20) : Ms(10));
                row.push_back({action, begin, begin, end});
                done[{action.op, {action.stage, action.micro_batch}}] = end;
                moved = true;
            }
        }
    }
    return timeline;
}

TEST(RenderTimeline, DrawsGPipeWithRecomputeAsThePaperDoes) {
    const Schedule schedule = add_recompute(
        generate(ScheduleKind::GPipe, {.ranks = 4, .micro_batches = 4}), Recompute::ExceptLast);
    const Timeline timeline = timed(schedule);
    EXPECT_EQ(render_timeline(timeline, Ms(10)),
              "rank 0  0123.........ddrccrbbraa\n"
              "rank 1  .0123......ddrccrbbraa..\n"
              "rank 2  ..0123...ddrccrbbraa....\n"
              "rank 3  ...0123ddrccrbbraa......\n");
}

TEST(RenderTimeline, DrawsEagerRecomputeInTheIdleTimeBeforeTheGradient) {
    const Schedule schedule = add_recompute(
        generate(ScheduleKind::GPipe, {.ranks = 4, .micro_batches = 4}), Recompute::Always);
    EXPECT_EQ(render_timeline(timed(schedule), Ms(10)),
              "rank 0  0123r.........ddrccrbbraa\n"
              "rank 1  .0123r......ddrccrbbraa..\n"
              "rank 2  ..0123r...ddrccrbbraa....\n"
              "rank 3  ...0123rddrccrbbraa......\n");
}

/// The pictures above the generators in core/schedules/ are these.
TEST(RenderTimeline, DrawsOneFOneBAsTheCommentOfItsGenerator) {
    const Schedule schedule = generate(ScheduleKind::OneFOneB, {.ranks = 4, .micro_batches = 6});
    EXPECT_EQ(render_timeline(timed(schedule), Ms(10)),
              "rank 0  0123......aa4bb5cc.dd.ee.ff\n"
              "rank 1  .012....aa3bb4cc5dd.ee.ff..\n"
              "rank 2  ..01..aa2bb3cc4dd5ee.ff....\n"
              "rank 3  ...0aa1bb2cc3dd4ee5ff......\n");
}

TEST(RenderTimeline, HasAGlyphForEveryKindOfWork) {
    Timeline timeline;
    timeline.ranks = {{span("0F12", 0, 10),
                       span("0SEND_F12", 10, 10),
                       span("0RECV_B12", 10, 30),
                       span("0I12", 30, 40),
                       span("0W12", 40, 50),
                       span("0B27", 50, 60),
                       span("0REDUCE_GRAD", 60, 70),
                       span("0OPT", 70, 80)}};
    EXPECT_EQ(render_timeline(timeline, Ms(10)), "rank 0  2..mMb##\n");
}

TEST(RenderTimeline, AColumnShowsWhatRanAtItsMiddle) {
    Timeline timeline;
    timeline.ranks = {
        {span("0F1", 0, 6), span("0F2", 6, 14), span("0F3", 16, 17), span("0F4", 25, 31)}};
    EXPECT_EQ(render_timeline(timeline, Ms(10)), "rank 0  1.4.\n");
}

TEST(RenderTimeline, RowsOfTenAndMoreRanksBeginInOneColumn) {
    Timeline timeline;
    timeline.ranks.assign(11, {span("0F0", 0, 10)});
    const std::string text = render_timeline(timeline, Ms(10));
    EXPECT_TRUE(text.starts_with("rank 0   0\n")) << text;
    EXPECT_TRUE(text.ends_with("rank 10  0\n")) << text;
}

std::string fitted_to(const Timeline& timeline, int width) {
    return render_timeline(timeline, fitted_column(timeline, width));
}

TEST(RenderTimeline, AnEmptyTimelineHasEmptyRows) {
    Timeline timeline;
    timeline.ranks.resize(2);
    EXPECT_EQ(render_timeline(timeline, Ms(1)), "rank 0  \nrank 1  \n");
    EXPECT_EQ(fitted_to(timeline, 10), "rank 0  \nrank 1  \n");
}

TEST(RenderTimelineFitted, IsNeverWiderThanAsked) {
    const Timeline timeline =
        timed(generate(ScheduleKind::GPipe, {.ranks = 3, .micro_batches = 5}));
    for (const int width : {1, 7, 20, 21, 22, 80}) {
        const std::string text = fitted_to(timeline, width);
        const std::size_t label = std::string("rank 0  ").size();
        EXPECT_LE(text.find('\n') - label, static_cast<std::size_t>(width));
    }
    EXPECT_EQ(fitted_to(timeline, 21), render_timeline(timeline, Ms(10)));
}

TEST(FittedColumn, HasTheLengthOfTheStepOverTheWidth) {
    Timeline timeline;
    timeline.ranks = {{span("0F0", 0, 100)}};
    EXPECT_EQ(fitted_column(timeline, 50), Ms(2));
}

Timeline with_row(std::vector<Span> row) {
    Timeline timeline;
    timeline.ranks = {std::move(row)};
    return timeline;
}

TEST(TimelineColumns, AreTheLongestUnitOfAllTimes) {
    // 6, 10 and 16 ms are multiples of 2 ms and of no longer time.
    const TimelineColumns columns =
        timeline_columns(with_row({span("0F0", 0, 6), span("0B0", 10, 16)}), 80);
    EXPECT_TRUE(columns.are_units());
    EXPECT_EQ(columns.column, Ms(2));
    EXPECT_EQ(columns.units, 8);
    EXPECT_EQ(timeline_columns(with_row({span("0F0", 0, 7)}), 80).column, Ms(7));
}

TEST(TimelineColumns, MessagesDoNotCountAsTheyAreNotDrawn) {
    const Timeline timeline =
        with_row({span("0F0", 0, 10), span("0SEND_F0", 10, 11), span("0F1", 20, 30)});
    EXPECT_EQ(timeline_columns(timeline, 80).column, Ms(10));
}

TEST(TimelineColumns, AreScaledWhereTheUnitsDoNotFit) {
    const Timeline timeline = with_row({span("0F0", 0, 1), span("0B0", 98, 100)});
    EXPECT_TRUE(timeline_columns(timeline, 100).are_units());
    const TimelineColumns narrow = timeline_columns(timeline, 50);
    EXPECT_FALSE(narrow.are_units());
    EXPECT_EQ(narrow.column, Ms(2));
    EXPECT_EQ(narrow.unit, Ms(1));
    EXPECT_EQ(narrow.units, 100);
}

TEST(TimelineColumns, AreScaledWhereThereIsNoUnit) {
    Timeline timeline = with_row({span("0F0", 0, 100), span("0B0", 100, 200)});
    timeline.ranks[0][1].end = Duration(271'828'183);  // e times 100 ms
    const TimelineColumns columns = timeline_columns(timeline, 80);
    EXPECT_FALSE(columns.unit.has_value());
    EXPECT_EQ(columns.column, fitted_column(timeline, 80));
    EXPECT_FALSE(timeline_columns(Timeline{}, 80).unit.has_value());
}

TEST(TimelineColumns, TimesThatWereRoundedToNanosecondsHaveTheirUnit) {
    // Thirds of a millisecond: 100 of them are as many columns, the last one not idle.
    Timeline timeline;
    timeline.ranks.resize(1);
    for (int third = 0; third < 100; ++third) {
        const auto at = [](int thirds) { return Duration((std::int64_t{1'000'000} * thirds) / 3); };
        Span one = span(third % 2 == 0 ? "0F1" : "0F2", 0, 1);
        one.begin = one.ready = at(third);
        one.end = at(third + 1);
        timeline.ranks[0].push_back(one);
    }
    const TimelineColumns columns = timeline_columns(timeline, 100);
    EXPECT_TRUE(columns.are_units());
    std::string row = "rank 0  ";
    for (int pair = 0; pair < 50; ++pair) {
        row += "12";
    }
    EXPECT_EQ(render_timeline(timeline, columns.column), row + '\n');
}

TEST(TimelineLegend, ExplainsWhatIsDrawnAndNothingElse) {
    Timeline timeline;
    timeline.ranks = {{span("0F0", 0, 1), span("0B0", 1, 2)}};
    EXPECT_EQ(timeline_legend(timeline), "digits forward, letters backward, '.' idle");
    timeline.ranks = {{span("0F0", 0, 1), span("0R0", 1, 2)},
                      {span("0I0", 2, 3), span("0W0", 3, 4), span("0OPT", 4, 5)}};
    EXPECT_EQ(timeline_legend(timeline),
              "digits forward, letters input gradient, capitals weight gradient, r recompute, "
              "# sum of gradients and update, '.' idle");
    timeline.ranks = {{span("0F0", 0, 1), span("0OPT", 1, 1)}};  // an update that takes no time
    EXPECT_EQ(timeline_legend(timeline), "digits forward, '.' idle");
}

TEST(RenderSchedule, IsATableOfCells) {
    EXPECT_EQ(render_schedule(schedule_of({"0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0"})),
              "rank 0  0F0      0SEND_F0 0RECV_B0 0B0\n"
              "rank 1  1RECV_F0 1F0\n");
}

TEST(RenderSchedule, MarksOverlappedPairs) {
    Schedule schedule = schedule_of({"0F1 0B0"});
    schedule.ranks[0][0].with_next = true;
    EXPECT_EQ(render_schedule(schedule), "rank 0  0F1& 0B0\n");
}

TEST(RenderSchedule, CutsLongRowsAndCountsTheRest) {
    const Schedule schedule = generate(ScheduleKind::GPipe, {.ranks = 1, .micro_batches = 4});
    EXPECT_EQ(render_schedule(schedule, 24), "rank 0  0F0 0F1 0F2 0F3 0B3 0B2 (2 more)\n");
}

TEST(RenderSchedule, ShowsALongRowFromShortlyBeforeItsFirstMark) {
    const Schedule schedule = generate(ScheduleKind::GPipe, {.ranks = 1, .micro_batches = 10});
    const std::vector<CellMark> marks{{0, 12}};
    EXPECT_EQ(render_schedule(schedule, 24, marks),
              "rank 0  (9 before) 0F9 0B9 0B8 0B7 0B6 0B5 (5 more)\n"
              "                               ^^^\n");
}

/// A row of twelve cells of ten columns each, marked at its end, below one that is marked at its
/// beginning: at most 70 columns of cells, in the same columns of both rows.
TEST(RenderSchedule, CutsRowsToTheWidthOfATerminalAndKeepsTheirColumns) {
    const Schedule schedule = schedule_of(
        {"0F0 0SEND_F10 0F1 0SEND_F11 0F2 0SEND_F12 0F3 0SEND_F13 0F4 0SEND_F14 0F5 0SEND_F15",
         "1RECV_F10 1F0 1RECV_F11 1F1 1RECV_F12 1F2 1RECV_F13 1F3 1RECV_F14 1F4 1RECV_F15 1F5"});
    const std::vector<CellMark> marks{{0, 0}, {1, 10}};
    EXPECT_EQ(render_schedule(schedule, 70, marks),
              "rank 0             0F0       0SEND_F10 0F1       0SEND_F11 0F2       0SEND_F12 0F3  "
              "     (5 more)\n"
              "                   ^^^\n"
              "rank 1  (5 before) 1F2       1RECV_F13 1F3       1RECV_F14 1F4       1RECV_F15 1F5\n"
              "                                                                     ^^^^^^^^^\n");
}

TEST(RenderSchedule, ShowsOfAWideScheduleOnlyTheRanksThatAreMarked) {
    const Schedule schedule = generate(ScheduleKind::GPipe, {.ranks = 40, .micro_batches = 1});
    const std::vector<CellMark> marks{{33, 1}};
    EXPECT_EQ(render_schedule(schedule, 24, marks),
              "rank 33  33F0 33B0\n"
              "              ^^^^\n");
}

}  // namespace render_test
}  // namespace pipetwin
