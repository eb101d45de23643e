// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/as_index.h"

/// Partition of a chain of layers into pieces of which several lie on one rank: what a rank has to
/// do is the sum over its pieces, so pieces need not be alike.
namespace pipetwin {

/// What the layers of a rank add up to: nanoseconds, or bytes. No layer has less than nothing.
struct RankQuantity {
    std::vector<std::vector<std::int64_t>> before;  ///< [kind][i]: of the layers before layer i
    std::vector<int> kind_of_piece{};               ///< [piece]; empty: all are of kind 0
    /// [i]: what a rank has besides if its first piece begins with layer i; empty: nothing.
    std::vector<std::int64_t> delay{};
    /// [i]: what it has besides if its second piece begins with layer i; empty: nothing. Where that
    /// layer is a later one, this grows no more than the piece shrinks.
    std::vector<std::int64_t> second_delay{};
    std::vector<std::int64_t> fixed{};   ///< [rank] what it has besides; empty: nothing
    std::vector<std::int64_t> limits{};  ///< [rank]; empty: the largest of all ranks is to be small
    /// -1: every rank keeps its limit. Else a rank keeps all quantities of one of the alternatives,
    /// 0 or 1: for bounds alone.
    int alternative = -1;

    /// [i]: of the layers before layer i, where the piece has them.
    const std::vector<std::int64_t>& sums_of(int piece) const {
        return before[kind_of_piece.empty() ? 0 : as_index(kind_of_piece[as_index(piece)])];
    }
};

/// A chain of layers, and which rank has which piece of it.
struct RankChain {
    int layers = 0;
    std::vector<int> rank_of_piece;  ///< every rank from 0 to the highest has a piece
    std::vector<RankQuantity> quantities;

    int pieces() const { return static_cast<int>(rank_of_piece.size()); }
    int ranks() const;
};

/// Pieces, none empty.
struct RankSplit {
    std::vector<int> sizes;    ///< layers of each piece
    std::int64_t largest = 0;  ///< of the quantities without limits, over all ranks
    std::int64_t bound = 0;    ///< no split is below; `largest` where that is proven to be least
    double squares = 0;        ///< sum of the squares over the ranks: the less the more even

    bool is_proven() const { return bound == largest; }
};

/// Which split of a chain has the least `largest`; of several an even one. None where no split that
/// was found keeps the limits.
///
/// Exact (`is_proven`) where there are 10,000 splits at most, and else where the recurrence below
/// finds it without empty pieces: for one piece to a rank, for two of which the second ones lie in
/// the order of the first (a loop) or in the opposite one (a V). Every other placement is searched
/// from several starts, with a bound. Throws Error(Infeasible), naming both numbers, if there are
/// fewer layers than pieces. O(ranks * layers * w) for each limit of a bisection, w = layers of the
/// largest piece; for a loop as often as there are layers (Chan's order: a bisection only where a
/// middle is better than all before).
///
/// Rank by rank, a is the number of layers that the first pieces have together:
///
///     y(0, 0) = 0
///     y(r + 1, a) = max over a' < a of the most layers that the second pieces can have together
///
/// such that rank r keeps every limit with the layers a' to a - 1 and what its second piece adds.
/// The more the second pieces have the less is left.
std::optional<RankSplit> rank_partition(const RankChain& chain);

/// What no split goes below, the bound of `rank_partition` without its split; none where the limits
/// allow no split, even if second pieces may be empty. Where there is no recurrence for the
/// placement, or it would take longer than some milliseconds, it is what the ranks can hold and do
/// together (`RankShare`), to within a ten-thousandth below.
std::optional<std::int64_t> rank_bound(const RankChain& chain);

/// The bound of `rank_bound`, looked for between two numbers, which spares the more of its time the
/// nearer they are: `low` where it is not above that, and `high` where it is not below.
std::optional<std::int64_t> rank_bound_between(const RankChain& chain,
                                               std::int64_t low,
                                               std::int64_t high);

/// False where no split has a `largest` up to `limit` and keeps the limits: whether `rank_bound` is
/// below, in a fraction of its time.
bool rank_chain_keeps(const RankChain& chain, std::int64_t limit);

/// Every split whose `largest` is at most `limit`, and that keeps the limits; none where they are
/// more than `most`, or where finding them would take longer than some milliseconds.
std::optional<std::vector<std::vector<int>>> rank_splits_within(const RankChain& chain,
                                                                std::int64_t limit,
                                                                std::int64_t most);

}  // namespace pipetwin
