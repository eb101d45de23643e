// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "core/timeline/metrics.h"
#include "sim/simulate/simulate.h"
#include "tests/support/plain_plan.h"
#include "tests/support/spans.h"

/// Step times and peaks that theory knows: closed forms over many shapes, and single published
/// values.
namespace pipetwin::sim {
namespace closed_form_test {

using testing::microseconds;
using testing::milliseconds;
using testing::plain;

Duration time_of(const PlainCosts& costs) {
    return pipeline_time(simulate(make_plan(costs)));
}

Metrics metrics_of(const PlainCosts& costs) {
    const Plan plan = make_plan(costs);
    return measure(plan, simulate(plan));
}

std::vector<int> peaks_of(const PlainCosts& costs) {
    return peak_live_activations(make_plan(costs)->schedule);
}

/// Stages 1..6, micro-batches 1..12, and a few costs: forward, backward, recompute, latency in ms.
template <class Check>
void for_uniform_costs(ScheduleKind kind, Check check) {
    struct Costs {
        int forward, backward, recompute, latency;
    };
    for (const Costs& ms : {Costs{1, 2, 1, 0}, {3, 5, 2, 1}, {4, 1, 3, 7}}) {
        for (int ranks = 1; ranks <= 6; ++ranks) {
            for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
                PlainCosts costs = plain(kind, ranks, micro_batches);
                const auto stages = static_cast<std::size_t>(ranks);
                costs.forward.assign(stages, milliseconds(ms.forward));
                costs.backward.assign(stages, milliseconds(ms.backward));
                costs.recompute_cost.assign(stages, milliseconds(ms.recompute));
                costs.link.latency = milliseconds(ms.latency);
                SCOPED_TRACE(::testing::Message() << "p " << ranks << " m " << micro_batches
                                                  << " F " << ms.forward << " B " << ms.backward
                                                  << " R " << ms.recompute << " c " << ms.latency);
                check(costs);
            }
        }
    }
}

/// The numbers of a uniform case under the names of the formulas.
struct Symbols {
    explicit Symbols(const PlainCosts& costs)
        : p(costs.shape.ranks),
          m(costs.shape.micro_batches),
          forward(costs.forward[0]),
          backward(costs.backward[0]),
          recompute(costs.recompute_cost[0]),
          c(costs.link.latency) {}
    int p;
    int m;
    Duration forward, backward, recompute, c;
};

TEST(GPipe, TakesTheTimeOfItsClosedForm) {
    for_uniform_costs(ScheduleKind::GPipe, [](const PlainCosts& costs) {
        const Symbols s(costs);
        ASSERT_EQ(time_of(costs), (s.m + s.p - 1) * (s.forward + s.backward) + 2 * (s.p - 1) * s.c);
        ASSERT_EQ(peaks_of(costs), std::vector<int>(static_cast<std::size_t>(s.p), s.m));
    });
}

TEST(GPipe, LazyRecomputeTakesTheTimeOfItsClosedForm) {
    for_uniform_costs(ScheduleKind::GPipe, [](PlainCosts costs) {
        const Symbols s(costs);
        costs.recompute = Recompute::Always;
        costs.recompute_timing = RecomputeTiming::Lazy;
        ASSERT_EQ(time_of(costs),
                  (s.m + s.p - 1) * (s.forward + s.recompute + s.backward) + 2 * (s.p - 1) * s.c);
    });
}

// Holds for R <= F + B + 2c: so long every stage but the last idles before its first gradient
// arrives, and its first recompute fits into that.
TEST(GPipe, EagerRecomputeTakesTheTimeOfItsClosedForm) {
    for_uniform_costs(ScheduleKind::GPipe, [](PlainCosts costs) {
        const Symbols s(costs);
        costs.recompute = Recompute::Always;
        ASSERT_EQ(time_of(costs),
                  (s.p - 1) * (s.forward + s.backward) +
                      s.m * (s.forward + s.recompute + s.backward) + 2 * (s.p - 1) * s.c);
        costs.recompute = Recompute::ExceptLast;
        ASSERT_EQ(time_of(costs),
                  (s.p - 1) * (s.forward + s.backward) +
                      s.m * (s.forward + s.recompute + s.backward) + 2 * (s.p - 1) * s.c -
                      s.recompute);
    });
}

TEST(OneFOneB, TakesTheTimeOfItsClosedForm) {
    for_uniform_costs(ScheduleKind::OneFOneB, [](const PlainCosts& costs) {
        const Symbols s(costs);
        const auto floor_div = [](int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); };
        const int crossings = s.p < 2 ? 0 : (s.p - 1) + (s.m - 2) - floor_div(s.m - 2, s.p);
        ASSERT_EQ(time_of(costs), (s.m + s.p - 1) * (s.forward + s.backward) + 2 * crossings * s.c);
    });
}

TEST(OneFOneB, RankRKeepsAtMostPMinusRActivations) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
        for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
            std::vector<int> expected;
            for (int rank = 0; rank < ranks; ++rank) {
                expected.push_back(std::min(micro_batches, ranks - rank));
            }
            ASSERT_EQ(peaks_of(plain(ScheduleKind::OneFOneB, ranks, micro_batches)), expected);
        }
    }
}

TEST(Naive, TakesTheTimeOfItsClosedForm) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
        const PlainCosts costs = plain(ScheduleKind::Naive, ranks, 1);
        EXPECT_EQ(time_of(costs), Duration(milliseconds(3 * ranks)));
        EXPECT_EQ(peaks_of(costs), std::vector<int>(static_cast<std::size_t>(ranks), 1));
    }
}

TEST(GPipe, OneMicroBatchEqualsNaiveModelParallelism) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
        EXPECT_EQ(simulate(make_plan(plain(ScheduleKind::GPipe, ranks, 1))),
                  simulate(make_plan(plain(ScheduleKind::Naive, ranks, 1))));
    }
}

TEST(GPipe, OneStageHasNoBubble) {
    for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (const Recompute recompute :
             {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
            PlainCosts costs = plain(kind, 1, 5);
            costs.recompute = recompute;
            const Bubble bubble = metrics_of(costs).bubble;
            EXPECT_EQ(bubble.total, 0);
            EXPECT_EQ(bubble.ideal, 0);
            EXPECT_EQ(bubble.span, 0);
        }
    }
}

TEST(GPipe, FewerMicroBatchesThanStagesAreLegal) {
    EXPECT_EQ(time_of(plain(ScheduleKind::GPipe, 8, 2)), Duration(milliseconds(27)));
    EXPECT_EQ(time_of(plain(ScheduleKind::OneFOneB, 8, 2)), Duration(milliseconds(27)));
}

TEST(Bubble, OfBalancedGPipeIsExactlyKMinus1OverMPlusKMinus1) {
    for (int stages = 1; stages <= 8; ++stages) {
        for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
            const Bubble bubble =
                metrics_of(plain(ScheduleKind::GPipe, stages, micro_batches)).bubble;
            EXPECT_EQ(bubble.total, double(stages - 1) / double(micro_batches + stages - 1));
            EXPECT_EQ(bubble.total_without_recompute, bubble.total);
            EXPECT_EQ(bubble.ideal, double(stages - 1) / double(micro_batches));
        }
    }
}

/// The modes of p stages of which those in `mask` recompute.
RecomputeRules modes_of(int p, unsigned mask) {
    std::vector<Recompute> modes;
    for (int stage = 0; stage < p; ++stage) {
        modes.push_back((mask >> static_cast<unsigned>(stage)) % 2 == 1 ? Recompute::Always
                                                                        : Recompute::None);
    }
    return RecomputeRules(std::move(modes));
}

/// Forwards end at the last stage after (m + p - 1) F and p - 1 messages; its first gradient is
/// back at the first stage after p B and p - 1 messages more. Of the m - 1 that follow it, each
/// takes R + B of any stage that recomputes. The first R is hidden where a stage waits for a
/// gradient: on all but the last. With equal stages it makes no difference how many of them
/// recompute.
TEST(GPipe, WithRecomputeOnSomeStagesTakesTheTimeOfItsClosedForm) {
    for_uniform_costs(ScheduleKind::GPipe, [](PlainCosts costs) {
        const Symbols s(costs);
        for (unsigned mask = 0; mask < 1U << static_cast<unsigned>(s.p); ++mask) {
            costs.recompute = modes_of(s.p, mask);
            const bool last = (mask >> static_cast<unsigned>(s.p - 1)) == 1;
            const int counted = last ? s.m : (mask == 0 ? 0 : s.m - 1);
            EXPECT_EQ(time_of(costs),
                      (s.m + s.p - 1) * (s.forward + s.backward) + 2 * (s.p - 1) * s.c +
                          counted * s.recompute)
                << to_string(costs.recompute);
        }
    });
}

TEST(Bubble, WithEagerRecomputeIsExactly3KMinus3Over4MPlus3KMinus3) {
    for (int stages = 1; stages <= 8; ++stages) {
        for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
            PlainCosts costs = plain(ScheduleKind::GPipe, stages, micro_batches);
            costs.recompute = Recompute::Always;
            const Bubble bubble = metrics_of(costs).bubble;
            const int time = 4 * micro_batches + 3 * (stages - 1);
            EXPECT_EQ(bubble.total, double(3 * (stages - 1)) / double(time));
            EXPECT_EQ(bubble.total_without_recompute,
                      double(time - 3 * micro_batches) / double(time));
        }
    }
}

TEST(Bubble, FourStagesAndSixteenMicroBatchesGiveThreeNineteenths) {
    EXPECT_EQ(metrics_of(plain(ScheduleKind::GPipe, 4, 16)).bubble.total, 3.0 / 19.0);
}

Duration largest_span(const PlainCosts& costs) {
    return testing::largest_span(simulate(make_plan(costs)));
}

/// Forward 1, input gradient 1, weight gradient 1.
PlainCosts unit_costs(ScheduleKind kind, int ranks, int micro_batches) {
    return plain(kind, ranks, micro_batches);  // backward 2 = I + W
}

TEST(GoldenValues, FourStagesEightMicroBatchesOfGPipe) {
    const PlainCosts costs = unit_costs(ScheduleKind::GPipe, 4, 8);
    EXPECT_EQ(time_of(costs), Duration(milliseconds(33)));
    EXPECT_EQ(largest_span(costs), Duration(milliseconds(33)));
    EXPECT_EQ(peaks_of(costs), (std::vector<int>{8, 8, 8, 8}));
}

TEST(GoldenValues, FourStagesEightMicroBatchesOf1F1B) {
    const PlainCosts costs = unit_costs(ScheduleKind::OneFOneB, 4, 8);
    EXPECT_EQ(time_of(costs), Duration(milliseconds(33)));
    EXPECT_EQ(largest_span(costs), Duration(milliseconds(33)));
    EXPECT_EQ(peaks_of(costs), (std::vector<int>{4, 3, 2, 1}));
}

TEST(GoldenValues, FourStagesTwoMicroBatchesOf1F1B) {
    const PlainCosts costs = unit_costs(ScheduleKind::OneFOneB, 4, 2);
    EXPECT_EQ(time_of(costs), Duration(milliseconds(15)));
    EXPECT_EQ(largest_span(costs), Duration(milliseconds(15)));
    EXPECT_EQ(peaks_of(costs), (std::vector<int>{2, 2, 2, 1}));
}

TEST(GoldenValues, LatencyOfATenthDelays1F1B) {
    PlainCosts small = unit_costs(ScheduleKind::OneFOneB, 4, 8);
    small.link.latency = microseconds(100);
    EXPECT_EQ(time_of(small), Duration(microseconds(34'600)));

    PlainCosts large = unit_costs(ScheduleKind::OneFOneB, 8, 24);
    large.link.latency = microseconds(100);
    EXPECT_EQ(time_of(large), Duration(microseconds(98'400)));
}

TEST(GoldenValues, OneStageOneAndAHalfTimesSlower) {
    struct Case {
        ScheduleKind kind;
        std::size_t slow_stage;
        Duration time;
    };
    for (const Case& golden : {Case{ScheduleKind::OneFOneB, 3, milliseconds(45)},
                               Case{ScheduleKind::OneFOneB, 0, microseconds(40'500)},
                               Case{ScheduleKind::GPipe, 3, milliseconds(45)},
                               Case{ScheduleKind::GPipe, 0, milliseconds(45)}}) {
        PlainCosts costs = plain(golden.kind, 4, 8);
        costs.forward[golden.slow_stage] = microseconds(1'500);
        costs.backward[golden.slow_stage] = milliseconds(3);
        EXPECT_EQ(time_of(costs), golden.time)
            << to_string(golden.kind) << ", stage " << golden.slow_stage << " slow";
    }
}

TEST(GoldenValues, GPipeWithEveryKindOfRecompute) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 4, 8);
    EXPECT_EQ(time_of(costs), Duration(milliseconds(33)));
    costs.recompute = Recompute::ExceptLast;
    EXPECT_EQ(time_of(costs), Duration(milliseconds(40)));
    costs.recompute = Recompute::Always;
    EXPECT_EQ(time_of(costs), Duration(milliseconds(41)));
    costs.recompute_timing = RecomputeTiming::Lazy;
    EXPECT_EQ(time_of(costs), Duration(milliseconds(44)));
}

/// "Zero Bubble Pipeline Parallelism" publishes the bubble rates of 1f1b for four profiled models;
/// the times are those of its appendix, in milliseconds.
TEST(GoldenValues, PublishedBubbleRatesOf1F1BToFourDecimals) {
    struct Row {
        int ranks, micro_batches;
        double forward, backward_input, backward_weight, communication, bubble;
    };
    for (const Row& row : {Row{8, 24, 18.522, 18.086, 9.337, 0.601, .2431},
                           Row{8, 32, 18.513, 18.086, 9.331, 0.626, .1985},
                           Row{16, 48, 11.347, 11.248, 8.132, 0.377, .2552},
                           Row{16, 64, 11.307, 11.254, 8.101, 0.379, .2082}}) {
        const auto stages = static_cast<std::size_t>(row.ranks);
        const auto of = [](double ms) { return from_milliseconds(ms, "a published time"); };
        PlainCosts costs = plain(ScheduleKind::OneFOneB, row.ranks, row.micro_batches);
        costs.forward.assign(stages, of(row.forward));
        costs.backward.assign(stages, of(row.backward_input) + of(row.backward_weight));
        costs.link.latency = of(row.communication);
        EXPECT_NEAR(metrics_of(costs).bubble.span, row.bubble, 0.00005)
            << "p " << row.ranks << " m " << row.micro_batches;
    }
}

// Times of published measurements that follow from the eager closed form: GPipe on TPUs at 32
// micro-batches.
TEST(GoldenValues, EightStagesRunThreeAndAHalfTimesAsFastAsTwo) {
    const auto step = [](int stages) {
        PlainCosts costs = plain(ScheduleKind::GPipe, stages, 32);
        costs.recompute = Recompute::Always;
        // The same model in all cases: a stage of eight is a quarter of a stage of two.
        return time_of(costs) / static_cast<double>(stages);
    };
    EXPECT_NEAR(step(2) / step(8), 3.517, 0.0005);
}

}  // namespace closed_form_test
}  // namespace pipetwin::sim
