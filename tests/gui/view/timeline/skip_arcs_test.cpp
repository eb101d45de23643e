// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/skip_arcs.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "core/schedule/edge.h"
#include "tests/gui/canned.h"
#include "tests/gui/planned.h"

namespace pipetwin::gui {
namespace skip_arcs_test {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int micro_batches = 4;
constexpr std::size_t messages = 4 * micro_batches;  // two outputs and their gradients for each

constexpr double width = 1'000;
constexpr double height = 600;

class SkipArcsTest : public ::testing::Test {
  protected:
    RowLayout layout(Mode mode, const Tracks& tracks) const {
        return layout_rows(run_->twin, mode, tracks, {});
    }
    RowLayout layout(Mode mode = Mode::Both) const {
        return layout(mode, tracks_of(run_->twin.rank_count()));
    }

    /// All of the step.
    Sight whole() const {
        return {
            .view = fitted(Duration{0}, places_.length(), width), .width = width, .height = height};
    }

    std::vector<SkipArc> seen(const Sight& sight, const RowLayout& rows) {
        return arcs_.in_sight(run_->twin, places_, rows, sight);
    }

    Action action_of(const SpanRef& ref) const { return run_->twin.span(ref)->action; }

    std::shared_ptr<const RunData> run_ = run_with_skips(micro_batches);
    StepPlaces places_{run_->twin, Alignment::Start};
    SkipArcs arcs_;
};

TEST_F(SkipArcsTest, MessagesAreThoseOfThePlan) {
    EXPECT_TRUE(has_skip_messages(run_->twin));
    const StepRows& rows = run_->twin.predicted[0];
    const std::vector<SkipMessage> found = skip_messages(rows);
    ASSERT_THAT(found, SizeIs(messages));
    for (const SkipMessage& message : found) {
        const Action send = rows.ranks[as_index(message.from_rank)].action(message.send);
        EXPECT_EQ(rows.ranks[as_index(message.to_rank)].action(message.receive), other_end(send));
        EXPECT_NE(send.hop, 0);
        EXPECT_EQ(message.gradient, send.op == Op::SendBackward);
    }
    EXPECT_EQ(std::ranges::count(found, true, &SkipMessage::gradient), messages / 2);
}

TEST_F(SkipArcsTest, OfARunWithoutSkipsThereAreNone) {
    const RunData canned = canned_run({.ranks = 4});
    EXPECT_FALSE(has_skip_messages(canned.twin));
    EXPECT_FALSE(has_skip_messages(Twin{}));
    EXPECT_THAT(skip_messages(canned.twin.predicted[0]), IsEmpty());
    EXPECT_THAT(arcs_.in_sight({}, {}, {}, {.view = {}, .width = width, .height = height}),
                IsEmpty());
}

TEST_F(SkipArcsTest, LeadFromTheEndOfTheSendToTheEndOfTheReceive) {
    const Sight sight = whole();
    const RowLayout rows = layout();
    const std::vector<SkipArc> arcs = seen(sight, rows);
    ASSERT_THAT(arcs, SizeIs(2 * messages)) << "of both sides";
    std::set<std::tuple<Side, int, int>> sends;
    for (const SkipArc& arc : arcs) {
        EXPECT_EQ(action_of(arc.receive), other_end(action_of(arc.send)));
        EXPECT_EQ(arc.send.side, arc.receive.side);
        sends.emplace(arc.send.side, arc.send.rank, arc.send.cell);
        const Row& from = *rows.row_of(arc.send.side, arc.send.rank);
        const Row& to = *rows.row_of(arc.receive.side, arc.receive.rank);
        EXPECT_DOUBLE_EQ(arc.curve.begin.x, sight.view.x_of(run_->twin.span(arc.send)->end));
        EXPECT_DOUBLE_EQ(arc.curve.end.x, sight.view.x_of(run_->twin.span(arc.receive)->end));
        EXPECT_EQ(arc.curve.gradient, arc.send.rank > arc.receive.rank);
        EXPECT_EQ(arc.curve.begin.y, arc.curve.gradient ? from.y : from.y + from.height);
        EXPECT_EQ(arc.curve.end.y, arc.curve.gradient ? to.y + to.height : to.y);
    }
    EXPECT_THAT(sends, SizeIs(2 * messages)) << "each once";
}

TEST_F(SkipArcsTest, AreThoseOfTheRowsThatAreShown) {
    const std::vector<SkipArc> predicted = seen(whole(), layout(Mode::Predicted));
    EXPECT_THAT(predicted, SizeIs(messages));
    for (const SkipArc& arc : predicted) {
        EXPECT_EQ(arc.send.side, Side::Predicted);
    }
    EXPECT_THAT(seen(whole(), layout(Mode::Error)), IsEmpty());
    Tracks tracks = tracks_of(4);
    tracks[3].hidden = true;
    EXPECT_THAT(seen(whole(), layout(Mode::Predicted, tracks)), SizeIs(messages / 2))
        << "those to stage 2";
}

TEST_F(SkipArcsTest, AreDrawnFromTheWidthOnAtWhichActionsAreRead) {
    // 4 micro-batches of F 1 ms and B 2 ms: the mean predicted action takes 1.5 ms.
    Sight sight = whole();
    const RowLayout rows = layout(Mode::Predicted);
    sight.view.ns_per_pixel = 1.5e6 / narrowest_with_arcs;
    EXPECT_THAT(seen(sight, rows), SizeIs(messages));
    sight.view.ns_per_pixel *= 1.001;
    EXPECT_THAT(seen(sight, rows), IsEmpty());
}

TEST_F(SkipArcsTest, HaveAnEndInSight) {
    Sight sight = whole();
    const RowLayout rows = layout(Mode::Predicted);
    const std::vector<SkipArc> all = seen(sight, rows);
    const Duration middle = places_.length() / 3;
    sight.view = {.origin = middle, .ns_per_pixel = 1'000};  // a millisecond is seen
    const auto inside = [&](const SpanRef& ref) {
        const Duration end = run_->twin.span(ref)->end;
        return end >= middle && end <= middle + std::chrono::milliseconds(1);
    };
    const auto expected = std::ranges::count_if(
        all, [&](const SkipArc& arc) { return inside(arc.send) || inside(arc.receive); });
    ASSERT_GT(expected, 0);
    ASSERT_LT(expected, std::ssize(all));
    EXPECT_EQ(std::ssize(seen(sight, rows)), expected);
}

TEST_F(SkipArcsTest, MoveWithTheRowsThatAreScrolled) {
    Sight sight = whole();
    const RowLayout rows = layout(Mode::Predicted);
    const std::vector<SkipArc> before = seen(sight, rows);
    sight.scroll = 5;
    const std::vector<SkipArc> after = seen(sight, rows);
    ASSERT_EQ(after.size(), before.size());
    EXPECT_DOUBLE_EQ(after[0].curve.begin.y, before[0].curve.begin.y - 5);
    sight.scroll = rows.height + height;
    EXPECT_THAT(seen(sight, rows), IsEmpty());
}

TEST_F(SkipArcsTest, OfTheSameSightAreTheSameWhetherRememberedOrNot) {
    const Sight sight = whole();
    const RowLayout rows = layout();
    const std::vector<SkipArc> first = seen(sight, rows);
    const auto expect_same = [&](const std::vector<SkipArc>& again) {
        ASSERT_EQ(again.size(), first.size());
        for (std::size_t i = 0; i < first.size(); ++i) {
            EXPECT_EQ(again[i].send, first[i].send);
            EXPECT_EQ(again[i].receive, first[i].receive);
        }
    };
    expect_same(seen(sight, rows));
    arcs_.forget();
    expect_same(seen(sight, rows));
}

TEST_F(SkipArcsTest, OfAMessageIsThereHoweverNarrow) {
    Sight sight = whole();
    sight.view.ns_per_pixel *= 1'000;
    const RowLayout rows = layout(Mode::Measured);
    const SpanRef receive = find(
        *run_, Side::Measured, {.op = Op::RecvForward, .stage = 3, .micro_batch = 1, .hop = 2});
    const SpanRef send = *partner_of(run_->twin, receive);
    const auto arc = arc_between(run_->twin, places_, rows, sight, send, receive);
    ASSERT_TRUE(arc);
    EXPECT_EQ(arc->send, send);
    EXPECT_FALSE(arc->curve.gradient);
    EXPECT_FALSE(arc_between(run_->twin, places_, layout(Mode::Predicted), sight, send, receive));
}

TEST(SkipArcs, OfThousandsOfMessagesAreFew) {
    const auto run = run_with_skips(2'000);
    const StepPlaces places(run->twin, Alignment::Start);
    const Sight wide{
        .view = {.origin = Duration{0}, .ns_per_pixel = 1e5}, .width = 100'000, .height = height};
    SkipArcs arcs;
    const auto shown = arcs.in_sight(
        run->twin,
        places,
        layout_rows(run->twin, Mode::Predicted, tracks_of(run->twin.rank_count()), {}),
        wide);
    EXPECT_LE(shown.size(), svg::most_curves);
    EXPECT_GE(shown.size(), svg::most_curves / 4);
}

}  // namespace skip_arcs_test
}  // namespace pipetwin::gui
