// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/base/console.h"
#include "cli/processes/processes.h"
#include "cli/training/run_options.h"
#include "core/costs/profile.h"
#include "exec/profiling/profiler.h"
#include "exec/training/trainer.h"

namespace pipetwin {

class Model;
class Plan;
struct SettledScenario;

}  // namespace pipetwin

/// What layers cost on this machine: before a training and between its steps.
namespace pipetwin::cli {

/// Measures the costs of the scenario's layers on this machine, with a progress line, in a share of
/// the usual time; with `measures_halves` also those of divided backwards (exec::ProfilerOptions).
Profile measure_profile(const SettledScenario& scenario,
                        Console& console,
                        double time_share = 1,
                        bool measures_halves = false);

/// Adds what they are worth for other plans, where they were measured on processor cores.
void add_calibration(Profile& profile, const ScenarioParts& scenario, Console& console);

/// Whether layers are measured again between the steps. Who profiles and then trains sees a machine
/// at two times, and predicts with the first what the second does. Not where costs are given, nor
/// where a step is not the work of cores that this process has to itself, nor in a short training.
bool measures_between_steps(const RunOptions& options,
                            const SettledScenario& scenario,
                            const Processes& processes);

/// Measures layers again, a few steps of a pipeline at a time, between the steps of a training.
class RoundsBetweenSteps {
  public:
    RoundsBetweenSteps(const Plan& plan, const SettledScenario& scenario, const Model& model);

    /// Measures a round where it is time for one.
    void after_step(const exec::StepReport& step);
    /// False where the training ended before the first.
    bool has_measured() const { return measured_; }
    const exec::ProfileRounds& rounds() const { return rounds_; }

  private:
    exec::ProfileRounds rounds_;
    int steps_;  ///< of the training
    bool measured_ = false;
};

}  // namespace pipetwin::cli
