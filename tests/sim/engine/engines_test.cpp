// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "core/schedule/validate.h"
#include "sim/engine/event_engine.h"
#include "sim/engine/fixed_order.h"
#include "sim/explain/task_graph.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/critical_path.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"

/// Several ways to the same times: one visit per action, events, tasks to be evaluated again, and
/// the oracle, which raises all times until none changes. Where nothing is shared they agree to the
/// nanosecond.
namespace pipetwin::sim {
namespace engines_test {

using testing::expect_relation;
using testing::milliseconds;

constexpr int cases = 250;  // per relation; scripts/soak: 100 times as many

/// Rows and links of every engine are the same.
void expect_one_answer(const Plan& plan) {
    const Conditions conditions = planned_conditions(plan);
    const Timeline expected = testing::longest_path(plan);
    const bool one_visit = in_fixed_order(plan, conditions) == expected;
    const bool events = by_events(plan, conditions) == expected;
    RC_ASSERT(one_visit);
    RC_ASSERT(events);
    RC_ASSERT(step_in_fixed_order(plan, conditions) == step_time(expected));
    const std::optional<EndedStep> ended = step_if_it_ends(plan, conditions);
    RC_ASSERT(ended.has_value());
    RC_ASSERT(ended->step == step_time(expected));
    if (ended->unblocked) {
        Conditions with_room = conditions;
        with_room.channel_capacity.reset();
        RC_ASSERT(*ended->unblocked == step_time(by_events(plan, with_room)));
    }
    RC_ASSERT(ended->unblocked.has_value() ==
              (conditions.channel_capacity.has_value() && !conditions.host_link));
}

TEST(Engines, GiveTheLongestPath) {
    expect_relation(cases, [] { expect_one_answer(plan_of(random_pipeline())); });
}

TEST(Engines, GiveTheLongestPathUnderBackPressure) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        const int smallest = smallest_capacity(plan_of(x)->schedule);
        expect_one_answer(plan_of(x, smallest + number(0, 2)));
    });
}

TEST(Engines, GiveTheLongestPathOfAStepWithUpdates) {
    expect_relation(cases, [] { expect_one_answer(plan_with_updates(random_pipeline())); });
}

TEST(Engines, GiveTheLongestPathOfAStepWithUpdatesUnderBackPressure) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        const int smallest = smallest_capacity(plan_of(x)->schedule);
        expect_one_answer(plan_with_updates(x, smallest + number(0, 2)));
    });
}

TEST(Engines, GiveTheLongestPathWithStashesInHostMemory) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        const int smallest = smallest_capacity(plan_of(x)->schedule);
        const Plan plan = number(0, 1) == 1 ? plan_with_updates(x)
                                            : plan_with_updates(x, smallest + number(0, 2));
        expect_one_answer(with_offload(plan));
    });
}

// --- Tasks. ---

/// A random plan with and without room for every message, with and without stashes in host memory.
Plan any_plan() {
    const Pipeline x = random_pipeline();
    const int smallest = smallest_capacity(plan_of(x)->schedule);
    const Plan plan =
        number(0, 1) == 1 ? plan_with_updates(x) : plan_with_updates(x, smallest + number(0, 2));
    return number(0, 2) == 0 ? with_offload(plan) : plan;
}

TEST(TaskGraph, EndsEveryActionAndMessageAsTheLongestPathDoes) {
    expect_relation(cases, [] {
        const Plan plan = any_plan();
        const Timeline expected = testing::longest_path(plan);
        const TaskGraph graph(plan, planned_conditions(plan));
        std::vector<Duration> ends(graph.tasks().size());
        graph.evaluate(graph.costs(), graph.lags(), ends);
        RC_ASSERT(graph.step(ends) == step_time(expected));
        std::size_t actions = 0;
        for (std::size_t i = 0; i < ends.size(); ++i) {
            const TaskPlace& place = graph.places()[i];
            if (place.kind == TaskKind::Action) {
                const Span& span = expected.ranks[static_cast<std::size_t>(place.rank)]
                                                 [static_cast<std::size_t>(place.cell)];
                RC_ASSERT(ends[i] == span.end);
                ++actions;
            }
        }
        std::size_t expected_actions = 0;
        for (const auto& row : expected.ranks) {
            expected_actions +=
                static_cast<std::size_t>(std::ranges::count_if(row, [](const Span& span) {
                    return !is_send(span.action.op) && !is_receive(span.action.op);
                }));
        }
        RC_ASSERT(actions == expected_actions);
    });
}

/// The definition of slack, tried out: a task that ends later by its slack leaves the step as it
/// is, and one that ends a nanosecond later still makes it a nanosecond longer.
TEST(TaskGraph, SlackIsHowMuchLaterATaskMayEnd) {
    expect_relation(cases, [] {
        const Plan plan = any_plan();
        const TaskGraph graph(plan, planned_conditions(plan));
        std::vector<Duration> ends(graph.tasks().size());
        graph.evaluate(graph.costs(), graph.lags(), ends);
        const Duration step = graph.step(ends);
        const auto slack = graph.slack(graph.costs(), graph.lags(), ends);
        const auto task = static_cast<std::size_t>(number(1, static_cast<int>(ends.size()) - 1));
        const auto step_with = [&](Duration delay) {
            std::vector<Duration> later(ends.size());
            for (std::size_t i = 1; i < later.size(); ++i) {
                const Task& t = graph.tasks()[i];
                later[i] = std::max(later[t.after], later[t.also] + graph.lags()[t.lag]) +
                           graph.costs()[t.cost] + (i == task ? delay : Duration{});
            }
            return graph.step(later);
        };
        RC_ASSERT(slack[task] >= Duration{});
        RC_ASSERT(step_with(slack[task]) == step);
        RC_ASSERT(slack[task] == step - ends[task] ||
                  step_with(slack[task] + Duration{1}) == step + Duration{1});
    });
}

}  // namespace engines_test
}  // namespace pipetwin::sim
