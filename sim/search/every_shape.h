// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "sim/search/plan_search.h"

namespace pipetwin::sim {

/// The fastest plan of each way to share out all devices.
struct EveryShape {
    std::vector<FoundPlan> plans;      ///< one for each shape that fits, the fastest first
    std::vector<FoundPlan> simulated;  ///< all plans that these searches simulated
    std::vector<Shape> without_plan;   ///< micro_batches is 0: those in which nothing fits
    bool complete = false;             ///< false: the caller ended it early
};

/// Searches every number of stages, of replicas and of devices per layer that together take as many
/// devices as `found` has in its largest shape, each by a search of its own; `found` is a search of
/// the same scenario, whose best plan is that of its shape. The fastest of these, `improved` of
/// them, are searched more closely. A plan is `finished` where no plan of its shape is faster by
/// more than a thousandth. `progress` is called before each search with the share that is done; it
/// ends the search where it returns false.
EveryShape best_of_every_shape(const Scenario& scenario,
                               const Model& model,
                               const Profile& profile,
                               const SearchResult& found,
                               std::size_t improved,
                               const std::function<bool(double share)>& progress = {});

/// Adds what was simulated of every shape to `found`, the search that the shapes are from.
void add_simulated(const EveryShape& every, SearchResult& found);

/// Indices of the plans that no other one beats in both step and memory, as they stand.
std::vector<std::size_t> time_memory_front(const std::vector<FoundPlan>& plans);

}  // namespace pipetwin::sim
