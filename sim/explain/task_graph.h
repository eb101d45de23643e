// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/as_index.h"
#include "core/timeline/timeline.h"
#include "sim/engine/conditions.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::sim {

/// A plan's step as tasks, in an order in which each comes after all that it waits for, to be
/// evaluated again and again with other costs: for a slider, for samples of jitter, for what a
/// faster link would bring.
///
///     end(i) = max(end(after), end(also) + lag) + cost
///
/// A task is an action that takes time on its rank, or a message on its link, or a copy of a stash
/// to host memory or back, or a moment at which two chains meet. Sends and receives are moments
/// between tasks; where a channel's capacity makes a send wait, they are tasks without length.
struct Task {
    std::uint32_t after = 0;  ///< the one before on the same rank or link
    std::uint32_t also = 0;   ///< the message, the room, or the gradients that it waits for
    std::uint32_t cost = 0;   ///< index into the costs
    std::uint32_t lag = 0;    ///< index into the lags: a latency
};

/// Kind of a task.
enum class TaskKind : std::uint8_t { Action, Message, Copy, Moment };

/// The place of a task in the rows: the action of a rank at a cell, or the message of the send
/// there, or the copy of the stash that the action there makes or needs.
struct TaskPlace {
    std::int32_t rank = 0;
    std::int32_t cell = 0;
    TaskKind kind{};
};

/// The moment at which an action of a row is over: at the end of a task, or where a task begins,
/// since a rank that has received goes on to what needs the message.
struct CellEnd {
    std::uint32_t task = 0;
    bool at_begin = false;
};

/// The tasks of a plan's step with their costs, and evaluations of them.
class TaskGraph {
  public:
    /// Task 0 is the start of the step: it ends at 0 and waits for nothing. Throws InternalError
    /// for conditions with contention or with durations of their own.
    TaskGraph(const Plan& plan, const Conditions& conditions);

    std::span<const Task> tasks() const { return tasks_; }
    std::span<const TaskPlace> places() const { return places_; }

    /// The plan's own costs, those of a table of actions and messages (sim/engine/step_costs.h):
    /// entries may be changed, and the tasks evaluated again.
    const std::vector<Duration>& costs() const { return costs_; }
    const std::vector<Duration>& lags() const { return lags_; }

    /// Which of the lags is the latency of the links to host memory; none where nothing is copied.
    std::optional<std::uint32_t> host_lag() const { return host_lag_; }

    /// [cell]: the moment at which each action of a rank's row is over.
    std::span<const CellEnd> cells(int rank) const { return cells_[as_index(rank)]; }

    /// The tasks with which the ranks come to the end of their rows.
    std::span<const std::uint32_t> last_tasks() const { return last_; }

    /// Computes the time at which every task ends, from these costs and lags. `ends` has room for
    /// all tasks.
    void evaluate(std::span<const Duration> costs,
                  std::span<const Duration> lags,
                  std::span<Duration> ends) const;

    /// The step time of an evaluation, from the ends of the tasks.
    Duration step(std::span<const Duration> ends) const;

    /// [task]: time by which it could end later without making the step longer.
    std::vector<Duration> slack(std::span<const Duration> costs,
                                std::span<const Duration> lags,
                                std::span<const Duration> ends) const;

  private:
    friend class TaskWriter;

    std::vector<Task> tasks_;
    std::vector<TaskPlace> places_;
    std::vector<Duration> costs_;
    std::vector<Duration> lags_;
    std::optional<std::uint32_t> host_lag_;
    std::vector<std::uint32_t> last_;
    std::vector<std::vector<CellEnd>> cells_;  ///< [rank]
};

}  // namespace pipetwin::sim
