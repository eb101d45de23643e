#include "sim/search/plan_search.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "sim/search/candidate_bounds.h"
#include "sim/search/open_queue.h"
#include "sim/search/trial.h"

namespace pipetwin::sim {

namespace {

constexpr double runner_up = 0.05;  ///< of the best plan's step: how much slower one may be
constexpr std::int64_t largest_runner_up = 3'000'000;  ///< actions

/// What a candidate has to beat: the fastest plan so far, of all or of its own cell.
class Best {
  public:
    /// These numbers of stages have a cell for each number of micro-batches.
    explicit Best(const std::vector<int>& cell_stages)
        : cell_stages_(cell_stages.begin(), cell_stages.end()) {}

    Duration of(const Shape& shape) const {
        if (!cell_stages_.contains(shape.stages)) {
            return all_;
        }
        const auto found = of_cell_.find(cell(shape));
        return found == of_cell_.end() ? Duration::max() : found->second;
    }
    std::optional<Duration> of_all() const {
        return all_ < Duration::max() ? std::optional(all_) : std::nullopt;
    }
    void add(const FoundPlan& plan) {
        all_ = std::min(all_, plan.step);
        const auto [entry, is_new] = of_cell_.try_emplace(cell(plan.candidate.shape), plan.step);
        entry->second = std::min(entry->second, plan.step);
    }

  private:
    static std::pair<int, int> cell(const Shape& shape) {
        return {shape.stages, shape.micro_batches};
    }

    std::set<int> cell_stages_;
    Duration all_ = Duration::max();
    std::map<std::pair<int, int>, Duration> of_cell_{};
};

/// What becomes of one of those that are open.
struct Step {
    Outcome outcome;
    std::vector<Open> opened;
};

class Search {
  public:
    Search(const SearchSpace& space, const SearchOptions& options)
        : space_(space),
          options_(options),
          bounds_(space.scenario, space.model, space.profile),
          shapes_(shapes_of(space.scenario, space.model)),
          cell_stages_(options.every_cell ? telling_stage_counts(shapes_, space.model.layer_count())
                                          : std::vector<int>{}),
          best_(cell_stages_) {}

    SearchResult run();

  private:
    OpenQueue open_shapes();
    bool is_slower(const Open& open) const;
    bool is_known(const Open& open) const;
    void leave_out(const Open& open);
    std::vector<Open> next_wave(OpenQueue& queue);
    Step look_into(const Open& shape) const;
    Step simulate(const Open& open) const;
    void take(Step step, OpenQueue& queue);
    bool goes_on(std::size_t left, Duration bound);
    bool is_quick_to_count(const Candidate& candidate) const;
    Duration try_partitions(Duration best);
    void try_runners_up(Duration best);
    SearchResult result(bool complete, Duration bound, Duration any_partition_bound);

    const SearchSpace space_;
    const SearchOptions& options_;
    CandidateBounds bounds_;
    std::vector<Shape> shapes_;
    std::vector<int> cell_stages_;
    Best best_;
    Outcome all_{};
    RunnersUp runners_up_{};
    std::map<Candidate, Duration> without_recompute_{};  ///< those that fit, with their bounds
    /// The least bound of what was left out though it might be faster than the best.
    Duration spared_ = Duration::max();
    std::int64_t settled_ = 0;  ///< shapes and candidates
    std::int64_t partitions_ = 0;
};

OpenQueue Search::open_shapes() {
    std::vector<Open> open;
    Duration least = Duration::max();
    for (const Shape& shape : shapes_) {
        bounds_.learn(shape);
        const Candidate first{.shape = shape, .choice = {}};
        // Where no costs are known there are no plans.
        open.push_back({.bound = bounds_.unknown(shape) ? Duration::max() : bounds_.least(shape),
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

/// Whether it cannot beat the best plan, or by so little that it does not count any more.
bool Search::is_slower(const Open& open) const {
    const Duration best = best_.of(open.candidate.shape);
    if (best == Duration::max() || bounds_.unknown(open.candidate.shape)) {
        return false;
    }
    const bool content = all_.actions >= options_.exact_actions;
    return open.bound >= best - (content ? part(best, options_.tolerance) : Duration{});
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

void Search::leave_out(const Open& open) {
    const std::int64_t count =
        open.is_shape ? std::ssize(choices_of(space_.scenario, space_.model, open.candidate.shape))
                      : 1;
    all_.candidates += open.is_shape ? count : 0;
    all_.pruned += count;
    ++settled_;
    if (!open.is_shape) {
        runners_up_.add(open);
    }
    if (open.bound < best_.of(open.candidate.shape)) {
        spared_ = std::min(spared_, open.bound);
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
            queue.take();
            ++all_.pruned;
            ++settled_;
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
    const std::vector<ScheduleChoice> choices = choices_of(space_.scenario, space_.model, of);
    step.outcome.candidates = std::ssize(choices);
    if (const std::string* const unknown = bounds_.unknown(of)) {
        for (const ScheduleChoice& choice : choices) {
            step.outcome.refuse(*unknown, {.shape = of, .choice = choice});
        }
        return step;
    }
    ShapeBounds bounds = bounds_.of(of);
    const Duration best = best_.of(of);
    const Duration ceiling =
        best == Duration::max() ? best : best + part(best, runner_up) + Duration{1};
    for (const ScheduleChoice& choice : choices) {
        const Candidate candidate{.shape = of, .choice = choice};
        const std::optional<Duration> least = bounds.least(choice, ceiling);
        if (!least) {
            step.outcome.refuse(out_of_memory, candidate);
            continue;
        }
        step.opened.push_back({.bound = std::max(*least, shape.bound),
                               .actions = actions_of(candidate),
                               .candidate = candidate});
    }
    return step;
}

Step Search::simulate(const Open& open) const {
    const Candidate& candidate = open.candidate;
    ShapeBounds bounds = bounds_.of(candidate.shape);
    Step step;
    step.outcome =
        try_candidate(space_, candidate, bounds.partitions(candidate.choice, open.bound));
    if (!step.outcome.breaks_a_rule && bounds.has_more_partitions(candidate.choice)) {
        step.outcome.contenders.push_back({.least = open.bound, .candidate = candidate});
    }
    return step;
}

void Search::take(Step step, OpenQueue& queue) {
    for (const FoundPlan& found : step.outcome.found) {
        best_.add(found);
    }
    all_.add(std::move(step.outcome));
    for (Open& open : step.opened) {
        if (is_slower(open)) {
            leave_out(open);
        } else {
            queue.add(std::move(open));
        }
    }
    ++settled_;
}

/// None of those that are left is below the bound.
bool Search::goes_on(std::size_t left, Duration bound) {
    if (all_.actions >= options_.most_actions) {
        return false;
    }
    if (!options_.progress) {
        return true;
    }
    const auto settled = static_cast<double>(settled_);
    return options_.progress({.share = settled / (settled + static_cast<double>(left)),
                              .best = best_.of_all(),
                              .bound = std::min(spared_, bound)});
}

/// Where nothing fits yet no limit makes the partitions fewer: whether so many can be looked at.
bool Search::is_quick_to_count(const Candidate& candidate) const {
    const std::int64_t layers = space_.model.layer_count();
    return layers * layers * candidate.shape.stages <= 100'000;
}

/// Simulates what is left of the partitions of the contenders; returns what bounds the candidates
/// that have too many.
Duration Search::try_partitions(Duration best) {
    Duration bound = Duration::max();
    std::int64_t room = options_.most_partition_actions;
    std::ranges::sort(all_.contenders);
    for (const Contender& contender : all_.contenders) {
        if (contender.least >= best) {
            break;
        }
        const std::int64_t each = actions_of(contender.candidate);
        if (best == Duration::max() && !is_quick_to_count(contender.candidate)) {
            bound = std::min(bound, contender.least);
            continue;
        }
        const auto partitions =
            bounds_.of(contender.candidate.shape)
                .faster_partitions(contender.candidate.choice, best, room / each);
        if (!partitions) {
            bound = std::min(bound, contender.least);
            continue;
        }
        partitions_ += std::ssize(*partitions);
        room -= std::ssize(*partitions) * each;
        std::vector<Outcome> outcomes(partitions->size());
        tbb::parallel_for(std::size_t{0}, partitions->size(), [&](std::size_t i) {
            try_partition(space_, contender.candidate, (*partitions)[i], best, outcomes[i]);
        });
        for (Outcome& outcome : outcomes) {
            for (const FoundPlan& found : outcome.found) {
                best = std::min(best, found.step);
            }
            all_.add(std::move(outcome));
        }
    }
    return bound;
}

/// So that the best plan has others to be compared with.
void Search::try_runners_up(Duration best) {
    std::vector<Open> nearest = runners_up_.within(best, runner_up);
    std::erase_if(nearest, [](const Open& open) { return open.actions > largest_runner_up; });
    constexpr std::size_t at_once = 16;
    for (std::size_t first = 0;
         first < nearest.size() && all_.searched < options_.least_ranked && goes_on(0, best);
         first += at_once) {
        std::vector<Step> steps(std::min(at_once, nearest.size() - first));
        tbb::parallel_for(std::size_t{0}, steps.size(), [&](std::size_t i) {
            steps[i] = simulate(nearest[first + i]);
        });
        for (Step& step : steps) {
            step.outcome.contenders.clear();
            all_.add(std::move(step.outcome));
            --all_.pruned;
        }
    }
}

SearchResult Search::result(bool complete, Duration bound, Duration any_partition_bound) {
    SearchResult result{.shapes = std::move(shapes_),
                        .cell_stages = std::move(cell_stages_),
                        .complete = complete,
                        .ranked = std::move(all_.found),
                        .lower_bound = {},
                        .any_partition_bound = {},
                        .partitions = partitions_,
                        .candidates = all_.candidates,
                        .searched = all_.searched,
                        .pruned = all_.pruned,
                        .infeasible = {},
                        .closest = {}};
    for (auto& [rule, entry] : all_.infeasible) {
        result.infeasible.push_back(std::move(entry));
    }
    std::ranges::stable_sort(result.infeasible, std::greater{}, &Infeasible::count);
    if (result.ranked.empty()) {
        result.closest = std::move(all_.closest);
        result.lower_bound = bound == Duration::max() ? Duration{} : bound;
        return result;
    }
    std::ranges::stable_sort(result.ranked, {}, [](const FoundPlan& plan) {
        return std::tuple(plan.step, plan.candidate.shape.devices(), plan.peak, plan.candidate);
    });
    const auto same = [](const FoundPlan& a, const FoundPlan& b) {
        return a.candidate == b.candidate && a.partition == b.partition &&
               a.recompute == b.recompute;
    };
    const auto repeated = std::ranges::unique(result.ranked, same);
    result.ranked.erase(repeated.begin(), repeated.end());
    const Duration fastest = result.ranked.front().step;
    result.lower_bound = std::min(fastest, bound);
    result.proven_optimal = result.lower_bound == fastest;
    result.any_partition_bound = std::min(result.lower_bound, any_partition_bound);
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
            if (!steps[i].outcome.found.empty() && choice.recompute == Recompute::None) {
                without_recompute_.emplace(wave[i].candidate, wave[i].bound);
            }
            take(std::move(steps[i]), queue);
        }
        ended = !goes_on(queue.size(), queue.least()) || queue.empty();
    }
    const Duration bound = std::min(spared_, queue.least());
    Duration any_partition_bound = bound;
    if (queue.empty()) {
        any_partition_bound = try_partitions(best_.of_all().value_or(Duration::max()));
    }
    if (queue.empty() && best_.of_all()) {
        try_runners_up(*best_.of_all());
    }
    return result(queue.empty(), bound, any_partition_bound);
}

}  // namespace

SearchResult search_plans(const Scenario& scenario,
                          const Model& model,
                          const Profile& profile,
                          const SearchOptions& options) {
    return Search({.scenario = scenario, .model = model, .profile = profile}, options).run();
}

}  // namespace pipetwin::sim
