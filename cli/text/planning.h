// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "cli/base/console.h"
#include "cli/base/progress.h"
#include "cli/base/stop_wish.h"
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

/// A part of a longer task that shows one line of progress and can be stopped as a whole.
struct PartOfTask {
    Progress& progress;
    const StopWish& stop;
    std::string what{};  ///< "2 of 6: 8x-h100-sxm, 6 nodes"
    double begin = 0;    ///< shares of the task: where the part begins
    double length = 1;

    /// Shows that a share of the part is done, and whether to go on.
    bool goes_on(double share, std::string_view detail = {}) const;
    /// The part from a share of this one to another.
    PartOfTask between(double from, double to) const;
};

/// Searches as a part of a task; what was found by then where the user wants it to end.
sim::SearchResult search_in_part(const Scenario& scenario,
                                 const Model& model,
                                 const Profile& profile,
                                 const PartOfTask& part);

/// Text that names the chosen plan and the reason: "planned: 2 stages, ...; step 1.2 ms, the
/// fastest of 70 plans".
std::string planned_text(const Scenario& scenario, const sim::SearchResult& result);

}  // namespace pipetwin::cli
