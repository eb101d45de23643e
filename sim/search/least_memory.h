// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "sim/search/found_plan.h"
#include "sim/search/search_state.h"

namespace pipetwin::sim {

/// The plan of a search in which nothing fits that lacks least, of the candidates that are
/// `too_large`: with that much more memory on each device it fits. Layers are moved off the rank
/// that lacks most; where a candidate has few partitions all of them are tried. None where no
/// candidate is a plan, or the search ends at once.
std::optional<ClosestPlan> closest_to_fitting(SearchState& state);

}  // namespace pipetwin::sim
