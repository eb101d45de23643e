// SPDX-License-Identifier: Apache-2.0
#include "exec/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/version.h"
#include "core/timeline/timeline.h"
#include "exec/base/retry.h"
#include "exec/data/batch.h"
#include "exec/executor/backend.h"
#include "exec/training/checkpoint_times.h"
#include "exec/training/noise_gate.h"
#include "exec/training/parameter_shapes.h"
#include "exec/training/published_weights.h"
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
                      .accuracy = result.accuracy.share(),
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
            .tool_version = std::string(program_version())};
}

/// With the same steps behind it, what is ahead is the same, too.
void expect_same_steps(const CheckpointManifest& found,
                       const CheckpointManifest& wanted,
                       const std::filesystem::path& folder) {
    const auto expect = [&](const char* key, const auto& there, const auto& here) {
        if (there != here) {
            throw Error(
                ErrorKind::BadInput,
                folder.string(),
                fmt::format("it was written with {} = {}, not {}", key, there, here),
                "continue with the scenario that it was written with, or train into another "
                "folder with --out DIR, without --resume");
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

/// What a process has to say after a step, and what all of them do then.
struct StepEnd {
    bool goes_on = true;
    bool has_failed = false;        ///< between two steps
    bool needs_checkpoint = false;  ///< as the first process says
};

/// All stop where one of them wants to, or has failed.
StepEnd agreed(ProcessGroup& group, const StepEnd& mine) {
    const auto all = group.all_gather(std::as_bytes(std::span(&mine, 1)));
    auto end = ByteReader(all.front()).get<StepEnd>();
    for (const auto& each : all) {
        const auto theirs = ByteReader(each).get<StepEnd>();
        end.has_failed = end.has_failed || theirs.has_failed;
        end.goes_on = end.goes_on && theirs.goes_on && !theirs.has_failed;
    }
    return end;
}

bool is_of_a_worker(const Error& error) {
    return error.kind() == ErrorKind::WorkerFailed || error.kind() == ErrorKind::Hang ||
           error.kind() == ErrorKind::NotFinite;
}

/// Throws what has failed, with how to go on after it.
[[noreturn]] void throw_after_checkpoint(const std::exception_ptr& failure, int steps_done) {
    try {
        std::rethrow_exception(failure);
    } catch (const Error& error) {
        Hint hint = error.advice();
        hint.resume = fmt::format(
            "{}--resume continues with step {}, from the checkpoint that was "
            "written now",
            hint.form.empty() ? "" : "then ",
            steps_done);
        throw error.with_hint(std::move(hint));
    }
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
        throw error.with_kind(ErrorKind::WorkerFailed);
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

    /// The mean score of the held-out mini-batches, where it is their turn.
    std::optional<Score> after(int step, Replicas& pipelines) const {
        if (every_ == 0 || (step + 1) % every_ != 0) {
            return std::nullopt;
        }
        Score sum;
        for (int batch = 0; batch < batches_; ++batch) {
            const Score one = as_worker_failure(
                pipelines, [&] { return pipelines.score(data_->batch(batch, samples_), step); });
            sum.loss += one.loss;
            sum.accuracy.right += one.accuracy.right;
            sum.accuracy.rows += one.accuracy.rows;
        }
        sum.loss /= batches_;
        return sum;
    }

  private:
    int every_;
    int batches_;
    int samples_;
    std::unique_ptr<DataSource> data_;
};

/// A training from its first step to its last.
class Training {
  public:
    Training(const ScenarioParts& scenario,
             const Model& model,
             const Plan& plan,
             const TrainingOptions& options)
        : options_(options),
          model_(scenario.model),
          group_(*options.place.group),
          steps_(scenario.training.steps),
          samples_(scenario.training.batch),
          optimizer_(optimizer_settings(scenario)),
          output_(scenario.output),
          data_(open_data(scenario, model)),
          validation_(scenario, model),
          held_out_texts_(scenario, model),
          pipelines_(plan, model, executor_at(scenario, options.place)),
          about_(manifest_of(scenario, *data_)),
          checkpoints_(options.checkpoints),
          slow_(plan) {}

    TrainingResult run() {
        const int first = begin();
        bool goes_on = true;
        for (int step = first; step < steps_ && goes_on; ++step) {
            training_step(pipelines_, batch_, step, result_);
            gate_.add(result_, step);
            goes_on = after(step);
        }
        if (!training_.steps.empty()) {
            training_.measured = gate_.result();
        }
        training_.memory_beside = pipelines_.memory_beside();
        if (goes_on && !training_.steps.empty()) {
            training_.translations = as_worker_failure(pipelines_, [&] {
                return held_out_texts_.translate(pipelines_, steps_ - 1, options_.on_translated);
            });
        }
        return std::move(training_);
    }

  private:
    using Clock = CheckpointTimes::Clock;

    static ExecutorOptions executor_at(const ScenarioParts& scenario, const ProcessPlace& place) {
        ExecutorOptions executor = executor_options(scenario);
        executor.place = place;
        return executor;
    }

    /// Takes over what a run before has left, and the first batch. Returns the number of its step.
    int begin() {
        std::optional<Checkpoints::Loaded> loaded;
        int first = 0;
        if (options_.resume) {
            pipelines_.with_parameters([&](const TrainedParameters& parameters) {
                loaded = checkpoints_.load(parameters);
                if (loaded) {
                    expect_same_steps(loaded->about, about_, loaded->folder);
                }
            });
            first = as_first_says(group_, loaded ? loaded->about.steps_done : 0);
        }
        if (!options_.weights.empty()) {
            pipelines_.with_parameters([&](const TrainedParameters& parameters) {
                PublishedWeights(options_.weights, model_).load(parameters);
            });
        }
        keeps_checkpoints_ = as_first_says(group_, options_.checkpoints.empty() ? 0 : 1) != 0;
        if (first < steps_) {
            batch_ = data_->batch(first, samples_);
        }
        if (options_.on_start) {
            options_.on_start(first, loaded);
        }
        times_.emplace(output_, first > 0, Clock::now());
        return first;
    }

    /// Tells of a step, draws the next batch and keeps what is to be kept. Whether there is a next
    /// step.
    bool after(int step) {
        const bool last = step + 1 == steps_;
        std::exception_ptr failure;
        StepEnd mine;
        try {
            mine.goes_on = tell(step);
            if (mine.goes_on && !last) {
                batch_ = data_->batch(step + 1, samples_);
            }
        } catch (const Error& error) {
            // Without its workers a training has no weights to keep, and the other processes of one
            // that validates wait for this one.
            if (is_of_a_worker(error) || (validates_ && !group_.is_alone())) {
                throw;
            }
            failure = std::current_exception();
            mine.has_failed = true;
        }
        mine.needs_checkpoint = times_->is_due(step + 1, last, Clock::now());
        const StepEnd end = agreed(group_, mine);
        if (keeps_checkpoints_ && (end.needs_checkpoint || !end.goes_on)) {
            save(step + 1, last || !end.goes_on);
        }
        if (failure && keeps_checkpoints_ && !training_.lost_checkpoint) {
            throw_after_checkpoint(failure, step + 1);
        }
        if (failure) {
            std::rethrow_exception(failure);
        }
        return end.goes_on;
    }

    /// Whether this process wants to go on.
    bool tell(int step) {
        if (options_.on_timeline) {
            options_.on_timeline(step, result_.timeline);
        }
        StepReport& report =
            training_.steps.emplace_back(report_of(result_, optimizer_, step, samples_));
        validates_ = true;
        if (const std::optional<Score> held_out = validation_.after(step, pipelines_)) {
            report.validation_loss = held_out->loss;
            report.validation_accuracy = held_out->accuracy.share();
        }
        validates_ = false;
        report.notes = notes_.of_step(pipelines_);
        std::ranges::move(slow_.add(result_.timeline), std::back_inserter(report.notes));
        return options_.on_step(report);
    }

    /// Writes a checkpoint. `last`: no step follows that could write another.
    void save(int steps_done, bool last) {
        about_.steps_done = steps_done;
        pipelines_.with_parameters([&](const TrainedParameters& parameters) {
            try {
                keep_trying(
                    last ? disk_patience : std::chrono::seconds(0),
                    [&] {
                        if (options_.before_checkpoint) {
                            options_.before_checkpoint();
                        }
                        checkpoints_.save(about_, parameters);
                    },
                    [](const Error&) {});
                times_->written(Clock::now());
            } catch (const Error& error) {
                if (error.kind() != ErrorKind::Io) {
                    throw;
                }
                times_->failed(Clock::now());
                options_.on_warning(fmt::format("no checkpoint after step {}{}: {}: {}",
                                                steps_done - 1,
                                                last ? "" : ", training continues",
                                                error.place(),
                                                error.text()));
                if (last) {
                    training_.lost_checkpoint = error;
                }
            }
        });
    }

    const TrainingOptions& options_;
    const ScenarioParts::ModelPart& model_;
    ProcessGroup& group_;
    int steps_;
    int samples_;
    OptimizerSettings optimizer_;
    Scenario::OutputPart output_;
    std::unique_ptr<DataSource> data_;
    Validation validation_;
    HeldOutTexts held_out_texts_;
    Replicas pipelines_;
    CheckpointManifest about_;
    Checkpoints checkpoints_;
    std::optional<CheckpointTimes> times_;  ///< from the first step on
    bool keeps_checkpoints_ = false;        ///< the first process does
    bool validates_ = false;                ///< it computes the loss over held-out batches
    NoiseGate gate_;
    NewNotes notes_;
    SlowStages slow_;
    Batch batch_;  ///< of the next step
    TrainingResult training_;
    StepResult result_;
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
        scenario.training.optimizer,
        scenario.training.average_decay > 0);
    if (const auto found = Checkpoints(checkpoints).find(shapes.parameters())) {
        const std::unique_ptr<DataSource> data = open_data(scenario, model);
        expect_same_steps(found->about, manifest_of(scenario, *data), found->folder);
    }
}

TrainingResult train(const ScenarioParts& scenario,
                     const Model& model,
                     const Plan& plan,
                     const TrainingOptions& options) {
    return Training(scenario, model, plan, options).run();
}

}  // namespace pipetwin::exec
