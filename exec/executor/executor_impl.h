// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/model/model.h"
#include "exec/base/rank_threads.h"
#include "exec/device/paced_links.h"
#include "exec/executor/executor.h"
#include "exec/executor/step_failures.h"
#include "exec/executor/worker.h"
#include "exec/memory_plan/step_layout.h"
#include "exec/transport/common_clock.h"
#include "exec/transport/monitor.h"
#include "exec/transport/remote_sum.h"

/// The inside of the executor: the walk over rows (executor.cpp), channels between ranks
/// (executor_connections.cpp), addresses of a step's tensors (executor_memory.cpp), ranks of other
/// processes (executor_processes.cpp), and what follows a failure (executor_failures.cpp).
namespace pipetwin::exec {

/// State of an executor. The functions say more where they are defined.
struct Executor::Impl {
    Impl(Plan plan_to_walk, const Model& trained_model, ExecutorOptions executor_options);
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    ~Impl();

    /// Makes the worker of a rank. Throws Error, with the rank in its place.
    /// `on_backend`: the model as the devices keep it.
    void add_worker(int rank,
                    const Model& on_backend,
                    std::unique_ptr<Device> device,
                    const Worker::Settings& settings);
    /// Whether this process has the stage's rank.
    bool is_here(int stage) const {
        const int rank = plan->schedule.rank_of_stage[as_index(stage)];
        return std::ranges::find(here, rank) != here.end();
    }
    /// The workers of this process, by ascending rank.
    std::vector<Worker*> workers_here() const;
    ProcessGroup& group() const { return *options.place.group; }
    int replica() const { return options.replica.index; }
    /// Index in the group of the process that has this one's device of a rank, in this replica or
    /// another.
    int process_of(int rank) const { return process_of(replica(), rank); }
    int process_of(int other_replica, int rank) const {
        return exec::process_of(
            group(),
            plan,
            {.replica = other_replica, .rank = rank, .device = options.tensor.device});
    }
    /// Opens the channel between a stage here and the same stage on another of its devices.
    Channel& device_channel(int stage, int other, bool sends);
    /// Opens the channel between a stage here and the same stage of another replica, for what those
    /// send each other that divide its weights or gradients.
    Channel& shard_channel(int stage, ReplicaLane lane, int other, bool sends);
    /// Makes the norm and the edges of the ranks of this process.
    void connect();
    void connect_devices();
    void connect_shards();
    /// Gives an edge between two stages its channel; none where other processes have both.
    void connect(Edge& edge, int sender, int receiver);
    std::optional<int> room_between(int sender, int receiver) const;
    /// Opens a channel to another process for an edge. With emulated links it is a timed channel.
    std::vector<int> peers() const;
    std::unique_ptr<Channel> open_edge(int sender, int receiver);
    /// Opens a channel between two stages, one of them in another process. Each kind of message has
    /// tags of its own, from `first_tag` on. No capacity: unbounded.
    std::unique_ptr<Channel> open_remote(int sender,
                                         int receiver,
                                         int first_tag,
                                         std::optional<int> capacity = {});
    std::unique_ptr<Channel> open_moments(int sender, int receiver);
    /// Makes the all-reduce of each stage here over the replicas; none for one replica.
    void connect_replicas();
    /// Fills in the stages of other processes, [stage]. Collective: all processes call it.
    void exchange_squares(GradientNorm::Squares& squares) const;
    /// Sets `start` for all workers of all processes. False: some process will never begin the
    /// step.
    bool agree_on_start() noexcept;
    /// Where the first rank of this process is, for the monitor.
    Position position() const;
    /// Updates `cells` of the ranks of other processes from what the monitor has heard.
    void poll_peers();
    /// Throws Error(Hang) with the lost process, and where every process was when last heard of.
    [[noreturn]] void throw_lost() const;
    /// Exchanges failures, so that all processes know the same ones. Collective.
    void share_failures();
    /// Wall time and thread CPU time, summed over all compute actions.
    struct ComputeTime {
        Duration wall{};
        Duration cpu{};
    };
    /// Adds the results and the compute time of other processes. Collective.
    void share(StepResult& result, ComputeTime& time) const;
    /// The sum of all processes' parts of loss and accuracy. Collective.
    Score shared_score() const;
    /// The sum of all processes' logits: each has those of its samples, and 0 elsewhere.
    /// Collective.
    std::vector<double> shared_logits(std::vector<double> own) const;
    /// Opens the two channels between a stage here and the same stage of another replica.
    ReplicaMember::Peer replica_peer(int stage, int other);
    /// Opens the sum over the GPUs of all replicas, where the backend has memory of its own.
    void open_gpu_sum();
    /// Closes the channels to other processes, before the memories that they use are freed.
    void end_remote();
    /// Makes messages between devices with memories of their own be copied.
    void connect_memories();
    /// Connects each stage with the stage that shares its weights, for gradients.
    void connect_twins();
    /// Gives every tensor of a step its address; `layouts` stays empty where that cannot be done.
    void plan_memory();
    /// Whether the layouts fit into the memory that was reserved on the GPUs.
    bool has_room() const;
    /// Whether the devices of two stages of this process have one memory.
    bool share_memory(int stage, int other) const {
        return &worker_of(stage).device().memory() == &worker_of(other).device().memory();
    }
    /// Throws Error(WorkerFailed) if the device failed permanently in an earlier step.
    void refuse_lost_device() const;
    bool counts_right() const {
        return options.counts_right.value_or(!model.layer(0).input.token_ids);
    }
    bool has_planned_memory() const { return !layouts.empty(); }
    /// Deals free blocks so that addresses repeat from step to step and CUDA graphs can be reused.
    void repeat_addresses() const;
    /// Walks all rows on their threads. Returns when all are back, or after a hang and the grace
    /// time.
    void walk_rows();
    /// Prepares the rank's worker, then walks its row. Runs on the rank's thread.
    void work(std::size_t rank);
    template <class Work>
    bool attempt(std::size_t rank, std::size_t cell, const Work& work);
    void turn_to(std::size_t rank, std::size_t cell);
    /// Walks a row. False if it ended early, as an action of it or of another rank failed.
    bool walk_row(std::size_t rank);
    /// Reports the hang as the failure of its rank, and closes all channels.
    void stop_all(const Hang& hang);
    /// Waits for workers that hung in the last step. Throws Error(Hang) if they are still away.
    void await_stragglers();
    /// Whether groups of devices or replicas divide the layers of stages.
    bool divides_layers() const;
    /// Calls act(stage, group) for all groups in which ranks here compute.
    template <class Do>
    void for_each_group(const Do& act) const {
        for (std::size_t stage = 0; stage < edges.groups.size(); ++stage) {
            if (edges.groups[stage] != nullptr) {
                act(stage, *edges.groups[stage]);
            }
        }
        for (std::size_t stage = 0; stage < edges.shards.size(); ++stage) {
            edges.shards[stage].for_each([&](Group& group) { act(stage, group); });
        }
    }
    /// [rank] Whether it waits for other devices of its stage; empty: no device has others.
    std::span<const char> waits_in_groups();
    /// "the all-reduce of layer 'block1.mlp' among devices 0-1 of the rank: device 1 has not come".
    std::string text_of(const GroupWait& wait) const;
    /// What a rank here waits for in a group; empty: nothing.
    std::string group_wait_of(int rank) const;
    /// What the ranks here have spent in groups of devices so far.
    GroupUse group_use() const;
    /// Likewise in sums and gathers over replicas that divide gradients.
    GroupUse shard_use() const;
    /// Fills in what the last step gave, in all processes. Collective.
    void collect_result(StepResult& result);
    double lateness(const Timeline& timeline) const;
    /// Walks a step or an evaluation from begin to end. Throws as Executor::run_step.
    void commit_batch();
    void walk(const Batch& data, int step, bool evaluation, const WantedLogits* logits = nullptr);
    /// Walks the forwards of all rows, with the averages of the weights where there are some.
    /// `logits`: null for none.
    void evaluate(const Batch& data, int step, const WantedLogits* logits);
    /// The part of loss and accuracy of the mini-batch that this process computes.
    Score score() const;
    /// Norm of all gradients, for a group of this process alone: summed in model order.
    double grad_norm() const;
    /// Empties all channels after a failure, so that another step can use them.
    void reopen_channels();
    /// Makes another step possible after a failure; with several processes, forbids it.
    void clean_up();
    /// Cleans up, notes the first failure, and throws it.
    [[noreturn]] void clean_up_and_throw();
    /// Throws the failure, with its rank, step and action put before its place.
    [[noreturn]] void throw_failure(const StepFailures::One& failure);
    void look_through(int stage, int micro_batch, std::map<std::pair<int, int>, Tensor>& messages);
    /// Runs a forward again to find the first layer whose output is not finite: "; the first ...".
    std::string first_not_finite(const Action& forward);
    /// A device of this process in whose memory the tensor lies; the first device if none has it.
    Device& device_of(const Tensor& tensor) const {
        const std::vector<Worker*> some = workers_here();
        const auto holds = [&](Worker* worker) {
            return &worker->device().memory() == tensor.memory();
        };
        const auto found = std::ranges::find_if(some, holds);
        return (found == some.end() ? some.front() : *found)->device();
    }
    /// The worker of a rank. Throws InternalError if another process has the rank.
    Worker& worker_at(int rank) const {
        Worker* const worker = workers.at(as_index(rank)).get();
        PIPETWIN_EXPECT(worker != nullptr, "a rank of another process");
        return *worker;
    }
    /// The worker of a stage. Throws InternalError if another process has the stage.
    Worker& worker_of(int stage) const {
        return worker_at(plan->schedule.rank_of_stage.at(as_index(stage)));
    }

    Plan plan;
    Model model;
    ExecutorOptions options;
    std::vector<int> here;  ///< the ranks of this process, ascending
    Spin spin = Spin::Never;
    std::vector<std::unique_ptr<Device>> devices{};  ///< [rank], until its worker has it
    Edges edges;
    std::optional<PacedLinks> shared_links{};  ///< where links are emulated and any is shared
    std::vector<std::unique_ptr<Channel>> replica_channels;  ///< to and from other processes
    std::vector<std::unique_ptr<Channel>> device_channels;   ///< likewise
    std::vector<std::unique_ptr<Worker>> workers;  ///< [rank]; null: another process has it
    std::unique_ptr<RemoteSum> gpu_sum;   ///< of replicas on GPUs; ends before what it sums
    std::vector<RowLayout> layouts;       ///< [rank]; empty: memory is not planned
    std::vector<std::vector<int>> order;  ///< [rank][cell]
    std::optional<Failure> last_failure;
    std::optional<Failure> lost_device;  ///< where the device failed permanently

    // A step; a worker that hangs may be in it for longer than run_step:
    /// Completion of the barrier before a step.
    struct BeginTogether {
        Impl* impl;
        void operator()() noexcept { impl->all_begin = impl->agree_on_start(); }
    };
    /// Where a rank is in its row.
    struct alignas(64) Progress {  // a cache line each
        std::atomic<int> cell = preparing;
        std::atomic<int> turned_to = preparing;  ///< stays where a row was not walked to its end
    };
    Batch batch;
    StepInput input;
    StepFailures failures;
    std::atomic<bool> is_stopped = false;  ///< a row was not walked to its end
    std::atomic<std::int64_t> walks = 0;   ///< begun
    GroupUse groups_before{};              ///< as it was when the step began
    GroupUse shards_before{};              ///< likewise
    bool is_over = false;                  ///< a process failed: no other step follows
    std::vector<Progress> progress;        ///< [rank]: where its worker is
    std::vector<char> group_waits;         ///< [rank]: likewise
    /// What the first rank here waits for in a group, at the last look.
    std::atomic<GroupWait> seen_wait{no_wait};
    std::vector<int> cells;  ///< [rank]: the cell of its row, at the last look
    TimePoint start;
    bool all_begin = true;  ///< no process is known that will never begin this step
    std::barrier<BeginTogether> all_ready;
    CommonClock clock;  ///< of all processes
    Watchdog watchdog;
    bool has_stragglers = false;  ///< not all workers came back from the last step
    RankThreads threads;          ///< one per rank here; last: they use all of the above
};

}  // namespace pipetwin::exec
