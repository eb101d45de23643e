// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/closed_form.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/timeline/metrics.h"
#include "sim/simulate/simulate.h"
#include "tests/support/plain_plan.h"
#include "tests/support/spans.h"

namespace pipetwin {
namespace bubble_formula_test {

using std::chrono::milliseconds;

/// Forward, input part and weight part of a backward, and the latency, in ms.
struct Costs {
    int f = 1;
    int i = 1;
    int w = 1;
    int c = 0;
};

EvenCosts even(int ranks, int micro_batches, int chunks, const Costs& ms) {
    return {.ranks = ranks,
            .micro_batches = micro_batches,
            .chunks = chunks,
            .forward = milliseconds(ms.f),
            .backward_input = milliseconds(ms.i),
            .backward_weight = milliseconds(ms.w),
            .latency = milliseconds(ms.c)};
}

/// The bubble of a simulated step of these costs.
double simulated_bubble(ScheduleKind kind, const EvenCosts& even) {
    PlainCosts costs;
    costs.schedule = kind;
    costs.schedule_name = to_string(kind);
    costs.shape = {.ranks = even.ranks, .chunks = even.chunks, .micro_batches = even.micro_batches};
    const auto pieces = static_cast<std::size_t>(even.ranks * even.chunks);
    costs.forward.assign(pieces, even.forward);
    costs.backward_input.assign(pieces, even.backward_input);
    costs.backward_weight.assign(pieces, even.backward_weight);
    costs.backward.assign(pieces, even.backward_input + even.backward_weight);
    costs.link.latency = even.latency;
    const Plan plan = make_plan(costs);
    return measure_times(plan, sim::simulate(plan)).bubble.total;
}

bool takes(ScheduleKind kind, const EvenCosts& costs) {
    try {
        generate(
            kind,
            {.ranks = costs.ranks, .chunks = costs.chunks, .micro_batches = costs.micro_batches});
        return true;
    } catch (const Error&) {
        return false;
    }
}

/// The formulas are those of papers, the step is the simulator's: neither knows the other.
TEST(ClosedForm, IsTheBubbleOfTheSimulatedStepWhereverItClaimsToHold) {
    std::map<std::string, int> held;
    for (const ScheduleName& known : known_schedules()) {
        if (schedule_traits(known.kind).order_from_costs) {
            continue;
        }
        for (const Costs& ms : {Costs{},
                                Costs{.f = 2, .i = 1, .w = 1},
                                Costs{.f = 3, .i = 4, .w = 2},
                                Costs{.f = 3, .i = 3, .w = 1},
                                Costs{.f = 3, .i = 4, .w = 1, .c = 2},
                                Costs{.f = 2, .i = 1, .w = 1, .c = 9}}) {
            for (int k = 1; k <= 6; ++k) {
                for (int m = 1; m <= 13; ++m) {
                    for (int v = 1; v <= 3; ++v) {
                        const EvenCosts costs = even(k, m, v, ms);
                        const ClosedForm form = closed_form(known.kind, costs);
                        if (!form.known() || !takes(known.kind, costs)) {
                            continue;
                        }
                        ASSERT_NEAR(form.bubble(), simulated_bubble(known.kind, costs), 1e-12)
                            << known.name << " K " << k << " M " << m << " v " << v << " F " << ms.f
                            << " I " << ms.i << " W " << ms.w << " c " << ms.c;
                        ++held[std::string(known.name)];
                    }
                }
            }
        }
    }
    for (const char* const name : {"naive",
                                   "gpipe",
                                   "1f1b",
                                   "interleaved-1f1b",
                                   "looped-bfs",
                                   "zb-h1",
                                   "zb-v",
                                   "interleaved-zb",
                                   "dualpipe-v",
                                   "chimera",
                                   "hanayo",
                                   "forward-only"}) {
        EXPECT_GE(held[name], 3) << name;
    }
}

TEST(ClosedForm, PutsTheNumbersIntoTheFormulaOfThePapers) {
    const ClosedForm gpipe = closed_form(ScheduleKind::GPipe, even(4, 8, 1, {}));
    EXPECT_EQ(gpipe.symbols, "(K - 1) / (M + K - 1)");
    EXPECT_EQ(gpipe.numbers, "3 / 11");
    EXPECT_DOUBLE_EQ(gpipe.bubble(), 3.0 / 11);
    const ClosedForm chunks = closed_form(ScheduleKind::Interleaved1F1B, even(4, 8, 2, {}));
    EXPECT_EQ(chunks.symbols, "(K - 1) / (M v + K - 1)");
    EXPECT_EQ(chunks.numbers, "3 / 19");
    const ClosedForm zero = closed_form(ScheduleKind::ZbH1, even(4, 8, 1, {}));
    EXPECT_EQ(zero.where, "work = M (F + I + W), idle = (K - 1) max(F, I, F + I - W)");
    EXPECT_EQ(zero.numbers, "3.00 ms / (24.0 ms + 3.00 ms)");
}

TEST(ClosedForm, SaysWhyThereIsNone) {
    EvenCosts busy = even(4, 8, 1, {});
    busy.transfer = milliseconds(1);
    for (const auto& [kind, costs] : {std::pair(ScheduleKind::OneFOneB, busy),
                                      std::pair(ScheduleKind::ZbAuto, even(4, 8, 1, {})),
                                      std::pair(ScheduleKind::ZbH1, even(4, 8, 1, {.c = 1})),
                                      std::pair(ScheduleKind::PipeDream, even(4, 8, 1, {}))}) {
        const ClosedForm form = closed_form(kind, costs);
        EXPECT_FALSE(form.known());
        EXPECT_TRUE(form.why_not.starts_with("No formula: ")) << form.why_not;
        EXPECT_TRUE(form.symbols.empty());
    }
}

}  // namespace bubble_formula_test
}  // namespace pipetwin
