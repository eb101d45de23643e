// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/text/json_output.h"
#include "core/svg/heat_map_svg.h"
#include "sim/search/plan_search.h"

namespace pipetwin {

struct Scenario;

}  // namespace pipetwin

/// The best plan of every number of stages and of micro-batches.
namespace pipetwin::cli {

/// The heat map of a search that kept every cell. Throughput where the plan knows samples, else
/// steps per second.
HeatMapPicture heat_map(const Scenario& scenario,
                        const std::string& name,
                        const sim::SearchResult& result);

/// The heat map as rows of text; "-" where nothing fits.
std::string heat_map_text(const HeatMapPicture& picture, const sim::SearchResult& result);

/// The heat map as JSON: one object per cell that has a plan.
Json heat_map_json(const sim::SearchResult& result);

}  // namespace pipetwin::cli
