#include "core/partition/chain.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "core/partition/partition_search.h"
#include "core/partition/unequal_partition.h"
#include "tests/core/partition/brute_force.h"
#include "tests/support/error_of.h"
#include "tests/support/nanoseconds.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace {

using testing::Dice;
using testing::error_of;
using testing::nanoseconds_of;
using testing::Sizes;
using testing::the;

ChainProblem plain(const std::vector<int>& work, int stages) {
    return {.devices = {{.work = nanoseconds_of(work)}},
            .device_of_stage = std::vector<int>(static_cast<std::size_t>(stages), 0)};
}

template <class Value>
Value sum_of(const std::vector<Value>& values, int first, int end) {
    return std::accumulate(values.begin() + first, values.begin() + end, Value{});
}

template <class Value>
Value entry(const std::vector<Value>& values, int index) {
    return values.empty() ? Value{} : values.at(static_cast<std::size_t>(index));
}

/// The definitions of chain.h, layer by layer.
struct Definition {
    const ChainProblem& problem;

    int stages() const { return static_cast<int>(problem.device_of_stage.size()); }

    const CutCost& link(int boundary) const {
        const int kind =
            problem.link_of_boundary.empty() ? 0 : entry(problem.link_of_boundary, boundary);
        return problem.links.at(static_cast<std::size_t>(kind));
    }

    const DeviceWork& device(int stage) const {
        return problem.devices.at(static_cast<std::size_t>(entry(problem.device_of_stage, stage)));
    }

    Duration boundaries(int stage, int first, int end) const {
        Duration cost{};
        if (!problem.links.empty()) {
            cost += stage > 0 ? entry(link(stage - 1).receiver, first) : Duration{};
            cost += stage + 1 < stages() ? entry(link(stage).sender, end) : Duration{};
        }
        return cost;
    }

    Bytes excess(int stage, int first, int end, bool recomputes) const {
        const ChainMemory& memory = the(problem.memory);
        Bytes peak;
        for (int layer = first; layer < end; ++layer) {
            peak = std::max(peak, entry(memory.workspace, layer));
        }
        const int in_flight = entry(memory.in_flight, stage);
        const Bytes saved = sum_of(memory.saved, first, end);
        const Bytes stashes =
            recomputes ? (in_flight - 1) * entry(memory.input, first) + saved : in_flight * saved;
        return sum_of(memory.states, first, end) + stashes + peak + entry(memory.received, first) +
               entry(memory.sent, end) - entry(memory.limit, stage);
    }

    struct Way {
        bool recomputes = false;
        Duration time{};
        Bytes excess;
    };

    /// What a stage may choose from.
    std::vector<Way> ways(int stage, int first, int end) const {
        const Duration time =
            sum_of(device(stage).work, first, end) + boundaries(stage, first, end);
        if (!problem.memory) {
            return {{false, time, Bytes{}}};
        }
        std::vector<Way> ways;
        if (the(problem.memory).keep != Keep::InputOnly) {
            ways.push_back({false, time, excess(stage, first, end, false)});
        }
        if (the(problem.memory).keep != Keep::Everything) {
            const Duration again = sum_of(device(stage).recompute, first, end);
            ways.push_back({true, time + again, excess(stage, first, end, true)});
        }
        return ways;
    }

    /// The fastest that fits; none if nothing does.
    std::optional<Way> best_way(int stage, int first, int end) const {
        std::optional<Way> best;
        for (const Way& way : ways(stage, first, end)) {
            if (way.excess <= Bytes{} && (!best || way.time < best->time)) {
                best = way;
            }
        }
        return best;
    }

    /// largest, or sum + weight * largest.
    std::optional<std::int64_t> value(const Sizes& sizes, std::optional<int> weight) const {
        bool fits = true;
        Duration sum{};
        Duration largest{};
        testing::for_each_stage(sizes, [&](int stage, int first, int end) {
            const std::optional<Way> way = best_way(stage, first, end);
            fits = fits && way.has_value();
            sum += way ? way->time : Duration{};
            largest = std::max(largest, way ? way->time : Duration{});
        });
        if (!fits) {
            return std::nullopt;
        }
        return weight ? (sum + *weight * largest).count() : largest.count();
    }

    std::int64_t largest_excess(const Sizes& sizes) const {
        Bytes largest{std::numeric_limits<std::int64_t>::min()};
        testing::for_each_stage(sizes, [&](int stage, int first, int end) {
            Bytes least{std::numeric_limits<std::int64_t>::max()};
            for (const Way& way : ways(stage, first, end)) {
                least = std::min(least, way.excess);
            }
            largest = std::max(largest, least);
        });
        return largest.count;
    }
};

/// The answer is the first best split, or the first of the closest ones.
void expect_brute_force(const ChainProblem& problem,
                        std::optional<int> micro_batches,
                        const ChainAnswer& answer) {
    const Definition definition{problem};
    const auto layers = static_cast<int>(problem.devices.front().work.size());
    const std::optional<int> weight =
        micro_batches ? std::optional(*micro_batches - 1) : std::nullopt;
    const auto best = testing::first_best(layers, definition.stages(), [&](const Sizes& sizes) {
        return definition.value(sizes, weight);
    });
    if (!best) {
        const auto closest =
            testing::first_best(layers, definition.stages(), [&](const Sizes& sizes) {
                return std::optional(definition.largest_excess(sizes));
            });
        ASSERT_FALSE(answer.split.has_value());
        ASSERT_TRUE(answer.gap.has_value());
        EXPECT_EQ(the(answer.gap).excess.count, the(closest).value);
        EXPECT_EQ(the(answer.gap).partition.layers_per_stage(), the(closest).sizes);
        const int first = the(answer.gap).partition.first_layer(the(answer.gap).stage);
        const int end = first + the(answer.gap).partition.layers_in(the(answer.gap).stage);
        Bytes least{std::numeric_limits<std::int64_t>::max()};
        for (const auto& way : definition.ways(the(answer.gap).stage, first, end)) {
            least = std::min(least, way.excess);
        }
        EXPECT_EQ(least, the(answer.gap).excess);
        return;
    }
    ASSERT_TRUE(answer.split.has_value());
    ASSERT_FALSE(answer.gap.has_value());
    const Sizes& sizes = the(answer.split).partition.layers_per_stage();
    EXPECT_EQ(sizes, the(best).sizes) << fmt::format("{} beside {}", sizes, the(best).sizes);
    EXPECT_EQ(the(answer.split).largest.count(), the(definition.value(sizes, std::nullopt)));
    EXPECT_EQ((the(answer.split).sum + weight.value_or(0) * the(answer.split).largest).count(),
              the(definition.value(sizes, weight.value_or(0))));
    testing::for_each_stage(sizes, [&](int stage, int first, int end) {
        EXPECT_EQ(the(answer.split).recomputes.at(static_cast<std::size_t>(stage)),
                  the(definition.best_way(stage, first, end)).recomputes);
    });
}

struct Wanted {
    bool cuts = false;
    bool memory = false;
    bool unequal = false;
    Keep keep = Keep::Everything;
};

ChainMemory random_memory(Dice& dice, int layers, int stages, Keep keep) {
    ChainMemory memory{.states = dice.several<Bytes>(layers, 20),
                       .saved = dice.several<Bytes>(layers, 10),
                       .workspace = dice.several<Bytes>(layers, 15),
                       .input = dice.several<Bytes>(layers + 1, 5),
                       .received = dice.several<Bytes>(layers + 1, 10),
                       .sent = dice.several<Bytes>(layers + 1, 10),
                       .in_flight = {},
                       .limit = {},
                       .keep = keep};
    const int micro_batches = dice.between(1, 8);
    const bool flush = dice.below(2) == 0;
    const int room = dice.between(20, 300);
    for (int stage = 0; stage < stages; ++stage) {
        memory.in_flight.push_back(flush ? micro_batches : std::min(micro_batches, stages - stage));
        memory.limit.push_back(Bytes{room + dice.below(60)});
    }
    return memory;
}

ChainProblem random_problem(Dice& dice, const Wanted& wanted) {
    const int layers = dice.between(1, 14);
    const int stages = dice.between(1, std::min(layers, 6));
    const int bound = std::vector<int>{1, 4, 100}.at(static_cast<std::size_t>(dice.below(3)));
    const int kinds = wanted.unequal ? dice.between(1, 3) : 1;
    ChainProblem problem;
    for (int kind = 0; kind < kinds; ++kind) {
        problem.devices.push_back({.work = dice.several<Duration>(layers, bound),
                                   .recompute = dice.several<Duration>(layers, bound)});
    }
    problem.device_of_stage = dice.several<int>(stages, kinds);
    for (int kind = 0; wanted.cuts && kind < kinds; ++kind) {
        problem.links.push_back({.sender = dice.several<Duration>(layers, bound + 5),
                                 .receiver = dice.several<Duration>(layers, bound + 5)});
    }
    if (wanted.cuts && wanted.unequal) {
        problem.link_of_boundary = dice.several<int>(stages - 1, kinds);
    }
    if (wanted.memory) {
        problem.memory = random_memory(dice, layers, stages, wanted.keep);
    }
    return problem;
}

class RandomChains : public ::testing::TestWithParam<Wanted> {};

TEST_P(RandomChains, EqualBruteForce) {
    Dice dice(tests::seed());
    for (int round = 0; round < tests::soaked(100); ++round) {
        const ChainProblem problem = random_problem(dice, GetParam());
        SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}, round {}", tests::seed(), round));
        ASSERT_NO_FATAL_FAILURE(
            expect_brute_force(problem, std::nullopt, smallest_largest_stage(problem)));
        const int micro_batches = dice.between(1, 20);
        ASSERT_NO_FATAL_FAILURE(
            expect_brute_force(problem, micro_batches, shortest_pipeline(problem, micro_batches)));
        if (HasFailure()) {
            return;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Wanted,
    RandomChains,
    ::testing::Values(Wanted{},
                      Wanted{.cuts = true},
                      Wanted{.memory = true},
                      Wanted{.cuts = true, .memory = true},
                      Wanted{.cuts = true, .memory = true, .keep = Keep::InputOnly},
                      Wanted{.cuts = true, .memory = true, .keep = Keep::WhatFits},
                      Wanted{.cuts = true, .unequal = true},
                      Wanted{
                          .cuts = true, .memory = true, .unequal = true, .keep = Keep::WhatFits}));

TEST(ChainPartition, ChecksEveryBoundaryAndNotOnlyTheLatest) {
    // Boundaries before layers 1 and 3 cost 100, the one before layer 2 nothing.
    ChainProblem problem = plain({10, 10, 10, 40}, 2);
    problem.links = {
        {.sender = nanoseconds_of({0, 100, 0, 100}), .receiver = nanoseconds_of({0, 100, 0, 100})}};
    const ChainAnswer answer = smallest_largest_stage(problem);
    EXPECT_EQ(the(answer.split).partition.layers_per_stage(), (std::vector<int>{2, 2}));
    EXPECT_EQ(the(answer.split).largest, Duration{50});
    EXPECT_EQ(the(answer.split).sum, Duration{70});
}

TEST(ChainPartition, WithoutBoundariesAgreesWithTheBalancedAndTheUnequalPartition) {
    Dice dice(3);
    for (const int stages : {1, 2, 7, 60}) {
        UnequalCosts costs{
            .of_layer = {dice.several<Duration>(60, 1000), dice.several<Duration>(60, 500)},
            .kind_of_stage = dice.several<int>(stages, 2)};
        const ChainProblem problem{
            .devices = {{.work = costs.of_layer[0]}, {.work = costs.of_layer[1]}},
            .device_of_stage = costs.kind_of_stage};
        EXPECT_EQ(the(smallest_largest_stage(problem).split).partition, unequal_partition(costs));
        const ChainProblem alike{
            .devices = {{.work = costs.of_layer[0]}},
            .device_of_stage = std::vector<int>(static_cast<std::size_t>(stages), 0)};
        EXPECT_EQ(the(smallest_largest_stage(alike).split).partition,
                  balanced_partition(costs.of_layer[0], stages));
    }
}

// Too many splits for brute force; the textbook's recurrence looks at all pairs of boundaries.
TEST(ChainPartition, ThreeHundredLayersEqualTheRecurrence) {
    Dice dice(11);
    constexpr std::size_t layers = 300;
    constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
    for (const int stages : {2, 20, 75}) {
        ChainProblem problem = plain(dice.several<int>(layers, 1'000'000), stages);
        problem.links = {{.sender = dice.several<Duration>(layers, 2'000'000),
                          .receiver = dice.several<Duration>(layers, 2'000'000)}};
        const std::vector<std::int64_t> before = prefix_sums(problem.devices[0].work);
        const CutCost& cut = problem.links[0];
        std::vector<std::int64_t> best(layers + 1, none);
        best[layers] = 0;
        for (int stage = stages; stage-- > 0;) {
            std::vector<std::int64_t> next(layers + 1, none);
            for (std::size_t i = 0; i < (stage == 0 ? 1 : layers); ++i) {
                const std::int64_t in = stage > 0 ? cut.receiver[i].count() : 0;
                for (std::size_t j = i + 1; j <= layers; ++j) {
                    const std::int64_t out = j < layers ? cut.sender[j].count() : 0;
                    const std::int64_t cost = in + before[j] - before[i] + out;
                    next[i] = std::min(next[i], std::max(best[j], cost));
                }
            }
            best = std::move(next);
        }
        EXPECT_EQ(the(smallest_largest_stage(problem).split).largest.count(), best[0]) << stages;
    }
}

// The bound on all costs once took sender and receiver from one link: the soak found this chain,
// for which no split was below the bound.
TEST(ChainPartition, AStageBetweenTwoLinksPaysForBoth) {
    ChainProblem problem = plain({0, 3, 0}, 3);
    problem.links = {{.sender = nanoseconds_of({1, 1, 1}), .receiver = nanoseconds_of({1, 3, 1})},
                     {.sender = nanoseconds_of({1, 0, 3}), .receiver = nanoseconds_of({2, 1, 0})}};
    problem.link_of_boundary = {0, 1};
    const ChainAnswer answer = smallest_largest_stage(problem);
    ASSERT_TRUE(answer.split.has_value());
    EXPECT_EQ(the(answer.split).largest, Duration{3 + 3 + 3});
}

TEST(ChainPartition, OneStagePaysForNoBoundary) {
    ChainProblem problem = plain({1, 2, 3}, 1);
    problem.links = {{.sender = nanoseconds_of({9, 9, 9}), .receiver = nanoseconds_of({9, 9, 9})}};
    EXPECT_EQ(the(smallest_largest_stage(problem).split).largest, Duration{6});
    EXPECT_EQ(the(shortest_pipeline(problem, 5).split).largest, Duration{6});
}

TEST(ChainPartition, AsManyStagesAsLayersLeaveNoChoice) {
    const ChainAnswer answer = smallest_largest_stage(plain({5, 0, 7}, 3));
    EXPECT_EQ(the(answer.split).partition.layers_per_stage(), (std::vector<int>{1, 1, 1}));
    EXPECT_EQ(the(answer.split).largest, Duration{7});
}

TEST(ChainPartition, MoreStagesThanLayersAreRefusedNamingBoth) {
    for (const int stages : {0, 4}) {
        const Error error = error_of([&] { smallest_largest_stage(plain({1, 2, 3}, stages)); });
        EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
        EXPECT_EQ(error.text(), fmt::format("3 layers cannot fill {} stages", stages));
    }
}

TEST(ChainPartition, NothingCostsNothingAndCoversEveryLayer) {
    EXPECT_EQ(
        the(smallest_largest_stage(plain({0, 0, 0, 0, 0}, 3)).split).partition.layers_per_stage(),
        (std::vector<int>{1, 1, 3}));
    EXPECT_EQ(
        the(shortest_pipeline(plain({0, 0, 0, 0, 0}, 3), 9).split).partition.layers_per_stage(),
        (std::vector<int>{1, 1, 3}));
}

TEST(ChainPartition, OneHugeLayerIsTheLargestStageAlone) {
    const ChainAnswer answer = smallest_largest_stage(plain({1, 1, 1'000'000'000, 1, 1}, 3));
    EXPECT_EQ(the(answer.split).largest, Duration{1'000'000'000});
    EXPECT_EQ(the(answer.split).partition.layers_per_stage(), (std::vector<int>{2, 1, 2}));
}

TEST(ChainPartition, TimesThatAddUpToMoreThanAnIntegerHoldsAreRefused) {
    const Duration long_time{4'000'000'000'000'000'000};
    const ChainProblem problem{.devices = {{.work = {long_time, long_time}}},
                               .device_of_stage = {0}};
    EXPECT_THROW(smallest_largest_stage(problem), Error);
    const ChainProblem one{.devices = {{.work = {long_time}}}, .device_of_stage = {0}};
    EXPECT_THROW(smallest_largest_stage(one), Error);
    const ChainProblem year{.devices = {{.work = {Duration{31'536'000'000'000'000}}}},
                            .device_of_stage = {0}};
    EXPECT_THROW(shortest_pipeline(year, 1000), Error);
}

// Two stages of 1f1b: the first holds two stashes, the second one.
//
//     layers          a   b   c   d       saved 10 each, no states
//     stage 0 has room for 20: one layer; stage 1 has room for 30: three
ChainProblem tight() {
    ChainProblem problem = plain({1, 1, 1, 1}, 2);
    problem.devices[0].recompute = nanoseconds_of({1, 1, 1, 1});
    problem.memory = ChainMemory{.states = std::vector<Bytes>(4),
                                 .saved = std::vector<Bytes>(4, Bytes{10}),
                                 .in_flight = {2, 1},
                                 .limit = {Bytes{20}, Bytes{30}}};
    return problem;
}

TEST(ChainPartition, StashesInFlightDecideWhatFits) {
    EXPECT_EQ(the(smallest_largest_stage(tight()).split).partition.layers_per_stage(),
              (std::vector<int>{1, 3}));
}

TEST(ChainPartition, WhatDoesNotFitSaysHowMuchIsMissingAndWhere) {
    ChainProblem problem = tight();
    the(problem.memory).limit = {Bytes{20}, Bytes{23}};
    const ChainAnswer answer = smallest_largest_stage(problem);
    EXPECT_EQ(the(answer.gap).excess, Bytes{7});  // [1, 3]: 30 of 23; [2, 2] would miss 40 - 20
    EXPECT_EQ(the(answer.gap).stage, 1);
    EXPECT_EQ(the(answer.gap).partition.layers_per_stage(), (std::vector<int>{1, 3}));
}

TEST(ChainPartition, RecomputesWhereItMustAndNowhereElse) {
    ChainProblem problem = tight();
    the(problem.memory).keep = Keep::WhatFits;
    the(problem.memory).limit = {Bytes{20}, Bytes{20}};
    const ChainAnswer answer = smallest_largest_stage(problem);
    ASSERT_TRUE(answer.split.has_value());
    EXPECT_EQ(the(answer.split).partition.layers_per_stage(), (std::vector<int>{2, 2}));
    EXPECT_EQ(the(answer.split).recomputes, (std::vector<bool>{true, false}));
    EXPECT_EQ(the(answer.split).largest, Duration{4});
    EXPECT_EQ(the(answer.split).sum, Duration{6});
}

}  // namespace
}  // namespace pipetwin
