// SPDX-License-Identifier: Apache-2.0
#include "sim/search/partition_descent.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "core/base/as_index.h"
#include "core/scenario/cluster.h"
#include "core/scenario/cost_table.h"
#include "core/timeline/footprint.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

constexpr std::ptrdiff_t most_descents = 8;  ///< from different starts
constexpr int most_perturbations = 40;       ///< in vain
constexpr std::size_t tried_at_once = 8;
constexpr std::size_t repairs_at_once = 4;
constexpr std::int64_t most_in_vain = 32;  ///< tries of a descent without a better one
constexpr std::size_t most_paths = 64;     ///< of steps

using Sizes = std::vector<int>;

/// Sums of the squares of layers, those of ranks before those of pieces.
std::int64_t unevenness(const Plan& plan) {
    std::vector<std::int64_t> of_rank(as_index(plan.rank_count()));
    std::int64_t of_pieces = 0;
    for (int stage = 0; stage < plan->schedule.stage_count(); ++stage) {
        const std::int64_t layers =
            plan->partition->layers_in(model_stage_of(plan->schedule, stage));
        of_rank[as_index(plan->schedule.rank_of_stage[as_index(stage)])] += layers;
        of_pieces += layers * layers;
    }
    std::int64_t of_ranks = 0;
    for (const std::int64_t layers : of_rank) {
        of_ranks += layers * layers;
    }
    constexpr std::int64_t far_apart = 1'000'000;
    return of_ranks * far_apart + of_pieces;
}

std::int64_t excess_of(const Plan& plan, const std::vector<Bytes>& peaks) {
    std::int64_t excess = 0;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        if (const std::optional<Bytes> limit = plan.memory_limit(rank)) {
            excess += std::max((peaks[as_index(rank)] - *limit).count, std::int64_t{0});
        }
    }
    return excess;
}

/// The first layer of each piece, and the number of layers at the end.
std::vector<int> first_layers(const Sizes& sizes) {
    std::vector<int> firsts(sizes.size() + 1);
    std::partial_sum(sizes.begin(), sizes.end(), firsts.begin() + 1);
    return firsts;
}

/// The scenario with a partition: the balanced one would have to be found.
SettledScenario with_partition_of(const Plan& plan, SettledScenario scenario) {
    scenario.pipeline.partition = plan->partition.value().layers_per_stage();
    return scenario;
}

std::vector<int> kind_of_piece(const SettledScenario& scenario,
                               const Profile& profile,
                               const Plan& plan) {
    const DeviceKinds kinds = device_kinds(Cluster(scenario, profile, plan.rank_count()));
    std::vector<int> result(as_index(plan->partition->stage_count()));
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        result[as_index(model_stage_of(plan->schedule, stage))] =
            static_cast<int>(kinds.of(plan->schedule.rank_of_stage[as_index(stage)]));
    }
    return result;
}

/// About what partitions hold that are much alike: what pieces keep differs, the rest does not.
class MemoryGuess {
  public:
    /// `known` was simulated. Keeps a reference to `memory`.
    MemoryGuess(const HeldMemory& memory, const TriedPartition& known) : memory_(memory) {
        room_ = memory.limits;
        hold(known.sizes);
        for (std::size_t rank = 0; rank < room_.size(); ++rank) {
            room_[rank] -= known.peaks[rank].count - held_[rank];
        }
    }

    /// Bytes above the limits of all ranks together.
    std::int64_t excess(const Sizes& sizes) {
        hold(sizes);
        std::int64_t sum = 0;
        for (std::size_t rank = 0; rank < room_.size(); ++rank) {
            sum += std::max(held_[rank] - room_[rank], std::int64_t{0});
        }
        return sum;
    }

  private:
    void hold(const Sizes& sizes) {
        held_.assign(room_.size(), 0);
        int layer = 0;
        for (int piece = 0; piece < memory_.chain.pieces(); ++piece) {
            const std::vector<std::int64_t>& before = memory_.held.sums_of(piece);
            const int end = layer + sizes[as_index(piece)];
            held_[as_index(memory_.chain.rank_of_piece[as_index(piece)])] +=
                before[as_index(end)] - before[as_index(layer)];
            layer = end;
        }
    }

    const HeldMemory& memory_;
    std::vector<std::int64_t> room_;    ///< [rank] for what pieces hold
    std::vector<std::int64_t> held_{};  ///< [rank] of the partition at hand
};

/// The partition after a move; none where a piece has too few layers for it.
std::optional<Sizes> after(Sizes sizes, const Move& move) {
    if (sizes[as_index(move.from)] <= move.layers) {
        return std::nullopt;
    }
    sizes[as_index(move.from)] -= move.layers;
    sizes[as_index(move.to)] += move.layers;
    return sizes;
}

/// Leaves the best by some order.
template <class Neighbour, class Order>
std::vector<Sizes> first_of(std::vector<Neighbour> neighbours, std::size_t count, Order order) {
    std::ranges::stable_sort(neighbours, {}, order);
    neighbours.resize(std::min(neighbours.size(), count));
    std::vector<Sizes> result;
    for (Neighbour& neighbour : neighbours) {
        result.push_back(std::move(neighbour.sizes));
    }
    return result;
}

}  // namespace

std::vector<Move> all_moves(int pieces, int most_at_once) {
    std::vector<Move> moves;
    for (int distance = 1; distance < pieces; ++distance) {
        for (int layers = 1; layers <= most_at_once; ++layers) {
            for (int piece = 0; piece + distance < pieces; ++piece) {
                moves.push_back({piece, piece + distance, layers});
                moves.push_back({piece + distance, piece, layers});
            }
        }
    }
    return moves;
}

PartitionTrials::PartitionTrials(const SettledScenario& scenario,
                                 const Model& model,
                                 const Profile& profile,
                                 const Plan& first,
                                 TriedPartitions* known)
    : scenario_(with_partition_of(first, scenario)),
      planner_(scenario_, model, profile),
      first_(first),
      places_(first->schedule),
      times_(piece_times(planner_.layer_costs(), kind_of_piece(scenario, profile, first))),
      known_(known) {}

TriedPartition PartitionTrials::simulated(Sizes sizes, std::int64_t most_excess) const {
    TriedPartition result{.sizes = std::move(sizes)};
    Plan unsettled = planner_.plan_with_rows_of(first_, result.sizes);
    if (!unsettled->host_link) {
        result.peaks = peak_totals(unsettled);
        result.excess_without_room = excess_of(unsettled, result.peaks);
        if (result.excess_without_room > most_excess) {
            return result;
        }
    }
    auto [plan, timeline, room] =
        settled_timeline(std::move(unsettled), std::move(recycled_.local()));
    if (plan->host_link) {
        result.peaks = peak_totals(plan, timeline);
    } else {
        std::ranges::transform(result.peaks, room, result.peaks.begin(), std::plus{});
    }
    result.score = {.excess = excess_of(plan, result.peaks),
                    .step = step_time(timeline),
                    .peak = std::ranges::max(result.peaks),
                    .unevenness = unevenness(plan)};
    const bool has_same_rows = plan->schedule.ranks == first_->schedule.ranks;
    const Causes causes = has_same_rows ? Causes(plan, timeline, places_) : Causes(plan, timeline);
    result.path = step_path(causes, result.score.step, times_, first_layers(result.sizes));
    recycled_.local() = std::move(timeline);
    return result;
}

std::vector<TriedPartition> PartitionTrials::tried(const std::vector<Sizes>& splits,
                                                   std::int64_t most_excess) const {
    std::vector<TriedPartition> result(splits.size());
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < splits.size(); ++i) {
        const auto known =
            known_ == nullptr ? TriedPartitions::iterator() : known_->find(splits[i]);
        const bool is_known =
            known_ != nullptr && known != known_->end() &&
            (known->second.path || known->second.excess_without_room > most_excess);
        if (is_known) {
            result[i] = known->second;
        } else {
            missing.push_back(i);
        }
    }
    tbb::parallel_for(std::size_t{0}, missing.size(), [&](std::size_t i) {
        result[missing[i]] = simulated(splits[missing[i]], most_excess);
    });
    for (const std::size_t i : missing) {
        if (known_ != nullptr) {
            known_->insert_or_assign(splits[i], result[i]);
        }
    }
    for (TriedPartition& one : result) {
        if (one.excess_without_room > most_excess) {
            one.path.reset();  // as if it had not been known
        }
    }
    return result;
}

/// Tries these; those of one call at the same time.
void PartitionDescents::try_all(std::vector<Sizes> splits, std::int64_t most_excess) {
    std::erase_if(splits, [this](const Sizes& sizes) {
        return !tried_.try_emplace(sizes, TriedPartition{}).second;
    });
    splits.resize(std::min(splits.size(), static_cast<std::size_t>(left_)));
    left_ -= std::ssize(splits);
    for (TriedPartition& one : trials_.tried(splits, most_excess)) {
        if (!one.path) {
            continue;
        }
        paths_.insert(paths_.begin(), *one.path);
        if (paths_.size() > most_paths) {
            paths_.pop_back();
        }
        TriedPartition& kept = tried_.at(one.sizes);
        kept = std::move(one);
        best_.insert(std::ranges::upper_bound(best_, kept.score, {}, &TriedPartition::score),
                     &kept);
    }
}

void PartitionDescents::search(const std::vector<Sizes>& starts) {
    try_all(starts, std::numeric_limits<std::int64_t>::max());
    for (const TriedPartition* const start : begins()) {
        descend(start->score.excess > 0 ? repaired(start) : start);
    }
    for (int in_vain = 0; in_vain < most_perturbations && left_ > 0 && !best_.empty(); ++in_vain) {
        const TriedPartition& from = *best_.front();
        const Sizes sizes = perturbed(from.sizes);
        if (tried_.contains(sizes)) {
            continue;
        }
        try_all({sizes}, from.score.excess);
        if (const TriedPartition* const found = simulated(sizes)) {
            descend(found);
        }
        in_vain = best_.front()->score < from.score ? -1 : in_vain;
    }
}

/// The fastest start that does not fit, and those that are best.
std::vector<const TriedPartition*> PartitionDescents::begins() const {
    std::vector<const TriedPartition*> result;
    const auto fastest = std::ranges::min_element(
        best_, {}, [](const TriedPartition* one) { return one->score.step; });
    if (fastest != best_.end() && (*fastest)->score.excess > 0) {
        result.push_back(*fastest);
    }
    for (const TriedPartition* const one : best_) {
        if (std::ssize(result) < most_descents && (result.empty() || one != result.front())) {
            result.push_back(one);
        }
    }
    return result;
}

/// The partitions that single moves lead to, those in which no known chain is longer than `most`
/// nanoseconds.
std::vector<PartitionDescents::Neighbour> PartitionDescents::neighbours(const TriedPartition& from,
                                                                        double most) const {
    const PathLengths lengths(paths_, trials_.times(), first_layers(from.sizes));
    std::optional<MemoryGuess> guess;
    if (memory_ != nullptr) {
        guess.emplace(*memory_, from);
    }
    std::vector<Neighbour> result;
    Sizes sizes = from.sizes;
    for (const Move& move : moves_) {
        if (sizes[as_index(move.from)] <= move.layers) {
            continue;
        }
        const double step = lengths.longest_after(move, most);
        if (step > most) {
            continue;
        }
        sizes[as_index(move.from)] -= move.layers;
        sizes[as_index(move.to)] += move.layers;
        if (!tried_.contains(sizes)) {
            result.push_back(
                {.excess = guess ? guess->excess(sizes) : 0, .step = step, .sizes = sizes});
        }
        sizes[as_index(move.from)] += move.layers;
        sizes[as_index(move.to)] -= move.layers;
    }
    return result;
}

/// Null: it was not simulated.
const TriedPartition* PartitionDescents::simulated(const Sizes& sizes) const {
    const auto found = tried_.find(sizes);
    return found != tried_.end() && found->second.path ? &found->second : nullptr;
}

/// The best of these that was simulated, by some order; null: none was.
template <class Order>
const TriedPartition* PartitionDescents::best_of(const std::vector<Sizes>& splits,
                                                 Order order) const {
    const TriedPartition* best = nullptr;
    for (const Sizes& sizes : splits) {
        const TriedPartition* const found = simulated(sizes);
        if (found != nullptr && (best == nullptr || order(*found) < order(*best))) {
            best = found;
        }
    }
    return best;
}

/// Makes one fit that does not, move by move, each time with the shortest step of those that help
/// most.
const TriedPartition* PartitionDescents::repaired(const TriedPartition* from) {
    while (left_ > 0 && from->score.excess > 0) {
        std::vector<Neighbour> all = neighbours(*from, std::numeric_limits<double>::max());
        std::int64_t least = from->score.excess;
        for (const Neighbour& neighbour : all) {
            least = std::min(least, neighbour.excess);
        }
        const std::int64_t most = least + (from->score.excess - least) / 2;
        std::erase_if(all, [&](const Neighbour& one) {
            return one.excess > most || one.excess >= from->score.excess;
        });
        const std::vector<Sizes> next = first_of(std::move(all), repairs_at_once, &Neighbour::step);
        try_all(next, from->score.excess);
        const TriedPartition* const best =
            best_of(next, [](const TriedPartition& one) { return one.score.step; });
        if (best == nullptr || best->score.excess >= from->score.excess) {
            break;
        }
        from = best;
    }
    return from;
}

/// Takes the best of the next moves, until none is better.
void PartitionDescents::descend(const TriedPartition* from) {
    std::int64_t in_vain = 0;
    while (left_ > 0 && in_vain < most_in_vain) {
        const std::vector<Sizes> next = first_of(
            neighbours(*from,
                       from->score.excess > 0 ? std::numeric_limits<double>::max()
                                              : static_cast<double>(from->score.step.count())),
            tried_at_once,
            [](const Neighbour& one) { return std::pair(one.excess, one.step); });
        if (next.empty()) {
            return;
        }
        try_all(next, from->score.excess);
        in_vain += std::ssize(next);
        const TriedPartition* const best =
            best_of(next, [](const TriedPartition& one) { return one.score; });
        if (best != nullptr && best->score < from->score) {
            from = best;
            in_vain = 0;
        }
    }
}

Sizes PartitionDescents::perturbed(Sizes sizes) {
    constexpr int at_once = 4;
    for (int made = 0, tried = 0; made < at_once && tried < 100; ++tried) {
        // Knuth's linear congruential generator (MMIX).
        state_ = state_ * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
        if (auto moved = after(sizes, moves_[(state_ >> 33U) % moves_.size()])) {
            sizes = *std::move(moved);
            ++made;
        }
    }
    return sizes;
}

}  // namespace pipetwin::sim
