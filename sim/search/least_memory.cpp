// SPDX-License-Identifier: Apache-2.0
#include "sim/search/least_memory.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/feasible_splits.h"
#include "core/partition/partition_search.h"
#include "core/partition/rank_partition.h"
#include "core/scenario/cluster.h"
#include "core/scenario/planner.h"
#include "core/schedule/validate.h"
#include "core/timeline/footprint.h"
#include "sim/bounds/layer_sums.h"
#include "sim/bounds/row_windows.h"
#include "sim/explain/explanation.h"
#include "sim/search/frontier.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

constexpr std::int64_t most_actions_of_all = 40'000'000;
constexpr std::int64_t most_actions_of_one = 1'000'000;
constexpr std::int64_t least_tries_of_one = 12;
constexpr std::size_t at_the_same_time = 8;

/// What a rank lacks where it has no limit.
constexpr Bytes nothing{std::numeric_limits<std::int64_t>::min() / 4};

/// [rank]: the bytes that it holds above its limit.
std::vector<Bytes> lacks_of(const Plan& plan, const std::vector<Bytes>& peaks) {
    std::vector<Bytes> lacks;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        const std::optional<Bytes> limit = plan.memory_limit(rank);
        lacks.push_back(limit ? peaks[as_index(rank)] - *limit : nothing);
    }
    return lacks;
}

/// A partition, and what its ranks lack.
struct Lacking {
    std::vector<int> sizes{};
    std::vector<Bytes> of_rank{};
    std::vector<Bytes> largest_first{};

    bool operator<(const Lacking& other) const { return largest_first < other.largest_first; }
    Bytes most() const { return largest_first.front(); }
};

/// The partition of one candidate whose fullest rank lacks least.
class LeastMemory {
  public:
    /// Throws as make_plan.
    LeastMemory(const SearchSpace& space, const Candidate& candidate)
        : space_(space),
          candidate_(candidate),
          settled_(with_candidate(space.scenario, candidate)),
          planner_(settled_, space.model, space.profile),
          first_(planner_.plan(RowsFrom::Generator)),
          each_(static_cast<std::int64_t>(action_count(first_))),
          least_capacity_(std::max(1, smallest_capacity(first_->schedule))) {
        find_bound();
    }

    /// What no partition goes below.
    Bytes bound() const { return bound_; }
    /// The actions that were planned.
    std::int64_t actions() const { return tries_ * each_; }

    /// The best that was found; none where nothing limits the rank that holds most.
    std::optional<ClosestPlan> best() {
        const Lacking best = is_open() ? searched() : with_lacks(first_sizes());
        const auto fullest = std::ranges::max_element(best.of_rank) - best.of_rank.begin();
        const std::optional<Bytes> limit = first_.memory_limit(static_cast<int>(fullest));
        if (!limit) {
            return std::nullopt;
        }
        return ClosestPlan{.candidate = candidate_,
                           .partition = best.sizes,
                           .rank = static_cast<int>(fullest),
                           .peak = best.most() + *limit,
                           .limit = *limit};
    }

  private:
    const std::vector<int>& first_sizes() const { return first_->partition->layers_per_stage(); }
    int pieces() const { return first_->partition->stage_count(); }
    bool is_open() const {
        return space_.scenario.pipeline.partition.is_auto() && pieces() > 1 &&
               pieces() < space_.model.layer_count();
    }
    std::int64_t left() const {
        return std::max(least_tries_of_one, most_actions_of_one / each_) - tries_;
    }

    /// The balanced partition, and that which balances what the ranks hold at least.
    void find_bound() {
        starts_.push_back(first_sizes());
        if (!is_open() || first_->host_link) {
            return;
        }
        Bytes room{};  // the most that a rank has for its layers
        for (int rank = 0; rank < first_.rank_count(); ++rank) {
            const std::optional<Bytes> limit = first_.memory_limit(rank);
            if (!limit) {
                return;
            }
            const Bytes context =
                first_->context.empty() ? Bytes{} : first_->context[as_index(rank)];
            room = std::max(room, *limit - context);
        }
        const RankChain work = rank_chain_of(settled_, space_.model, space_.profile);
        if (work.ranks() != first_.rank_count()) {
            return;  // two ranks of two pipelines count as one
        }
        const bool keeps = first_->recompute.everywhere() == Recompute::None;
        const LayerSums sums = layer_sums(settled_,
                                          space_.model,
                                          space_.profile,
                                          Cluster(settled_, space_.profile, first_.rank_count()),
                                          std::ranges::min(first_->micro_batch_sizes));
        const RankChain held{.layers = work.layers,
                             .rank_of_piece = work.rank_of_piece,
                             .quantities = {held_memory(
                                 work, first_->schedule, sums, keeps ? Kept::All : Kept::Input)}};
        if (const std::optional<std::int64_t> bound = rank_bound(held)) {
            bound_ = Bytes{*bound} - room;
        }
        if (const std::optional<RankSplit> split = rank_partition(held);
            split && split->sizes != starts_.front()) {
            starts_.push_back(split->sizes);
        }
    }

    /// With room for as few messages as the rows can do with: no plan of the partition needs less,
    /// and with that much memory it fits. Stashes in host memory depend on the times.
    Lacking with_lacks(const std::vector<int>& sizes) {
        ++tries_;
        Plan plan = planner_.plan_with_rows_of(first_, sizes);
        std::vector<Bytes> peaks;
        if (plan->host_link) {
            plan = with_settled_capacity(std::move(plan));
            peaks = peak_totals(plan, simulate(plan));
        } else {
            if (!plan->channel_capacity) {
                plan = std::move(plan).with_proven_capacity(least_capacity_);
            }
            peaks = peak_totals(plan);
        }
        Lacking one{.sizes = sizes, .of_rank = lacks_of(plan, peaks)};
        one.largest_first = one.of_rank;
        std::ranges::sort(one.largest_first, std::greater{});
        return one;
    }

    Lacking searched() {
        Lacking best = with_lacks(starts_.front());
        const auto take_better = [&best](Lacking other) {
            if (other < best) {
                best = std::move(other);
            }
        };
        if (split_count(space_.model.layer_count(), pieces()) <= static_cast<double>(left())) {
            FeasibleSplits(space_.model.layer_count(), pieces(), [](int, int, int) {
                return true;
            }).for_each([&](std::span<const int> sizes) {
                take_better(with_lacks({sizes.begin(), sizes.end()}));
            });
            return best;
        }
        if (starts_.size() > 1) {
            take_better(with_lacks(starts_.back()));
        }
        while (left() > 0 && best.most() > bound_) {
            std::optional<Lacking> better = relieved(best);
            if (!better) {
                break;
            }
            best = *std::move(better);
        }
        return best;
    }

    /// A partition in which the ranks that lack most lack less, after layers were moved off the
    /// first of them to a piece of another, whose boundaries between move along: to near pieces
    /// first. None where no such move helps.
    std::optional<Lacking> relieved(const Lacking& from) {
        const auto fullest = std::ranges::max_element(from.of_rank) - from.of_rank.begin();
        std::vector<std::tuple<int, int, int, int>> moves;  // distance, layers, from, to
        for (int piece = 0; piece < pieces(); ++piece) {
            for (int to = 0; to < pieces() && is_on(piece, static_cast<int>(fullest)); ++to) {
                for (int layers = 1; layers <= 2 && !is_on(to, static_cast<int>(fullest));
                     ++layers) {
                    moves.emplace_back(std::abs(to - piece), layers, piece, to);
                }
            }
        }
        std::ranges::sort(moves);
        for (const auto& [distance, layers, piece, to] : moves) {
            if (left() <= 0) {
                break;
            }
            std::vector<int> sizes = from.sizes;
            if (sizes[as_index(piece)] <= layers) {
                continue;
            }
            sizes[as_index(piece)] -= layers;
            sizes[as_index(to)] += layers;
            Lacking moved = with_lacks(sizes);
            if (moved < from) {
                return moved;
            }
        }
        return std::nullopt;
    }

    bool is_on(int piece, int rank) const {
        const Schedule& schedule = first_->schedule;
        for (int stage = 0; stage < schedule.stage_count(); ++stage) {
            if (model_stage_of(schedule, stage) == piece &&
                schedule.rank_of_stage[as_index(stage)] == rank) {
                return true;
            }
        }
        return false;
    }

    const SearchSpace& space_;
    const Candidate& candidate_;
    const SettledScenario settled_;
    const Planner planner_;
    const Plan first_;    ///< has the rows
    std::int64_t each_;   ///< actions of a plan
    int least_capacity_;  ///< of channels, without a deadlock
    std::int64_t tries_ = 1;
    std::vector<std::vector<int>> starts_{};
    Bytes bound_ = nothing;
};

Bytes lack_of(const ClosestPlan& plan) {
    return plan.peak - plan.limit;
}

/// Returns the plan of a candidate that needs least memory; none where no plan of the candidate
/// needs less than `closest`.
std::optional<ClosestPlan> closest_of(const SearchSpace& space,
                                      const Candidate& candidate,
                                      const std::optional<ClosestPlan>& closest,
                                      std::int64_t& actions) {
    try {
        LeastMemory search(space, candidate);
        std::optional<ClosestPlan> best;
        if (!closest || search.bound() < lack_of(*closest)) {
            best = search.best();
        }
        actions = search.actions();
        return best;
    } catch (const Error&) {  // no plan whatever the memory
        return std::nullopt;
    }
}

}  // namespace

std::optional<ClosestPlan> closest_to_fitting(SearchState& state) {
    std::vector<Candidate> candidates;
    for (const auto& [bytes, candidate] : state.too_large) {
        // Where every rank recomputes as it needs, those that lack most recompute always.
        if (!candidate.choice.recompute_by_rank ||
            !state.space.scenario.pipeline.recompute.is_auto()) {
            candidates.push_back(candidate);
        }
    }
    std::optional<ClosestPlan> closest;
    std::int64_t room = most_actions_of_all;
    for (std::size_t first = 0;
         first < candidates.size() && room > 0 && state.goes_on(0, Duration{});
         first += at_the_same_time) {
        std::vector<std::optional<ClosestPlan>> found(
            std::min(at_the_same_time, candidates.size() - first));
        std::vector<std::int64_t> actions(found.size());
        tbb::parallel_for(std::size_t{0}, found.size(), [&](std::size_t i) {
            found[i] = closest_of(state.space, candidates[first + i], closest, actions[i]);
        });
        for (std::size_t i = 0; i < found.size(); ++i) {
            room -= actions[i];
            if (found[i] && (!closest || lack_of(*found[i]) < lack_of(*closest))) {
                closest = found[i];
            }
        }
    }
    return closest;
}

}  // namespace pipetwin::sim
