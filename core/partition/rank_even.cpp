// SPDX-License-Identifier: Apache-2.0
#include "core/partition/rank_even.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/units.h"
#include "core/partition/partition.h"
#include "core/partition/rank_amounts.h"

namespace pipetwin {

namespace {

constexpr std::int64_t most_work = 1'000'000;  ///< pieces that are looked at for one split

/// Steepest descent.
class Descent {
  public:
    Descent(const RankChain& chain, std::vector<int> sizes)
        : chain_(chain), sizes_(std::move(sizes)), score_(RankAmounts(chain, sizes_).score()) {}

    std::vector<int> settle() {
        while (work_ < most_work && (better_neighbour() || better_transfer())) {
        }
        return std::move(sizes_);
    }

  private:
    /// Looks at the split with a layer less in one piece and one more in another. The boundaries
    /// between the two move along.
    void consider(int from, int to) {
        if (sizes_[as_index(from)] == 1) {
            return;
        }
        --sizes_[as_index(from)];
        ++sizes_[as_index(to)];
        work_ += chain_.pieces();
        const RankScore score = RankAmounts(chain_, sizes_).score();
        if (score < best_) {
            best_ = score;
            best_from_ = from;
            best_to_ = to;
        }
        ++sizes_[as_index(from)];
        --sizes_[as_index(to)];
    }

    bool take_best() {
        if (!(best_ < score_)) {
            return false;
        }
        --sizes_[as_index(best_from_)];
        ++sizes_[as_index(best_to_)];
        score_ = best_;
        return true;
    }

    bool better_neighbour() {
        best_ = score_;
        for (int piece = 0; piece + 1 < chain_.pieces(); ++piece) {
            consider(piece, piece + 1);
            consider(piece + 1, piece);
        }
        return take_best();
    }

    bool better_transfer() {
        best_ = score_;
        const RankAmounts amounts(chain_, sizes_);
        for (int from = 0; from < chain_.pieces() && work_ < most_work; ++from) {
            if (amounts.keeps(chain_.rank_of_piece[as_index(from)], score_.largest - 1)) {
                continue;  // not one of the ranks that a better split has to relieve
            }
            for (int to = 0; to < chain_.pieces(); ++to) {
                consider(from, to);
            }
        }
        return take_best();
    }

    const RankChain& chain_;
    std::vector<int> sizes_;
    RankScore score_;
    RankScore best_{};
    int best_from_ = 0;
    int best_to_ = 0;
    std::int64_t work_ = 0;
};

}  // namespace

std::vector<int> equal_counts(int layers, int pieces) {
    std::vector<int> sizes(as_index(pieces), layers / pieces);
    for (int piece = 0; piece < layers % pieces; ++piece) {
        ++sizes[as_index(piece)];
    }
    return sizes;
}

namespace {

/// The largest piece has as little of the quantity as it can.
std::vector<int> equal_parts(const RankChain& chain, const RankQuantity& quantity) {
    const std::vector<std::int64_t>& before = quantity.before.front();
    std::vector<Duration> layers;
    for (int layer = 0; layer < chain.layers; ++layer) {
        layers.emplace_back(before[as_index(layer + 1)] - before[as_index(layer)]);
    }
    return balanced_partition(layers, chain.pieces()).layers_per_stage();
}

}  // namespace

std::vector<int> evened(const RankChain& chain, std::vector<int> sizes) {
    return Descent(chain, std::move(sizes)).settle();
}

std::vector<std::vector<int>> even_splits(const RankChain& chain) {
    std::vector<std::vector<int>> splits{evened(chain, equal_counts(chain.layers, chain.pieces()))};
    for (const RankQuantity& quantity : chain.quantities) {
        splits.push_back(evened(chain, equal_parts(chain, quantity)));
    }
    return splits;
}

std::optional<std::vector<int>> searched_split(const RankChain& chain) {
    std::optional<std::pair<RankScore, std::vector<int>>> best;
    for (std::vector<int>& sizes : even_splits(chain)) {
        const RankScore score = RankAmounts(chain, sizes).score();
        if (score.excess == 0 && (!best || score < best->first)) {
            best.emplace(score, std::move(sizes));
        }
    }
    return best ? std::optional(std::move(best->second)) : std::nullopt;
}

}  // namespace pipetwin
