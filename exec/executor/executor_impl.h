#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/as_index.h"
#include "exec/base/rank_threads.h"
#include "exec/executor/executor.h"
#include "exec/executor/step_failures.h"
#include "exec/executor/worker.h"
#include "exec/memory_plan/step_layout.h"
#include "exec/transport/common_clock.h"
#include "exec/transport/monitor.h"
#include "exec/transport/remote_sum.h"

/// Inside of the executor: setting up and walking rows (executor.cpp), where every tensor of a step
/// lies (executor_memory.cpp), and what follows a failure (executor_failures.cpp).
namespace pipetwin::exec {

/// State of an executor. Each function is explained where it is defined.
struct Executor::Impl {
    Impl(Plan plan_to_walk, const Model& trained_model, ExecutorOptions executor_options);
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    ~Impl();

    void add_worker(int rank, std::unique_ptr<Device> device, const Worker::Settings& settings);
    bool is_here(int stage) const {
        const int rank = plan->schedule.rank_of_stage[as_index(stage)];
        return std::ranges::find(here, rank) != here.end();
    }
    std::vector<Worker*> workers_here() const;
    ProcessGroup& group() const { return *options.place.group; }
    int replica() const { return options.replica.index; }
    int process_of(int rank) const { return exec::process_of(group(), plan, replica(), rank); }
    void connect();
    void connect(Edge& edge, int sender, int receiver);
    std::unique_ptr<Channel> open_edge(int sender, int receiver);
    std::unique_ptr<Channel> open_remote(int sender,
                                         int receiver,
                                         int first_tag,
                                         std::optional<int> capacity = {});
    void connect_replicas();
    void exchange_squares(GradientNorm::Squares& squares) const;
    bool agree_on_start() noexcept;
    Position position() const;
    void poll_peers();
    [[noreturn]] void throw_lost() const;
    void share_failures();
    /// Over all compute actions.
    struct ComputeTime {
        Duration wall{};
        Duration cpu{};
    };
    void share(StepResult& result, ComputeTime& time) const;
    double shared_loss() const;
    ReplicaMember::Peer replica_peer(int stage, int other);
    void open_gpu_sum();
    void end_remote();
    void connect_memories();
    void connect_twins();
    void plan_memory();
    bool has_room() const;
    bool share_memory(int stage, int other) const {
        return &worker_of(stage).device().memory() == &worker_of(other).device().memory();
    }
    void refuse_lost_device() const;
    bool has_planned_memory() const { return !layouts.empty(); }
    void repeat_addresses() const;
    void walk_rows();
    void work(std::size_t rank);
    bool walk_row(std::size_t rank);
    void stop_all(const Hang& hang);
    void await_stragglers();
    void collect_result(StepResult& result);
    void walk(const Batch& data, int step, bool evaluation);
    double loss() const;
    double grad_norm() const;
    void reopen_channels();
    void clean_up();
    [[noreturn]] void clean_up_and_throw();
    [[noreturn]] void throw_failure(const StepFailures::One& failure);
    std::string first_not_finite(const Action& forward);
    /// One in whose memory the tensor lies.
    Device& device_of(const Tensor& tensor) const {
        const std::vector<Worker*> some = workers_here();
        const auto holds = [&](Worker* worker) {
            return &worker->device().memory() == tensor.memory();
        };
        const auto found = std::ranges::find_if(some, holds);
        return (found == some.end() ? some.front() : *found)->device();
    }
    Worker& worker_of(int stage) const {
        const int rank = plan->schedule.rank_of_stage.at(as_index(stage));
        return *workers[as_index(rank)];
    }

    Plan plan;
    Model model;
    ExecutorOptions options;
    std::vector<int> here;  ///< the ranks of this process, ascending
    Spin spin = Spin::Never;
    Edges edges;
    std::vector<std::unique_ptr<Channel>> replica_channels;  ///< to and from other processes
    std::vector<std::unique_ptr<Worker>> workers;  ///< [rank]; null: another process has it
    std::unique_ptr<RemoteSum> gpu_sum;   ///< of replicas on GPUs; ends before what it sums
    std::vector<RowLayout> layouts;       ///< [rank]; empty: memory is not planned
    std::vector<std::vector<int>> order;  ///< [rank][cell]
    std::optional<Failure> last_failure;
    std::optional<Failure> lost_device;  ///< where the device failed for good

    // A step; a worker that hangs may be in it for longer than run_step:
    struct BeginTogether {
        Impl* impl;
        void operator()() noexcept { impl->all_begin = impl->agree_on_start(); }
    };
    struct alignas(64) Progress {  // a cache line each
        std::atomic<int> cell = preparing;
        std::atomic<int> turned_to = preparing;  ///< stays where a row was not walked to its end
    };
    Batch batch;
    StepInput input;
    StepFailures failures;
    std::atomic<bool> is_stopped = false;  ///< a row was not walked to its end
    std::atomic<std::int64_t> walks = 0;   ///< begun
    bool is_over = false;                  ///< a process failed: no other step follows
    std::vector<Progress> progress;        ///< [rank]: where its worker is
    std::vector<int> cells;                ///< the same, at the last look
    TimePoint start;
    bool all_begin = true;  ///< no process is known that will never begin this step
    std::barrier<BeginTogether> all_ready;
    CommonClock clock;  ///< of all processes
    Watchdog watchdog;
    bool has_stragglers = false;  ///< not all workers came back from the last step
    RankThreads threads;          ///< one per rank here; last: they use all of the above
};

}  // namespace pipetwin::exec
