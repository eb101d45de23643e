// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "cli/base/console.h"
#include "cli/commands/plan_options.h"
#include "cli/text/answer_text.h"
#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"
#include "sim/questions/found_profile.h"
#include "sim/questions/node_counts.h"
#include "sim/questions/prediction.h"
#include "sim/search/every_shape.h"
#include "sim/search/plan_search.h"

/// What `plan` searches for, and one search.
namespace pipetwin::cli {

/// What a search plans for: a scenario, or what follows from a model's name.
struct Asked {
    Scenario scenario;
    sim::FoundProfile found;
    bool is_model = false;
    std::string config{};  ///< the model's config.json, or empty
    sim::NodesOfModel nodes{};
};

/// Takes notes on the costs.
using Tell = std::function<void(const std::string& note)>;

/// The scenario and the costs of the options' model on their cluster, or of their scenario. Throws
/// Error(Usage) for options that go with the other of the two, and as `sim::model_on_cluster`,
/// `read_scenario` and `sim::find_profile`.
Asked asked(const PlanOptions& options, const Tell& tell);

/// The search: its profile and model, and its result, in which there is a plan.
struct Planned {
    Profile profile;
    Model model;
    sim::SearchResult result;

    const sim::FoundPlan& best() const { return result.ranked.front(); }
};

/// Searches with a line of progress; with `every_cell` it keeps what a heat map needs. Throws
/// `no_plan` where there is none.
Planned planned(const Scenario& scenario,
                Profile profile,
                const sim::NodesOfModel& nodes,
                bool every_cell,
                Console& console);

/// The parts of the answer about a model by its name; they refer to the other arguments.
AnswerParts answer_parts(const PlanOptions& options,
                         const Asked& question,
                         const Planned& plan,
                         const sim::Prediction& prediction,
                         const sim::EveryShape& shapes);

}  // namespace pipetwin::cli
