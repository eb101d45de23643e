#include "sim/search/plan_search.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/cluster.h"
#include "core/error.h"
#include "core/footprint.h"
#include "core/metrics.h"
#include "core/partition/feasible_splits.h"
#include "core/plan.h"
#include "sim/explanation.h"
#include "sim/search/step_bound.h"
#include "sim/simulate.h"

namespace pipetwin::sim {

namespace {

constexpr std::size_t wave_size = 8;  // shapes; the same on every machine

constexpr std::string_view out_of_memory = "more memory than the ranks have";

std::size_t at(int index) {
    return static_cast<std::size_t>(index);
}

// --- What follows from a candidate alone. ---

/// Where the pieces of a candidate are, and so which partitions are tried.
enum class Pieces {
    OnePerRank,  ///< those that the bound finds
    Loop,        ///< the balanced one
    V,           ///< the balanced one
    Other,       ///< the balanced one, and no bound of its own
};

Pieces pieces_of(const Scenario& scenario, const Style& style) {
    const bool alike = scenario.cluster.devices.empty() && scenario.cluster.speeds.empty();
    if (has_schedule_file(scenario) ||
        has_stale_gradients(with_candidate(scenario, {.shape = {}, .style = style})) ||
        style.schedule == "chimera" || style.schedule == "forward-only") {
        return Pieces::Other;
    }
    if (style.chunks == 1) {
        return Pieces::OnePerRank;
    }
    if (!alike) {  // the balanced partition depends on which device holds what
        return Pieces::Other;
    }
    const bool turns =
        style.schedule == "zb-v" || style.schedule == "dualpipe-v" || style.schedule == "hanayo";
    return turns ? Pieces::V : Pieces::Loop;
}

int recomputed(Recompute recompute, int micro_batches) {
    switch (recompute) {
        case Recompute::None:
            return 0;
        case Recompute::Always:
            return micro_batches;
        case Recompute::ExceptLast:
            return micro_batches - 1;
    }
    PIPETWIN_EXPECT(false, "recompute out of range");
}

/// What the style adds to the question of its shape.
BoundQuestion with_style(BoundQuestion question,
                         const Scenario& scenario,
                         const Candidate& candidate) {
    const std::string& schedule = candidate.style.schedule;
    question.recomputed = recomputed(candidate.style.recompute, question.micro_batches);
    question.split = schedule.starts_with("zb-") || schedule == "interleaved-zb" ||
                     schedule == "dualpipe-v" || scenario.pipeline.deferred_weights > 0 ||
                     has_schedule_file(scenario);
    // Stashes that are copied to host memory need room one at a time.
    const bool stays = scenario.pipeline.offload == Offload::None;
    question.all_at_once = stays && (schedule == "gpipe" || schedule == "looped-bfs");
    const bool as_1f1b =
        stays && (schedule == "1f1b" || schedule == "zb-h1" || schedule == "zb-h2");
    question.in_flight = question.all_at_once || as_1f1b ? question.micro_batches : 1;
    return question;
}

/// F, B and four sends and receives of every micro-batch on every stage.
std::int64_t actions_of(const Candidate& candidate) {
    return std::int64_t{6} * candidate.shape.stages * candidate.shape.micro_batches;
}

/// The partition that shares the work of a micro-batch out evenly.
std::vector<int> balanced(const LayerSums& sums, const BoundQuestion& question, int pieces) {
    std::vector<Duration> times;
    for (int layer = 0; layer < sums.layers(); ++layer) {
        const auto of_layer = [&](const std::vector<Duration>& sum) {
            return sum[at(layer + 1)] - sum[at(layer)];
        };
        const Duration forward = of_layer(sums.forward);
        times.push_back(forward + (question.recomputed > 0 ? forward : Duration{}) +
                        of_layer(sums.backward_input) + of_layer(sums.backward_weight));
    }
    return balanced_partition(times, pieces).layers_per_stage();
}

/// The balanced one, if the bound is as good as any for it; else those that the bound finds, too.
std::vector<std::vector<int>> partitions_to_try(const LayerSums& sums,
                                                const BoundQuestion& question,
                                                Duration least) {
    const StepBound bound(sums, question);
    const Duration kept = least + least / 5'000 + Duration{2};  // `least` is a little below
    std::vector<std::vector<int>> partitions{balanced(sums, question, question.stages)};
    if (bound.keeps(partitions.front(), kept)) {
        return partitions;
    }
    for (std::vector<int> sizes : {bound.longest_first(kept), bound.longest_last(kept)}) {
        if (!sizes.empty() && std::ranges::find(partitions, sizes) == partitions.end()) {
            partitions.push_back(std::move(sizes));
        }
    }
    return partitions;
}

/// The rank that lacks most, where any does.
std::optional<ClosestPlan> missing(const Candidate& candidate,
                                   const Plan& plan,
                                   const std::vector<MemoryUse>& peaks) {
    std::optional<ClosestPlan> missed;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        const Bytes peak = peaks[at(rank)].total();
        const Bytes limit = plan.memory_limit(rank).value_or(peak);
        if (peak > limit && (!missed || peak - limit > missed->peak - missed->limit)) {
            missed = ClosestPlan{.candidate = candidate,
                                 .partition = plan->partition->layers_per_stage(),
                                 .rank = rank,
                                 .peak = peak,
                                 .limit = limit};
        }
    }
    return missed;
}

// --- What a search comes to. ---

/// A candidate of which only some partitions were simulated; none is faster than `least`.
struct Contender {
    Duration least{};
    Candidate candidate;

    auto operator<=>(const Contender&) const = default;
};

struct Examined {
    std::vector<FoundPlan> found;
    std::map<std::string, Infeasible> infeasible;  ///< by reason, without its numbers
    std::optional<ClosestPlan> closest;
    std::vector<Contender> contenders;
    std::int64_t candidates = 0;
    std::int64_t searched = 0;
    std::int64_t pruned = 0;
    std::int64_t actions = 0;

    void refuse(std::string_view why, const Candidate& candidate) {
        std::string rule(why);
        std::erase_if(rule, [](char c) { return c >= '0' && c <= '9'; });
        Infeasible& entry = infeasible[rule];
        if (entry.count++ == 0) {
            entry.why = why;
            entry.example = candidate;
        }
    }

    void missed(ClosestPlan plan) {
        if (!closest || plan.peak - plan.limit < closest->peak - closest->limit) {
            closest = std::move(plan);
        }
    }

    void add(Examined other) {
        std::ranges::move(other.found, std::back_inserter(found));
        std::ranges::move(other.contenders, std::back_inserter(contenders));
        for (auto& [rule, entry] : other.infeasible) {
            const auto [known, is_new] = infeasible.try_emplace(rule, entry);
            known->second.count += is_new ? 0 : entry.count;
        }
        if (other.closest) {
            missed(*std::move(other.closest));
        }
        candidates += other.candidates;
        searched += other.searched;
        pruned += other.pruned;
        actions += other.actions;
    }
};

/// What a shape has to beat: the fastest plan so far, of all or of its own cell.
class Best {
  public:
    explicit Best(bool every_cell) : every_cell_(every_cell) {}

    Duration of(const Shape& shape) const {
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
    std::pair<int, int> cell(const Shape& shape) const {
        return every_cell_ ? std::pair(shape.stages, shape.micro_batches) : std::pair(0, 0);
    }

    bool every_cell_;
    Duration all_ = Duration::max();
    std::map<std::pair<int, int>, Duration> of_cell_;
};

/// A shape, what none of its plans goes below, and about what they take.
struct Ranked {
    Shape shape;
    Duration bound{};
    Duration guess{};
};

Duration least_bound(std::span<const Ranked> shapes) {
    Duration least = Duration::max();
    for (const Ranked& ranked : shapes) {
        const bool known = ranked.guess < Duration::max();  // else there are no costs, and no plans
        least = known ? std::min(least, ranked.bound) : least;
    }
    return least;
}

class Search {
  public:
    Search(const Scenario& scenario,
           const Model& model,
           const Profile& profile,
           const SearchOptions& options)
        : scenario_(scenario), model_(model), profile_(profile), options_(options) {}

    SearchResult run();

  private:
    using SumsKey = std::pair<int, int>;  ///< tensor_parallel, size of a micro-batch

    /// Where sizes differ by one, the smaller is the bound's.
    SumsKey key_of(const Shape& shape) const {
        const int samples = scenario_.training.batch / shape.data_parallel;
        return {shape.tensor_parallel, std::max(1, samples / shape.micro_batches)};
    }
    const LayerSums* sums_of(const Shape& shape) const { return sums_.at(key_of(shape)).get(); }
    /// A mini-batch has no more micro-batches than samples (C17).
    int micro_batches_of(const Shape& shape) const {
        return std::min(shape.micro_batches, scenario_.training.batch / shape.data_parallel);
    }
    bool is_forward_only() const { return scenario_.pipeline.schedule == "forward-only"; }
    /// For what depends on the shape alone.
    Scenario with_shape(const Shape& shape) const {
        return with_candidate(scenario_, {.shape = shape, .style = {.schedule = "1f1b"}});
    }

    std::vector<Ranked> ranked_shapes();
    void add_sums(const Shape& shape);
    BoundQuestion question_of(const Shape& shape) const;
    std::optional<Duration> bound_of(const Candidate& candidate,
                                     const BoundQuestion& question) const;
    Examined examine(const Ranked& ranked, Duration best) const;
    void simulate_best(const Candidate& candidate,
                       const BoundQuestion& question,
                       Duration least,
                       Duration& best,
                       Examined& result) const;
    void simulate_one(const Candidate& candidate,
                      const std::vector<int>& partition,
                      Examined& result) const;
    std::optional<std::vector<std::vector<int>>> faster_partitions(const Contender& contender,
                                                                   Duration best,
                                                                   std::int64_t most) const;
    Duration try_partitions(Examined& all, Duration best, std::int64_t& tried) const;
    void leave_out(const Ranked& ranked, Examined& all) const;
    std::optional<Duration> search_shapes(const std::vector<Ranked>& shapes,
                                          Best& best,
                                          Examined& all) const;

    const Scenario& scenario_;
    const Model& model_;
    const Profile& profile_;
    const SearchOptions& options_;
    std::map<SumsKey, std::unique_ptr<LayerSums>> sums_;  ///< null: costs are not known there
    std::map<SumsKey, std::string> unknown_;              ///< why
};

void Search::add_sums(const Shape& shape) {
    const SumsKey key = key_of(shape);
    if (sums_.contains(key)) {
        return;
    }
    std::unique_ptr<LayerSums>& sums = sums_[key];
    try {
        const Scenario settled = with_shape(shape);
        const Cluster cluster(settled, profile_, shape.stages);
        sums =
            std::make_unique<LayerSums>(layer_sums(settled, model_, profile_, cluster, key.second));
    } catch (const Error& error) {
        unknown_[key] = error.text();
    }
}

/// By the step time of balanced stages, (M + p - 1) / M of the work; those without costs last.
std::vector<Ranked> Search::ranked_shapes() {
    std::vector<Ranked> ranked;
    for (const Shape& shape : shapes_of(scenario_, model_)) {
        add_sums(shape);
        Ranked one{.shape = shape, .guess = Duration::max()};
        if (const LayerSums* const sums = sums_of(shape)) {
            const int micro_batches = micro_batches_of(shape);
            const Duration work = share_of_work(*sums, shape.stages, micro_batches);
            one.bound = is_forward_only() ? Duration{} : work;
            one.guess = work + (shape.stages - 1) * (work / micro_batches);
        }
        ranked.push_back(one);
    }
    std::ranges::sort(ranked, {}, [](const Ranked& one) { return std::tie(one.guess, one.shape); });
    return ranked;
}

BoundQuestion Search::question_of(const Shape& shape) const {
    BoundQuestion question{.stages = shape.stages,
                           .micro_batches = micro_batches_of(shape),
                           .all_reduce = scenario_.pipeline.all_reduce,
                           .overlap_reduction = scenario_.pipeline.overlap_reduction};
    const Scenario settled = with_shape(shape);
    const Cluster cluster(settled, profile_, shape.stages);
    // Where the replicas of one rank are nearer to each other than those of another, the bound does
    // without.
    const ReplicaGroup group = cluster.replicas_of(0);
    bool all_alike = true;
    for (int rank = 1; rank < shape.stages && all_alike; ++rank) {
        all_alike = cluster.replicas_of(rank) == group;
    }
    question.replicas = all_alike ? group : ReplicaGroup{};
    std::optional<Bytes> most;
    for (const RankDevice& device : cluster.devices()) {
        if (!device.memory_limit) {
            return question;
        }
        const Bytes context = device.profile ? device.profile->context.value : Bytes{};
        most = std::max(most.value_or(Bytes{}), *device.memory_limit - context);
    }
    question.memory_limit = most;
    return question;
}

/// None where no partition fits.
std::optional<Duration> Search::bound_of(const Candidate& candidate,
                                         const BoundQuestion& question) const {
    const LayerSums& sums = *sums_of(candidate.shape);
    const Pieces pieces = pieces_of(scenario_, candidate.style);
    if (pieces == Pieces::OnePerRank) {
        return StepBound(sums, question).least();
    }
    if (pieces == Pieces::Other || scenario_.pipeline.partition) {
        return is_forward_only() ? Duration{}
                                 : share_of_work(sums, question.stages, question.micro_batches);
    }
    return bound_of_pieces(sums,
                           question,
                           balanced(sums, question, question.stages * candidate.style.chunks),
                           pieces == Pieces::V);
}

void Search::simulate_one(const Candidate& candidate,
                          const std::vector<int>& partition,
                          Examined& result) const {
    Scenario settled = with_candidate(scenario_, candidate);
    if (!partition.empty()) {
        settled.pipeline.partition = partition;
    }
    Plan plan = make_plan(settled, model_, profile_);
    result.actions += static_cast<std::int64_t>(action_count(plan));
    if (!plan->host_link) {  // with one, times decide
        if (auto missed = missing(candidate, plan, peak_memory(plan))) {
            result.missed(*std::move(missed));
            return;
        }
    }
    if (!plan->channel_capacity) {
        const int capacity = settled_capacity(plan);
        plan = std::move(plan).with_capacity(capacity);
    }
    const Timeline timeline = simulate(plan);
    const std::vector<MemoryUse> peaks =
        plan->host_link ? peak_memory(plan, timeline) : peak_memory(plan);
    if (auto missed = missing(candidate, plan, peaks)) {
        result.missed(*std::move(missed));
        return;
    }
    const Metrics metrics = measure(plan, timeline);
    FoundPlan found{.candidate = candidate,
                    .partition = plan->partition->layers_per_stage(),
                    .step = step_time(timeline),
                    .samples_per_second = metrics.samples_per_second,
                    .bubble = metrics.bubble.total};
    for (const MemoryUse& peak : peaks) {
        found.peak = std::max(found.peak, peak.total());
    }
    result.found.push_back(std::move(found));
}

/// `best` becomes the step time of a faster plan, where there is one.
void Search::simulate_best(const Candidate& candidate,
                           const BoundQuestion& question,
                           Duration least,
                           Duration& best,
                           Examined& result) const {
    std::vector<std::vector<int>> partitions{{}};
    const Pieces pieces = pieces_of(scenario_, candidate.style);
    if (scenario_.pipeline.partition) {
        // it is the only one
    } else if (pieces == Pieces::OnePerRank) {
        partitions = partitions_to_try(*sums_of(candidate.shape), question, least);
        result.contenders.push_back({.least = least, .candidate = candidate});
    } else if (pieces == Pieces::Loop || pieces == Pieces::V) {
        partitions = {balanced(
            *sums_of(candidate.shape), question, question.stages * candidate.style.chunks)};
    }
    Examined own;
    try {
        for (const std::vector<int>& partition : partitions) {
            simulate_one(candidate, partition, own);
        }
    } catch (const Error& error) {
        result.refuse(error.text(), candidate);
        return;
    }
    result.actions += own.actions;
    if (own.closest) {
        result.missed(*std::move(own.closest));
    }
    if (own.found.empty()) {
        result.refuse(out_of_memory, candidate);
        return;
    }
    ++result.searched;
    const auto fastest = std::ranges::min_element(own.found, {}, &FoundPlan::step);
    best = std::min(best, fastest->step);
    result.found.push_back(std::move(*fastest));
}

/// All styles of a shape, the most promising first.
Examined Search::examine(const Ranked& ranked, Duration best) const {
    Examined result;
    const std::vector<Style> styles = styles_of(scenario_, model_, ranked.shape);
    result.candidates = std::ssize(styles);
    if (sums_of(ranked.shape) == nullptr) {
        for (const Style& style : styles) {
            result.refuse(unknown_.at(key_of(ranked.shape)),
                          {.shape = ranked.shape, .style = style});
        }
        return result;
    }
    struct Open {
        Duration least{};
        Candidate candidate;
        BoundQuestion question;
    };
    const BoundQuestion of_shape = question_of(ranked.shape);
    std::vector<Open> open;
    for (const Style& style : styles) {
        const Candidate candidate{.shape = ranked.shape, .style = style};
        const BoundQuestion question = with_style(of_shape, scenario_, candidate);
        if (const auto least = bound_of(candidate, question)) {
            open.push_back({.least = *least, .candidate = candidate, .question = question});
        } else {
            result.refuse(out_of_memory, candidate);
        }
    }
    std::ranges::stable_sort(open, {}, &Open::least);
    for (const Open& next : open) {
        if (next.least >= best) {
            ++result.pruned;
        } else {
            simulate_best(next.candidate, next.question, next.least, best, result);
        }
    }
    return result;
}

/// Every partition that could beat `best`; none where they are more than `most`.
std::optional<std::vector<std::vector<int>>> Search::faster_partitions(const Contender& contender,
                                                                       Duration best,
                                                                       std::int64_t most) const {
    const BoundQuestion question =
        with_style(question_of(contender.candidate.shape), scenario_, contender.candidate);
    const LayerSums& sums = *sums_of(contender.candidate.shape);
    const StepBound bound(sums, question);
    const FeasibleSplits splits(
        sums.layers(),
        question.stages,
        [&](int stage, int first, int end) {
            return bound.fits(stage, first, end) && bound.cost(stage, first, end) < best;
        },
        LongerStage::NeverFits);
    if (std::cmp_greater(splits.count(), std::max<std::int64_t>(most, 0))) {
        return std::nullopt;
    }
    std::vector<std::vector<int>> partitions;
    splits.walk([&](std::span<const int> sizes) {
        if (std::cmp_equal(sizes.size(), question.stages)) {
            partitions.emplace_back(sizes.begin(), sizes.end());
        }
        return Walk::Into;
    });
    return partitions;
}

/// Simulates what is left of the partitions of the contenders; returns what bounds the candidates
/// that have too many.
Duration Search::try_partitions(Examined& all, Duration best, std::int64_t& tried) const {
    Duration bound = Duration::max();
    std::int64_t room = options_.most_partition_actions;
    std::ranges::sort(all.contenders);
    for (const Contender& contender : all.contenders) {
        if (contender.least >= best) {
            break;
        }
        const auto partitions =
            faster_partitions(contender, best, room / actions_of(contender.candidate));
        if (!partitions) {
            bound = std::min(bound, contender.least);
            continue;
        }
        tried += std::ssize(*partitions);
        room -= std::ssize(*partitions) * actions_of(contender.candidate);
        std::vector<Examined> each(partitions->size());
        tbb::parallel_for(std::size_t{0}, partitions->size(), [&](std::size_t i) {
            simulate_one(contender.candidate, (*partitions)[i], each[i]);
        });
        for (Examined& one : each) {
            all.actions += one.actions;
            for (FoundPlan& found : one.found) {
                if (found.step < best) {
                    best = found.step;
                    all.found.push_back(std::move(found));
                }
            }
        }
    }
    return bound;
}

void Search::leave_out(const Ranked& ranked, Examined& all) const {
    const auto styles = std::ssize(styles_of(scenario_, model_, ranked.shape));
    all.candidates += styles;
    all.pruned += styles;
}

/// Wave by wave. Returns what bounds the shapes that it did not come to.
std::optional<Duration> Search::search_shapes(const std::vector<Ranked>& shapes,
                                              Best& best,
                                              Examined& all) const {
    for (std::size_t first = 0; first < shapes.size();) {
        std::vector<const Ranked*> wave;
        for (; first < shapes.size() && wave.size() < wave_size; ++first) {
            if (shapes[first].bound < best.of(shapes[first].shape)) {
                wave.push_back(&shapes[first]);
            } else {
                leave_out(shapes[first], all);
            }
        }
        std::vector<Examined> examined(wave.size());
        tbb::parallel_for(std::size_t{0}, wave.size(), [&](std::size_t i) {
            examined[i] = examine(*wave[i], best.of(wave[i]->shape));
        });
        for (Examined& one : examined) {
            for (const FoundPlan& found : one.found) {
                best.add(found);
            }
            all.add(std::move(one));
        }
        const Duration bound = least_bound(std::span(shapes).subspan(first));
        const double share = static_cast<double>(first) / static_cast<double>(shapes.size());
        const bool go_on =
            all.actions < options_.most_actions &&
            (!options_.progress ||
             options_.progress({.share = share, .best = best.of_all(), .bound = bound}));
        if (!go_on && first < shapes.size()) {
            return bound;
        }
    }
    return std::nullopt;
}

SearchResult Search::run() {
    const std::vector<Ranked> shapes = ranked_shapes();
    Examined all;
    Best best(options_.every_cell);
    const std::optional<Duration> left = search_shapes(shapes, best, all);
    SearchResult result;
    Duration unproven = left.value_or(Duration::max());
    if (best.of_all() && !left) {
        unproven = std::min(unproven, try_partitions(all, *best.of_all(), result.partitions));
    }
    for (const Ranked& ranked : shapes) {
        result.shapes.push_back(ranked.shape);
    }
    std::ranges::stable_sort(all.found, {}, [](const FoundPlan& plan) {
        return std::tuple(plan.step, plan.candidate.shape.devices(), plan.peak, plan.candidate);
    });
    result.ranked = std::move(all.found);
    result.candidates = all.candidates;
    result.searched = all.searched;
    result.pruned = all.pruned;
    for (auto& [rule, entry] : all.infeasible) {
        result.infeasible.push_back(std::move(entry));
    }
    std::ranges::stable_sort(result.infeasible, std::greater{}, &Infeasible::count);
    if (result.ranked.empty()) {
        result.closest = std::move(all.closest);
        result.lower_bound = left.value_or(Duration{});
        return result;
    }
    const Duration fastest = result.ranked.front().step;
    result.lower_bound = std::min(fastest, left.value_or(fastest));
    result.proven_optimal = result.lower_bound == fastest;
    result.any_partition_bound = std::min(fastest, unproven);
    return result;
}

}  // namespace

SearchResult search_plans(const Scenario& scenario,
                          const Model& model,
                          const Profile& profile,
                          const SearchOptions& options) {
    return Search(scenario, model, profile, options).run();
}

}  // namespace pipetwin::sim
