#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include <gtest/gtest.h>

#include "core/metrics.h"
#include "sim/simulate.h"
#include "tests/support/critical_path.h"
#include "tests/support/plain_plan.h"

/// Relations that hold for every schedule and every cost, over all small shapes and random integer
/// costs.
namespace pipetwin::sim {
namespace {

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
                check(costs, random);
            }
        }
    }
}

/// All F, B, I, W and R of one rank.
Duration work_of(const std::vector<Span>& row) {
    Duration work{};
    for (const Span& span : row) {
        work += is_compute(span.action.op) ? span.end - span.begin : Duration{};
    }
    return work;
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

TEST(Engines, EventQueueAndLongestPathAgreeExactly) {
    for_random_plans(1, [](const PlainCosts& costs, std::mt19937&) {
        const Plan plan = make_plan(costs);
        ASSERT_EQ(simulate(plan), testing::longest_path(plan));
    });
}

TEST(Engines, EventQueueAndLongestPathAgreeExactlyUnderBackPressure) {
    for_random_plans(2, [](PlainCosts costs, std::mt19937& random) {
        const int smallest = costs.schedule == ScheduleKind::GPipe ? 0 : 1;
        costs.channel_capacity = smallest + static_cast<int>(random() % 3);
        const Plan plan = make_plan(costs);
        ASSERT_EQ(simulate(plan), testing::longest_path(plan));
    });
}

TEST(Engines, AgreeOnTheStepWithOptimizer) {
    for_random_plans(3, [](const PlainCosts& costs, std::mt19937& random) {
        PlanParts parts = make_plan(costs).parts();
        parts.schedule = add_optimizer(std::move(parts.schedule));
        for (StageState& state : parts.states) {
            state.optimizer = testing::milliseconds(random() % 5);
        }
        const Plan plan = Plan::make(std::move(parts));
        ASSERT_EQ(simulate(plan), testing::longest_path(plan));
    });
}

TEST(Simulation, NoStepIsShorterThanTheWorkOfItsBusiestRank) {
    for_random_plans(4, [](const PlainCosts& costs, std::mt19937&) {
        const Timeline timeline = simulate(make_plan(costs));
        for (const auto& row : timeline.ranks) {
            ASSERT_GE(pipeline_time(timeline), work_of(row));
        }
    });
}

TEST(Simulation, BusyAndIdleTimeFillTheWholeArea) {
    for_random_plans(5, [](const PlainCosts& costs, std::mt19937&) {
        const Plan plan = make_plan(costs);
        const Timeline timeline = simulate(plan);
        const Metrics metrics = measure(plan, timeline);
        Duration covered{};
        for (const DeviceMetrics& device : metrics.devices) {
            ASSERT_GE(device.idle, Duration{});
            covered += device.busy + device.idle;
        }
        ASSERT_EQ(covered, metrics.makespan * plan.rank_count());
    });
}

TEST(Simulation, ScalingEveryDurationScalesTheStep) {
    for_random_plans(6, [](const PlainCosts& costs, std::mt19937&) {
        PlainCosts scaled = costs;
        for (auto* list : {&scaled.forward, &scaled.backward, &scaled.recompute_cost}) {
            for (Duration& duration : *list) {
                duration *= 3;
            }
        }
        scaled.link.latency *= 3;
        scaled.boundary = scaled.boundary * 3;
        scaled.link.half_bandwidth = scaled.link.half_bandwidth * 3;
        ASSERT_EQ(pipeline_time(simulate(make_plan(scaled))),
                  3 * pipeline_time(simulate(make_plan(costs))));
    });
}

TEST(Simulation, ForAFixedOrderALongerActionNeverShortensTheStep) {
    for_random_plans(7, [](const PlainCosts& costs, std::mt19937& random) {
        const Plan plan = make_plan(costs);
        Conditions longer = planned_conditions(plan);
        auto& row = longer.durations[random() % longer.durations.size()];
        const Duration added = testing::milliseconds(1 + random() % 5);
        row[random() % row.size()] += added;
        const Duration before = pipeline_time(simulate(plan));
        const Duration after = pipeline_time(replay(plan, longer));
        ASSERT_GE(after, before);
        ASSERT_LE(after, before + added);
    });
}

TEST(Simulation, ForAFixedOrderALongerLatencyNeverShortensTheStep) {
    for_random_plans(8, [](const PlainCosts& costs, std::mt19937& random) {
        PlainCosts slower = costs;
        slower.link.latency += testing::milliseconds(1 + random() % 5);
        ASSERT_GE(pipeline_time(simulate(make_plan(slower))),
                  pipeline_time(simulate(make_plan(costs))));
    });
}

TEST(Simulation, AddingAMicroBatchNeverShortensTheStep) {
    for_random_plans(9, [](const PlainCosts& costs, std::mt19937&) {
        PlainCosts more = costs;
        ++more.shape.micro_batches;
        ASSERT_GE(pipeline_time(simulate(make_plan(more))),
                  pipeline_time(simulate(make_plan(costs))));
    });
}

TEST(Simulation, C03NoStageStartsAMicroBatchBeforeItsNeighbourHasFinishedIt) {
    for_random_plans(10, [](const PlainCosts& costs, std::mt19937&) {
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

TEST(Simulation, C04RecomputeStartsAfterTheBackwardOfTheNextMicroBatch) {
    for_random_plans(11, [](PlainCosts costs, std::mt19937&) {
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

TEST(Simulation, C04AtMostOneRecomputedSetOfAStageIsAlive) {
    for_random_plans(12, [](PlainCosts costs, std::mt19937&) {
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

TEST(Simulation, C04EagerRecomputeMayStartBeforeTheGradientArrives) {
    PlainCosts costs = testing::plain(ScheduleKind::GPipe, 2, 1);
    costs.recompute = Recompute::Always;
    const auto eager = by_place(simulate(make_plan(costs)));
    EXPECT_LT(eager.at({Op::Recompute, 0, 0}).begin, eager.at({Op::RecvBackward, 0, 0}).ready);

    costs.recompute_timing = RecomputeTiming::Lazy;
    const auto lazy = by_place(simulate(make_plan(costs)));
    EXPECT_GE(lazy.at({Op::Recompute, 0, 0}).begin, lazy.at({Op::RecvBackward, 0, 0}).end);
}

TEST(Simulation, C02EveryStageRunsForwardAscendingAndGPipesBackwardDescending) {
    for_random_plans(13, [](PlainCosts costs, std::mt19937&) {
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

TEST(Simulation, C01ForwardTickKHoldsExactlyThePairsWhoseSumIsK) {
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

}  // namespace
}  // namespace pipetwin::sim
