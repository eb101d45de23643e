#include "sim/search/every_shape.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

namespace pipetwin::sim {

namespace {

/// The shapes of a search that take all devices, without their micro-batches.
std::set<Shape> whole_shapes(const SearchResult& found) {
    int most = 0;
    for (const Shape& shape : found.shapes) {
        most = std::max(most, shape.devices());
    }
    std::set<Shape> shapes;
    for (Shape shape : found.shapes) {
        if (shape.devices() == most) {
            shape.micro_batches = 0;
            shapes.insert(shape);
        }
    }
    return shapes;
}

Scenario with_shape(Scenario scenario, const Shape& shape) {
    scenario.pipeline.stages = shape.stages;
    scenario.pipeline.data_parallel = shape.data_parallel;
    scenario.pipeline.tensor_parallel = shape.tensor_parallel;
    return scenario;
}

bool is_of_shape(const FoundPlan& plan, const Shape& shape) {
    const Shape& own = plan.candidate.shape;
    return own.stages == shape.stages && own.data_parallel == shape.data_parallel &&
           own.tensor_parallel == shape.tensor_parallel;
}

}  // namespace

EveryShape best_of_every_shape(const Scenario& scenario,
                               const Model& model,
                               const Profile& profile,
                               const SearchResult& found,
                               const std::function<bool(double share)>& progress) {
    // One shape among many needs no proof: what is within 2 % of its best plan may be left out.
    const SearchOptions quick{.exact_actions = 0,
                              .most_actions = 2'000'000,
                              .most_partition_actions = 0,
                              .least_ranked = 1,
                              .finds_closest = false};
    EveryShape every;
    const std::set<Shape> shapes = whole_shapes(found);
    double done = 0;
    for (const Shape& shape : shapes) {
        if (progress && !progress(done / static_cast<double>(shapes.size()))) {
            return every;
        }
        done += 1;
        if (!found.ranked.empty() && is_of_shape(found.ranked.front(), shape)) {
            every.plans.push_back(found.ranked.front());
            continue;
        }
        const SearchResult result =
            search_plans(with_shape(scenario, shape), model, profile, quick);
        if (result.ranked.empty()) {
            every.without_plan.push_back(shape);
        } else {
            every.plans.push_back(result.ranked.front());
            every.simulated.insert(
                every.simulated.end(), result.ranked.begin(), result.ranked.end());
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
