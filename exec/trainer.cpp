#include "exec/trainer.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/timeline.h"
#include "exec/data/batch.h"
#include "exec/noise_gate.h"
#include "exec/slow_stages.h"

namespace pipetwin::exec {
namespace {

StepReport report_of(const StepResult& result,
                     const OptimizerSettings& optimizer,
                     int step,
                     int samples) {
    const Duration time = step_time(result.timeline);
    StepReport report{.step = step,
                      .loss = result.loss,
                      .grad_norm = result.grad_norm,
                      .learning_rate = learning_rate(optimizer, step),
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

CheckpointManifest manifest_of(const Scenario& scenario, const DataSource& data) {
    return {.steps_done = 0,
            .optimizer = std::string(to_string(scenario.training.optimizer)),
            .precision = std::string(to_string(scenario.training.precision)),
            .seed = scenario.training.seed,
            .batch = scenario.training.batch,
            .data = data.description(),
            .tool_version = PIPETWIN_VERSION};
}

/// With the same steps behind it, what is ahead is the same, too.
void expect_same_steps(const CheckpointManifest& found,
                       const CheckpointManifest& wanted,
                       const std::filesystem::path& folder) {
    const auto expect = [&](const char* key, const auto& there, const auto& here) {
        if (there != here) {
            throw Error(ErrorKind::BadInput,
                        folder.string(),
                        fmt::format("it was written with {} = {}, not {}", key, there, here),
                        "go on with the scenario it was written with, or train without --resume");
        }
    };
    expect("training.seed", found.seed, wanted.seed);
    expect("training.batch", found.batch, wanted.batch);
    expect("training.optimizer", found.optimizer, wanted.optimizer);
    expect("training.precision", found.precision, wanted.precision);
    expect("data", found.data, wanted.data);
}

/// The number of the step to go on with.
int load(const Checkpoints& checkpoints,
         const CheckpointManifest& wanted,
         Executor& executor,
         const TrainingOptions& options) {
    const std::optional<Checkpoints::Loaded> loaded = checkpoints.load(executor.trained());
    if (loaded) {
        expect_same_steps(loaded->about, wanted, loaded->folder);
        executor.spread_weights();
    }
    const int first = loaded ? loaded->about.steps_done : 0;
    if (options.on_start) {
        options.on_start(first, loaded);
    }
    return first;
}

/// `must`: nothing can make up for it later.
void save(const Checkpoints& checkpoints,
          CheckpointManifest about,
          int steps_done,
          bool must,
          Executor& executor,
          const TrainingOptions& options) {
    about.steps_done = steps_done;
    if (options.before_checkpoint) {
        options.before_checkpoint();
    }
    try {
        checkpoints.save(std::move(about), executor.trained());
    } catch (const Error& error) {
        if (must || error.kind() != ErrorKind::Io) {
            throw;
        }
        options.on_warning(fmt::format("no checkpoint after step {}, training goes on: {}: {}",
                                       steps_done - 1,
                                       error.place(),
                                       error.text()));
    }
}

/// What a worker throws in `work`, as the trainer tells it.
template <class Work>
auto as_worker_failure(const Executor& executor, const Work& work) {
    try {
        return work();
    } catch (const Error& error) {
        const bool has_own_kind =
            error.kind() == ErrorKind::NotFinite || error.kind() == ErrorKind::Hang;
        if (has_own_kind || !executor.last_failure()) {
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

/// Held-out mini-batches, and when it is their turn.
class Validation {
  public:
    Validation(const Scenario& scenario, const Model& model)
        : every_(scenario.training.validate_every),
          batches_(scenario.training.validation_batches),
          samples_(scenario.training.batch) {
        if (every_ > 0) {
            data_ = open_data(scenario, model, DataUse::Validation);
        }
    }

    std::optional<double> after(int step, Executor& executor) const {
        if (every_ == 0 || (step + 1) % every_ != 0) {
            return std::nullopt;
        }
        double sum = 0;
        for (int batch = 0; batch < batches_; ++batch) {
            sum += as_worker_failure(
                executor, [&] { return executor.evaluate(data_->batch(batch, samples_), step); });
        }
        return sum / batches_;
    }

  private:
    int every_;
    int batches_;
    int samples_;
    std::unique_ptr<DataSource> data_;
};

}  // namespace

StepResult training_step(Executor& executor, const Batch& batch, int step) {
    StepResult result;
    training_step(executor, batch, step, result);
    return result;
}

void training_step(Executor& executor, const Batch& batch, int step, StepResult& result) {
    as_worker_failure(executor, [&] { executor.run_step(batch, step, result); });
}

TrainingResult train(const Scenario& scenario,
                     const Model& model,
                     const Plan& plan,
                     const TrainingOptions& options) {
    const std::unique_ptr<DataSource> data = open_data(scenario, model);
    const Validation validation(scenario, model);
    const OptimizerSettings optimizer = optimizer_settings(scenario);
    Executor executor(plan, model, executor_options(scenario));
    const CheckpointManifest about = manifest_of(scenario, *data);
    const Checkpoints checkpoints(options.checkpoints);
    const int first = options.resume ? load(checkpoints, about, executor, options) : 0;
    if (!options.resume && options.on_start) {
        options.on_start(0, {});
    }
    const int samples = scenario.training.batch;
    const int steps = scenario.training.steps;
    const int every = scenario.output.checkpoint_every;
    NoiseGate gate;
    NewNotes notes;
    SlowStages slow(plan);
    TrainingResult training;
    StepResult result;
    bool goes_on = true;
    for (int step = first; step < steps && goes_on; ++step) {
        training_step(executor, data->batch(step, samples), step, result);
        gate.add(result);
        if (options.on_timeline) {
            options.on_timeline(step, result.timeline);
        }
        training.steps.push_back(report_of(result, optimizer, step, samples));
        training.steps.back().validation_loss = validation.after(step, executor);
        training.steps.back().notes = notes.of_step(executor);
        std::ranges::move(slow.add(result.timeline),
                          std::back_inserter(training.steps.back().notes));
        goes_on = options.on_step(training.steps.back());
        const bool last = !goes_on || (step + 1 == steps && every > 0);
        const bool due = last || (every > 0 && (step + 1) % every == 0);
        if (due && !options.checkpoints.empty()) {
            save(checkpoints, about, step + 1, last, executor, options);
        }
    }
    if (!training.steps.empty()) {
        training.measured = gate.result();
    }
    training.memory_beside = executor.memory_beside();
    return training;
}

}  // namespace pipetwin::exec
