// SPDX-License-Identifier: Apache-2.0
#include "sim/search/further_partitions.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "sim/bounds/layer_sums.h"
#include "sim/search/frontier.h"

namespace pipetwin::sim {

namespace {

/// Layers times pieces of the candidates of which further partitions are tried, together.
constexpr std::int64_t most_looked_at = 500'000;
constexpr std::int64_t most_improved_actions = 4'000'000;  ///< to improve one candidate
constexpr std::int64_t fair_actions = 1'500'000;           ///< of many candidates for each
constexpr std::size_t few_unexplored = 4;  ///< for two searches of the partition of each
/// Candidates whose layers are moved at the same time. What comes of one does not depend on the
/// others, but for how many actions these leave it.
constexpr std::size_t moved_at_once = 8;

/// Whether so many actions are too few to move layers between its pieces.
bool is_too_large_for(const Candidate& candidate, std::int64_t actions) {
    return actions < 10 * actions_of(candidate);
}

/// The order in which candidates are explored: those with a plan or a bound, the most promising
/// first, by turns with those of which no partition has been found that fits, the least bound
/// first.
std::vector<Unexplored> in_turn(std::vector<Unexplored> unexplored) {
    const auto refused = std::ranges::partition(
        unexplored, [](const Unexplored& of) { return of.priority < Duration::max(); });
    const std::span<Unexplored> known(unexplored.begin(), refused.begin());
    const std::span<Unexplored> others(refused.begin(), refused.end());
    std::ranges::sort(known);
    std::ranges::sort(others);
    std::vector<Unexplored> result;
    for (std::size_t i = 0; i < std::max(known.size(), others.size()); ++i) {
        if (i < known.size()) {
            result.push_back(known[i]);
        }
        if (i < others.size()) {
            result.push_back(others[i]);
        }
    }
    return result;
}

}  // namespace

/// Where nothing fits yet no limit makes the partitions fewer: whether so many can be looked at.
bool FurtherPartitions::is_quick_to_count(const Candidate& candidate) const {
    const std::int64_t layers = state_.space.model.layer_count();
    return layers * layers * candidate.shape.stages <= 100'000;
}

/// A candidate of which no partition had been found that fits has one.
void FurtherPartitions::take_back_refusal(const Candidate& candidate) {
    std::erase_if(state_.too_large, [&](const auto& entry) { return entry.second == candidate; });
    const auto refused = std::ranges::find_if(state_.all.infeasible, [](const auto& entry) {
        return entry.second.reason == ErrorReason::Memory;
    });
    if (refused == state_.all.infeasible.end()) {
        return;
    }
    ++state_.all.searched;
    if (--refused->second.count == 0) {
        state_.all.infeasible.erase(refused);
    } else if (refused->second.example == candidate && !state_.too_large.empty()) {
        refused->second.example = state_.too_large.begin()->second;
    }
}

/// Simulates partitions of a candidate. `best` becomes the step of the fastest of all.
void FurtherPartitions::try_each(const Unexplored& node,
                                 const std::vector<std::vector<int>>& partitions,
                                 Duration& best) {
    if (partitions.empty()) {
        return;
    }
    const Candidate& candidate = node.candidate;
    state_.partitions += std::ssize(partitions);
    std::vector<Outcome> outcomes(partitions.size());
    try {
        CandidateTrials trials(state_.space, candidate, partitions.front());
        if (partitions.size() > 2) {
            trials.share_rows();
        }
        tbb::parallel_for(std::size_t{0}, partitions.size(), [&](std::size_t i) {
            try {
                trials.add(partitions[i], best, outcomes[i]);
            } catch (const Error&) {
                outcomes[i] = {};
            }
        });
    } catch (const Error&) {  // no plan whatever the partition
    }
    bool fits = false;
    for (Outcome& outcome : outcomes) {
        for (const FoundPlan& found : outcome.found) {
            best = std::min(best, found.step);
            state_.best.add(found);
            fits = true;
        }
        state_.all.add(std::move(outcome));
    }
    if (fits && node.priority == Duration::max()) {
        take_back_refusal(candidate);
    }
}

/// The fastest plan of a candidate that was simulated, with whatever recompute; null: none fits.
const FoundPlan* FurtherPartitions::fastest_of(const Candidate& candidate) const {
    const FoundPlan* fastest = nullptr;
    for (const FoundPlan& plan : state_.all.found) {
        const ScheduleChoice& choice = plan.candidate.choice;
        if (plan.candidate.shape == candidate.shape &&
            choice.schedule == candidate.choice.schedule &&
            choice.chunks == candidate.choice.chunks &&
            (fastest == nullptr || plan.step < fastest->step)) {
            fastest = &plan;
        }
    }
    return fastest;
}

/// Moves layers between the pieces of a candidate, and simulates what comes of it. Returns the
/// actions that were simulated. Throws as make_plan where the candidate is no plan.
std::int64_t FurtherPartitions::improve_one(const Unexplored& node,
                                            const MovesQuestion& question,
                                            Duration& best) {
    const LayerMoves::Found found = moves_.take(question);
    try_each(node, found.partitions, best);
    return found.simulated;
}

namespace {

/// The actions that may be simulated for each candidate of a list.
class ActionShares {
  public:
    ActionShares(std::int64_t room, std::int64_t candidates) : room_(room), left_(candidates) {}

    /// The share of the next candidate.
    std::int64_t next() {
        const std::int64_t share =
            std::max(room_ / std::max<std::int64_t>(left_--, 1), fair_actions);
        return std::min({most_improved_actions, share, room_});
    }
    void take(std::int64_t actions) { room_ -= actions; }

  private:
    std::int64_t room_;
    std::int64_t left_;  ///< candidates
};

}  // namespace

/// What is asked first about the candidates of a list: from the partition of the fastest plan on.
MovesQuestion FurtherPartitions::question_of(const Candidate& candidate,
                                             std::int64_t actions,
                                             bool has_many_others) const {
    MovesQuestion question{.candidate = candidate, .starts = {{}}, .actions = actions};
    if (const FoundPlan* const found = fastest_of(candidate)) {
        question.starts.insert(question.starts.begin(), found->partition);
        if (has_many_others) {
            question.starts.pop_back();
        }
    }
    return question;
}

/// Moves layers between the pieces of candidates that have too many partitions to try them all: of
/// the most promising first. Those that turn out to be no plans, whatever the partition, are
/// removed.
void FurtherPartitions::improve(std::vector<Unexplored>& unexplored, Duration& best) {
    const bool has_many = unexplored.size() > few_unexplored;
    ActionShares shares(state_.options.most_partition_actions, std::ssize(unexplored));
    std::set<Candidate> no_plans;
    for (std::size_t i = 0; i < unexplored.size(); ++i) {
        const Unexplored& node = unexplored[i];
        const Candidate& candidate = node.candidate;
        // The next ones go ahead that have the same share whatever those before them take.
        ActionShares all_taken = shares;
        ActionShares none_taken = shares;
        const std::int64_t actions = shares.next();
        if (is_too_large_for(candidate, actions) || !state_.goes_on(0, node.relaxation)) {
            continue;
        }
        std::vector<MovesQuestion> ahead;
        for (std::size_t j = i; j < unexplored.size() && ahead.size() < moved_at_once &&
                                !moves_.is_prepared(candidate);
             ++j) {
            const std::int64_t share = all_taken.next();
            if (share != none_taken.next()) {
                break;
            }
            if (!is_too_large_for(unexplored[j].candidate, share)) {
                all_taken.take(share);
                ahead.push_back(question_of(unexplored[j].candidate, share, has_many));
            }
        }
        moves_.prepare(ahead);
        try {
            shares.take(improve_one(node, question_of(candidate, actions, has_many), best));
        } catch (const Error&) {
            no_plans.insert(candidate);
        }
    }
    moves_.forget();
    std::erase_if(unexplored,
                  [&](const Unexplored& node) { return no_plans.contains(node.candidate); });
}

namespace {

std::int64_t actions_to_finish(std::int64_t room) {
    return std::min(most_improved_actions, room);
}

}  // namespace

bool FurtherPartitions::has_one_partition(const FoundPlan& plan) const {
    return !state_.space.scenario.pipeline.partition.is_auto() || std::ssize(plan.partition) == 1 ||
           std::ssize(plan.partition) == state_.space.model.layer_count();
}

FurtherPartitions::Finishing FurtherPartitions::finishing(const FoundPlan& plan,
                                                          std::int64_t actions) const {
    const Candidate& candidate = plan.candidate;
    const std::optional<Duration> least =
        state_.bounds.of(candidate.shape, candidate.choice).least(candidate.choice, plan.step);
    Finishing finishing{.node = {.priority = plan.step,
                                 .relaxation = least.value_or(Duration{}),
                                 .candidate = candidate},
                        .actions = actions};
    finishing.faster = faster_partitions(finishing.node, plan.step, actions);
    const auto& all = finishing.faster.all;
    finishing.tries_all = all && std::ssize(*all) <= actions / actions_of(candidate);
    finishing.moves_layers = finishing.faster.may_be_any && !finishing.tries_all &&
                             !is_too_large_for(candidate, actions);
    return finishing;
}

void FurtherPartitions::prepare_to_finish(std::span<const FoundPlan> plans, std::int64_t room) {
    std::vector<const FoundPlan*> open;
    const std::int64_t actions = actions_to_finish(room);
    for (const FoundPlan& plan : plans) {
        if (open.size() == moved_at_once || actions_to_finish(room) != actions) {
            break;
        }
        if (!finishing_.contains(plan.candidate) && !has_one_partition(plan)) {
            open.push_back(&plan);
        }
        room -= actions;
    }
    std::vector<Finishing> all(open.size());
    tbb::parallel_for(
        std::size_t{0}, open.size(), [&](std::size_t i) { all[i] = finishing(*open[i], actions); });
    std::vector<MovesQuestion> questions;
    for (Finishing& one : all) {
        if (one.moves_layers) {
            questions.push_back(one.question());
        }
        finishing_.insert_or_assign(one.node.candidate, std::move(one));
    }
    moves_.prepare(questions);
}

bool FurtherPartitions::finish(const FoundPlan& plan, std::int64_t& room) {
    if (has_one_partition(plan)) {
        return true;
    }
    const std::int64_t actions = actions_to_finish(room);
    const std::int64_t each = actions_of(plan.candidate);
    const auto known = finishing_.find(plan.candidate);
    const bool is_prepared = known != finishing_.end() && known->second.actions == actions &&
                             known->second.node.priority == plan.step;
    const Finishing own = is_prepared ? known->second : finishing(plan, actions);
    if (!own.faster.may_be_any) {
        return true;
    }
    Duration best = plan.step;
    if (own.tries_all) {
        room -= std::ssize(*own.faster.all) * each;
        try_each(own.node, *own.faster.all, best);
        return true;
    }
    if (!own.moves_layers) {
        return false;
    }
    const std::int64_t simulated = improve_one(own.node, own.question(), best);
    room -= simulated;
    const bool has_ended_by_itself = simulated + 2 * each < actions;
    return actions == most_improved_actions || has_ended_by_itself;
}

/// `room`: actions that may be simulated.
FasterPartitions FurtherPartitions::faster_partitions(const Unexplored& node,
                                                      Duration best,
                                                      std::int64_t room) const {
    const Candidate& candidate = node.candidate;
    if (node.relaxation >= best) {
        return {};
    }
    const ShapeBounds bounds = state_.bounds.of(candidate.shape, candidate.choice);
    FasterPartitions faster{.may_be_any = bounds.may_be_faster(candidate.choice, best)};
    if (faster.may_be_any && (best < Duration::max() || is_quick_to_count(candidate))) {
        faster.all = bounds.faster_partitions(candidate.choice, best, room / actions_of(candidate));
    }
    return faster;
}

const FasterPartitions& FurtherPartitions::Prefetched::of(std::size_t index,
                                                          Duration best,
                                                          std::int64_t room) {
    if (best != best_ || index >= first_ + found_.size()) {
        constexpr std::size_t at_once = 16;
        first_ = index;
        best_ = best;
        found_.assign(std::min(at_once, unexplored_.size() - index), {});
        tbb::parallel_for(std::size_t{0}, found_.size(), [&](std::size_t i) {
            found_[i] = partitions_.faster_partitions(unexplored_[index + i], best, room);
        });
    }
    return found_[index - first_];
}

namespace {

/// Candidates of as many stages and micro-batches, whose bounds one thread raises: they have orders
/// and sums of layers in common.
class LikeCandidates {
  public:
    /// `enough`: what is not below it need not be told.
    LikeCandidates(const SearchState& state, const RaisedFor& purpose, Duration enough)
        : state_(state), purpose_(purpose), enough_(enough) {}

    void raise(Unexplored& node, RaisedBy how) {
        node.knows_ways = true;
        try {
            const ShapeBounds& bounds = bounds_of(node.candidate);
            if (how == RaisedBy::Ways) {
                raise_by_ways(node, bounds, few_turns);
                return;
            }
            raise_by_chain(node, bounds);
            if (node.relaxation < enough_) {
                raise_by_ways(node, bounds, many_turns);
            }
        } catch (const Error&) {  // there is no plan
            node.relaxation = purpose_.best;
        }
    }

  private:
    static constexpr int few_turns = 24;
    static constexpr int many_turns = 150;

    struct Known {
        std::optional<OrderPaths> paths{};
        std::optional<Error> refusal{};
        std::map<bool, WaysAndPrices> best{};  ///< [recompute by rank]: what bounded best last
    };

    void raise_by_ways(Unexplored& node, const ShapeBounds& bounds, int turns) {
        const ScheduleChoice& choice = node.candidate.choice;
        if (Known* const known = known_of(choice, bounds)) {
            const WaysSearch search{.ceiling = purpose_.best,
                                    .enough = enough_,
                                    .turns = turns,
                                    .from = &known->best[choice.recompute_by_rank]};
            const auto least = bounds.least_by_ways(choice, *known->paths, search);
            node.relaxation = std::max(node.relaxation, least.value_or(purpose_.best));
        }
    }

    void raise_by_chain(Unexplored& node, const ShapeBounds& bounds) const {
        // Candidates of which no partition is known that fits are explored by their bounds.
        const bool is_asked = purpose_.explored && node.priority == Duration::max();
        const Duration enough = is_asked ? Duration::max() : enough_;
        const Duration ceiling = purpose_.explored ? purpose_.best : Duration::max();
        node.relaxation =
            bounds.closest_bound(node.candidate.choice, node.relaxation, ceiling, enough);
        node.is_closest = node.relaxation < enough;
    }

    const ShapeBounds& bounds_of(const Candidate& candidate) {
        const CostOptions options = cost_options_of(state_.space.scenario, candidate.choice);
        auto known = bounds_.find({candidate.shape, options});
        if (known == bounds_.end()) {
            known = bounds_
                        .emplace(std::pair(candidate.shape, options),
                                 state_.bounds.of(candidate.shape, candidate.choice))
                        .first;
        }
        return known->second;
    }

    /// Null where ways say nothing. Throws Error(Infeasible) where the schedule has no such order.
    Known* known_of(const ScheduleChoice& choice, const ShapeBounds& bounds) {
        const auto [known, is_new] = paths_.try_emplace({choice.schedule, choice.chunks});
        Known& of = known->second;
        if (is_new) {
            try {
                if (const auto order = bounds.order_with_ways(choice)) {
                    of.paths = order_paths(*order);
                }
            } catch (const Error& error) {
                of.refusal = error;
            }
        }
        if (of.refusal) {
            throw *of.refusal;
        }
        return of.paths ? &of : nullptr;
    }

    const SearchState& state_;
    RaisedFor purpose_;
    Duration enough_;
    std::map<std::pair<Shape, CostOptions>, ShapeBounds> bounds_{};
    std::map<std::pair<std::string, int>, Known> paths_{};  ///< [schedule, chunks]
};

}  // namespace

/// Raises the bounds of candidates by what their orders say, the least first, as long as that
/// raises the least of all; and removes those that have no order, or no partition that fits or is
/// faster than the best plan. Of others than the least it is enough to know that they are not below
/// it.
void FurtherPartitions::raise_bounds(std::vector<Unexplored>& unexplored,
                                     const RaisedFor& purpose) const {
    const Duration best = purpose.best;
    constexpr std::size_t most_at_once = 8192;  // which have orders in common
    constexpr std::size_t few = 128;
    constexpr std::size_t first_of_few = 8;
    const auto sort = [](std::span<Unexplored> nodes) {
        std::ranges::sort(nodes, [](const Unexplored& a, const Unexplored& b) {
            return std::tie(a.relaxation, a.candidate) < std::tie(b.relaxation, b.candidate);
        });
    };
    const auto part_of = [](std::span<Unexplored> nodes, std::size_t first, std::size_t most) {
        return nodes.subspan(first, std::min(most, nodes.size() - first));
    };
    Duration least = best;  // of those with both bounds
    sort(unexplored);
    std::size_t many = 512;  // few at first: what these say spares the others turns
    for (std::size_t i = 0; i < unexplored.size() && unexplored[i].relaxation < least;
         i += std::exchange(many, std::min(2 * many, most_at_once))) {
        const std::span<Unexplored> nodes = part_of(unexplored, i, many);
        raise_bounds_of(nodes, RaisedBy::Ways, purpose, least);
        sort(nodes);
        for (std::size_t j = 0; j < nodes.size() && nodes[j].relaxation < least; j += few) {
            if (!state_.goes_on(0, nodes[j].relaxation)) {
                return;
            }
            const std::span<Unexplored> first_ones = part_of(nodes, j, few);
            std::size_t at_once = first_of_few;
            for (std::size_t k = 0; k < first_ones.size();
                 k += std::exchange(at_once, 2 * at_once)) {
                const std::span<Unexplored> next_ones = part_of(first_ones, k, at_once);
                raise_bounds_of(next_ones, RaisedBy::Chain, purpose, least);
                for (const Unexplored& node : next_ones) {
                    least = std::min(least, node.relaxation);
                }
            }
        }
    }
    std::erase_if(unexplored, [&](const Unexplored& node) { return node.relaxation >= best; });
}

void FurtherPartitions::raise_bounds_of(std::span<Unexplored> nodes,
                                        RaisedBy how,
                                        const RaisedFor& purpose,
                                        Duration enough) const {
    const auto is_done = [&](const Unexplored& node) {
        return how == RaisedBy::Ways
                   ? node.knows_ways
                   : node.is_closest || (!purpose.explored && node.relaxation >= enough);
    };
    std::map<std::pair<int, int>, std::vector<Unexplored*>> alike;
    for (Unexplored& node : nodes) {
        const Shape& shape = node.candidate.shape;
        if (node.relaxation < purpose.best && !is_done(node)) {
            alike[{shape.stages, shape.micro_batches}].push_back(&node);
        }
    }
    std::vector<std::vector<Unexplored*>> groups;
    for (auto& [key, of_group] : alike) {
        groups.push_back(std::move(of_group));
    }
    tbb::parallel_for(std::size_t{0}, groups.size(), [&](std::size_t i) {
        LikeCandidates like(state_, purpose, enough);
        for (Unexplored* const node : groups[i]) {
            like.raise(*node, how);
        }
    });
}

/// Simulates what is left of the partitions of the unexplored candidates; returns what bounds the
/// candidates that have too many.
Duration FurtherPartitions::explore(Duration best) {
    Duration bound = Duration::max();
    std::int64_t room = state_.options.most_partition_actions;
    std::vector<Unexplored> too_many;
    std::vector<Unexplored> left;
    if (room == 0 && best < Duration::max()) {
        for (const Unexplored& node : std::exchange(state_.all.unexplored, {})) {
            bound = std::min(bound, node.relaxation);
        }
        return bound;
    }
    std::int64_t looked_at = 0;
    std::vector<Unexplored> open = std::exchange(state_.all.unexplored, {});
    raise_bounds(open, {.best = best, .explored = true});
    const std::vector<Unexplored> unexplored = in_turn(std::move(open));
    Prefetched ahead(*this, unexplored);
    for (std::size_t i = 0; i < unexplored.size(); ++i) {
        const Unexplored& node = unexplored[i];
        if (node.relaxation >= best) {
            continue;
        }
        const Candidate& candidate = node.candidate;
        looked_at += std::int64_t{state_.space.model.layer_count()} * candidate.shape.stages *
                     candidate.choice.chunks;
        if (looked_at > most_looked_at || !state_.goes_on(0, node.relaxation)) {
            left.push_back(node);
            continue;
        }
        const FasterPartitions& faster = ahead.of(i, best, room);
        if (!faster.may_be_any) {
            continue;
        }
        const std::int64_t most = room / actions_of(candidate);
        if (faster.all && std::ssize(*faster.all) <= most) {
            room -= std::ssize(*faster.all) * actions_of(candidate);
            try_each(node, *faster.all, best);
            continue;
        }
        too_many.push_back(node);
    }
    improve(too_many, best);
    std::ranges::move(too_many, std::back_inserter(left));
    raise_bounds(left, {.best = best, .explored = false});
    for (const Unexplored& node : left) {
        bound = std::min(bound, node.relaxation);
    }
    return bound;
}

namespace {

/// Candidates that are improved for each row that is to be finished.
constexpr std::int64_t most_for_a_row = 3;
/// Candidates of one shape and schedule that are simulated beside those that were.
constexpr std::size_t most_siblings = 8;

class Rows {
  public:
    Rows(SearchState& state, FurtherPartitions& partitions)
        : state_(state), partitions_(partitions) {}

    void finish() {
        std::int64_t left = most_for_a_row * state_.options.finished_rows;
        std::int64_t room = state_.options.most_row_actions;
        while (const std::optional<Row> row = next()) {
            if (left-- == 0 || !state_.goes_on(0, row->plan.step)) {
                break;
            }
            const Candidate& candidate = row->plan.candidate;
            partitions_.prepare_to_finish(row->is_shown ? shown_ones() : std::vector{row->plan},
                                          room);
            tried_.insert(candidate);
            if (partitions_.finish(row->plan, room)) {
                finished_.insert(candidate);
            }
            if (row->is_shown) {
                try_siblings(candidate);
            }
        }
        for (FoundPlan& plan : state_.all.found) {
            plan.finished = finished_.contains(plan.candidate);
        }
    }

  private:
    struct Row {
        FoundPlan plan;
        bool is_shown = false;
    };

    std::vector<FoundPlan> all() const {
        std::vector<FoundPlan> ranked = state_.all.found;
        rank(ranked);
        return fastest_of_each_candidate(ranked);
    }

    std::size_t shown_of(const std::vector<FoundPlan>& rows) const {
        return std::min(rows.size(), static_cast<std::size_t>(state_.options.finished_rows));
    }

    /// The rows that are shown and were not tried.
    std::vector<FoundPlan> shown_ones() const {
        std::vector<FoundPlan> rows = all();
        rows.resize(shown_of(rows));
        std::erase_if(rows,
                      [this](const FoundPlan& row) { return tried_.contains(row.candidate); });
        return rows;
    }

    /// The fastest row that was not tried; of those that are not shown the fastest that may be
    /// shown with another partition.
    std::optional<Row> next() {
        const std::vector<FoundPlan> rows = all();
        const std::size_t shown = shown_of(rows);
        for (std::size_t i = 0; i < rows.size() && shown > 0; ++i) {
            const FoundPlan& plan = rows[i];
            const bool is_shown = i < shown;
            if (!tried_.contains(plan.candidate) &&
                (is_shown || least_of(plan) < rows[shown - 1].step)) {
                return Row{.plan = plan, .is_shown = is_shown};
            }
        }
        return std::nullopt;
    }

    /// What no partition of the plan's candidate goes below.
    Duration least_of(const FoundPlan& plan) {
        const auto [known, is_new] = least_.try_emplace(plan.candidate);
        if (is_new) {
            const ScheduleChoice& choice = plan.candidate.choice;
            const ShapeBounds bounds = state_.bounds.of(plan.candidate.shape, choice);
            const Duration least = bounds.least(choice, plan.step).value_or(Duration{});
            known->second = bounds.closest_bound(choice, least, plan.step);
        }
        return known->second;
    }

    Duration step_of(const Candidate& candidate) const {
        Duration step = Duration::max();
        for (const FoundPlan& plan : state_.all.found) {
            step = plan.candidate == candidate ? std::min(step, plan.step) : step;
        }
        return step;
    }

    /// What was left out beside a row, though it may be faster than that.
    std::optional<FrontierNode> sibling(const Candidate& candidate, Duration step) const {
        if (state_.simulated.contains(candidate)) {
            return std::nullopt;
        }
        try {
            ShapeBounds bounds = state_.bounds.of(candidate.shape, candidate.choice);
            const std::optional<Duration> least = bounds.least(candidate.choice, step);
            if (!least || *least >= step) {
                return std::nullopt;
            }
            return FrontierNode{
                .bound = bounds.least_of_first(candidate.choice, *least).value_or(*least),
                .relaxation = *least,
                .actions = actions_of(candidate),
                .candidate = candidate};
        } catch (const Error&) {  // its costs are not known
            return std::nullopt;
        }
    }

    /// Simulates candidates of the same shape, schedule and number of chunks.
    void try_siblings(const Candidate& candidate) {
        const Shape& shape = candidate.shape;
        const ScheduleChoice& choice = candidate.choice;
        if (!with_siblings_.emplace(shape, choice.schedule, choice.chunks).second) {
            return;
        }
        const Duration step = step_of(candidate);
        std::vector<FrontierNode> siblings;
        for (const ScheduleChoice& other : state_.bounds.choices().of(shape)) {
            if (other.schedule == choice.schedule && other.chunks == choice.chunks) {
                if (auto node = sibling({.shape = shape, .choice = other}, step)) {
                    siblings.push_back(*std::move(node));
                }
            }
        }
        std::ranges::stable_sort(siblings, {}, &FrontierNode::bound);
        siblings.resize(std::min(siblings.size(), most_siblings));
        std::vector<Outcome> outcomes(siblings.size());
        tbb::parallel_for(std::size_t{0}, siblings.size(), [&](std::size_t i) {
            outcomes[i] = state_.simulate(siblings[i].candidate, siblings[i].bound);
        });
        for (const FrontierNode& sibling : siblings) {
            state_.simulated.insert(sibling.candidate);
        }
        for (Outcome& outcome : outcomes) {
            state_.all.actions += outcome.actions;
            if (!outcome.found.empty()) {  // until now it counts as left out
                ++state_.all.searched;
                state_.all.pruned = std::max<std::int64_t>(0, state_.all.pruned - 1);
                std::ranges::move(outcome.found, std::back_inserter(state_.all.found));
            }
        }
    }

    SearchState& state_;
    FurtherPartitions& partitions_;
    std::set<Candidate> tried_{};
    std::set<Candidate> finished_{};
    std::map<Candidate, Duration> least_{};
    std::set<std::tuple<Shape, std::string, int>> with_siblings_{};
};

}  // namespace

void finish_rows(SearchState& state, FurtherPartitions& partitions) {
    Rows(state, partitions).finish();
}

}  // namespace pipetwin::sim
