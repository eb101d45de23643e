// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/explanation.h"

#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/validate.h"
#include "sim/explain/breakdown.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"

namespace pipetwin::sim {
namespace explanation_test {

using testing::expect_relation;
using testing::milliseconds;
using testing::plain;

Explanation explained(const Plan& plan, const std::optional<Plan>& more = std::nullopt) {
    const Timeline timeline = simulate(plan);
    return explain(plan, timeline, breakdown(plan, timeline), more);
}

// gpipe with p = 4, m = 16, F = 1, B = 2: (m + p - 1)(F + B) = 57 ms, of which each rank works 48.
TEST(Explanation, OfBalancedGPipeKnowsTheBubbleAndNothingElse) {
    const Explanation what = explained(make_plan(plain(ScheduleKind::GPipe, 4, 16)),
                                       make_plan(plain(ScheduleKind::GPipe, 4, 32)));
    EXPECT_EQ(what.step, Duration(milliseconds(57)));
    EXPECT_EQ(what.wait, Duration(milliseconds(9)));
    EXPECT_EQ(what.fill_and_drain, Duration(milliseconds(9)));
    EXPECT_EQ(what.imbalance + what.communication + what.back_pressure + what.sharing, Duration{});
    EXPECT_EQ(what.last_to_begin->rank, 3);
    EXPECT_EQ(what.last_to_begin->time, Duration(milliseconds(3)));
    EXPECT_EQ(what.first_to_finish->rank, 3);
    EXPECT_EQ(what.first_to_finish->time, Duration(milliseconds(57 - 3 * 2)));
    EXPECT_FALSE(what.slowest_link);
    ASSERT_TRUE(what.more);
    EXPECT_DOUBLE_EQ(what.more->bubble_share, 3.0 / 35);  // (p - 1) / (m + p - 1)
    EXPECT_FALSE(what.more->same_batch);
}

// gpipe: sum F + sum B + (m - 1)(max F + max B), F = 1 1 4, B = 2 2 8; equal stages: F = 2, B = 4.
TEST(Explanation, NamesTheBusiestRankAndWhatEqualStagesWouldTake) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 3, 4);
    costs.forward = {milliseconds(1), milliseconds(1), milliseconds(4)};
    costs.backward = {milliseconds(2), milliseconds(2), milliseconds(8)};
    const Explanation what = explained(make_plan(costs));
    EXPECT_EQ(what.step, Duration(milliseconds(6 + 12 + 3 * 12)));
    EXPECT_EQ(what.busiest->rank, 2);
    EXPECT_EQ(what.busiest->time, Duration(milliseconds(48)));
    EXPECT_EQ(what.mean_compute, Duration(milliseconds(24)));
    EXPECT_EQ(what.equal_step, Duration(milliseconds((4 + 2) * (2 + 4))));
}

// Latency adds 2 (p - 1) l to gpipe.
TEST(Explanation, NamesTheSlowestLink) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 3, 4);
    costs.link.latency = milliseconds(1);
    const Plan plan = make_plan(costs);
    EXPECT_TRUE(explained(plan).slowest_link->all_alike);
    std::vector<LinkCost> links = plan->links;
    links[1].latency = milliseconds(5);
    const Explanation what = explained(plan.with_costs(plan->costs, links));
    EXPECT_EQ(what.slowest_link->pair, 1);
    EXPECT_EQ(what.slowest_link->message, Duration(milliseconds(5)));
    EXPECT_EQ(what.slowest_link->latency, Duration(milliseconds(5)));
    EXPECT_FALSE(what.slowest_link->all_alike);
    EXPECT_EQ(what.communication, Duration(milliseconds(12)));
    EXPECT_EQ(what.instant_step, what.step - milliseconds(12));
}

TEST(Explanation, KnowsWhatRecomputeAndTheHostCost) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 1, 4);
    costs.recompute = Recompute::Always;
    PlanParts parts = make_plan(costs).parts();
    parts.dispatch = milliseconds(1);
    const Explanation what = explained(Plan::make(std::move(parts)));
    // Four times F, R and B of 1, 1 and 2 ms, each with 1 ms before it.
    EXPECT_EQ(what.step, Duration(milliseconds(28)));
    EXPECT_EQ(what.recompute, Duration(milliseconds(4)));
    EXPECT_EQ(what.dispatch, Duration(milliseconds(12)));
    EXPECT_EQ(what.step_without_dispatch, Duration(milliseconds(16)));
    EXPECT_EQ(what.step_without_recompute, Duration(milliseconds(20)));
}

// rank 0  000111
// rank 1  ...0..1     the first forward could come 2 ms later, the second could not
TEST(Explanation, SaysHowMuchLongerAWaitCouldBe) {
    PlainCosts costs = plain(ScheduleKind::ForwardOnly, 2, 2);
    costs.forward = {milliseconds(3), milliseconds(1)};
    const Explanation what = explained(make_plan(costs));
    ASSERT_EQ(what.waits.size(), 3U);
    EXPECT_EQ(what.waits[0].wait.end, Duration(milliseconds(3)));
    EXPECT_EQ(what.waits[0].slack, Duration(milliseconds(2)));
    EXPECT_EQ(what.waits[1].wait.end, Duration(milliseconds(6)));
    EXPECT_EQ(what.waits[1].slack, Duration{});
    EXPECT_EQ(what.waits[2].wait.kind, WaitKind::StepEnd);
    EXPECT_FALSE(what.waits[2].slack);
}

// Forward 2 ms, backward 3 ms; the stashes of 0 and 1 are copied in 4 ms and 1 ms of latency:
//
//     row   001122ccc.......bbb..aaa
//     out   ..00001111
//     in    ...........1111.0000
TEST(Explanation, StashesInHostMemoryAreACauseOfTheirOwn) {
    const Explanation what = explained(testing::one_rank_with_host_link(3, 4, 1));
    EXPECT_EQ(what.step, Duration(milliseconds(24)));
    EXPECT_EQ(what.step_on_device, Duration(milliseconds(15)));
    EXPECT_EQ(what.wait, Duration(milliseconds(9)));
    EXPECT_EQ(what.host_copies, Duration(milliseconds(9)));
    EXPECT_EQ(what.communication, Duration{});
    EXPECT_EQ(what.waits.front().wait.kind, WaitKind::Stash);
    // Copies of 2 ms and latencies of 0.5: out from 2 and 4, in 6 to 8.5, beside 2B; nobody waits.
    const auto link = std::ranges::find(
        what.what_ifs, Part::HostLink, [](const WhatIf& w) { return w.target.part; });
    ASSERT_NE(link, what.what_ifs.end());
    EXPECT_EQ(link->step, Duration(milliseconds(15)));
    EXPECT_EQ(link->least_step, Duration(milliseconds(15)));
}

/// Four ranks on two processors: twice as many is one for each, and the step (m + p - 1) (f + b).
TEST(Explanation, UnderContentionTriesMoreProcessors) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 4, 4)).parts();
    parts.contention.cores = 2;
    const Explanation what = explained(Plan::make(std::move(parts)));
    const auto cores =
        std::ranges::find(what.what_ifs, Target{.part = Part::Cores}, &WhatIf::target);
    ASSERT_NE(cores, what.what_ifs.end());
    EXPECT_EQ(cores->step, Duration(milliseconds(21)));
    EXPECT_FALSE(what.waits.empty());
    EXPECT_FALSE(what.waits.front().slack);
}

TEST(Explanation, CausesSumToTheWait) {
    expect_relation(150, [] {
        const Pipeline x = random_pipeline();
        const int smallest = smallest_capacity(plan_of(x)->schedule);
        const bool bounded = number(0, 1) == 1;
        PlanParts parts =
            plan_of(x, bounded ? std::optional(smallest + number(0, 2)) : std::nullopt).parts();
        if (number(0, 1) == 1) {
            parts.contention = testing::one_link(parts.links.size());
        }
        Plan plan = Plan::make(std::move(parts));
        if (number(0, 2) == 0) {
            plan = with_offload(plan);
        }
        const Explanation what = explained(plan);
        const Duration sum = what.fill_and_drain + what.imbalance + what.communication +
                             what.host_copies + what.back_pressure + what.sharing;
        RC_ASSERT(std::chrono::abs(what.wait - sum) <= Duration{2 * plan.rank_count()});
        for (const Duration cause : {what.imbalance,
                                     what.communication,
                                     what.host_copies,
                                     what.back_pressure,
                                     what.sharing}) {
            RC_ASSERT(cause >= Duration{});
        }
        RC_ASSERT(bounded || what.back_pressure == Duration{});
    });
}

}  // namespace explanation_test
}  // namespace pipetwin::sim
