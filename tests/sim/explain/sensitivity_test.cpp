// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/sensitivity.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/validate.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"

namespace pipetwin::sim {
namespace sensitivity_test {

using testing::expect_relation;
using testing::milliseconds;
using testing::plain;

constexpr int cases = 150;  // per relation

/// gpipe with two stages and four micro-batches. By the closed form, with m micro-batches,
///     step = sum F + sum B + (m - 1) (max F + max B) + 2 latency = 6 + 12 + 3 * 12 + 2 = 56 ms.
Plan two_stages() {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 4);
    costs.forward = {milliseconds(2), milliseconds(4)};
    costs.backward = {milliseconds(4), milliseconds(8)};
    costs.link.latency = milliseconds(1);
    return make_plan(costs);
}

TEST(Sensitivity, FollowsTheClosedFormOfGPipe) {
    const Plan plan = two_stages();
    const Sensitivity sensitivity(plan);
    const auto step_ms = [&](Part part, int index, double factor) {
        return sensitivity.step_if({.part = part, .index = index}, factor) / milliseconds(1);
    };
    EXPECT_EQ(sensitivity.step(), Duration(milliseconds(56)));
    EXPECT_EQ(step_ms(Part::Forward, 0, 2), 55);            // F 1, 4
    EXPECT_EQ(step_ms(Part::Forward, 1, 2), 48);            // F 2, 2
    EXPECT_EQ(step_ms(Part::Backward, 1, 2), 40);           // B 4, 4
    EXPECT_EQ(step_ms(Part::Rank, 1, 2), 32);               // F 2, 2 and B 4, 4
    EXPECT_EQ(step_ms(Part::Backward, everywhere, 2), 38);  // B 2, 4
    EXPECT_EQ(step_ms(Part::Link, 0, 2), 55);
    EXPECT_EQ(step_ms(Part::Link, 0, infinitely), 54);
    EXPECT_EQ(step_ms(Part::Forward, 0, infinitely), 54);
}

TEST(Sensitivity, ListsTheBestFirst) {
    const Plan plan = two_stages();
    const Sensitivity sensitivity(plan);
    const std::vector<WhatIf> best = sensitivity.best(sensitivity.targets(), 2, 3, 1000);
    ASSERT_EQ(best.size(), 3U);
    EXPECT_EQ(best[0].target, (Target{.part = Part::Rank, .index = 1}));
    EXPECT_EQ(best[0].step, Duration(milliseconds(32)));
    EXPECT_EQ(best[1].target, (Target{.part = Part::Backward}));
    EXPECT_EQ(best[2].target, (Target{.part = Part::Backward, .index = 1}));
    EXPECT_EQ(best[2].least_step, Duration(milliseconds(6 + 4 + 3 * 8 + 2)));
}

/// The step of a simulation.
Duration step_of(const Plan& plan) {
    return replayed_step(plan, planned_conditions(plan));
}

// A message has no bytes here, so room for one costs nothing. A plan whose backwards are short has
// more messages under way, and its what-if has the step of a plan that was made with these costs.
TEST(Sensitivity, OtherCostsGetTheRoomThatTheyNeed) {
    for (const int backward_us : {0, 100, 250, 500, 1000}) {
        const auto plan_with = [](Duration backward) {
            PlainCosts costs = plain(ScheduleKind::GPipe, 4, 6);
            costs.forward.assign(4, milliseconds(1));
            costs.backward.assign(4, backward);
            costs.link.latency = std::chrono::microseconds(500);
            return with_settled_capacity(make_plan(costs));
        };
        const Duration backward = std::chrono::microseconds(backward_us);
        const Duration faster = step_of(plan_with(backward));
        const Plan slow = plan_with(2 * backward);
        EXPECT_EQ(Sensitivity(slow).step_if({.part = Part::Backward}, 2), faster) << backward_us;
        EXPECT_EQ(Sensitivity(slow).step_if({.part = Part::Backward}, infinitely),
                  step_of(plan_with(Duration{})));
    }
}

TEST(Sensitivity, HostTimeIsNotTheDevices) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 1, 4)).parts();
    parts.dispatch = milliseconds(1);
    const Plan plan = Plan::make(std::move(parts));
    const Sensitivity sensitivity(plan);  // four times 1 + 1 and 1 + 2
    EXPECT_EQ(sensitivity.step_if({.part = Part::Forward}, infinitely), Duration(milliseconds(16)));
    EXPECT_EQ(sensitivity.step_if({.part = Part::Dispatch}, infinitely),
              Duration(milliseconds(12)));
    EXPECT_EQ(sensitivity.step_if({.part = Part::Dispatch}, 2), Duration(milliseconds(16)));
}

/// A random plan with and without room for every message, with and without stashes in host memory.
Plan any_plan() {
    const Pipeline x = random_pipeline();
    const int smallest = smallest_capacity(plan_of(x)->schedule);
    const Plan plan =
        number(0, 1) == 1 ? plan_with_updates(x) : plan_with_updates(x, smallest + number(0, 2));
    PlanParts parts = plan.parts();
    for (StageState& state : parts.states) {  // so that halves are whole nanoseconds
        state.weights -= Bytes{state.weights.count % 2};
    }
    const Plan halved = Plan::make(std::move(parts));
    return number(0, 2) == 0 ? with_offload(halved) : halved;
}

/// Such a plan whose ranks share processors, or whose messages share a link.
Plan any_sharing_plan() {
    PlanParts parts = any_plan().parts();
    const bool has_links = !parts.links.empty() && number(0, 1) == 1;
    const LinkSharing sharing = number(0, 1) == 1 ? LinkSharing::Fair : LinkSharing::Fifo;
    parts.contention = has_links ? testing::one_link(parts.links.size(), sharing) : Contention{};
    parts.contention.cores = has_links ? 0 : number(1, parts.schedule.rank_count());
    return Plan::make(std::move(parts));
}

/// One of the targets; every plan of these has one.
Target any_target(const Sensitivity& sensitivity) {
    const auto& targets = sensitivity.targets();
    RC_PRE(!targets.empty());
    return targets[static_cast<std::size_t>(number(0, static_cast<int>(targets.size()) - 1))];
}

TEST(Sensitivity, StartsFromTheSimulatedStep) {
    expect_relation(cases, [] {
        const Plan plan = any_plan();
        RC_ASSERT(Sensitivity(plan).step() == step_time(simulate(plan)));
        const Plan sharing = any_sharing_plan();
        RC_ASSERT(Sensitivity(sharing).step() == step_time(simulate(sharing)));
    });
}

/// The plan with the costs of a target divided.
Plan with_faster(const Plan& plan, const Target& target, int factor) {
    PlanParts parts = plan.parts();
    const auto is_at = [&](int index) {
        return target.index == everywhere || target.index == index;
    };
    for (auto& costs : parts.costs) {
        for (int stage = 0; stage < plan.stage_count(); ++stage) {
            StageCost& cost = costs[static_cast<std::size_t>(stage)];
            const int rank = plan->schedule.rank_of_stage[static_cast<std::size_t>(stage)];
            const bool of_rank = target.part == Part::Rank && is_at(rank);
            const auto divide = [&](Duration& time, bool part) {
                time = of_rank || (part && is_at(stage)) ? time / factor : time;
            };
            const bool back = target.part == Part::Backward;
            divide(cost.forward, target.part == Part::Forward);
            divide(cost.recompute, target.part == Part::Recompute);
            divide(cost.backward, back);
            divide(cost.backward_input, back || target.part == Part::BackwardInput);
            divide(cost.backward_weight, back || target.part == Part::BackwardWeight);
        }
    }
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        const int rank = plan->schedule.rank_of_stage[static_cast<std::size_t>(stage)];
        if (target.part == Part::Update || (target.part == Part::Rank && is_at(rank))) {
            parts.states[static_cast<std::size_t>(stage)].optimizer /= factor;
            parts.states[static_cast<std::size_t>(stage)].norm /= factor;
        }
    }
    for (std::size_t boundary = 0; boundary < parts.links.size(); ++boundary) {
        if (target.part == Part::Link && is_at(static_cast<int>(boundary))) {
            parts.links[boundary].latency /= factor;
            parts.links[boundary].bytes_per_second *= factor;
        }
    }
    if (target.part == Part::HostLink) {
        parts.host_link->latency /= factor;
        parts.host_link->bytes_per_second *= factor;
    }
    if (target == Target{.part = Part::Link}) {
        for (double& rate : parts.contention.shared_links) {
            rate *= factor;
        }
    }
    if (target.part == Part::Cores) {
        parts.contention.cores = std::min(factor * parts.contention.cores, plan.rank_count());
    }
    if (target.part == Part::Reduction) {
        for (Duration& time : parts.all_reduce) {
            time /= factor;
        }
        for (LinkCost& link : parts.reductions) {
            link.latency /= factor;
            link.bytes_per_second *= factor;
        }
    }
    return Plan::make(std::move(parts));
}

TEST(Sensitivity, IsWhatTheSimulatorSaysOfTheFasterPlan) {
    expect_relation(cases, [] {
        const Plan plan = number(0, 1) == 1 ? any_plan() : any_sharing_plan();
        const Sensitivity sensitivity(plan);
        const Target target = any_target(sensitivity);
        const Plan faster = with_faster(plan, target, 2);
        Conditions conditions = planned_conditions(faster);
        conditions.channel_capacity = conditions_for_other_costs(plan).channel_capacity;
        const Duration expected = replayed_step(faster, conditions);
        RC_ASSERT(sensitivity.step_if(target, 2) == expected);
    });
}

/// Four ranks that each do 4 x (1 + 2) ms of work, on two processors: half of all work, 24 ms, is
/// less than the step can take, and with a processor for each the step is (m + p - 1) (f + b).
TEST(Sensitivity, MoreProcessorsBringThemToOneForEachRank) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 4, 4)).parts();
    parts.contention.cores = 2;
    const Plan plan = Plan::make(std::move(parts));
    const Sensitivity sensitivity(plan);
    EXPECT_GE(sensitivity.step(), Duration(milliseconds(24)));
    EXPECT_EQ(sensitivity.step_if({.part = Part::Cores}, 2), Duration(milliseconds(21)));
    EXPECT_EQ(sensitivity.step_if({.part = Part::Cores}, infinitely), Duration(milliseconds(21)));
}

TEST(Sensitivity, NoFactorGainsMoreThanInfinity) {
    expect_relation(cases, [] {
        const Plan plan = any_plan();
        const Sensitivity sensitivity(plan);
        const Target target = any_target(sensitivity);
        const double factor = 1 + number(0, 1000) / 50.0;
        const Duration faster = sensitivity.step_if(target, factor);
        RC_ASSERT(faster <= sensitivity.step());
        RC_ASSERT(faster >= sensitivity.step_if(target, infinitely));
    });
}

TEST(Sensitivity, NothingIsGainedWhereEveryActionHasSlack) {
    expect_relation(cases, [] {
        const Plan plan = any_plan();
        const Sensitivity sensitivity(plan);
        const auto slack = sensitivity.slack();
        for (int stage = 0; stage < plan.stage_count(); ++stage) {
            const int rank = plan->schedule.rank_of_stage[static_cast<std::size_t>(stage)];
            const auto& row = plan->schedule.ranks[static_cast<std::size_t>(rank)];
            bool slack_everywhere = true;
            for (std::size_t cell = 0; cell < row.size(); ++cell) {
                slack_everywhere &= row[cell].op != Op::Forward || row[cell].stage != stage ||
                                    slack[static_cast<std::size_t>(rank)][cell] > Duration{};
            }
            if (slack_everywhere) {
                RC_ASSERT(sensitivity.step_if({.part = Part::Forward, .index = stage}, 2) ==
                          sensitivity.step());
            }
        }
    });
}

TEST(Sensitivity, TwiceAsFastEverywhereIsHalfTheStep) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        PlanParts parts = plan_of(x).parts();
        parts.dispatch = milliseconds(number(0, 3));
        const Plan plan = Plan::make(std::move(parts));
        const Sensitivity sensitivity(plan);
        RC_ASSERT(2 * sensitivity.step_if(sensitivity.targets(), 2) == sensitivity.step());
    });
}

TEST(Sensitivity, TheBestAreTheBestOfAll) {
    expect_relation(cases, [] {
        const Plan plan = number(0, 1) == 1 ? any_plan() : any_sharing_plan();
        const Sensitivity sensitivity(plan);
        std::vector<Duration> steps;
        for (const Target& target : sensitivity.targets()) {
            const Duration step = sensitivity.step_if(target, 2);
            if (step < sensitivity.step()) {
                steps.push_back(step);
            }
        }
        std::ranges::sort(steps);
        steps.resize(std::min<std::size_t>(5, steps.size()));
        std::vector<Duration> found;
        for (const WhatIf& what : sensitivity.best(sensitivity.targets(), 2, 5, 1000)) {
            found.push_back(what.step);
        }
        RC_ASSERT(found == steps);
    });
}

}  // namespace sensitivity_test
}  // namespace pipetwin::sim
