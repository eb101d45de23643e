#include "exec/trainer.h"

#include <set>

#include "core/error.h"
#include "core/timeline.h"
#include "exec/data/batch.h"
#include "exec/noise_gate.h"

namespace pipetwin::exec {
namespace {

ExecutorOptions executor_options(const Scenario& scenario) {
    ExecutorOptions options;
    options.backend = scenario.cluster.backend;
    options.precision = scenario.training.precision;
    options.seed = scenario.training.seed;
    options.optimizer = optimizer_settings(scenario);
    options.gpu_shares = scenario.cluster.gpu_shares;
    options.gpu_units = scenario.cluster.gpu_units;
    return options;
}

StepReport report_of(const StepResult& result, int step, int samples) {
    const Duration time = step_time(result.timeline);
    StepReport report{.step = step,
                      .loss = result.loss,
                      .grad_norm = result.grad_norm,
                      .step_ms = to_milliseconds(time),
                      .samples_per_second = {},
                      .peak_bytes = {}};
    if (time > Duration{}) {
        report.samples_per_second = samples / to_seconds(time);
    }
    for (const MemoryUse& peak : result.peak) {
        report.peak_bytes.push_back(peak.total());
    }
    return report;
}

/// What the executor says of itself, each once.
class NewNotes {
  public:
    std::vector<std::string> of_step(const Executor& executor) {
        std::vector<std::string> fresh;
        for (const std::string& note : executor.notes()) {
            if (said_.insert(note).second) {
                fresh.push_back(note);
            }
        }
        return fresh;
    }

  private:
    std::set<std::string> said_;
};

}  // namespace

StepResult training_step(Executor& executor, const Batch& batch, int step) {
    try {
        return executor.run_step(batch, step);
    } catch (const Error& error) {
        if (error.kind() == ErrorKind::NotFinite || !executor.last_failure()) {
            throw;
        }
        throw Error(ErrorKind::WorkerFailed, error.place(), error.text(), error.hint());
    } catch (const std::exception& exception) {
        const std::optional<Failure> failure = executor.last_failure();
        if (!failure) {
            throw;
        }
        throw Error(ErrorKind::WorkerFailed, place_of(*failure), exception.what());
    }
}

TrainingResult train(const Scenario& scenario,
                     const Model& model,
                     const Plan& plan,
                     const std::function<bool(const StepReport&)>& on_step) {
    const std::unique_ptr<DataSource> data = open_data(scenario, model);
    Executor executor(plan, model, executor_options(scenario));
    const int samples = scenario.training.batch;
    NoiseGate gate;
    NewNotes notes;
    TrainingResult training;
    for (int step = 0; step < scenario.training.steps; ++step) {
        const StepResult result = training_step(executor, data->batch(step, samples), step);
        gate.add(result);
        training.steps.push_back(report_of(result, step, samples));
        training.steps.back().notes = notes.of_step(executor);
        if (!on_step(training.steps.back())) {
            break;
        }
    }
    training.measured = gate.result();
    training.memory_beside = executor.memory_beside();
    return training;
}

}  // namespace pipetwin::exec
