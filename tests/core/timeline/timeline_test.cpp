// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/timeline.h"

#include <gtest/gtest.h>

#include "tests/support/spans.h"

namespace pipetwin {
namespace timeline_test {

using std::chrono::milliseconds;
using testing::span;
using testing::timeline_of;

TEST(Timeline, PipelineTimeEndsBeforeTheOptimizer) {
    const Timeline timeline = timeline_of({{span(Op::Forward, 0, 2), span(Op::Backward, 5, 9)},
                                           {span(Op::Forward, 2, 5), span(Op::Optimizer, 9, 12)}});
    EXPECT_EQ(pipeline_time(timeline), Duration(milliseconds(9)));
    EXPECT_EQ(step_time(timeline), Duration(milliseconds(12)));
}

TEST(Timeline, TimesRunFromTheFirstBegin) {
    const Timeline timeline =
        timeline_of({{span(Op::Forward, 4, 6)}, {span(Op::RecvForward, 3, 7)}});
    EXPECT_EQ(pipeline_time(timeline), Duration(milliseconds(4)));
}

TEST(Timeline, WithoutSpansTakesNoTime) {
    EXPECT_EQ(pipeline_time(Timeline{}), Duration{});
    EXPECT_EQ(step_time(timeline_of({{}, {}})), Duration{});
    EXPECT_EQ(aligned(Timeline{}), Timeline{});
}

TEST(Timeline, AligningMovesTheFirstBeginToZeroAndKeepsTheRest) {
    Timeline late = timeline_of({{span(Op::Forward, 4, 6)}, {span(Op::RecvForward, 3, 7)}});
    late.links = {{span(Op::SendForward, 6, 7)}};
    late.ranks[1][0].ready = milliseconds(5);
    const Timeline timeline = aligned(late);
    EXPECT_EQ(timeline.ranks[0][0], span(Op::Forward, 1, 3));
    EXPECT_EQ(timeline.ranks[1][0].begin, Duration{});
    EXPECT_EQ(timeline.ranks[1][0].ready, Duration(milliseconds(2)));
    EXPECT_EQ(timeline.links[0][0], span(Op::SendForward, 3, 4));
    EXPECT_EQ(step_time(timeline), step_time(late));
}

TEST(Timeline, OriginHasAWord) {
    EXPECT_EQ(to_string(Origin::Predicted), "predicted");
    EXPECT_EQ(to_string(Origin::Measured), "measured");
    EXPECT_EQ(to_string(Origin::Emulated), "emulated");
}

}  // namespace timeline_test
}  // namespace pipetwin
