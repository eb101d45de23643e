// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/executor.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/tensor_division.h"
#include "core/plan/routes.h"
#include "core/scenario/scenario.h"
#include "exec/base/cores.h"
#include "exec/base/divided_work.h"
#include "exec/data/sources.h"
#include "exec/device/kernels.h"
#include "exec/device/paced_device.h"
#include "exec/executor/backend.h"
#include "exec/executor/executor_impl.h"
#include "exec/executor/flight_recorder.h"
#include "exec/gpu/gpu_parts.h"
#include "exec/layers/make_layer.h"
#include "exec/memory_plan/schedule_order.h"
#include "exec/transport/monitor.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// A GPU's products read and write outputs where they lie in a message: each must begin at a
/// multiple of what their algorithms are chosen for.
void refuse_misaligned_messages(const Plan& plan, const Model& model, const NumberFormat& format) {
    constexpr std::int64_t alignment = 256;
    std::int64_t begin = 0;  // numbers of one sample
    StagePair stages;
    for (const Route& route : routes_of(model, *plan->partition)) {
        begin = route.stages == stages ? begin : 0;
        stages = route.stages;
        for (const int samples : plan->micro_batch_sizes) {
            const std::int64_t bytes =
                begin * samples * static_cast<std::int64_t>(size_of(format.real));
            if (bytes % alignment != 0) {
                throw Error(ErrorKind::Infeasible,
                            KeyValue{"model.layer"},
                            fmt::format("the output of '{}' begins at byte {} of the message from "
                                        "stage {} to stage {} with {} samples, expected a multiple "
                                        "of {} on a GPU",
                                        model.layer(route.layer).spec.name,
                                        bytes,
                                        stages.from,
                                        stages.to,
                                        samples,
                                        alignment),
                            "take widths that are multiples of 128, or another partition");
            }
        }
        const SampleShape& shape = model.layer(route.layer).output;
        begin += std::int64_t{shape.positions} * shape.width;
    }
}

void refuse_what_cannot_be_executed(const Plan& plan,
                                    const Model& model,
                                    Backend backend,
                                    Precision precision) {
    if (!traits(backend).has_fp64 && precision == Precision::Fp64) {
        throw Error(
            ErrorKind::Unavailable,
            KeyValue{"training.precision"},
            fmt::format("{} computes in fp32 and bf16, not in fp64", traits(backend).device),
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
    if (!model.is_chain() && traits(backend).has_memory) {
        refuse_misaligned_messages(plan, model, number_format(precision, backend));
    }
}

/// One for each rank; of those that other processes have, none.
std::vector<std::unique_ptr<Device>> make_devices(const Plan& plan,
                                                  const std::vector<int>& here,
                                                  const ExecutorOptions& options) {
    const BackendTraits& backend = traits(options.backend);
    if (backend.make_devices != nullptr && options.place.group->is_alone()) {
        return backend.make_devices(plan, options);
    }
    std::vector<std::unique_ptr<Device>> devices(as_index(plan.rank_count()));
    for (const int rank : here) {
        devices[as_index(rank)] = options.make_device ? options.make_device(rank)
                                                      : backend.make_device(plan, rank, options);
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
      here(ranks_here(group(), plan, replica(), options.tensor.device)),
      workers(static_cast<std::size_t>(plan.rank_count())),
      progress(workers.size()),
      cells(workers.size()),
      all_ready(std::ssize(here), BeginTogether{this}),
      watchdog(plan, options.hang_limits, [this](int rank) { return group_wait_of(rank); }),
      threads(here.size()) {
    refuse_what_cannot_be_executed(plan, model, options.backend, options.precision);
    const ProcessPlace& place = options.place;
    const bool is_emulated = traits(options.backend).is_emulated;
    options.emulate_links = options.emulate_links || (is_emulated && group().is_alone());
    const std::vector<int> cores = place.cores.empty() ? allowed_cores() : place.cores;
    const bool own_core = !is_emulated && !place.shares_cores && here.size() <= cores.size();
    spin = own_core ? Spin::Briefly : Spin::Never;
    const WorkDivision division(!group().is_alone() && place.cores.empty() ? 1 : cores.size());
    if (!group().is_alone()) {
        group().introduce(peers());
    }
    devices = make_devices(plan, here, options);
    connect();
    clock.ask(group());
    const Worker::Settings settings{.options = &options,
                                    .cores = own_core ? cores : std::vector<int>{}};
    const Model on_backend =
        divided_among(model_on(options.backend, model, options.tensor.devices),
                      options.tensor.devices,
                      plan->sequence_parallel ? DividedSequence::Yes : DividedSequence::No);
    for (const int rank : here) {
        add_worker(rank, on_backend, std::move(devices[as_index(rank)]), settings);
    }
    connect_memories();
    connect_twins();
    connect_replicas();
    group().await_ends();
    plan_memory();
    order = schedule_order(plan->schedule, plan->channel_capacity.value_or(-1));
    place.monitor->follow([this] { return position(); });
}

Executor::Impl::~Impl() {
    end_remote();
    options.place.monitor->follow({});
}

void Executor::Impl::add_worker(int rank,
                                const Model& on_backend,
                                std::unique_ptr<Device> device,
                                const Worker::Settings& settings) {
    try {
        workers[as_index(rank)] =
            std::make_unique<Worker>(plan, on_backend, rank, edges, std::move(device), settings);
    } catch (const Error& error) {
        throw error.at(fmt::format("rank {}, setting up its stages", rank));
    }
}

/// Every worker walks its row. Returns when all are back, or one hangs and the others had time to
/// stop.
void Executor::Impl::walk_rows() {
    for (Progress& of_rank : progress) {
        of_rank.cell = preparing;
        of_rank.turned_to = preparing;
    }
    failures.clear();
    is_stopped = false;
    watchdog.begin_step(Clock::now());
    ++walks;
    threads.run([this](std::size_t index) { work(as_index(here[index])); });
    while (!threads.wait(watchdog.interval())) {
        std::ranges::transform(
            progress, cells.begin(), [](const Progress& of_rank) { return of_rank.cell.load(); });
        poll_peers();
        if (const std::optional<Hang> hang =
                watchdog.look(cells, Clock::now(), waits_in_groups())) {
            stop_all(*hang);
            has_stragglers = !threads.wait(options.hang_limits.grace);
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
    progress[rank].cell = prepared;
    progress[rank].turned_to = prepared;
    all_ready.arrive_and_wait();
    begins = begins && all_begin;
    worker.start(start);
    const auto end = static_cast<int>(plan->schedule.ranks[rank].size());
    if (begins && walk_row(rank)) {
        progress[rank].turned_to = end;
    } else {
        is_stopped = true;
        worker.close_channels();
    }
    worker.arena().end_step();
    worker.device().leave_thread();
    progress[rank].cell = end;
}

/// Does what is to be done for the action in a cell. False: that failed, and is reported.
template <class Work>
bool Executor::Impl::attempt(std::size_t rank, std::size_t cell, const Work& work) {
    try {
        work();
        return true;
    } catch (const ChannelClosed&) {  // the failure is its neighbour's
    } catch (...) {
        failures.report(order[rank][cell],
                        static_cast<int>(rank),
                        plan->schedule.ranks[rank][cell],
                        std::current_exception());
    }
    return false;
}

/// The rank turns to a cell: nothing before it is under way any more.
void Executor::Impl::turn_to(std::size_t rank, std::size_t cell) {
    const Action& action = plan->schedule.ranks[rank][cell];
    options.place.flight->turn_to(input.step, static_cast<int>(rank), cell, action);
    if (options.before_action) {
        options.before_action(static_cast<int>(rank), action);
    }
}

/// False if the row was not walked to its end, because an action of it or of another rank failed.
///
/// While a device computes an action, its rank issues the next one where that needs no message:
///
///     host     issue F0, launch | issue B0 | finish F0, launch B0 | ...
///     device                    |   F0            |    B0
bool Executor::Impl::walk_row(std::size_t rank) {
    const std::vector<Action>& row = plan->schedule.ranks[rank];
    Worker& worker = *workers[rank];
    std::optional<Worker::Begun> under_way;  // on the device
    const auto finish = [&](const Worker::Begun& action) {
        return attempt(rank, action.cell, [&] { worker.finish(action); });
    };
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
        const bool is_allowed = failures.allows(order[rank][cell]);
        std::optional<Worker::Begun> next;
        const auto issue = [&] { next = worker.issue(cell, input); };
        if (under_way) {
            const bool is_issued = is_allowed && attempt(rank, cell, issue);
            if (!finish(*std::exchange(under_way, {})) || !is_issued) {
                return false;
            }
        }
        if (!is_allowed) {
            return false;
        }
        progress[rank].cell = static_cast<int>(cell);
        progress[rank].turned_to = static_cast<int>(cell);
        if (input.evaluation && !is_of_forward(row[cell].op)) {
            continue;
        }
        const bool is_done = attempt(rank, cell, [&] {
            turn_to(rank, cell);
            if (input.evaluation) {
                return worker.evaluate(row[cell], input);
            }
            if (!next) {
                issue();
            }
            if (worker.launch(*next)) {
                under_way = next;
            } else {
                worker.finish(*next);
            }
        });
        if (!is_done) {
            return false;
        }
    }
    return true;
}

void Executor::Impl::evaluate(const Batch& data, int step, const WantedLogits* logits) {
    walk(data, step, true, logits);
    for (Worker* const worker : workers_here()) {
        worker->use_averages(false);
        worker->arena().give_back_free_blocks();
    }
}

/// All rows from begin to end.
void Executor::Impl::walk(const Batch& data,
                          int step,
                          bool evaluation,
                          const WantedLogits* logits) {
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
        slice.logits = logits;
    }
    input.optimizer = options.optimizer;
    input.step = step;
    input.evaluation = evaluation;
    seen_wait = no_wait;
    for_each_group([](std::size_t, Group& group) { group.forget_broken_wait(); });
    groups_before = group_use();
    shards_before = shard_use();
    repeat_addresses();
    if (edges.norm) {
        edges.norm->restart();
    }
    walk_rows();
    try {
        share_failures();
    } catch (const ProcessLost&) {
        throw_lost();
    }
    if (!failures.empty()) {
        clean_up_and_throw();
    }
    if (is_stopped) {  // another replica has failed
        clean_up();
        throw ChannelClosed();
    }
    if (!evaluation) {
        commit_batch();
    }
}

/// Running statistics follow a step that has succeeded on all ranks.
void Executor::Impl::commit_batch() {
    for (const int rank : here) {
        try {
            worker_at(rank).commit_batch();
        } catch (...) {
            const std::size_t index = as_index(rank);
            failures.report(order[index].back(),
                            rank,
                            plan->schedule.ranks[index].back(),
                            std::current_exception());
            clean_up_and_throw();
        }
    }
}

Score Executor::Impl::score() const {
    Score sum;
    for (int stage = 0; stage < plan.stage_count(); ++stage) {  // 0 but of last stages
        if (is_here(stage)) {
            const Stage& of_rank = worker_of(stage).stage(stage);
            sum.loss += of_rank.loss();
            sum.accuracy.right += of_rank.right_rows();
        }
    }
    if (counts_right()) {
        sum.accuracy.rows = static_cast<double>(batch.counted_targets());
    }
    return sum;
}

bool Executor::Impl::divides_layers() const {
    return !edges.groups.empty() || !edges.shards.empty();
}

std::span<const char> Executor::Impl::waits_in_groups() {
    group_waits.assign(divides_layers() ? workers.size() : 0, 0);
    GroupWait of_first = no_wait;
    for_each_group([&](std::size_t stage, const Group& group) {
        if (const std::optional<GroupWait> wait = group.waits_for()) {
            const int rank = plan->schedule.rank_of_stage[stage];
            group_waits[as_index(rank)] = 1;
            of_first = rank == here.front() ? *wait : of_first;
        }
    });
    seen_wait = of_first;
    return group_waits;
}

GroupUse Executor::Impl::group_use() const {
    GroupUse all;
    for (const std::unique_ptr<Group>& group : edges.groups) {
        if (group != nullptr) {
            all += group->use();
        }
    }
    return all;
}

GroupUse Executor::Impl::shard_use() const {
    GroupUse all;
    for (const int rank : here) {
        all += worker_at(rank).use_of_shards();
    }
    return all;
}

void Executor::Impl::collect_result(StepResult& result) {
    const Score of_step = score();
    result.loss = of_step.loss;
    result.accuracy = of_step.accuracy;
    result.timeline.origin = traits(options.backend).is_emulated || options.emulate_links
                                 ? Origin::Emulated
                                 : Origin::Measured;
    result.start = start;
    result.timeline.ranks.resize(workers.size());
    result.timeline.links.clear();
    result.timeline.host_copies.clear();
    const bool has_groups = divides_layers() && !traits(options.backend).is_emulated;
    result.timeline.in_groups.resize(has_groups ? workers.size() : 0);
    result.groups = group_use().since(groups_before);
    result.peak.resize(workers.size());
    result.host_peak.clear();
    ComputeTime time;
    for (const int rank : here) {
        const std::size_t index = as_index(rank);
        const Worker& worker = *workers[index];
        worker.recorder().spans(start, result.timeline.ranks[index]);
        if (has_groups) {
            worker.recorder().times_in_groups(result.timeline.in_groups[index]);
        }
        result.peak[index] = worker.arena().peak();
        if (const StashOffload* const offload = worker.offload()) {
            std::ranges::move(offload->spans(start),
                              std::back_inserter(result.timeline.host_copies));
            result.host_peak.push_back(offload->host_peak());
        }
        time.wall += worker.recorder().compute_wall();
        time.cpu += worker.recorder().compute_cpu();
    }
    result.shards = shard_use().since(shards_before);
    for (const GroupUse& use : {result.groups, result.shards}) {
        time.wall -= use.time;  // a wait for another device is no stolen time
        time.cpu -= use.cpu;
    }
    share(result, time);
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
        watchdog.learn(result.timeline.ranks[rank], static_cast<int>(rank));
    }
    watchdog.end_step();
    if (traits(options.backend).on_cores && time.wall > Duration{}) {
        result.stolen = std::max(0.0, 1.0 - to_seconds(time.cpu) / to_seconds(time.wall));
    } else {
        result.stolen = traits(options.backend).is_emulated ? lateness(result.timeline) : 0;
    }
}

/// The share of their time by which the compute actions of this process took longer than the plan
/// says: an emulated device that is late had no core in time.
double Executor::Impl::lateness(const Timeline& timeline) const {
    Duration late{};
    Duration busy{};
    for (const int rank : here) {
        for (const Span& span : timeline.ranks[as_index(rank)]) {
            if (is_compute(span.action.op)) {
                busy += span.end - span.ready;
                late += std::max(Duration{}, span.end - span.ready - plan.duration(span.action));
            }
        }
    }
    return busy > Duration{} ? to_seconds(late) / to_seconds(busy) : 0;
}

/// Stage by stage, so in model order whatever the partition.
double Executor::Impl::grad_norm() const {
    double sum = 0;
    for (int stage = 0; stage < model_stage_count(plan->schedule); ++stage) {
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
    options.counts_right = scenario.training.accuracy;
    options.gpu_shares = scenario.cluster.gpu_shares;
    options.gpu_units = scenario.cluster.gpu_units;
    options.emulate_links = scenario.cluster.emulate_links;
    return options;
}

Executor::Executor(Plan plan, const Model& model, ExecutorOptions options)
    : impl_(std::make_unique<Impl>(std::move(plan), model, std::move(options))) {}

Executor::~Executor() {
    if (impl_->has_stragglers && !impl_->threads.wait(impl_->options.hang_limits.grace)) {
        // Threads of hanging ranks cannot be ended, so what they may use cannot be freed.
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
    impl_->collect_result(result);
}

Score Executor::score(const Batch& batch, int step) {
    impl_->evaluate(batch, step, nullptr);
    return impl_->shared_score();
}

std::vector<double> Executor::logits(const Batch& batch, std::span<const int> positions, int step) {
    PIPETWIN_EXPECT(std::ssize(positions) == batch.samples, "a position of every sample");
    std::vector<double> values(positions.size() * as_index(classes_of(impl_->model)));
    const WantedLogits wanted{.positions = positions, .values = values};
    impl_->evaluate(batch, step, &wanted);
    return impl_->shared_logits(std::move(values));
}

void Executor::await_stragglers() {
    impl_->await_stragglers();
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
    for (int piece = 0; piece < model_stage_count(impl_->plan->schedule); ++piece) {
        std::ranges::copy_if(stage(piece).parameters(),
                             std::back_inserter(parameters),
                             [](const Parameter* parameter) { return !parameter->is_copy; });
    }
    return parameters;
}

std::vector<Parameter*> Executor::state() {
    std::vector<Parameter*> state;
    for (int piece = 0; piece < model_stage_count(impl_->plan->schedule); ++piece) {
        std::ranges::copy(stage(piece).state(), std::back_inserter(state));
    }
    return state;
}

TrainedParameters Executor::trained() {
    TrainedParameters trained;
    for (int piece = 0; piece < model_stage_count(impl_->plan->schedule); ++piece) {
        std::vector<Parameter*>& own = trained.pieces.emplace_back(trained_of_stage(piece));
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

std::vector<Parameter*> Executor::trained_of_stage(int index) {
    std::vector<Parameter*> all = stage(index).parameters();
    std::ranges::copy(stage(index).state(), std::back_inserter(all));
    return all;
}

bool Executor::has_stage(int index) const {
    return impl_->is_here(index);
}

void Executor::spread_weights() {
    exec::spread_weights(
        plan()->schedule, trained(), [this](int index) { return trained_of_stage(index); });
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
    return impl_->worker_at(rank).arena().live();
}

Executor::Room Executor::room(int rank) const {
    const std::size_t index = as_index(rank);
    Room room{.bytes = {}, .least = {}, .unforeseen = impl_->worker_at(rank).arena().unforeseen()};
    if (impl_->has_planned_memory()) {
        room.bytes = Bytes{static_cast<std::int64_t>(impl_->layouts[index].extent)};
        room.least = Bytes{static_cast<std::int64_t>(impl_->layouts[index].least)};
    }
    return room;
}

std::vector<UnplannedMemory> Executor::memory_beside() const {
    std::vector<UnplannedMemory> all;
    Bytes pool;
    Bytes of_pool;  // what has its own line, or is the plan's
    for (Worker* const worker : impl_->workers_here()) {
        const MemoryBeside beside = worker->device().memory_beside();
        for (const NamedBytes& line : beside.common) {
            all.push_back({.name = line.name, .total = line.bytes, .ranks = {}});
        }
        for (const NamedBytes& line : beside.own) {
            auto found = std::ranges::find(all, line.name, &UnplannedMemory::name);
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
