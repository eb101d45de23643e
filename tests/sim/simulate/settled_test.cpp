// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "core/schedule/edge.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"
#include "core/timeline/footprint.h"
#include "sim/engine/record_links.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/relation.h"

/// The settled channel capacity, its step and the peaks of memory, compared with a direct
/// simulation of every capacity, for random plans of every schedule.
namespace pipetwin::sim {
namespace settled_test {

using testing::expect_relation;

constexpr int cases = 300;

/// Also with actions that take no time, so that much happens at once.
Pipeline with_ties(Pipeline x) {
    for (std::vector<int>* const list :
         {&x.forward, &x.backward_input, &x.backward_weight, &x.recompute, &x.latency}) {
        const int most = number(0, 3);
        for (int& value : *list) {
            value = std::min(value, most);
        }
    }
    return x;
}

/// Counts, at every hand-over, what is not taken by then; over a skip for each boundary that it
/// leads over.
int most_waiting(const Schedule& schedule, const Timeline& timeline) {
    int most = 0;
    for (std::size_t edge = 0; edge < timeline.links.size(); ++edge) {
        std::vector<Duration> handed_over;
        std::vector<Duration> taken;
        for (const auto& row : timeline.ranks) {
            for (const Span& span : row) {
                const Op op = span.action.op;
                if ((is_send(op) || is_receive(op)) &&
                    static_cast<std::size_t>(edge_of(schedule, span.action)) == edge) {
                    (is_send(op) ? handed_over : taken)
                        .push_back(is_send(op) ? span.ready : span.end);
                }
            }
        }
        for (std::size_t k = 0; k < handed_over.size(); ++k) {
            const auto gone =
                std::ranges::count_if(taken, [&](Duration time) { return time <= handed_over[k]; });
            const StagePair stages = stages_of_pair(schedule, edge / 2);
            const int apart = stages.to - stages.from;
            const int waiting = static_cast<int>(k + 1) - static_cast<int>(gone);
            most = std::max(most, (waiting + apart - 1) / apart);
        }
    }
    return most;
}

bool has_bytes_between_ranks(const Plan& plan) {
    for (int stage = 0; stage + 1 < plan.stage_count(); ++stage) {
        if (exchanges(plan->schedule, stage) &&
            (plan.cost(stage, 0).output > Bytes{} || plan.cost(stage + 1, 0).input > Bytes{})) {
            return true;
        }
    }
    return false;
}

Timeline unblocked(const Plan& plan) {
    Conditions conditions = planned_conditions(plan);
    conditions.channel_capacity.reset();
    return replay(plan, conditions);
}

/// The smallest that holds what waits and does not stop the ranks.
int capacity_without_blocking(const Plan& plan) {
    const Timeline timeline = unblocked(plan);
    if (std::ranges::all_of(timeline.links, [](const auto& row) { return row.empty(); })) {
        return 0;
    }
    int capacity = std::max(1, most_waiting(plan->schedule, timeline));
    while (!find_deadlock(plan->schedule, capacity).deadlock_free) {
        ++capacity;
    }
    return capacity;
}

/// Whether the plan ends with channels of this capacity, at most a thousandth later than unblocked.
bool ends_in_time(const Plan& plan, int capacity) {
    if (!find_deadlock(plan->schedule, capacity).deadlock_free) {
        return false;
    }
    return 1'000 * step_time(simulate(plan.with_capacity(capacity))) <=
           1'001 * step_time(unblocked(plan));
}

/// Tries one capacity after the other.
int expected_capacity(const Plan& plan) {
    const int without_blocking = capacity_without_blocking(plan);
    if (without_blocking == 0 || !has_bytes_between_ranks(plan)) {
        return without_blocking;
    }
    int capacity = 1;
    while (!ends_in_time(plan, capacity)) {
        ++capacity;
    }
    return capacity;
}

void expect_same_as_two_runs(const Plan& plan, int capacity) {
    RC_ASSERT(settled_capacity(plan) == capacity);
    const SettledStep step = simulate_settled(plan);
    RC_ASSERT(step.plan->channel_capacity == capacity);
    RC_ASSERT(timeline_of(plan->schedule.ranks, step.times) ==
              simulate(plan.with_capacity(capacity)));
    RC_ASSERT(!plan->channel_capacity.has_value());
    const SettledStep without_links = simulate_settled(plan, RecordLinks::No);
    RC_ASSERT(without_links.plan->channel_capacity == capacity);
    RC_ASSERT(timeline_of(plan->schedule.ranks, without_links.times).ranks ==
              timeline_of(plan->schedule.ranks, step.times).ranks);
}

void expect_right_capacity(const Plan& plan) {
    expect_same_as_two_runs(plan, expected_capacity(plan));
}

TEST(SettledStep, IsTheOneOfItsCapacity) {
    expect_relation(cases,
                    [] { expect_right_capacity(plan_with_updates(with_ties(random_pipeline()))); });
}

/// Also with steps that are long beside what some room costs.
TEST(SettledStep, IsTheOneOfItsCapacityWhereMessagesHaveBytes) {
    expect_relation(cases, [] {
        Pipeline x = random_pipeline();
        x.transfer = numbers(2, 1, 5);
        for (std::vector<int>* const list : {&x.forward, &x.backward_input}) {
            for (int& value : *list) {
                value *= number(1, 100);
            }
        }
        expect_right_capacity(plan_with_updates(x));
    });
}

TEST(SettledStep, IsTheOneOfItsCapacityWhereStashesAreOffloaded) {
    expect_relation(cases, [] {
        expect_right_capacity(with_offload(plan_with_updates(with_ties(random_pipeline()))));
    });
}

/// The largest capacity that fits, so that which plans fit does not depend on how fast they are.
TEST(SettledStep, HasNoMoreRoomForMessagesThanMemoryAllows) {
    expect_relation(cases / 6, [] {
        Pipeline x = random_pipeline();
        x.transfer = numbers(2, 1, 5);
        PlanParts parts = plan_with_updates(x).parts();
        const Plan unlimited = Plan::make(parts);
        const int settled = settled_capacity(unlimited);
        const auto peak_with = [&](int capacity) {
            return std::ranges::max(peak_totals(unlimited.with_capacity(capacity)));
        };
        RC_PRE(settled > 1);
        const int room = number(1, settled - 1);
        RC_PRE(find_deadlock(unlimited->schedule, room).deadlock_free);
        parts.memory_limit = peak_with(room);
        const Plan limited = Plan::make(std::move(parts));
        int expected = settled;
        while (peak_with(expected) > peak_with(room)) {
            --expected;
        }
        const SettledStep step = simulate_settled(limited);
        RC_ASSERT(step.plan->channel_capacity == expected);
        RC_ASSERT(with_settled_capacity(limited)->channel_capacity == expected);
        RC_ASSERT(timeline_of(limited->schedule.ranks, step.times) ==
                  simulate(limited.with_capacity(expected)));
    });
}

/// More room can make a step longer here, so a capacity need not be the smallest.
TEST(SettledStep, IsTheOneOfItsCapacityWhereRanksShareCores) {
    expect_relation(cases / 3, [] {
        PlanParts parts = plan_with_updates(with_ties(random_pipeline())).parts();
        parts.contention.cores = number(1, 2);
        const Plan plan = Plan::make(std::move(parts));
        const int capacity = settled_capacity(plan);
        RC_ASSERT(capacity <= capacity_without_blocking(plan));
        RC_ASSERT(capacity == 0 || ends_in_time(plan, capacity));
        expect_same_as_two_runs(plan, capacity);
    });
}

TEST(SettledStep, AStatedCapacityStays) {
    expect_relation(cases, [] {
        const int capacity = number(4, 12);
        const Pipeline x = random_pipeline(ScheduleKind::OneFOneB);
        const Plan plan = plan_of(x, capacity);
        const SettledStep step = simulate_settled(plan);
        RC_ASSERT(step.plan->channel_capacity == capacity);
        RC_ASSERT(timeline_of(plan->schedule.ranks, step.times) == simulate(plan));
    });
}

// --- Memory by tables. ---

/// Two sizes of micro-batches, and stashes that stay.
Plan with_bytes(const Plan& plan) {
    PlanParts parts = with_offload(plan).parts();
    parts.host_link.reset();
    parts.costs.push_back(parts.costs.front());
    if (!parts.message_bytes.empty()) {
        parts.message_bytes.push_back(parts.message_bytes.front());
    }
    for (StageCost& cost : parts.costs.back()) {
        for (Bytes* const bytes : {&cost.saved, &cost.forward_drop_peak, &cost.backward_peak}) {
            *bytes += Bytes{number(0, 3) * 1'000'000LL};
        }
        cost.split = Bytes{number(0, 3) * 1'000'000LL};
    }
    for (int& cost_class : parts.cost_class) {
        cost_class = number(0, 1);
    }
    const int room = 2 * parts.schedule.micro_batches;
    return Plan::make(std::move(parts)).with_capacity(room);
}

TEST(MemoryTotals, AreThoseOfTheCurve) {
    expect_relation(cases, [] {
        const Plan plan = with_bytes(plan_with_updates(random_pipeline()));
        const std::vector<MemoryCurve> curves = footprint(plan, simulate(plan));
        const std::vector<RankTotals> totals = memory_totals(plan);
        RC_ASSERT(totals.size() == curves.size());
        for (std::size_t rank = 0; rank < curves.size(); ++rank) {
            std::vector<Bytes> expected;
            for (const MemoryPoint& point : curves[rank]) {
                expected.push_back(point.use.total());
            }
            RC_ASSERT(totals[rank].values == expected);
            std::vector<ByteRange> ranges;
            for (std::size_t i = 0; i < expected.size(); ++i) {
                if (i % RankTotals::block == 0) {
                    ranges.push_back({.least = expected[i], .most = expected[i]});
                }
                ranges.back().add(expected[i]);
            }
            RC_ASSERT(totals[rank].of_block == ranges);
        }
    });
}

TEST(MemoryPeaks, AreTheFirstHighestPointsOfTheCurve) {
    expect_relation(cases, [] {
        const Plan plan = with_bytes(plan_with_updates(random_pipeline()));
        const Timeline timeline = simulate(plan);
        const std::vector<MemoryCurve> curves = footprint(plan, timeline);
        const std::vector<MemoryPeak> peaks = memory_peaks(plan);
        RC_ASSERT(peaks.size() == curves.size());
        for (std::size_t rank = 0; rank < curves.size(); ++rank) {
            MemoryPeak expected{.use = resident_memory(plan, static_cast<int>(rank))};
            for (std::size_t event = 0; event < curves[rank].size(); ++event) {
                const MemoryUse& use = curves[rank][event].use;
                if (use.total() > expected.use.total()) {
                    expected = {
                        .use = use, .cell = static_cast<int>(event / 2), .after = event % 2 == 1};
                }
            }
            RC_ASSERT(peaks[rank].use == expected.use);
            RC_ASSERT(peaks[rank].cell == expected.cell);
            RC_ASSERT(peaks[rank].after == expected.after);
            RC_ASSERT(peak_totals(plan, timeline)[rank] == expected.use.total());
        }
    });
}

TEST(MemoryPeaks, TotalsAreThoseOfThePeaksWhereStashesAreOffloaded) {
    expect_relation(cases, [] {
        const Plan plan = with_offload(plan_with_updates(random_pipeline()));
        const Timeline timeline = simulate(plan);
        std::vector<Bytes> expected;
        for (const MemoryUse& use : peak_memory(plan, timeline)) {
            expected.push_back(use.total());
        }
        RC_ASSERT(peak_totals(plan, timeline) == expected);
    });
}

}  // namespace settled_test
}  // namespace pipetwin::sim
