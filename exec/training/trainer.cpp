#include "exec/training/trainer.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/timeline/timeline.h"
#include "exec/data/batch.h"
#include "exec/executor/backend.h"
#include "exec/training/noise_gate.h"
#include "exec/training/parameter_shapes.h"
#include "exec/training/slow_stages.h"
#include "exec/transport/byte_message.h"

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
    std::vector<std::string> of_step(const Replicas& pipelines) {
        std::vector<std::string> fresh;
        for (const std::string& note : pipelines.notes()) {
            if (said_.insert(note).second) {
                fresh.push_back(note);
            }
        }
        return fresh;
    }

  private:
    std::set<std::string> said_;
};

CheckpointManifest manifest_of(const ScenarioParts& scenario, const DataSource& data) {
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

/// What the first process says, in all of them.
int as_first_says(ProcessGroup& group, int value) {
    const auto all = group.all_gather(std::as_bytes(std::span(&value, 1)));
    return ByteReader(all.front()).get<int>();
}

/// Whether all processes want to.
bool all_agree(ProcessGroup& group, bool wanted) {
    const auto all = group.all_gather(std::as_bytes(std::span(&wanted, 1)));
    return std::ranges::all_of(all, [](const auto& each) { return ByteReader(each).get<bool>(); });
}

/// The number of the step to go on with.
int load(const Checkpoints& checkpoints,
         const CheckpointManifest& wanted,
         Replicas& pipelines,
         const TrainingOptions& options) {
    std::optional<Checkpoints::Loaded> loaded;
    pipelines.with_parameters([&](const TrainedParameters& parameters) {
        loaded = checkpoints.load(parameters);
        if (loaded) {
            expect_same_steps(loaded->about, wanted, loaded->folder);
        }
    });
    const int first = as_first_says(*options.place.group, loaded ? loaded->about.steps_done : 0);
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
          Replicas& pipelines,
          const TrainingOptions& options) {
    about.steps_done = steps_done;
    pipelines.with_parameters([&](const TrainedParameters& parameters) {
        if (options.before_checkpoint) {
            options.before_checkpoint();
        }
        try {
            checkpoints.save(about, parameters);
        } catch (const Error& error) {
            if (must || error.kind() != ErrorKind::Io) {
                throw;
            }
            options.on_warning(fmt::format("no checkpoint after step {}, training goes on: {}: {}",
                                           steps_done - 1,
                                           error.place(),
                                           error.text()));
        }
    });
}

/// What a worker throws in `work`, as the trainer tells it.
template <class Pipelines, class Work>
auto as_worker_failure(const Pipelines& executor, const Work& work) {
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
    Validation(const ScenarioParts& scenario, const Model& model)
        : every_(scenario.training.validate_every),
          batches_(scenario.training.validation_batches),
          samples_(scenario.training.batch) {
        if (every_ > 0) {
            data_ = open_data(scenario, model, DataUse::Validation);
        }
    }

    std::optional<double> after(int step, Replicas& pipelines) const {
        if (every_ == 0 || (step + 1) % every_ != 0) {
            return std::nullopt;
        }
        double sum = 0;
        for (int batch = 0; batch < batches_; ++batch) {
            sum += as_worker_failure(
                pipelines, [&] { return pipelines.evaluate(data_->batch(batch, samples_), step); });
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
    return as_worker_failure(executor, [&] { return executor.run_step(batch, step); });
}

void training_step(Replicas& pipelines, const Batch& batch, int step, StepResult& result) {
    as_worker_failure(pipelines, [&] { pipelines.run_step(batch, step, result); });
}

void refuse_other_checkpoints(const ScenarioParts& scenario,
                              const Model& model,
                              const std::filesystem::path& checkpoints) {
    const ParameterShapes shapes(
        model,
        number_format(scenario.training.precision, scenario.cluster.backend),
        scenario.training.optimizer);
    if (const auto found = Checkpoints(checkpoints).find(shapes.parameters())) {
        const std::unique_ptr<DataSource> data = open_data(scenario, model);
        expect_same_steps(found->about, manifest_of(scenario, *data), found->folder);
    }
}

TrainingResult train(const ScenarioParts& scenario,
                     const Model& model,
                     const Plan& plan,
                     const TrainingOptions& options) {
    const std::unique_ptr<DataSource> data = open_data(scenario, model);
    const Validation validation(scenario, model);
    const OptimizerSettings optimizer = optimizer_settings(scenario);
    ProcessGroup& group = *options.place.group;
    ExecutorOptions executor = executor_options(scenario);
    executor.place = options.place;
    Replicas pipelines(plan, model, executor);
    const CheckpointManifest about = manifest_of(scenario, *data);
    const Checkpoints checkpoints(options.checkpoints);
    const int first = options.resume ? load(checkpoints, about, pipelines, options) : 0;
    if (!options.resume && options.on_start) {
        options.on_start(0, {});
    }
    const int samples = scenario.training.batch;
    const int steps = scenario.training.steps;
    const int every = scenario.output.checkpoint_every;
    const bool keeps_checkpoints = as_first_says(group, options.checkpoints.empty() ? 0 : 1) != 0;
    NoiseGate gate;
    NewNotes notes;
    SlowStages slow(plan);
    TrainingResult training;
    StepResult result;
    bool goes_on = true;
    for (int step = first; step < steps && goes_on; ++step) {
        training_step(pipelines, data->batch(step, samples), step, result);
        gate.add(result);
        if (options.on_timeline) {
            options.on_timeline(step, result.timeline);
        }
        training.steps.push_back(report_of(result, optimizer, step, samples));
        training.steps.back().validation_loss = validation.after(step, pipelines);
        training.steps.back().notes = notes.of_step(pipelines);
        std::ranges::move(slow.add(result.timeline),
                          std::back_inserter(training.steps.back().notes));
        goes_on = all_agree(group, options.on_step(training.steps.back()));
        const bool last = !goes_on || (step + 1 == steps && every > 0);
        const bool due = last || (every > 0 && (step + 1) % every == 0);
        if (due && keeps_checkpoints) {
            save(checkpoints, about, step + 1, last, pipelines, options);
        }
    }
    if (!training.steps.empty()) {
        training.measured = gate.result();
    }
    training.memory_beside = pipelines.memory_beside();
    return training;
}

}  // namespace pipetwin::exec
