// SPDX-License-Identifier: Apache-2.0
#include "core/plan/offload.h"

#include <algorithm>
#include <chrono>

#include <gtest/gtest.h>

#include "core/schedule/generators/generate.h"
#include "core/timeline/footprint.h"
#include "core/timeline/metrics.h"
#include "sim/engine/event_engine.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"

namespace pipetwin::sim {
namespace offload_test {

using testing::expect_relation;
using testing::milliseconds;
using testing::one_rank_with_host_link;
using testing::plain;

constexpr int cases = 100;  // per relation

Plan without_offload(const Plan& plan) {
    PlanParts parts = plan.parts();
    parts.host_link.reset();
    return Plan::make(std::move(parts));
}

Span copy(Action action, int begin, int ready, int end) {
    return {.action = action,
            .begin = milliseconds(begin),
            .ready = milliseconds(ready),
            .end = milliseconds(end)};
}

constexpr Action forward(int micro_batch) {
    return {.op = Op::Forward, .stage = 0, .micro_batch = micro_batch};
}
constexpr Action backward(int micro_batch) {
    return {.op = Op::Backward, .stage = 0, .micro_batch = micro_batch};
}

// A stash takes 4 ms, twice as long as a forward, and 1 ms of latency. That of micro-batch 2 is
// needed at once and stays. One column per millisecond:
//
//     row   001122ccc.......bbb..aaa
//     out   ..00001111                    complete at 7 and at 11
//     in    ...........1111.0000          the first not before it is out; complete at 16 and at 21
TEST(Offload, CopiesOutBehindForwardsAndInBesideTheBackwardBefore) {
    const Plan plan = one_rank_with_host_link(3, 4, 1);
    const Timeline timeline = simulate(plan);
    ASSERT_EQ(timeline.host_copies.size(), 2U);
    EXPECT_EQ(timeline.host_copies[0],
              (std::vector<Span>{copy(forward(0), 2, 6, 7), copy(forward(1), 6, 10, 11)}));
    EXPECT_EQ(timeline.host_copies[1],
              (std::vector<Span>{copy(backward(1), 11, 15, 16), copy(backward(0), 16, 20, 21)}));
    const auto& row = timeline.ranks[0];
    EXPECT_EQ(row[3], copy(backward(2), 6, 6, 9));
    EXPECT_EQ(row[4], copy(backward(1), 9, 16, 19));
    EXPECT_EQ(row[5], copy(backward(0), 19, 21, 24));
    EXPECT_EQ(by_events(plan, planned_conditions(plan)), timeline);
}

// The same step, in MB of stash, with 1 MB more while a backward runs:
//
//     0 F0 4 | 2 F1 8 | 4 F2 12 | 6 B2 13 | 7 S0 away 9 | 9 B2 ends 4, B1's own scratch from here 5
//     11 S1 away 1, back in at once 5 | 16 S0 back in 9 | 19 B1 ends 4, B0 5 | 24 all free
TEST(Offload, TheStashIsOffItsDeviceFromTheEndOfTheCopyOutToTheBeginOfTheCopyIn) {
    const Plan plan = one_rank_with_host_link(3, 4, 1);
    const MemoryCurve curve = footprint(plan, simulate(plan)).front();
    const auto at = [&](int ms) {  // the last point of this moment
        const auto after =
            std::ranges::upper_bound(curve, Duration{milliseconds(ms)}, {}, &MemoryPoint::time);
        return (after - 1)->use.total().count / 1'000'000;
    };
    std::vector<std::int64_t> found;
    for (const int ms : {0, 2, 4, 6, 7, 9, 11, 16, 19, 24}) {
        found.push_back(at(ms));
    }
    EXPECT_EQ(found, (std::vector<std::int64_t>{4, 8, 12, 13, 9, 5, 5, 9, 5, 0}));
    const PeakInTime highest = memory_peaks(plan, simulate(plan)).front();
    EXPECT_EQ(highest.peak.use.total(), Bytes{13'000'000});
    EXPECT_EQ(highest.peak.cell, 3);  // in 0B2
    EXPECT_FALSE(highest.peak.after);
    EXPECT_EQ(highest.time, milliseconds(6));
    EXPECT_EQ(peak_memory(without_offload(plan)).front().total(), Bytes{13'000'000});
}

// With a link that keeps up, copy 1 ms for a forward of 2 ms, a rank holds the stash it makes and
// the one under way; and then the one it uses and the next: 5 + 4 MB, whatever the number of
// micro-batches. The copies out end 1 ms behind their forwards, at 2 k + 3.
TEST(Offload, WithALinkThatKeepsUpThePeakDoesNotGrowWithTheMicroBatches) {
    for (const int micro_batches : {3, 5, 12}) {
        const Plan plan = one_rank_with_host_link(micro_batches, 1, 0);
        const Timeline timeline = simulate(plan);
        EXPECT_EQ(step_time(timeline), milliseconds(5 * micro_batches));
        for (int k = 0; k + 1 < micro_batches; ++k) {
            EXPECT_EQ(timeline.host_copies[0][static_cast<std::size_t>(k)].end,
                      milliseconds(2 * k + 3));
        }
        EXPECT_EQ(peak_memory(plan, timeline).front().total(), Bytes{9'000'000});
        EXPECT_EQ(peak_memory(plan).front().total(),
                  Bytes{4'000'000} * micro_batches + Bytes{1'000'000});
    }
}

// K = 1, gpipe: m - 1 copies of c follow forwards of f each, so the last is out at
// f + (m - 2) max(f, c) + c. The link in then gives a stash every max(b, c).
TEST(Offload, CopiesOfOneRankKeepTheClosedForm) {
    constexpr int f = 2;
    constexpr int b = 3;
    for (int m = 3; m <= 9; ++m) {
        for (int c = 1; c <= 7; ++c) {
            const Timeline timeline = simulate(one_rank_with_host_link(m, c, 0));
            const int last_out = f + (m - 2) * std::max(f, c) + c;
            EXPECT_EQ(timeline.host_copies[0].back().end, milliseconds(last_out));
            // The first is in c behind the begin of the first backward, or behind its own way out;
            // a backward and the copy for the next run side by side.
            const int first_in = std::max(m * f, last_out) + c;
            const int first_use = std::max(m * f + b, first_in);
            const int step = first_use + (m - 2) * std::max(b, c) + b;
            EXPECT_EQ(step_time(timeline), milliseconds(step)) << "m " << m << " c " << c;
        }
    }
}

// With recompute it is the input that is copied, and R that needs it: 0F0 1F1 1R 1B 0R 0B.
TEST(Offload, WithRecomputeTheInputIsCopiedAndComesBackForTheRecompute) {
    const Plan plan = one_rank_with_host_link(2, 1, 0, Recompute::Always);
    const auto copies = stash_copies(plan).front();
    ASSERT_EQ(copies.size(), 1U);
    EXPECT_EQ(copies[0].forward, 0U);
    EXPECT_EQ(copies[0].before, 3U);
    EXPECT_EQ(copies[0].user, 4U);
    EXPECT_EQ(copies[0].bytes, Bytes{1'000'000});
    const Timeline timeline = simulate(plan);
    EXPECT_EQ(timeline.host_copies[1].front().begin, milliseconds(6));  // with 1B, behind F F R
    EXPECT_EQ(step_time(timeline), milliseconds(14));
}

// rank 0   F0 F1 B0 F2 B1 F3 B2 B3     there is always an action in between
// rank 1   F0 B0 F1 B1 F2 B2 F3 B3
TEST(Offload, AStashThatIsNeededNextStaysOnItsDevice) {
    PlanParts parts = make_plan(plain(ScheduleKind::OneFOneB, 2, 4)).parts();
    for (StageCost& cost : parts.costs.front()) {
        cost.saved = Bytes{1'000'000};
        cost.backward_peak = Bytes{1'000'000};
    }
    parts.host_link = LinkCost{.bytes_per_second = 1e9};
    const auto copies = stash_copies(Plan::make(std::move(parts)));
    EXPECT_EQ(copies[0].size(), 4U);
    EXPECT_TRUE(copies[1].empty());
}

TEST(Offload, AnInfinitelyFastLinkTakesNoTimeAndAnyOtherCannotMakeAStepShorter) {
    expect_relation(cases, [] {
        const Plan plan = with_offload(plan_with_updates(random_pipeline()));
        const Timeline on_device = simulate(without_offload(plan));
        RC_ASSERT(step_time(simulate(plan)) >= step_time(on_device));
        PlanParts fast = plan.parts();
        fast.host_link = LinkCost{};
        const Timeline instant = simulate(Plan::make(std::move(fast)));
        RC_ASSERT(instant.ranks == on_device.ranks);
        RC_ASSERT(instant.links == on_device.links);
    });
}

TEST(Offload, NoRankEverHoldsMoreAndAllOfItIsFreedInTheEnd) {
    expect_relation(cases, [] {
        const Plan plan = with_offload(plan_with_updates(random_pipeline()));
        const Timeline timeline = simulate(plan);
        const std::vector<MemoryCurve> curves = footprint(plan, timeline);
        const std::vector<MemoryUse> on_device = peak_memory(plan);
        const std::vector<PeakInTime> peaks = memory_peaks(plan, timeline);
        const Metrics metrics = measure(plan, timeline);
        for (std::size_t rank = 0; rank < curves.size(); ++rank) {
            const MemoryCurve& curve = curves[rank];
            const MemoryPeak& peak = peaks[rank].peak;
            RC_ASSERT(peak.use.total() <= on_device[rank].total());
            RC_ASSERT(metrics.devices[rank].peak.use == peak.use);
            RC_ASSERT(metrics.devices[rank].peak_time == peaks[rank].time);
            RC_ASSERT(std::ranges::is_sorted(curve, {}, &MemoryPoint::time));
            RC_ASSERT(std::ranges::all_of(curve, [&](const MemoryPoint& point) {
                return point.use[MemoryKind::Stash] >= Bytes{} &&
                       point.use.total() <= peak.use.total();
            }));
            RC_ASSERT(is_forward_only(plan->schedule) || curve.empty() ||
                      curve.back().use == resident_memory(plan, static_cast<int>(rank)));
        }
    });
}

TEST(Offload, EveryRankThatWaitsForItsStashIsIdle) {
    expect_relation(cases, [] {
        const Plan plan = with_offload(plan_with_updates(random_pipeline()));
        const Timeline timeline = simulate(plan);
        const Metrics metrics = measure(plan, timeline);
        const Metrics on_device = measure(plan, simulate(without_offload(plan)));
        for (std::size_t rank = 0; rank < metrics.devices.size(); ++rank) {
            RC_ASSERT(metrics.devices[rank].busy == on_device.devices[rank].busy);
        }
    });
}

}  // namespace offload_test
}  // namespace pipetwin::sim
