// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/waits.h"

#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/edge.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/validate.h"
#include "core/timeline/metrics.h"
#include "sim/explain/critical_path.h"
#include "sim/explain/rank_waits.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"

namespace pipetwin::sim {
namespace waits_test {

using testing::expect_relation;
using testing::milliseconds;
using testing::plain;

std::string chain_text(const std::vector<Cause>& chain) {
    std::string text;
    for (const Cause& cause : chain) {
        text += fmt::format("{}{} {}-{} {}",
                            text.empty() ? "" : ", ",
                            to_string(cause.action),
                            cause.begin / milliseconds(1),
                            cause.end / milliseconds(1),
                            to_string(cause.reason));
    }
    return text;
}

/// The waits of a rank as lines, "1-4 RECV_B0: 1F0 1-2 compute, ...".
std::vector<std::string> waits_text(const Plan& plan, int rank) {
    const Timeline timeline = simulate(plan);
    const Causes causes(plan, timeline);
    std::vector<std::string> lines;
    for (const Wait& wait : waits_of(timeline)) {
        if (wait.rank == rank) {
            const auto& row = plan->schedule.ranks[static_cast<std::size_t>(rank)];
            lines.push_back(fmt::format("{}-{} {}: {}",
                                        wait.begin / milliseconds(1),
                                        wait.end / milliseconds(1),
                                        wait.kind == WaitKind::StepEnd
                                            ? "end"
                                            : to_string(row[static_cast<std::size_t>(wait.cell)]),
                                        chain_text(chain_of(causes, wait))));
        }
    }
    return lines;
}

using Lines = std::vector<std::string>;

// rank 0  0..aa
// rank 1  .0aa..
TEST(Waits, GoThroughTheActionsThatMadeTheMessage) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 2, 1));
    EXPECT_EQ(waits_text(plan, 0), Lines{"1-4 0RECV_B0: 1F0 1-2 compute, 1B0 2-4 compute"});
    EXPECT_EQ(waits_text(plan, 1),
              (Lines{"0-1 1RECV_F0: 0F0 0-1 compute", "4-6 end: 0B0 4-6 compute"}));
}

// Messages of 5 ms on a link with 1 ms of latency.
//
// rank 0  01...................bb...aa
// link     00000111111       (both directions; letters for gradients)
TEST(Waits, GoOverLinksAndTheMessagesBeforeOnThem) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 2);
    costs.link = {.latency = milliseconds(1), .bytes_per_second = 1e9};
    costs.boundary = Bytes{5'000'000};
    const Plan plan = make_plan(costs);
    EXPECT_EQ(waits_text(plan, 0),
              (Lines{"2-21 0RECV_B1: 0SEND_F0 2-6 link_busy, 0SEND_F1 6-11 transfer, "
                     "0SEND_F1 11-12 latency, 1F1 12-13 compute, 1B1 13-15 compute, "
                     "1SEND_B1 15-20 transfer, 1SEND_B1 20-21 latency",
                     "23-26 0RECV_B0: 1SEND_B0 23-25 transfer, 1SEND_B0 25-26 latency"}));
}

// rank 0  01......bba
// rank 1  .000111ba
TEST(Waits, TellWhatIsOnlyFirstInTheRowFromWhatIsNeeded) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 2);
    costs.forward = {milliseconds(1), milliseconds(3)};
    costs.backward = {milliseconds(1), milliseconds(1)};
    EXPECT_EQ(waits_text(make_plan(costs), 0),
              Lines{"2-8 0RECV_B1: 1F0 2-4 row_order, 1F1 4-7 compute, 1B1 7-8 compute"});
}

TEST(Waits, ForRoomEndWhenTheReceiverTakesAMessage) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 3);
    costs.forward = {milliseconds(1), milliseconds(4)};
    costs.backward = {milliseconds(9), milliseconds(1)};
    costs.channel_capacity = 1;
    const std::string gradient = "0RECV_B2: 1F1 5-9 row_order, 1F2 9-13 compute, 1B2 13-14 compute";
    EXPECT_EQ(waits_text(make_plan(costs), 0),
              (Lines{"3-5 0SEND_F2: 1F0 3-5 back_pressure", "5-14 " + gradient}));
    costs.channel_capacity = 0;
    EXPECT_EQ(waits_text(make_plan(costs), 0),
              (Lines{"2-5 0SEND_F1: 1F0 2-5 back_pressure",
                     "6-9 0SEND_F2: 1F1 6-9 back_pressure",
                     "9-14 0RECV_B2: 1F2 9-13 compute, 1B2 13-14 compute"}));
}

TEST(Waits, ASenderThatBlocksWaitsForItsLink) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 1);
    costs.link.bytes_per_second = 1e9;
    costs.boundary = Bytes{5'000'000};
    PlanParts parts = make_plan(costs).parts();
    parts.transfer = TransferMode::Blocking;
    EXPECT_EQ(waits_text(Plan::make(std::move(parts)), 0),
              (Lines{"1-6 0SEND_F0: 0SEND_F0 1-6 transfer",
                     "6-14 0RECV_B0: 1F0 6-7 compute, 1B0 7-9 compute, 1SEND_B0 9-14 transfer"}));
}

// One rank with two stages, whose gradients go over its network one after the other:
//
// rank     0011bbbbaaaa, network from the end of 1B0 at 4: 1111111111 0000000000
TEST(Waits, OfAnUpdateGoOverTheGradientsBeforeOnTheNetwork) {
    PlainCosts costs = plain(ScheduleKind::LoopedBfs, 1, 1);
    costs.shape.chunks = 2;
    costs.forward.assign(2, milliseconds(1));
    costs.backward.assign(2, milliseconds(2));
    PlanParts parts = make_plan(costs).parts();
    parts.all_reduce.assign(2, milliseconds(10));
    parts.overlap_reduction = true;
    auto& row = parts.schedule.ranks[0];
    row.insert(row.end() - 1, {.op = Op::ReduceGradient, .stage = 1});
    row.push_back({.op = Op::ReduceGradient, .stage = 0});
    parts.schedule = add_optimizer(std::move(parts.schedule));
    EXPECT_EQ(waits_text(Plan::make(std::move(parts)), 0),
              Lines{"6-24 0OPT: 1REDUCE_GRAD 6-14 link_busy, 0REDUCE_GRAD 14-24 reduction"});
}

// Messages of 5 ms, all over one link: 0SEND_F0 1-6, 0SEND_F1 6-11, and 1SEND_F0, ready at 7, 11-16
TEST(Waits, GoOverTheMessagesOfOtherEdgesOnASharedLink) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 3, 2);
    costs.link.bytes_per_second = 1e9;
    costs.boundary = Bytes{5'000'000};
    PlanParts parts = make_plan(costs).parts();
    parts.contention = testing::one_link(2);
    EXPECT_EQ(waits_text(Plan::make(std::move(parts)), 2).front(),
              "0-16 2RECV_F0: 0F0 0-1 compute, 0SEND_F0 1-6 link_busy, 0SEND_F1 6-11 link_busy, "
              "1SEND_F0 11-16 transfer");
}

// Stage 0 sends to stage 1 and, around it, to stage 2, both from 1 ms on: 3 ms each alone, 6 at
// once.
TEST(Waits, NameTheSharedLinkThatMadeAMessageSlower) {
    PlainCosts costs = plain(ScheduleKind::ForwardOnly, 3, 1);
    costs.link.bytes_per_second = 1e9;
    costs.boundary = Bytes{3'000'000};
    costs.skips = {{.from = 0, .to = 2}};
    PlanParts parts = make_plan(costs).parts();
    parts.contention = testing::one_link(parts.links.size(), LinkSharing::Fair);
    parts.contention.link_names = {"host link out of device 0"};
    const Plan plan = Plan::make(std::move(parts));
    const Timeline timeline = simulate(plan);
    const std::vector<Cause> chain = Causes(plan, timeline).of_ready({.rank = 1, .cell = 0});
    ASSERT_EQ(chain.size(), 2U);
    EXPECT_EQ(chain[1].reason, Reason::Transfer);
    EXPECT_EQ(chain[1].end, milliseconds(7));
    EXPECT_EQ(shared_link_name(plan, chain[1]), "host link out of device 0");
    EXPECT_EQ(shared_link_name(plan, chain[0]), "");
    EXPECT_THAT(rank_wait_sentence(rank_waits(plan, timeline)[1]),
                ::testing::HasSubstr("6.00 ms for the shared link 'host link out of device 0'"));
}

// --- Any plan. ---

constexpr int cases = 200;  // per relation

/// The work of a rank, and all waits of it, fill the step; what is idle by core/timeline/metrics.h
/// is the same time.
void expect_to_fill_the_step(const Plan& plan,
                             const Timeline& timeline,
                             const std::vector<Wait>& waits) {
    const Duration step = step_time(timeline);
    std::vector<Duration> filled(timeline.ranks.size());
    Duration waiting{};
    for (const Wait& wait : waits) {
        filled[static_cast<std::size_t>(wait.rank)] += wait.end - wait.begin;
        waiting += wait.end - wait.begin;
    }
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
        for (const Span& span : timeline.ranks[rank]) {
            const bool sends = is_send(span.action.op);
            filled[rank] += sends ? Duration{} : span.end - span.ready;
        }
        RC_ASSERT(filled[rank] == step);
    }
    const IdleTime idle = idle_time(plan, timeline);
    const Duration mean = idle.warm_up + idle.steady + idle.drain + idle.back_pressure;
    const Duration missing = waiting - mean * plan.rank_count();
    RC_ASSERT(missing >= Duration{});
    RC_ASSERT(missing < 4 * Duration{plan.rank_count()});  // four divisions
}

/// Whether the timeline has the action on that rank, busy at the time, or its message on its way.
bool belongs(const Plan& plan, const Timeline& timeline, const Cause& cause) {
    if (is_send(cause.action.op)) {
        const auto edge = static_cast<std::size_t>(edge_of(plan->schedule, cause.action));
        const auto on_link =
            std::ranges::find(timeline.links.at(edge), cause.action, &Span::action);
        const Duration arrival = on_link->end + plan->links.at(edge / 2).latency;
        return on_link->begin <= cause.begin && cause.end <= arrival;
    }
    if (cause.reason == Reason::HostCopy) {
        const std::size_t direction = cause.action.op == Op::Forward ? 0 : 1;
        const auto& copies =
            timeline.host_copies.at(2 * static_cast<std::size_t>(cause.rank) + direction);
        const auto copy = std::ranges::find(copies, cause.action, &Span::action);
        return copy != copies.end() && copy->begin <= cause.begin && cause.end <= copy->end;
    }
    const auto& row = timeline.ranks.at(static_cast<std::size_t>(cause.rank));
    const auto span = std::ranges::find(row, cause.action, &Span::action);
    return span != row.end() && span->begin <= cause.begin &&
           (cause.reason == Reason::Reduction || cause.reason == Reason::LinkBusy ||
            cause.end <= span->end);
}

void expect_whole_chains(const Plan& plan) {
    const Timeline timeline = simulate(plan);
    const Causes causes(plan, timeline);
    const std::vector<Wait> waits = waits_of(timeline);
    expect_to_fill_the_step(plan, timeline, waits);
    for (const Wait& wait : waits) {
        Duration at = wait.begin;
        for (const Cause& cause : chain_of(causes, wait)) {
            RC_ASSERT(cause.begin == at);
            RC_ASSERT(cause.end > cause.begin);
            RC_ASSERT(belongs(plan, timeline, cause));
            at = cause.end;
        }
        RC_ASSERT(at == wait.end);
    }
}

/// With room for every message, or with little.
std::optional<int> any_capacity(const Pipeline& x) {
    const int smallest = smallest_capacity(plan_of(x)->schedule);
    return number(0, 1) == 1 ? std::nullopt : std::optional(smallest + number(0, 2));
}

TEST(Waits, HaveChainsWithoutGaps) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        expect_whole_chains(plan_of(x, any_capacity(x)));
    });
}

TEST(Waits, HaveChainsWithoutGapsInStepsWithUpdates) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        expect_whole_chains(plan_with_updates(x, any_capacity(x)));
    });
}

TEST(Waits, HaveChainsWithoutGapsUnderContention) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        const Plan plan = plan_with_updates(x, any_capacity(x));
        PlanParts parts = plan.parts();
        parts.contention =
            testing::one_link(plan->links.size(), static_cast<LinkSharing>(number(0, 1)));
        if (number(0, 1) == 1) {
            parts.contention.shared_links.push_back(2e9);
            for (auto& way : parts.contention.way_of_edge) {
                way = std::vector<int>{};
                for (const int link : {0, 1}) {
                    if (number(0, 1) == 1) {
                        way.push_back(link);
                    }
                }
            }
        }
        parts.contention.cores = number(0, 2);
        expect_whole_chains(Plan::make(std::move(parts)));
    });
}

TEST(Waits, HaveChainsWithoutGapsWithStashesInHostMemory) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        PlanParts parts = with_offload(plan_with_updates(x, any_capacity(x))).parts();
        parts.contention.cores = number(0, 2);
        expect_whole_chains(Plan::make(std::move(parts)));
    });
}

// As in offload_test.cpp: forward 2 ms, backward 3 ms, a copy 4 ms and 1 ms of latency.
//
//     row   001122ccc.......bbb..aaa
//     out   ..00001111
//     in    ...........1111.0000
TEST(Waits, ForAStashGoOverTheCopiesBeforeAndTheForwardThatMadeIt) {
    const Plan plan = testing::one_rank_with_host_link(3, 4, 1);
    EXPECT_EQ(waits_text(plan, 0),
              (Lines{"9-16 0B1: 0F1 9-11 host_copy, 0B1 11-16 host_copy",
                     "19-21 0B0: 0B0 19-21 host_copy"}));
    const Timeline timeline = simulate(plan);
    std::string path;
    for (const CriticalStep& step : critical_path(plan, timeline)) {
        path += fmt::format("{}{} {}-{}{}",
                            path.empty() ? "" : ", ",
                            to_string(step.action),
                            step.begin / milliseconds(1),
                            step.end / milliseconds(1),
                            step.host_copy ? " copy" : "");
    }
    EXPECT_EQ(path,
              "0F0 0-2, 0F0 2-6 copy, 0F1 6-11 copy, 0B1 11-16 copy, 0B0 16-21 copy, 0B0 21-24");
}

TEST(Waits, TheLongestComeFirst) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 4, 4));
    const Timeline timeline = simulate(plan);
    const std::vector<Wait> longest = longest_waits(timeline, 3);
    ASSERT_EQ(longest.size(), 3U);
    // Rank 0 from the end of its forwards, 4, to the end of three backwards of others, 13; rank 1
    // from 5 to 11; rank 3 after its last backward, 15, to the end, 21.
    EXPECT_EQ(longest[0].rank, 0);
    EXPECT_EQ(longest[0].end - longest[0].begin, milliseconds(9));
    EXPECT_EQ(longest[1].rank, 1);
    EXPECT_EQ(longest[1].end - longest[1].begin, milliseconds(6));
    EXPECT_EQ(longest[2].rank, 3);
    EXPECT_EQ(longest[2].kind, WaitKind::StepEnd);
    EXPECT_EQ(longest_waits(timeline, 100), [&] {
        auto all = waits_of(timeline);
        std::ranges::stable_sort(all, {}, [](const Wait& w) { return w.begin - w.end; });
        return all;
    }());
}

}  // namespace waits_test
}  // namespace pipetwin::sim
