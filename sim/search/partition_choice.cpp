// SPDX-License-Identifier: Apache-2.0
#include "sim/search/partition_choice.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/cost_factors.h"
#include "core/model/model.h"
#include "core/partition/feasible_splits.h"
#include "core/partition/model_blocks.h"
#include "core/partition/partition_search.h"
#include "core/partition/rank_even.h"
#include "core/partition/rank_partition.h"
#include "core/scenario/cluster.h"
#include "core/scenario/cost_table.h"
#include "core/scenario/plan_rows.h"
#include "core/scenario/planner.h"
#include "core/timeline/footprint.h"
#include "sim/bounds/layer_sums.h"
#include "sim/bounds/row_windows.h"
#include "sim/explain/explanation.h"
#include "sim/search/canonical_costs.h"
#include "sim/search/frontier.h"
#include "sim/search/partition_descent.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

constexpr std::int64_t most_tried_actions = 4'000'000;
constexpr std::int64_t most_tries = 5'000;
constexpr std::int64_t most_tries_of_orders = 30;  ///< where every one searches for its order
constexpr std::int64_t least_tries = 8;            ///< for a search
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

/// Whether the names of the layers tell blocks, and each is one layer.
bool has_whole_blocks(const Model& model) {
    const std::optional<ModelBlocks> blocks = model_blocks(model.layer_names());
    return blocks && std::ranges::count(blocks->layers, 1) == std::ssize(blocks->layers);
}

class Choice {
  public:
    /// `first` has the rows; its partition is a candidate where `begins_with_it`. So many actions
    /// are simulated. `tried`: as for `chosen_partition`.
    Choice(const SettledScenario& scenario,
           const Model& model,
           const Profile& profile,
           const Plan& first,
           bool begins_with_it,
           std::int64_t actions,
           KnownPartitions* tried = nullptr)
        : scenario_(scenario),
          model_(model),
          profile_(profile),
          first_(first),
          begins_with_it_(begins_with_it),
          begun_with_(first->partition->layers_per_stage()),
          each_(static_cast<std::int64_t>(action_count(first))),
          left_(tries(actions, each_, rows_follow_costs(scenario))),
          tried_(tried) {}

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
        const std::vector<TriedPartition> tried =
            PartitionTrials(scenario_, model_, profile_, first_)
                .tried(candidates, std::numeric_limits<std::int64_t>::max());
        return std::ranges::min_element(tried, {}, &TriedPartition::score)->sizes;
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
        for (std::size_t number = 0; number < profiles.size(); ++number) {
            const Profile& profile = profiles[number];
            KnownSearch unknown;
            KnownSearch& of_costs =
                tried_ == nullptr ? unknown
                                  : tried_->searches[{scenario.pipeline.micro_batches, number}];
            const RankChain chain = rank_chain_of(scenario, model_, profile);
            if (!of_costs.balanced) {
                of_costs.balanced = partition_for(chain).layers_per_stage();
            }
            const Sizes& balanced = *of_costs.balanced;
            if (begins_with_it_) {
                add(begun_with_);
            }
            add(balanced);
            if (tries < least_tries) {
                break;
            }
            const bool is_first = number == 0;
            const double share = is_first ? share_of_first : share_of_next;
            const auto own = static_cast<std::int64_t>(share * static_cast<double>(tries));
            const PartitionTrials trials(scenario, model_, profile, rows, &of_costs.tried);
            const std::optional<HeldMemory> memory = held_by_ranks(chain, profile);
            PartitionDescents descents(trials, moves, memory ? &*memory : nullptr, own);
            std::vector<Sizes> begins = found;
            if (is_first) {  // whose work is about the same at all costs
                if (!of_costs.within_memory) {
                    of_costs.within_memory = within_memory(chain, memory);
                }
                for (const std::vector<Sizes>& starts :
                     {even_splits(chain), *of_costs.within_memory, equal_in_turn()}) {
                    begins.insert(begins.end(), starts.begin(), starts.end());
                }
            }
            descents.search(begins);
            left_ -= (own - descents.left()) * each / each_;
            for (const Sizes& sizes : finalists(descents.best_ones(), balanced)) {
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
    std::vector<Sizes> finalists(const std::vector<const TriedPartition*>& best_ones,
                                 const Sizes& balanced) const {
        std::optional<PartitionScore> to_beat;
        if (profile_.source == CostSource::Measured) {
            const auto own = std::ranges::find(best_ones, balanced, &TriedPartition::sizes);
            if (own != best_ones.end()) {
                to_beat = (*own)->score;
                to_beat->step -= part(to_beat->step, noise_of_measured);
            }
        }
        std::vector<Sizes> result;
        for (const TriedPartition* const one : best_ones) {
            if (result.size() == most_finalists || (to_beat && !(one->score < *to_beat))) {
                break;
            }
            result.push_back(one->sizes);
        }
        return result;
    }

    /// Where memory is limited, partitions that balance what the ranks hold, or the work within the
    /// limits.
    static std::vector<Sizes> within_memory(const RankChain& chain,
                                            const std::optional<HeldMemory>& memory) {
        std::vector<Sizes> starts;
        if (!memory) {
            return starts;
        }
        const auto add = [&](const RankChain& of) {
            if (auto split = rank_partition(of)) {
                starts.push_back(std::move(split->sizes));
            }
        };
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
    KnownPartitions* tried_;
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
                                 const std::vector<int>& first,
                                 KnownPartitions* tried) {
    SettledScenario with_first = scenario;
    if (!first.empty()) {
        with_first.pipeline.partition = first;
    }
    const Plan plan = make_plan(with_first, model, profile, RowsFrom::Generator);
    return is_open(scenario, plan)
               ? Choice(scenario, model, profile, plan, !first.empty(), actions, tried).best()
               : ChosenPartition{.layers_per_piece = plan->partition->layers_per_stage()};
}

struct ScaledPartitions::Known {
    /// What a partition came to at a factor.
    struct Step {
        double compute = 1;
        PartitionScore score{};
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
    const Profile scaled = with_known_factors(profile_, {.compute = compute});
    const Plan plan = make_plan(scenario_, model_, scaled, RowsFrom::Generator);
    if (!is_open(scenario_, plan)) {
        return plan->partition->layers_per_stage();
    }
    Choice choice(scenario_, model_, scaled, plan, false, most_tried_actions);
    const std::vector<Sizes>& candidates = choice.candidates(known_->candidates);
    const PartitionTrials trials(scenario_, model_, scaled, plan);
    std::map<Sizes, Known::Step>& steps = known_->steps;
    const auto try_all = [&](const std::vector<Sizes>& splits) {
        for (TriedPartition& one : trials.tried(splits, std::numeric_limits<std::int64_t>::max())) {
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
            const PartitionScore& least = steps.at(*best).score;
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
