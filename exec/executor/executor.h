// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/timeline/compare.h"
#include "core/timeline/footprint.h"
#include "core/timeline/timeline.h"
#include "exec/data/batch.h"
#include "exec/device/group.h"
#include "exec/executor/executor_options.h"
#include "exec/executor/trained_parameters.h"
#include "exec/stage/stage.h"

namespace pipetwin {

class Model;
class Plan;

}  // namespace pipetwin

namespace pipetwin::exec {

/// Rows (positions of all samples) of a mini-batch, and those of them whose class is right.
struct Accuracy {
    double right = 0;
    double rows = 0;  ///< 0 where they are not counted (ExecutorOptions::counts_right)

    /// The share of the right rows; none where they are not counted.
    std::optional<double> share() const {
        return rows > 0 ? std::optional(right / rows) : std::nullopt;
    }
};

/// How well the model does on a mini-batch.
struct Score {
    double loss = 0;  ///< mean over the mini-batch
    Accuracy accuracy{};
};

/// What one training step computed, and when.
struct StepResult {
    double loss = 0;                 ///< mean over the mini-batch, before the update
    Accuracy accuracy{};             ///< before the update
    double grad_norm = 0;            ///< per tensor, then over tensors in model order, in double
    Timeline timeline;               ///< Measured or Emulated; rows as in the plan
    TimePoint start;                 ///< what its times are taken from
    std::vector<MemoryUse> peak;     ///< per rank, during this step
    std::vector<Bytes> host_peak{};  ///< [rank]: host memory of stashes; empty: none go there
    /// The share of all compute spans that others took: 1 - thread CPU time / wall time; on
    /// emulated devices what the spans last beyond the plan's durations.
    double stolen = 0;
    GroupUse groups{};  ///< of the ranks of the first device, where several divide the layers
    GroupUse shards{};  ///< of the ranks here, where replicas divide gradients or weights
};

/// Memory of the devices that no plan counts, such as that of libraries.
struct UnplannedMemory {
    std::string name;
    Bytes total;
    std::vector<Bytes> ranks;  ///< empty: the ranks have it in common
};

/// Where a worker failed.
struct Failure {
    int rank = 0;
    std::optional<int> device{};  ///< of the rank, where several divide its layers
    int step = 0;
    std::optional<Action> action;  ///< none: before the first of the row
    std::string message;
};
/// "rank 1, step 3, 1F2 (the forward of micro-batch 2 on stage 1)"; "rank 1, device 0, step 3,
/// ...".
std::string place_of(const Failure& failure);

/// Trains one partitioned model by walking the plan's rows: one worker thread per rank, each with
/// its own device and arena, channels between them. A worker never decides an order. The threads
/// live as long as the executor.
///
/// The first error in schedule order wins (the order is exec/memory_plan/schedule_order.h's):
/// the other workers go on with what comes before it in that order and stop there, all come back,
/// and run_step throws the original exception - an Error with rank, step and action put before its
/// place, any other type untouched; last_failure() tells where it was. After a failure the
/// gradients are cleared, the stashes freed, and the next run_step works. After a failure in
/// the forward part all weights are as before; later, stages that had ended their backward part may
/// have been updated.
///
/// A rank that hangs (exec/executor/watchdog.h) stops the others, too: run_step throws Error(Hang)
/// with where every rank was. A worker may come back late - the next run_step waits for it, and
/// refuses with Error(Hang) where it does not - or never: the executor then leaves its thread, and
/// all that this may still use, to themselves when it is destroyed, and a program should end at
/// once.
///
/// A GPU that fails permanently fails for all its ranks (exec/device/device_failure.h). The error
/// names the first of the ranks that had work on it, in schedule order, and the others after it.
/// Every later run_step throws.
///
/// Where there are as many cores as ranks, each worker is bound to its own.
///
/// Where each rank has a process of its own (ExecutorOptions::place) this one has one rank of it.
/// All processes call run_step and evaluate for the same steps; each gets the whole result of its
/// pipeline, and all throw the same failure. After a failure there is no other step.
class Executor {
  public:
    Executor(Plan plan, const Model& model, ExecutorOptions options);
    ~Executor();

    /// One optimizer step over `batch`, whose samples must be the plan's; `step` counts from 0.
    /// Throws Error(NotFinite) if a loss is not finite, naming the first stage and layer and the
    /// micro-batch: no weights are updated then. A gradient that is not finite although the losses
    /// are is found by the OPT of its stage, whose weights are lost.
    StepResult run_step(const Batch& batch, int step);
    /// Trains one step into `result`. With the result of an earlier step no memory is allocated:
    /// the first two steps take all of it.
    void run_step(const Batch& batch, int step, StepResult& result);

    /// Loss and accuracy over a batch with the weights as they are, or with their averages where
    /// the optimizer's settings have them: forwards alone, without dropout or recompute, in the
    /// order of the plan's rows. Weights, gradients and peaks stay. Throws as `run_step`, with
    /// `step` in the place. Fails and recovers as a step does.
    Score score(const Batch& batch, int step);
    /// The loss alone of `score`.
    double evaluate(const Batch& batch, int step) { return score(batch, step).loss; }

    /// The logits at one target position of each sample, [sample * classes + class], computed as
    /// `score` computes the loss; 0 for samples of other replicas in this process. `positions`:
    /// [sample]. Throws as `score`.
    std::vector<double> logits(const Batch& batch, std::span<const int> positions, int step);

    /// Waits for ranks that hung in the last step; `run_step` does so, too. Throws Error(Hang)
    /// where one does not come back.
    void await_stragglers();

    /// Where the last step failed; none where it did not.
    std::optional<Failure> last_failure() const;
    /// Which ranks here waited in groups of devices or replicas when another member's stop ended
    /// the last step, a line for each: "rank 0, device 0: waited in the all-reduce of layer
    /// 'block1.mlp' among devices 0-1 of the rank: device 1 has not come".
    std::vector<std::string> broken_waits() const;
    /// The plan whose rows are walked.
    const Plan& plan() const;
    /// A stage of this process. Throws InternalError where another process has it.
    Stage& stage(int index);
    /// All parameters in model order, each once; names do not depend on the partition.
    std::vector<Parameter*> parameters();
    /// Running statistics of all norms in model order, as Stage::state.
    std::vector<Parameter*> state();
    /// Parameters and running statistics, for a checkpoint. Valid as long as the executor.
    TrainedParameters trained();
    /// After a checkpoint was loaded: other stages with the same weights, or one of them, get them,
    /// too.
    void spread_weights();
    /// Whether this process has it; what follows asks for those alone.
    bool has_stage(int index) const;
    /// Parameters, with copies of what other stages have, too, then running statistics, each in
    /// model order.
    std::vector<Parameter*> trained_of_stage(int index);
    /// The reader of TrainedParameters, for tensors of this process.
    std::function<void(const Tensor& from, std::span<std::byte> to)> reader();
    /// Copies host bytes into a tensor of this process, as TrainedParameters needs it.
    std::function<void(std::span<const std::byte> from, Tensor& to)> writer();
    /// The gradient of the model's input, of the last step; empty unless
    /// ExecutorOptions::input_gradient.
    const Tensor& input_gradient(int micro_batch);
    /// The elements of a tensor of this executor, copied from its device.
    std::vector<double> values(const Tensor& tensor) const;
    /// What the rank holds between two steps.
    MemoryUse resident(int rank) const;
    /// The room for what a rank's steps need beside what it holds between them, taken and touched
    /// before the first.
    struct Room {
        Bytes bytes;
        Bytes least;         ///< what is needed at a time: the rest is lost between tensors
        int unforeseen = 0;  ///< steps that asked for something else than was planned
    };
    /// The room of a rank of this process.
    Room room(int rank) const;
    /// What lies beside the peaks of the last step.
    std::vector<UnplannedMemory> memory_beside() const;
    /// Why ranks work otherwise than asked, each reason once; empty: they do not.
    std::vector<std::string> notes() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin::exec
