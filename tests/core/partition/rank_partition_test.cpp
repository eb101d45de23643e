// SPDX-License-Identifier: Apache-2.0
#include "core/partition/rank_partition.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/partition/rank_share.h"
#include "core/partition/rank_walk.h"
#include "tests/support/error_of.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace rank_partition_test {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::Ge;

std::vector<std::int64_t> sums_of(const std::vector<std::int64_t>& layers) {
    std::vector<std::int64_t> sums{0};
    for (const std::int64_t layer : layers) {
        sums.push_back(sums.back() + layer);
    }
    return sums;
}

/// Pieces of p ranks: each r once, r and p + r, or r and 2 p - 1 - r; or round and round.
std::vector<int> ranks_of(RankPlacement placement, int ranks, int chunks = 2) {
    std::vector<int> of_piece;
    for (int piece = 0; piece < (placement == RankPlacement::One ? 1 : chunks) * ranks; ++piece) {
        const bool turned = placement == RankPlacement::V && piece >= ranks;
        of_piece.push_back(turned ? 2 * ranks - 1 - piece : piece % ranks);
    }
    return of_piece;
}

RankChain chain_of(const std::vector<std::int64_t>& work, std::vector<int> rank_of_piece) {
    return {.layers = static_cast<int>(work.size()),
            .rank_of_piece = std::move(rank_of_piece),
            .quantities = {{.before = {sums_of(work)}}}};
}

/// [quantity][rank], summed layer by layer.
std::vector<std::vector<std::int64_t>> amounts_of(const RankChain& chain,
                                                  const std::vector<int>& sizes) {
    std::vector<std::vector<std::int64_t>> amounts;
    for (const RankQuantity& quantity : chain.quantities) {
        auto& of_rank = amounts.emplace_back(
            quantity.fixed.empty() ? std::vector<std::int64_t>(as_index(chain.ranks()))
                                   : quantity.fixed);
        std::vector<int> pieces(of_rank.size());
        int layer = 0;
        for (std::size_t piece = 0; piece < sizes.size(); ++piece) {
            const std::size_t rank = as_index(chain.rank_of_piece[piece]);
            const auto& before = quantity.sums_of(static_cast<int>(piece));
            if (pieces[rank] == 0 && !quantity.delay.empty()) {
                of_rank[rank] += quantity.delay[as_index(layer)];
            }
            if (pieces[rank] == 1 && !quantity.second_delay.empty()) {
                of_rank[rank] += quantity.second_delay[as_index(layer)];
            }
            ++pieces[rank];
            for (int i = 0; i < sizes[piece]; ++i, ++layer) {
                of_rank[rank] += before[as_index(layer + 1)] - before[as_index(layer)];
            }
        }
    }
    return amounts;
}

/// The least of the largest ranks over every split that keeps the limits.
class BruteForce {
  public:
    explicit BruteForce(const RankChain& chain) : chain_(chain) { extend(chain.layers); }

    std::optional<std::int64_t> least{};
    std::vector<std::int64_t> all{};  ///< of each split that keeps the limits

  private:
    void extend(int layers) {
        const int left = chain_.pieces() - static_cast<int>(sizes_.size());
        if (left == 1) {
            sizes_.push_back(layers);
            look();
            sizes_.pop_back();
            return;
        }
        for (int size = 1; size <= layers - left + 1; ++size) {
            sizes_.push_back(size);
            extend(layers - size);
            sizes_.pop_back();
        }
    }
    void look() {
        const auto amounts = amounts_of(chain_, sizes_);
        std::int64_t largest = 0;
        for (std::size_t rank = 0; rank < amounts.front().size(); ++rank) {
            const std::optional<std::int64_t> of_rank = least_kept(amounts, rank);
            if (!of_rank) {
                return;
            }
            largest = std::max(largest, *of_rank);
        }
        all.push_back(largest);
        least = std::min(least.value_or(largest), largest);
    }

    /// What a rank needs the limit to be, with the alternative for which that is less; none where
    /// it keeps no other limits.
    std::optional<std::int64_t> least_kept(const std::vector<std::vector<std::int64_t>>& amounts,
                                           std::size_t rank) const {
        std::optional<std::int64_t> least_of_both;
        for (const int alternative : {0, 1}) {
            std::int64_t largest = 0;
            bool fits = true;
            for (std::size_t i = 0; i < amounts.size(); ++i) {
                const RankQuantity& quantity = chain_.quantities[i];
                if (quantity.alternative >= 0 && quantity.alternative != alternative) {
                    continue;
                }
                if (quantity.limits.empty()) {
                    largest = std::max(largest, amounts[i][rank]);
                } else {
                    fits = fits && amounts[i][rank] <= quantity.limits[rank];
                }
            }
            if (fits) {
                least_of_both = std::min(least_of_both.value_or(largest), largest);
            }
        }
        return least_of_both;
    }

    const RankChain& chain_;
    std::vector<int> sizes_{};
};

/// A chain of up to `most_layers` layers with one or two kinds of device, often a limit of memory,
/// and now and then a delay.
class Dice {
  public:
    explicit Dice(std::uint32_t seed) : random_(seed) {}

    int up_to(int most) { return static_cast<int>(random_() % static_cast<unsigned>(most + 1)); }

    std::vector<std::int64_t> numbers(int count, int most) {
        std::vector<std::int64_t> numbers;
        for (int i = 0; i < count; ++i) {
            numbers.push_back(up_to(most));
        }
        return numbers;
    }

    RankChain chain(RankPlacement placement, int ranks, int layers, int chunks = 2) {
        const int largest = up_to(1) == 0 ? 3 : 1000;  // many ties, or none
        RankChain chain = chain_of(numbers(layers, largest), ranks_of(placement, ranks, chunks));
        RankQuantity& work = chain.quantities.front();
        if (up_to(2) == 0) {
            work.before.push_back(sums_of(numbers(layers, largest)));
            for (const int rank : chain.rank_of_piece) {
                work.kind_of_piece.push_back(rank % 2);
            }
        }
        if (up_to(3) == 0) {
            work.delay = sums_of(numbers(layers, largest / 2));
            work.fixed = numbers(ranks, largest);
        }
        if (up_to(1) == 0) {
            RankQuantity memory{.before = {sums_of(numbers(layers, 9))}};
            const std::int64_t all = memory.before.front().back();
            memory.limits.assign(as_index(ranks), all / ranks + up_to(9));
            chain.quantities.push_back(memory);
        }
        return chain;
    }

    /// Adds what the search for plans adds for two pieces to a rank: a window that begins with the
    /// second piece, and memory or, in its place, more work.
    void add_windows(RankChain& chain) {
        const std::vector<std::int64_t> forward = numbers(chain.layers, 20);
        RankQuantity window{.before = {}};
        for (const int factor : {1 + up_to(2), 1 + up_to(4)}) {
            std::vector<std::int64_t> work = numbers(chain.layers, 30);
            for (std::size_t layer = 0; layer < work.size(); ++layer) {
                work[layer] += factor * forward[layer];
            }
            window.before.push_back(sums_of(work));
        }
        window.second_delay = sums_of(forward);
        for (int piece = 0; piece < chain.pieces(); ++piece) {
            window.kind_of_piece.push_back(piece < chain.ranks() ? 0 : 1);
        }
        chain.quantities.push_back(window);
        if (up_to(1) == 0) {
            RankQuantity memory{.before = {sums_of(numbers(chain.layers, 9))}, .alternative = 0};
            const std::int64_t all = memory.before.front().back();
            memory.limits.assign(as_index(chain.ranks()), all / chain.ranks());
            chain.quantities.push_back(memory);
            window.alternative = 1;
            for (std::vector<std::int64_t>& before : window.before) {
                for (std::int64_t& sum : before) {
                    sum += sum / 2;
                }
            }
            chain.quantities.push_back(window);
        }
    }

  private:
    std::mt19937 random_;
};

constexpr std::array every_placement{RankPlacement::One, RankPlacement::Loop, RankPlacement::V};

TEST(RankPartition, IsNeverWorseThanAnySplitThatKeepsTheLimits) {
    Dice dice(static_cast<std::uint32_t>(tests::seed()));
    for (int round = 0; round < tests::soaked(3'000); ++round) {
        const RankPlacement placement = every_placement.at(as_index(dice.up_to(2)));
        const int ranks = 1 + dice.up_to(2);
        const int pieces = placement == RankPlacement::One ? ranks : 2 * ranks;
        const RankChain chain = dice.chain(placement, ranks, pieces + dice.up_to(10 - pieces));
        SCOPED_TRACE(round);
        const std::optional<std::int64_t> least = BruteForce(chain).least;
        const std::optional<RankSplit> split = rank_partition(chain);
        ASSERT_EQ(split.has_value(), least.has_value());
        const std::optional<std::int64_t> bound = rank_bound(chain);
        if (!least) {
            continue;
        }
        EXPECT_EQ(split->largest, *least);
        EXPECT_TRUE(split->is_proven());
        ASSERT_TRUE(bound.has_value());
        EXPECT_LE(*bound, *least);
        const auto amounts = amounts_of(chain, split->sizes);
        EXPECT_EQ(std::ranges::max(amounts.front()), split->largest);
    }
}

/// The recurrence is what finds splits of chains that are too long to try them all. Pieces that may
/// be empty are allowed more than others, so both together enclose the least.
TEST(RankWalk, EnclosesTheLeastOfEverySplit) {
    Dice dice(2);
    int exact = 0;
    int known = 0;
    for (int round = 0; round < 2'000; ++round) {
        const RankPlacement placement = every_placement.at(as_index(dice.up_to(2)));
        const int ranks = 1 + dice.up_to(2);
        const int pieces = placement == RankPlacement::One ? ranks : 2 * ranks;
        const RankChain chain = dice.chain(placement, ranks, pieces + 3 + dice.up_to(4));
        SCOPED_TRACE(round);
        const std::optional<std::int64_t> least = BruteForce(chain).least;
        if (!least) {
            continue;
        }
        ++known;
        RankWalk walk(chain, placement);
        const auto keeps = [&](std::int64_t limit, RankWalk::Empty empty) {
            for (int middle = 0; middle <= chain.layers; ++middle) {
                if (walk.keeps(limit, empty, middle)) {
                    return true;
                }
            }
            return false;
        };
        EXPECT_TRUE(keeps(*least, RankWalk::Empty::Second));
        if (keeps(*least, RankWalk::Empty::None)) {
            ++exact;
            const auto amounts = amounts_of(chain, walk.sizes());
            EXPECT_EQ(std::ranges::max(amounts.front()), *least);
        }
        EXPECT_FALSE(keeps(*least - 1, RankWalk::Empty::None));
    }
    EXPECT_GT(exact, known * 9 / 10);
}

TEST(RankWalk, BoundsWindowsAndAlternativesAsEverySplitDoes) {
    Dice dice(static_cast<std::uint32_t>(tests::seed()));
    int known = 0;
    for (int round = 0; round < tests::soaked(1'000); ++round) {
        const RankPlacement placement = dice.up_to(1) == 0 ? RankPlacement::Loop : RankPlacement::V;
        const int ranks = 1 + dice.up_to(2);
        RankChain chain = dice.chain(placement, ranks, 2 * ranks + dice.up_to(5));
        dice.add_windows(chain);
        SCOPED_TRACE(round);
        const BruteForce every(chain);
        const std::optional<std::int64_t> bound = rank_bound(chain);
        if (!every.least) {
            continue;
        }
        ++known;
        ASSERT_TRUE(bound.has_value());
        EXPECT_LE(*bound, *every.least);
        EXPECT_TRUE(rank_chain_keeps(chain, *every.least));
        const std::int64_t limit = *every.least + dice.up_to(20);
        EXPECT_EQ(rank_splits_within(chain, limit, 1'000)->size(),
                  std::ranges::count_if(every.all, [&](std::int64_t of) { return of <= limit; }));
    }
    EXPECT_GT(known, tests::soaked(500));
}

TEST(RankShare, IsNeverAboveTheLeastOfEverySplit) {
    Dice dice(static_cast<std::uint32_t>(tests::seed()));
    int known = 0;
    int above_share = 0;
    for (int round = 0; round < tests::soaked(1'000); ++round) {
        constexpr int chunks = 3;
        const int ranks = 1 + dice.up_to(2);
        RankChain chain =
            dice.chain(RankPlacement::Loop, ranks, chunks * ranks + dice.up_to(4), chunks);
        dice.add_windows(chain);
        SCOPED_TRACE(round);
        const std::optional<std::int64_t> least = BruteForce(chain).least;
        if (!least) {
            continue;
        }
        ++known;
        EXPECT_TRUE(RankShare(chain).keeps(*least));
        const std::optional<std::int64_t> bound = rank_bound(chain);
        ASSERT_TRUE(bound.has_value());
        EXPECT_LE(*bound, *least);
        // So few splits are looked at one by one.
        EXPECT_GE(*bound + *bound / 10'000 + 2, *least);
        RankChain without = chain;
        std::erase_if(without.quantities,
                      [](const RankQuantity& quantity) { return !quantity.limits.empty(); });
        above_share += *bound > *rank_bound(without) ? 1 : 0;
    }
    EXPECT_GT(known, tests::soaked(500));
    EXPECT_GT(above_share, 0);
}

TEST(RankBound, BetweenTwoNumbersIsThatOfAllNumbers) {
    Dice dice(static_cast<std::uint32_t>(tests::seed()));
    int inside = 0;
    for (int round = 0; round < tests::soaked(1'000); ++round) {
        const int chunks = 2 + dice.up_to(1);
        const int ranks = 1 + dice.up_to(2);
        RankChain chain =
            dice.chain(RankPlacement::Loop, ranks, chunks * ranks + dice.up_to(4), chunks);
        dice.add_windows(chain);
        SCOPED_TRACE(round);
        const std::optional<std::int64_t> bound = rank_bound(chain);
        const std::int64_t low =
            std::max<std::int64_t>(0, bound.value_or(0) - 50 + dice.up_to(100));
        const std::int64_t high = low + 1 + dice.up_to(100);
        const std::optional<std::int64_t> between = rank_bound_between(chain, low, high);
        if (!bound) {
            EXPECT_TRUE(!between || *between == high);
            continue;
        }
        ASSERT_TRUE(between.has_value());
        constexpr double precision = 3;  // a ten-thousandth of these limits
        EXPECT_NEAR(static_cast<double>(*between),
                    static_cast<double>(std::clamp(*bound, low, high)),
                    precision);
        inside += low < *bound && *bound < high ? 1 : 0;
    }
    EXPECT_GT(inside, tests::soaked(300));
}

TEST(RankShare, KnowsThatRanksComputeAgainWhatTheyCannotHold) {
    // Twelve layers on two ranks of three pieces: 4 each where they are held, 5 where not. A rank
    // holds three of them at most, so one that has more takes 5 for each.
    RankChain chain =
        chain_of(std::vector<std::int64_t>(12, 4), ranks_of(RankPlacement::Loop, 2, 3));
    const std::vector<std::int64_t> limits(2, 9);
    chain.quantities.push_back({.before = {sums_of(std::vector<std::int64_t>(12, 3))},
                                .limits = limits,
                                .alternative = 0});
    chain.quantities.push_back(
        {.before = {sums_of(std::vector<std::int64_t>(12, 5))}, .alternative = 1});
    EXPECT_TRUE(RankShare(chain).keeps(30));
    EXPECT_FALSE(RankShare(chain).keeps(29));
}

TEST(RankPartition, BalancesRanksRatherThanPieces) {
    // Ten like layers on two ranks that lie in a V: 5 to each, though no piece has as many as
    // another need have.
    const std::vector<std::int64_t> even(10, 4);
    const RankSplit split = *rank_partition(chain_of(even, ranks_of(RankPlacement::V, 2)));
    EXPECT_EQ(split.largest, 20);
    // A head of three layers' work is on the rank of the first piece.
    std::vector<std::int64_t> head(32, 1);
    head.back() = 3;
    const RankSplit with_head = *rank_partition(chain_of(head, ranks_of(RankPlacement::V, 2)));
    EXPECT_EQ(with_head.largest, 17);
}

TEST(RankPartition, SharesOutEvenlyWhereSeveralSplitsAreBest) {
    const std::vector<std::int64_t> even(10, 1);
    std::vector<int> sizes = rank_partition(chain_of(even, {0, 1, 2, 3}))->sizes;
    std::ranges::sort(sizes);
    EXPECT_THAT(sizes, ElementsAre(2, 2, 3, 3));
    // 80 blocks between an embedding without work and a head of a block's, on 32 ranks.
    std::vector<std::int64_t> large(82, 100);
    large.front() = 1;
    std::vector<int> ranks(32);
    for (int rank = 0; rank < 32; ++rank) {
        ranks[as_index(rank)] = rank;
    }
    const RankSplit split = *rank_partition(chain_of(large, ranks));
    EXPECT_EQ(split.largest, 300);
    const RankChain chain = chain_of(large, ranks);
    const auto amounts = amounts_of(chain, split.sizes);
    EXPECT_THAT(amounts.front(), Each(Ge(200)));
}

TEST(RankPartition, SplitsThreeChunksOfManyLayersWithinTheBound) {
    for (const int chunks : {3, 4, 8}) {
        const int ranks = 4;
        const std::vector<std::int64_t> even(as_index(ranks * chunks * 2 + ranks), 7);
        const RankChain chain = chain_of(even, ranks_of(RankPlacement::Loop, ranks, chunks));
        const RankSplit split = *rank_partition(chain);
        EXPECT_EQ(split.largest, 7 * (2 * chunks + 1)) << chunks;
        EXPECT_TRUE(split.is_proven()) << chunks;
    }
}

TEST(RankPartition, RefusesFewerLayersThanPieces) {
    const RankChain chain = chain_of({1, 2, 3}, ranks_of(RankPlacement::V, 2));
    const Error error = error_of([&] { rank_partition(chain); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_THAT(error.text(), ::testing::HasSubstr("3 units cannot fill 4 stages"));
}

}  // namespace rank_partition_test
}  // namespace pipetwin
