// SPDX-License-Identifier: Apache-2.0
#include "cli/training/training_costs.h"

#include <algorithm>
#include <string>

#include "cli/base/progress.h"
#include "core/base/as_index.h"
#include "core/model/model.h"
#include "exec/base/cores.h"
#include "exec/executor/backend.h"
#include "exec/profiling/calibrate.h"
#include "sim/search/partition_choice.h"

namespace pipetwin::cli {

namespace {

constexpr int profile_rounds = 4;                 ///< how often layers are measured between steps
constexpr int fewest_steps = 8 * profile_rounds;  ///< of a training that has rounds

}  // namespace

Profile measure_profile(const SettledScenario& scenario,
                        Console& console,
                        double time_share,
                        bool measures_halves) {
    const Model model = scenario_model(scenario);
    exec::ProfilerOptions options = exec::profiler_options(scenario);
    options.time_share = time_share;
    options.measures_halves = measures_halves;
    options.partition_of = [&model](const SettledScenario& measured, const Profile& costs) {
        return sim::make_settled_plan(measured, model, costs)->partition->layers_per_stage();
    };
    Progress progress(console, "profile");
    options.progress = [&progress](double share, const std::string& what) {
        progress.update(share, what);
    };
    return exec::profile_model(model, options);
}

void add_calibration(Profile& profile, const ScenarioParts& scenario, Console& console) {
    if (!exec::traits(scenario.cluster.backend).on_cores) {
        return;
    }
    Progress progress(console, "interference");
    exec::CalibrateOptions options;
    options.precision = scenario.training.precision;
    options.optimizer = scenario.training.optimizer;
    options.averages_weights = scenario.training.average_decay > 0;
    options.seed = scenario.training.seed;
    options.progress = [&progress](double share, const std::string& what) {
        progress.update(share, what);
    };
    exec::add_interference_and_ladder(profile, scenario_model(scenario), options);
}

bool measures_between_steps(const RunOptions& options,
                            const SettledScenario& scenario,
                            const Processes& processes) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    const bool one_size = replica_batch(scenario) % pipeline.micro_batches == 0;
    return options.profile.empty() && processes.is_alone() && one_size &&
           pipeline.data_parallel == 1 && scenario.training.steps >= fewest_steps &&
           exec::traits(scenario.cluster.backend).on_cores &&
           as_index(pipeline.stages * pipeline.tensor_parallel) <= exec::allowed_cores().size();
}

RoundsBetweenSteps::RoundsBetweenSteps(const Plan& plan,
                                       const SettledScenario& scenario,
                                       const Model& model)
    : rounds_(plan, model, exec::profiler_options(scenario)), steps_(scenario.training.steps) {}

void RoundsBetweenSteps::after_step(const exec::StepReport& step) {
    constexpr double budget_ms = 1'200;  // of a round
    constexpr double most = 12;
    const int period = steps_ / profile_rounds;
    if (step.step % period == period / 2) {
        rounds_.measure(static_cast<int>(std::clamp(budget_ms / step.step_ms, 2.0, most)));
        measured_ = true;
    }
}

}  // namespace pipetwin::cli
