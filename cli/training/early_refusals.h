#pragma once

#include <filesystem>

#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"

/// Refusals that need no measured costs: `run`, `train` and `profile` ask for them before they
/// measure, which takes most of a minute.
namespace pipetwin::cli {

/// Throws Error(BadInput) or Error(Infeasible) for a scenario that no costs could make a plan of:
/// more stages than layers or devices, a partition or an order that does not fit the shape, or
/// memory. The sizes of layers are known without measuring. Where the partition depends on costs,
/// memory is that of weights, gradients and optimizer state alone.
void refuse_what_no_costs_help(const SettledScenario& scenario, const Model& model);

/// Throws the same errors for a scenario in which something is "auto", where they hold for all
/// plans that it leaves open.
void refuse_what_no_costs_help(const Scenario& space, const Model& model);

/// Opens the data that a training would read, and closes it again. Throws Error(BadInput) or
/// Error(Io) if it is missing, too short, or of another kind than the model reads.
void refuse_unusable_data(const ScenarioParts& scenario, const Model& model);

/// Throws Error(BadInput) if the newest checkpoint in the run folder `run` is not one of this
/// training, which then cannot go on from it. A folder that is not there is fine.
void refuse_other_checkpoints(const ScenarioParts& scenario,
                              const Model& model,
                              const std::filesystem::path& run);

}  // namespace pipetwin::cli
