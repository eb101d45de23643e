// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/as_index.h"
#include "core/schedule/edge.h"
#include "core/schedule/lower.h"
#include "exec/executor/executor_impl.h"
#include "exec/transport/channel_group.h"
#include "exec/transport/process_group.h"

/// What an executor's ranks send their messages through: channels between stages, between the two
/// ends of shared weights, and between replicas.
namespace pipetwin::exec {

void Executor::Impl::connect() {
    connect_devices();
    connect_shards();
    std::ptrdiff_t norms = 0;
    for (const int rank : here) {
        norms +=
            std::ranges::count(plan->schedule.ranks[as_index(rank)], Op::GradientNorm, &Action::op);
    }
    if (norms > 0) {
        edges.norm = std::make_unique<GradientNorm>(
            static_cast<int>(norms), model_stage_count(plan->schedule), spin);
        if (!group().is_alone()) {
            edges.norm->exchange_with(
                [this](GradientNorm::Squares& squares) { exchange_squares(squares); });
        }
    }
    if (options.emulate_links && !plan->contention.shared_links.empty()) {
        shared_links.emplace(plan);
    }
    for (std::size_t pair = 0; pair < pair_count(plan->schedule); ++pair) {
        const StagePair stages = stages_of_pair(plan->schedule, pair);
        for (std::vector<Edge>* direction : {&edges.forward, &edges.backward}) {
            Edge& edge = direction->emplace_back();
            edge.link = plan->links[pair];
            edge.number = static_cast<int>(2 * pair) + (direction == &edges.backward ? 1 : 0);
            if (distance(stages) > 1 || exchanges(plan->schedule, stages.from)) {
                const bool forward = direction == &edges.forward;
                connect(edge, forward ? stages.from : stages.to, forward ? stages.to : stages.from);
            }
        }
    }
}

/// Makes the group of devices that compute a stage together, for each stage here.
void Executor::Impl::connect_devices() {
    const TensorPlace& tensor = options.tensor;
    if (tensor.devices == 1) {
        return;
    }
    edges.groups.resize(as_index(plan.stage_count()));
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        if (is_here(stage)) {
            const bool are_remote = !tensor.channel;
            edges.groups[as_index(stage)] = make_channel_group(
                {.size = tensor.devices, .index = tensor.device, .are_remote = are_remote},
                *devices[as_index(plan->schedule.rank_of_stage[as_index(stage)])],
                [&](int from, int to) -> Channel& {
                    const bool sends = from == tensor.device;
                    return are_remote ? device_channel(stage, sends ? to : from, sends)
                                      : tensor.channel(from, to, stage);
                });
        }
    }
}

/// Makes the groups of replicas that have the weights or gradients of a stage between them, for
/// each stage here. They are neighbours.
void Executor::Impl::connect_shards() {
    const int size = plan->gradient_shards;
    if (size == 1) {
        return;
    }
    const bool are_remote = !options.replica.channel;
    const int index = replica() % size;
    const auto group = [&](int stage, ReplicaLane lane) {
        const bool inside = lane != ReplicaLane::Groups;
        const int first = inside ? replica() - index : index;
        const int step = inside ? 1 : size;
        return make_channel_group(
            {.size = inside ? size : plan->replicas / size,
             .index = inside ? index : replica() / size,
             .are_remote = are_remote,
             .kind = inside ? GroupKind::Replicas : GroupKind::GroupsOfReplicas,
             .first = first,
             .step = step},
            *devices[as_index(plan->schedule.rank_of_stage[as_index(stage)])],
            [&](int from, int to) -> Channel& {
                const int sender = first + from * step;
                const int receiver = first + to * step;
                if (!are_remote) {
                    return *options.replica.channel(sender, receiver, stage, lane);
                }
                const bool sends = sender == replica();
                return shard_channel(stage, lane, sends ? receiver : sender, sends);
            });
    };
    edges.shards.resize(as_index(plan.stage_count()));
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        if (is_here(stage)) {
            Edges::Shards& shards = edges.shards[as_index(stage)];
            shards.gathers = group(stage, ReplicaLane::Gathers);
            shards.sums = group(stage, ReplicaLane::Sums);
            if (size < plan->replicas) {
                shards.between = group(stage, ReplicaLane::Groups);
            }
        }
    }
}

/// Messages that the channel between two stages has room for; none: unbounded.
std::optional<int> Executor::Impl::room_between(int sender, int receiver) const {
    if (!plan->channel_capacity) {
        return std::nullopt;
    }
    const StagePair stages{.from = std::min(sender, receiver), .to = std::max(sender, receiver)};
    return channel_places(plan->schedule, stages, *plan->channel_capacity);
}

/// Two ranks of this process, or one of them with one of another. Edges between others stay empty.
void Executor::Impl::connect(Edge& edge, int sender, int receiver) {
    if (is_here(sender) && is_here(receiver)) {
        edge.channel = make_local_channel(room_between(sender, receiver), spin);
        if (shared_links && shared_links->is_shared(edge.number)) {
            edge.shared_links = &*shared_links;
        }
    } else if (is_here(sender) || is_here(receiver)) {
        edge.route = TensorRoute::Remote;
        edge.channel = open_edge(sender, receiver);
    }
}

/// Between ranks whose devices have memories of their own, messages are copied.
void Executor::Impl::connect_memories() {
    for (std::size_t pair = 0; pair < edges.forward.size(); ++pair) {
        const StagePair stages = stages_of_pair(plan->schedule, pair);
        if (is_here(stages.from) && is_here(stages.to) && !share_memory(stages.from, stages.to)) {
            for (const auto& [edge, receiver] : {std::pair(&edges.forward[pair], stages.to),
                                                 std::pair(&edges.backward[pair], stages.from)}) {
                edge->route = TensorRoute::Copy;
                edge->receive_buffers = &worker_of(receiver).receive_buffers();
            }
            worker_of(stages.from).copy_outgoing_messages();
            worker_of(stages.to).copy_outgoing_messages();
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
            reduction.route = TensorRoute::Remote;
            reduction.channel = open_remote(stage, *other, plan.stage_count() * plan.stage_count());
            reduction.moments = open_moments(stage, *other);
        } else {
            reduction.channel = make_local_channel(1, spin);
            reduction.receiver = &worker_of(*other).stage(*other);
            if (!share_memory(stage, *other)) {
                reduction.route = TensorRoute::Copy;
                worker_of(stage).copy_outgoing_messages();
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
    const bool sums_at_once = plan->gradient_shards > 1;  // with every micro-batch
    if (!sums_at_once) {
        open_gpu_sum();
    }
    edges.sums.resize(as_index(plan.stage_count()));
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        if (!is_here(stage)) {
            continue;
        }
        const bool shards = !plan->weight_gather.empty();
        const bool hands_over = gradient_source(plan->schedule, stage).has_value();
        Stage& own_stage = worker_of(stage).stage(stage);
        const bool has_both_ends = !hands_over && !own_stage.shared_parameters().empty();
        ReplicaMember member{
            .peers = std::vector<ReplicaMember::Peer>(as_index(replicas)),
            .own = static_cast<std::size_t>(replica()),
            .rounds = {.sums = !sums_at_once && (!shards || hands_over || has_both_ends),
                       .weights = shards,
                       .norm = has_gradient_norms(plan->schedule)}};
        if (shards) {
            const int size = plan->optimizer_shards;
            member.sharers = {.begin = replica() / size * size, .size = size};
        }
        // A sum of GPUs carries gradients and weights alone.
        const bool has_peers = gpu_sum == nullptr || shards || own_stage.moments().size() > 0;
        for (int other = 0; other < replicas; ++other) {
            if (other != replica() && has_peers) {
                member.peers[as_index(other)] = replica_peer(stage, other);
            }
        }
        Device& device = worker_of(stage).device();
        std::span<Parameter* const> parameters;
        if (!sums_at_once) {
            parameters = own_stage.parameters();
        }
        const SharedNumbers gradients = shared_gradients(parameters, has_both_ends, member);
        const SharedNumbers weights = shared_weights(parameters, member);
        std::unique_ptr<AllReduceTransport> transport =
            gpu_sum ? gpu_all_reduce(gradients, weights, member, *gpu_sum)
                    : host_all_reduce(device, gradients, weights, member);
        edges.sums[as_index(stage)] =
            std::make_unique<GradientAllReduce>(device,
                                                own_stage.parameters().size(),
                                                own_stage.moments(),
                                                std::move(member),
                                                std::move(transport));
    }
}

/// Channels to other processes end before the memories that they read and write, which are those of
/// the workers.
void Executor::Impl::end_remote() {
    group().abort_traffic();
    for (std::vector<Edge>* const direction : {&edges.forward, &edges.backward}) {
        for (Edge& edge : *direction) {
            if (edge.is_remote()) {
                edge.channel.reset();
            }
        }
    }
    if (!device_channels.empty()) {
        edges.groups.clear();
        edges.shards.clear();
        device_channels.clear();
    }
    for (Reduction& reduction : edges.reductions) {
        if (reduction.is_remote()) {
            reduction.channel.reset();
            reduction.moments.reset();
        }
    }
}

}  // namespace pipetwin::exec
