// SPDX-License-Identifier: Apache-2.0
#include "exec/device/paced_links.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::exec {
namespace paced_links_test {

using std::chrono::steady_clock;
using testing::milliseconds;

/// All messages over one link of 1 GB/s.
Plan plan_with(LinkSharing sharing) {
    PlainCosts costs = testing::plain(ScheduleKind::ForwardOnly, 3, 2);
    costs.link = {.latency = milliseconds(3), .bytes_per_second = 1e9};
    costs.boundary = Bytes{5'000'000};
    PlanParts parts = make_plan(costs).parts();
    parts.contention = testing::one_link(parts.links.size(), sharing);
    return Plan::make(std::move(parts));
}

/// Bounds that hold however late a thread comes: a link that is never idle from the first message
/// to the last is busy for both, and so for 10 ms; else the second takes its own 5 ms.
void expect_one_link_for_both(TimePoint first, TimePoint second, const TimePoint (&around)[3]) {
    constexpr auto both = milliseconds(10);
    constexpr auto one = milliseconds(5);
    constexpr auto latency = milliseconds(3);
    const TimePoint last = std::max(first, second);
    EXPECT_GE(last, around[0] + both + latency);
    EXPECT_LE(last, std::max(around[1] + both, around[2] + one) + latency);
    EXPECT_GE(std::min(first, second), around[0] + one + latency);
}

TEST(PacedLinks, CarryTwoMessagesAtOnceInTheTimeOfBoth) {
    for (const LinkSharing sharing : {LinkSharing::Fifo, LinkSharing::Fair}) {
        const Plan plan = plan_with(sharing);
        PacedLinks links(plan);
        ASSERT_TRUE(links.is_shared(0));
        TimePoint around[3] = {steady_clock::now(), {}, {}};
        const auto first = links.send(0, plan->links[0], Bytes{5'000'000});
        around[1] = steady_clock::now();
        const auto second = links.send(2, plan->links[1], Bytes{5'000'000});
        around[2] = steady_clock::now();
        const TimePoint second_arrival = second();  // in whichever order they are waited for
        const TimePoint first_arrival = first();
        expect_one_link_for_both(first_arrival, second_arrival, around);
        if (sharing == LinkSharing::Fifo) {
            EXPECT_LE(first_arrival, around[1] + milliseconds(5 + 3));
        }
    }
}

TEST(PacedLinks, CarryTheMessagesOfAnEdgeOneAfterTheOther) {
    const Plan plan = plan_with(LinkSharing::Fair);
    PacedLinks links(plan);
    const TimePoint begin = steady_clock::now();
    const auto first = links.send(0, plan->links[0], Bytes{5'000'000});
    const TimePoint sent = steady_clock::now();
    const auto second = links.send(0, plan->links[0], Bytes{5'000'000});
    EXPECT_LE(first(), sent + milliseconds(5 + 3));
    EXPECT_GE(second(), begin + milliseconds(10 + 3));
}

TEST(PacedLinks, AreNoneWhereNothingIsShared) {
    PlanParts parts = plan_with(LinkSharing::Fair).parts();
    parts.contention.way_of_edge.front().clear();
    const Plan plan = Plan::make(std::move(parts));
    PacedLinks links(plan);
    EXPECT_FALSE(links.is_shared(0));
    EXPECT_TRUE(links.is_shared(1));
}

}  // namespace paced_links_test
}  // namespace pipetwin::exec
