// SPDX-License-Identifier: Apache-2.0
#include "sim/search/plan_search.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/scenario/cost_table.h"
#include "sim/search/further_partitions.h"
#include "sim/search/least_memory.h"
#include "sim/search/open_queue.h"
#include "sim/search/partition_choice.h"
#include "sim/search/search_state.h"

namespace pipetwin::sim {

namespace {

constexpr double runner_up = 0.05;  ///< of the best plan's step: how much slower one may be
constexpr std::int64_t largest_runner_up = 3'000'000;  ///< actions
constexpr std::ptrdiff_t most_too_large = 500;         ///< candidates that are kept

/// What becomes of one of those that are open.
struct Step {
    Outcome outcome;
    std::vector<Open> opened;
    /// Candidates that do not fit, with about what their fullest rank holds.
    std::vector<std::pair<Bytes, Candidate>> too_large{};
};

class Search {
  public:
    Search(const SearchSpace& space, const SearchOptions& options)
        : shapes_(shapes_of(space.scenario, space.model)),
          cell_stages_(options.every_cell ? telling_stage_counts(shapes_, space.model.layer_count())
                                          : std::vector<int>{}),
          state_(space, options, cell_stages_) {}

    SearchResult run();

  private:
    OpenQueue open_shapes();
    bool is_slower(const Open& open) const;
    bool is_known(const Open& open) const;
    Duration to_beat(const Shape& shape) const;
    void add_contender(const Open& open);
    void leave_out(const Open& open);
    std::vector<Open> next_wave(OpenQueue& queue);
    Step look_into(const Open& shape) const;
    void look_into(const Open& shape,
                   const ScheduleChoice& choice,
                   Duration ceiling,
                   ShapeBounds& bounds,
                   Step& step) const;
    Step simulate(const Open& open) const;
    void take(Step step, OpenQueue& queue);
    void try_runners_up(Duration best);
    SearchResult result(bool complete, Duration bound, Duration any_partition_bound);

    std::vector<Shape> shapes_;
    std::vector<int> cell_stages_;
    SearchState state_;
    RunnersUp runners_up_{};
    std::map<Candidate, Duration> without_recompute_{};  ///< those that fit, with their bounds
    std::optional<ClosestPlan> closest_{};
};

OpenQueue Search::open_shapes() {
    std::vector<Open> open;
    Duration least = Duration::max();
    for (const Shape& shape : shapes_) {
        state_.bounds.learn(shape);
        const Candidate first{.shape = shape, .choice = {}};
        // Where no costs are known there are no plans.
        const Duration bound =
            state_.bounds.unknown(shape) ? Duration::max() : state_.bounds.least(shape);
        open.push_back({.bound = bound,
                        .least = bound,
                        .actions = actions_of(first),
                        .candidate = first,
                        .is_shape = true});
        least = std::min(least, open.back().bound);
    }
    OpenQueue queue{OpenOrder(least)};
    for (Open& one : open) {
        queue.add(std::move(one));
    }
    return queue;
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

bool Search::is_slower(const Open& open) const {
    return !state_.bounds.unknown(open.candidate.shape) &&
           open.bound >= to_beat(open.candidate.shape);
}

/// Whether it recomputes as needed where nothing is needed: with the bound of the candidate without
/// recompute, which fits, the same partitions come out the same.
bool Search::is_known(const Open& open) const {
    if (!open.candidate.choice.recompute_by_rank) {
        return false;
    }
    Candidate twin = open.candidate;
    twin.choice.recompute_by_rank = false;
    const auto found = without_recompute_.find(twin);
    return found != without_recompute_.end() && found->second == open.bound;
}

/// A candidate that is not simulated, if other partitions than the first ones could be faster than
/// the best plan.
void Search::add_contender(const Open& open) {
    const bool is_open = state_.space.scenario.pipeline.partition.is_auto();
    if (is_open && open.least < state_.best.of(open.candidate.shape)) {
        state_.all.contenders.push_back(
            {.promise = open.bound, .least = open.least, .candidate = open.candidate});
    }
}

void Search::leave_out(const Open& open) {
    const std::int64_t count =
        open.is_shape ? std::ssize(state_.bounds.choices().of(open.candidate.shape)) : 1;
    state_.all.candidates += open.is_shape ? count : 0;
    state_.all.pruned += count;
    ++state_.settled;
    if (!open.is_shape) {
        runners_up_.add(open);
        if (open.least < open.bound) {
            add_contender(open);
        }
    }
    if (open.bound < state_.best.of(open.candidate.shape)) {
        state_.spared = std::min(state_.spared, open.bound);
    }
}

/// What is done at the same time. The same on every machine.
std::vector<Open> Search::next_wave(OpenQueue& queue) {
    constexpr std::size_t most = 32;
    constexpr std::int64_t most_actions = 2'000'000;
    constexpr std::int64_t of_a_shape = 20'000;  // looking into it takes about as long
    std::vector<Open> wave;
    std::int64_t actions = 0;
    while (!queue.empty() && wave.size() < most) {
        const Open& next = queue.first();
        if (is_slower(next)) {
            leave_out(queue.take());
            continue;
        }
        if (is_known(next)) {
            // The partitions that are tried first come out the same; others may not.
            add_contender(queue.take());
            ++state_.all.pruned;
            ++state_.settled;
            continue;
        }
        actions += next.is_shape ? of_a_shape : next.actions;
        if (!wave.empty() && actions > most_actions) {
            break;
        }
        wave.push_back(queue.take());
    }
    return wave;
}

/// The choices of a shape.
Step Search::look_into(const Open& shape) const {
    Step step;
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
    std::map<CostWays, ShapeBounds> bounds_of_ways;
    for (const ScheduleChoice& choice : choices) {
        const CostWays ways = ways_of(state_.space.scenario, choice);
        auto known = bounds_of_ways.find(ways);
        if (known == bounds_of_ways.end()) {
            try {
                known = bounds_of_ways.emplace(ways, state_.bounds.of(of, choice)).first;
            } catch (const Error& error) {
                step.outcome.refuse(error, {.shape = of, .choice = choice});
                continue;
            }
        }
        look_into(shape, choice, ceiling, known->second, step);
    }
    return step;
}

/// Opens or refuses a choice of a shape. What is not below `ceiling` is not looked at closely.
void Search::look_into(const Open& shape,
                       const ScheduleChoice& choice,
                       Duration ceiling,
                       ShapeBounds& bounds,
                       Step& step) const {
    const Candidate candidate{.shape = shape.candidate.shape, .choice = choice};
    const Duration floor = std::max(bounds.floor(), shape.bound);
    const std::optional<Duration> any =
        floor >= ceiling ? std::optional(floor) : bounds.least(choice, ceiling);
    const Duration least = std::max(any.value_or(floor), floor);
    const std::optional<Duration> bound =
        any && least < ceiling ? bounds.least_of_first(choice, least) : any;
    if (!bound) {
        step.outcome.refuse(out_of_memory(), candidate);
        step.too_large.emplace_back(bounds.even_share_of_memory(choice), candidate);
    }
    if (any && !bound && bounds.has_more_partitions()) {
        step.outcome.contenders.push_back(
            {.promise = Duration::max(), .least = least, .candidate = candidate});
    }
    if (bound) {
        step.opened.push_back({.bound = *bound,
                               .least = least,
                               .actions = actions_of(candidate),
                               .candidate = candidate});
    }
}

Step Search::simulate(const Open& open) const {
    const Candidate& candidate = open.candidate;
    Step step{.outcome = state_.simulate(candidate, open.bound), .opened = {}};
    if (step.outcome.breaks_a_rule) {
        return step;
    }
    const std::vector<FoundPlan>& found = step.outcome.found;
    if (found.empty()) {
        const ShapeBounds bounds = state_.bounds.of(candidate.shape, candidate.choice);
        step.too_large.emplace_back(bounds.even_share_of_memory(candidate.choice), candidate);
    }
    if (state_.space.scenario.pipeline.partition.is_auto()) {
        step.outcome.contenders.push_back(
            {.promise = found.empty() ? Duration::max() : found.front().step,
             .least = open.least,
             .candidate = candidate});
    }
    return step;
}

void Search::take(Step step, OpenQueue& queue) {
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
    for (Open& opened : step.opened) {
        if (is_slower(opened)) {
            leave_out(opened);
        } else {
            queue.add(std::move(opened));
        }
    }
    ++state_.settled;
}

/// So that the best plan has others to be compared with.
void Search::try_runners_up(Duration best) {
    std::vector<Open> nearest = runners_up_.within(best, runner_up);
    std::erase_if(nearest, [](const Open& open) { return open.actions > largest_runner_up; });
    constexpr std::size_t at_once = 16;
    for (std::size_t first = 0;
         first < nearest.size() && state_.all.searched < state_.options.least_ranked &&
         state_.goes_on(0, best);
         first += at_once) {
        std::vector<Step> steps(std::min(at_once, nearest.size() - first));
        tbb::parallel_for(std::size_t{0}, steps.size(), [&](std::size_t i) {
            steps[i] = simulate(nearest[first + i]);
        });
        for (std::size_t i = 0; i < steps.size(); ++i) {
            state_.simulated.insert(nearest[first + i].candidate);
        }
        for (Step& step : steps) {
            step.outcome.contenders.clear();
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
                        .any_order_bound = {},
                        .partitions = state_.partitions,
                        .candidates = state_.all.candidates,
                        .searched = state_.all.searched,
                        .pruned = state_.all.pruned,
                        .infeasible = {},
                        .closest = {}};
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
    for (const Shape& shape : result.shapes) {
        result.leaves_out_sequence_parallel =
            result.leaves_out_sequence_parallel ||
            (state_.space.scenario.pipeline.sequence_parallel.is_auto() &&
             shape.tensor_parallel > 1 &&
             !knows_shares(state_.space.profile, shape.tensor_parallel));
        if (!state_.bounds.unknown(shape)) {
            result.any_order_bound =
                std::min(result.any_order_bound, state_.bounds.share_of_any_order(shape));
        }
    }
    return result;
}

SearchResult Search::run() {
    OpenQueue queue = open_shapes();
    bool ended = false;
    while (!ended) {
        const std::vector<Open> wave = next_wave(queue);
        std::vector<Step> steps(wave.size());
        tbb::parallel_for(std::size_t{0}, wave.size(), [&](std::size_t i) {
            steps[i] = wave[i].is_shape ? look_into(wave[i]) : simulate(wave[i]);
        });
        for (std::size_t i = 0; i < wave.size(); ++i) {
            const ScheduleChoice& choice = wave[i].candidate.choice;
            if (!wave[i].is_shape) {
                state_.simulated.insert(wave[i].candidate);
            }
            if (!steps[i].outcome.found.empty() && choice.recompute == Recompute::None) {
                without_recompute_.emplace(wave[i].candidate, wave[i].bound);
            }
            take(std::move(steps[i]), queue);
        }
        ended = !state_.goes_on(queue.size(), queue.least()) || queue.empty();
    }
    const Duration bound = std::min(state_.spared, queue.least());
    Duration any_partition_bound = bound;
    FurtherPartitions partitions(state_);
    if (queue.empty()) {
        any_partition_bound =
            partitions.try_contenders(state_.best.of_all().value_or(Duration::max()));
    } else {
        any_partition_bound = std::min(bound, queue.least_of_any_partition());
        for (const Contender& contender : state_.all.contenders) {
            any_partition_bound = std::min(any_partition_bound, contender.least);
        }
    }
    if (queue.empty() && state_.best.of_all()) {
        try_runners_up(*state_.best.of_all());
        finish_rows(state_, partitions);
    }
    if (state_.options.finds_closest && queue.empty() && state_.all.found.empty()) {
        closest_ = closest_to_fitting(state_);
    }
    return result(queue.empty(), bound, any_partition_bound);
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
