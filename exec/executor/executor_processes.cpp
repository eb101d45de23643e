// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"
#include "exec/executor/backend.h"
#include "exec/executor/executor_impl.h"
#include "exec/transport/byte_message.h"
#include "exec/transport/monitor.h"
#include "exec/transport/process_group.h"
#include "exec/transport/timed_channel.h"

/// An executor of which other processes have the other ranks.
namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// What one process tells the others of a failure of its rank.
void put_failure(ByteWriter& message, const StepFailures::One& failure) {
    message.put(failure.order).put(failure.rank).put(failure.action.has_value());
    message.put(failure.action.value_or(Action{}));
    try {
        std::rethrow_exception(failure.error);
    } catch (const Error& error) {
        message.put_error(error);
    } catch (const std::exception& exception) {
        message.put_error({ErrorKind::WorkerFailed, "", exception.what()});
    }
}

StepFailures::One get_failure(ByteReader& message) {
    StepFailures::One failure;
    failure.order = message.get<int>();
    failure.rank = message.get<int>();
    const bool has_action = message.get<bool>();
    const auto action = message.get<Action>();
    if (has_action) {
        failure.action = action;
    }
    failure.error = std::make_exception_ptr(message.get_error());
    return failure;
}

}  // namespace

std::vector<Worker*> Executor::Impl::workers_here() const {
    std::vector<Worker*> some;
    for (const int rank : here) {
        some.push_back(workers[as_index(rank)].get());
    }
    return some;
}

/// The other processes with which those ranks that are here exchange messages or gradients.
std::vector<int> Executor::Impl::peers() const {
    std::set<int> processes;
    const auto add = [&](int stage, int other) {
        if (is_here(stage) != is_here(other)) {
            const int far = is_here(stage) ? other : stage;
            processes.insert(process_of(plan->schedule.rank_of_stage[as_index(far)]));
        }
    };
    for (std::size_t pair = 0; pair < pair_count(plan->schedule); ++pair) {
        const StagePair stages = stages_of_pair(plan->schedule, pair);
        add(stages.from, stages.to);
    }
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        if (const auto other = gradient_source(plan->schedule, stage)) {
            add(stage, *other);
        }
    }
    for (int other = 0; other < plan->replicas; ++other) {
        processes.insert(process_of(other, here.front()));
    }
    for (int device = 0; device < options.tensor.devices; ++device) {
        processes.insert(exec::process_of(
            group(), plan, {.replica = replica(), .rank = here.front(), .device = device}));
    }
    processes.erase(group().index());
    return {processes.begin(), processes.end()};
}

/// Tags from `first_tag` on are of one kind of message: of those, two stages have one edge in a
/// direction.
std::unique_ptr<Channel> Executor::Impl::open_remote(int sender,
                                                     int receiver,
                                                     int first_tag,
                                                     std::optional<int> capacity) {
    const bool sends = is_here(sender);
    const int other = plan->schedule.rank_of_stage[as_index(sends ? receiver : sender)];
    return group().open({.peer = process_of(other),
                         .tag = first_tag + sender * plan.stage_count() + receiver,
                         .sends = sends,
                         .capacity = capacity,
                         .on_device = traits(options.backend).has_memory});
}

/// Opens the channel of what the norms of two stages with the same weights have seen. Null: they
/// have no such norms.
std::unique_ptr<Channel> Executor::Impl::open_moments(int sender, int receiver) {
    const bool sends = is_here(sender);
    const int own = sends ? sender : receiver;
    if (!worker_of(own).has_twin_moments(own)) {
        return nullptr;
    }
    // Behind the tags of edges, of gradients that stages share, and of replicas.
    const int stages = plan.stage_count();
    const int tag = 2 * stages * stages + stages + sender * stages + receiver;
    const int other = plan->schedule.rank_of_stage[as_index(sends ? receiver : sender)];
    return group().open({.peer = process_of(other), .tag = tag, .sends = sends});
}

/// Opens a channel for an edge of the plan. With emulated links messages take as long as planned.
std::unique_ptr<Channel> Executor::Impl::open_edge(int sender, int receiver) {
    const std::optional<int> capacity = room_between(sender, receiver);
    if (!options.emulate_links) {
        return open_remote(sender, receiver, 0, capacity);
    }
    const std::optional<int> doubled = capacity ? std::optional(2 * *capacity) : std::nullopt;
    return make_timed_channel(open_remote(sender, receiver, 0, doubled));
}

/// Where replicas have a GPU in each process; else their sums are made in host memory.
void Executor::Impl::open_gpu_sum() {
    if (!traits(options.backend).has_memory) {
        return;
    }
    std::vector<int> members;
    for (int of = 0; of < plan->replicas; ++of) {
        members.push_back(process_of(of, here.front()));
    }
    gpu_sum = group().open_sum(members);
}

ReplicaMember::Peer Executor::Impl::replica_peer(int stage, int other) {
    if (options.replica.channel) {
        return {.to = options.replica.channel(replica(), other, stage, ReplicaLane::Step),
                .from = options.replica.channel(other, replica(), stage, ReplicaLane::Step),
                .is_remote = false};
    }
    // Beside the tags of edges and of gradients that stages share.
    const int tag = 2 * plan.stage_count() * plan.stage_count() + stage;
    const int process = process_of(other, here.front());
    const auto open = [&](bool sends) {
        return replica_channels
            .emplace_back(group().open({.peer = process, .tag = tag, .sends = sends}))
            .get();
    };
    return {.to = open(true), .from = open(false), .is_remote = true};
}

Channel& Executor::Impl::device_channel(int stage, int other, bool sends) {
    // Beside the tags of what norms of two stages have seen.
    const int stages = plan.stage_count();
    const int process = exec::process_of(
        group(), plan, {.replica = replica(), .rank = here.front(), .device = other});
    const std::unique_ptr<Channel>& channel = device_channels.emplace_back(
        group().open({.peer = process,
                      .tag = 3 * stages * stages + stages + stage,
                      .sends = sends,
                      .on_device = traits(options.backend).has_memory}));
    return *channel;
}

Channel& Executor::Impl::shard_channel(int stage, ReplicaLane lane, int other, bool sends) {
    // Beside the tags of devices.
    const int stages = plan.stage_count();
    const int tag = 3 * stages * stages + (2 + static_cast<int>(lane)) * stages + stage;
    const std::unique_ptr<Channel>& channel = device_channels.emplace_back(
        group().open({.peer = process_of(other, here.front()),
                      .tag = tag,
                      .sends = sends,
                      .on_device = traits(options.backend).has_memory}));
    return *channel;
}

/// Which walk this process is in, and at which cell of its row.
Position Executor::Impl::position() const {
    const Progress& own = progress[as_index(here.front())];
    return {.walk = walks, .cell = own.cell, .turned_to = own.turned_to, .wait = seen_wait};
}

/// Where the other ranks of this pipeline are, as far as they have said.
void Executor::Impl::poll_peers() {
    const std::vector<Position> positions = options.place.monitor->positions();
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        if (process_of(rank) == group().index()) {
            continue;
        }
        const Position& theirs = positions[as_index(process_of(rank))];
        const std::size_t index = as_index(rank);
        cells[index] = theirs.walk == walks  ? theirs.cell
                       : theirs.walk < walks ? preparing
                                             : static_cast<int>(plan->schedule.ranks[index].size());
    }
}

/// Some process will never answer: who, and what it did when it was last heard of.
void Executor::Impl::throw_lost() const {
    const Monitor& monitor = *options.place.monitor;
    std::string text = monitor.lost().value_or("another process") +
                       " has not been heard of for too long: it was stopped, it died, or the "
                       "network to its host is cut";
    const std::vector<Position> positions = monitor.positions();
    for (std::size_t process = 0; process < positions.size(); ++process) {
        const std::size_t rank = as_index(place_of_process(plan, static_cast<int>(process)).rank);
        const auto& row = plan->schedule.ranks[rank];
        const bool is_own = static_cast<int>(process) == group().index();
        const Position& theirs = positions[process];
        text += fmt::format("\n  {}: ", monitor.names()[process]);
        if (!is_own && theirs.walk != walks) {
            text += theirs.walk < walks ? "in an earlier step when it was last heard of"
                                        : "in a later step";
            continue;
        }
        const int cell = is_own ? progress[rank].turned_to.load() : theirs.turned_to;
        text += cell < 0                  ? "before its first action"
                : cell >= std::ssize(row) ? "at the end of its row"
                                          : "at " + in_full(row[as_index(cell)]);
        GroupWait wait = is_own ? seen_wait.load() : theirs.wait;
        if (is_own && !has_stragglers) {  // which might write theirs meanwhile
            for_each_group(
                [&](std::size_t, const Group& own) { wait = own.broken_wait().value_or(wait); });
        }
        if (wait != no_wait) {
            text += ", waits in " + text_of(wait);
        }
    }
    throw Error(ErrorKind::Hang, fmt::format("step {}", input.step), text, hint_of_lost_host());
}

/// Sets the moment at which all workers begin the step: those of several processes on a clock that
/// they have in common. Spinning workers meet a little ahead, so that none is late for having been
/// woken last. False where a process will never begin, which the next thing that is gathered says.
bool Executor::Impl::agree_on_start() noexcept {
    constexpr std::chrono::microseconds wake_up{100};
    start = Clock::now() + (spin == Spin::Briefly ? wake_up : std::chrono::microseconds{0});
    if (group().is_alone()) {
        return true;
    }
    try {
        const auto last_of_all = [this] {
            const std::int64_t now = clock.common(Clock::now()).time_since_epoch().count();
            std::int64_t last = now;
            for (const auto& theirs : group().all_gather(std::as_bytes(std::span(&now, 1)))) {
                last = std::max(last, ByteReader(theirs).get<std::int64_t>());
            }
            return TimePoint(Clock::duration(last));
        };
        TimePoint last = last_of_all();
        if (clock.is_old(last)) {
            clock.ask(group());
            last = last_of_all();
        }
        start = clock.own(last) + wake_up;
    } catch (const std::exception&) {
        return false;
    }
    return true;
}

/// After it all processes know of the same failures.
void Executor::Impl::share_failures() {
    if (group().is_alone()) {
        return;
    }
    ByteWriter mine;
    mine.put(!failures.empty());
    if (!failures.empty()) {
        put_failure(mine, failures.first());
    }
    const auto all = group().all_gather(mine.bytes());
    for (int process = 0; process < group().size(); ++process) {
        ByteReader theirs(all[as_index(process)]);
        if (theirs.get<bool>() && process != group().index()) {
            const StepFailures::One failure = get_failure(theirs);
            failures.report(failure.order, failure.rank, failure.action, failure.error);
        }
    }
}

/// Every NORM of this process is done.
void Executor::Impl::exchange_squares(GradientNorm::Squares& squares) const {
    ByteWriter mine;
    for (int stage = 0; stage < model_stage_count(plan->schedule); ++stage) {
        if (is_here(stage)) {
            mine.put(stage).put_all(std::span<const double>(squares[as_index(stage)]));
        }
    }
    for (const auto& theirs : group().all_gather(mine.bytes(), ProcessGroup::Lane::Norm)) {
        for (ByteReader message(theirs); !message.at_end();) {
            const int stage = message.get<int>();
            squares[as_index(stage)] = message.get_all<double>();
        }
    }
}

/// Replica by replica and stage by stage, as in one process.
Score Executor::Impl::shared_score() const {
    const bool is_first = options.tensor.device == 0;  // all devices of a rank have the same
    const Score own = is_first ? score() : Score{};
    Score sum{.accuracy = {.rows = score().accuracy.rows}};
    for (const auto& theirs : group().all_gather(std::as_bytes(std::span(&own, 1)))) {
        const auto part = ByteReader(theirs).get<Score>();
        sum.loss += part.loss;
        sum.accuracy.right += part.accuracy.right;
    }
    return sum;
}

std::vector<double> Executor::Impl::shared_logits(std::vector<double> own) const {
    if (group().is_alone()) {
        return own;
    }
    std::vector<double> sum(own.size());
    for (const auto& theirs : group().all_gather(std::as_bytes(std::span(own)))) {
        ByteReader part(theirs);
        for (double& value : sum) {
            value += part.get<double>();
        }
    }
    return sum;
}

/// Fills in what the ranks of other processes have done; `time` becomes that of all.
void Executor::Impl::share(StepResult& result, ComputeTime& time) const {
    if (group().is_alone()) {
        result.grad_norm = grad_norm();
        return;
    }
    const std::size_t own = as_index(here.front());
    ByteWriter mine;
    const bool is_first = options.tensor.device == 0;  // all devices of a rank have the same
    mine.put(is_first ? result.loss : 0.0).put(is_first ? result.accuracy.right : 0.0);
    mine.put(time.wall).put(time.cpu).put(result.peak[own]);
    mine.put_all(std::span<const Span>(result.timeline.ranks[own]));
    auto& in_groups = result.timeline.in_groups;
    mine.put_all(in_groups.empty() ? std::span<const Duration>() : in_groups[own]);
    GradientNorm::Squares squares(as_index(model_stage_count(plan->schedule)));
    for (int stage = 0; stage < std::ssize(squares); ++stage) {
        if (is_here(stage)) {
            mine.put(stage).put_all(worker_of(stage).stage(stage).counted_squares());
        }
    }
    result.loss = 0;
    result.accuracy.right = 0;
    result.timeline.replicas.assign(as_index(plan->replicas - 1),
                                    std::vector<std::vector<Span>>(as_index(plan.rank_count())));
    time = {};
    const auto all = group().all_gather(mine.bytes());
    for (int process = 0; process < group().size(); ++process) {
        ByteReader theirs(all[as_index(process)]);
        result.loss += theirs.get<double>();
        result.accuracy.right += theirs.get<double>();
        time.wall += theirs.get<Duration>();
        time.cpu += theirs.get<Duration>();
        const auto peak = theirs.get<MemoryUse>();
        std::vector<Span> row = theirs.get_all<Span>();
        std::vector<Duration> times = theirs.get_all<Duration>();
        const DeviceOfPlan where = place_of_process(plan, process);
        const std::size_t rank = as_index(where.rank);
        const int of = where.replica;
        if (where.device != options.tensor.device) {
            continue;
        }
        if (of != replica()) {  // the others in their order
            const std::size_t other = as_index(of < replica() ? of : of - 1);
            result.timeline.replicas[other][rank] = std::move(row);
            continue;
        }
        result.peak[rank] = peak;
        result.timeline.ranks[rank] = std::move(row);
        if (!in_groups.empty()) {
            in_groups[rank] = std::move(times);
        }
        while (!theirs.at_end()) {
            const int stage = theirs.get<int>();
            squares[as_index(stage)] = theirs.get_all<double>();
        }
    }
    result.grad_norm = GradientNorm::norm_of(squares);
}

}  // namespace pipetwin::exec
