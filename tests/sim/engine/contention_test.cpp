// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plan/offload.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/edge.h"
#include "core/schedule/generators/generate.h"
#include "core/sharing/fair_work.h"
#include "sim/engine/event_engine.h"
#include "sim/engine/fixed_order.h"
#include "sim/engine/shared_cores.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"
#include "tests/support/shared_links_oracle.h"

/// What only the event engine knows: ranks that share processors or disturb each other, messages
/// that share links.
namespace pipetwin::sim {
namespace contention_test {

using ::testing::ElementsAre;
using testing::expect_relation;
using testing::milliseconds;
using testing::plain;

// --- Max-min fair rates. ---

std::vector<std::int64_t> rates_of(const std::vector<Claim>& claims,
                                   const std::vector<std::int64_t>& capacities) {
    std::vector<const Claim*> pointers;
    for (const Claim& claim : claims) {
        pointers.push_back(&claim);
    }
    return max_min_fair_rates(pointers, capacities);
}

TEST(MaxMinFairRates, ShareALinkInEqualParts) {
    EXPECT_THAT(rates_of({{100, {0}}, {100, {0}}, {100, {0}}}, {30}), ElementsAre(10, 10, 10));
}

TEST(MaxMinFairRates, GiveAwayWhatOneCannotUse) {
    EXPECT_THAT(rates_of({{2, {0}}, {100, {0}}, {100, {0}}}, {10}), ElementsAre(2, 4, 4));
}

/// The message over both links is held up by the second, and leaves the rest of the first.
TEST(MaxMinFairRates, AreHeldByTheNarrowestLinkOfTheWay) {
    EXPECT_THAT(rates_of({{100, {0, 1}}, {100, {0}}, {100, {1}}}, {10, 4}), ElementsAre(2, 8, 2));
}

/// The definition (Bertsekas and Gallager, section 6.5.2): rates are max-min fair exactly if they
/// fit, and everybody is at the own limit or has a bottleneck - a full link on which nobody has
/// more. A whole rate leaves less than one unit per user of a link unused.
TEST(MaxMinFairRates, FitAndLeaveEverybodyABottleneck) {
    expect_relation(500, [] {
        const int links = number(1, 4);
        std::vector<std::int64_t> capacities;
        for (const int capacity : numbers(static_cast<std::size_t>(links), 100, 10'000)) {
            capacities.push_back(capacity);
        }
        std::vector<Claim> claims(static_cast<std::size_t>(number(1, 8)));
        for (Claim& claim : claims) {
            claim.most = number(1, 5'000);
            for (int link = 0; link < links; ++link) {
                if (number(0, 1) == 1) {
                    claim.shared.push_back(link);
                }
            }
        }
        const std::vector<std::int64_t> rates = rates_of(claims, capacities);
        std::vector<std::int64_t> used(capacities.size(), 0);
        std::vector<std::int64_t> users(capacities.size(), 0);
        std::vector<std::int64_t> highest(capacities.size(), 0);
        for (std::size_t i = 0; i < claims.size(); ++i) {
            for (const int shared : claims[i].shared) {
                const auto link = static_cast<std::size_t>(shared);
                used[link] += rates[i];
                ++users[link];
                highest[link] = std::max(highest[link], rates[i]);
            }
        }
        for (std::size_t link = 0; link < used.size(); ++link) {
            RC_ASSERT(used[link] <= capacities[link]);
        }
        for (std::size_t i = 0; i < claims.size(); ++i) {
            RC_ASSERT(rates[i] <= claims[i].most);
            const bool held = std::ranges::any_of(claims[i].shared, [&](int shared) {
                const auto link = static_cast<std::size_t>(shared);
                return used[link] + users[link] > capacities[link] &&
                       highest[link] <= rates[i] + users[link];
            });
            RC_ASSERT(rates[i] == claims[i].most || held);
        }
    });
}

// --- Shared processors. ---

Timeline with(const Plan& plan, const Contention& contention) {
    Conditions conditions = planned_conditions(plan);
    conditions.contention = contention;
    return replay(plan, conditions);
}

/// Somebody computes at every moment, so one processor is busy from the first action to the last.
TEST(SharedCores, OneProcessorTakesTheSumOfAllWork) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
        const Plan plan = make_plan(plain(ScheduleKind::GPipe, ranks, 4));
        Contention contention;
        contention.cores = 1;
        EXPECT_EQ(step_time(with(plan, contention)), milliseconds(ranks * 4 * 3));
    }
}

TEST(SharedCores, AsManyAsRanksChangeNothing) {
    expect_relation(200, [] {
        const Plan plan = plan_with_updates(random_pipeline());
        Contention contention;
        contention.cores = plan.rank_count() + number(0, 2);
        RC_ASSERT(with(plan, contention) == in_fixed_order(plan, planned_conditions(plan)));
    });
}

/// Fewer processors never shorten a step, and one takes no longer than all work one after the
/// other. Ends of shared actions are rounded up to whole nanoseconds, one for each action at most.
TEST(SharedCores, LieBetweenOneForEachAndAllWorkInARow) {
    expect_relation(200, [] {
        Pipeline x = random_pipeline();
        std::ranges::fill(x.latency, 0);
        x.transfer.clear();
        const Plan plan = plan_of(x);
        const Timeline alone = simulate(plan);
        Duration work{};
        std::int64_t actions = 0;
        for (const auto& row : alone.ranks) {
            actions += std::ssize(row);
            for (const Span& span : row) {
                work += span.end - span.ready;
            }
        }
        Contention contention;
        contention.cores = number(1, plan.rank_count());
        const Duration step = step_time(with(plan, contention));
        RC_ASSERT(step >= step_time(alone));
        RC_ASSERT(step <= work + Duration{actions});
    });
}

/// Processors as one resource that each rank may use up to one of: what max-min fairness in general
/// says of random work, begun at random moments.
TEST(SharedCores, DoWhatFairSharesOfAResourceAre) {
    expect_relation(200, [] {
        constexpr std::int64_t units_of_nanosecond = 720'720;  // divided by all numbers up to 16
        constexpr std::int64_t speed = units_of_nanosecond * 1'000'000'000;
        constexpr int ranks = 6;
        Contention contention;
        contention.cores = number(1, ranks);
        SharedCores cores(contention, ranks);
        FairWork work({contention.cores * speed},
                      std::vector<Claim>(ranks, {.most = speed, .shared = {0}}));
        std::vector<bool> busy(ranks, false);
        Duration now{};
        for (int step = 0; step < 60; ++step) {
            const int rank = number(0, ranks - 1);
            if (!busy[static_cast<std::size_t>(rank)]) {
                const Duration length{number(1, 100)};
                busy[static_cast<std::size_t>(rank)] = true;
                cores.begin(now, rank, length);
                work.begin(now, rank, Units{length.count()} * units_of_nanosecond);
            }
            const std::optional<Duration> next = cores.next_end();
            RC_ASSERT(next == work.next_end());
            if (next) {
                now = std::min(*next, now + Duration{number(1, 50)});
                const std::vector<int> done = cores.take_done(now);
                RC_ASSERT(done == work.take_done(now));
                for (const int ended : done) {
                    busy[static_cast<std::size_t>(ended)] = false;
                }
            }
        }
    });
}

/// Rank 0 goes on at a quarter of its speed while rank 1 works. On one processor it takes only that
/// quarter, and rank 1 the rest: 3 ms of work are done at 4 ms. Then rank 0 has 2 of its 3 ms left.
TEST(SharedCores, LeaveToOthersWhatADisturbedRankCannotUse) {
    Contention contention;
    contention.cores = 1;
    contention.interference = {{0, 3}, {0, 0}};
    SharedCores cores(contention, 2);
    cores.begin(Duration{}, 0, milliseconds(3));
    cores.begin(Duration{}, 1, milliseconds(3));
    ASSERT_EQ(cores.next_end(), milliseconds(4));
    EXPECT_THAT(cores.take_done(milliseconds(4)), ElementsAre(1));
    ASSERT_EQ(cores.next_end(), milliseconds(6));
    EXPECT_THAT(cores.take_done(milliseconds(6)), ElementsAre(0));
    EXPECT_EQ(cores.next_end(), std::nullopt);
}

/// F 1 ms, B 2 ms; each lasts half as long again while the other rank computes:
///
///     rank 0   F0   F1 (1.5)                          B1 (3)    B0
///     rank 1        F0 (1.5)   F1      B1     B0 (3)
///          0      1        2.5     3.5    5.5       8.5      10.5
TEST(Interference, StretchesWhatHappensAtTheSameTime) {
    const Plan plan = make_plan(plain(ScheduleKind::GPipe, 2, 2));
    Contention contention;
    contention.interference.assign(2, {0.5, 0.5});
    EXPECT_EQ(step_time(with(plan, contention)), std::chrono::microseconds(10'500));
}

TEST(Interference, OfNothingChangesNothing) {
    expect_relation(100, [] {
        const Plan plan = plan_with_updates(random_pipeline());
        Contention contention;
        const auto ranks = static_cast<std::size_t>(plan.rank_count());
        contention.interference.assign(ranks, std::vector<double>(ranks, 0));
        RC_ASSERT(with(plan, contention) == in_fixed_order(plan, planned_conditions(plan)));
    });
}

// --- Shared links. ---

/// A shared link of its own for every edge, as fast as the edge, is no sharing.
TEST(SharedLinks, OfOneEdgeEachChangeNothing) {
    expect_relation(200, [] {
        const Plan plan = plan_with_updates(random_pipeline());
        Contention contention;
        contention.sharing = number(0, 1) == 1 ? LinkSharing::Fifo : LinkSharing::Fair;
        for (int edge = 0; edge < static_cast<int>(2 * plan->links.size()); ++edge) {
            const double rate = plan->links[static_cast<std::size_t>(edge / 2)].bytes_per_second;
            contention.shared_links.push_back(rate);
            contention.way_of_edge.push_back({edge});
        }
        RC_ASSERT(with(plan, contention) == in_fixed_order(plan, planned_conditions(plan)));
    });
}

/// Two chains of two stages on two ranks: 0 -> 1 within a rank's reach, here stages 0, 1, 2 on
/// ranks 0, 1, 2 with one micro-batch forward only: the second message leaves after the first has
/// come. Two messages at once need two micro-batches: stage 1 sends 0 to stage 2 while stage 0
/// sends 1 to stage 1.
///
///     F 1 ms each, a message takes 3 ms alone; both edges share one link
///
///     stage 0   F0 F1            message 0 to 1: 1..4, message 1 to 1: 4..7
///     stage 1   F0 4..5          message 0 to 2 wants the link at 5
///
/// first come, first served: 7..10.  At once: from 5 on each at half the rate; message 1 has 2 ms
/// left, which take until 9, and then message 0 has 1 ms of its 3 left: 10.
Plan three_stages() {
    PlainCosts costs = plain(ScheduleKind::ForwardOnly, 3, 2);
    costs.link.bytes_per_second = 1e9;
    costs.boundary = Bytes{3'000'000};
    return make_plan(costs);
}

std::vector<std::vector<Duration>> ends_on_links(const Timeline& timeline) {
    std::vector<std::vector<Duration>> ends;
    for (const auto& row : timeline.links) {
        auto& of_link = ends.emplace_back();
        for (const Span& span : row) {
            of_link.push_back(span.end);
        }
    }
    return ends;
}

TEST(SharedLinks, CarryOneMessageAfterTheOther) {
    const auto ends = ends_on_links(with(three_stages(), testing::one_link(2, LinkSharing::Fifo)));
    EXPECT_THAT(ends[0], ElementsAre(milliseconds(4), milliseconds(7)));
    EXPECT_THAT(ends[2], ElementsAre(milliseconds(10), milliseconds(13)));
}

/// Message 1 to stage 2 sets out at 10, when stage 1 has done F1 (9..10) and the link is free.
TEST(SharedLinks, CarryMessagesAtTheirFairRates) {
    const auto ends = ends_on_links(with(three_stages(), testing::one_link(2, LinkSharing::Fair)));
    EXPECT_THAT(ends[0], ElementsAre(milliseconds(4), milliseconds(9)));
    EXPECT_THAT(ends[2], ElementsAre(milliseconds(10), milliseconds(13)));
}

// --- Links of a node, shared by its devices. Rank r is device r. ---

/// Contention over such links of the plan's messages and, where it offloads, stashes.
Contention over_node_links(const Plan& plan,
                           const std::vector<NodeLink>& node,
                           LinkSharing sharing) {
    NodeLinks links(node, 1, 1);
    std::vector<NodeLinks::Passes> edges;
    std::vector<NodeLinks::Passes> copies;
    std::vector<double> most;
    const std::vector<int>& rank_of = plan->schedule.rank_of_stage;
    for (std::size_t pair = 0; pair < plan->links.size(); ++pair) {
        const StagePair stages = stages_of_pair(plan->schedule, pair);
        const DevicePlace from{.device = rank_of[static_cast<std::size_t>(stages.from)]};
        const DevicePlace to{.device = rank_of[static_cast<std::size_t>(stages.to)]};
        links.add_message(from, to, edges.emplace_back());
        links.add_message(to, from, edges.emplace_back());
        most.insert(most.end(), 2, plan->links[pair].bytes_per_second);
    }
    for (int rank = 0; plan->host_link && rank < plan.rank_count(); ++rank) {
        links.add_copy({.device = rank}, false, copies.emplace_back());
        links.add_copy({.device = rank}, true, copies.emplace_back());
        most.insert(most.end(), 2, plan->host_link->bytes_per_second);
    }
    Contention contention;
    contention.sharing = sharing;
    links.put_into(contention, edges, copies, most);
    return contention;
}

Duration first_arrival(const std::vector<NodeLink>& node, LinkSharing sharing) {
    const Plan plan = three_stages();
    return with(plan, over_node_links(plan, node, sharing)).links[0].front().end;
}

/// Stage 0 sends its output to stage 1 and, around that, to stage 2: both set out at 1 ms, and take
/// 3 ms alone.
Plan one_stage_sends_to_two() {
    PlainCosts costs = plain(ScheduleKind::ForwardOnly, 3, 1);
    costs.link.bytes_per_second = 1e9;
    costs.boundary = Bytes{3'000'000};
    costs.skips = {{.from = 0, .to = 2}};
    return make_plan(costs);
}

TEST(NodeLinks, TwoEqualMessagesThroughOneAtOnceTakeTwiceAsLong) {
    const std::vector<NodeLink> lanes{
        {.devices = {0}, .bytes_per_second = 1e9, .kind = SharedLinkKind::Switch}};
    const Plan plan = one_stage_sends_to_two();
    const auto fair = ends_on_links(with(plan, over_node_links(plan, lanes, LinkSharing::Fair)));
    EXPECT_THAT(fair[0], ElementsAre(milliseconds(7)));
    EXPECT_THAT(fair[4], ElementsAre(milliseconds(7)));
    const auto fifo = ends_on_links(with(plan, over_node_links(plan, lanes, LinkSharing::Fifo)));
    EXPECT_THAT(fifo[0], ElementsAre(milliseconds(4)));
    EXPECT_THAT(fifo[4], ElementsAre(milliseconds(7)));
}

/// A message of 3 ms goes up from one device and down to the other: at once, so through links as
/// fast as its own it takes no longer. The host's memory is written and read: at the same rate it
/// takes twice as long.
TEST(NodeLinks, StagingThroughTheHostUsesBothDevicesLanesAndTheMemoryOnceEachWay) {
    const auto link = [](std::vector<int> devices, double rate, SharedLinkKind kind) {
        return NodeLink{.devices = std::move(devices), .bytes_per_second = rate, .kind = kind};
    };
    using enum SharedLinkKind;
    const std::vector<NodeLink> lanes{link({0}, 1e9, Host), link({1}, 1e9, Host)};
    for (const LinkSharing sharing : {LinkSharing::Fifo, LinkSharing::Fair}) {
        EXPECT_EQ(first_arrival(lanes, sharing), milliseconds(4));
        EXPECT_EQ(first_arrival({lanes[0], link({1}, 0.5e9, Host)}, sharing), milliseconds(7));
        EXPECT_EQ(first_arrival({link({0}, 0.25e9, Host), lanes[1]}, sharing), milliseconds(13));
        EXPECT_EQ(first_arrival({link({0, 1}, 1e9, Host)}, sharing), milliseconds(4));
        EXPECT_EQ(first_arrival({link({0, 1}, 1e9, Memory)}, sharing), milliseconds(7));
        EXPECT_EQ(first_arrival({link({0}, 1e9, Memory)}, sharing), milliseconds(4));
    }
}

/// Device 0 and 1 below one switch reach each other without its way up, and on one socket without
/// the link between sockets.
TEST(NodeLinks, DevicesBelowASwitchReachEachOtherDirectly) {
    for (const SharedLinkKind kind : {SharedLinkKind::Switch, SharedLinkKind::Socket}) {
        const std::vector<NodeLink> both{
            {.devices = {0, 1}, .bytes_per_second = 1e8, .kind = kind}};
        const std::vector<NodeLink> first{{.devices = {0}, .bytes_per_second = 1e8, .kind = kind}};
        EXPECT_EQ(first_arrival(both, LinkSharing::Fair), milliseconds(4));
        EXPECT_EQ(first_arrival(first, LinkSharing::Fair), milliseconds(31));
    }
    const std::vector<NodeLink> uplink{
        {.devices = {0}, .bytes_per_second = 1e8, .kind = SharedLinkKind::Uplink}};
    EXPECT_EQ(first_arrival(uplink, LinkSharing::Fair), milliseconds(4)) << "within the node";
}

/// Links through which all that is under way fits at full speed change nothing, so that a plan
/// keeps the engine for what follows from its rows.
TEST(NodeLinks, ThatAreNeverFullAreLeftOutWhereMessagesShareFairly) {
    const Plan plan = three_stages();  // every edge at 1 GB/s
    const std::vector<NodeLink> wide{
        {.devices = {0, 1, 2}, .bytes_per_second = 4e9, .kind = SharedLinkKind::Host}};
    EXPECT_FALSE(over_node_links(plan, wide, LinkSharing::Fair).any());
    EXPECT_TRUE(over_node_links(plan, wide, LinkSharing::Fifo).any());
}

TEST(NodeLinks, ThatArePassedAlikeAreOneAndHaveANameThatAUserKnows) {
    const Plan plan = three_stages();
    const std::vector<NodeLink> node{
        {.devices = {0, 1, 2}, .bytes_per_second = 1e9, .kind = SharedLinkKind::Host}};
    const Contention contention = over_node_links(plan, node, LinkSharing::Fair);
    EXPECT_EQ(contention.shared_links, std::vector<double>{1e9}) << "out and in";
    EXPECT_EQ(contention.link_names, std::vector<std::string>{"host link out of devices 0 to 2"});
}

/// Stashes of two devices over one way to the host: each alone takes 4 ms out, both at once 8.
TEST(NodeLinks, CopiesToHostMemoryShareThem) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 2);
    PlanParts parts = make_plan(costs).parts();
    for (StageCost& cost : parts.costs.front()) {
        cost.saved = Bytes{4'000'000};
        cost.forward_drop_peak = cost.saved;
        cost.backward_peak = cost.saved;
    }
    parts.host_link = LinkCost{.bytes_per_second = 1e9};
    const Plan plan = Plan::make(std::move(parts));
    const Timeline alone = simulate(plan);
    const std::vector<NodeLink> node{
        {.devices = {0, 1}, .bytes_per_second = 1e9, .kind = SharedLinkKind::Host}};
    const Timeline shared = with(plan, over_node_links(plan, node, LinkSharing::Fair));
    // Of two micro-batches the first is copied; rank 0 begins at 1 ms, rank 1 at 2: one of 4 MB has
    // 3 left then, and is through 6 ms later.
    ASSERT_EQ(alone.host_copies[0].front().ready, milliseconds(5));
    ASSERT_EQ(alone.host_copies[2].front().begin, milliseconds(2));
    EXPECT_EQ(shared.host_copies[0].front().ready, milliseconds(8));
    EXPECT_EQ(shared.host_copies[2].front().ready, milliseconds(9));
}

/// A tree: groups are halved, or end.
void add_tree(std::vector<NodeLink>& links, int first, int last) {
    std::vector<int> devices(static_cast<std::size_t>(last - first));
    std::iota(devices.begin(), devices.end(), first);
    for (const SharedLinkKind kind : {SharedLinkKind::Switch,
                                      SharedLinkKind::Host,
                                      SharedLinkKind::Socket,
                                      SharedLinkKind::Memory}) {
        if (number(0, 3) == 0) {
            links.push_back({.devices = devices,
                             .bytes_per_second = 1e8 * number(2, 30) + number(0, 999),
                             .kind = kind});
        }
    }
    if (devices.size() > 1 && number(0, 3) > 0) {
        const int middle = number(first + 1, last - 1);
        add_tree(links, first, middle);
        add_tree(links, middle, last);
    }
}

struct Carried {
    testing::Transfer transfer;
    Duration end{};
};

/// All messages and copies of a timeline.
std::vector<Carried> carried_by(const Plan& plan, const Timeline& timeline) {
    std::vector<Carried> all;
    const auto bytes_with = [](Bytes bytes, const LinkCost& link) {
        return bytes.count > 0 ? static_cast<double>((bytes + link.half_bandwidth).count) : 0;
    };
    for (std::size_t edge = 0; edge < timeline.links.size(); ++edge) {
        const LinkCost& link = plan->links[edge / 2];
        for (const Span& span : timeline.links[edge]) {
            const Bytes bytes =
                plan->transfer == TransferMode::HandOver
                    ? Bytes{}
                    : plan.message_bytes(static_cast<int>(edge), span.action.micro_batch);
            const auto rank_of = [&](int stage) {
                return plan->schedule.rank_of_stage[static_cast<std::size_t>(stage)];
            };
            all.push_back({.transfer = {.from = rank_of(span.action.stage),
                                        .to = rank_of(peer_stage(span.action)),
                                        .bytes = bytes_with(bytes, link),
                                        .bytes_per_second = link.bytes_per_second,
                                        .begin = span.begin},
                           .end = span.end});
        }
    }
    if (plan->host_link) {
        const auto stashes = stash_copies(plan);
        for (std::size_t row = 0; row < timeline.host_copies.size(); ++row) {
            const auto device = static_cast<int>(row / 2);
            for (const Span& span : timeline.host_copies[row]) {
                const auto& cells = plan->schedule.ranks[row / 2];
                const auto stash = std::ranges::find_if(stashes[row / 2], [&](const auto& copy) {
                    return cells[row % 2 == 0 ? copy.forward : copy.user] == span.action;
                });
                all.push_back({.transfer = {.from = row % 2 == 0 ? device : testing::Transfer::host,
                                            .to = row % 2 == 0 ? testing::Transfer::host : device,
                                            .bytes = bytes_with(stash->bytes, *plan->host_link),
                                            .bytes_per_second = plan->host_link->bytes_per_second,
                                            .begin = span.begin},
                               .end = span.ready});
            }
        }
    }
    return all;
}

/// A random plan on devices whose links are a random tree.
Plan plan_on_a_tree(std::vector<NodeLink>& node, LinkSharing sharing) {
    Pipeline x = random_pipeline();
    Plan plan = plan_with_updates(x);
    if (number(0, 1) == 1) {
        plan = with_offload(plan);
    }
    add_tree(node, 0, plan.rank_count());
    PlanParts parts = plan.parts();
    parts.contention = over_node_links(plan, node, sharing);
    return Plan::make(std::move(parts));
}

/// The engine, with links that are merged, left out and counted in integers, against the oracle,
/// which has all of them and no events of ranks.
TEST(NodeLinks, CarryAsTheOracleOfAFluidDoes) {
    expect_relation(100, [] {
        std::vector<NodeLink> node;
        const Plan plan = plan_on_a_tree(node, LinkSharing::Fair);
        const std::vector<Carried> all = carried_by(plan, simulate(plan));
        std::vector<testing::Transfer> transfers;
        for (const Carried& carried : all) {
            transfers.push_back(carried.transfer);
        }
        const std::vector<double> ends = testing::fair_ends(node, transfers);
        for (std::size_t i = 0; i < all.size(); ++i) {
            // Every end is rounded up to a nanosecond, and holds up all that share with it; rates
            // of 1e7 and more are rounded down to a byte per second.
            const double off = static_cast<double>(all[i].end.count()) - ends[i];
            RC_ASSERT(std::abs(off) <= 2 + static_cast<double>(all.size()) + 1e-7 * ends[i]);
        }
    });
}

/// First in, first out: nothing passes a link beside anything else, and each takes as long as it
/// does alone.
TEST(NodeLinks, CarryOneAfterTheOtherWhereAsked) {
    expect_relation(50, [] {
        std::vector<NodeLink> node;
        const Plan plan = plan_on_a_tree(node, LinkSharing::Fifo);
        const std::vector<Carried> all = carried_by(plan, simulate(plan));
        std::vector<std::vector<int>> passes;
        for (const Carried& carried : all) {
            testing::Transfer alone = carried.transfer;
            alone.begin = {};
            const double time = testing::fair_ends(node, {alone}).front();
            const double took = static_cast<double>((carried.end - carried.transfer.begin).count());
            RC_ASSERT(std::abs(took - time) <= 2 + 1e-7 * time);
            passes.push_back(testing::passes(node, carried.transfer));
        }
        const auto meet = [&](std::size_t i, std::size_t j) {
            for (std::size_t link = 0; link < passes[i].size(); ++link) {
                if (passes[i][link] > 0 && passes[j][link] > 0) {
                    return true;
                }
            }
            return false;
        };
        for (std::size_t i = 0; i < all.size(); ++i) {
            for (std::size_t j = 0; j < i; ++j) {
                const bool apart =
                    all[i].end <= all[j].transfer.begin || all[j].end <= all[i].transfer.begin;
                RC_ASSERT(apart || !meet(i, j));
            }
        }
    });
}

}  // namespace contention_test
}  // namespace pipetwin::sim
