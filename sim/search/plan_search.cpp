// SPDX-License-Identifier: Apache-2.0
#include "sim/search/plan_search.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/scenario/cost_table.h"
#include "sim/search/frontier.h"
#include "sim/search/further_partitions.h"
#include "sim/search/least_memory.h"
#include "sim/search/partition_choice.h"
#include "sim/search/search_memory.h"
#include "sim/search/search_state.h"

namespace pipetwin::sim {

namespace {

constexpr double runner_up = 0.05;  ///< of the best plan's step: how much slower one may be
constexpr std::int64_t largest_runner_up = 3'000'000;  ///< actions
constexpr std::ptrdiff_t most_too_large = 500;         ///< candidates that are kept

/// The result of expanding one node of the frontier: an outcome, and the node's children.
struct Expansion {
    Outcome outcome;
    std::vector<FrontierNode> children;
    std::optional<Outcome> simulated{};  ///< what the simulation came to, for the memory
    /// Candidates that do not fit, with about what their fullest rank holds.
    std::vector<std::pair<Bytes, Candidate>> too_large{};
};

Shape with_micro_batches(Shape shape, int micro_batches) {
    shape.micro_batches = micro_batches;
    return shape;
}

class Search {
  public:
    Search(const SearchSpace& space, const SearchOptions& options)
        : shapes_(shapes_of(space.scenario, space.model, space.profile)),
          cell_stages_(options.every_cell ? telling_stage_counts(shapes_, space.model.layer_count())
                                          : std::vector<int>{}),
          memory_(options.memory ? options.memory : std::make_shared<SearchMemory>()),
          state_(space, options, *memory_, cell_stages_) {}

    SearchResult run();

  private:
    FrontierNode node_of(const Shape& shape) const;
    FrontierNode rough_node_of(const Shape& shape) const;
    FrontierNode node_of_family(const Shape& family) const;
    Frontier frontier_of_shapes();
    void refuse_all(std::span<const Shape> shapes);
    void improve_first(Frontier& frontier);
    bool is_slower(const FrontierNode& node) const;
    bool is_known(const FrontierNode& node) const;
    Duration to_beat(const Shape& shape) const;
    void add_unexplored(const FrontierNode& node);
    void leave_out(const FrontierNode& node);
    std::vector<FrontierNode> next_wave(Frontier& frontier);
    Expansion look_into(const FrontierNode& shape) const;
    bool look_into(const FrontierNode& shape,
                   const ScheduleChoice& choice,
                   Duration ceiling,
                   ShapeBounds& bounds,
                   Expansion& step) const;
    Expansion simulate(const FrontierNode& node) const;
    void know_simulated(const FrontierNode& node, Expansion& step);
    void take(Expansion step, Frontier& frontier);
    void try_runners_up(Duration best);
    SearchResult result(bool complete, Duration bound, Duration any_partition_bound);

    std::vector<Shape> shapes_;
    std::vector<int> cell_stages_;
    std::shared_ptr<SearchMemory> memory_;
    SearchState state_;
    /// [a shape without its micro-batches]: their numbers.
    std::map<Shape, std::vector<int>> families_{};
    RunnersUp runners_up_{};
    std::map<Candidate, Duration> without_recompute_{};  ///< those that fit, with their bounds
    std::optional<ClosestPlan> closest_{};
};

/// With the bound that all messages of the layers are part of. The shape's costs are read.
FrontierNode Search::node_of(const Shape& shape) const {
    const Candidate first{.shape = shape, .choice = {}};
    // Where no costs are known there are no plans.
    const Duration bound =
        state_.bounds.unknown(shape) ? Duration::max() : state_.bounds.least(shape);
    return {.bound = bound,
            .relaxation = bound,
            .actions = actions_of(first),
            .candidate = first,
            .is_shape = true};
}

/// Shapes that divide samples or experts are so many that most are left out by a rough bound.
Frontier Search::frontier_of_shapes() {
    std::vector<Shape> whole;
    std::vector<Shape> divided;
    std::ranges::partition_copy(
        shapes_, std::back_inserter(divided), std::back_inserter(whole), &Shape::is_divided);
    state_.bounds.learn(whole);
    if (!divided.empty() && !state_.bounds.may_hold_state(divided.front())) {
        refuse_all(divided);
        divided.clear();
    }
    state_.bounds.learn_work(divided);
    std::vector<FrontierNode> nodes;
    for (const Shape& shape : whole) {
        nodes.push_back(node_of(shape));
    }
    for (const Shape& shape : divided) {
        families_[with_micro_batches(shape, 0)].push_back(shape.micro_batches);
    }
    for (const auto& [family, micro_batches] : families_) {
        nodes.push_back(node_of_family(family));
    }
    Duration least = Duration::max();
    for (const FrontierNode& node : nodes) {
        least = std::min(least, node.bound);
    }
    Frontier frontier{FrontierOrder(least)};
    for (FrontierNode& one : nodes) {
        frontier.add(std::move(one));
    }
    return frontier;
}

/// All candidates of these shapes: they lack memory.
void Search::refuse_all(std::span<const Shape> shapes) {
    Outcome refused;
    for (const Shape& shape : shapes) {
        refused.candidates += state_.bounds.choices().count(shape);
    }
    refused.refuse(out_of_memory(), {.shape = shapes.front(), .choice = {}}, refused.candidates);
    state_.all.add(std::move(refused));
}

/// With a bound that leaves out messages.
FrontierNode Search::rough_node_of(const Shape& shape) const {
    const Duration bound = state_.bounds.least_without_messages(shape);
    return {.bound = bound,
            .relaxation = bound,
            .candidate = {.shape = shape, .choice = {}},
            .is_shape = true,
            .is_rough = true};
}

/// A family of shapes, all numbers of micro-batches, as one.
FrontierNode Search::node_of_family(const Shape& family) const {
    FrontierNode node;
    node.bound = Duration::max();
    for (const int micro_batches : families_.at(family)) {
        const FrontierNode one = rough_node_of(with_micro_batches(family, micro_batches));
        node = one.bound < node.bound ? one : node;
    }
    node.candidate.shape = family;
    return node;
}

/// Gives the rough ones that come first bounds with messages, until another comes first.
void Search::improve_first(Frontier& frontier) {
    constexpr std::size_t most = 64;
    while (!frontier.empty() && frontier.first().is_rough) {
        std::vector<Shape> shapes;
        while (!frontier.empty() && frontier.first().is_rough && shapes.size() < most) {
            const Shape family = frontier.take().candidate.shape;
            for (const int micro_batches : families_.at(family)) {
                const Shape shape = with_micro_batches(family, micro_batches);
                const FrontierNode node = rough_node_of(shape);
                if (is_slower(node)) {
                    leave_out(node);
                } else {
                    shapes.push_back(shape);
                }
            }
        }
        state_.bounds.learn(shapes);
        for (const Shape& shape : shapes) {
            frontier.add(node_of(shape));
        }
    }
}

/// The step that a candidate has to be faster than: that of the best plan, or less by what does not
/// count any more.
Duration Search::to_beat(const Shape& shape) const {
    const Duration best = state_.best.of(shape);
    if (best == Duration::max()) {
        return best;
    }
    const bool content = state_.all.actions >= state_.options.exact_actions;
    return best - (content ? part(best, state_.options.tolerance) : Duration{});
}

bool Search::is_slower(const FrontierNode& node) const {
    const bool is_known = node.is_rough || !state_.bounds.unknown(node.candidate.shape);
    return is_known && node.bound >= to_beat(node.candidate.shape);
}

/// Whether it recomputes as needed where nothing is needed: with the bound of the candidate without
/// recompute, which fits, the same partitions come out the same.
bool Search::is_known(const FrontierNode& node) const {
    if (!node.candidate.choice.recompute_by_rank) {
        return false;
    }
    Candidate twin = node.candidate;
    twin.choice.recompute_by_rank = false;
    const auto found = without_recompute_.find(twin);
    return found != without_recompute_.end() && found->second == node.bound;
}

/// A candidate that is not simulated, if other partitions than the first ones could be faster than
/// the best plan.
void Search::add_unexplored(const FrontierNode& node) {
    const bool is_open = state_.space.scenario.pipeline.partition.is_auto();
    if (is_open && node.relaxation < state_.best.of(node.candidate.shape)) {
        state_.all.unexplored.push_back(
            {.priority = node.bound, .relaxation = node.relaxation, .candidate = node.candidate});
    }
}

void Search::leave_out(const FrontierNode& node) {
    const std::int64_t count =
        node.is_shape ? state_.bounds.choices().count(node.candidate.shape) : 1;
    state_.all.candidates += node.is_shape ? count : 0;
    state_.all.pruned += count;
    ++state_.settled;
    if (!node.is_shape) {
        runners_up_.add(node);
        if (node.relaxation < node.bound) {
            add_unexplored(node);
        }
    }
    if (node.bound < state_.best.of(node.candidate.shape)) {
        state_.pruned_bound = std::min(state_.pruned_bound, node.bound);
    }
}

/// What is done at the same time. The same on every machine.
std::vector<FrontierNode> Search::next_wave(Frontier& frontier) {
    constexpr std::size_t most = 32;
    constexpr std::int64_t most_actions = 2'000'000;
    constexpr std::int64_t of_a_shape = 20'000;  // looking into it takes about as long
    std::vector<FrontierNode> wave;
    std::int64_t actions = 0;
    while (!frontier.empty() && wave.size() < most) {
        improve_first(frontier);
        if (frontier.empty()) {
            break;
        }
        const FrontierNode& next = frontier.first();
        if (is_slower(next)) {
            leave_out(frontier.take());
            continue;
        }
        if (is_known(next)) {
            // The partitions that are tried first come out the same; others may not.
            add_unexplored(frontier.take());
            ++state_.all.pruned;
            ++state_.settled;
            continue;
        }
        actions += next.is_shape ? of_a_shape : next.actions;
        if (!wave.empty() && actions > most_actions) {
            break;
        }
        wave.push_back(frontier.take());
    }
    return wave;
}

/// The choices of a shape.
Expansion Search::look_into(const FrontierNode& shape) const {
    Expansion step;
    const Shape& of = shape.candidate.shape;
    const std::vector<ScheduleChoice> choices = state_.bounds.choices().of(of);
    step.outcome.candidates = std::ssize(choices);
    if (const Error* const unknown = state_.bounds.unknown(of)) {
        for (const ScheduleChoice& choice : choices) {
            step.outcome.refuse(*unknown, {.shape = of, .choice = choice});
        }
        return step;
    }
    const Duration best = state_.best.of(of);
    const Duration ceiling =
        best == Duration::max() ? best : best + part(best, runner_up) + Duration{1};
    std::map<CostOptions, ShapeBounds> bounds_of_options;
    std::int64_t without_room = 0;
    const ScheduleChoice* first_without = nullptr;
    for (const ScheduleChoice& choice : choices) {
        const CostOptions options = cost_options_of(state_.space.scenario, choice);
        auto known = bounds_of_options.find(options);
        if (known == bounds_of_options.end()) {
            try {
                known = bounds_of_options.emplace(options, state_.bounds.of(of, choice)).first;
            } catch (const Error& error) {
                step.outcome.refuse(error, {.shape = of, .choice = choice});
                continue;
            }
        }
        if (!look_into(shape, choice, ceiling, known->second, step) && without_room++ == 0) {
            first_without = &choice;
        }
    }
    if (first_without != nullptr) {
        step.outcome.refuse(out_of_memory(), {.shape = of, .choice = *first_without}, without_room);
    }
    return step;
}

/// Opens a choice of a shape; returns whether some partition of it may fit. What is not below
/// `ceiling` is not looked at closely.
bool Search::look_into(const FrontierNode& shape,
                       const ScheduleChoice& choice,
                       Duration ceiling,
                       ShapeBounds& bounds,
                       Expansion& step) const {
    const Candidate candidate{.shape = shape.candidate.shape, .choice = choice};
    const Duration floor = std::max(bounds.floor(), shape.bound);
    const std::optional<Duration> any =
        floor >= ceiling ? std::optional(floor) : bounds.least(choice, ceiling);
    const Duration least = std::max(any.value_or(floor), floor);
    const std::optional<Duration> bound =
        any && least < ceiling ? bounds.least_of_first(choice, least) : any;
    if (!bound) {
        step.too_large.emplace_back(bounds.even_share_of_memory(choice), candidate);
    }
    if (any && !bound && bounds.has_more_partitions()) {
        step.outcome.unexplored.push_back(
            {.priority = Duration::max(), .relaxation = least, .candidate = candidate});
    }
    if (bound) {
        step.children.push_back({.bound = *bound,
                                 .relaxation = least,
                                 .actions = actions_of(candidate),
                                 .candidate = candidate});
    }
    return bound.has_value();
}

Expansion Search::simulate(const FrontierNode& node) const {
    const Candidate& candidate = node.candidate;
    Expansion step{.outcome = state_.simulate(candidate, node.bound), .children = {}};
    step.simulated = step.outcome;
    if (step.outcome.breaks_a_rule) {
        return step;
    }
    const std::vector<FoundPlan>& found = step.outcome.found;
    if (found.empty()) {
        const ShapeBounds bounds = state_.bounds.of(candidate.shape, candidate.choice);
        step.too_large.emplace_back(bounds.even_share_of_memory(candidate.choice), candidate);
    }
    if (state_.space.scenario.pipeline.partition.is_auto()) {
        step.outcome.unexplored.push_back(
            {.priority = found.empty() ? Duration::max() : found.front().step,
             .relaxation = node.relaxation,
             .candidate = candidate});
    }
    return step;
}

void Search::know_simulated(const FrontierNode& node, Expansion& step) {
    state_.simulated.insert(node.candidate);
    memory_->outcomes.try_emplace({node.candidate, node.bound}, *std::move(step.simulated));
    step.simulated.reset();
}

void Search::take(Expansion step, Frontier& frontier) {
    for (const FoundPlan& found : step.outcome.found) {
        state_.best.add(found);
    }
    state_.all.add(std::move(step.outcome));
    for (auto& [bytes, candidate] : step.too_large) {
        state_.too_large.emplace(bytes, std::move(candidate));
        if (std::ssize(state_.too_large) > most_too_large) {
            state_.too_large.erase(std::prev(state_.too_large.end()));
        }
    }
    for (FrontierNode& children : step.children) {
        if (is_slower(children)) {
            leave_out(children);
        } else {
            frontier.add(std::move(children));
        }
    }
    ++state_.settled;
}

/// So that the best plan has others to be compared with.
void Search::try_runners_up(Duration best) {
    std::vector<FrontierNode> nearest = runners_up_.within(best, runner_up);
    std::erase_if(nearest,
                  [](const FrontierNode& node) { return node.actions > largest_runner_up; });
    constexpr std::size_t at_once = 16;
    for (std::size_t first = 0;
         first < nearest.size() && state_.all.searched < state_.options.least_ranked &&
         state_.goes_on(0, best);
         first += at_once) {
        std::vector<Expansion> steps(std::min(at_once, nearest.size() - first));
        tbb::parallel_for(std::size_t{0}, steps.size(), [&](std::size_t i) {
            steps[i] = simulate(nearest[first + i]);
        });
        for (std::size_t i = 0; i < steps.size(); ++i) {
            know_simulated(nearest[first + i], steps[i]);
        }
        for (Expansion& step : steps) {
            step.outcome.unexplored.clear();
            state_.all.add(std::move(step.outcome));
            --state_.all.pruned;
        }
    }
}

SearchResult Search::result(bool complete, Duration bound, Duration any_partition_bound) {
    SearchResult result{.shapes = std::move(shapes_),
                        .cell_stages = std::move(cell_stages_),
                        .complete = complete,
                        .ranked = std::move(state_.all.found),
                        .lower_bound = {},
                        .any_partition_bound = {},
                        .cost_source = state_.space.profile.source,
                        .stack = state_.space.profile.stack,
                        .any_order_bound = {},
                        .partitions = state_.partitions,
                        .candidates = state_.all.candidates,
                        .searched = state_.all.searched,
                        .pruned = state_.all.pruned,
                        .infeasible = {},
                        .closest = {},
                        .memory = memory_};
    for (auto& [rule, entry] : state_.all.infeasible) {
        result.infeasible.push_back(std::move(entry));
    }
    std::ranges::stable_sort(result.infeasible, std::greater{}, &Infeasible::count);
    if (result.ranked.empty()) {
        result.closest = std::move(closest_);
        result.lower_bound = bound == Duration::max() ? Duration{} : bound;
        return result;
    }
    rank(result.ranked);
    const Duration fastest = result.ranked.front().step;
    result.lower_bound = std::min(fastest, bound);
    result.any_partition_bound = std::min(result.lower_bound, any_partition_bound);
    result.proven_optimal = complete && result.any_partition_bound == fastest;
    result.any_order_bound = fastest;
    std::set<int> sharing;
    for (const Shape& shape : result.shapes) {
        sharing.insert(shape.tensor_parallel);
        result.any_order_bound =
            std::min(result.any_order_bound, state_.bounds.share_of_any_order(shape));
    }
    result.leaves_out_sequence_parallel =
        state_.space.scenario.pipeline.sequence_parallel.is_auto() &&
        std::ranges::any_of(sharing, [&](int devices) {
            return devices > 1 && !knows_shares(state_.space.profile, devices);
        });
    return result;
}

SearchResult Search::run() {
    Frontier frontier = frontier_of_shapes();
    bool ended = false;
    while (!ended) {
        const std::vector<FrontierNode> wave = next_wave(frontier);
        std::vector<Expansion> steps(wave.size());
        tbb::parallel_for(std::size_t{0}, wave.size(), [&](std::size_t i) {
            steps[i] = wave[i].is_shape ? look_into(wave[i]) : simulate(wave[i]);
        });
        for (std::size_t i = 0; i < wave.size(); ++i) {
            const ScheduleChoice& choice = wave[i].candidate.choice;
            if (!wave[i].is_shape) {
                know_simulated(wave[i], steps[i]);
            }
            if (!steps[i].outcome.found.empty() && choice.recompute == Recompute::None) {
                without_recompute_.emplace(wave[i].candidate, wave[i].bound);
            }
            take(std::move(steps[i]), frontier);
        }
        ended = !state_.goes_on(frontier.size(), frontier.least()) || frontier.empty();
    }
    const Duration bound = std::min(state_.pruned_bound, frontier.least());
    Duration any_partition_bound = bound;
    FurtherPartitions partitions(state_);
    if (frontier.empty()) {
        any_partition_bound = partitions.explore(state_.best.of_all().value_or(Duration::max()));
    } else {
        any_partition_bound = std::min(bound, frontier.least_of_any_partition());
        for (const Unexplored& node : state_.all.unexplored) {
            any_partition_bound = std::min(any_partition_bound, node.relaxation);
        }
    }
    if (frontier.empty() && state_.best.of_all()) {
        try_runners_up(*state_.best.of_all());
        finish_rows(state_, partitions);
    }
    if (state_.options.finds_closest && frontier.empty() && state_.all.found.empty()) {
        closest_ = closest_to_fitting(state_);
    }
    return result(frontier.empty(), bound, any_partition_bound);
}

}  // namespace

SearchResult search_plans(const Scenario& scenario,
                          const Model& model,
                          const Profile& profile,
                          const SearchOptions& options) {
    require_same_layers(model, profile);
    return Search({.scenario = scenario, .model = model, .profile = profile}, options).run();
}

}  // namespace pipetwin::sim
