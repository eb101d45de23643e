// SPDX-License-Identifier: Apache-2.0
#include "core/partition/rank_walk.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/partition/partition_search.h"

namespace pipetwin {

namespace {

constexpr int none = -1;

}  // namespace

RankPlacement rank_placement(const RankChain& chain) {
    const int pieces = chain.pieces();
    const int ranks = chain.ranks();
    const auto lies = [&](auto rank_of) {
        for (int piece = 0; piece < pieces; ++piece) {
            if (chain.rank_of_piece[as_index(piece)] != rank_of(piece)) {
                return false;
            }
        }
        return true;
    };
    if (pieces == ranks && lies([](int piece) { return piece; })) {
        return RankPlacement::One;
    }
    if (pieces == 2 * ranks && lies([&](int piece) { return piece % ranks; })) {
        return RankPlacement::Loop;
    }
    if (pieces == 2 * ranks &&
        lies([&](int piece) { return piece < ranks ? piece : pieces - 1 - piece; })) {
        return RankPlacement::V;
    }
    return RankPlacement::Other;
}

RankWalk::RankWalk(const RankChain& chain, RankPlacement placement)
    : chain_(chain), placement_(placement), ranks_(chain.ranks()), layers_(chain.layers) {
    PIPETWIN_EXPECT(placement != RankPlacement::Other, "a placement with a recurrence");
    has_alternatives_ = std::ranges::any_of(
        chain.quantities, [](const RankQuantity& quantity) { return quantity.alternative >= 0; });
    second_.resize(as_index(ranks_ + 1) * as_index(layers_ + 1));
    before_.resize(second_.size());
}

/// The boundary up to which first pieces go.
int RankWalk::end_of(int from) const {
    return placement_ == RankPlacement::Loop ? std::max(middle_, from) : layers_;
}

/// What the quantities leave for the second piece of a rank whose first one has these layers; false
/// where there is too much already.
bool RankWalk::leaves_room(int rank, int from, int to) {
    room_.clear();
    fails_ = {};
    const int second = placement_ == RankPlacement::V ? 2 * ranks_ - 1 - rank : ranks_ + rank;
    for (const RankQuantity& quantity : chain_.quantities) {
        const std::vector<std::int64_t>& first = quantity.sums_of(rank);
        const std::int64_t limit =
            quantity.limits.empty() ? limit_ : quantity.limits[as_index(rank)];
        const std::int64_t left = limit - (first[as_index(to)] - first[as_index(from)]) -
                                  (quantity.delay.empty() ? 0 : quantity.delay[as_index(from)]) -
                                  (quantity.fixed.empty() ? 0 : quantity.fixed[as_index(rank)]);
        if (left < 0) {
            if (quantity.alternative < 0) {
                return false;
            }
            fails_[as_index(quantity.alternative)] = true;
        }
        if (placement_ != RankPlacement::One) {
            room_.push_back({&quantity, &quantity.sums_of(second), left});
        }
    }
    return !has_alternatives_ || !fails_[0] || !fails_[1];
}

/// Whether the second piece may bring the second pieces from `second` layers to `next`. It may
/// always be empty.
bool RankWalk::allows_second(int second, int next) const {
    if (next == second) {
        return true;
    }
    const bool is_v = placement_ == RankPlacement::V;
    const int first = is_v ? layers_ - next : middle_ + second;
    const int end = is_v ? layers_ - second : middle_ + next;
    std::array<bool, 2> fails = fails_;
    for (const Room& room : room_) {
        const std::vector<std::int64_t>& delay = room.quantity->second_delay;
        const std::int64_t has = (*room.before)[as_index(end)] - (*room.before)[as_index(first)] +
                                 (delay.empty() ? 0 : delay[as_index(first)]);
        if (has > room.left) {
            if (room.quantity->alternative < 0) {
                return false;
            }
            fails[as_index(room.quantity->alternative)] = true;
        }
    }
    return !has_alternatives_ || !fails[0] || !fails[1];
}

/// The most layers, `second` to `most`, that the second pieces may have together.
int RankWalk::most_second(int second, int most) const {
    int low = second;
    while (low < most) {
        const int half = low + (most - low + 1) / 2;
        if (allows_second(second, half)) {
            low = half;
        } else {
            most = half - 1;
        }
    }
    return low;
}

/// Whether the ranks behind this one have room for what is left of the first quantity. They have it
/// where its limit is not the one that is looked for, or a layer differs from rank to rank.
bool RankWalk::leaves_little(int rank, int first, int second) const {
    const RankQuantity& quantity = chain_.quantities.front();
    if (!quantity.limits.empty() || quantity.before.size() > 1 || limit_ > never / ranks_) {
        return true;
    }
    const std::vector<std::int64_t>& before = quantity.before.front();
    const auto at = [&](int layer) { return before[as_index(layer)]; };
    const std::int64_t left =
        placement_ == RankPlacement::V
            ? at(layers_ - second) - at(first)
            : at(end_of(first)) - at(first) + at(layers_) - at(std::min(middle_ + second, layers_));
    const std::int64_t least_fixed =
        quantity.fixed.empty() ? 0 : std::min<std::int64_t>(0, std::ranges::min(quantity.fixed));
    return left <= (limit_ - least_fixed) * (ranks_ - 1 - rank);
}

/// Every first piece of the rank that begins at `from`, with as long a second one as it may have.
void RankWalk::extend(int rank, int from) {
    const std::size_t row = as_index(layers_ + 1);
    const int second = second_[as_index(rank) * row + as_index(from)];
    const int to_come = ranks_ - 1 - rank;  // layers at least, for first pieces as for second ones
    int* const next = second_.data() + as_index(rank + 1) * row;
    int* const origin = before_.data() + as_index(rank + 1) * row;
    const int end = end_of(from) - to_come;
    int most = none;  // not asked yet
    for (int to = from + 1; to <= end && leaves_room(rank, from, to); ++to) {
        if (placement_ == RankPlacement::One) {
            if (next[to] == none) {
                next[to] = 0;
                origin[to] = from;
            }
            continue;
        }
        const int allowed = placement_ == RankPlacement::V ? layers_ - to - 2 * to_come
                                                           : layers_ - middle_ - to_come;
        if (allowed < std::max(least_second_ * second, rank) + 1) {
            break;
        }
        if (most == none) {
            most = most_second(second, std::max(allowed, second));
        }
        while (most > second && !allows_second(second, most)) {
            --most;
        }
        // Where second pieces may be empty, those before may be shorter, too.
        most = std::min(most, allowed);
        if (most < std::max(least_second_ * second, rank) + 1) {
            break;
        }
        if (most > next[to] && leaves_little(rank, to, most)) {
            next[to] = most;
            origin[to] = from;
        }
    }
}

bool RankWalk::keeps(std::int64_t limit, Empty empty, int middle) {
    limit_ = limit;
    least_second_ = empty == Empty::None ? 1 : 0;
    middle_ = placement_ == RankPlacement::Loop ? middle : 0;
    std::ranges::fill(second_, none);
    second_.front() = 0;
    const std::size_t row = as_index(layers_ + 1);
    for (int rank = 0; rank < ranks_; ++rank) {
        for (int from = 0; from <= layers_; ++from) {
            if (second_[as_index(rank) * row + as_index(from)] != none) {
                extend(rank, from);
            }
        }
    }
    const int* const last = second_.data() + as_index(ranks_) * row;
    for (int a = 0; a <= layers_; ++a) {
        const bool all = placement_ == RankPlacement::One ? a == layers_ && last[a] == 0
                         : placement_ == RankPlacement::Loop
                             ? a == middle_ && last[a] == layers_ - middle_
                             : last[a] == layers_ - a;
        if (all && last[a] != none) {
            last_ = a;
            return true;
        }
    }
    return false;
}

std::vector<int> RankWalk::sizes() const {
    const std::size_t row = as_index(layers_ + 1);
    std::vector<int> sizes(as_index(chain_.pieces()));
    int a = last_;
    for (int rank = ranks_; rank-- > 0;) {
        const std::size_t place = as_index(rank + 1) * row + as_index(a);
        const int from = before_[place];
        sizes[as_index(rank)] = a - from;
        if (placement_ != RankPlacement::One) {
            const int piece =
                placement_ == RankPlacement::V ? 2 * ranks_ - 1 - rank : ranks_ + rank;
            sizes[as_index(piece)] =
                second_[place] - second_[as_index(rank) * row + as_index(from)];
        }
        a = from;
    }
    return sizes;
}

}  // namespace pipetwin
