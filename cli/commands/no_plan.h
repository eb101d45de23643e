// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/base/console.h"
#include "core/base/error.h"
#include "sim/search/plan_search.h"

namespace pipetwin {

class Model;
struct Profile;
struct Scenario;

}  // namespace pipetwin

namespace pipetwin::sim {

struct NodesOfModel;

}  // namespace pipetwin::sim

/// A search that has found no plan: why, and what helps.
namespace pipetwin::cli {

/// Throws Error(BadInput) for a limit of memory without its unit: the devices together have no room
/// for the weights.
void expect_unit_of_limit(const Scenario& scenario, const Profile& profile);

/// Why no plan of `result` can be run, with what helps; `nodes` of a model by its name, count 0 for
/// a scenario. May search on, with progress, for a number of nodes that is enough.
Error no_plan(const Scenario& scenario,
              const Model& model,
              const Profile& profile,
              const sim::NodesOfModel& nodes,
              const sim::SearchResult& result,
              Console& console);

}  // namespace pipetwin::cli
