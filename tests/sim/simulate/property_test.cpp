// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "sim/simulate/simulate.h"
#include "tests/support/plain_plan.h"

/// Where actions stand in a step of gpipe and 1f1b, over all small shapes and random integer costs.
/// What holds for every kind of schedule is in relations_test.cpp.
namespace pipetwin::sim {
namespace property_test {

constexpr int largest_ranks = 6;
constexpr int largest_micro_batches = 12;

/// Every shape up to 6 ranks and 12 micro-batches, gpipe in each recompute mode and 1f1b, with
/// random costs.
template <class Check>
void for_random_plans(unsigned seed, Check check) {
    std::mt19937 random(seed);
    for (int ranks = 1; ranks <= largest_ranks; ++ranks) {
        for (int micro_batches = 1; micro_batches <= largest_micro_batches; ++micro_batches) {
            for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
                PlainCosts costs = testing::random_costs(kind, ranks, micro_batches, random);
                costs.recompute = static_cast<Recompute>(random() % 3);
                costs.recompute_timing = static_cast<RecomputeTiming>(random() % 2);
                SCOPED_TRACE(::testing::Message() << to_string(kind) << " p " << ranks << " m "
                                                  << micro_batches << " seed " << seed);
                check(costs);
            }
        }
    }
}

using Place = std::tuple<Op, int, int>;  ///< op, stage, micro-batch

std::map<Place, Span> by_place(const Timeline& timeline) {
    std::map<Place, Span> spans;
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            spans[{span.action.op, span.action.stage, span.action.micro_batch}] = span;
        }
    }
    return spans;
}

TEST(Simulation, NoStageStartsAMicroBatchBeforeItsNeighbourHasFinishedIt) {
    for_random_plans(10, [](const PlainCosts& costs) {
        const Plan plan = make_plan(costs);
        const auto spans = by_place(simulate(plan));
        for (int stage = 1; stage < plan.stage_count(); ++stage) {
            for (int i = 0; i < plan.micro_batches(); ++i) {
                ASSERT_GE(spans.at({Op::Forward, stage, i}).begin,
                          spans.at({Op::Forward, stage - 1, i}).end + costs.link.latency);
                ASSERT_GE(spans.at({Op::Backward, stage - 1, i}).begin,
                          spans.at({Op::Backward, stage, i}).end + costs.link.latency);
            }
        }
    });
}

TEST(Simulation, RecomputeStartsAfterTheBackwardOfTheNextMicroBatch) {
    for_random_plans(11, [](PlainCosts costs) {
        costs.schedule = ScheduleKind::GPipe;
        costs.recompute = Recompute::Always;
        const Plan plan = make_plan(costs);
        const auto spans = by_place(simulate(plan));
        for (int stage = 0; stage < plan.stage_count(); ++stage) {
            for (int i = 0; i + 1 < plan.micro_batches(); ++i) {
                ASSERT_GE(spans.at({Op::Recompute, stage, i}).begin,
                          spans.at({Op::Backward, stage, i + 1}).end);
            }
        }
    });
}

TEST(Simulation, AtMostOneRecomputedSetOfAStageIsAlive) {
    for_random_plans(12, [](PlainCosts costs) {
        costs.recompute = Recompute::Always;
        const Timeline timeline = simulate(make_plan(costs));
        for (const auto& row : timeline.ranks) {
            int alive = 0;
            for (const Span& span : row) {
                alive += span.action.op == Op::Recompute ? 1 : 0;
                alive -= span.action.op == Op::Backward ? 1 : 0;
                ASSERT_LE(alive, 1);
            }
        }
    });
}

TEST(Simulation, EagerRecomputeMayStartBeforeTheGradientArrives) {
    PlainCosts costs = testing::plain(ScheduleKind::GPipe, 2, 1);
    costs.recompute = Recompute::Always;
    const auto eager = by_place(simulate(make_plan(costs)));
    EXPECT_LT(eager.at({Op::Recompute, 0, 0}).begin, eager.at({Op::RecvBackward, 0, 0}).ready);

    costs.recompute_timing = RecomputeTiming::Lazy;
    const auto lazy = by_place(simulate(make_plan(costs)));
    EXPECT_GE(lazy.at({Op::Recompute, 0, 0}).begin, lazy.at({Op::RecvBackward, 0, 0}).end);
}

TEST(Simulation, EveryStageRunsForwardAscendingAndGPipesBackwardDescending) {
    for_random_plans(13, [](PlainCosts costs) {
        costs.schedule = ScheduleKind::GPipe;
        const Timeline timeline = simulate(make_plan(costs));
        for (const auto& row : timeline.ranks) {
            std::vector<int> forward;
            std::vector<int> backward;
            for (const Span& span : row) {
                if (span.action.op == Op::Forward) {
                    forward.push_back(span.action.micro_batch);
                } else if (span.action.op == Op::Backward) {
                    backward.push_back(span.action.micro_batch);
                }
            }
            std::vector<int> ascending(static_cast<std::size_t>(costs.shape.micro_batches));
            std::iota(ascending.begin(), ascending.end(), 0);
            ASSERT_EQ(forward, ascending);
            std::reverse(ascending.begin(), ascending.end());
            ASSERT_EQ(backward, ascending);
        }
    });
}

TEST(Simulation, ForwardTickKHoldsExactlyThePairsWhoseSumIsK) {
    for (int stages = 1; stages <= 8; ++stages) {
        for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
            const Timeline timeline =
                simulate(make_plan(testing::plain(ScheduleKind::GPipe, stages, micro_batches)));
            std::map<std::int64_t, int> pairs_in_tick;
            for (const auto& [place, span] : by_place(timeline)) {
                if (std::get<Op>(place) == Op::Forward) {
                    const std::int64_t tick = span.begin / testing::milliseconds(1);
                    ASSERT_EQ(tick, span.action.stage + span.action.micro_batch);
                    ++pairs_in_tick[tick];
                }
            }
            ASSERT_EQ(pairs_in_tick.size(), static_cast<std::size_t>(micro_batches + stages - 1));
        }
    }
}

}  // namespace property_test
}  // namespace pipetwin::sim
