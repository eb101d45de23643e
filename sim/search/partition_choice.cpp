// SPDX-License-Identifier: Apache-2.0
#include "sim/search/partition_choice.h"

#include <oneapi/tbb/enumerable_thread_specific.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/cost_factors.h"
#include "core/partition/feasible_splits.h"
#include "core/partition/model_blocks.h"
#include "core/partition/partition_search.h"
#include "core/partition/rank_even.h"
#include "core/partition/rank_partition.h"
#include "core/scenario/cluster.h"
#include "core/scenario/cost_table.h"
#include "core/scenario/planner.h"
#include "core/timeline/footprint.h"
#include "core/timeline/metrics.h"
#include "sim/explain/explanation.h"
#include "sim/search/canonical_costs.h"
#include "sim/search/frontier.h"
#include "sim/search/layer_sums.h"
#include "sim/search/row_windows.h"
#include "sim/search/step_paths.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

constexpr std::int64_t most_tried_actions = 4'000'000;
constexpr std::int64_t most_tries = 5'000;
constexpr std::int64_t most_tries_of_orders = 30;  ///< where every one searches for its order
constexpr std::int64_t least_tries = 8;            ///< for a search
constexpr std::ptrdiff_t most_descents = 8;        ///< from different starts
constexpr int most_perturbations = 40;             ///< in vain
constexpr std::ptrdiff_t tried_at_once = 8;
constexpr std::ptrdiff_t repairs_at_once = 4;
constexpr std::int64_t most_in_vain = 32;  ///< tries of a descent without a better one
constexpr std::size_t most_paths = 64;     ///< of steps
constexpr std::size_t most_finalists = 6;  ///< at the costs that the profile has, of each search
/// Shares of the tries: of the search at the first canonical costs, and of each at the next ones.
constexpr double share_of_first = 0.5;
constexpr double share_of_next = 0.15;
/// Micro-batches for each rank in a search, where the scenario has twice as many.
constexpr int micro_batches_of_search = 4;
/// Measured costs differ by this share of a step from one measurement to the next.
constexpr double noise_of_measured = 0.01;

/// How many plans of so many actions are simulated.
std::int64_t tries(std::int64_t all_actions, std::int64_t each, bool follows_costs) {
    return std::min(follows_costs ? most_tries_of_orders : most_tries,
                    all_actions / std::max<std::int64_t>(1, each));
}

using Sizes = std::vector<int>;

/// How good a partition is; the least is the best.
struct Score {
    std::int64_t excess = 0;  ///< bytes above the limits of all ranks together
    Duration step{};
    Bytes peak{};
    std::int64_t unevenness = 0;

    auto operator<=>(const Score&) const = default;
};

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

/// A partition that was tried at some costs.
struct Tried {
    Sizes sizes{};
    Score score{};
    std::vector<Bytes> peaks{};  ///< [rank]
    std::optional<StepPath> path{};
};

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
    std::vector<int> firsts{0};
    for (const int size : sizes) {
        firsts.push_back(firsts.back() + size);
    }
    return firsts;
}

/// Whether the names of the layers tell blocks, and each is one layer.
bool has_whole_blocks(const Model& model) {
    std::vector<std::string> names;
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        names.push_back(model.layer(layer).spec.name);
    }
    const std::optional<ModelBlocks> blocks = model_blocks(names);
    return blocks && std::ranges::count(blocks->layers, 1) == std::ssize(blocks->layers);
}

/// All moves of up to so many layers, as layers may come in pairs; those between neighbours first.
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

/// The partitions of one scenario at some costs of its layers.
class PartitionTrials {
  public:
    /// `first` has the rows, at whatever costs. Keeps references.
    PartitionTrials(const SettledScenario& scenario,
                    const Model& model,
                    const Profile& profile,
                    const Plan& first)
        : planner_(scenario, model, profile),
          first_(first),
          times_(piece_times(planner_.layer_costs(), kind_of_piece(scenario, profile))) {}

    const PieceTimes& times() const { return times_; }

    /// Makes and simulates a plan, unless its ranks hold more than they may by more than
    /// `most_excess`.
    Tried tried(Sizes sizes, std::int64_t most_excess) const {
        Tried result{.sizes = std::move(sizes)};
        Plan unsettled = planner_.plan_with_rows_of(first_, result.sizes);
        if (!unsettled->host_link) {
            result.peaks = peak_totals(unsettled);
            result.score.excess = excess_of(unsettled, result.peaks);
            if (result.score.excess > most_excess) {
                result.score.step = Duration::max();
                return result;
            }
        }
        const std::vector<Bytes> resident = resident_totals(unsettled);
        auto [plan, timeline] =
            settled_timeline(std::move(unsettled), std::move(recycled_.local()));
        if (plan->host_link) {
            result.peaks = peak_totals(plan, timeline);
        } else {
            const std::vector<Bytes> with_room = resident_totals(plan);
            for (std::size_t rank = 0; rank < resident.size(); ++rank) {
                result.peaks[rank] += with_room[rank] - resident[rank];
            }
        }
        result.score = {.excess = excess_of(plan, result.peaks),
                        .step = step_time(timeline),
                        .peak = std::ranges::max(result.peaks),
                        .unevenness = unevenness(plan)};
        result.path = step_path(plan, timeline, times_, first_layers(result.sizes));
        recycled_.local() = std::move(timeline);
        return result;
    }

    /// In the order of `splits`; several at the same time.
    std::vector<Tried> tried(const std::vector<Sizes>& splits, std::int64_t most_excess) const {
        std::vector<Tried> result(splits.size());
        tbb::parallel_for(std::size_t{0}, splits.size(), [&](std::size_t i) {
            result[i] = tried(splits[i], most_excess);
        });
        return result;
    }

  private:
    std::vector<int> kind_of_piece(const SettledScenario& scenario, const Profile& profile) const {
        const DeviceKinds kinds = device_kinds(Cluster(scenario, profile, first_.rank_count()));
        std::vector<int> result(as_index(first_->partition->stage_count()));
        for (int stage = 0; stage < first_.stage_count(); ++stage) {
            result[as_index(model_stage_of(first_->schedule, stage))] =
                static_cast<int>(kinds.of(first_->schedule.rank_of_stage[as_index(stage)]));
        }
        return result;
    }

    const Planner planner_;
    const Plan& first_;
    PieceTimes times_;
    mutable tbb::enumerable_thread_specific<Timeline> recycled_{};
};

/// What the ranks hold: weights, and what their pieces keep of the micro-batches under way.
struct HeldMemory {
    RankChain chain;  ///< of work
    RankQuantity held;
    std::vector<std::int64_t> limits;  ///< [rank] without the context
};

/// About what partitions hold that are much alike: what pieces keep differs, the rest does not.
class MemoryGuess {
  public:
    /// `known` was simulated. Keeps a reference to `memory`.
    MemoryGuess(const HeldMemory& memory, const Tried& known) : memory_(memory) {
        room_ = memory.limits;
        const std::vector<std::int64_t> held = held_with(first_layers(known.sizes));
        for (std::size_t rank = 0; rank < room_.size(); ++rank) {
            room_[rank] -= known.peaks[rank].count - held[rank];
        }
    }

    /// Bytes above the limits of all ranks together.
    std::int64_t excess(const std::vector<int>& first_layers) const {
        const std::vector<std::int64_t> held = held_with(first_layers);
        std::int64_t sum = 0;
        for (std::size_t rank = 0; rank < room_.size(); ++rank) {
            sum += std::max(held[rank] - room_[rank], std::int64_t{0});
        }
        return sum;
    }

  private:
    std::vector<std::int64_t> held_with(const std::vector<int>& first_layers) const {
        std::vector<std::int64_t> held(room_.size());
        for (int piece = 0; piece < memory_.chain.pieces(); ++piece) {
            const std::vector<std::int64_t>& before = memory_.held.sums_of(piece);
            held[as_index(memory_.chain.rank_of_piece[as_index(piece)])] +=
                before[as_index(first_layers[as_index(piece) + 1])] -
                before[as_index(first_layers[as_index(piece)])];
        }
        return held;
    }

    const HeldMemory& memory_;
    std::vector<std::int64_t> room_;  ///< [rank] for what pieces hold
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

/// The search for the best partition at one set of costs. Layers move between pieces: the moves
/// that relieve the longest chains of all steps that were simulated come first, and those that
/// relieve none are left out.
class PartitionSearch {
  public:
    /// Keeps references. `memory`: null where memory is not limited. `tries`: partitions that are
    /// simulated at most.
    PartitionSearch(const PartitionTrials& trials,
                    const std::vector<Move>& moves,
                    const HeldMemory* memory,
                    std::int64_t tries)
        : trials_(trials), moves_(moves), memory_(memory), left_(tries) {}

    std::int64_t left() const { return left_; }
    /// All that fit best, the best first.
    const std::vector<Tried>& best_ones() const { return best_; }

    /// Tries these; those of one call at the same time.
    void try_all(std::vector<Sizes> splits, std::int64_t most_excess) {
        std::erase_if(splits, [this](const Sizes& sizes) { return !known_.insert(sizes).second; });
        splits.resize(std::min(splits.size(), static_cast<std::size_t>(left_)));
        left_ -= std::ssize(splits);
        for (Tried& one : trials_.tried(splits, most_excess)) {
            if (one.path) {
                paths_.insert(paths_.begin(), *one.path);
                if (paths_.size() > most_paths) {
                    paths_.pop_back();
                }
                best_.insert(std::ranges::upper_bound(best_, one.score, {}, &Tried::score),
                             std::move(one));
            }
        }
    }

    /// Begins with the starts, goes on from the best of them, and then, after some moves at once,
    /// from the best that came of it.
    void search(const std::vector<Sizes>& starts) {
        try_all(starts, std::numeric_limits<std::int64_t>::max());
        for (const Tried& start : begins()) {
            descend(start.score.excess > 0 ? repaired(start) : start);
        }
        for (int in_vain = 0; in_vain < most_perturbations && left_ > 0 && !best_.empty();
             ++in_vain) {
            const Tried from = best_.front();
            const Sizes sizes = perturbed(from.sizes);
            if (known_.contains(sizes)) {
                continue;
            }
            try_all({sizes}, from.score.excess);
            const auto found = std::ranges::find(best_, sizes, &Tried::sizes);
            if (found != best_.end()) {
                descend(Tried(*found));
            }
            in_vain = best_.front().score < from.score ? -1 : in_vain;
        }
    }

  private:
    /// The fastest start that does not fit, and those that are best.
    std::vector<Tried> begins() const {
        std::vector<Tried> result;
        const auto fastest =
            std::ranges::min_element(best_, {}, [](const Tried& one) { return one.score.step; });
        if (fastest != best_.end() && fastest->score.excess > 0) {
            result.push_back(*fastest);
        }
        for (const Tried& one : best_) {
            if (std::ssize(result) < most_descents &&
                (result.empty() || one.sizes != result.front().sizes)) {
                result.push_back(one);
            }
        }
        return result;
    }

    /// A partition that has not been tried, and about how it would do.
    struct Neighbour {
        std::int64_t excess = 0;
        double step = 0;  ///< nanoseconds
        Sizes sizes{};
    };

    /// The partitions that single moves lead to, those in which no known chain is longer than
    /// `most` nanoseconds.
    std::vector<Neighbour> neighbours(const Tried& from, double most) const {
        const PathLengths lengths(paths_, trials_.times(), first_layers(from.sizes));
        std::optional<MemoryGuess> guess;
        if (memory_ != nullptr) {
            guess.emplace(*memory_, from);
        }
        std::vector<Neighbour> result;
        for (const Move& move : moves_) {
            if (from.sizes[as_index(move.from)] <= move.layers) {
                continue;
            }
            Neighbour neighbour{.step = lengths.longest_after(move, most)};
            if (neighbour.step > most) {
                continue;
            }
            neighbour.sizes = *after(from.sizes, move);
            if (!known_.contains(neighbour.sizes)) {
                neighbour.excess = guess ? guess->excess(first_layers(neighbour.sizes)) : 0;
                result.push_back(std::move(neighbour));
            }
        }
        return result;
    }

    /// The best of the neighbours by some order, without the rest.
    template <class Order>
    static std::vector<Sizes> first_of(std::vector<Neighbour> neighbours,
                                       std::ptrdiff_t count,
                                       Order order) {
        std::ranges::stable_sort(neighbours, {}, order);
        std::vector<Sizes> result;
        for (Neighbour& neighbour : neighbours) {
            if (std::ssize(result) == count) {
                break;
            }
            result.push_back(std::move(neighbour.sizes));
        }
        return result;
    }

    /// The best of these that was tried, by some order; null: none was.
    template <class Order>
    const Tried* best_of(const std::vector<Sizes>& splits, Order order) const {
        const Tried* best = nullptr;
        for (const Sizes& sizes : splits) {
            const auto found = std::ranges::find(best_, sizes, &Tried::sizes);
            if (found != best_.end() && (best == nullptr || order(*found) < order(*best))) {
                best = &*found;
            }
        }
        return best;
    }

    /// Makes one fit that does not, move by move, each time with the shortest step of those that
    /// help most.
    Tried repaired(Tried from) {
        while (left_ > 0 && from.score.excess > 0) {
            std::vector<Neighbour> all = neighbours(from, std::numeric_limits<double>::max());
            std::int64_t least = from.score.excess;
            for (const Neighbour& neighbour : all) {
                least = std::min(least, neighbour.excess);
            }
            const std::int64_t most = least + (from.score.excess - least) / 2;
            std::erase_if(all, [&](const Neighbour& one) {
                return one.excess > most || one.excess >= from.score.excess;
            });
            const std::vector<Sizes> next =
                first_of(std::move(all), repairs_at_once, &Neighbour::step);
            try_all(next, from.score.excess);
            const Tried* const best =
                best_of(next, [](const Tried& one) { return one.score.step; });
            if (best == nullptr || best->score.excess >= from.score.excess) {
                break;
            }
            from = Tried(*best);
        }
        return from;
    }

    /// Takes the best of the next moves, until none is better.
    void descend(Tried from) {
        std::int64_t in_vain = 0;
        while (left_ > 0 && in_vain < most_in_vain) {
            const std::vector<Sizes> next = first_of(
                neighbours(from,
                           from.score.excess > 0 ? std::numeric_limits<double>::max()
                                                 : static_cast<double>(from.score.step.count())),
                tried_at_once,
                [](const Neighbour& one) { return std::pair(one.excess, one.step); });
            if (next.empty()) {
                return;
            }
            try_all(next, from.score.excess);
            in_vain += std::ssize(next);
            const Tried* const best = best_of(next, [](const Tried& one) { return one.score; });
            if (best != nullptr && best->score < from.score) {
                from = Tried(*best);
                in_vain = 0;
            }
        }
    }

    Sizes perturbed(Sizes sizes) {
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

    const PartitionTrials& trials_;
    const std::vector<Move>& moves_;
    const HeldMemory* memory_;
    std::int64_t left_;  ///< tries
    std::set<Sizes> known_{};
    std::vector<Tried> best_{};
    std::vector<StepPath> paths_{};  ///< the newest first
    std::uint64_t state_ = 1;        ///< of the moves at random
};

class Choice {
  public:
    /// `first` has the rows; its partition is a candidate where `begins_with_it`. So many actions
    /// are simulated.
    Choice(const SettledScenario& scenario,
           const Model& model,
           const Profile& profile,
           const Plan& first,
           bool begins_with_it,
           std::int64_t actions)
        : scenario_(scenario),
          model_(model),
          profile_(profile),
          first_(first),
          begins_with_it_(begins_with_it),
          begun_with_(first->partition->layers_per_stage()),
          each_(static_cast<std::int64_t>(action_count(first))),
          left_(tries(actions, each_, rows_follow_costs(scenario))) {}

    /// The partitions of which the best is chosen, by the number of searches that found them: the
    /// same ones for all factors of the layers' times with so many.
    using Candidates = std::map<std::size_t, std::vector<Sizes>>;

    /// What is not in `known` is searched for, and added.
    const std::vector<Sizes>& candidates(Candidates& known) {
        const bool is_measured = profile_.source == CostSource::Measured;
        if (!is_measured &&
            split_count(model_.layer_count(), pieces()) <= static_cast<double>(left_)) {
            std::vector<Sizes>& splits = known[0];
            if (splits.empty()) {
                splits = all();
            }
            return splits;
        }
        return found_at_canonical_costs(known);
    }

    ChosenPartition best() {
        const std::int64_t tries = left_;
        Candidates known;
        const std::vector<Sizes>& candidates = this->candidates(known);
        Sizes sizes = candidates.size() == 1 ? candidates.front() : best_of(candidates);
        return {.layers_per_piece = std::move(sizes), .actions = (tries - left_) * each_};
    }

  private:
    int pieces() const { return static_cast<int>(begun_with_.size()); }

    /// The best at the costs that the profile has.
    Sizes best_of(const std::vector<Sizes>& candidates) {
        left_ -= std::ssize(candidates);
        const std::vector<Tried> tried =
            PartitionTrials(scenario_, model_, profile_, first_)
                .tried(candidates, std::numeric_limits<std::int64_t>::max());
        return std::ranges::min_element(tried, {}, &Tried::score)->sizes;
    }

    /// All partitions, the one to begin with first.
    std::vector<Sizes> all() const {
        std::vector<Sizes> splits{begun_with_};
        FeasibleSplits(model_.layer_count(), pieces(), [](int, int, int) {
            return true;
        }).for_each([&](std::span<const int> sizes) {
            if (!std::ranges::equal(sizes, begun_with_)) {
                splits.emplace_back(sizes.begin(), sizes.end());
            }
        });
        return splits;
    }

    /// The best partitions of searches at canonical costs, which are the same ones however fast the
    /// devices compute: so the best of them at the costs that the profile has is never slower with
    /// faster devices.
    const std::vector<Sizes>& found_at_canonical_costs(Candidates& known) {
        const std::optional<Short> fewer = with_fewer_micro_batches();
        const SettledScenario& scenario = fewer ? fewer->scenario : scenario_;
        const Plan& rows = fewer ? fewer->plan : first_;
        const auto each = static_cast<std::int64_t>(action_count(rows));
        const std::int64_t tries = left_ * each_ / each;
        const std::vector<Profile> profiles = canonical_profiles(
            scenario, model_, profile_, rows, /*only_first=*/tries < least_tries);
        const auto [entry, is_new] = known.try_emplace(profiles.size());
        std::vector<Sizes>& found = entry->second;
        if (!is_new) {
            return found;
        }
        const auto add = [&found](const Sizes& sizes) {
            if (std::ranges::find(found, sizes) == found.end()) {
                found.push_back(sizes);
            }
        };
        const std::vector<Move> moves = all_moves(pieces(), has_whole_blocks(model_) ? 1 : 2);
        for (const Profile& profile : profiles) {
            const RankChain chain = rank_chain_of(scenario, model_, profile);
            const Sizes balanced = partition_for(chain).layers_per_stage();
            if (begins_with_it_) {
                add(begun_with_);
            }
            add(balanced);
            if (tries < least_tries) {
                break;
            }
            const bool is_first = &profile == &profiles.front();
            const double share = is_first ? share_of_first : share_of_next;
            const auto own = static_cast<std::int64_t>(share * static_cast<double>(tries));
            const PartitionTrials trials(scenario, model_, profile, rows);
            const std::optional<HeldMemory> memory = held_by_ranks(chain, profile);
            PartitionSearch search(trials, moves, memory ? &*memory : nullptr, own);
            std::vector<Sizes> begins = found;
            if (is_first) {  // whose work is about the same at all costs
                std::ranges::move(starts(chain, memory), std::back_inserter(begins));
            }
            search.search(begins);
            left_ -= (own - search.left()) * each / each_;
            for (const Sizes& sizes : finalists(search.best_ones(), balanced)) {
                add(sizes);
            }
        }
        return found;
    }

    /// The scenario with less to simulate.
    struct Short {
        SettledScenario scenario;
        Plan plan;
    };

    /// The scenario with four micro-batches for each rank, where it has many more and the ranks
    /// hold as much with these: what a steady state gains by a partition shows in a short one, too.
    std::optional<Short> with_fewer_micro_batches() const {
        const std::vector<int>& sizes = first_->micro_batch_sizes;
        const int fewer = micro_batches_of_search * first_.rank_count();
        if (has_schedule_file(scenario_) || std::ssize(sizes) < 2 * fewer ||
            std::ranges::adjacent_find(sizes, std::ranges::not_equal_to{}) != sizes.end()) {
            return std::nullopt;
        }
        SettledScenario scenario = scenario_;
        scenario.pipeline.micro_batches = fewer;
        scenario.training.batch = fewer * sizes.front() * scenario.pipeline.data_parallel;
        scenario.pipeline.partition = begun_with_;
        try {
            Plan plan = make_plan(scenario, model_, profile_, RowsFrom::Generator);
            if (peak_totals(plan) != peak_totals(first_)) {
                return std::nullopt;
            }
            scenario.pipeline.partition.open();
            return Short{.scenario = std::move(scenario), .plan = std::move(plan)};
        } catch (const Error&) {  // a schedule that needs more of them
            return std::nullopt;
        }
    }

    /// The best of a search. Measured costs differ a little each time that they are measured:
    /// another partition than the balanced one has to be better by more than that.
    std::vector<Sizes> finalists(const std::vector<Tried>& best_ones, const Sizes& balanced) const {
        std::optional<Score> to_beat;
        if (profile_.source == CostSource::Measured) {
            const auto own = std::ranges::find(best_ones, balanced, &Tried::sizes);
            if (own != best_ones.end()) {
                to_beat = own->score;
                to_beat->step -= part(to_beat->step, noise_of_measured);
            }
        }
        std::vector<Sizes> result;
        for (const Tried& one : best_ones) {
            if (result.size() == most_finalists || (to_beat && !(one.score < *to_beat))) {
                break;
            }
            result.push_back(one.sizes);
        }
        return result;
    }

    /// Where the search begins: balanced ranks, pieces that are about alike, and where memory is
    /// limited partitions that balance what the ranks hold, or the work within the limits.
    std::vector<Sizes> starts(const RankChain& chain,
                              const std::optional<HeldMemory>& memory) const {
        std::vector<Sizes> starts = even_splits(chain);
        const auto add = [&](const RankChain& of) {
            if (auto split = rank_partition(of)) {
                starts.push_back(std::move(split->sizes));
            }
        };
        if (memory) {
            add({.layers = chain.layers,
                 .rank_of_piece = chain.rank_of_piece,
                 .quantities = {memory->held}});
            // Messages, workspace and gradients need some of the room, too.
            for (const double share : {1.0, 0.97, 0.92}) {
                RankChain limited = chain;
                limited.quantities.push_back(memory->held);
                for (const std::int64_t limit : memory->limits) {
                    limited.quantities.back().limits.push_back(
                        static_cast<std::int64_t>(share * static_cast<double>(limit)));
                }
                add(limited);
            }
        }
        std::ranges::move(equal_in_turn(), std::back_inserter(starts));
        return starts;
    }

    /// Equal numbers of layers, where those that are left over go to as many pieces in a row: to
    /// each such row of pieces, as long as there is time to look at all of them. And the same with
    /// a layer less in the last piece, which has the head to compute besides.
    std::vector<Sizes> equal_in_turn() const {
        const int least = model_.layer_count() / pieces();
        std::vector<Sizes> splits;
        constexpr std::int64_t few = 16;  // times as many tries have to be left
        for (int first = 0; first < pieces() && left_ > few * pieces(); ++first) {
            for (const int less : {0, 1}) {
                if (less == 1 && least == 1) {
                    continue;
                }
                Sizes& sizes = splits.emplace_back(as_index(pieces()), least);
                sizes.back() -= less;
                const int left_over = model_.layer_count() % pieces() + less;
                for (int i = 0; i < left_over; ++i) {
                    ++sizes[as_index((first + i) % pieces())];
                }
            }
        }
        return splits;
    }

    /// None where a rank has no limit, or where two ranks count as one.
    std::optional<HeldMemory> held_by_ranks(const RankChain& chain, const Profile& profile) const {
        std::vector<std::int64_t> limits;
        for (int rank = 0; rank < first_.rank_count(); ++rank) {
            const std::optional<Bytes> limit = first_.memory_limit(rank);
            if (!limit || chain.ranks() != first_.rank_count()) {
                return std::nullopt;
            }
            const Bytes context =
                first_->context.empty() ? Bytes{} : first_->context[as_index(rank)];
            limits.push_back((*limit - context).count);
        }
        const bool keeps = first_->recompute.everywhere() == Recompute::None;
        const LayerSums sums = layer_sums(scenario_,
                                          model_,
                                          profile,
                                          Cluster(scenario_, profile, first_.rank_count()),
                                          first_->micro_batch_sizes.front());
        RankQuantity held = held_memory(chain,
                                        first_->schedule,
                                        sums,
                                        first_->host_link ? Kept::Nothing
                                        : keeps           ? Kept::All
                                                          : Kept::Input);
        if (!keeps) {
            add_what_is_at_work(held, sums);
        }
        return HeldMemory{.chain = chain, .held = std::move(held), .limits = std::move(limits)};
    }

    /// Adds what the piece at work keeps: about a share of each piece.
    void add_what_is_at_work(RankQuantity& held, const LayerSums& sums) const {
        const int pieces_of_rank = std::max(1, pieces() / first_.rank_count());
        for (std::vector<std::int64_t>& before : held.before) {
            for (std::size_t layer = 0; layer < before.size(); ++layer) {
                before[layer] += sums.saved[layer].count / pieces_of_rank;
            }
        }
    }

    const SettledScenario& scenario_;
    const Model& model_;
    const Profile& profile_;
    const Plan& first_;
    bool begins_with_it_;
    const Sizes begun_with_;
    std::int64_t each_;  ///< actions of a try
    std::int64_t left_;  ///< tries
};

/// Whether there are partitions to choose from.
bool is_open(const SettledScenario& scenario, const Plan& plan) {
    return scenario.pipeline.partition.is_auto() && plan->partition->stage_count() > 1 &&
           plan->partition->stage_count() < plan->partition->layer_count();
}

}  // namespace

ChosenPartition chosen_partition(const SettledScenario& scenario,
                                 const Model& model,
                                 const Profile& profile,
                                 std::int64_t actions,
                                 const std::vector<int>& first) {
    SettledScenario with_first = scenario;
    if (!first.empty()) {
        with_first.pipeline.partition = first;
    }
    const Plan plan = make_plan(with_first, model, profile, RowsFrom::Generator);
    return is_open(scenario, plan)
               ? Choice(scenario, model, profile, plan, !first.empty(), actions).best()
               : ChosenPartition{.layers_per_piece = plan->partition->layers_per_stage()};
}

struct ScaledPartitions::Known {
    /// What a partition came to at a factor.
    struct Step {
        double compute = 1;
        Score score{};
    };
    Choice::Candidates candidates{};
    std::map<Sizes, Step> steps{};
};

ScaledPartitions::ScaledPartitions(const SettledScenario& scenario,
                                   const Model& model,
                                   const Profile& profile)
    : scenario_(scenario), model_(model), profile_(profile), known_(std::make_unique<Known>()) {}

ScaledPartitions::ScaledPartitions(ScaledPartitions&&) noexcept = default;
ScaledPartitions::~ScaledPartitions() = default;

std::vector<int> ScaledPartitions::best(double compute) {
    const Profile scaled = with_factors(profile_, {.compute = compute});
    const Plan plan = make_plan(scenario_, model_, scaled, RowsFrom::Generator);
    if (!is_open(scenario_, plan)) {
        return plan->partition->layers_per_stage();
    }
    Choice choice(scenario_, model_, scaled, plan, false, most_tried_actions);
    const std::vector<Sizes>& candidates = choice.candidates(known_->candidates);
    const PartitionTrials trials(scenario_, model_, scaled, plan);
    std::map<Sizes, Known::Step>& steps = known_->steps;
    const auto try_all = [&](const std::vector<Sizes>& splits) {
        for (Tried& one : trials.tried(splits, std::numeric_limits<std::int64_t>::max())) {
            steps.insert_or_assign(std::move(one.sizes), Known::Step{compute, one.score});
        }
    };
    // A chain of actions takes no less time with slower layers, and with faster ones its share of
    // the time at least. Settled capacities may cost a thousandth of a step.
    const auto at_least = [&](const Known::Step& step) {
        constexpr double but_for_capacity = 0.998;
        return but_for_capacity * std::min(1.0, compute / step.compute) *
               static_cast<double>(step.score.step.count());
    };
    std::vector<Sizes> others;
    std::ranges::copy_if(candidates, std::back_inserter(others), [&](const Sizes& sizes) {
        return plan->host_link || !steps.contains(sizes);
    });
    try_all(others);
    const Sizes* best = nullptr;
    const auto take_if_better = [&](const Sizes& sizes) {
        if (best == nullptr || steps.at(sizes).score < steps.at(*best).score) {
            best = &sizes;
        }
    };
    others.clear();
    for (const Sizes& sizes : candidates) {
        if (steps.at(sizes).compute == compute) {
            take_if_better(sizes);
        } else {
            others.push_back(sizes);
        }
    }
    std::ranges::stable_sort(others, {}, [&](const Sizes& sizes) {
        const Known::Step& step = steps.at(sizes);
        return std::pair(step.score.excess, at_least(step));
    });
    for (const Sizes& sizes : others) {
        const Known::Step& step = steps.at(sizes);
        if (best != nullptr) {
            const Score& least = steps.at(*best).score;
            if (std::pair(step.score.excess, at_least(step)) >
                std::pair(least.excess, static_cast<double>(least.step.count()))) {
                break;
            }
        }
        try_all({sizes});
        take_if_better(sizes);
    }
    return *best;
}

Plan make_settled_plan(const SettledScenario& scenario,
                       const Model& model,
                       const Profile& profile) {
    if (!scenario.pipeline.partition.is_auto()) {
        return with_settled_capacity(make_plan(scenario, model, profile));
    }
    SettledScenario settled = scenario;
    settled.pipeline.partition =
        chosen_partition(scenario, model, profile, most_tried_actions).layers_per_piece;
    return with_settled_capacity(make_plan(settled, model, profile));
}

}  // namespace pipetwin::sim
