#include "exec/executor.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <exception>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "exec/cores.h"
#include "exec/cuda_module.h"
#include "exec/kernels.h"
#include "exec/paced_device.h"
#include "exec/schedule_order.h"
#include "exec/worker.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// The earliest failure in schedule order. Any thread.
class FirstFailure {
  public:
    /// Keeps `error` if it comes before what is kept.
    void report(int order, int rank, const Action& action, std::exception_ptr error) {
        const std::lock_guard lock(mutex_);
        if (order < order_) {
            order_ = order;
            rank_ = rank;
            action_ = action;
            error_ = std::move(error);
        }
    }

    /// Whether a worker may still turn to the action with this place in the order.
    bool allows(int order) const { return order <= order_; }

    int rank() const { return rank_; }
    const Action& action() const { return action_; }
    /// Null if nothing failed.
    const std::exception_ptr& error() const { return error_; }

  private:
    std::mutex mutex_;
    std::atomic<int> order_ = std::numeric_limits<int>::max();
    int rank_ = 0;
    Action action_;
    std::exception_ptr error_;
};

std::string message_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& exception) {
        return exception.what();
    } catch (...) {
        return "an exception that is no std::exception";
    }
}

void refuse_what_cannot_be_executed(const Plan& plan,
                                    const Model& model,
                                    Backend backend,
                                    Precision precision) {
    if (backend == Backend::Cuda && precision == Precision::Fp64) {
        throw Error(ErrorKind::Unavailable,
                    "training.precision",
                    "the GPU computes in fp32 and bf16, not in fp64",
                    "set precision = \"fp32\", or backend = \"cpu\"");
    }
    if (backend != Backend::Cuda && precision == Precision::Bf16) {
        throw Error(ErrorKind::Unavailable,
                    "training.precision",
                    "the CPU computes in fp32 and fp64, not in bf16 yet",
                    "set precision = \"fp32\"");
    }
    if (!model.is_executable()) {
        throw Error(ErrorKind::BadInput,
                    "model",
                    "it is known by its costs only, so it can be simulated but not executed",
                    "describe the model as gpt, mlp or layers");
    }
    if (const auto why = why_not_trainable(plan->schedule, plan->stale_gradients)) {
        throw Error(
            ErrorKind::Infeasible, plan->schedule_name, *why, "'pipetwin simulate' predicts it");
    }
    PIPETWIN_EXPECT(plan->partition && plan->partition->layer_count() == model.layer_count(),
                    "the plan's partition is one of this model");
    PIPETWIN_EXPECT(!plan->micro_batch_sizes.empty(), "the plan knows its micro-batches' sizes");
}

/// Neighbours share a GPU where there are more ranks than GPUs. Ranks of one GPU have
/// multiprocessors of their own: without them stages would fill each other's gaps, and the bubble
/// would be none.
std::vector<std::unique_ptr<Device>> make_gpu_parts(const Plan& plan) {
    // Beside what the plan counts: what kernels work in, and blocks that wait for a tensor of their
    // size.
    constexpr Bytes beside{std::int64_t{64} << 20};
    const std::vector<MemoryUse> peaks = peak_memory(plan);
    Bytes memory;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        // How many stashes are on their way depends on the times: memory grows as they need it.
        const MemoryUse use =
            plan->host_link ? resident_memory(plan, rank) : peaks[static_cast<std::size_t>(rank)];
        memory += use.total() + beside;
    }
    return make_cuda_devices({.ranks = plan.rank_count(),
                              .own_multiprocessors = plan.rank_count() > 1,
                              .memory = memory});
}

/// One for each rank.
std::vector<std::unique_ptr<Device>> make_devices(const Plan& plan,
                                                  const ExecutorOptions& options) {
    if (options.backend == Backend::Cuda) {
        return make_gpu_parts(plan);
    }
    std::vector<std::unique_ptr<Device>> devices;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        devices.push_back(options.make_device                 ? options.make_device(rank)
                          : options.backend == Backend::Paced ? make_paced_device()
                                                              : make_cpu_device());
    }
    return devices;
}

}  // namespace

struct Executor::Impl {
    Impl(Plan plan_to_walk, const Model& trained_model, ExecutorOptions executor_options)
        : plan(std::move(plan_to_walk)),
          model(trained_model),
          options(std::move(executor_options)) {
        refuse_what_cannot_be_executed(plan, model, options.backend, options.precision);
        const std::vector<int> cores = allowed_cores();
        const bool own_core = options.backend != Backend::Paced &&
                              static_cast<std::size_t>(plan.rank_count()) <= cores.size();
        spin = own_core ? Spin::Briefly : Spin::Never;
        connect();
        const Worker::Settings settings{.options = &options,
                                        .cores = own_core ? cores : std::vector<int>{}};
        std::vector<std::unique_ptr<Device>> devices = make_devices(plan, options);
        for (int rank = 0; rank < plan.rank_count(); ++rank) {
            workers.push_back(
                std::make_unique<Worker>(plan,
                                         model,
                                         rank,
                                         edges,
                                         std::move(devices[static_cast<std::size_t>(rank)]),
                                         settings));
        }
        connect_memories();
        connect_twins();
        order = schedule_order(plan->schedule, plan->channel_capacity.value_or(-1));
    }

    void connect();
    void connect_memories();
    void connect_twins();
    bool share_memory(int stage, int other) const {
        return &worker_of(stage).device().memory() == &worker_of(other).device().memory();
    }
    void repeat_addresses() const;
    TimePoint walk_rows(const StepInput& input, FirstFailure& failure);
    bool walk_row(std::size_t rank, const StepInput& input, FirstFailure& failure);
    StepResult result(TimePoint start);
    double grad_norm() const;
    [[noreturn]] void clean_up_and_throw(const StepInput& input, const FirstFailure& failure);
    std::string first_not_finite(const Action& forward, const StepInput& input);
    Worker& worker_of(int stage) const {
        const int rank = plan->schedule.rank_of_stage.at(static_cast<std::size_t>(stage));
        return *workers[static_cast<std::size_t>(rank)];
    }

    Plan plan;
    Model model;
    ExecutorOptions options;
    Spin spin = Spin::Never;
    Edges edges;
    std::vector<std::unique_ptr<Worker>> workers;  ///< [rank]
    std::vector<std::vector<int>> order;           ///< [rank][cell]
    std::optional<Failure> last_failure;
};

void Executor::Impl::connect() {
    for (std::size_t boundary = 0; boundary + 1 < plan->schedule.rank_of_stage.size(); ++boundary) {
        for (std::vector<Edge>* direction : {&edges.forward, &edges.backward}) {
            Edge& edge = direction->emplace_back();
            edge.link = plan->links[boundary];
            if (exchanges(plan->schedule, static_cast<int>(boundary))) {
                edge.channel = make_local_channel(plan->channel_capacity, spin);
            }
        }
    }
}

/// Between ranks whose devices have memories of their own, messages are copied.
void Executor::Impl::connect_memories() {
    for (int stage = 0; stage + 1 < plan.stage_count(); ++stage) {
        if (!share_memory(stage, stage + 1)) {
            const auto boundary = static_cast<std::size_t>(stage);
            edges.forward[boundary].room = &worker_of(stage + 1).room();
            edges.backward[boundary].room = &worker_of(stage).room();
            worker_of(stage).send_far();
            worker_of(stage + 1).send_far();
        }
    }
}

void Executor::Impl::connect_twins() {
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        Reduction& reduction = edges.reductions.emplace_back();
        if (const auto twin = twin_of(plan->schedule, stage)) {
            reduction.channel = make_local_channel(1, spin);
            reduction.receiver = &worker_of(*twin).stage(*twin);
            if (!share_memory(stage, *twin)) {
                reduction.is_far = true;
                worker_of(stage).send_far();
            }
            reduction.link = plan->reductions[static_cast<std::size_t>(stage)];
        }
    }
}

/// On a GPU an action with the addresses of a step before is a graph that is there already.
void Executor::Impl::repeat_addresses() const {
    if (options.backend == Backend::Cuda) {
        std::map<const Memory*, std::vector<Arena*>> arenas;
        for (const auto& worker : workers) {
            arenas[&worker->arena().memory()].push_back(&worker->arena());
        }
        for (const auto& [memory, sharing] : arenas) {
            Arena::deal_free_blocks(sharing);
        }
    }
}

/// One thread per rank, from the first action to the last. Returns when all are joined; the start
/// of the step.
TimePoint Executor::Impl::walk_rows(const StepInput& input, FirstFailure& failure) {
    TimePoint start;
    const auto begin_together = [this, &start]() noexcept {
        // Spinning workers meet at a moment that lies a little ahead, so that none is late for
        // having been woken last.
        constexpr std::chrono::microseconds wake_up{100};
        start = Clock::now() + (spin == Spin::Briefly ? wake_up : std::chrono::microseconds{0});
    };
    std::barrier all_ready(std::ssize(workers), begin_together);
    const auto work = [&](std::size_t rank) {
        Worker& worker = *workers[rank];
        try {
            worker.prepare();
        } catch (...) {
            failure.report(-1, static_cast<int>(rank), {}, std::current_exception());
        }
        all_ready.arrive_and_wait();
        worker.start(start);
        if (!walk_row(rank, input, failure)) {
            worker.close_channels();
        }
    };
    std::vector<std::jthread> threads;
    threads.reserve(workers.size());
    try {
        for (std::size_t rank = 0; rank < workers.size(); ++rank) {
            threads.emplace_back(work, rank);
        }
    } catch (...) {  // the system has no thread left; those that exist must not wait for the others
        failure.report(-1, static_cast<int>(threads.size()), {}, std::current_exception());
        for (std::size_t missing = threads.size(); missing < workers.size(); ++missing) {
            all_ready.arrive_and_drop();
        }
    }
    threads.clear();
    return start;
}

/// False if the row was not walked to its end, because an action of it or of another rank failed.
bool Executor::Impl::walk_row(std::size_t rank, const StepInput& input, FirstFailure& failure) {
    const std::vector<Action>& row = plan->schedule.ranks[rank];
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
        if (!failure.allows(order[rank][cell])) {
            return false;
        }
        try {
            if (options.before_action) {
                options.before_action(static_cast<int>(rank), row[cell]);
            }
            workers[rank]->perform(cell, input);
        } catch (const ChannelClosed&) {
            return false;  // the failure is its neighbour's
        } catch (...) {
            failure.report(
                order[rank][cell], static_cast<int>(rank), row[cell], std::current_exception());
            return false;
        }
    }
    return true;
}

StepResult Executor::Impl::result(TimePoint start) {
    StepResult result;
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        result.loss += worker_of(stage).stage(stage).loss();  // of last stages; 0 of all others
    }
    result.grad_norm = grad_norm();
    result.timeline.origin =
        options.backend == Backend::Paced ? Origin::Emulated : Origin::Measured;
    Duration wall{};
    Duration cpu{};
    for (const auto& worker : workers) {
        result.timeline.ranks.push_back(worker->recorder().spans(start));
        result.peak.push_back(worker->arena().peak());
        if (const StashOffload* const offload = worker->offload()) {
            std::ranges::move(offload->spans(start),
                              std::back_inserter(result.timeline.host_copies));
            result.host_peak.push_back(offload->host_peak());
        }
        wall += worker->recorder().compute_wall();
        cpu += worker->recorder().compute_cpu();
    }
    // A paced device only makes believe that it computes all the time, and a GPU does it elsewhere.
    const bool real = options.backend == Backend::Cpu;
    result.stolen =
        real && wall > Duration{} ? std::max(0.0, 1.0 - to_seconds(cpu) / to_seconds(wall)) : 0;
    return result;
}

/// Stage by stage, so in model order whatever the partition.
double Executor::Impl::grad_norm() const {
    double sum = 0;
    for (int stage = 0; stage < piece_count(plan->schedule); ++stage) {
        for (const double squares : worker_of(stage).stage(stage).gradient_squares()) {
            sum += squares;
        }
    }
    return std::sqrt(sum);
}

void Executor::Impl::clean_up_and_throw(const StepInput& input, const FirstFailure& failure) {
    for (std::vector<Edge>* direction : {&edges.forward, &edges.backward}) {
        for (Edge& edge : *direction) {
            if (edge.channel) {
                edge.channel->reopen();
            }
        }
    }
    for (const Reduction& reduction : edges.reductions) {
        if (reduction.channel) {
            reduction.channel->reopen();
        }
    }
    for (const auto& worker : workers) {
        worker->abandon();
    }
    last_failure = Failure{.rank = failure.rank(),
                           .step = input.step,
                           .action = failure.action(),
                           .message = message_of(failure.error())};
    const std::string place = place_of(*last_failure);
    try {
        std::rethrow_exception(failure.error());
    } catch (const Error& error) {
        if (error.kind() == ErrorKind::NotFinite && failure.action().op == Op::Forward) {
            throw Error(error.kind(),
                        place,
                        error.text() + first_not_finite(failure.action(), input),
                        error.hint());
        }
        throw error.at(place);
    }
}

/// Runs the micro-batch through all stages once more, now looking at every layer's output.
std::string Executor::Impl::first_not_finite(const Action& forward, const StepInput& input) {
    const int micro_batch = forward.micro_batch;
    const int first = first_stage_of_pipeline(plan->schedule, forward.stage);
    const int end = first + piece_count(plan->schedule);
    std::optional<int> found;
    const Kernels& kernels = worker_of(first).device().kernels();
    const auto watch = [&](int layer, const Tensor& output) {
        const auto is_finite = [](double value) { return std::isfinite(value); };
        if (!found && !std::ranges::all_of(kernels.values(output), is_finite)) {
            found = layer;
        }
    };
    std::async(std::launch::async,
               [&] {  // a thread of its own: the device sets it up for computing
                   Tensor boundary;
                   for (int stage = first; stage < end && !found; ++stage) {
                       Worker& worker = worker_of(stage);
                       worker.device().enter_thread();
                       if (!boundary.empty()) {
                           boundary.detach();
                           boundary = worker.adopt(std::move(boundary));
                       }
                       worker.stage(stage).watch_outputs(watch);
                       boundary = worker.stage(stage).forward(
                           micro_batch,
                           std::move(boundary),
                           input.data[static_cast<std::size_t>(micro_batch)],
                           false);
                       worker.stage(stage).watch_outputs({});
                   }
               })
        .get();
    for (const auto& worker : workers) {
        worker->abandon();
    }
    const int layer = found.value_or(model.layer_count() - 1);
    return fmt::format("; the first output that is not finite is that of layer '{}' in stage {}",
                       model.layer(layer).spec.name,
                       first + plan->partition->stage_of_layer(layer));
}

std::string place_of(const Failure& failure) {
    return fmt::format(
        "rank {}, step {}, {}", failure.rank, failure.step, to_string(failure.action));
}

Executor::Executor(Plan plan, const Model& model, ExecutorOptions options)
    : impl_(std::make_unique<Impl>(std::move(plan), model, std::move(options))) {}

Executor::~Executor() = default;

StepResult Executor::run_step(const Batch& batch, int step) {
    impl_->last_failure.reset();
    PIPETWIN_EXPECT(batch.samples == impl_->plan.samples(), "a batch of the plan's size");
    const StepInput input{.data = split(batch, impl_->plan->micro_batch_sizes),
                          .optimizer = impl_->options.optimizer,
                          .step = step};
    impl_->repeat_addresses();
    FirstFailure failure;
    const TimePoint start = impl_->walk_rows(input, failure);
    if (failure.error()) {
        impl_->clean_up_and_throw(input, failure);
    }
    return impl_->result(start);
}

std::optional<Failure> Executor::last_failure() const {
    return impl_->last_failure;
}

const Plan& Executor::plan() const {
    return impl_->plan;
}

Stage& Executor::stage(int index) {
    return impl_->worker_of(index).stage(index);
}

std::vector<Parameter*> Executor::parameters() {
    std::vector<Parameter*> parameters;
    for (int index = 0; index < piece_count(impl_->plan->schedule); ++index) {
        const std::vector<Parameter*> own = stage(index).parameters();
        parameters.insert(parameters.end(), own.begin(), own.end());
    }
    return parameters;
}

const Tensor& Executor::input_gradient(int micro_batch) {
    return impl_->worker_of(0).input_gradient(micro_batch);
}

std::vector<double> Executor::values(const Tensor& tensor) const {
    // Any device reads the memory of all.
    return impl_->workers.front()->device().kernels().values(tensor);
}

MemoryUse Executor::resident(int rank) const {
    return impl_->workers.at(static_cast<std::size_t>(rank))->arena().live();
}

}  // namespace pipetwin::exec
