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
    std::vector<Bytes> peak_bytes;  ///< per rank
};

struct TrainingResult {
    std::vector<StepReport> steps;
    TimelineSet measured;           ///< the steps that passed the noise gate (at most 32), peaks and noise
};

/// The noise gate: drops warm-up steps, steps with more than 1 % stolen time and outliers; see docs/measuring.md.
/// Opens the data, builds the executor and runs every step of the scenario. `on_step` is called after each.
TrainingResult train(const Scenario& scenario,
                     const Model& model,
                     const Plan& plan,
                     const std::function<void(const StepReport&)>& on_step);

}  // namespace pipetwin::exec
