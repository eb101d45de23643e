// SPDX-License-Identifier: Apache-2.0
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
    const auto data_of = [](const std::vector<std::int64_t>& list) {
        return list.empty() ? nullptr : list.data();
    };
    for (const RankQuantity& quantity : chain.quantities) {
        has_alternatives_ = has_alternatives_ || quantity.alternative >= 0;
        Source& source =
            sources_.emplace_back(Source{.before = {},
                                         .delay = data_of(quantity.delay),
                                         .second_delay = data_of(quantity.second_delay),
                                         .limits = data_of(quantity.limits),
                                         .alternative = quantity.alternative});
        for (int piece = 0; piece < chain.pieces(); ++piece) {
            source.before.push_back(quantity.sums_of(piece).data());
        }
    }
    amounts_.resize(first_piece_.size() * sources_.size());
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        const std::vector<std::int64_t>& fixed = chain.quantities[i].fixed;
        for (std::size_t rank = 0; rank < fixed.size(); ++rank) {
            of_rank(rank)[i] = fixed[rank];
        }
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
    const bool is_first = first_piece_[rank] == piece;
    const bool is_second = second_piece_[rank] == piece;
    std::int64_t* const amounts = of_rank(rank);
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        const Source& source = sources_[i];
        const std::int64_t* const before = source.before[as_index(piece)];
        std::int64_t amount = before[end] - before[first];
        if (is_first && source.delay != nullptr) {
            amount += source.delay[first];
        }
        if (is_second && source.second_delay != nullptr) {
            amount += source.second_delay[first];
        }
        amounts[i] += sign * amount;
    }
}

void RankAmounts::lengthen(int piece, int from, int to) {
    std::int64_t* const amounts = of_rank(as_index(chain_.rank_of_piece[as_index(piece)]));
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        const std::int64_t* const before = sources_[i].before[as_index(piece)];
        amounts[i] += before[to] - before[from];
    }
}

bool RankAmounts::keeps(int rank, std::int64_t most) const {
    std::array<bool, 2> keeps_alternative{true, true};
    const std::int64_t* const amounts = of_rank(as_index(rank));
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        const Source& source = sources_[i];
        if (amounts[i] > (source.limits == nullptr ? most : source.limits[rank])) {
            if (source.alternative < 0) {
                return false;
            }
            keeps_alternative[as_index(source.alternative)] = false;
        }
    }
    return !has_alternatives_ || keeps_alternative[0] || keeps_alternative[1];
}

bool RankAmounts::has_room(std::int64_t most, std::int64_t more) const {
    for (std::size_t rank = 0; rank < first_piece_.size(); ++rank) {
        const std::int64_t amount = of_rank(rank)[0];
        if (more <= most - amount) {
            return true;
        }
        more -= std::max<std::int64_t>(most - amount, 0);
    }
    return more <= 0;
}

RankScore RankAmounts::score() const {
    RankScore score;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        const std::int64_t* const limits = sources_[i].limits;
        for (std::size_t rank = 0; rank < first_piece_.size(); ++rank) {
            const std::int64_t amount = of_rank(rank)[i];
            if (limits != nullptr) {
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
