// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "core/partition/rank_partition.h"

namespace pipetwin {

/// How a split does: what all ranks exceed their limits by, the largest rank, and the sum of the
/// squares of all ranks, the less the more even. Compared in this order.
struct RankScore {
    double excess = 0;
    std::int64_t largest = 0;
    double squares = 0;

    auto operator<=>(const RankScore&) const = default;
};

/// What the ranks of a chain have of every quantity, piece by piece.
class RankAmounts {
  public:
    /// All amounts are zero until pieces are added. Keeps a reference to the chain.
    explicit RankAmounts(const RankChain& chain);
    /// The amounts of a whole split, given by the sizes of its pieces.
    RankAmounts(const RankChain& chain, const std::vector<int>& sizes);

    /// Adds a piece of layers `first` to `end` - 1, or with `sign` -1 takes it away.
    void add(int piece, int first, int end, int sign = 1);

    /// Adds layers `from` to `to` - 1 to a piece that was added, which they are behind.
    void lengthen(int piece, int from, int to);

    /// Whether the rank keeps its limits, and `most` where a quantity has none.
    bool keeps(int rank, std::int64_t most) const;

    /// Whether the ranks together have room for so much more of the first quantity, each up to
    /// `most`. It has no limits of its own.
    bool has_room(std::int64_t most, std::int64_t more) const;

    /// The score of the split so far; the chain has no alternatives.
    RankScore score() const;

  private:
    /// Where a quantity of the chain is found, without looking through its lists each time.
    struct Source {
        std::vector<const std::int64_t*> before;     ///< [piece] -> [layer]
        const std::int64_t* delay = nullptr;         ///< [layer]; null: none
        const std::int64_t* second_delay = nullptr;  ///< [layer]; null: none
        const std::int64_t* limits = nullptr;        ///< [rank]; null: none
        int alternative = -1;
    };

    std::int64_t* of_rank(std::size_t rank) { return amounts_.data() + rank * sources_.size(); }
    const std::int64_t* of_rank(std::size_t rank) const {
        return amounts_.data() + rank * sources_.size();
    }

    const RankChain& chain_;
    std::vector<int> first_piece_;   ///< [rank]
    std::vector<int> second_piece_;  ///< [rank]; -1: none
    bool has_alternatives_ = false;
    std::vector<Source> sources_{};        ///< [quantity]
    std::vector<std::int64_t> amounts_{};  ///< [rank * quantities + quantity]
};

}  // namespace pipetwin
