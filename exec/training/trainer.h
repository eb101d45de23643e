// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/timeline/compare.h"
#include "exec/executor/executor.h"
#include "exec/replicas/replicas.h"
#include "exec/training/checkpoint.h"
#include "exec/training/held_out_translations.h"

namespace pipetwin {

class Plan;
struct ScenarioParts;

}  // namespace pipetwin

namespace pipetwin::exec {

/// What a user sees of one training step.
struct StepReport {
    int step = 0;
    double loss = 0;
    std::optional<double> accuracy{};  ///< share of right rows; none where they are not counted
    double grad_norm = 0;              ///< before clipping
    double learning_rate = 0;
    std::optional<double> validation_loss{};      ///< where this step was followed by a validation
    std::optional<double> validation_accuracy{};  ///< as `accuracy`, of the held-out mini-batches
    double step_ms = 0;
    std::optional<double> samples_per_second;
    std::vector<Bytes> peak_bytes;     ///< per rank
    std::vector<std::string> notes{};  ///< what a user should know since this step
};

/// Reports of all steps, and the timelines that a prediction is compared with.
struct TrainingResult {
    std::vector<StepReport> steps;
    TimelineSet
        measured;  ///< the steps that passed the noise gate (at most 32 of them), peaks and noise
    std::vector<UnplannedMemory> memory_beside;  ///< of the devices; empty where there is none
    /// After the last step, where `training.translate` asks for them.
    std::vector<HeldOutTranslation> translations{};
    /// Why the last checkpoint could not be written; none: it was, or none was due. In the process
    /// that has them.
    std::optional<Error> lost_checkpoint{};
};

/// One step of a run. What a worker throws arrives as Error(WorkerFailed) with rank, step and
/// action as its place and the worker's own message as its text; Error(NotFinite) and Error(Hang)
/// arrive as they are.
StepResult training_step(Executor& executor, const Batch& batch, int step);

/// One step of all replicas; throws as that of one executor. The memory of `result` is used again.
void training_step(Replicas& pipelines, const Batch& batch, int step, StepResult& result);

/// Where a training keeps what it learns, whom it tells what it does, and what it may use.
struct TrainingOptions {
    std::filesystem::path checkpoints{};  ///< the folder they lie in; empty: none is kept
    bool resume = false;                  ///< go on from the newest of them
    /// A folder of Hugging Face's weights to begin with; empty: they are drawn. Not with `resume`.
    std::filesystem::path weights{};
    /// Called after each step; false: training stops there (a signal came). What it throws ends the
    /// training after a checkpoint.
    std::function<bool(const StepReport&)> on_step{};
    /// Called with what every rank did in a step, before `on_step`.
    std::function<void(int step, const Timeline&)> on_timeline{};
    /// Called before the first step with its number and where the weights are from; nothing: drawn.
    std::function<void(int first_step, const std::optional<Checkpoints::Loaded>&)> on_start{};
    /// Called while held-out texts are translated behind the last step, with the share that is
    /// done.
    std::function<void(double share)> on_translated{};
    /// Called before a checkpoint is written, and before each further try: what was said about its
    /// steps, and what it is of no use without, must be kept first. Where it throws
    /// Error(Io) the checkpoint is not written, and tried again later.
    std::function<void()> before_checkpoint{};
    /// Told of what went wrong and is no reason to stop.
    std::function<void(const std::string&)> on_warning{};
    /// Where this process stands among several: only the first has checkpoints, and all stop as
    /// soon as one wants to.
    ProcessPlace place{};
};

/// Opens the data, builds the executor and runs the steps of the scenario, from the first or from
/// where the newest checkpoint ends. The first begins with weights that are drawn, or read from a
/// folder: the same bits for every cut, schedule and number of processes. The result holds what was
/// measured until the end or until `on_step` stopped it; nothing where no step was left.
///
/// Every `training.validate_every` steps the mean loss over `training.validation_batches` held-out
/// mini-batches follows, the same ones every time, with the averages of the weights where the
/// scenario has them.
///
/// Behind the last step the first `training.translate` held-out texts of each direction are
/// translated, unless `on_step` stopped the training.
///
/// A checkpoint is written every `output.checkpoint_every` steps and at the end, or as often in
/// time as that says and, after the first of them, at the end; and where `on_step` stops. One that
/// cannot be written is a warning, and is tried again (exec/base/retry.h); the last one is tried
/// for some seconds, and TrainingResult::lost_checkpoint says why it failed.
///
/// What fails between two steps, such as data that cannot be read any more, is thrown after a
/// checkpoint of the steps before it. Throws Error(BadInput) where a checkpoint is one of other
/// steps: seed, batch, optimizer or precision differ.
///
/// What is measured goes through exec/training/noise_gate.h: where no step passes it, `measured`
/// holds the step nearest the median of all, and noise.steps is 0.
TrainingResult train(const ScenarioParts& scenario,
                     const Model& model,
                     const Plan& plan,
                     const TrainingOptions& options);

/// Throws Error(BadInput) where `train` would refuse to go on from the newest checkpoint in the
/// folder `checkpoints`: one of another model, optimizer or precision, or of other steps. Needs
/// neither a plan nor memory for the model. A folder without checkpoints is fine.
void refuse_other_checkpoints(const ScenarioParts& scenario,
                              const Model& model,
                              const std::filesystem::path& checkpoints);

}  // namespace pipetwin::exec
