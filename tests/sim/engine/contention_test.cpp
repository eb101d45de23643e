#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/generators/generate.h"
#include "sim/engine/event_engine.h"
#include "sim/engine/fair_work.h"
#include "sim/engine/fixed_order.h"
#include "sim/engine/shared_cores.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/random_pipeline.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"

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

}  // namespace contention_test
}  // namespace pipetwin::sim
