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
#include "sim/search/candidate_bounds.h"
#include "sim/search/open_queue.h"
#include "sim/search/partition_choice.h"
#include "sim/search/trial.h"

namespace pipetwin::sim {

namespace {

constexpr double runner_up = 0.05;  ///< of the best plan's step: how much slower one may be
constexpr std::int64_t largest_runner_up = 3'000'000;  ///< actions
/// Layers times pieces of the candidates of which further partitions are tried, together.
constexpr std::int64_t most_looked_at = 500'000;
constexpr std::int64_t most_improved_actions = 4'000'000;  ///< to improve one candidate
constexpr std::int64_t fair_actions = 1'500'000;           ///< of many candidates for each
constexpr std::size_t few_contenders = 4;    ///< for two searches of the partition of each
constexpr std::ptrdiff_t most_closest = 24;  ///< plans that are looked at where nothing fits

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
    /// Candidates that do not fit, with about what their fullest rank holds.
    std::vector<std::pair<Bytes, Candidate>> too_large{};
};

/// The partitions of a candidate that could be faster than the best plan.
struct FasterPartitions {
    bool may_be_any = false;
    /// None where they are too many, or would take long to find.
    std::optional<std::vector<std::vector<int>>> all{};
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
    /// Looks for the faster partitions of the contenders that come next at the same time, as long
    /// as the best plan stays the best.
    class LookedAhead {
      public:
        LookedAhead(const Search& search, const std::vector<Contender>& contenders)
            : search_(search), contenders_(contenders) {}

        /// As `faster_partitions` of the contender, but that with more room there may be more of
        /// them: those of less room are the same ones, or none.
        const FasterPartitions& of(std::size_t index, Duration best, std::int64_t room);

      private:
        const Search& search_;
        const std::vector<Contender>& contenders_;
        std::size_t first_ = 0;  ///< contender of the first of `found_`
        Duration best_{};        ///< for which they were found
        std::vector<FasterPartitions> found_{};
    };

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
    bool goes_on(std::size_t left, Duration bound);
    bool is_quick_to_count(const Candidate& candidate) const;
    FasterPartitions faster_partitions(const Contender& contender,
                                       Duration best,
                                       std::int64_t room) const;
    Duration try_partitions(Duration best);
    void try_each(const Contender& contender,
                  const std::vector<std::vector<int>>& partitions,
                  Duration& best);
    void take_back_refusal(const Candidate& candidate);
    const FoundPlan* fastest_of(const Candidate& candidate) const;
    void improve(std::vector<Contender>& contenders, Duration& best);
    void try_runners_up(Duration best);
    void find_closest();
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
    std::set<std::pair<Bytes, Candidate>> too_large_{};  ///< those that come nearest to fit
    std::int64_t settled_ = 0;                           ///< shapes and candidates
    bool is_stopped_ = false;                            ///< `progress` has said so
    std::int64_t partitions_ = 0;
};

OpenQueue Search::open_shapes() {
    std::vector<Open> open;
    Duration least = Duration::max();
    for (const Shape& shape : shapes_) {
        bounds_.learn(shape);
        const Candidate first{.shape = shape, .choice = {}};
        // Where no costs are known there are no plans.
        const Duration bound = bounds_.unknown(shape) ? Duration::max() : bounds_.least(shape);
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
    const Duration best = best_.of(shape);
    if (best == Duration::max()) {
        return best;
    }
    const bool content = all_.actions >= options_.exact_actions;
    return best - (content ? part(best, options_.tolerance) : Duration{});
}

bool Search::is_slower(const Open& open) const {
    return !bounds_.unknown(open.candidate.shape) && open.bound >= to_beat(open.candidate.shape);
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
    const bool is_open = !space_.scenario.pipeline.partition;
    if (is_open && open.least < best_.of(open.candidate.shape)) {
        all_.contenders.push_back(
            {.promise = open.bound, .least = open.least, .candidate = open.candidate});
    }
}

void Search::leave_out(const Open& open) {
    const std::int64_t count =
        open.is_shape ? std::ssize(bounds_.choices().of(open.candidate.shape)) : 1;
    all_.candidates += open.is_shape ? count : 0;
    all_.pruned += count;
    ++settled_;
    if (!open.is_shape) {
        runners_up_.add(open);
        if (open.least < open.bound) {
            add_contender(open);
        }
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
            // The partitions that are tried first come out the same; others may not.
            add_contender(queue.take());
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
    const std::vector<ScheduleChoice> choices = bounds_.choices().of(of);
    step.outcome.candidates = std::ssize(choices);
    if (const Error* const unknown = bounds_.unknown(of)) {
        for (const ScheduleChoice& choice : choices) {
            step.outcome.refuse(*unknown, {.shape = of, .choice = choice});
        }
        return step;
    }
    const Duration best = best_.of(of);
    const Duration ceiling =
        best == Duration::max() ? best : best + part(best, runner_up) + Duration{1};
    std::map<CostWays, ShapeBounds> bounds_of_ways;
    for (const ScheduleChoice& choice : choices) {
        const CostWays ways = ways_of(space_.scenario, choice);
        auto known = bounds_of_ways.find(ways);
        if (known == bounds_of_ways.end()) {
            try {
                known = bounds_of_ways.emplace(ways, bounds_.of(of, choice)).first;
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
    ShapeBounds bounds = bounds_.of(candidate.shape, candidate.choice);
    Step step;
    try {
        step.outcome =
            try_candidate(space_, candidate, bounds.partitions(candidate.choice, open.bound));
    } catch (const Error& error) {  // fewer layers than pieces
        step.outcome.refuse(error, candidate);
        return step;
    }
    if (!step.outcome.breaks_a_rule && step.outcome.found.empty()) {
        step.too_large.emplace_back(bounds.even_share_of_memory(candidate.choice), candidate);
    }
    if (!step.outcome.breaks_a_rule && bounds.has_more_partitions()) {
        const std::vector<FoundPlan>& found = step.outcome.found;
        step.outcome.contenders.push_back(
            {.promise = found.empty() ? Duration::max() : found.front().step,
             .least = open.least,
             .candidate = candidate});
    }
    return step;
}

void Search::take(Step step, OpenQueue& queue) {
    for (const FoundPlan& found : step.outcome.found) {
        best_.add(found);
    }
    all_.add(std::move(step.outcome));
    for (auto& [bytes, candidate] : step.too_large) {
        too_large_.emplace(bytes, std::move(candidate));
        if (std::ssize(too_large_) > most_closest) {
            too_large_.erase(std::prev(too_large_.end()));
        }
    }
    for (Open& opened : step.opened) {
        if (is_slower(opened)) {
            leave_out(opened);
        } else {
            queue.add(std::move(opened));
        }
    }
    ++settled_;
}

/// None of those that are left is below the bound.
bool Search::goes_on(std::size_t left, Duration bound) {
    if (is_stopped_ || all_.actions >= options_.most_actions) {
        return false;
    }
    if (!options_.progress) {
        return true;
    }
    const auto settled = static_cast<double>(settled_);
    is_stopped_ = !options_.progress({.share = settled / (settled + static_cast<double>(left)),
                                      .best = best_.of_all(),
                                      .bound = std::min(spared_, bound)});
    return !is_stopped_;
}

/// Where nothing fits yet no limit makes the partitions fewer: whether so many can be looked at.
bool Search::is_quick_to_count(const Candidate& candidate) const {
    const std::int64_t layers = space_.model.layer_count();
    return layers * layers * candidate.shape.stages <= 100'000;
}

/// A candidate of which no partition had been found that fits has one.
void Search::take_back_refusal(const Candidate& candidate) {
    std::erase_if(too_large_, [&](const auto& entry) { return entry.second == candidate; });
    const auto refused = all_.infeasible.find(std::string(out_of_memory_text));
    if (refused == all_.infeasible.end()) {
        return;
    }
    ++all_.searched;
    if (--refused->second.count == 0) {
        all_.infeasible.erase(refused);
    } else if (refused->second.example == candidate && !too_large_.empty()) {
        refused->second.example = too_large_.begin()->second;
    }
}

/// Simulates partitions of a candidate. `best` becomes the step of the fastest of all.
void Search::try_each(const Contender& contender,
                      const std::vector<std::vector<int>>& partitions,
                      Duration& best) {
    const Candidate& candidate = contender.candidate;
    partitions_ += std::ssize(partitions);
    std::vector<Outcome> outcomes(partitions.size());
    std::optional<CommonRows> common;
    if (partitions.size() > 2) {
        try {
            common = common_rows(space_, candidate, partitions.front());
        } catch (const Error&) {  // each says so itself
        }
    }
    tbb::parallel_for(std::size_t{0}, partitions.size(), [&](std::size_t i) {
        try {
            try_partition(
                space_, candidate, partitions[i], best, outcomes[i], common ? &*common : nullptr);
        } catch (const Error&) {  // no plan whatever the partition
            outcomes[i] = {};
        }
    });
    bool fits = false;
    for (Outcome& outcome : outcomes) {
        for (const FoundPlan& found : outcome.found) {
            best = std::min(best, found.step);
            best_.add(found);
            fits = true;
        }
        all_.add(std::move(outcome));
    }
    if (fits && contender.promise == Duration::max()) {
        take_back_refusal(candidate);
    }
}

/// The fastest plan of a candidate that was simulated, with whatever recompute; null: none fits.
const FoundPlan* Search::fastest_of(const Candidate& candidate) const {
    const FoundPlan* fastest = nullptr;
    for (const FoundPlan& plan : all_.found) {
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

/// Moves layers between the pieces of candidates that have too many partitions to try them all: of
/// the most promising first. Those that turn out to be no plans, whatever the partition, are
/// removed.
void Search::improve(std::vector<Contender>& contenders, Duration& best) {
    std::int64_t room = options_.most_partition_actions;
    std::int64_t left = std::ssize(contenders);
    std::set<Candidate> no_plans;
    for (const Contender& contender : contenders) {
        const Candidate& candidate = contender.candidate;
        const FoundPlan* const found = fastest_of(candidate);
        const std::vector<int> first = found == nullptr ? std::vector<int>{} : found->partition;
        const std::int64_t share = std::max(room / std::max<std::int64_t>(left--, 1), fair_actions);
        const std::int64_t actions = std::min({most_improved_actions, share, room});
        if (actions < 10 * actions_of(candidate) || !goes_on(0, contender.least)) {
            continue;
        }
        SettledScenario settled = with_candidate(space_.scenario, candidate);
        if (candidate.choice.recompute_by_rank && space_.scenario.pipeline.recompute_auto) {
            settled.pipeline.recompute = Recompute::Always;
        }
        try {
            std::vector<std::vector<int>> chosen;
            const auto choose = [&](const std::vector<int>& begin) {
                ChosenPartition one =
                    chosen_partition(settled, space_.model, space_.profile, actions, begin);
                room -= one.actions;
                chosen.push_back(std::move(one.layers_per_piece));
            };
            choose(first);
            if (!first.empty() && contenders.size() <= few_contenders) {
                choose({});  // what `partition = "auto"` of this candidate comes to
            }
            try_each(contender, chosen, best);
        } catch (const Error&) {
            no_plans.insert(candidate);
        }
    }
    std::erase_if(contenders, [&](const Contender& contender) {
        return no_plans.contains(contender.candidate);
    });
}

/// The order in which contenders are looked at: those with a plan or a bound, the most promising
/// first, by turns with those of which no partition has been found that fits, the least bound
/// first.
std::vector<Contender> in_turn(std::vector<Contender> contenders) {
    const auto refused = std::ranges::partition(
        contenders, [](const Contender& of) { return of.promise < Duration::max(); });
    const std::span<Contender> known(contenders.begin(), refused.begin());
    const std::span<Contender> others(refused.begin(), refused.end());
    std::ranges::sort(known);
    std::ranges::sort(others);
    std::vector<Contender> result;
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

/// `room`: actions that may be simulated.
FasterPartitions Search::faster_partitions(const Contender& contender,
                                           Duration best,
                                           std::int64_t room) const {
    const Candidate& candidate = contender.candidate;
    if (contender.least >= best) {
        return {};
    }
    const ShapeBounds bounds = bounds_.of(candidate.shape, candidate.choice);
    FasterPartitions faster{.may_be_any = bounds.may_be_faster(candidate.choice, best)};
    if (faster.may_be_any && (best < Duration::max() || is_quick_to_count(candidate))) {
        faster.all = bounds.faster_partitions(candidate.choice, best, room / actions_of(candidate));
    }
    return faster;
}

const FasterPartitions& Search::LookedAhead::of(std::size_t index,
                                                Duration best,
                                                std::int64_t room) {
    if (best != best_ || index >= first_ + found_.size()) {
        constexpr std::size_t at_once = 16;
        first_ = index;
        best_ = best;
        found_.assign(std::min(at_once, contenders_.size() - index), {});
        tbb::parallel_for(std::size_t{0}, found_.size(), [&](std::size_t i) {
            found_[i] = search_.faster_partitions(contenders_[index + i], best, room);
        });
    }
    return found_[index - first_];
}

/// Simulates what is left of the partitions of the contenders; returns what bounds the candidates
/// that have too many.
Duration Search::try_partitions(Duration best) {
    Duration bound = Duration::max();
    std::int64_t room = options_.most_partition_actions;
    std::vector<Contender> too_many;
    if (room == 0 && best < Duration::max()) {
        for (const Contender& contender : std::exchange(all_.contenders, {})) {
            bound = std::min(bound, contender.least);
        }
        return bound;
    }
    std::int64_t looked_at = 0;
    const std::vector<Contender> contenders = in_turn(std::exchange(all_.contenders, {}));
    LookedAhead ahead(*this, contenders);
    for (std::size_t i = 0; i < contenders.size(); ++i) {
        const Contender& contender = contenders[i];
        if (contender.least >= best) {
            continue;
        }
        const Candidate& candidate = contender.candidate;
        looked_at += std::int64_t{space_.model.layer_count()} * candidate.shape.stages *
                     candidate.choice.chunks;
        if (looked_at > most_looked_at || !goes_on(0, contender.least)) {
            bound = std::min(bound, contender.least);
            continue;
        }
        const FasterPartitions& faster = ahead.of(i, best, room);
        if (!faster.may_be_any) {
            continue;
        }
        const std::int64_t most = room / actions_of(candidate);
        if (faster.all && std::ssize(*faster.all) <= most) {
            room -= std::ssize(*faster.all) * actions_of(candidate);
            try_each(contender, *faster.all, best);
            continue;
        }
        too_many.push_back(contender);
    }
    improve(too_many, best);
    for (const Contender& contender : too_many) {
        const Duration ceiling = std::min(best, bound);
        if (contender.least < ceiling) {
            const ScheduleChoice& choice = contender.candidate.choice;
            const ShapeBounds bounds = bounds_.of(contender.candidate.shape, choice);
            bound = std::min(bound, bounds.closest_bound(choice, contender.least, ceiling));
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

/// Where nothing fits: the partition that lacks least of each of the candidates that look smallest.
void Search::find_closest() {
    for (const auto& [bytes, candidate] : too_large_) {
        if (actions_of(candidate) > largest_runner_up || !goes_on(0, Duration{})) {
            continue;
        }
        SettledScenario settled = with_candidate(space_.scenario, candidate);
        if (candidate.choice.recompute_by_rank && space_.scenario.pipeline.recompute_auto) {
            settled.pipeline.recompute = Recompute::Always;
        }
        Outcome outcome;
        try {
            const Plan plan = make_settled_plan(settled, space_.model, space_.profile);
            try_partition(
                space_, candidate, plan->partition->layers_per_stage(), Duration::max(), outcome);
        } catch (const Error&) {
            continue;  // no plan whatever the memory
        }
        all_.add(std::move(outcome));
    }
}

SearchResult Search::result(bool complete, Duration bound, Duration any_partition_bound) {
    SearchResult result{.shapes = std::move(shapes_),
                        .cell_stages = std::move(cell_stages_),
                        .complete = complete,
                        .ranked = std::move(all_.found),
                        .lower_bound = {},
                        .any_partition_bound = {},
                        .cost_source = space_.profile.source,
                        .any_order_bound = {},
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
    rank(result.ranked);
    const Duration fastest = result.ranked.front().step;
    result.lower_bound = std::min(fastest, bound);
    result.any_partition_bound = std::min(result.lower_bound, any_partition_bound);
    result.proven_optimal = complete && result.any_partition_bound == fastest;
    result.any_order_bound = fastest;
    for (const Shape& shape : result.shapes) {
        result.leaves_out_sequence_parallel =
            result.leaves_out_sequence_parallel ||
            (space_.scenario.pipeline.sequence_parallel_auto && shape.tensor_parallel > 1 &&
             !knows_shares(space_.profile, shape.tensor_parallel));
        if (!bounds_.unknown(shape)) {
            result.any_order_bound =
                std::min(result.any_order_bound, bounds_.share_of_any_order(shape));
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
    } else {
        any_partition_bound = std::min(bound, queue.least_of_any_partition());
        for (const Contender& contender : all_.contenders) {
            any_partition_bound = std::min(any_partition_bound, contender.least);
        }
    }
    if (queue.empty() && best_.of_all()) {
        try_runners_up(*best_.of_all());
    }
    if (options_.finds_closest && queue.empty() && all_.found.empty()) {
        find_closest();
    }
    return result(queue.empty(), bound, any_partition_bound);
}

}  // namespace

void rank(std::vector<FoundPlan>& plans) {
    std::ranges::stable_sort(plans, {}, [](const FoundPlan& plan) {
        return std::tuple(plan.step, plan.candidate.shape.devices(), plan.peak, plan.candidate);
    });
    const auto same = [](const FoundPlan& a, const FoundPlan& b) {
        return a.candidate == b.candidate && a.partition == b.partition &&
               a.recompute == b.recompute;
    };
    const auto repeated = std::ranges::unique(plans, same);
    plans.erase(repeated.begin(), repeated.end());
}

SearchResult search_plans(const Scenario& scenario,
                          const Model& model,
                          const Profile& profile,
                          const SearchOptions& options) {
    require_same_layers(model, profile);
    return Search({.scenario = scenario, .model = model, .profile = profile}, options).run();
}

}  // namespace pipetwin::sim
