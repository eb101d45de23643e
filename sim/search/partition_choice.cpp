#include "sim/search/partition_choice.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/partition/feasible_splits.h"
#include "core/partition/model_blocks.h"
#include "core/partition/partition_search.h"
#include "core/partition/rank_even.h"
#include "core/partition/rank_partition.h"
#include "core/scenario/cluster.h"
#include "core/scenario/replan.h"
#include "core/timeline/footprint.h"
#include "core/timeline/metrics.h"
#include "sim/explain/explanation.h"
#include "sim/search/layer_sums.h"
#include "sim/search/row_windows.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

constexpr std::int64_t most_tried_actions = 4'000'000;
constexpr std::int64_t most_tries = 5'000;
constexpr std::size_t most_descents = 8;           ///< from different starts
constexpr std::int64_t most_tries_of_orders = 30;  ///< where every one searches for its order
constexpr std::int64_t tried_at_once = 8;
constexpr int most_kicks = 40;  ///< in vain
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

Score score_of(Plan plan) {
    plan = with_settled_capacity(std::move(plan));
    const Timeline timeline = simulate(plan);
    const std::vector<Bytes> peaks =
        plan->host_link ? peak_totals(plan, timeline) : peak_totals(plan);
    Score score{.step = step_time(timeline), .unevenness = unevenness(plan)};
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        const Bytes peak = peaks[as_index(rank)];
        score.peak = std::max(score.peak, peak);
        if (const std::optional<Bytes> limit = plan.memory_limit(rank)) {
            score.excess += std::max((peak - *limit).count, std::int64_t{0});
        }
    }
    return score;
}

/// Some layers less in one piece, as many more in another; the boundaries between them move along.
struct Move {
    int from = 0;
    int to = 0;
    int layers = 1;
};

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

class Choice {
  public:
    /// `first` has the partition to begin with; so many actions are simulated.
    Choice(const SettledScenario& scenario,
           const Model& model,
           const Profile& profile,
           const Plan& first,
           std::int64_t actions)
        : scenario_(scenario),
          model_(model),
          profile_(profile),
          first_(first),
          follows_costs_(rows_follow_costs(scenario)),
          balanced_(first->partition->layers_per_stage()),
          costs_(layer_costs(first, scenario, model, profile)),
          each_(static_cast<std::int64_t>(action_count(first))),
          left_(tries(actions, each_, follows_costs_)) {}

    ChosenPartition best() {
        const std::int64_t tries = left_;
        Scored best{.sizes = balanced_, .score = {}};
        if (split_count(model_.layer_count(), pieces()) <= static_cast<double>(left_)) {
            best = scored(all()).front();
        } else if (left_ > 1) {
            best = improved();
        }
        return {.layers_per_piece = std::move(best.sizes), .actions = (tries - left_) * each_};
    }

  private:
    struct Scored {
        Sizes sizes;
        Score score;
    };

    /// All partitions, the balanced one first.
    std::vector<Sizes> all() const {
        std::vector<Sizes> splits{balanced_};
        FeasibleSplits(model_.layer_count(), pieces(), [](int, int, int) {
            return true;
        }).for_each([&](std::span<const int> sizes) {
            if (!std::ranges::equal(sizes, balanced_)) {
                splits.emplace_back(sizes.begin(), sizes.end());
            }
        });
        return splits;
    }

    int pieces() const { return static_cast<int>(balanced_.size()); }

    Plan plan_of(const Sizes& sizes) const {
        SettledScenario settled = scenario_;
        settled.pipeline.partition = sizes;
        return follows_costs_ ? make_plan(settled, model_, profile_, RowsFrom::Generator)
                              : make_plan_with_rows_of(first_, settled, model_, profile_, &costs_);
    }

    /// Measured costs differ a little each time that they are measured: another partition than the
    /// balanced one has to be better by more than that.
    Score weighed(Score score, const Sizes& sizes) const {
        if (profile_.source == CostSource::Measured && sizes == balanced_) {
            score.step -= Duration(static_cast<std::int64_t>(
                noise_of_measured * static_cast<double>(score.step.count())));
        }
        return score;
    }

    /// The best first; of equal ones that which came first.
    std::vector<Scored> scored(const std::vector<Sizes>& splits) {
        std::vector<Scored> result(splits.size());
        tbb::parallel_for(std::size_t{0}, splits.size(), [&](std::size_t i) {
            result[i] = {.sizes = splits[i],
                         .score = weighed(score_of(plan_of(splits[i])), splits[i])};
        });
        left_ -= std::ssize(splits);
        std::ranges::stable_sort(result, {}, &Scored::score);
        return result;
    }

    /// Whether one of these is better than the best so far, which it then takes the place of.
    bool take_better(const std::vector<Sizes>& splits, Scored& best) {
        if (splits.empty()) {
            return false;
        }
        std::vector<Scored> tried = scored(splits);
        if (!(tried.front().score < best.score)) {
            return false;
        }
        best = std::move(tried.front());
        return true;
    }

    /// Where the search begins: balanced ranks, pieces that are about alike, and where memory is
    /// limited partitions that balance what the ranks hold, or the work within the limits.
    std::vector<Sizes> starts() const {
        const RankChain chain = rank_chain_of(scenario_, model_, profile_);
        std::vector<Sizes> starts = even_splits(chain);
        starts.insert(starts.begin(), balanced_);
        const auto add = [&](const RankChain& of) {
            if (auto split = rank_partition(of)) {
                starts.push_back(std::move(split->sizes));
            }
        };
        add(chain);
        add_starts_in_memory(chain, add);
        std::ranges::move(equal_in_turn(), std::back_inserter(starts));
        std::vector<Sizes> different;
        for (Sizes& start : starts) {
            if (std::ranges::find(different, start) == different.end()) {
                different.push_back(std::move(start));
            }
        }
        return different;
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

    /// Adds starts that follow from memory, where all ranks have a limit.
    template <class Add>
    void add_starts_in_memory(const RankChain& chain, const Add& add) const {
        std::vector<std::int64_t> limits;
        for (int rank = 0; rank < first_.rank_count(); ++rank) {
            const std::optional<Bytes> limit = first_.memory_limit(rank);
            if (!limit) {
                return;
            }
            const Bytes context =
                first_->context.empty() ? Bytes{} : first_->context[as_index(rank)];
            limits.push_back((*limit - context).count);
        }
        const bool keeps = first_->recompute.everywhere() == Recompute::None;
        const LayerSums sums = layer_sums(scenario_,
                                          model_,
                                          profile_,
                                          Cluster(scenario_, profile_, first_.rank_count()),
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
        add({.layers = chain.layers, .rank_of_piece = chain.rank_of_piece, .quantities = {held}});
        // Messages, workspace and gradients need some of the room, too.
        for (const double share : {1.0, 0.97, 0.92}) {
            RankChain limited = chain;
            for (int rank = 0; rank < chain.ranks(); ++rank) {
                held.limits.resize(as_index(chain.ranks()));
                held.limits[as_index(rank)] =
                    static_cast<std::int64_t>(share * static_cast<double>(limits[as_index(rank)]));
            }
            limited.quantities.push_back(held);
            add(limited);
        }
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

    /// Moves layers in the best of the starts, and then, after some moves at once, in the best that
    /// came of it.
    Scored improved() {
        std::vector<Scored> begun = scored(starts());
        begun.resize(std::min(begun.size(), most_descents));
        const std::vector<Move> moves = all_moves(pieces(), has_whole_blocks(model_) ? 1 : 2);
        for (Scored& start : begun) {
            try_moves(moves, start);
        }
        Scored best = *std::ranges::min_element(begun, {}, &Scored::score);
        for (int in_vain = 0; in_vain < most_kicks && left_ > 0; ++in_vain) {
            Scored kicked_one = scored({kicked(best.sizes, moves)}).front();
            try_moves(moves, kicked_one);
            if (kicked_one.score < best.score) {
                best = std::move(kicked_one);
                in_vain = 0;
            }
        }
        return best;
    }

    /// The best partition after a move; none where a piece has too few layers for it.
    static std::optional<Sizes> after(Sizes sizes, const Move& move) {
        if (sizes[as_index(move.from)] <= move.layers) {
            return std::nullopt;
        }
        sizes[as_index(move.from)] -= move.layers;
        sizes[as_index(move.to)] += move.layers;
        return sizes;
    }

    std::size_t at_once() const {
        return static_cast<std::size_t>(std::clamp<std::int64_t>(left_, 0, tried_at_once));
    }

    /// Takes every move that is better, until none is.
    void try_moves(const std::vector<Move>& moves, Scored& best) {
        std::size_t next = 0;
        std::size_t in_vain = 0;  // moves since the best was found
        while (in_vain < moves.size() && left_ > 0) {
            std::vector<Sizes> splits;
            for (; in_vain < moves.size() && splits.size() < at_once(); ++in_vain) {
                if (auto moved = after(best.sizes, moves[next++ % moves.size()])) {
                    splits.push_back(*std::move(moved));
                }
            }
            if (take_better(splits, best)) {
                in_vain = 0;
            }
        }
    }

    /// Some moves at once, the same each time.
    Sizes kicked(Sizes sizes, const std::vector<Move>& moves) {
        constexpr int at_once = 4;
        for (int made = 0, tried = 0; made < at_once && tried < 100; ++tried) {
            // Knuth's linear congruential generator (MMIX).
            state_ = state_ * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
            if (auto moved = after(sizes, moves[(state_ >> 33U) % moves.size()])) {
                sizes = *std::move(moved);
                ++made;
            }
        }
        return sizes;
    }

    const SettledScenario& scenario_;
    const Model& model_;
    const Profile& profile_;
    const Plan& first_;
    bool follows_costs_;
    const Sizes balanced_;     ///< or what else the search began with
    const LayerCosts costs_;   ///< of every partition
    std::int64_t each_;        ///< actions of a try
    std::int64_t left_;        ///< tries
    std::uint64_t state_ = 1;  ///< of the moves at random
};

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
    const bool is_open = !scenario.pipeline.partition && plan->partition->stage_count() > 1 &&
                         plan->partition->stage_count() < plan->partition->layer_count();
    return is_open ? Choice(scenario, model, profile, plan, actions).best()
                   : ChosenPartition{.layers_per_piece = plan->partition->layers_per_stage()};
}

Plan make_settled_plan(const SettledScenario& scenario,
                       const Model& model,
                       const Profile& profile) {
    if (scenario.pipeline.partition) {
        return with_settled_capacity(make_plan(scenario, model, profile));
    }
    SettledScenario settled = scenario;
    settled.pipeline.partition =
        chosen_partition(scenario, model, profile, most_tried_actions).layers_per_piece;
    return with_settled_capacity(make_plan(settled, model, profile));
}

}  // namespace pipetwin::sim
