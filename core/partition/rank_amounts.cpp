#include "core/partition/rank_amounts.h"

#include <algorithm>
#include <array>

#include "core/base/as_index.h"

namespace pipetwin {

int RankChain::ranks() const {
    return rank_of_piece.empty() ? 0 : std::ranges::max(rank_of_piece) + 1;
}

RankAmounts::RankAmounts(const RankChain& chain)
    : chain_(chain), first_piece_(as_index(chain.ranks()), -1), second_piece_(first_piece_) {
    for (int piece = chain.pieces(); piece-- > 0;) {
        const std::size_t rank = as_index(chain.rank_of_piece[as_index(piece)]);
        second_piece_[rank] = first_piece_[rank];
        first_piece_[rank] = piece;
    }
    for (const RankQuantity& quantity : chain.quantities) {
        has_alternatives_ = has_alternatives_ || quantity.alternative >= 0;
        of_quantity_.push_back(quantity.fixed.empty()
                                   ? std::vector<std::int64_t>(first_piece_.size())
                                   : quantity.fixed);
    }
}

RankAmounts::RankAmounts(const RankChain& chain, const std::vector<int>& sizes)
    : RankAmounts(chain) {
    int first = 0;
    for (int piece = 0; piece < chain.pieces(); ++piece) {
        const int end = first + sizes[as_index(piece)];
        add(piece, first, end);
        first = end;
    }
}

void RankAmounts::add(int piece, int first, int end, int sign) {
    const std::size_t rank = as_index(chain_.rank_of_piece[as_index(piece)]);
    for (std::size_t i = 0; i < of_quantity_.size(); ++i) {
        const RankQuantity& quantity = chain_.quantities[i];
        const std::vector<std::int64_t>& before = quantity.sums_of(piece);
        std::int64_t amount = before[as_index(end)] - before[as_index(first)];
        if (!quantity.delay.empty() && first_piece_[rank] == piece) {
            amount += quantity.delay[as_index(first)];
        }
        if (!quantity.second_delay.empty() && second_piece_[rank] == piece) {
            amount += quantity.second_delay[as_index(first)];
        }
        of_quantity_[i][rank] += sign * amount;
    }
}

bool RankAmounts::keeps(int rank, std::int64_t most) const {
    std::array<bool, 2> keeps_alternative{true, true};
    for (std::size_t i = 0; i < of_quantity_.size(); ++i) {
        const RankQuantity& quantity = chain_.quantities[i];
        const std::int64_t limit = quantity.limits.empty() ? most : quantity.limits[as_index(rank)];
        if (of_quantity_[i][as_index(rank)] > limit) {
            if (quantity.alternative < 0) {
                return false;
            }
            keeps_alternative[as_index(quantity.alternative)] = false;
        }
    }
    return !has_alternatives_ || keeps_alternative[0] || keeps_alternative[1];
}

bool RankAmounts::has_room(std::int64_t most, std::int64_t more) const {
    for (const std::int64_t amount : of_quantity_.front()) {
        if (more <= most - amount) {
            return true;
        }
        more -= std::max<std::int64_t>(most - amount, 0);
    }
    return more <= 0;
}

RankScore RankAmounts::score() const {
    RankScore score;
    for (std::size_t i = 0; i < of_quantity_.size(); ++i) {
        const std::vector<std::int64_t>& limits = chain_.quantities[i].limits;
        for (std::size_t rank = 0; rank < first_piece_.size(); ++rank) {
            const std::int64_t amount = of_quantity_[i][rank];
            if (!limits.empty()) {
                score.excess +=
                    static_cast<double>(std::max<std::int64_t>(amount - limits[rank], 0));
                continue;
            }
            score.largest = std::max(score.largest, amount);
            score.squares += static_cast<double>(amount) * static_cast<double>(amount);
        }
    }
    return score;
}

}  // namespace pipetwin
