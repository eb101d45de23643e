#include "exec/executor/executor.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"
#include "exec/base/cores.h"
#include "exec/device/kernels.h"
#include "exec/device/paced_device.h"
#include "exec/executor/executor_impl.h"
#include "exec/executor/flight_recorder.h"
#include "exec/gpu/gpu_parts.h"
#include "exec/memory_plan/schedule_order.h"
#include "exec/transport/monitor.h"
#include "exec/transport/world.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

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

std::vector<int> ranks_elsewhere(const Plan& plan, const std::vector<int>& here) {
    std::vector<int> others;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        if (std::ranges::find(here, rank) == here.end()) {
            others.push_back(rank);
        }
    }
    return others;
}

/// One for each rank; of those that other processes have, none.
std::vector<std::unique_ptr<Device>> make_devices(const Plan& plan,
                                                  const ExecutorOptions& options) {
    if (options.backend == Backend::Cuda && options.world == nullptr) {
        return make_gpu_parts(plan, options.gpu_shares, options.gpu_units);
    }
    std::vector<std::unique_ptr<Device>> devices(as_index(plan.rank_count()));
    for (const int rank : ranks_here(plan, options)) {
        devices[as_index(rank)] = options.make_device ? options.make_device(rank)
                                  : options.backend == Backend::Cuda
                                      ? make_whole_gpu(plan, rank, options.gpu)
                                  : options.backend == Backend::Paced ? make_paced_device()
                                                                      : make_cpu_device();
    }
    return devices;
}

}  // namespace

Executor::Impl::Impl(Plan plan_to_walk,
                     const Model& trained_model,
                     ExecutorOptions executor_options)
    : plan(std::move(plan_to_walk)),
      model(trained_model),
      options(std::move(executor_options)),
      here(ranks_here(plan, options)),
      workers(static_cast<std::size_t>(plan.rank_count())),
      at(workers.size()),
      cells(workers.size()),
      all_ready(std::ssize(here), BeginTogether{this}),
      watchdog(plan,
               options.hang_limits,
               options.monitor == nullptr ? ranks_elsewhere(plan, here) : std::vector<int>{}),
      crew(here.size()) {
    refuse_what_cannot_be_executed(plan, model, options.backend, options.precision);
    options.emulate_links =
        options.emulate_links || (options.backend == Backend::Paced && options.world == nullptr);
    const std::vector<int> cores = options.cores.empty() ? allowed_cores() : options.cores;
    const bool own_core =
        options.backend != Backend::Paced && !options.shares_cores && here.size() <= cores.size();
    spin = own_core ? Spin::Briefly : Spin::Never;
    connect();
    if (options.world != nullptr) {
        clock.ask(*options.world);
    }
    const Worker::Settings settings{.options = &options,
                                    .cores = own_core ? cores : std::vector<int>{}};
    std::vector<std::unique_ptr<Device>> devices = make_devices(plan, options);
    for (const int rank : here) {
        add_worker(rank, std::move(devices[as_index(rank)]), settings);
    }
    connect_memories();
    connect_twins();
    connect_replicas();
    if (options.world != nullptr) {
        options.world->await_ends();
    }
    plan_memory();
    order = schedule_order(plan->schedule, plan->channel_capacity.value_or(-1));
    if (options.monitor != nullptr) {
        options.monitor->follow([this] { return position(); });
    }
}

Executor::Impl::~Impl() {
    end_remote();
    if (options.monitor != nullptr) {
        options.monitor->follow({});
    }
}

/// Channels to other processes end before the memories that they read and write, which are those of
/// the workers.
void Executor::Impl::end_remote() {
    if (options.world != nullptr) {
        options.world->abort_traffic();
    }
    for (std::vector<Edge>* const direction : {&edges.forward, &edges.backward}) {
        for (Edge& edge : *direction) {
            if (edge.is_remote) {
                edge.channel.reset();
            }
        }
    }
    for (Reduction& reduction : edges.reductions) {
        if (reduction.is_remote) {
            reduction.channel.reset();
        }
    }
}

void Executor::Impl::add_worker(int rank,
                                std::unique_ptr<Device> device,
                                const Worker::Settings& settings) {
    try {
        workers[as_index(rank)] =
            std::make_unique<Worker>(plan, model, rank, edges, std::move(device), settings);
    } catch (const Error& error) {
        throw error.at(fmt::format("rank {}, setting up its stages", rank));
    }
}

void Executor::Impl::connect() {
    std::ptrdiff_t norms = 0;
    for (const int rank : here) {
        norms +=
            std::ranges::count(plan->schedule.ranks[as_index(rank)], Op::GradientNorm, &Action::op);
    }
    if (norms > 0) {
        edges.norm = std::make_unique<GradientNorm>(
            static_cast<int>(norms), piece_count(plan->schedule), spin);
        if (options.world != nullptr) {
            edges.norm->exchange_with(
                [this](GradientNorm::Squares& squares) { exchange_squares(squares); });
        }
    }
    for (std::size_t boundary = 0; boundary + 1 < plan->schedule.rank_of_stage.size(); ++boundary) {
        for (std::vector<Edge>* direction : {&edges.forward, &edges.backward}) {
            Edge& edge = direction->emplace_back();
            edge.link = plan->links[boundary];
            if (exchanges(plan->schedule, static_cast<int>(boundary))) {
                const int stage = static_cast<int>(boundary);
                connect(edge,
                        direction == &edges.forward ? stage : stage + 1,
                        direction == &edges.forward ? stage + 1 : stage);
            }
        }
    }
}

/// Two ranks of this process, or one of them with one of another. Edges between others stay empty.
void Executor::Impl::connect(Edge& edge, int sender, int receiver) {
    if (is_here(sender) && is_here(receiver)) {
        edge.channel = make_local_channel(plan->channel_capacity, spin);
    } else if (is_here(sender) || is_here(receiver)) {
        edge.is_remote = true;
        edge.channel = open_edge(sender, receiver);
    }
}

/// Between ranks whose devices have memories of their own, messages are copied.
void Executor::Impl::connect_memories() {
    for (int stage = 0; stage + 1 < plan.stage_count(); ++stage) {
        if (is_here(stage) && is_here(stage + 1) && !share_memory(stage, stage + 1)) {
            const std::size_t boundary = as_index(stage);
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
        const auto other = gradient_source(plan->schedule, stage);
        if (!other || (!is_here(stage) && !is_here(*other))) {
            continue;
        }
        if (!is_here(stage) || !is_here(*other)) {
            reduction.is_remote = true;
            reduction.channel = open_remote(stage, *other, plan.stage_count() * plan.stage_count());
        } else {
            reduction.channel = make_local_channel(1, spin);
            reduction.receiver = &worker_of(*other).stage(*other);
            if (!share_memory(stage, *other)) {
                reduction.is_far = true;
                worker_of(stage).send_far();
            }
            reduction.link = plan->reductions[as_index(stage)];
        }
    }
}

/// Between the replicas: [stage] with a channel to and from each other.
void Executor::Impl::connect_replicas() {
    const int replicas = plan->replicas;
    if (replicas == 1) {
        return;
    }
    open_gpu_sum();
    edges.sums.resize(as_index(plan.stage_count()));
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        if (!is_here(stage)) {
            continue;
        }
        const bool shards = !plan->weight_gather.empty();
        const bool hands_over = gradient_source(plan->schedule, stage).has_value();
        Stage& own_stage = worker_of(stage).stage(stage);
        const bool has_both_ends = !hands_over && !own_stage.shared_parameters().empty();
        ReplicaMember member{.peers = std::vector<ReplicaMember::Peer>(as_index(replicas)),
                             .own = static_cast<std::size_t>(replica()),
                             .rounds = {.sums = !shards || hands_over || has_both_ends,
                                        .weights = shards,
                                        .norm = has_gradient_norms(plan->schedule)}};
        for (int other = 0; other < replicas; ++other) {
            if (other != replica() && (gpu_sum == nullptr || shards)) {
                member.peers[as_index(other)] = replica_peer(stage, other);
            }
        }
        Device& device = worker_of(stage).device();
        const SummedTensors tensors = summed_tensors(own_stage.parameters(), has_both_ends);
        std::unique_ptr<ReplicaNumbers> numbers =
            gpu_sum ? numbers_by_gpus(tensors, member.rounds, *gpu_sum)
                    : numbers_by_host(device, tensors, member);
        edges.sums[as_index(stage)] = std::make_unique<ReplicaSum>(
            device, tensors.weights.size(), std::move(member), std::move(numbers));
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
        place.turned_to = preparing;
    }
    failures.clear();
    is_stopped = false;
    watchdog.begin_step(Clock::now());
    ++walks;
    crew.send([this](std::size_t index) { work(as_index(here[index])); });
    while (!crew.wait(watchdog.interval())) {
        std::ranges::transform(
            at, cells.begin(), [](const Place& place) { return place.cell.load(); });
        if (options.monitor != nullptr) {
            look_at_others();
        }
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
    bool begins = true;
    try {
        worker.prepare(input);
    } catch (const ChannelClosed&) {
        begins = false;  // the failure is another process's
    } catch (...) {
        failures.report(-1, static_cast<int>(rank), {}, std::current_exception());
    }
    at[rank].cell = prepared;
    at[rank].turned_to = prepared;
    if (options.world != nullptr) {
        begins = agree_on_start() && begins;
    } else {
        all_ready.arrive_and_wait();
    }
    worker.start(start);
    const auto end = static_cast<int>(plan->schedule.ranks[rank].size());
    if (begins && walk_row(rank)) {
        at[rank].turned_to = end;
    } else {
        is_stopped = true;
        worker.close_channels();
    }
    worker.arena().end_step();
    worker.device().leave_thread();
    at[rank].cell = end;
}

/// False if the row was not walked to its end, because an action of it or of another rank failed.
bool Executor::Impl::walk_row(std::size_t rank) {
    const std::vector<Action>& row = plan->schedule.ranks[rank];
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
        if (!failures.allows(order[rank][cell])) {
            return false;
        }
        at[rank].cell = static_cast<int>(cell);
        at[rank].turned_to = static_cast<int>(cell);
        if (input.evaluation && !is_of_forward(row[cell].op)) {
            continue;
        }
        try {
            if (options.flight != nullptr) {
                options.flight->turn_to(input.step, static_cast<int>(rank), cell, row[cell]);
            }
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

/// All rows from begin to end.
void Executor::Impl::walk(const Batch& data, int step, bool evaluation) {
    PIPETWIN_EXPECT(!is_over, "no step follows after a process has failed");
    await_stragglers();
    last_failure.reset();
    refuse_lost_device();
    PIPETWIN_EXPECT(data.samples == plan.samples(), "a batch of the plan's size");
    batch = data;
    split(
        batch, plan->micro_batch_sizes, {.index = replica(), .count = plan->replicas}, input.data);
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
    if (options.world != nullptr) {
        try {
            share_failures();
        } catch (const ProcessLost&) {
            throw_lost();
        }
    }
    if (!failures.empty()) {
        clean_up_and_throw();
    }
    if (is_stopped) {  // another replica has failed
        clean_up();
        throw ChannelClosed();
    }
}

double Executor::Impl::loss() const {
    double sum = 0;
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        sum += is_here(stage) ? worker_of(stage).stage(stage).loss() : 0;  // of last stages
    }
    return sum;
}

void Executor::Impl::tell(StepResult& result) {
    result.loss = loss();
    result.timeline.origin = options.backend == Backend::Paced || options.emulate_links
                                 ? Origin::Emulated
                                 : Origin::Measured;
    result.start = start;
    result.timeline.ranks.resize(workers.size());
    result.timeline.links.clear();
    result.timeline.host_copies.clear();
    result.peak.resize(workers.size());
    result.host_peak.clear();
    ComputeTime time;
    for (const int rank : here) {
        const std::size_t index = as_index(rank);
        const Worker& worker = *workers[index];
        worker.recorder().spans(start, result.timeline.ranks[index]);
        result.peak[index] = worker.arena().peak();
        if (const StashOffload* const offload = worker.offload()) {
            std::ranges::move(offload->spans(start),
                              std::back_inserter(result.timeline.host_copies));
            result.host_peak.push_back(offload->host_peak());
        }
        time.wall += worker.recorder().compute_wall();
        time.cpu += worker.recorder().compute_cpu();
    }
    if (options.world != nullptr) {
        share(result, time);
    } else {
        result.grad_norm = grad_norm();
    }
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
        watchdog.learn(result.timeline.ranks[rank], static_cast<int>(rank));
    }
    watchdog.end_step();
    // A paced device only makes believe that it computes all the time, and a GPU does it elsewhere.
    const bool real = options.backend == Backend::Cpu;
    result.stolen = real && time.wall > Duration{}
                        ? std::max(0.0, 1.0 - to_seconds(time.cpu) / to_seconds(time.wall))
                        : 0;
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

ExecutorOptions executor_options(const ScenarioParts& scenario) {
    ExecutorOptions options;
    options.backend = scenario.cluster.backend;
    options.precision = scenario.training.precision;
    options.seed = scenario.training.seed;
    options.optimizer = optimizer_settings(scenario);
    options.gpu_shares = scenario.cluster.gpu_shares;
    options.gpu_units = scenario.cluster.gpu_units;
    options.emulate_links = scenario.cluster.emulate_links;
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
    for (Worker* const worker : impl_->workers_here()) {
        worker->arena().give_back_free_blocks();
    }
    return impl_->options.world != nullptr ? impl_->shared_loss() : impl_->loss();
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
    trained.read = reader();
    trained.write = writer();
    return trained;
}

std::function<void(const Tensor& from, std::span<std::byte> to)> Executor::reader() {
    return [this](const Tensor& from, std::span<std::byte> to) {
        Device& device = impl_->device_of(from);
        device.kernels().download(from, to);
        device.leave_thread();
    };
}

std::function<void(std::span<const std::byte> from, Tensor& to)> Executor::writer() {
    return [this](std::span<const std::byte> from, Tensor& to) {
        Device& device = impl_->device_of(to);
        device.kernels().upload(from, to);
        device.leave_thread();
    };
}

std::vector<Parameter*> Executor::parameters_of_stage(int index) {
    return stage(index).parameters();
}

bool Executor::has_stage(int index) const {
    return impl_->is_here(index);
}

void Executor::spread_weights() {
    exec::spread_weights(
        plan()->schedule, trained(), [this](int index) { return parameters_of_stage(index); });
}

void spread_weights(const Schedule& schedule,
                    const TrainedParameters& from,
                    const std::function<std::vector<Parameter*>(int stage)>& parameters_of) {
    std::vector<std::byte> bytes;
    const auto spread = [&](Parameter& original, Parameter& copy) {
        for (Tensor Parameter::*const part : trained_parts) {
            Tensor& to = copy.*part;
            bytes.resize(as_index(to.bytes().count));
            if (!to.empty()) {
                from.read(original.*part, bytes);
                from.write(bytes, to);
            }
        }
    };
    const int pieces = piece_count(schedule);
    for (int index = pieces; index < schedule.stage_count(); ++index) {
        const int piece = schedule.weights_of_stage[as_index(index)];
        const std::vector<Parameter*>& originals = from.pieces[as_index(piece)];
        const std::vector<Parameter*> copies = parameters_of(index);
        for (std::size_t i = 0; i < copies.size(); ++i) {
            spread(*originals[i], *copies[i]);
        }
    }
    for (Parameter* const parameter : parameters_of(pieces - 1)) {
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
    return impl_->workers.at(as_index(rank))->arena().live();
}

Executor::Room Executor::room(int rank) const {
    const std::size_t index = as_index(rank);
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
    for (Worker* const worker : impl_->workers_here()) {
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
    const auto add = [&notes](const std::string& note) {
        if (!note.empty() && std::ranges::find(notes, note) == notes.end()) {
            notes.push_back(note);
        }
    };
    bool any_unforeseen = false;
    for (Worker* const worker : impl_->workers_here()) {
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
