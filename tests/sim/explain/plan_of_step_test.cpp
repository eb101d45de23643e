// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/plan_of_step.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/validate.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"

namespace pipetwin::sim {
namespace plan_of_step_test {

using testing::expect_relation;
using testing::microseconds;
using testing::milliseconds;
using testing::plain;

constexpr int cases = 200;  // per relation

/// The plan that is made from a plan's step and nothing else has that step.
void expect_the_step_again(const Plan& plan) {
    const Timeline step = simulate(plan);
    Schedule form = plan->schedule;
    form.ranks.clear();
    const Plan again = plan_of_step(step, form, plan->channel_capacity);
    RC_ASSERT(again->schedule == plan->schedule);
    RC_ASSERT(simulate(again).ranks == step.ranks);
}

TEST(PlanOfStep, HasTheStepThatItWasMadeFrom) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        const int smallest = smallest_capacity(plan_of(x)->schedule);
        expect_the_step_again(
            plan_of(x, number(0, 1) == 1 ? std::nullopt : std::optional(smallest + number(0, 2))));
    });
}

TEST(PlanOfStep, HasTheStepThatItWasMadeFromWithUpdates) {
    expect_relation(cases, [] {
        const Plan plan = plan_with_updates(random_pipeline());
        if (!plan->overlap_reduction) {
            expect_the_step_again(plan);
        }
    });
}

/// GPipe on two ranks, a message takes 0.25 ms; a step without rows of links, as one that was
/// measured has none.
TEST(PlanOfStep, TakesTheLatencyFromTheReceivesThatWaited) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 2);
    costs.link.latency = microseconds(250);
    const Plan plan = make_plan(costs);
    Timeline step = simulate(plan);
    step.links.clear();
    const Plan again = plan_of_step(step, plan->schedule, std::nullopt);
    EXPECT_EQ(again->links.front().latency, microseconds(250));
    EXPECT_EQ(simulate(again).ranks, step.ranks);
    EXPECT_EQ(again.cost(1, 0).backward, milliseconds(2));
}

TEST(PlanOfStep, OfRowsThatBreakARuleIsRefused) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 2, 2));
    Timeline step = simulate(plan);
    std::swap(step.ranks[1][0].action, step.ranks[1][1].action);  // a forward before its receive
    EXPECT_THROW(plan_of_step(step, plan->schedule, std::nullopt), Error);
}

}  // namespace plan_of_step_test
}  // namespace pipetwin::sim
