// SPDX-License-Identifier: Apache-2.0
#include "core/partition/rank_partition.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/partition_search.h"
#include "core/partition/rank_amounts.h"
#include "core/partition/rank_even.h"
#include "core/partition/rank_share.h"
#include "core/partition/rank_walk.h"

namespace pipetwin {

namespace {

constexpr double most_enumerated = 10'000;         ///< splits
constexpr double most_listed = 2'000;              ///< splits, where their bound is asked for
constexpr double most_walked = 15e6;               ///< steps of the recurrence
constexpr int limits_of_bisection = 80;            ///< about
constexpr double most_shared = 5e6;                ///< steps of one limit of `RankShare`
constexpr std::int64_t shared_precision = 10'000;  ///< its bound is this part below, at most
constexpr std::int64_t most_visited = 200'000;     ///< pieces of splits that are listed

/// [layer]: what it has where it has least.
std::vector<std::int64_t> least_of_layers(const RankQuantity& quantity) {
    std::vector<std::int64_t> layers(quantity.before.front().size() - 1, never);
    for (const std::vector<std::int64_t>& before : quantity.before) {
        for (std::size_t layer = 0; layer < layers.size(); ++layer) {
            layers[layer] = std::min(layers[layer], before[layer + 1] - before[layer]);
        }
    }
    return layers;
}

/// Walks through all splits piece by piece and leaves those that cannot keep a limit.
template <class Take>
class SplitWalk {
  public:
    /// Calls `take(sizes, amounts)` for each split, which returns the limit for the next ones.
    /// Visits `most_visits` pieces at the most.
    SplitWalk(const RankChain& chain, std::int64_t limit, std::int64_t most_visits, Take take)
        : chain_(chain),
          amounts_(chain),
          limit_(limit),
          visits_left_(most_visits),
          take_(std::move(take)) {
        const std::vector<std::int64_t> layers = least_of_layers(chain.quantities.front());
        to_come_.resize(layers.size() + 1);
        for (std::size_t layer = layers.size(); layer-- > 0;) {
            to_come_[layer] = to_come_[layer + 1] + layers[layer];
        }
    }

    /// Whether all have been visited.
    bool visit() {
        extend(0);
        return visits_left_ > 0;
    }

  private:
    void extend(int first) {
        const int piece = static_cast<int>(sizes_.size());
        const int left = chain_.pieces() - 1 - piece;
        const int rank = chain_.rank_of_piece[as_index(piece)];
        int added = first;  // the end of the layers that the piece has
        for (int end = left == 0 ? chain_.layers : first + 1;
             end <= chain_.layers - left && visits_left_ > 0;
             ++end) {
            --visits_left_;
            if (added == first) {
                amounts_.add(piece, first, end);
            } else {
                amounts_.lengthen(piece, added, end);
            }
            added = end;
            const bool keeps = amounts_.keeps(rank, limit_);
            if (keeps && amounts_.has_room(limit_, to_come_[as_index(end)])) {
                sizes_.push_back(end - first);
                if (left == 0) {
                    limit_ = take_(sizes_, amounts_);
                } else {
                    extend(end);
                }
                sizes_.pop_back();
            }
            if (!keeps) {
                break;
            }
        }
        if (added > first) {
            amounts_.add(piece, first, added, -1);
        }
    }

    const RankChain& chain_;
    RankAmounts amounts_;
    std::int64_t limit_;
    std::int64_t visits_left_;
    Take take_;
    std::vector<int> sizes_{};
    std::vector<std::int64_t> to_come_{};  ///< [i] the least that the layers from i on have
};

/// The best of all splits.
std::optional<RankSplit> best_of_all(const RankChain& chain) {
    std::optional<RankSplit> best;
    const auto take = [&](const std::vector<int>& sizes, const RankAmounts& amounts) {
        const RankScore score = amounts.score();
        if (!best ||
            std::pair(score.largest, score.squares) < std::pair(best->largest, best->squares)) {
            best = RankSplit{.sizes = sizes,
                             .largest = score.largest,
                             .bound = score.largest,
                             .squares = score.squares};
        }
        return best->largest;
    };
    // No rank of the best split has more than the largest of any other that keeps the limits.
    const RankScore even = RankAmounts(chain, equal_counts(chain.layers, chain.pieces())).score();
    SplitWalk(chain, even.excess == 0 ? even.largest : never, never, take).visit();
    return best;
}

/// The largest rank of any split is no larger.
std::int64_t enough(const RankChain& chain) {
    std::int64_t most = 0;
    for (const RankQuantity& quantity : chain.quantities) {
        if (!quantity.limits.empty()) {
            continue;
        }
        std::int64_t all = 0;  // where the pieces of a rank differ in kind, each layer counts most
        for (std::size_t layer = 0; layer < as_index(chain.layers); ++layer) {
            std::int64_t most_of_layer = 0;
            for (const std::vector<std::int64_t>& before : quantity.before) {
                most_of_layer = std::max(most_of_layer, before[layer + 1] - before[layer]);
            }
            all += most_of_layer;
        }
        all += quantity.delay.empty() ? 0 : quantity.delay.back();
        all += quantity.second_delay.empty() ? 0 : quantity.second_delay.back();
        all += quantity.fixed.empty() ? 0 : std::ranges::max(quantity.fixed);
        most = std::max(most, all);
    }
    return most;
}

/// What each rank has whatever its layers: summed over the ranks, and the least.
std::pair<std::int64_t, std::int64_t> fixed_parts(const RankChain& chain,
                                                  const RankQuantity& quantity) {
    std::vector<std::int64_t> of_rank(as_index(chain.ranks()));
    if (!quantity.fixed.empty()) {
        of_rank = quantity.fixed;
    }
    if (!quantity.delay.empty()) {
        std::vector<bool> has_first(of_rank.size());
        for (int piece = 0; piece < chain.pieces(); ++piece) {
            const std::size_t rank = as_index(chain.rank_of_piece[as_index(piece)]);
            // Before it there is a layer for each piece.
            of_rank[rank] +=
                has_first[rank] ? 0 : quantity.delay[as_index(std::min(piece, chain.layers))];
            has_first[rank] = true;
        }
    }
    return {std::accumulate(of_rank.begin(), of_rank.end(), std::int64_t{0}),
            std::ranges::min(of_rank)};
}

/// An equal share of everything, on the kinds that have least of it; and where some layers have a
/// good deal each, those on the rank that has most of them.
std::int64_t share(const RankChain& chain) {
    std::int64_t least = 0;
    for (const RankQuantity& quantity : chain.quantities) {
        if (!quantity.limits.empty() || quantity.alternative >= 0) {
            continue;
        }
        std::vector<std::int64_t> layers = least_of_layers(quantity);
        const std::int64_t ranks = chain.ranks();
        const std::int64_t all = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
        const auto [sum, smallest] = fixed_parts(chain, quantity);
        least = std::max(least, (all + sum + ranks - 1) / ranks);
        // At least one rank has n / ranks (rounded up) of the n largest layers.
        std::ranges::sort(layers, std::greater{});
        for (std::int64_t each = 1; (each - 1) * ranks < chain.layers; ++each) {
            const auto end = layers.begin() + (each - 1) * ranks + 1;
            least = std::max(least, std::accumulate(end - each, end, smallest));
        }
    }
    return least;
}

/// The smallest limit from `low` to `high` that is kept; it is kept at `high`.
template <class Keeps>
std::int64_t least_kept(std::int64_t low, std::int64_t high, const Keeps& keeps) {
    if (low < high && keeps(low)) {  // often a bound is reached
        return low;
    }
    return low + smallest_limit(high - low, [&](std::int64_t more) { return keeps(low + more); });
}

/// About how many steps the recurrence takes for one limit and one middle of a loop.
double steps_of_walk(const RankChain& chain) {
    const double layers = chain.layers;
    return chain.ranks() * layers * (2 * layers / chain.pieces() + 2);
}

/// Whether the recurrence is there for the placement, and short enough for every middle.
bool can_walk(const RankChain& chain, RankPlacement placement) {
    const int middles = placement == RankPlacement::Loop ? chain.layers + 1 : 1;
    return placement != RankPlacement::Other &&
           (middles + limits_of_bisection) * steps_of_walk(chain) <= most_walked;
}

/// Middles of a loop, those near the half of all layers first.
std::vector<int> middles(const RankChain& chain, RankPlacement placement) {
    if (placement != RankPlacement::Loop) {
        return {0};
    }
    std::vector<int> all(as_index(chain.layers + 1));
    std::iota(all.begin(), all.end(), 0);
    std::ranges::stable_sort(
        all, {}, [&](int middle) { return std::abs(2 * middle - chain.layers); });
    return all;
}

/// The least limit that the recurrence keeps, with the sizes that do; none where no limit helps.
std::optional<std::pair<std::int64_t, std::vector<int>>> least_by_walk(RankWalk& walk,
                                                                       const std::vector<int>& from,
                                                                       std::int64_t low,
                                                                       std::int64_t high,
                                                                       RankWalk::Empty empty) {
    std::optional<std::pair<std::int64_t, std::vector<int>>> best;
    for (const int middle : from) {
        if (best && best->first == low) {
            break;
        }
        const auto keeps = [&](std::int64_t limit) { return walk.keeps(limit, empty, middle); };
        const std::int64_t most = best ? best->first - 1 : high;
        if (keeps(most)) {
            const std::int64_t least = least_kept(low, most, keeps);
            keeps(least);
            best.emplace(least, walk.sizes());
        }
    }
    return best;
}

/// Whether there are so few splits that each can be looked at.
bool can_list(const RankChain& chain) {
    return chain.pieces() <= chain.layers &&
           split_count(chain.layers, chain.pieces()) <= most_listed;
}

/// Whether any split keeps the limit.
bool any_keeps(const RankChain& chain, std::int64_t limit) {
    bool found = false;
    const auto take = [&found](const std::vector<int>&, const RankAmounts&) {
        found = true;
        return std::int64_t{-1};  // which nothing keeps
    };
    SplitWalk(chain, limit, never, take).visit();
    return found;
}

/// What no split goes below: `low`, or more. None where no split goes up to `high`. `keeps`:
/// whether a limit may be kept; if it may, so may every larger one.
template <class Keeps>
std::optional<std::int64_t> bound_between(std::int64_t low, std::int64_t high, const Keeps& keeps) {
    if (keeps(low)) {
        return low;
    }
    if (!keeps(high)) {
        return std::nullopt;
    }
    while (high - low > high / shared_precision + 1) {
        const std::int64_t half = low + (high - low) / 2;
        (keeps(half) ? high : low) = half;
    }
    return low;
}

/// `bound_between` where the ranks have any number of pieces: by the splits if they are few, else
/// by `RankShare`.
std::optional<std::int64_t> bound_of_any(const RankChain& chain,
                                         std::int64_t low,
                                         std::int64_t high) {
    if (can_list(chain)) {
        return bound_between(
            low, high, [&chain](std::int64_t limit) { return any_keeps(chain, limit); });
    }
    RankShare share(chain);
    return share.steps() > most_shared ? std::optional(low)
                                       : bound_between(low, high, [&share](std::int64_t limit) {
                                             return share.keeps(limit);
                                         });
}

RankSplit split_of(const RankChain& chain, std::vector<int> sizes, std::int64_t bound) {
    const RankScore score = RankAmounts(chain, sizes).score();
    return {.sizes = std::move(sizes),
            .largest = score.largest,
            .bound = std::min(bound, score.largest),
            .squares = score.squares};
}

}  // namespace

std::optional<std::int64_t> rank_bound(const RankChain& chain) {
    return rank_bound_between(chain, 0, never);
}

std::optional<std::int64_t> rank_bound_between(const RankChain& chain,
                                               std::int64_t low,
                                               std::int64_t high) {
    low = std::max(low, share(chain));
    if (low >= high) {
        return high;
    }
    // The largest limit that is asked for; whether more says nothing more.
    const std::int64_t all = std::max(low, enough(chain));
    const std::int64_t most = std::min(all, high - 1);
    const std::optional<std::int64_t> beyond = most < all ? std::optional(high) : std::nullopt;
    const RankPlacement placement = rank_placement(chain);
    if (!can_walk(chain, placement)) {
        const auto bound = bound_of_any(chain, low, most);
        return bound ? bound : beyond;
    }
    RankWalk walk(chain, placement);
    const auto least =
        least_by_walk(walk, middles(chain, placement), low, most, RankWalk::Empty::Second);
    return least ? std::optional(least->first) : beyond;
}

bool rank_chain_keeps(const RankChain& chain, std::int64_t limit) {
    if (share(chain) > limit) {
        return false;
    }
    const RankPlacement placement = rank_placement(chain);
    if (!can_walk(chain, placement)) {
        if (can_list(chain)) {
            return any_keeps(chain, limit);
        }
        RankShare share(chain);
        return share.steps() > most_shared || share.keeps(limit);
    }
    RankWalk walk(chain, placement);
    return std::ranges::any_of(middles(chain, placement), [&](int middle) {
        return walk.keeps(limit, RankWalk::Empty::Second, middle);
    });
}

std::optional<std::vector<std::vector<int>>> rank_splits_within(const RankChain& chain,
                                                                std::int64_t limit,
                                                                std::int64_t most) {
    check_stage_count(chain.pieces(), chain.layers, chain.pieces() / chain.ranks());
    std::vector<std::vector<int>> splits;
    bool too_many = false;
    const auto take = [&](const std::vector<int>& sizes, const RankAmounts&) {
        too_many = too_many || std::ssize(splits) >= most;
        if (too_many) {
            return std::int64_t{-1};  // which nothing keeps
        }
        splits.push_back(sizes);
        return limit;
    };
    const bool all = SplitWalk(chain, limit, most_visited, take).visit();
    return all && !too_many ? std::optional(std::move(splits)) : std::nullopt;
}

std::optional<RankSplit> rank_partition(const RankChain& chain) {
    check_stage_count(chain.pieces(), chain.layers, chain.pieces() / chain.ranks());
    if (split_count(chain.layers, chain.pieces()) <= most_enumerated) {
        return best_of_all(chain);
    }
    const std::optional<std::int64_t> bound = rank_bound(chain);
    if (!bound) {
        return std::nullopt;
    }
    const RankPlacement placement = rank_placement(chain);
    std::optional<std::vector<int>> sizes;
    if (can_walk(chain, placement)) {
        RankWalk walk(chain, placement);
        const auto least = least_by_walk(walk,
                                         middles(chain, placement),
                                         *bound,
                                         std::max(*bound, enough(chain)),
                                         RankWalk::Empty::None);
        if (least) {
            sizes = evened(chain, least->second);
        }
    }
    // If two splits are equally good, the one with more even pieces is taken.
    if (const auto searched = searched_split(chain);
        searched && (!sizes || !(RankAmounts(chain, *sizes).score().largest <
                                 RankAmounts(chain, *searched).score().largest))) {
        sizes = *searched;
    }
    return sizes ? std::optional(split_of(chain, *std::move(sizes), *bound)) : std::nullopt;
}

}  // namespace pipetwin
