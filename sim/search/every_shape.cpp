// SPDX-License-Identifier: Apache-2.0
#include "sim/search/every_shape.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "sim/search/search_memory.h"

namespace pipetwin::sim {

namespace {

/// A shape without its micro-batches and how it divides experts.
Shape whole(Shape shape) {
    shape.micro_batches = 0;
    shape.expert_parallel = 1;
    shape.expert_tensor_parallel = 0;
    return shape;
}

/// The shapes of a search that take all devices, as `whole` ones.
std::set<Shape> whole_shapes(const SearchResult& found) {
    int most = 0;
    for (const Shape& shape : found.shapes) {
        most = std::max(most, shape.devices());
    }
    std::set<Shape> shapes;
    for (const Shape& shape : found.shapes) {
        if (shape.devices() == most) {
            shapes.insert(whole(shape));
        }
    }
    return shapes;
}

/// Moves the entries of a list of candidates to lists of their shapes.
template <class List, class ShapeOf>
void share_out(List& all,
               std::map<Shape, std::shared_ptr<SearchMemory>>& memories,
               List SearchMemory::*list,
               const ShapeOf& shape_of) {
    while (!all.empty()) {
        auto entry = all.extract(all.begin());
        if (const auto of = memories.find(whole(shape_of(entry.key()))); of != memories.end()) {
            List& to = (*of->second).*list;
            to.insert(to.end(), std::move(entry));
        }
    }
}

/// What a search has simulated, shape by shape; takes it over.
std::map<Shape, std::shared_ptr<SearchMemory>> memories_of(const SearchResult& found,
                                                           const std::set<Shape>& shapes) {
    std::map<Shape, std::shared_ptr<SearchMemory>> memories;
    for (const Shape& shape : shapes) {
        memories.emplace(shape, std::make_shared<SearchMemory>());
    }
    if (found.memory) {
        SearchMemory& all = *found.memory;
        share_out(all.tried_partitions,
                  memories,
                  &SearchMemory::tried_partitions,
                  [](const Candidate& candidate) { return candidate.shape; });
        share_out(all.outcomes, memories, &SearchMemory::outcomes, [](const auto& key) {
            return key.first.shape;
        });
    }
    return memories;
}

Scenario with_shape(Scenario scenario, const Shape& shape) {
    scenario.pipeline.stages = shape.stages;
    scenario.pipeline.data_parallel = shape.data_parallel;
    scenario.pipeline.tensor_parallel = shape.tensor_parallel;
    scenario.pipeline.context_parallel = shape.context_parallel;
    return scenario;
}

bool is_of_shape(const FoundPlan& plan, const Shape& shape) {
    const Shape& own = plan.candidate.shape;
    return own.stages == shape.stages && own.data_parallel == shape.data_parallel &&
           own.tensor_parallel == shape.tensor_parallel &&
           own.context_parallel == shape.context_parallel;
}

/// One shape among many needs no proof: what is within 2 % of its best plan may be left out.
const SearchOptions at_first{.exact_actions = 0,
                             .most_actions = 2'000'000,
                             .most_partition_actions = 0,
                             .least_ranked = 1,
                             .finished_rows = 0,
                             .finds_closest = false};
constexpr double tolerance = 0.001;  ///< of a plan that is finished
const SearchOptions more_closely{.exact_actions = 0,
                                 .tolerance = tolerance,
                                 .most_actions = 10'000'000,
                                 .most_partition_actions = 0,
                                 .least_ranked = 1,
                                 .finished_rows = 2,
                                 .most_row_actions = 2'000'000,
                                 .finds_closest = false};

/// The best plan of a shape, by the search of it, which has found one.
FoundPlan best_of(const SearchResult& result) {
    FoundPlan best = result.ranked.front();
    best.finished =
        result.complete && result.any_partition_bound >= best.step - scaled(best.step, tolerance);
    return best;
}

void add_simulated(const SearchResult& result, EveryShape& every) {
    every.simulated.insert(every.simulated.end(), result.ranked.begin(), result.ranked.end());
}

/// A search of one shape has little to do at the same time: several of them are searched at once.
constexpr std::size_t searched_at_once = 6;

/// Calls `search(i)` for i from 0 to `count` - 1, several at once, and then `take(i, result)` for
/// each in this order, as long as `goes_on()` before. Whether all were searched.
template <class SearchOne, class Take, class GoesOn>
bool search_each(std::size_t count,
                 const SearchOne& search,
                 const Take& take,
                 const GoesOn& goes_on) {
    for (std::size_t first = 0; first < count; first += searched_at_once) {
        const std::size_t end = std::min(count, first + searched_at_once);
        for (std::size_t i = first; i < end; ++i) {
            if (!goes_on()) {
                return false;
            }
        }
        std::vector<std::optional<SearchResult>> results(end - first);
        tbb::parallel_for(first, end, [&](std::size_t i) { results[i - first] = search(i); });
        for (std::size_t i = first; i < end; ++i) {
            take(i, *results[i - first]);
        }
    }
    return true;
}

}  // namespace

EveryShape best_of_every_shape(const Scenario& scenario,
                               const Model& model,
                               const Profile& profile,
                               const SearchResult& found,
                               std::size_t improved,
                               const std::function<bool(double share)>& progress) {
    EveryShape every;
    const std::set<Shape> all = whole_shapes(found);
    double done = 0;
    const auto goes_on = [&] {
        const double searches = static_cast<double>(all.size() + std::min(improved, all.size()));
        return !progress || progress(done++ / searches);
    };
    std::vector<Shape> shapes;
    for (const Shape& shape : all) {
        if (!found.ranked.empty() && is_of_shape(found.ranked.front(), shape)) {
            every.plans.push_back(found.ranked.front());
            every.plans.back().finished = every.plans.back().finished && found.complete;
        } else {
            shapes.push_back(shape);
        }
    }
    std::map<Shape, std::shared_ptr<SearchMemory>> memories = memories_of(found, all);
    const auto search = [&](const Shape& shape, SearchOptions options) {
        options.memory = memories.at(whole(shape));
        return search_plans(with_shape(scenario, shape), model, profile, options);
    };
    const bool all_searched = search_each(
        shapes.size(),
        [&](std::size_t i) { return search(shapes[i], at_first); },
        [&](std::size_t i, const SearchResult& result) {
            if (result.ranked.empty()) {
                every.without_plan.push_back(shapes[i]);
            } else {
                every.plans.push_back(best_of(result));
                add_simulated(result, every);
            }
        },
        goes_on);
    if (!all_searched) {
        return every;
    }
    std::ranges::stable_sort(every.plans, {}, &FoundPlan::step);
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < std::min(improved, every.plans.size()); ++i) {
        if (!every.plans[i].finished) {
            open.push_back(i);
        }
    }
    search_each(
        open.size(),
        [&](std::size_t i) { return search(every.plans[open[i]].candidate.shape, more_closely); },
        [&](std::size_t i, const SearchResult& result) {
            add_simulated(result, every);
            every.plans[open[i]] = best_of(result);
        },
        goes_on);
    std::ranges::stable_sort(every.plans, {}, &FoundPlan::step);
    every.complete = true;
    return every;
}

void add_simulated(const EveryShape& every, SearchResult& found) {
    const auto candidates = [&found] {
        std::set<Candidate> all;
        for (const FoundPlan& plan : found.ranked) {
            all.insert(plan.candidate);
        }
        return std::ssize(all);
    };
    const std::int64_t before = candidates();
    found.ranked.insert(found.ranked.end(), every.simulated.begin(), every.simulated.end());
    rank(found.ranked);
    const std::int64_t more = candidates() - before;
    found.searched += more;
    found.pruned -= std::min(more, found.pruned);
}

std::vector<std::size_t> time_memory_front(const std::vector<FoundPlan>& plans) {
    std::vector<std::size_t> front;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const FoundPlan& plan = plans[i];
        const bool is_beaten = std::ranges::any_of(plans, [&plan](const FoundPlan& other) {
            const bool no_worse = other.step <= plan.step && other.peak <= plan.peak;
            return no_worse && (other.step < plan.step || other.peak < plan.peak);
        });
        if (!is_beaten) {
            front.push_back(i);
        }
    }
    return front;
}

}  // namespace pipetwin::sim
