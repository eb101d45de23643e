// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/link_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace link_load_test {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Duration us(std::int64_t count) {
    return std::chrono::microseconds(count);
}

/// Rank 0 sends to rank 1 from 10 to 30 us and from 35 to 40, and rank 1 back from 50 to 60.
StepRows rows_with_links() {
    StepRows rows(canned_timeline(Origin::Predicted, {}));
    const auto message = [](Op op, int stage, std::int64_t begin, std::int64_t end) {
        return Span{{.op = op, .stage = stage}, us(begin), us(begin), us(end)};
    };
    rows.links = {{message(Op::SendForward, 0, 10, 30), message(Op::SendForward, 0, 35, 40)},
                  {message(Op::SendBackward, 1, 50, 60)}};
    return rows;
}

constexpr ViewTransform ten_us_a_pixel{.origin = Duration{0}, .ns_per_pixel = 10'000};

TEST(LinkLoad, IsTheShareOfEachPixelInWhichMessagesPass) {
    const LinkLoad load = link_load(rows_with_links(), 0, ten_us_a_pixel, 6);
    EXPECT_THAT(load.forward, ElementsAre(0, 1, 1, DoubleNear(0.5, 1e-9), 0, 0));
    EXPECT_THAT(load.backward, Each(0));
}

TEST(LinkLoad, IsThatOfTheRankThatSends) {
    const LinkLoad load = link_load(rows_with_links(), 1, ten_us_a_pixel, 6);
    EXPECT_THAT(load.forward, Each(0));
    EXPECT_THAT(load.backward, ElementsAre(0, 0, 0, 0, 0, 1));
}

TEST(LinkLoad, BeginsAndEndsWithTheView) {
    const ViewTransform later{.origin = us(25), .ns_per_pixel = 10'000};
    EXPECT_THAT(link_load(rows_with_links(), 0, later, 1).forward,
                ElementsAre(DoubleNear(0.5, 1e-9)));
    EXPECT_THAT(link_load(rows_with_links(), 0, later, 0).forward, IsEmpty());
    const ViewTransform after{.origin = us(500), .ns_per_pixel = 10'000};
    EXPECT_THAT(link_load(rows_with_links(), 1, after, 3).backward, Each(0));
}

/// From far away the sum over all pixels is that of the messages, however they fall.
TEST(LinkLoad, KeepsTheTimeOfTheMessagesAtEveryScale) {
    for (const double ns_per_pixel : {700.0, 3'300.0, 17'000.0, 41'000.0}) {
        const LinkLoad load = link_load(
            rows_with_links(), 0, {.origin = Duration{0}, .ns_per_pixel = ns_per_pixel}, 200);
        double sum = 0;
        for (const double share : load.forward) {
            sum += share * ns_per_pixel;
        }
        EXPECT_NEAR(sum, 25'000, 1e-6);
    }
}

TEST(RanksOfStages, AreThoseInWhoseRowsTheyStand) {
    EXPECT_THAT(ranks_of_stages(rows_with_links()), ElementsAre(0, 1));
    EXPECT_THAT(ranks_of_stages(StepRows(canned_timeline(Origin::Measured, {}))), IsEmpty());
}

TEST(LinkedSide, IsTheMeasuredOneWhereItTells) {
    Twin twin;
    EXPECT_EQ(linked_side(twin), std::nullopt);
    twin.predicted.push_back(rows_with_links());
    twin.measured.emplace_back(canned_timeline(Origin::Measured, {}));
    EXPECT_EQ(linked_side(twin), Side::Predicted);
    twin.measured.front() = rows_with_links();
    EXPECT_EQ(linked_side(twin), Side::Measured);
}

}  // namespace link_load_test
}  // namespace pipetwin::gui
