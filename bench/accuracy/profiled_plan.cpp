// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/profiled_plan.h"

#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "exec/profiling/profiler.h"
#include "exec/training/noise_gate.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::accuracy {

Plan profiled_plan(const SettledScenario& scenario, const Model& model) {
    const Plan plan =
        make_plan(scenario, model, exec::profile_model(model, exec::profiler_options(scenario)));
    return plan.with_capacity(sim::settled_capacity(plan));
}

Comparison predicted_against_measured(const Plan& plan,
                                      const Model& model,
                                      const SettledScenario& scenario,
                                      int steps) {
    exec::ExecutorOptions options = exec::executor_options(scenario);
    options.optimizer.learning_rate = 1e-6;  // so that random data leads nowhere
    exec::Executor executor(plan, model, options);
    const exec::Batch batch = exec::random_batch(model, scenario.training.batch, 1);
    exec::NoiseGate gate;
    for (int step = 0; step < steps; ++step) {
        gate.add(executor.run_step(batch, step), step);
    }
    const TimelineSet predicted{
        .steps = {sim::simulate(plan)}, .peak_bytes = {}, .breakdown = {}, .noise = {}};
    return compare(predicted, gate.result());
}

}  // namespace pipetwin::accuracy
