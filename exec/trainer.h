#pragma once

#include <functional>
#include <vector>

#include "core/compare.h"
#include "core/plan.h"
#include "core/scenario.h"
#include "exec/executor.h"

namespace pipetwin::exec {

struct StepReport {
    int step = 0;
    double loss = 0;
    double grad_norm = 0;
    double step_ms = 0;
    std::optional<double> samples_per_second;
    std::vector<Bytes> peak_bytes;     ///< per rank
    std::vector<std::string> notes{};  ///< what a user should know since this step
};

struct TrainingResult {
    std::vector<StepReport> steps;
    TimelineSet
        measured;  ///< the steps that passed the noise gate (at most 32 of them), peaks and noise
    std::vector<BesidePlan> memory_beside;  ///< of the devices; empty where there is none
};

/// One step of a run. What a worker throws arrives as Error(WorkerFailed) with rank, step and
/// action as its place and the worker's own message as its text; Error(NotFinite) arrives as it is.
StepResult training_step(Executor& executor, const Batch& batch, int step);

/// Opens the data, builds the executor and runs the steps of the scenario. `on_step` is called
/// after each; where it returns false, training stops there (a signal came) and the result holds
/// what was measured until then.
///
/// What is measured goes through exec/noise_gate.h: where no step passes it, `measured` holds the
/// step nearest the median of all, and noise.steps is 0.
TrainingResult train(const Scenario& scenario,
                     const Model& model,
                     const Plan& plan,
                     const std::function<bool(const StepReport&)>& on_step);

}  // namespace pipetwin::exec
