// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/validate.h"
#include "core/timeline/metrics.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"

/// What holds exactly for every kind of schedule and whatever its actions cost: random shapes,
/// random integer costs per stage.
namespace pipetwin::sim {
namespace relations_test {

using testing::expect_relation;
using testing::milliseconds;

constexpr int cases = 100;  // per relation; in all about a thousand

Duration time_of(const Plan& plan) {
    return pipeline_time(simulate(plan));
}

// --- The relations. ---

TEST(Relations, GPipeTakesTheTimeOfItsClosedForm) {
    expect_relation(cases, [] {
        Pipeline x = random_pipeline(ScheduleKind::GPipe);
        x.mode = Recompute::None;
        x.transfer.clear();
        x.skips.clear();
        const auto sum = [](const std::vector<int>& list, std::size_t count) {
            return std::accumulate(
                list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count), 0);
        };
        std::vector<int> backward = x.backward_input;
        for (std::size_t stage = 0; stage < backward.size(); ++stage) {
            backward[stage] += x.backward_weight[stage];
        }
        const std::size_t stages = x.forward.size();
        const int expected = sum(x.forward, stages) + sum(backward, stages) +
                             (x.shape.micro_batches - 1) *
                                 (std::ranges::max(x.forward) + std::ranges::max(backward)) +
                             2 * sum(x.latency, stages - 1);
        RC_ASSERT(time_of(plan_of(x)) == milliseconds(expected));
    });
}

TEST(Relations, NoStepIsShorterThanTheWorkOfItsBusiestRank) {
    expect_relation(cases, [] {
        const Timeline timeline = simulate(plan_of(random_pipeline()));
        for (const auto& row : timeline.ranks) {
            Duration work{};
            for (const Span& span : row) {
                work += is_compute(span.action.op) ? span.end - span.begin : Duration{};
            }
            RC_ASSERT(pipeline_time(timeline) >= work);
        }
    });
}

TEST(Relations, BusyAndIdleTimeFillTheWholeArea) {
    expect_relation(cases, [] {
        const Plan plan = plan_of(random_pipeline());
        const Metrics metrics = measure(plan, simulate(plan));
        Duration covered{};
        for (const DeviceMetrics& device : metrics.devices) {
            RC_ASSERT(device.idle >= Duration{});
            covered += device.busy + device.idle;
        }
        RC_ASSERT(covered == metrics.makespan * plan.rank_count());
    });
}

TEST(Relations, ScalingEveryDurationScalesTheStep) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        const int factor = number(0, 5);
        Pipeline scaled = x;
        for (auto* list : {&scaled.forward,
                           &scaled.backward_input,
                           &scaled.backward_weight,
                           &scaled.recompute,
                           &scaled.latency,
                           &scaled.transfer}) {
            for (int& value : *list) {
                value *= factor;
            }
        }
        RC_ASSERT(time_of(plan_of(scaled)) == factor * time_of(plan_of(x)));
    });
}

/// How many durations the plan's rows have.
std::size_t action_count(const Plan& plan) {
    std::size_t count = 0;
    for (const auto& row : plan->schedule.ranks) {
        count += row.size();
    }
    return count;
}

/// The plan's rows with a duration of its own for every action.
Duration time_with(const Plan& plan, const std::vector<int>& durations) {
    Conditions conditions = conditions_of(plan, simulate(plan));
    auto next = durations.begin();
    for (auto& row : conditions.durations) {
        for (Duration& duration : row) {
            duration = milliseconds(*next++);
        }
    }
    return pipeline_time(replay(plan, conditions));
}

/// a x + b y, element by element.
std::vector<int> combined(int a, const std::vector<int>& x, int b, const std::vector<int>& y) {
    std::vector<int> result(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        result[i] = a * x[i] + b * y[i];
    }
    return result;
}

TEST(Relations, ForAFixedOrderLongerActionsNeverShortenTheStep) {
    expect_relation(cases, [] {
        const Plan plan = plan_of(random_pipeline());
        const std::vector<int> before = numbers(action_count(plan), 0, 9);
        const std::vector<int> added = numbers(action_count(plan), 0, 3);
        RC_ASSERT(time_with(plan, combined(1, before, 1, added)) >= time_with(plan, before));
    });
}

TEST(Relations, ForAFixedOrderLongerLatenciesNeverShortenTheStep) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        Pipeline slower = x;
        slower.latency = combined(1, x.latency, 1, numbers(x.latency.size(), 0, 5));
        RC_ASSERT(time_of(plan_of(slower)) >= time_of(plan_of(x)));
    });
}

/// The longest of many sums is convex in what is summed. In integers: x and y are multiples of n,
/// and so every mean in n-ths between them is whole.
TEST(Relations, ForAFixedOrderTheStepIsConvexInTheDurations) {
    expect_relation(cases, [] {
        const Plan plan = plan_of(random_pipeline());
        constexpr int n = 4;
        const std::vector<int> x = numbers(action_count(plan), 0, 9);
        const std::vector<int> y = numbers(action_count(plan), 0, 9);
        const int share = number(1, n - 1);
        RC_ASSERT(n * time_with(plan, combined(share, x, n - share, y)) <=
                  share * time_with(plan, combined(n, x, 0, y)) +
                      (n - share) * time_with(plan, combined(0, x, n, y)));
    });
}

TEST(Relations, ForAFixedOrderTheStepChangesByNoMoreThanItsActions) {
    expect_relation(cases, [] {
        const Plan plan = plan_of(random_pipeline());
        const std::vector<int> x = numbers(action_count(plan), 0, 9);
        std::vector<int> y = x;
        int distance = 0;
        for (int changes = number(1, 4); changes > 0; --changes) {  // many would hide one too many
            int& value = y[static_cast<std::size_t>(number(0, static_cast<int>(y.size()) - 1))];
            value = number(0, 9);
        }
        for (std::size_t i = 0; i < x.size(); ++i) {
            distance += std::abs(x[i] - y[i]);
        }
        const Duration change = time_with(plan, x) - time_with(plan, y);
        RC_ASSERT(std::chrono::abs(change) <= milliseconds(distance));
    });
}

/// One, or one for every rank where the schedule goes through the chunks in groups. Naive, chimera
/// and hanayo have one number only. zb-auto looks for the least span anew for each number, and its
/// step may well be shorter with one micro-batch more.
TEST(Relations, AddingMicroBatchesNeverShortensTheStep) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        RC_PRE(x.kind != ScheduleKind::ZbAuto);
        const bool grouped =
            x.kind == ScheduleKind::Interleaved1F1B || x.kind == ScheduleKind::InterleavedZb;
        Pipeline more = x;
        more.shape.micro_batches += grouped ? x.shape.ranks : 1;
        RC_PRE(exists(more.kind, more.shape));
        RC_ASSERT(time_of(plan_of(more)) >= time_of(plan_of(x)));
    });
}

}  // namespace relations_test
}  // namespace pipetwin::sim
