// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/base/console.h"
#include "core/costs/profile.h"
#include "core/scenario/scenario.h"
#include "sim/search/plan_search.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

/// The search for a plan, as commands run it.
namespace pipetwin::cli {

/// Searches until it is done, or until the user has waited long enough: then returns what it has by
/// then, or throws Stopped where that is nothing. Shows its progress. With `every_cell` it keeps
/// what a heat map needs.
sim::SearchResult search_with_progress(const Scenario& scenario,
                                       const Model& model,
                                       const Profile& profile,
                                       bool every_cell,
                                       Console& console);

/// Text that names the chosen plan and the reason: "planned: 2 stages, ...; step 1.2 ms, the
/// fastest of 70 plans".
std::string planned_text(const Scenario& scenario, const sim::SearchResult& result);

}  // namespace pipetwin::cli
