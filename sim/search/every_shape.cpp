// SPDX-License-Identifier: Apache-2.0
#include "sim/search/every_shape.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

namespace pipetwin::sim {

namespace {

/// The shapes of a search that take all devices, without their micro-batches and how they divide
/// experts.
std::set<Shape> whole_shapes(const SearchResult& found) {
    int most = 0;
    for (const Shape& shape : found.shapes) {
        most = std::max(most, shape.devices());
    }
    std::set<Shape> shapes;
    for (Shape shape : found.shapes) {
        if (shape.devices() == most) {
            shape.micro_batches = 0;
            shape.expert_parallel = 1;
            shape.expert_tensor_parallel = 0;
            shapes.insert(shape);
        }
    }
    return shapes;
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

}  // namespace

EveryShape best_of_every_shape(const Scenario& scenario,
                               const Model& model,
                               const Profile& profile,
                               const SearchResult& found,
                               std::size_t improved,
                               const std::function<bool(double share)>& progress) {
    EveryShape every;
    const std::set<Shape> shapes = whole_shapes(found);
    double done = 0;
    const auto goes_on = [&] {
        const double all = static_cast<double>(shapes.size() + std::min(improved, shapes.size()));
        return !progress || progress(done++ / all);
    };
    for (const Shape& shape : shapes) {
        if (!goes_on()) {
            return every;
        }
        if (!found.ranked.empty() && is_of_shape(found.ranked.front(), shape)) {
            every.plans.push_back(found.ranked.front());
            every.plans.back().finished = every.plans.back().finished && found.complete;
            continue;
        }
        const SearchResult result =
            search_plans(with_shape(scenario, shape), model, profile, at_first);
        if (result.ranked.empty()) {
            every.without_plan.push_back(shape);
        } else {
            every.plans.push_back(best_of(result));
            add_simulated(result, every);
        }
    }
    std::ranges::stable_sort(every.plans, {}, &FoundPlan::step);
    for (std::size_t i = 0; i < std::min(improved, every.plans.size()) && goes_on(); ++i) {
        FoundPlan& plan = every.plans[i];
        if (!plan.finished) {
            const SearchResult result = search_plans(
                with_shape(scenario, plan.candidate.shape), model, profile, more_closely);
            add_simulated(result, every);
            plan = best_of(result);
        }
    }
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
