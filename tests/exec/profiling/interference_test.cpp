// SPDX-License-Identifier: Apache-2.0
#include "exec/profiling/interference.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipetwin::exec {
namespace interference_test {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

Span span(Op op, int stage, int micro_batch, int begin, int ready, int end) {
    return {.action = {.op = op, .stage = stage, .micro_batch = micro_batch},
            .begin = milliseconds(begin),
            .ready = milliseconds(ready),
            .end = milliseconds(end)};
}

TEST(ActionTimes, SayHowManyOthersComputedMeanwhile) {
    Timeline timeline;
    //          0123456789
    //  rank 0  FFFFBBBBBB
    //  rank 1  ..FFF..O..    waits for its first action; O: an update
    //  rank 2  ...BB.....
    timeline.ranks = {{span(Op::Forward, 0, 0, 0, 0, 4), span(Op::Backward, 0, 0, 4, 4, 10)},
                      {span(Op::RecvForward, 1, 0, 0, 2, 2),
                       span(Op::Forward, 1, 0, 2, 2, 5),
                       span(Op::Optimizer, 1, 0, 5, 7, 8)},
                      {span(Op::Backward, 2, 0, 0, 3, 5)}};
    const StepActions all = action_times(timeline, {0, 0, 0});
    ASSERT_EQ(all.size(), 3);
    ASSERT_EQ(all[0].size(), 2);
    EXPECT_THAT(all[0][0].beside, ElementsAre(milliseconds(2), milliseconds(1), milliseconds(1)));
    EXPECT_THAT(all[0][1].beside, ElementsAre(milliseconds(4), milliseconds(1), milliseconds(1)));
    EXPECT_EQ(all[0][1].time(), milliseconds(6));
    ASSERT_EQ(all[1].size(), 2) << "a message is no action of the device";
    EXPECT_THAT(all[1][0].beside, ElementsAre(milliseconds(0), milliseconds(1), milliseconds(2)));
    EXPECT_THAT(all[1][1].beside, ElementsAre(milliseconds(0), milliseconds(1), milliseconds(0)))
        << "the wait before an update does not count";

    const StepActions apart = action_times(timeline, {0, 1, 0});
    EXPECT_THAT(apart[0][0].beside, ElementsAre(milliseconds(3), milliseconds(1), milliseconds(0)));
    EXPECT_THAT(apart[1][0].beside, ElementsAre(milliseconds(3), milliseconds(0), milliseconds(0)));
}

TEST(ActionTimes, KnowTheBackwardThatWritesTheGradients) {
    Timeline timeline;
    timeline.ranks = {{span(Op::Forward, 0, 0, 0, 0, 1),
                       span(Op::BackwardInput, 0, 0, 1, 1, 2),
                       span(Op::BackwardWeight, 0, 0, 2, 2, 3),
                       span(Op::BackwardWeight, 0, 1, 3, 3, 4),
                       span(Op::BackwardWeight, 1, 1, 4, 4, 5)}};
    const StepActions actions = action_times(timeline, {0});
    std::vector<bool> writes;
    for (const ActionTime& action : actions[0]) {
        writes.push_back(action.writes);
    }
    EXPECT_THAT(writes, ElementsAre(false, false, true, false, true));
}

ActionTime action(Op op, int alone, int beside_one, int beside_two = 0) {
    return {.stage = 0,
            .op = op,
            .beside = {milliseconds(alone), milliseconds(beside_one), milliseconds(beside_two)}};
}

TEST(FittedInterference, IsTheShareWithWhichAllActionsOfAKindLastEquallyLongAlone) {
    // 100 ms of work: beside one other a quarter longer, beside two others half as long again.
    const std::vector<ActionTime> forwards{action(Op::Forward, 100, 0),
                                           action(Op::Forward, 0, 125),
                                           action(Op::Forward, 20, 100),
                                           action(Op::Forward, 0, 0, 150)};
    EXPECT_NEAR(fitted_interference({{forwards}})[0], 0.25, 1e-3);
    EXPECT_NEAR(share_alone(forwards, 0, {Op::Forward}, 0.25), 400.0 / 495, 1e-9);
    EXPECT_EQ(share_alone(forwards, 0, {Op::Backward}, 0.25), 1) << "there are none";
    EXPECT_EQ(share_alone(forwards, 1, {Op::Forward}, 0.25), 1) << "of another stage";
}

TEST(FittedInterference, IsZeroWhereNothingTells) {
    const auto fitted = [](std::vector<ActionTime> actions) {
        return fitted_interference({{std::move(actions)}})[0];
    };
    EXPECT_EQ(fitted({}), 0);
    EXPECT_EQ(fitted({action(Op::Forward, 0, 100), action(Op::Forward, 0, 101)}), 0)
        << "another rank computes all the time";
    EXPECT_EQ(fitted({action(Op::Forward, 100, 0), action(Op::Backward, 0, 200)}), 0)
        << "actions of two kinds need not last equally long";
    EXPECT_EQ(fitted({action(Op::Forward, 100, 0), action(Op::Forward, 0, 90)}), 0)
        << "a rank cannot be faster while others compute";
    EXPECT_EQ(fitted({action(Op::Forward, 100, 0),
                      action(Op::Forward, 140, 0),
                      action(Op::Forward, 0, 121)}),
              0)
        << "the differences are of another kind";
}

}  // namespace interference_test
}  // namespace pipetwin::exec
