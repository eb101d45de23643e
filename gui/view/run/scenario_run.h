// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/artifacts/chrome_trace.h"
#include "core/plan/plan.h"
#include "gui/view/run/run_data.h"

namespace pipetwin::gui {

/// The simulated step of a scenario, and what it was planned from.
struct ScenarioRun {
    Trace trace;  ///< predicted; with memory where the bytes of the layers are known
    std::shared_ptr<const PlannedRun> planned;
    Plan plan;
    std::vector<std::string> notes;  ///< what a reader has to know of the costs, in sentences
};

/// The notes of a plan, each as a sentence of its own: "Gradients are stale: ... ."
std::vector<std::string> sentences_of_notes(const Plan& plan);

/// Simulates a scenario. The costs of its layers are those of its own profile (model.kind =
/// "profile"), else of `profile.json` or NAME.profile.json beside it, else of NAME.profile.json in
/// the current folder, where `pipetwin profile` writes it; else they are estimated for the
/// scenario's device, or where that is none of the shipped ones for the first that has the
/// precision. An estimate knows times alone: there are no bytes, and so no memory. Throws Error for
/// a scenario that cannot be planned. Takes as long as a plan: call it on a worker.
ScenarioRun simulate_scenario(const std::filesystem::path& file);

/// Simulates a model that is known by its costs only, as a scenario would that names the profile
/// and nothing else: 1f1b with as many stages as there are layers, four at most, and twice as many
/// micro-batches. Throws as `simulate_scenario`.
ScenarioRun simulate_profile(const std::filesystem::path& file);

}  // namespace pipetwin::gui
