// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/place_in_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace linked_place_test {

TEST(LinkedPlace, IsReadAsItIsWritten) {
    const LinkedPlace place{.step = 3, .rank = 1, .ms = 12.5};
    EXPECT_EQ(place_text(place), "step=3,rank=1,ms=12.5");
    EXPECT_EQ(parse_place(place_text(place), "--at"), place);
    EXPECT_EQ(parse_place("rank=0", "--at"), LinkedPlace{.rank = 0});
}

TEST(LinkedPlace, RefusesWhatItDoesNotKnowWithAHint) {
    for (const auto& [text, hint] : {std::pair("stpe=3", "did you mean 'step'?"),
                                     std::pair("step=3,rnk=1", "did you mean 'rank'?"),
                                     std::pair("step=x", "write it as in --at"),
                                     std::pair("ms=-1", "write it as in --at"),
                                     std::pair("3", "write it as in --at"),
                                     std::pair("", "write it as in --at")}) {
        try {
            parse_place(text, "--at");
            FAIL() << text;
        } catch (const Error& error) {
            EXPECT_EQ(error.place(), "--at");
            EXPECT_THAT(error.hint(), ::testing::HasSubstr(hint)) << text;
        }
    }
}

/// Rank 1 of the canned step begins its first forward after 1 ms; its steps are numbered from 0.
TEST(LinkedPlace, LeadsToTheActionAndBack) {
    const RunData run = canned_run({.steps = 3});
    const auto action = action_at(run, {.step = 2, .rank = 1, .ms = 1.5});
    ASSERT_TRUE(action);
    EXPECT_EQ(action->step, 2);
    EXPECT_EQ(to_string(run.twin.span(*action)->action), "1F0");
    EXPECT_EQ(action_at(run, place_of(run, *action)), action);
    EXPECT_FALSE(action_at(run, {.step = 9, .rank = 1}));
    EXPECT_FALSE(action_at(run, {.step = 0, .rank = 7}));
}

}  // namespace linked_place_test
}  // namespace pipetwin::gui
