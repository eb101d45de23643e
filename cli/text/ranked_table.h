// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/search/plan_search.h"

namespace pipetwin {

struct Scenario;

}  // namespace pipetwin

namespace pipetwin::cli {

/// Whether the devices that share layers divide the sequence, too: an "s" in the tables of plans.
bool divides_sequence(const sim::FoundPlan& plan);

/// Most rows of the table.
constexpr std::size_t most_ranked = 10;

/// The fastest plans as a table, no line of it longer than `width` where that is at least 80. What
/// is the same in all rows stands once above it; partitions that leave no room are shortened.
std::string ranked_table(const Scenario& scenario,
                         const std::vector<sim::FoundPlan>& ranked,
                         int width);

/// Layers per model stage, equal ones together: "2x4+5", which adds up to the number of layers.
std::string partition_text(const std::vector<int>& sizes);

}  // namespace pipetwin::cli
