// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/op_rows.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/generators/generate.h"
#include "gui/view/analysis/step_analysis.h"
#include "tests/gui/canned.h"
#include "tests/gui/planned.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::gui {
namespace op_rows_test {

using ::testing::Each;
using ::testing::SizeIs;

std::shared_ptr<const RunData> three_steps() {
    return std::make_shared<const RunData>(
        canned_run({.ranks = 3, .micro_batches = 4, .jitter = 0.1, .steps = 3}));
}

std::vector<int> filtered(const OpRows& rows, const char* text) {
    const auto filter = parse_filter(text);
    if (!filter) {
        ADD_FAILURE() << text;
        return {};
    }
    return ordered_rows(rows, *filter, OpColumn::Step, false);
}

TEST(OpRows, AreAllSpansOfAllSteps) {
    const auto run = three_steps();
    const OpRows rows(run);
    int expected = 0;
    for (int step = 0; step < 3; ++step) {
        for (int rank = 0; rank < 3; ++rank) {
            for (int cell = 0; cell < run->twin.row(Side::Measured, step, rank)->size(); ++cell) {
                const SpanRef ref{.side = Side::Measured, .step = step, .rank = rank, .cell = cell};
                EXPECT_EQ(rows.ref(expected), ref);
                EXPECT_EQ(rows.row_of(ref), expected);
                SpanRef twin = ref;
                twin.side = Side::Predicted;
                EXPECT_EQ(rows.row_of(twin), expected);
                ++expected;
            }
        }
    }
    EXPECT_EQ(rows.size(), expected);
    EXPECT_EQ(rows.row_of({.side = Side::Measured, .step = 3}), std::nullopt);
    EXPECT_EQ(rows.row_of({.rank = -1}), std::nullopt);
    EXPECT_EQ(OpRows().size(), 0);
    EXPECT_EQ(OpRows().row_of({}), std::nullopt);
}

TEST(OpRows, NumbersAreThoseOfTheSpans) {
    const auto run = three_steps();
    const OpRows rows(run);
    const StepAnalysis predicted(run, Side::Predicted, 0);
    for (int row = 0; row < rows.size(); ++row) {
        const SpanRef at = rows.ref(row);
        SpanRef there = at;
        there.side = Side::Predicted;
        const Span measured = *run->twin.span(at);
        const Span wanted = *run->twin.span(there);
        EXPECT_EQ(rows.number(row, OpColumn::MeasuredBegin), measured.begin.count());
        EXPECT_EQ(rows.number(row, OpColumn::PredictedDuration),
                  (wanted.end - wanted.ready).count());
        EXPECT_EQ(rows.number(row, OpColumn::PredictedWait), predicted.wait_of(there).count());
        if (is_send(measured.action.op) || is_receive(measured.action.op)) {
            EXPECT_TRUE(std::isnan(rows.number(row, OpColumn::Error)));
            continue;
        }
        const double p = to_seconds(wanted.end - wanted.ready);
        const double m = to_seconds(measured.end - measured.ready);
        EXPECT_NEAR(rows.number(row, OpColumn::Error), p == m ? 0 : 100 * (p - m) / m, 1e-9);
    }
}

/// The first step of a trace was step 0 in the window, and another one on the terminal.
TEST(OpRows, NameAndFindStepsByTheirNumberInTheTraining) {
    RunData run = canned_run({.steps = 2});
    run.measured->step_numbers = {7, 19};
    const OpRows rows(std::make_shared<const RunData>(std::move(run)));
    EXPECT_EQ(rows.number(0, OpColumn::Step), 7);
    EXPECT_EQ(rows.number(rows.size() - 1, OpColumn::Step), 19);
    const std::vector<int> found =
        ordered_rows(rows, parse_filter("step 19").value(), OpColumn::Step, false);
    EXPECT_EQ(std::ssize(found), rows.size() / 2);
    EXPECT_EQ(rows.ref(found.front()).step, 1);
    EXPECT_TRUE(ordered_rows(rows, parse_filter("step 1").value(), OpColumn::Step, false).empty());
}

TEST(OpRows, OfRowsThatDifferCompareTheSameActions) {
    RunData run = canned_run();  // without jitter: every action is as long as predicted
    std::vector<Span> row = run.twin.measured[0].ranks[1].spans();
    std::erase_if(row, [](const Span& span) { return span.action.op == Op::Forward; });
    run.twin.measured[0].ranks[1] = RowIndex(row);
    run.twin.match();
    const OpRows rows(std::make_shared<const RunData>(std::move(run)));
    int backwards = 0;
    for (int i = 0; i < rows.size(); ++i) {
        if (rows.action(i).op == Op::Backward) {
            EXPECT_EQ(rows.number(i, OpColumn::Error), 0) << to_string(rows.action(i));
            ++backwards;
        }
    }
    EXPECT_EQ(backwards, 6);
}

TEST(OpRows, AreOrderedByEveryColumnBothWays) {
    const auto run = three_steps();
    OpRows rows(run);
    rows.set_critical(std::make_shared<const OpRows::CriticalCells>(rows.find_critical()));
    for (int column = 0; column < op_column_count; ++column) {
        for (const bool descending : {false, true}) {
            const auto key = static_cast<OpColumn>(column);
            const std::vector<int> order = ordered_rows(rows, {}, key, descending);
            ASSERT_EQ(std::ssize(order), rows.size());
            for (std::size_t i = 1; i < order.size(); ++i) {
                const double a = rows.number(order[i - 1], key);
                const double b = rows.number(order[i], key);
                EXPECT_FALSE(std::isnan(a) && !std::isnan(b));
                EXPECT_FALSE(descending ? a < b : a > b);
                EXPECT_TRUE(a != b || order[i - 1] < order[i]);
            }
        }
    }
}

TEST(OpFilter, KnowsTheWordsOfTheSearch) {
    const OpRows rows(three_steps());
    EXPECT_THAT(filtered(rows, ""), SizeIs(rows.size()));
    EXPECT_THAT(filtered(rows, "1B2"), SizeIs(3));
    EXPECT_THAT(filtered(rows, "F"), SizeIs(3 * 3 * 4));
    EXPECT_THAT(filtered(rows, "f, rank 1"), SizeIs(3 * 4));
    EXPECT_THAT(filtered(rows, "F and step 2 and rank 1"), SizeIs(4));
    EXPECT_THAT(filtered(rows, "F,B"), SizeIs(0));  // both at once
}

TEST(OpFilter, ComparesNumbers) {
    const OpRows rows(three_steps());
    const auto errors = [&](const char* text) {
        std::vector<double> found;
        for (const int row : filtered(rows, text)) {
            found.push_back(rows.number(row, OpColumn::Error));
        }
        return found;
    };
    int beyond = 0;
    for (int row = 0; row < rows.size(); ++row) {
        beyond += std::abs(rows.number(row, OpColumn::Error)) > 5 ? 1 : 0;
    }
    EXPECT_GT(beyond, 0);
    EXPECT_THAT(errors("error > 5"), SizeIs(beyond));
    EXPECT_THAT(errors("error > 5 %"), SizeIs(beyond));
    EXPECT_THAT(errors("error < -5"), Each(::testing::Lt(-5)));
    EXPECT_EQ(errors("error < -5").size() + errors("error > +5").size(),
              static_cast<std::size_t>(beyond));
    for (const int row : filtered(rows, "duration > 1.5, B")) {
        EXPECT_GT(rows.number(row, OpColumn::MeasuredDuration), 1.5e6);
    }
    EXPECT_THAT(filtered(rows, "duration > 1.5 ms, F"), SizeIs(0));
}

TEST(OpFilter, RefusesWhatItDoesNotKnow) {
    for (const char* const text : {"nonsense",
                                   "error >",
                                   "error > x",
                                   "size > 5",
                                   "F, nonsense",
                                   "step x",
                                   "> 5",
                                   "error > inf"}) {
        EXPECT_FALSE(parse_filter(text)) << text;
    }
}

TEST(OpFilter, FindsTheCriticalPathOfEverySide) {
    const Plan plan = make_plan(pipetwin::testing::plain(ScheduleKind::OneFOneB, 3, 4));
    std::mt19937 random(41);
    const auto run = planned_run(plan, {jittered_step(plan, random), jittered_step(plan, random)});
    OpRows rows(run);
    EXPECT_THAT(filtered(rows, "critical"), SizeIs(0));  // not known yet
    rows.set_critical(std::make_shared<const OpRows::CriticalCells>(rows.find_critical()));
    for (int row = 0; row < rows.size(); ++row) {
        const SpanRef measured = rows.ref(row);
        SpanRef predicted = measured;
        predicted.side = Side::Predicted;
        const bool p = analysis_of(run, Side::Predicted, 0)->on_critical_path(predicted);
        const bool m = analysis_of(run, Side::Measured, measured.step)->on_critical_path(measured);
        EXPECT_EQ(rows.number(row, OpColumn::Critical), (p ? 1 : 0) + (m ? 2 : 0));
    }
    EXPECT_FALSE(filtered(rows, "critical").empty());
}

TEST(OpFilter, OfARunWithOneSideIsAboutThatSide) {
    const Plan plan = make_plan(pipetwin::testing::plain(ScheduleKind::GPipe, 2, 3));
    const OpRows rows(planned_run(plan));
    EXPECT_THAT(filtered(rows, "duration > 1.5"), SizeIs(2 * 3));  // backwards take 2 ms
    EXPECT_TRUE(std::isnan(rows.number(0, OpColumn::Error)));
}

}  // namespace op_rows_test
}  // namespace pipetwin::gui
