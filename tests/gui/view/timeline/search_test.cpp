// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/canned.h"
#include "tests/gui/planned.h"

namespace pipetwin::gui {
namespace search_test {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(SearchQuery, ReadsActionsAndTheirParts) {
    EXPECT_EQ(parse_query("1B2"), (SearchQuery{.op = Op::Backward, .stage = 1, .micro_batch = 2}));
    EXPECT_EQ(parse_query("b2"), (SearchQuery{.op = Op::Backward, .micro_batch = 2}));
    EXPECT_EQ(parse_query("1B"), (SearchQuery{.op = Op::Backward, .stage = 1}));
    EXPECT_EQ(parse_query("12SEND_F34"),
              (SearchQuery{.op = Op::SendForward, .stage = 12, .micro_batch = 34}));
    EXPECT_EQ(parse_query(" opt  rank 3 "), (SearchQuery{.op = Op::Optimizer, .rank = 3}));
    EXPECT_EQ(parse_query("stage 2 mb 5"), (SearchQuery{.stage = 2, .micro_batch = 5}));
    EXPECT_EQ(parse_query("0send_f2>3"),
              (SearchQuery{.op = Op::SendForward, .stage = 0, .micro_batch = 2, .peer = 3}));
    EXPECT_EQ(parse_query("RECV_B<12"), (SearchQuery{.op = Op::RecvBackward, .peer = 12}));
}

TEST(SearchQuery, RefusesWhatIsNone) {
    for (const char* const text : {"",
                                   "  ",
                                   "X",
                                   "1",
                                   "rank",
                                   "rank x",
                                   "1B2C",
                                   "B-1",
                                   "99999999999999999999B",
                                   "0SEND_F2>",
                                   "0SEND_F2>x",
                                   "0SEND_F2<3",
                                   "0RECV_F2>3",
                                   "0F2>3",
                                   "rank 1 oops"}) {
        EXPECT_EQ(parse_query(text), std::nullopt) << text;
    }
}

TEST(Search, FindsWhatFitsInEveryPart) {
    const RunData run = canned_run({.ranks = 3, .micro_batches = 4});
    const auto found = [&](const char* text) {
        return find_spans(run.twin, Side::Measured, 0, *parse_query(text));
    };
    EXPECT_THAT(found("F"), SizeIs(12));
    EXPECT_THAT(found("1F"), SizeIs(4));
    EXPECT_THAT(found("F3"), SizeIs(3));
    EXPECT_THAT(found("F rank 2"), SizeIs(4));
    EXPECT_THAT(found("2B1"), SizeIs(1));
    EXPECT_THAT(found("opt mb 0"), IsEmpty()) << "an update has no micro-batch";
    EXPECT_THAT(found("2B1 rank 0"), IsEmpty());
}

TEST(Search, FindsSkipMessagesByTheStageAtTheirOtherEnd) {
    const auto run = run_with_skips(4);
    const auto found = [&](const char* text) {
        return find_spans(run->twin, Side::Predicted, 0, *parse_query(text));
    };
    EXPECT_THAT(found("0SEND_F2>3"), SizeIs(1));
    EXPECT_THAT(found("0SEND_F>3"), SizeIs(4));
    EXPECT_THAT(found("0SEND_F2"), SizeIs(3)) << "to stages 1, 2 and 3";
    EXPECT_THAT(found("RECV_F<0"), SizeIs(12)) << "of stages 1, 2 and 3";
    EXPECT_THAT(found("0SEND_F2>0"), IsEmpty());
}

TEST(Search, WalksInTheOrderOfTimeAndRound) {
    const RunData run = canned_run({.ranks = 2, .micro_batches = 3});
    const auto found = find_spans(run.twin, Side::Predicted, 0, *parse_query("F"));
    std::optional<SpanRef> at;
    Duration last{-1};
    for (std::size_t i = 0; i < found.size(); ++i) {
        at = next_found(run.twin, found, at, +1);
        EXPECT_GE(run.twin.span(*at)->begin, last);
        last = run.twin.span(*at)->begin;
    }
    const SpanRef end = *at;
    const SpanRef first = *next_found(run.twin, found, end, +1);
    EXPECT_EQ(run.twin.span(first)->begin, Duration{0});
    EXPECT_EQ(next_found(run.twin, found, first, -1), end);
    EXPECT_EQ(next_found(run.twin, {}, first, +1), std::nullopt);
}

}  // namespace search_test
}  // namespace pipetwin::gui
