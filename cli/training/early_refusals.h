// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "cli/processes/processes.h"
#include "cli/training/run_options.h"
#include "core/scenario/scenario.h"

namespace pipetwin {

class Model;
struct SettledScenario;

}  // namespace pipetwin

/// Refusals that need no measured costs: `run`, `train` and `profile` ask for them before they
/// measure, which takes most of a minute.
namespace pipetwin::cli {

/// What a scenario asks for.
struct Degrees {
    int replicas = 1;
    int devices = 1;  ///< of each rank
};

/// Throws Error(Usage), Error(BadInput) or Error(Unavailable) for options that contradict each
/// other, a model that has only costs, a cluster that is not this machine, a backend that is
/// missing here, and GPUs that need a process each.
void refuse_what_cannot_run(const RunOptions& options,
                            const ScenarioParts& scenario,
                            const Degrees& degrees,
                            const Processes& processes);

/// Throws Error(Infeasible) for settings of the pipeline or of the training that the simulator
/// knows and the executor does not.
void refuse_what_is_only_simulated(const Scenario& scenario);

/// Throws Error(Infeasible) for a schedule whose order of actions cannot train.
void refuse_order_that_cannot_train(const SettledScenario& scenario);

/// Throws Error(Infeasible) if the GPU of this process, or all of them for a process alone, have
/// too little memory for the plan. Measuring costs would otherwise be the first to find none.
void refuse_what_does_not_fit(const SettledScenario& scenario, Processes& processes);

/// Throws what the four functions above throw for a settled scenario.
void refuse_what_cannot_train(const RunOptions& options,
                              const SettledScenario& scenario,
                              Processes& processes);

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
