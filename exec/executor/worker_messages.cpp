// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"
#include "exec/executor/worker.h"

/// What a rank sends and receives.
namespace pipetwin::exec {
namespace {

/// Stages that lie between two, the later one last.
std::int16_t hop_between(int stage, int later) {
    return static_cast<std::int16_t>(later - stage - 1);
}

}  // namespace

/// The tensor of a send or receive of this rank, where it waits for the stage or for the send.
Tensor& Worker::message(const Action& action) {
    LocalStage& local = local_stage(action.stage);
    Slot& place = local.slots.at(as_index(action.micro_batch));
    const bool forward = action.op == Op::SendForward || action.op == Op::RecvForward;
    const int peer = peer_stage(action);
    const bool from_earlier = peer < action.stage;
    const std::vector<int>& peers = from_earlier ? local.senders : local.receivers;
    const auto found = std::ranges::find(peers, peer);
    PIPETWIN_EXPECT(found != peers.end(), "a message between two stages that exchange some");
    std::vector<Tensor>& messages = from_earlier
                                        ? (forward ? place.received : place.received_gradients)
                                        : (forward ? place.sent : place.sent_gradients);
    return messages.at(static_cast<std::size_t>(found - peers.begin()));
}

/// The shape of what a receive of this rank brings.
Stage::Boundary Worker::message_shape(const Action& action, int samples) {
    const LocalStage& local = local_stage(action.stage);
    const bool forward = action.op == Op::RecvForward;
    const std::vector<int>& peers = forward ? local.senders : local.receivers;
    const auto number =
        static_cast<std::size_t>(std::ranges::find(peers, peer_stage(action)) - peers.begin());
    return forward ? local.stage->received_message(number, samples)
                   : local.stage->sent_message(number, samples);
}

bool Worker::is_on_this_rank(int stage) const {
    return plan_->schedule.rank_of_stage[as_index(stage)] == rank_;
}

/// A finite channel promises its sender that there is room: the receiver's memory holds it for the
/// whole run.
void Worker::reserve_channel_room(const Plan& plan) {
    const Bytes room = resident_memory(plan, rank_)[MemoryKind::Boundary];
    arena_.reserve(MemoryKind::Boundary, room);
}

/// What comes from other processes goes where it belongs as soon as it is sent: by then the plan
/// has that place free, or it is memory of its own.
void Worker::expect_messages(const StepInput& step) {
    for (const Action& action : plan_->schedule.ranks[as_index(rank_)]) {
        if (step.evaluation && !is_of_forward(action.op)) {
            continue;
        }
        if (is_send(action.op) && edge_at(action).is_remote()) {
            edge_at(action).channel->settle();
        } else if (is_receive(action.op) && edge_at(action).is_remote()) {
            expect_message(action, step);
        }
    }
    if (!step.evaluation) {
        expect_gradients();
    }
}

void Worker::expect_gradients() {
    for (const LocalStage& local : local_stages_) {
        if (GradientAllReduce* const sum = all_reduce(local.index)) {
            sum->expect();
        }
        const auto source = gradient_source(plan_->schedule, local.index);
        if (!source || !edges_.reductions[as_index(*source)].is_remote()) {
            continue;
        }
        for (Parameter* const parameter : local.stage->shared_parameters()) {
            Tensor& received = parameter->received_sum();
            edges_.reductions[as_index(*source)].channel->expect(
                Tensor::placed(device_->memory(),
                               received.data(),
                               received.dtype(),
                               received.rows(),
                               received.columns()));
        }
        if (Channel* const moments = edges_.reductions[as_index(*source)].moments.get()) {
            moments->expect(numbers_on_host(local.stage->moments_from_twin()));
        }
    }
}

void Worker::expect_message(const Action& action, const StepInput& step) {
    const std::size_t micro_batch = as_index(action.micro_batch);
    const Stage::Boundary boundary = message_shape(action, step.data[micro_batch].samples);
    Edge& edge = edge_at(action);
    edge.channel->expect(
        edge.places.empty() || step.evaluation
            ? Tensor::detached(receive_buffers_, boundary.type, boundary.rows, boundary.columns)
            : Tensor::placed(receive_buffers_.memory(),
                             edge.places.at(micro_batch),
                             boundary.type,
                             boundary.rows,
                             boundary.columns));
}

Edge& Worker::edge_at(const Action& action) const {
    const std::size_t index = as_index(edge_of(plan_->schedule, action));
    return (index % 2 == 0 ? edges_.forward : edges_.backward)[index / 2];
}

/// To the stages that read it, where they live on this rank; else it waits for its SEND.
void Worker::pass_activation_on(const Action& action) {
    const LocalStage& here = local_stage(action.stage);
    for (std::size_t index = 0; index < here.receivers.size(); ++index) {
        if (const int to = here.receivers[index]; is_on_this_rank(to)) {
            message({.op = Op::RecvForward,
                     .stage = to,
                     .micro_batch = action.micro_batch,
                     .hop = hop_between(action.stage, to)}) =
                std::move(slot(action.stage, action.micro_batch).sent[index]);
        }
    }
}

/// To the stages that made what it is of, where they live on this rank; else it waits for its SEND.
void Worker::pass_gradient_on(const Action& action) {
    const LocalStage& here = local_stage(action.stage);
    for (std::size_t index = 0; index < here.senders.size(); ++index) {
        if (const int to = here.senders[index]; is_on_this_rank(to)) {
            message({.op = Op::RecvBackward,
                     .stage = to,
                     .micro_batch = action.micro_batch,
                     .hop = hop_between(to, action.stage)}) =
                std::move(slot(action.stage, action.micro_batch).received_gradients[index]);
        }
    }
}

void Worker::hand_gradients_over(int stage) {
    Reduction& reduction = edges_.reductions.at(as_index(stage));
    if (reduction.is_remote()) {
        return hand_gradients_to_process(stage);
    }
    if (local_stage(stage).stage->is_twin_of(*reduction.receiver)) {
        device_->finish();
        local_stage(stage).stage->hand_moments_to(*reduction.receiver);
    }
    // The receiver reads them as soon as it has the message.
    if (reduction.route == TensorRoute::Copy) {
        device_->finish();
        copies_->wait(copies_->start(CopyEngine::Direction::Out,
                                     local_stage(stage).stage->gradients_for(*reduction.receiver)));
    } else {
        local_stage(stage).stage->hand_gradients_to(*reduction.receiver);
        device_->finish();
    }
    Message message;
    if (emulates_links_) {
        const Bytes bytes = plan_.handed_over(stage);
        message.available =
            device_->now() + reduction.link.latency +
            transfer_time(bytes + reduction.link.half_bandwidth, reduction.link.bytes_per_second);
    }
    reduction.channel->send(std::move(message));
}

void Worker::hand_gradients_to_process(int stage) {
    const Reduction& reduction = edges_.reductions[as_index(stage)];
    Channel& channel = *reduction.channel;
    device_->finish();
    for (Parameter* const parameter : local_stage(stage).stage->shared_parameters()) {
        Tensor& gradient = parameter->sum();
        channel.send({.micro_batch = 0,
                      .tensor = Tensor::placed(device_->memory(),
                                               gradient.data(),
                                               gradient.dtype(),
                                               gradient.rows(),
                                               gradient.columns()),
                      .available = {}});
    }
    if (reduction.moments != nullptr) {
        reduction.moments->send(
            {.micro_batch = 0,
             .tensor = numbers_on_host(local_stage(stage).stage->moments_for_twin()),
             .available = {}});
    }
}

TimePoint Worker::send(Edge& edge, int micro_batch, Tensor tensor) {
    Message message{.micro_batch = micro_batch, .tensor = std::move(tensor), .available = {}};
    if (emulates_links_ && edge.shared_links != nullptr) {
        message.shared_link =
            edge.shared_links->send(edge.number, edge.link, message.tensor.bytes());
    } else if (emulates_links_) {
        const TimePoint leaves = std::max(edge.link_free, device_->now());
        edge.link_free = leaves + transfer_time(message.tensor.bytes() + edge.link.half_bandwidth,
                                                edge.link.bytes_per_second);
        message.available = edge.link_free + edge.link.latency;
    }
    if (edge.route == TensorRoute::Copy) {
        return edge.channel->send(send_copy(edge, std::move(message)));
    }
    if (edge.is_remote()) {
        device_->finish();  // the channel reads it
    }
    message.tensor.detach();
    return edge.channel->send(std::move(message));
}

/// The tensor stays in this rank's account until its copy is complete.
Message Worker::send_copy(Edge& edge, Message message) {
    wait_for_departures(&edge);  // by now the plan may use the place of the one before again
    Tensor& tensor = message.tensor;
    Tensor there = edge.places.empty() || evaluates_
                       ? Tensor::detached(
                             *edge.receive_buffers, tensor.dtype(), tensor.rows(), tensor.columns())
                       : Tensor::placed(edge.receive_buffers->memory(),
                                        edge.places.at(as_index(message.micro_batch)),
                                        tensor.dtype(),
                                        tensor.rows(),
                                        tensor.columns());
    const CopyEngine::Piece piece{.from = tensor.data(),
                                  .to = there.data(),
                                  .bytes = static_cast<std::size_t>(tensor.bytes().count)};
    const int copy = copies_->start(CopyEngine::Direction::Out, std::span(&piece, 1));
    tensor.give_up_place();
    departures_.push_back({.tensor = std::move(tensor), .edge = &edge, .copy = copy});
    message.tensor = std::move(there);
    message.arrival = copies_->arrival(copy);
    return message;
}

/// Waits until what was sent along an edge has left, or along all edges if it is null.
void Worker::wait_for_departures(const Edge* edge) {
    std::erase_if(departures_, [&](const Departure& departure) {
        if (edge != nullptr && departure.edge != edge) {
            return false;
        }
        copies_->wait(departure.copy);
        return true;
    });
}

void Worker::forget_what_has_left() {
    std::erase_if(departures_, [this](const Departure& departure) {
        return copies_->is_complete(departure.copy);
    });
}

TimePoint Worker::receive(Edge& edge, Tensor& tensor) {
    Channel::Received received = edge.channel->receive();
    tensor = std::move(received.message.tensor);
    tensor.attach(arena_, MemoryKind::Boundary);
    return received.message.arrival ? std::max(received.arrived, received.message.arrival())
                                    : received.arrived;
}

void Worker::copy_outgoing_messages() {
    if (!copies_) {
        copies_ = device_->make_copy_engine({});
        PIPETWIN_EXPECT(copies_, "a device whose memory is its own can copy");
    }
}

Tensor Worker::adopt(Tensor tensor) {
    if (tensor.memory() == &device_->memory()) {
        tensor.attach(arena_, MemoryKind::Boundary);
        return tensor;
    }
    copy_outgoing_messages();
    copies_->restart();
    Tensor own =
        arena_.allocate(tensor.dtype(), tensor.rows(), tensor.columns(), MemoryKind::Boundary);
    const CopyEngine::Piece piece{.from = tensor.data(),
                                  .to = own.data(),
                                  .bytes = static_cast<std::size_t>(tensor.bytes().count)};
    copies_->wait(copies_->start(CopyEngine::Direction::In, std::span(&piece, 1)));
    return own;
}

void Worker::close_channels() {
    for (std::vector<Edge>* edges : {&edges_.forward, &edges_.backward}) {
        for (std::size_t pair = 0; pair < edges->size(); ++pair) {
            const StagePair stages = stages_of_pair(plan_->schedule, pair);
            const bool is_own = is_on_this_rank(stages.from) || is_on_this_rank(stages.to);
            if (is_own && (*edges)[pair].channel) {
                (*edges)[pair].channel->close();
            }
        }
    }
    for (const LocalStage& local : local_stages_) {
        const std::size_t stage = as_index(local.index);
        if (GradientAllReduce* const sum = all_reduce(local.index)) {
            sum->close();
        }
        if (Group* const group = group_of(local.index)) {
            group->close();
        }
        if (rooms_) {
            edges_.shards[stage].close();
        }
        if (const auto other = gradient_source(plan_->schedule, local.index)) {
            edges_.reductions[stage].channel->close();
            edges_.reductions[as_index(*other)].channel->close();
        }
    }
    if (norms_to_do_ > 0) {  // the others' updates would wait for them
        edges_.norm->close();
    }
}

}  // namespace pipetwin::exec
