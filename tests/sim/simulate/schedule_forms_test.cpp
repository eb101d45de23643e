// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/timeline/footprint.h"
#include "core/timeline/metrics.h"
#include "sim/simulate/simulate.h"
#include "tests/support/plain_plan.h"
#include "tests/support/spans.h"

/// Step times, spans and peaks of the schedules with chunks, split backwards or two directions, as
/// closed forms over all small shapes. docs/schedules.md has them in one table.
namespace pipetwin::sim {
namespace schedule_forms_test {

using testing::microseconds;
using testing::milliseconds;

/// Uniform costs in ms, under the names of the formulas: p ranks, m micro-batches, v chunks,
/// forward, input gradient, weight gradient, latency.
struct Case {
    int p = 1;
    int m = 1;
    int v = 1;
    int f = 1;
    int i = 1;
    int w = 1;
    int c = 0;

    int b() const { return i + w; }
    int all() const { return f + i + w; }
};

std::ostream& operator<<(std::ostream& out, const Case& x) {
    return out << "p " << x.p << " m " << x.m << " v " << x.v << " F " << x.f << " I " << x.i
               << " W " << x.w << " c " << x.c;
}

struct Result {
    double time = 0;  ///< ms
    double span = 0;  ///< ms, the largest of all ranks from first start to last end
    std::vector<int> peaks;
};

PlainCosts costs_of(ScheduleKind kind, const Case& x) {
    PlainCosts costs;
    costs.schedule = kind;
    costs.schedule_name = to_string(kind);
    costs.shape = {.ranks = x.p, .chunks = x.v, .micro_batches = x.m};
    const auto pieces = static_cast<std::size_t>(x.p * x.v);
    costs.forward.assign(pieces, milliseconds(x.f));
    costs.backward_input.assign(pieces, milliseconds(x.i));
    costs.backward_weight.assign(pieces, milliseconds(x.w));
    costs.link.latency = milliseconds(x.c);
    return costs;
}

Result result_of(const PlainCosts& costs) {
    const Plan plan = make_plan(costs);
    const Timeline timeline = simulate(plan);
    return {.time = to_milliseconds(pipeline_time(timeline)),
            .span = to_milliseconds(testing::largest_span(timeline)),
            .peaks = peak_live_activations(plan->schedule)};
}

/// Every p <= 8, m <= 32 and v of `chunks`, at a few costs; `check` where `holds`.
void for_shapes(ScheduleKind kind,
                const std::vector<int>& chunks,
                const std::vector<Case>& costs,
                const std::function<bool(const Case&)>& holds,
                const std::function<void(const Case&, const Result&)>& check) {
    int checked = 0;
    for (const Case& cost : costs) {
        for (int p = 1; p <= 8; ++p) {
            for (const int v : chunks) {
                for (int m = 1; m <= 32; ++m) {
                    Case shape = cost;
                    shape.p = p;
                    shape.m = m;
                    shape.v = v;
                    if (holds(shape)) {
                        ++checked;
                        check(shape, result_of(costs_of(kind, shape)));
                    }
                }
            }
        }
    }
    EXPECT_GE(checked, 8);
}

std::vector<int> same_on_every_rank(const Case& x, int peak) {
    return std::vector<int>(static_cast<std::size_t>(x.p), peak);
}

TEST(Interleaved1F1B, TakesTheTimeOfItsClosedForm) {
    // Latencies up to the shorter of F and B hide in part; beyond that the formula does not hold.
    for_shapes(
        ScheduleKind::Interleaved1F1B,
        {2, 3, 4},
        {{.f = 1, .i = 1, .w = 1},
         {.f = 3, .i = 4, .w = 1, .c = 2},
         {.f = 4, .i = 1, .w = 1, .c = 2}},
        [](const Case& x) { return x.m % x.p == 0; },
        [](const Case& x, const Result& result) {
            const int time = (x.m * x.v + x.p - 1) * (x.f + x.b()) +
                             (x.p > 1 ? x.c * (2 * (x.p - 1) + 2 * x.p * (x.v - 1)) : 0);
            ASSERT_EQ(result.time, time) << x;
            for (int r = 0; r < x.p; ++r) {
                ASSERT_EQ(result.peaks[static_cast<std::size_t>(r)],
                          std::min(x.m * x.v, (x.v - 1) * x.p + 2 * (x.p - 1 - r) + 1))
                    << x;
            }
        });
}

TEST(LoopedBfs, TakesTheTimeOfItsClosedForm) {
    for_shapes(
        ScheduleKind::LoopedBfs,
        {1, 2, 3, 4},
        {{.f = 1, .i = 1, .w = 1},
         {.f = 3, .i = 4, .w = 1, .c = 2},
         {.f = 2, .i = 1, .w = 1, .c = 9}},
        [](const Case& x) { return x.p > 1; },
        [](const Case& x, const Result& result) {
            const int stalls = std::max(0, x.p * (x.f + x.c) - x.m * x.f) +
                               std::max(0, x.p * (x.b() + x.c) - x.m * x.b());
            ASSERT_EQ(
                result.time,
                (x.m * x.v + x.p - 1) * (x.f + x.b()) + 2 * (x.p - 1) * x.c + (x.v - 1) * stalls)
                << x;
            ASSERT_EQ(result.peaks, same_on_every_rank(x, x.m * x.v)) << x;
        });
}

const std::vector<Case> split_costs{{.f = 1, .i = 1, .w = 1},
                                    {.f = 3, .i = 4, .w = 2},
                                    {.f = 4, .i = 3, .w = 1},
                                    {.f = 2, .i = 2, .w = 5}};

TEST(ZbH1, TakesTheTimeOfItsClosedForm) {
    for_shapes(
        ScheduleKind::ZbH1,
        {1},
        split_costs,
        [](const Case& x) { return x.m >= x.p; },
        [](const Case& x, const Result& result) {
            ASSERT_EQ(result.time,
                      x.m * x.all() + (x.p - 1) * std::max({x.f, x.i, x.f + x.i - x.w}))
                << x;
            ASSERT_EQ(result.peaks, same_on_every_rank(x, std::min(x.m, x.p))) << x;
        });
}

TEST(ZbH2, LeavesNoBubbleInTheSpanOfItsClosedForm) {
    for_shapes(
        ScheduleKind::ZbH2,
        {1},
        split_costs,
        [](const Case& x) { return x.m >= 2 * x.p - 1; },
        [](const Case& x, const Result& result) {
            ASSERT_EQ(result.span,
                      x.m * x.all() + (x.p - 1) * std::max({0, x.f + x.i - 2 * x.w, x.i - x.f}))
                << x;
            ASSERT_EQ(result.peaks, same_on_every_rank(x, std::min(x.m, 2 * x.p - 1))) << x;
        });
}

/// 2 p activations are more than either fixed order keeps.
TEST(ZbAuto, LeavesNoMoreBubbleInItsSpanThanTheFixedOrders) {
    for_shapes(
        ScheduleKind::ZbAuto,
        {1},
        split_costs,
        [](const Case& x) { return x.m % 16 == 9; },
        [](const Case& x, const Result& result) {
            ASSERT_LE(result.span, result_of(costs_of(ScheduleKind::ZbH1, x)).span) << x;
            ASSERT_LE(result.span, result_of(costs_of(ScheduleKind::ZbH2, x)).span) << x;
        });
}

TEST(ZbV, TakesTheTimeOfItsClosedFormAtUnitCosts) {
    for_shapes(
        ScheduleKind::ZbV,
        {2},
        {{}},
        [](const Case&) { return true; },
        [](const Case& x, const Result& result) {
            const int short_of_full = 2 * (2 * x.p - 1 - x.m);
            ASSERT_EQ(result.time, 6 * x.m + std::max(x.p - 1, short_of_full)) << x;
            ASSERT_EQ(result.span, 6 * x.m + std::max(0, short_of_full)) << x;
            if (x.m >= 2 * x.p - 1) {
                ASSERT_EQ(result.peaks, same_on_every_rank(x, 2 * x.p)) << x;
            }
        });
}

TEST(InterleavedZb, TakesTheTimeOfItsClosedForm) {
    for_shapes(
        ScheduleKind::InterleavedZb,
        {1, 2, 3, 4},
        split_costs,
        [](const Case& x) { return x.m % x.p == 0; },
        [](const Case& x, const Result& result) {
            ASSERT_EQ(result.time,
                      x.m * x.v * x.all() + (x.p - 1) * std::max({x.f, x.i, x.f + x.i - x.w}))
                << x;
            ASSERT_EQ(result.peaks, same_on_every_rank(x, x.p * x.v)) << x;
        });
}

/// The paper's idle time of the worst rank is exact for F = I >= W, where an overlapped pair lasts
/// F + B.
TEST(DualPipeV, TakesTheTimeOfItsClosedForm) {
    for_shapes(
        ScheduleKind::DualPipeV,
        {2},
        {{.f = 1, .i = 1, .w = 1}, {.f = 3, .i = 3, .w = 2}, {.f = 5, .i = 5, .w = 1}},
        [](const Case& x) { return x.m >= 2 * x.p; },
        [](const Case& x, const Result& result) {
            const int idle = (x.p - 1) * ((x.f + x.b()) + x.b() - 3 * x.w);
            ASSERT_EQ(result.time, 2 * x.m * x.all() + idle) << x;
            ASSERT_EQ(result.peaks, same_on_every_rank(x, 2 * x.p + 1)) << x;
        });
}

TEST(Chimera, TakesTheTimeOfItsClosedForm) {
    for (int p = 2; p <= 32; p += 2) {
        const Case equal{.p = p, .m = p, .f = 2, .i = 1, .w = 1};
        EXPECT_EQ(result_of(costs_of(ScheduleKind::Chimera, equal)).time, 2 * (2 * p + p - 2));
        const Case twice{.p = p, .m = p};
        const Result result = result_of(costs_of(ScheduleKind::Chimera, twice));
        EXPECT_EQ(result.time, 3 * p + 2 * (p - 2)) << p;
        EXPECT_EQ(std::ranges::min(result.peaks), p / 2 + 1) << p;
        EXPECT_EQ(std::ranges::max(result.peaks), p) << p;
    }
}

TEST(Hanayo, TakesTheTimeOfItsClosedForm) {
    for (int p = 1; p <= 32; ++p) {
        EXPECT_EQ(result_of(costs_of(ScheduleKind::Hanayo, {.p = p, .m = p, .v = 2})).time,
                  10 * p - 4);
    }
}

TEST(ForwardOnly, KeepsTwoBuffersHoweverManyMicroBatchesThereAre) {
    for (const int m : {2, 8, 32}) {
        PlainCosts costs = costs_of(ScheduleKind::ForwardOnly, {.p = 4, .m = m});
        costs.boundary = Bytes{100};
        const Plan plan = make_plan(costs);
        EXPECT_EQ(peak_live_activations(plan->schedule), std::vector<int>(4, 2));
        const std::vector<MemoryUse> peaks = peak_memory(plan);
        EXPECT_EQ(peaks.front().total(), Bytes{100});  // its output
        EXPECT_EQ(peaks[1].total(), Bytes{200});       // input and output
        EXPECT_EQ(peaks.back().total(), Bytes{100});   // its input
    }
}

TEST(ForwardOnly, TakesTheTimeOfItsClosedForm) {
    for_shapes(
        ScheduleKind::ForwardOnly,
        {1},
        {{.f = 3}, {.f = 2, .c = 5}},
        [](const Case&) { return true; },
        [](const Case& x, const Result& result) {
            ASSERT_EQ(result.time, (x.m + x.p - 1) * x.f + (x.p - 1) * x.c) << x;
        });
}

// --- Golden values: costs per stage in microseconds. ---

struct Golden {
    ScheduleKind kind;
    int p, m, v;
    int cost;  ///< of F, I and W alike
    int time;
    int span;  ///< 0: not known
    std::vector<int> peaks;
};

TEST(GoldenValues, SchedulesWithChunksAndSplitBackwards) {
    for (const Golden& golden :
         {Golden{ScheduleKind::Interleaved1F1B, 4, 8, 2, 500, 28'500, 0, {11, 9, 7, 5}},
          Golden{ScheduleKind::Interleaved1F1B, 4, 16, 4, 250, 50'250, 0, {19, 17, 15, 13}},
          Golden{ScheduleKind::LoopedBfs, 4, 8, 2, 500, 28'500, 0, {16, 16, 16, 16}},
          Golden{ScheduleKind::ZbH1, 4, 8, 1, 1'000, 27'000, 27'000, {4, 4, 4, 4}},
          Golden{ScheduleKind::ZbH1, 8, 24, 1, 1'000, 79'000, 79'000, {8, 8, 8, 8, 8, 8, 8, 8}},
          Golden{ScheduleKind::ZbH2, 4, 8, 1, 1'000, 27'000, 24'000, {7, 7, 7, 7}},
          Golden{ScheduleKind::ZbH2,
                 8,
                 24,
                 1,
                 1'000,
                 79'000,
                 72'000,
                 {15, 15, 15, 15, 15, 15, 15, 15}},
          Golden{ScheduleKind::ZbV, 4, 8, 2, 1'000, 51'000, 48'000, {8, 8, 8, 8}}}) {
        PlainCosts costs = costs_of(golden.kind, {.p = golden.p, .m = golden.m, .v = golden.v});
        for (auto* list : {&costs.forward, &costs.backward_input, &costs.backward_weight}) {
            std::ranges::fill(*list, microseconds(golden.cost));
        }
        const Result result = result_of(costs);
        const std::string_view name = to_string(golden.kind);
        EXPECT_EQ(result.time, golden.time / 1000.0) << name;
        EXPECT_EQ(result.peaks, golden.peaks) << name;
        if (golden.span > 0) {
            EXPECT_EQ(result.span, golden.span / 1000.0) << name;
        }
    }
}

/// "Zero Bubble Pipeline Parallelism" publishes bubble rates of its schedules for four profiled
/// models; the times are those of its appendix, in milliseconds.
TEST(GoldenValues, PublishedBubbleRatesOfZeroBubbleToFourDecimals) {
    struct Row {
        int ranks, micro_batches;
        double forward, backward_input, backward_weight, communication, h1, h2, automatic;
    };
    for (const Row& row : {Row{8, 24, 18.522, 18.086, 9.337, 0.601, .1585, .1083, .0433},
                           Row{8, 32, 18.513, 18.086, 9.331, 0.626, .1242, .0837, .0039},
                           Row{16, 48, 11.347, 11.248, 8.132, 0.377, .1397, .0672, .0066},
                           Row{16, 64, 11.307, 11.254, 8.101, 0.379, .1088, .0516, .0054}}) {
        const auto bubble = [&row](ScheduleKind kind) {
            PlainCosts costs = costs_of(kind, {.p = row.ranks, .m = row.micro_batches});
            const auto of = [](double ms) { return from_milliseconds(ms, "a published time"); };
            std::ranges::fill(costs.forward, of(row.forward));
            std::ranges::fill(costs.backward_input, of(row.backward_input));
            std::ranges::fill(costs.backward_weight, of(row.backward_weight));
            costs.link.latency = of(row.communication);
            const Plan plan = make_plan(costs);
            return measure(plan, simulate(plan)).bubble.span;
        };
        EXPECT_NEAR(bubble(ScheduleKind::ZbH1), row.h1, 0.00005) << row.ranks;
        EXPECT_NEAR(bubble(ScheduleKind::ZbH2), row.h2, 0.00005) << row.ranks;
        // Room for 2 p activations. The search is not the paper's, so it may find better orders.
        EXPECT_LE(bubble(ScheduleKind::ZbAuto), row.automatic + 0.00005) << row.ranks;
    }
}

// --- Weight gradients put off into the waits of any order. ---

PlainCosts deferred(PlainCosts costs, int most) {
    costs.deferred_weights = most;
    return costs;
}

/// Whether actions of some row are issued together.
bool has_pairs(const Schedule& schedule) {
    return std::ranges::any_of(schedule.ranks, [](const std::vector<Action>& row) {
        return std::ranges::any_of(row, &Action::with_next);
    });
}

/// The rows have an R directly before each B or I, behind its receive: for the times it is a part
/// of the backward. In pairs that are issued together R comes before both, so these are left out.
TEST(LazyRecompute, IsTheDefaultAndTakesTheTimeOfABackwardThatIsLongerByIt) {
    int compared = 0;
    for (const ScheduleName& known : known_schedules()) {
        const ScheduleTraits& row = schedule_traits(known.kind);
        if (known.name == "gpipe" || !row.trains) {
            continue;
        }
        for (Case x : {Case{.p = 4, .m = 8, .f = 1, .i = 1, .w = 1},
                       Case{.p = 4, .m = 4, .f = 3, .i = 4, .w = 2, .c = 1},
                       Case{.p = 3, .m = 1, .f = 2, .i = 1, .w = 5, .c = 4}}) {
            for (x.v = 1; x.v <= 2; ++x.v) {
                PlainCosts costs = costs_of(known.kind, x);
                try {
                    if (has_pairs(generate(costs.schedule, costs.shape))) {
                        continue;
                    }
                } catch (const Error&) {
                    continue;  // no such shape
                }
                costs.recompute = Recompute::Always;
                Case longer = x;
                longer.i += x.f;
                EXPECT_EQ(result_of(costs).time, result_of(costs_of(known.kind, longer)).time)
                    << known.name << " " << x;
                ++compared;
            }
        }
    }
    EXPECT_GE(compared, 20);
}

/// 1f1b as above, and an R on top of every B: its closed form.
TEST(LazyRecompute, Of1F1BTakesTheTimeOfItsClosedForm) {
    for_shapes(
        ScheduleKind::OneFOneB,
        {1},
        {{.f = 1, .i = 1, .w = 1}, {.f = 3, .i = 4, .w = 2}},
        [](const Case&) { return true; },
        [](const Case& x, const Result&) {
            PlainCosts costs = costs_of(ScheduleKind::OneFOneB, x);
            costs.recompute = Recompute::Always;
            ASSERT_EQ(result_of(costs).time, (x.m + x.p - 1) * (2 * x.f + x.b())) << x;
        });
}

TEST(DeferredWeights, Give1F1BTheTimeOfZbH1) {
    for_shapes(
        ScheduleKind::OneFOneB,
        {1},
        {{.f = 1, .i = 1, .w = 1}},
        [](const Case& x) { return x.m >= x.p; },
        [](const Case& x, const Result&) {
            const Result result = result_of(deferred(costs_of(ScheduleKind::OneFOneB, x), x.p));
            ASSERT_EQ(result.time, result_of(costs_of(ScheduleKind::ZbH1, x)).time) << x;
        });
}

TEST(DeferredWeights, NeverMakeAPipelineSlower) {
    for (const ScheduleName& known : known_schedules()) {
        if (known.kind == ScheduleKind::Naive || known.kind == ScheduleKind::ForwardOnly) {
            continue;
        }
        for (Case x : {Case{.p = 4, .m = 8, .f = 1, .i = 1, .w = 1},
                       Case{.p = 4, .m = 4, .f = 3, .i = 4, .w = 2, .c = 1},
                       Case{.p = 2, .m = 6, .f = 2, .i = 1, .w = 5}}) {
            for (x.v = 1; x.v <= 2; ++x.v) {
                const PlainCosts costs = costs_of(known.kind, x);
                try {
                    generate(costs.schedule, costs.shape);
                } catch (const Error&) {
                    continue;  // no such shape
                }
                for (const int most : {1, 3, 100}) {
                    EXPECT_LE(result_of(deferred(costs, most)).time, result_of(costs).time)
                        << known.name << " " << x << " at most " << most;
                }
            }
        }
    }
}

}  // namespace schedule_forms_test
}  // namespace pipetwin::sim
