// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/base/rank_threads.h"
#include "exec/executor/executor.h"
#include "exec/transport/channel.h"

namespace pipetwin::exec {

/// The pipelines of one training: as many executors as the plan has replicas, each with its share
/// of every mini-batch, which have the same weights after every step. Where several devices divide
/// the layers of a pipeline, each has an executor, which walks the same rows. Where each rank has a
/// process of its own (ProcessPlace) there is one executor here, with one rank.
class Replicas {
  public:
    Replicas(const Plan& plan, const Model& model, const ExecutorOptions& options);

    /// Runs a step (Executor::run_step). The loss is that of the whole mini-batch; timeline and
    /// peaks are those of the first replica here, of the first of its devices. Where several fail,
    /// the failure of the first is thrown.
    void run_step(const Batch& batch, int step, StepResult& result);

    /// The loss and accuracy of a mini-batch without an update (Executor::score).
    Score score(const Batch& batch, int step);
    /// The loss of a mini-batch without an update (Executor::evaluate).
    double evaluate(const Batch& batch, int step) { return score(batch, step).loss; }

    /// The logits of all samples (Executor::logits).
    std::vector<double> logits(const Batch& batch, std::span<const int> positions, int step);

    /// The executor of the first replica here.
    Executor& first() { return *pipelines_.front(); }

    /// Calls `use` with the parameters of the whole model, in the first process; what is written
    /// goes to all that have them. To be called by all processes.
    void with_parameters(const std::function<void(const TrainedParameters&)>& use);

    /// Where the last step failed, in the first replica that did; none where it did not.
    std::optional<Failure> last_failure() const;
    /// Memory outside of the plan of the first replica here (Executor::memory_beside).
    std::vector<UnplannedMemory> memory_beside() const {
        return pipelines_.front()->memory_beside();
    }
    /// Notes of all replicas here, each reason once (Executor::notes).
    std::vector<std::string> notes() const;

  private:
    template <class Work>
    void on_all(const Work& work);
    void reopen_channels();
    std::unique_ptr<Executor> make_executor(const Plan& plan,
                                            const Model& model,
                                            const ExecutorOptions& options,
                                            std::size_t index);

    ProcessGroup& group_;
    ReplicasHere here_;
    ReplicasHere devices_here_;
    std::size_t devices_;    ///< of a rank, here
    std::size_t executors_;  ///< here: of each replica one for each device of a rank
    std::size_t stages_;
    std::size_t lanes_;
    std::vector<std::unique_ptr<Channel>> channels_;  ///< [from][to][stage][lane], executors
    /// [replica][device]
    std::vector<std::unique_ptr<Executor>> pipelines_;
    std::optional<std::size_t> failed_;
    bool are_closed_ = false;  ///< the channels, since a step failed
    RankThreads others_;       ///< a thread each for all but the first
};

}  // namespace pipetwin::exec
