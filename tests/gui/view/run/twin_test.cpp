// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/twin.h"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

#include "tests/gui/canned.h"
#include "tests/gui/planned.h"

namespace pipetwin::gui {
namespace twin_test {

const Action f0_of_1{.op = Op::Forward, .stage = 1, .micro_batch = 0};
const Action b2_of_0{.op = Op::Backward, .stage = 0, .micro_batch = 2};

TEST(Mode, ThereAreFiveAndThenTheFirstAgain) {
    Mode mode = Mode::Both;
    for (const Mode expected :
         {Mode::Predicted, Mode::Measured, Mode::Error, Mode::Ghost, Mode::Both}) {
        mode = next(mode);
        EXPECT_EQ(mode, expected);
    }
}

TEST(Mode, ShowsWhatItNames) {
    EXPECT_TRUE(shows(Mode::Both, Side::Predicted) && shows(Mode::Both, Side::Measured));
    EXPECT_TRUE(shows(Mode::Measured, Side::Measured));
    EXPECT_FALSE(shows(Mode::Measured, Side::Predicted));
    EXPECT_FALSE(shows(Mode::Predicted, Side::Measured));
    EXPECT_TRUE(shows(Mode::Ghost, Side::Measured));
    EXPECT_FALSE(shows(Mode::Ghost, Side::Predicted)) << "it has outlines, no row";
    EXPECT_FALSE(shows(Mode::Error, Side::Measured) || shows(Mode::Error, Side::Predicted));
}

TEST(Twin, AnEmptyOneAnswersNothing) {
    const Twin twin;
    EXPECT_EQ(twin.rank_count(), 0);
    EXPECT_EQ(twin.length(0), Duration{0});
    EXPECT_EQ(twin.span({}), std::nullopt);
    EXPECT_EQ(twin.row(Side::Measured, 0, 0), nullptr);
    EXPECT_EQ(first_action(twin, Mode::Both, 0), std::nullopt);
}

TEST(Twin, LengthIsThatOfTheLongerSide) {
    const RunData run = canned_run({.jitter = 0.1});
    EXPECT_EQ(run.twin.length(0),
              std::max(run.twin.predicted[0].length, run.twin.measured[0].length));
}

/// A run whose measured rank 0 has no F1, and B0 before B1.
RunData run_apart() {
    RunData run = canned_run({.jitter = 0.1});
    std::vector<Span> row = run.twin.measured[0].ranks[0].spans();
    const auto place = [&row](Op op, int micro_batch) {
        return std::ranges::find_if(row, [&](const Span& span) {
            return span.action.op == op && span.action.micro_batch == micro_batch;
        });
    };
    std::swap(place(Op::Backward, 0)->action, place(Op::Backward, 1)->action);
    row.erase(place(Op::Forward, 1));
    run.twin.measured[0].ranks[0] = RowIndex(row);
    run.twin.match();
    return run;
}

TEST(Match, RowsOfTheSameActionsArePairedByTheirPlaces) {
    RunData run = canned_run({.jitter = 0.1, .steps = 2});
    run.twin.match();
    EXPECT_TRUE(run.twin.apart.empty());
    EXPECT_TRUE(alone(run.twin, 0).empty());
}

TEST(Match, RowsThatDifferArePairedByTheirActions) {
    const RunData run = run_apart();
    ASSERT_NE(run.twin.pair(0, 0), nullptr);
    EXPECT_EQ(run.twin.pair(0, 1), nullptr);
    const RowIndex& row = run.twin.predicted[0].ranks[0];
    int paired = 0;
    for (int cell = 0; cell < row.size(); ++cell) {
        const SpanRef ref{.side = Side::Predicted, .step = 0, .rank = 0, .cell = cell};
        if (const auto twin = twin_of(run.twin, ref)) {
            EXPECT_EQ(run.twin.span(*twin)->action, row.action(cell));
            EXPECT_EQ(twin_of(run.twin, *twin), ref);
            ++paired;
        }
    }
    EXPECT_EQ(paired, row.size() - 1);
}

TEST(Match, NamesWhatOnlyOneSideHas) {
    const RunData run = run_apart();
    const std::vector<SpanRef> found = alone(run.twin, 0);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].side, Side::Predicted);
    EXPECT_EQ(to_string(run.twin.span(found[0])->action), "0F1");
}

TEST(Match, OfARankThatOneSideHasAloneNamesAllItComputes) {
    RunData run = canned_run({.ranks = 2, .micro_batches = 3});
    run.twin.measured[0].ranks.pop_back();
    run.twin.match();
    const std::vector<SpanRef> found = alone(run.twin, 0);
    EXPECT_EQ(found.size(), 6U);  // F and B of three micro-batches
    for (const SpanRef& ref : found) {
        EXPECT_EQ(ref.side, Side::Predicted);
        EXPECT_EQ(ref.rank, 1);
        EXPECT_EQ(twin_of(run.twin, ref), std::nullopt);
    }
}

TEST(Navigation, StepsThroughTheRowPassingOverWhatTakesNoTime) {
    const RunData run = canned_run();
    std::optional<SpanRef> at = first_action(run.twin, Mode::Both, 0);
    std::string walk;
    for (; at; at = next_in_row(run.twin, *at, +1)) {
        walk += to_string(run.twin.span(*at)->action) + " ";
    }
    // Sends and the receives of the later gradients take no time.
    EXPECT_EQ(walk, "0F0 0F1 0F2 0RECV_B2 0B2 0B1 0B0 0OPT ");
}

TEST(Navigation, StepsBackTheSameWay) {
    const RunData run = canned_run();
    const SpanRef from = find(run, Side::Measured, b2_of_0);
    const auto forth = next_in_row(run.twin, from, +1);
    ASSERT_TRUE(forth);
    EXPECT_EQ(next_in_row(run.twin, *forth, -1), from);
}

TEST(Navigation, EndsAtTheEndsOfTheRow) {
    const RunData run = canned_run();
    const SpanRef first = *first_action(run.twin, Mode::Both, 0);
    EXPECT_EQ(next_in_row(run.twin, first, -1), std::nullopt);
}

TEST(Navigation, TheTwinOfTheTwinIsTheAction) {
    const RunData run = canned_run({.jitter = 0.1});
    const SpanRef here = find(run, Side::Predicted, f0_of_1);
    const auto there = twin_of(run.twin, here);
    ASSERT_TRUE(there);
    EXPECT_EQ(there->side, Side::Measured);
    EXPECT_EQ(run.twin.span(*there)->action, f0_of_1);
    EXPECT_EQ(twin_of(run.twin, *there), here);
}

TEST(Navigation, AnActionThatTheOtherSideLacksHasNoTwin) {
    RunData run = canned_run();
    const SpanRef here = find(run, Side::Predicted, f0_of_1);
    run.twin.measured[0].ranks[1] = RowIndex();
    EXPECT_EQ(twin_of(run.twin, here), std::nullopt);
    run.twin.measured.clear();
    EXPECT_EQ(twin_of(run.twin, here), std::nullopt);
}

TEST(Navigation, DownGoesToTheSameTimeOnTheRowBelow) {
    const RunData run = canned_run();
    const SpanRef here = find(run, Side::Measured, b2_of_0);  // 6 to 8 ms
    const auto below = in_next_row(run.twin, Mode::Both, here, +1);
    ASSERT_TRUE(below);
    EXPECT_EQ(below->rank, 1);
    EXPECT_EQ(below->side, Side::Predicted);
    EXPECT_EQ(to_string(run.twin.span(*below)->action), "1B1");
}

TEST(Navigation, DownSkipsHiddenRowsAndEndsAtTheLast) {
    const RunData run = canned_run();
    const SpanRef here = find(run, Side::Measured, b2_of_0);
    const auto below = in_next_row(run.twin, Mode::Measured, here, +1);
    ASSERT_TRUE(below);
    EXPECT_EQ(below->side, Side::Measured);
    EXPECT_EQ(in_next_row(run.twin, Mode::Measured, *below, +1), std::nullopt);
    EXPECT_EQ(in_next_row(run.twin, Mode::Measured, here, -1), std::nullopt);
}

TEST(Navigation, AReceiveKnowsItsSendAndBack) {
    const RunData run = canned_run();
    const SpanRef receive =
        find(run, Side::Measured, {.op = Op::RecvBackward, .stage = 0, .micro_batch = 2});
    const auto send = partner_of(run.twin, receive);
    ASSERT_TRUE(send);
    EXPECT_EQ(to_string(run.twin.span(*send)->action), "1SEND_B2");
    EXPECT_EQ(partner_of(run.twin, *send), receive);
    EXPECT_EQ(partner_of(run.twin, find(run, Side::Measured, f0_of_1)), std::nullopt);
}

TEST(Navigation, EachOfSeveralReceivesOfAStageKnowsItsOwnSend) {
    const auto run = run_with_skips();
    const auto sender_of = [&run](std::int16_t hop) {
        const SpanRef receive =
            find(*run,
                 Side::Measured,
                 {.op = Op::RecvBackward, .stage = 0, .micro_batch = 1, .hop = hop});
        const auto send = partner_of(run->twin, receive);
        return send ? to_string(run->twin.span(*send)->action) : "";
    };
    EXPECT_EQ(sender_of(0), "1SEND_B1");
    EXPECT_EQ(sender_of(1), "2SEND_B1>0");
    EXPECT_EQ(sender_of(2), "3SEND_B1>0");
}

TEST(Match, SkipMessagesArePairedByTheirOtherEnds) {
    RunData run = *run_with_skips();
    std::vector<Span> row = run.twin.measured[0].ranks[0].spans();
    row.pop_back();  // so that the rows differ
    run.twin.measured[0].ranks[0] = RowIndex(row);
    run.twin.match();
    ASSERT_NE(run.twin.pair(0, 0), nullptr);
    for (int cell = 0; cell < static_cast<int>(row.size()); ++cell) {
        const SpanRef here{.side = Side::Measured, .step = 0, .rank = 0, .cell = cell};
        const auto there = twin_of(run.twin, here);
        ASSERT_TRUE(there);
        EXPECT_EQ(run.twin.span(*there)->action, run.twin.span(here)->action);
    }
}

// A step that begins late, with messages: drawn from 0 on, whoever keeps the timeline.
TEST(StepRows, AreMovedToZeroWhetherTheTimelineIsTakenOrNot) {
    using Us = std::chrono::microseconds;
    const auto at = [](Op op, int begin, int ready, int end) {
        return Span{{.op = op}, Us(begin), Us(ready), Us(end)};
    };
    Timeline timeline{
        .origin = Origin::Measured,
        .ranks = {{at(Op::RecvForward, 120, 150, 160), at(Op::Forward, 160, 160, 200)},
                  {},
                  {at(Op::Forward, 100, 100, 130),
                   at(Op::SendForward, 130, 140, 140),
                   at(Op::Optimizer, 250, 250, 260)}},
        .links = {{at(Op::SendForward, 140, 140, 150)}, {}},
        .host_copies = {{at(Op::Forward, 130, 130, 170)}},
        .replicas = {}};
    const StepRows kept(timeline);
    EXPECT_EQ(kept.timeline(), aligned(timeline));
    EXPECT_EQ(kept.length, step_time(timeline));
    EXPECT_EQ(kept.pipeline, pipeline_time(timeline));
    EXPECT_EQ(kept.length, Us(160));
    EXPECT_EQ(kept.pipeline, Us(100));
    std::vector<std::vector<Action>> rows;
    for (const auto& row : timeline.ranks) {
        std::vector<Action>& actions = rows.emplace_back();
        std::ranges::transform(row, std::back_inserter(actions), &Span::action);
    }
    timeline.origin = Origin::Predicted;  // as times without actions are
    const StepRows of_times(rows, step_times(timeline));
    EXPECT_EQ(of_times.timeline(), aligned(timeline));
    EXPECT_EQ(of_times.length, kept.length);
    EXPECT_EQ(of_times.pipeline, kept.pipeline);
    EXPECT_EQ(StepRows(Timeline{}).timeline(), Timeline{});
    EXPECT_EQ(StepRows(std::vector<std::vector<Action>>{}, StepTimes{}).timeline(), Timeline{});
}

}  // namespace twin_test
}  // namespace pipetwin::gui
