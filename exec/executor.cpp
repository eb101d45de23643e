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
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/edge.h"
#include "core/error.h"
#include "exec/cores.h"
#include "exec/crew.h"
#include "exec/device_failure.h"
#include "exec/gpu_parts.h"
#include "exec/kernels.h"
#include "exec/paced_device.h"
#include "exec/random_batch.h"
#include "exec/schedule_order.h"
#include "exec/step_layout.h"
#include "exec/worker.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// What went wrong in a step. Any thread.
class StepFailures {
  public:
    void clear() {
        const std::lock_guard lock(mutex_);
        stop_ = std::numeric_limits<int>::max();
        all_.clear();
    }

    struct One {
        int order = 0;  ///< of its action in the schedule
        int rank = 0;
        std::optional<Action> action;
        std::exception_ptr error;
        bool for_good = false;  ///< of the device, for all its ranks
        bool follows = false;   ///< from what happened to another rank
    };

    void report(int order, int rank, std::optional<Action> action, std::exception_ptr error) {
        One one{.order = order, .rank = rank, .action = action, .error = std::move(error)};
        try {
            std::rethrow_exception(one.error);
        } catch (const DeviceFailure& failure) {
            one.for_good = failure.is_for_good();
            one.follows = failure.is_of_another_rank();
        } catch (...) {  // NOLINT(bugprone-empty-catch): a failure of this rank alone
        }
        const std::lock_guard lock(mutex_);
        stop_ = std::min(stop_.load(), order);
        all_.push_back(std::move(one));
    }

    /// Whether a worker may still turn to the action with this place in the order.
    bool allows(int order) const { return order <= stop_; }

    // When no worker goes on; one that hangs may come back later and fail, too:

    bool empty() const {
        const std::lock_guard lock(mutex_);
        return all_.empty();
    }
    /// The earliest in schedule order; one that follows from another only where that is not known.
    One first() const {
        const std::lock_guard lock(mutex_);
        return *std::ranges::min_element(
            all_, {}, [](const One& one) { return std::tuple(one.follows, one.order, one.rank); });
    }
    bool any_for_good() const {
        const std::lock_guard lock(mutex_);
        return std::ranges::any_of(all_, &One::for_good);
    }
    /// All that may be the cause of a failure for good, in schedule order.
    std::vector<One> causes() const {
        const std::lock_guard lock(mutex_);
        std::vector<One> causes;
        std::ranges::copy_if(all_, std::back_inserter(causes), [](const One& one) {
            return one.for_good && !one.follows;
        });
        std::ranges::sort(causes, {}, &One::order);
        return causes;
    }

  private:
    mutable std::mutex mutex_;
    std::atomic<int> stop_ = std::numeric_limits<int>::max();
    std::vector<One> all_;
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

/// All that an evaluation does of a row.
bool is_of_forward(Op op) {
    return op == Op::Forward || op == Op::SendForward || op == Op::RecvForward;
}

/// What other ranks had on a device that failed for good.
std::string others_text(const StepFailures& failures) {
    const std::vector<StepFailures::One> causes = failures.causes();
    if (causes.size() < 2) {
        return {};
    }
    std::vector<std::string> others;
    for (std::size_t i = 1; i < causes.size(); ++i) {
        others.push_back(
            fmt::format("rank {}{}",
                        causes[i].rank,
                        causes[i].action ? " with " + to_string(*causes[i].action) : ""));
    }
    return fmt::format("; on the GPU at the same time, and as likely the cause: {}",
                       fmt::join(others, ", "));
}

/// One for each rank.
std::vector<std::unique_ptr<Device>> make_devices(const Plan& plan,
                                                  const ExecutorOptions& options) {
    if (options.backend == Backend::Cuda) {
        return make_gpu_parts(plan, options.gpu_shares, options.gpu_units);
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
          options(std::move(executor_options)),
          at(static_cast<std::size_t>(plan.rank_count())),
          cells(at.size()),
          all_ready(plan.rank_count(), BeginTogether{this}),
          watchdog(plan, options.hang_limits),
          crew(at.size()) {
        refuse_what_cannot_be_executed(plan, model, options.backend, options.precision);
        const std::vector<int> cores = options.cores.empty() ? allowed_cores() : options.cores;
        const bool own_core = options.backend != Backend::Paced &&
                              static_cast<std::size_t>(plan.rank_count()) <= cores.size();
        spin = own_core ? Spin::Briefly : Spin::Never;
        connect();
        const Worker::Settings settings{.options = &options,
                                        .cores = own_core ? cores : std::vector<int>{}};
        std::vector<std::unique_ptr<Device>> devices = make_devices(plan, options);
        for (int rank = 0; rank < plan.rank_count(); ++rank) {
            add_worker(rank, std::move(devices[static_cast<std::size_t>(rank)]), settings);
        }
        connect_memories();
        connect_twins();
        plan_memory();
        order = schedule_order(plan->schedule, plan->channel_capacity.value_or(-1));
    }

    void add_worker(int rank, std::unique_ptr<Device> device, const Worker::Settings& settings);
    void connect();
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
    void begin_together() noexcept;
    void walk_rows();
    void work(std::size_t rank);
    bool walk_row(std::size_t rank);
    void stop_all(const Hang& hang);
    void await_stragglers();
    void tell(StepResult& result);
    void walk(const Batch& data, int step, bool evaluation);
    double loss() const;
    double grad_norm() const;
    void clean_up();
    [[noreturn]] void clean_up_and_throw();
    [[noreturn]] void throw_failure(const StepFailures::One& failure);
    std::string first_not_finite(const Action& forward);
    /// One in whose memory the tensor lies.
    Device& device_of(const Tensor& tensor) const {
        const auto holds = [&](const std::unique_ptr<Worker>& worker) {
            return &worker->device().memory() == tensor.memory();
        };
        const auto found = std::ranges::find_if(workers, holds);
        return (found == workers.end() ? workers.front() : *found)->device();
    }
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
    std::vector<RowLayout> layouts;                ///< [rank]; empty: memory is not planned
    std::vector<std::vector<int>> order;           ///< [rank][cell]
    std::optional<Failure> last_failure;
    std::optional<Failure> lost_device;  ///< where the device failed for good

    // A step; a worker that hangs may be in it for longer than run_step:
    struct BeginTogether {
        Impl* impl;
        void operator()() noexcept { impl->begin_together(); }
    };
    struct alignas(64) Place {  // a cache line each
        std::atomic<int> cell = preparing;
    };
    Batch batch;
    StepInput input;
    StepFailures failures;
    std::vector<Place> at;   ///< [rank]: where its worker is
    std::vector<int> cells;  ///< the same, at the last look
    TimePoint start;
    std::barrier<BeginTogether> all_ready;
    Watchdog watchdog;
    bool has_stragglers = false;  ///< not all workers came back from the last step
    Crew crew;                    ///< last: its threads use all of the above
};

void Executor::Impl::add_worker(int rank,
                                std::unique_ptr<Device> device,
                                const Worker::Settings& settings) {
    try {
        workers.push_back(
            std::make_unique<Worker>(plan, model, rank, edges, std::move(device), settings));
    } catch (const Error& error) {
        throw error.at(fmt::format("rank {}, setting up its stages", rank));
    }
}

void Executor::Impl::connect() {
    std::ptrdiff_t norms = 0;
    for (const auto& row : plan->schedule.ranks) {
        norms += std::ranges::count(row, Op::GradientNorm, &Action::op);
    }
    if (norms > 0) {
        edges.norm = std::make_unique<GradientNorm>(
            static_cast<int>(norms), piece_count(plan->schedule), spin);
    }
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
        if (const auto other = gradient_source(plan->schedule, stage)) {
            reduction.channel = make_local_channel(1, spin);
            reduction.receiver = &worker_of(*other).stage(*other);
            if (!share_memory(stage, *other)) {
                reduction.is_far = true;
                worker_of(stage).send_far();
            }
            reduction.link = plan->reductions[static_cast<std::size_t>(stage)];
        }
    }
}

/// Whether the layouts fit into what was taken of the GPUs in advance, which counts with no loss
/// between tensors. Else blocks are taken as they come.
bool Executor::Impl::has_room() const {
    constexpr Bytes for_kernels{std::int64_t{16} << 20};  // per rank: what they work in
    struct Pool {
        Bytes all;
        Bytes needed;
    };
    std::map<const Memory*, Pool> pools;
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
        const Device& device = workers[rank]->device();
        Pool& pool = pools[&workers[rank]->device().memory()];
        pool.all += device.memory_beside().pool;
        pool.needed += workers[rank]->arena().live().total() + for_kernels +
                       Bytes{static_cast<std::int64_t>(layouts[rank].extent)};
    }
    return std::ranges::all_of(pools, [](const auto& each) {
        const Pool& pool = each.second;
        return pool.all == Bytes{} || pool.needed <= pool.all;
    });
}

/// Every tensor of a step gets its place before the first, but where stashes go to host memory:
/// when they leave their device is a matter of time.
void Executor::Impl::plan_memory() {
    if (plan->host_link) {
        return;
    }
    const Batch blank = random_batch(model, static_cast<int>(plan.samples().value()), 0);
    const StepInput step{
        .data = split(blank, plan->micro_batch_sizes), .optimizer = options.optimizer, .step = 0};
    std::vector<RowNeeds> needs;
    for (const auto& worker : workers) {
        needs.push_back(worker->rehearse(step));
    }
    std::vector<bool> copied;
    for (std::size_t boundary = 0; boundary < edges.forward.size(); ++boundary) {
        copied.push_back(edges.forward[boundary].room != nullptr);
        copied.push_back(edges.backward[boundary].room != nullptr);
    }
    layouts = lay_out_step(plan, needs, copied);
    if (!has_room()) {
        layouts.clear();
        return;
    }
    std::vector<std::byte*> rooms;
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
        rooms.push_back(
            static_cast<std::byte*>(workers[rank]->arena().take_room(layouts[rank].extent)));
    }
    // [edge][micro-batch]
    std::vector<std::vector<void*>> messages(
        copied.size(), std::vector<void*>(static_cast<std::size_t>(plan.micro_batches())));
    const auto address_of = [&](const MessageName& message) -> void*& {
        return messages[static_cast<std::size_t>(message.edge)]
                       [static_cast<std::size_t>(message.micro_batch)];
    };
    for (std::size_t rank = 0; rank < needs.size(); ++rank) {
        for (std::size_t i = 0; i < needs[rank].arrivals.size(); ++i) {
            address_of(*needs[rank].arrivals[i].received) = rooms[rank] + layouts[rank].arrivals[i];
        }
    }
    for (std::size_t rank = 0; rank < needs.size(); ++rank) {
        StepPlaces places{.asked = std::move(needs[rank].asked),
                          .at_work = std::move(needs[rank].at_work)};
        for (std::size_t i = 0; i < needs[rank].requests.size(); ++i) {
            const RowNeeds::Need& need = needs[rank].requests[i];
            places.requests.push_back({.bytes = need.bytes,
                                       .address = need.sent
                                                      ? address_of(*need.sent)
                                                      : rooms[rank] + layouts[rank].requests[i]});
        }
        workers[rank]->arena().follow(std::move(places));
    }
    for (std::size_t boundary = 0; boundary < edges.forward.size(); ++boundary) {
        if (copied[2 * boundary]) {
            edges.forward[boundary].places = std::move(messages[2 * boundary]);
            edges.backward[boundary].places = std::move(messages[2 * boundary + 1]);
        }
    }
}

void Executor::Impl::refuse_lost_device() const {
    if (lost_device) {
        throw Error(ErrorKind::WorkerFailed,
                    place_of(*lost_device),
                    "the GPU failed there for good, and this program cannot use it any more",
                    "start the run again");
    }
}

/// On a GPU an action with the addresses of a step before is a graph that is there already.
void Executor::Impl::repeat_addresses() const {
    if (options.backend == Backend::Cuda && !has_planned_memory()) {
        std::map<const Memory*, std::vector<Arena*>> arenas;
        for (const auto& worker : workers) {
            arenas[&worker->arena().memory()].push_back(&worker->arena());
        }
        for (const auto& [memory, sharing] : arenas) {
            Arena::deal_free_blocks(sharing);
        }
    }
}

void Executor::Impl::begin_together() noexcept {
    // Spinning workers meet at a moment that lies a little ahead, so that none is late for having
    // been woken last.
    constexpr std::chrono::microseconds wake_up{100};
    start = Clock::now() + (spin == Spin::Briefly ? wake_up : std::chrono::microseconds{0});
}

/// Every worker walks its row. Returns when all are back, or one hangs and the others had time to
/// stop.
void Executor::Impl::walk_rows() {
    for (Place& place : at) {
        place.cell = preparing;
    }
    failures.clear();
    watchdog.begin_step(Clock::now());
    crew.send([this](std::size_t rank) { work(rank); });
    while (!crew.wait(watchdog.interval())) {
        std::ranges::transform(
            at, cells.begin(), [](const Place& place) { return place.cell.load(); });
        if (const std::optional<Hang> hang = watchdog.look(cells, Clock::now())) {
            stop_all(*hang);
            has_stragglers = !crew.wait(options.hang_limits.grace);
            return;
        }
    }
}

/// On the rank's thread.
void Executor::Impl::work(std::size_t rank) {
    Worker& worker = *workers[rank];
    try {
        worker.prepare(input.evaluation);
    } catch (...) {
        failures.report(-1, static_cast<int>(rank), {}, std::current_exception());
    }
    at[rank].cell = prepared;
    all_ready.arrive_and_wait();
    worker.start(start);
    if (!walk_row(rank)) {
        worker.close_channels();
    }
    worker.arena().end_step();
    worker.device().leave_thread();
    at[rank].cell = static_cast<int>(plan->schedule.ranks[rank].size());
}

/// False if the row was not walked to its end, because an action of it or of another rank failed.
bool Executor::Impl::walk_row(std::size_t rank) {
    const std::vector<Action>& row = plan->schedule.ranks[rank];
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
        if (!failures.allows(order[rank][cell])) {
            return false;
        }
        at[rank].cell = static_cast<int>(cell);
        if (input.evaluation && !is_of_forward(row[cell].op)) {
            continue;
        }
        try {
            if (options.before_action) {
                options.before_action(static_cast<int>(rank), row[cell]);
            }
            if (input.evaluation) {
                workers[rank]->evaluate(row[cell], input);
            } else {
                workers[rank]->perform(cell, input);
            }
        } catch (const ChannelClosed&) {
            return false;  // the failure is its neighbour's
        } catch (...) {
            failures.report(
                order[rank][cell], static_cast<int>(rank), row[cell], std::current_exception());
            return false;
        }
    }
    return true;
}

/// A rank that hangs has failed, but it does not know.
void Executor::Impl::stop_all(const Hang& hang) {
    const auto rank = static_cast<std::size_t>(hang.rank);
    int place = -1;
    std::optional<Action> action;
    if (hang.cell) {
        place = order[rank][static_cast<std::size_t>(*hang.cell)];
        action = plan->schedule.ranks[rank][static_cast<std::size_t>(*hang.cell)];
    }
    failures.report(place,
                    hang.rank,
                    action,
                    std::make_exception_ptr(
                        Error(ErrorKind::Hang,
                              "",
                              hang.text,
                              "look at what that rank's device does; if it is only slow, measure "
                              "its costs again")));
    for (const auto& worker : workers) {
        worker->close_channels();
    }
}

/// Workers that did not come back from the last step.
void Executor::Impl::await_stragglers() {
    if (!has_stragglers) {
        return;
    }
    if (!crew.wait(options.hang_limits.grace)) {
        throw Error(ErrorKind::Hang,
                    last_failure ? place_of(*last_failure) : "",
                    fmt::format("rank {} has not come back yet", fmt::join(crew.away(), ", rank ")),
                    "start the run again");
    }
    has_stragglers = false;
    clean_up();
}

/// All rows from begin to end.
void Executor::Impl::walk(const Batch& data, int step, bool evaluation) {
    await_stragglers();
    last_failure.reset();
    refuse_lost_device();
    PIPETWIN_EXPECT(data.samples == plan.samples(), "a batch of the plan's size");
    batch = data;
    split(batch, plan->micro_batch_sizes, input.data);
    for (MicroBatch& slice : input.data) {
        slice.step = step;
    }
    input.optimizer = options.optimizer;
    input.step = step;
    input.evaluation = evaluation;
    repeat_addresses();
    if (edges.norm) {
        edges.norm->restart();
    }
    walk_rows();
    if (!failures.empty()) {
        clean_up_and_throw();
    }
}

double Executor::Impl::loss() const {
    double sum = 0;
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        sum += worker_of(stage).stage(stage).loss();  // of last stages; 0 of all others
    }
    return sum;
}

void Executor::Impl::tell(StepResult& result) {
    result.loss = loss();
    result.grad_norm = grad_norm();
    result.timeline.origin =
        options.backend == Backend::Paced ? Origin::Emulated : Origin::Measured;
    result.timeline.ranks.resize(workers.size());
    result.timeline.links.clear();
    result.timeline.host_copies.clear();
    result.peak.resize(workers.size());
    result.host_peak.clear();
    Duration wall{};
    Duration cpu{};
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
        const Worker& worker = *workers[rank];
        worker.recorder().spans(start, result.timeline.ranks[rank]);
        watchdog.learn(result.timeline.ranks[rank], static_cast<int>(rank));
        result.peak[rank] = worker.arena().peak();
        if (const StashOffload* const offload = worker.offload()) {
            std::ranges::move(offload->spans(start),
                              std::back_inserter(result.timeline.host_copies));
            result.host_peak.push_back(offload->host_peak());
        }
        wall += worker.recorder().compute_wall();
        cpu += worker.recorder().compute_cpu();
    }
    watchdog.end_step();
    // A paced device only makes believe that it computes all the time, and a GPU does it elsewhere.
    const bool real = options.backend == Backend::Cpu;
    result.stolen =
        real && wall > Duration{} ? std::max(0.0, 1.0 - to_seconds(cpu) / to_seconds(wall)) : 0;
}

/// Stage by stage, so in model order whatever the partition.
double Executor::Impl::grad_norm() const {
    double sum = 0;
    for (int stage = 0; stage < piece_count(plan->schedule); ++stage) {
        for (const double squares : worker_of(stage).stage(stage).counted_squares()) {
            sum += squares;
        }
    }
    return std::sqrt(sum);
}

void Executor::Impl::clean_up() {
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
}

void Executor::Impl::clean_up_and_throw() {
    const StepFailures::One failure = failures.first();
    last_failure = Failure{.rank = failure.rank,
                           .step = input.step,
                           .action = failure.action,
                           .message = message_of(failure.error)};
    if (failures.any_for_good()) {
        lost_device = last_failure;
    }
    if (!has_stragglers) {
        clean_up();
    }
    throw_failure(failure);
}

void Executor::Impl::throw_failure(const StepFailures::One& failure) {
    const std::string place = place_of(*last_failure);
    try {
        std::rethrow_exception(failure.error);
    } catch (const DeviceFailure& error) {
        throw Error(error.kind(), place, error.text() + others_text(failures), error.hint());
    } catch (const Error& error) {
        if (error.kind() == ErrorKind::NotFinite && failure.action &&
            failure.action->op == Op::Forward && !has_stragglers) {
            throw Error(error.kind(),
                        place,
                        error.text() + first_not_finite(*failure.action),
                        error.hint());
        }
        throw error.at(place);
    }
}

/// Runs the micro-batch through all stages once more, now looking at every layer's output.
std::string Executor::Impl::first_not_finite(const Action& forward) {
    const int micro_batch = forward.micro_batch;
    const int first = first_stage_of_pipeline(plan->schedule, forward.stage);
    const int end = first + piece_count(plan->schedule);
    std::optional<int> found;
    const Kernels* kernels = nullptr;  // of the stage at work
    const auto watch = [&](int layer, const Tensor& output) {
        const auto is_finite = [](double value) { return std::isfinite(value); };
        if (!found && !std::ranges::all_of(exec::values(*kernels, output), is_finite)) {
            found = layer;
        }
    };
    std::async(std::launch::async,
               [&] {  // a thread of its own: the device sets it up for computing
                   Tensor boundary;
                   for (int stage = first; stage < end && !found; ++stage) {
                       Worker& worker = worker_of(stage);
                       worker.device().enter_thread();
                       kernels = &worker.device().kernels();
                       if (!boundary.empty()) {
                           boundary.detach();
                           boundary = worker.adopt(std::move(boundary));
                       }
                       worker.stage(stage).watch_outputs(watch);
                       const MicroBatch& data = input.data[static_cast<std::size_t>(micro_batch)];
                       Stage& here = worker.stage(stage);
                       boundary = input.evaluation
                                      ? here.evaluate(micro_batch, std::move(boundary), data)
                                      : here.forward(micro_batch, std::move(boundary), data, false);
                       worker.stage(stage).watch_outputs({});
                       worker.device().leave_thread();
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
    return fmt::format("rank {}, step {}, {}",
                       failure.rank,
                       failure.step,
                       failure.action ? in_full(*failure.action) : "before its first action");
}

ExecutorOptions executor_options(const Scenario& scenario) {
    ExecutorOptions options;
    options.backend = scenario.cluster.backend;
    options.precision = scenario.training.precision;
    options.seed = scenario.training.seed;
    options.optimizer = optimizer_settings(scenario);
    options.gpu_shares = scenario.cluster.gpu_shares;
    options.gpu_units = scenario.cluster.gpu_units;
    return options;
}

Executor::Executor(Plan plan, const Model& model, ExecutorOptions options)
    : impl_(std::make_unique<Impl>(std::move(plan), model, std::move(options))) {}

Executor::~Executor() {
    if (impl_->has_stragglers && !impl_->crew.wait(impl_->options.hang_limits.grace)) {
        // Their threads cannot be ended, so what they may use cannot be freed.
        static_cast<void>(impl_.release());
    }
}

StepResult Executor::run_step(const Batch& batch, int step) {
    StepResult result;
    run_step(batch, step, result);
    return result;
}

void Executor::run_step(const Batch& batch, int step, StepResult& result) {
    impl_->walk(batch, step, false);
    impl_->tell(result);
}

double Executor::evaluate(const Batch& batch, int step) {
    impl_->walk(batch, step, true);
    for (const auto& worker : impl_->workers) {
        worker->arena().give_back_free_blocks();
    }
    return impl_->loss();
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
    for (const std::vector<Parameter*>& piece : trained().pieces) {
        parameters.insert(parameters.end(), piece.begin(), piece.end());
    }
    return parameters;
}

TrainedParameters Executor::trained() {
    TrainedParameters trained;
    for (int piece = 0; piece < piece_count(impl_->plan->schedule); ++piece) {
        std::vector<Parameter*>& own = trained.pieces.emplace_back(stage(piece).parameters());
        std::erase_if(own, [](const Parameter* parameter) { return parameter->is_copy; });
    }
    trained.read = [this](const Tensor& from, std::span<std::byte> to) {
        Device& device = impl_->device_of(from);
        device.kernels().download(from, to);
        device.leave_thread();
    };
    trained.write = [this](std::span<const std::byte> from, Tensor& to) {
        Device& device = impl_->device_of(to);
        device.kernels().upload(from, to);
        device.leave_thread();
    };
    return trained;
}

void Executor::spread_weights() {
    const TrainedParameters from = trained();
    std::vector<std::byte> bytes;
    const auto spread = [&](Parameter& original, Parameter& copy) {
        for (Tensor Parameter::*const part : trained_parts) {
            Tensor& to = copy.*part;
            bytes.resize(static_cast<std::size_t>(to.bytes().count));
            if (!to.empty()) {
                from.read(original.*part, bytes);
                from.write(bytes, to);
            }
        }
    };
    const int pieces = piece_count(impl_->plan->schedule);
    for (int index = pieces; index < impl_->plan.stage_count(); ++index) {
        const int piece = impl_->plan->schedule.weights_of_stage[static_cast<std::size_t>(index)];
        const std::vector<Parameter*>& originals = from.pieces[static_cast<std::size_t>(piece)];
        const std::vector<Parameter*> copies = stage(index).parameters();
        for (std::size_t i = 0; i < copies.size(); ++i) {
            spread(*originals[i], *copies[i]);
        }
    }
    for (Parameter* const parameter : stage(pieces - 1).parameters()) {
        if (parameter->is_copy) {  // of the first piece's first parameter, the token table
            spread(*from.pieces.front().front(), *parameter);
        }
    }
}

const Tensor& Executor::input_gradient(int micro_batch) {
    return impl_->worker_of(0).input_gradient(micro_batch);
}

std::vector<double> Executor::values(const Tensor& tensor) const {
    Device& device = impl_->device_of(tensor);
    std::vector<double> result = exec::values(device.kernels(), tensor);
    device.leave_thread();
    return result;
}

MemoryUse Executor::resident(int rank) const {
    return impl_->workers.at(static_cast<std::size_t>(rank))->arena().live();
}

Executor::Room Executor::room(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    Room room{
        .bytes = {}, .least = {}, .unforeseen = impl_->workers.at(index)->arena().unforeseen()};
    if (impl_->has_planned_memory()) {
        room.bytes = Bytes{static_cast<std::int64_t>(impl_->layouts[index].extent)};
        room.least = Bytes{static_cast<std::int64_t>(impl_->layouts[index].least)};
    }
    return room;
}

std::vector<BesidePlan> Executor::memory_beside() const {
    std::vector<BesidePlan> all;
    Bytes pool;
    Bytes of_pool;  // what has its own line, or is the plan's
    for (const auto& worker : impl_->workers) {
        const MemoryBeside beside = worker->device().memory_beside();
        for (const NamedBytes& line : beside.common) {
            all.push_back({.name = line.name, .total = line.bytes, .ranks = {}});
        }
        for (const NamedBytes& line : beside.own) {
            auto found = std::ranges::find(all, line.name, &BesidePlan::name);
            if (found == all.end()) {
                found = all.insert(all.end(), {.name = line.name, .total = {}, .ranks = {}});
            }
            found->total += line.bytes;
            found->ranks.push_back(line.bytes);
        }
        pool += beside.pool;
        of_pool += worker->arena().peak().total() + beside.of_pool;
    }
    if (pool > Bytes{}) {
        all.push_back({.name = "rest of the pool", .total = pool - of_pool, .ranks = {}});
    }
    return all;
}

std::vector<std::string> Executor::notes() const {
    std::vector<std::string> notes;
    const auto add = [&notes](std::string note) {
        if (!note.empty() && std::ranges::find(notes, note) == notes.end()) {
            notes.push_back(std::move(note));
        }
    };
    bool any_unforeseen = false;
    for (const auto& worker : impl_->workers) {
        add(worker->device().note());
        any_unforeseen = any_unforeseen || worker->arena().unforeseen() > 0;
    }
    if (any_unforeseen) {
        add("a step asked for memory in another order than was planned, and got it beside the "
            "plan: results are right, but a step may take longer");
    }
    return notes;
}

}  // namespace pipetwin::exec
