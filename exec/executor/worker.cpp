#include "exec/executor/worker.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/routes.h"
#include "core/schedule/edge.h"
#include "exec/base/cores.h"
#include "exec/executor/backend.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec {
namespace {

StageOptions stage_options(const Plan& plan, const Model& model, const Worker::Settings& settings) {
    const ExecutorOptions& options = *settings.options;
    std::function<void()> between_layers;
    if (ProcessGroup& group = *options.place.group; !group.is_alone()) {
        between_layers = [&group] { group.progress(); };
    }
    return {.format = number_format(options.precision, options.backend),
            .seed = options.seed,
            .training_steps = options.optimizer.steps,
            .micro_batches = plan.micro_batches(),
            .largest_micro_batch = std::ranges::max(plan->micro_batch_sizes),
            .optimizer = options.optimizer.kind,
            .averages_weights = options.optimizer.average_decay > 0,
            .counts_right = options.counts_right.value_or(!model.layer(0).input.token_ids),
            .input_gradient = options.input_gradient,
            .shared_weights = model_stage_count(plan->schedule) < plan.stage_count(),
            .replica = options.replica.index,
            .optimizer_shards = plan->weight_gather.empty() ? 1 : plan->replicas,
            .recomputed_blocks = plan->layer_recompute == LayerRecompute::Block
                                     ? recomputed_blocks(model)
                                     : std::vector<LayerRange>{},
            .blocks_together = plan->recompute_blocks,
            .layer_done = options.layer_done,
            .times_layers = options.times_layers,
            .between_layers = std::move(between_layers)};
}

/// Frees the tensors; the list keeps its length.
void free_all(std::span<Tensor> tensors) {
    for (Tensor& tensor : tensors) {
        tensor = {};
    }
}

/// Stages that lie between two, the later one last.
std::int16_t hop_between(int stage, int later) {
    return static_cast<std::int16_t>(later - stage - 1);
}

void refuse_loss_that_is_not_finite(const Stage& stage, int micro_batch) {
    if (const double loss = stage.loss(); !std::isfinite(loss)) {
        throw Error(ErrorKind::NotFinite,
                    "",
                    fmt::format("the loss of micro-batch {} is {}", micro_batch, loss),
                    "lower the learning rate, or look at the data");
    }
}

void refuse_gradients_that_are_not_finite(Stage& stage) {
    const std::span<const double> squares = stage.gradient_squares();
    for (std::size_t index = 0; index < squares.size(); ++index) {
        if (!std::isfinite(squares[index])) {
            throw Error(ErrorKind::NotFinite,
                        "",
                        fmt::format("the gradient of '{}' in stage {} is not finite",
                                    stage.parameters()[index]->name,
                                    stage.place().stage),
                        "lower the learning rate, or look at the data");
        }
    }
}

}  // namespace

Worker::Worker(const Plan& plan,
               const Model& model,
               int rank,
               Edges& edges,
               std::unique_ptr<Device> device,
               const Settings& settings)
    : plan_(plan),
      rank_(rank),
      edges_(edges),
      emulates_links_(settings.options->emulate_links),
      action_begun_(settings.options->action_begun),
      times_layers_(settings.options->times_layers),
      has_timer_(settings.options->layer_done || settings.options->action_begun),
      group_(*settings.options->place.group),
      cores_(settings.cores),
      device_(std::move(device)),
      arena_(device_->memory()),
      receive_buffers_(device_->memory()),
      recorder_(plan->schedule.ranks.at(as_index(rank))),
      offload_(StashOffload::of_rank(plan, rank, *device_, arena_)) {
    const StageOptions options = stage_options(plan, model, settings);
    for (int index = 0; index < plan.stage_count(); ++index) {
        if (plan->schedule.rank_of_stage[as_index(index)] != rank) {
            continue;
        }
        LocalStage& local = local_stages_.emplace_back();
        local.index = index;
        local.slots.resize(as_index(plan.micro_batches()));
        connect_stage(local, model, options);
    }
    for (const Action& action : plan->schedule.ranks[as_index(rank)]) {
        if (action.op == Op::Recompute) {
            slot(action.stage, action.micro_batch).recomputed = true;
        }
    }
    reserve_channel_room(plan);
    device_->finish();  // the weights are there
    device_->leave_thread();
}

/// Makes the stage. Where the model has branches, its messages follow from the routes of outputs.
void Worker::connect_stage(LocalStage& local, const Model& model, StageOptions options) {
    const Schedule& schedule = plan_->schedule;
    const int piece = schedule.weights_of_stage[as_index(local.index)];
    const Stage::Place place{.stage = local.index,
                             .first_layer = plan_->partition->first_layer(piece),
                             .layer_count = plan_->partition->layers_in(piece)};
    local.has_branches = !model.is_chain();
    if (local.has_branches) {
        options.messages =
            messages_of(routes_of(model, *plan_->partition), piece, model_stage_count(schedule));
        const auto stages_of_pieces = [&](std::vector<int> pieces) {
            for (int& stage : pieces) {
                stage += local.index - piece;
            }
            return pieces;
        };
        local.senders = stages_of_pieces(options.messages->from);
        local.receivers = stages_of_pieces(options.messages->to);
        const bool input_gradient = options.input_gradient && local.senders.empty();
        for (Slot& slot : local.slots) {
            slot.received.resize(local.senders.size());
            slot.sent.resize(local.receivers.size());
            slot.sent_gradients.resize(local.receivers.size());
            slot.received_gradients.resize(input_gradient ? 1 : local.senders.size());
        }
    }
    local.stage = std::make_unique<Stage>(*device_, arena_, model, place, options);
}

/// The tensor of a send or receive of this rank, where it waits for the stage or for the send.
Tensor& Worker::message(const Action& action) {
    LocalStage& local = local_stage(action.stage);
    Slot& place = local.slots.at(as_index(action.micro_batch));
    const bool forward = action.op == Op::SendForward || action.op == Op::RecvForward;
    if (!local.has_branches) {
        return forward ? place.activation : place.gradient;
    }
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
    if (!local.has_branches) {
        return forward ? local.stage->input_boundary(samples)
                       : local.stage->output_boundary(samples);
    }
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

RowNeeds Worker::rehearse(const StepInput& step) {
    AllocationTrace trace;
    arena_.rehearse(&trace);
    for (const LocalStage& local : local_stages_) {
        local.stage->rehearse(true);
    }
    for (const Action& action : plan_->schedule.ranks[as_index(rank_)]) {
        trace.turn();
        rehearse(action, step, trace);
    }
    for (LocalStage& local : local_stages_) {
        for (Slot& slot : local.slots) {
            slot.gradient = {};  // of the model's input
            free_all(slot.received_gradients);
        }
        local.stage->rehearse(false);
    }
    RowNeeds needs = trace.end();
    arena_.rehearse(nullptr);
    arena_.reset_peak();
    return needs;
}

/// What `perform` asks for.
void Worker::rehearse(const Action& action, const StepInput& step, AllocationTrace& trace) {
    if (is_compute(action.op)) {
        return compute(action, step);
    }
    if (!is_send(action.op) && !is_receive(action.op)) {
        return;
    }
    const int edge = edge_of(plan_->schedule, action);
    Tensor& tensor = message(action);
    if (is_receive(action.op)) {
        const Stage::Boundary boundary =
            message_shape(action, step.data[as_index(action.micro_batch)].samples);
        tensor = arena_.rehearse_arrival(boundary.type,
                                         boundary.rows,
                                         boundary.columns,
                                         {.edge = edge, .micro_batch = action.micro_batch});
        return;
    }
    if (edge_at(action).copies()) {
        trace.free_copied(edge);
        trace.copy(tensor.data(), edge);
    } else {
        trace.send(tensor.data(), {.edge = edge, .micro_batch = action.micro_batch});
    }
    tensor.vanish();
}

void Worker::use_averages(bool on) {
    for (LocalStage& local : local_stages_) {
        local.stage->use_averages(on);
    }
}

void Worker::prepare(const StepInput& step) {
    const bool evaluation = step.evaluation;
    if (!cores_.empty()) {
        pin_to(cores_[as_index(rank_) % cores_.size()]);
    }
    device_->enter_thread();
    use_averages(evaluation);
    for (LocalStage& local : local_stages_) {
        for (Slot& slot : local.slots) {
            slot.gradient = {};  // of the model's input, kept since the last step
            free_all(slot.received_gradients);
        }
        if (evaluation) {
            local.stage->zero_losses();
        } else {
            local.stage->begin_batch();
        }
    }
    device_->finish();
    recorder_.restart();
    issued_ = 0;
    last_end_ = {};
    norms_to_do_ = static_cast<int>(
        std::ranges::count(plan_->schedule.ranks[as_index(rank_)], Op::GradientNorm, &Action::op));
    receive_buffers_.settle();
    if (offload_) {
        offload_->restart();
    }
    if (copies_) {
        wait_for_departures();
        copies_->restart();
    }
    if (!evaluation) {
        arena_.reset_peak();
        arena_.begin_step();
    }
    evaluates_ = evaluation;
    expect_messages(step);
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
            Tensor& received = parameter->received;
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

void Worker::start(TimePoint start) {
    device_->wait_until(start);
}

Worker::Begun Worker::issue(std::size_t cell, const StepInput& step) {
    const Action& action = plan_->schedule.ranks[as_index(rank_)][cell];
    ++issued_;
    forget_what_has_left();
    arena_.turn_to(cell);
    const TimePoint begin = device_->now();
    TimePoint ready = offload_ ? turn_to(cell, action, begin) : begin;
    if (is_compute(action.op)) {
        mark_begin(action.op);
    }
    switch (action.op) {
        case Op::RecvForward:
        case Op::RecvBackward:
            ready = receive(edge_at(action), message(action));
            break;
        case Op::SendForward:
        case Op::SendBackward:
            ready = send(edge_at(action), action.micro_batch, std::move(message(action)));
            break;
        case Op::Forward:
        case Op::Recompute:
        case Op::Backward:
        case Op::BackwardInput:
        case Op::BackwardWeight:
            recorder_.begin_compute();
            compute(action, step);
            recorder_.end_compute();
            break;
        case Op::ReduceGradient:
            reduce(action.stage);
            break;
        case Op::GradientNorm:
            ready = complete_gradients(action.stage);
            local_stage(action.stage).stage->sum_squares();
            share_squares(action.stage);
            break;
        case Op::Optimizer:
            ready = update(action.stage, step);
            break;
        case Op::Unshard:
        case Op::Reshard:
            throw Error(ErrorKind::Unavailable,
                        "",
                        fmt::format("the executor has no {} yet", op_text(action.op)),
                        "take a schedule without data parallelism");
    }
    if (issued_ > 1) {
        device_->prepare_launch();
    }
    return {.cell = cell, .begin = begin, .ready = ready};
}

/// The next action needs nothing but what this rank has, so that it may be issued while the device
/// computes this one. That follows from the row alone: a step issues what the step before did, with
/// the same addresses.
bool Worker::is_issued_ahead(std::size_t cell) const {
    const std::vector<Action>& row = plan_->schedule.ranks[as_index(rank_)];
    return cell + 1 < row.size() && is_compute(row[cell].op) && is_compute(row[cell + 1].op) &&
           !offload_ && !times_layers();
}

bool Worker::launch(const Begun& action) {
    return is_issued_ahead(action.cell) &&
           device_->launch(plan_->schedule.ranks[as_index(rank_)][action.cell]);
}

void Worker::finish(const Begun& begun) {
    const std::size_t cell = begun.cell;
    const Action& action = plan_->schedule.ranks[as_index(rank_)][cell];
    const TimePoint begin = std::max(begun.begin, last_end_);  // until then the device was at work
    const TimePoint ready = std::max(begin, begun.ready);
    last_end_ = device_->complete(action, ready, plan_.duration(action));
    recorder_.record(begin, ready, last_end_);
    --issued_;
    if (!is_send(action.op) && !is_receive(action.op) && issued_ == 0) {
        receive_buffers_.settle();
    }
    if (offload_ && offload_->leaves(cell)) {
        offload_->send_out(cell,
                           local_stage(action.stage).stage->stash_tensors(action.micro_batch));
    }
    refuse_what_is_not_finite(action);
    if (action.op == Op::GradientNorm) {
        edges_.norm->add(action.stage, local_stage(action.stage).stage->counted_squares());
        --norms_to_do_;
    }
}

void Worker::evaluate(const Action& action, const StepInput& step) {
    forget_what_has_left();
    switch (action.op) {
        case Op::RecvForward:
            receive(edge_at(action), message(action));
            break;
        case Op::SendForward:
            send(edge_at(action), action.micro_batch, std::move(message(action)));
            break;
        default: {
            LocalStage& here = local_stage(action.stage);
            Slot& place = slot(action.stage, action.micro_batch);
            const MicroBatch& data = step.data[as_index(action.micro_batch)];
            if (here.has_branches) {
                here.stage->evaluate(action.micro_batch, place.received, data, place.sent);
            } else {
                place.activation =
                    here.stage->evaluate(action.micro_batch, std::move(place.activation), data);
            }
            pass_activation_on(action);
            break;
        }
    }
    device_->complete(action, device_->now(), plan_.duration(action));
    if (action.op == Op::Forward) {
        receive_buffers_.settle();
        refuse_what_is_not_finite(action);
    }
}

/// Sees to the stashes in host memory; when the one that the action needs has come.
TimePoint Worker::turn_to(std::size_t cell, const Action& action, TimePoint begin) {
    offload_->retire();
    if (!is_compute(action.op)) {
        return begin;
    }
    const TimePoint ready = std::max(begin, offload_->wait_for(cell).value_or(begin));
    offload_->let_in(cell);
    return ready;
}

void Worker::compute(const Action& action, const StepInput& step) {
    LocalStage& here = local_stage(action.stage);
    Stage& stage = *here.stage;
    Slot& place = slot(action.stage, action.micro_batch);
    switch (action.op) {
        case Op::Forward:
            forward(action, step);
            break;
        case Op::Recompute:
            stage.recompute(action.micro_batch, step.data[as_index(action.micro_batch)]);
            break;
        case Op::Backward:
            if (here.has_branches) {
                stage.backward(action.micro_batch, place.sent_gradients, place.received_gradients);
            } else {
                place.gradient = stage.backward(action.micro_batch, std::move(place.gradient));
            }
            pass_gradient_on(action);
            break;
        case Op::BackwardInput:
            if (here.has_branches) {
                stage.backward_input(
                    action.micro_batch, place.sent_gradients, place.received_gradients);
            } else {
                place.gradient =
                    stage.backward_input(action.micro_batch, std::move(place.gradient));
            }
            pass_gradient_on(action);
            break;
        default:
            stage.backward_weight(action.micro_batch);
            break;
    }
}

void Worker::forward(const Action& action, const StepInput& step) {
    LocalStage& here = local_stage(action.stage);
    Slot& place = slot(action.stage, action.micro_batch);
    const MicroBatch& data = step.data[as_index(action.micro_batch)];
    if (here.has_branches) {
        here.stage->forward(
            action.micro_batch, place.received, data, !place.recomputed, place.sent);
    } else {
        place.activation = here.stage->forward(
            action.micro_batch, std::move(place.activation), data, !place.recomputed);
    }
    pass_activation_on(action);
}

/// To the stages that read it, where they live on this rank; else it waits for its SEND.
void Worker::pass_activation_on(const Action& action) {
    const LocalStage& here = local_stage(action.stage);
    if (here.has_branches) {
        for (std::size_t index = 0; index < here.receivers.size(); ++index) {
            if (const int to = here.receivers[index]; is_on_this_rank(to)) {
                message({.op = Op::RecvForward,
                         .stage = to,
                         .micro_batch = action.micro_batch,
                         .hop = hop_between(action.stage, to)}) =
                    std::move(slot(action.stage, action.micro_batch).sent[index]);
            }
        }
        return;
    }
    if (!is_last(action.stage) && !edges_.forward[as_index(action.stage)].channel) {
        slot(action.stage + 1, action.micro_batch).activation =
            std::move(slot(action.stage, action.micro_batch).activation);
    }
}

/// To the stages that made what it is of, where they live on this rank; else it waits for its SEND.
void Worker::pass_gradient_on(const Action& action) {
    const LocalStage& here = local_stage(action.stage);
    if (here.has_branches) {
        for (std::size_t index = 0; index < here.senders.size(); ++index) {
            if (const int to = here.senders[index]; is_on_this_rank(to)) {
                message({.op = Op::RecvBackward,
                         .stage = to,
                         .micro_batch = action.micro_batch,
                         .hop = hop_between(to, action.stage)}) =
                    std::move(slot(action.stage, action.micro_batch).received_gradients[index]);
            }
        }
        return;
    }
    if (has_stage_before(plan_->schedule, action.stage) &&
        !edges_.backward[as_index(action.stage - 1)].channel) {
        slot(action.stage - 1, action.micro_batch).gradient =
            std::move(slot(action.stage, action.micro_batch).gradient);
    }
}

GradientAllReduce* Worker::all_reduce(int stage) const {
    return edges_.sums.empty() ? nullptr : edges_.sums[as_index(stage)].get();
}

/// Over the replicas first: what goes to another stage are their sums.
void Worker::reduce(int stage) {
    const bool goes_on = gradient_source(plan_->schedule, stage).has_value();
    local_stage(stage).stage->zero_missing_gradients();
    if (GradientAllReduce* const sum = all_reduce(stage)) {
        TimePoint& begun = local_stage(stage).sum_begun;
        begun = device_->now();
        sum->begin();
        if (goes_on || !plan_->overlap_reduction) {
            sum->finish();
            await_emulated(begun + plan_->all_reduce[as_index(stage)]);
        }
    }
    if (goes_on) {
        hand_gradients_over(stage);
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
        Tensor& gradient = parameter->gradient;
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

bool Worker::has_twin_moments(int stage) const {
    return model_stage_count(plan_->schedule) < plan_.stage_count() &&
           local_stage(stage).stage->moments().size() > 0;
}

/// Waits for what another stage and other replicas have to add, where they have; returns when the
/// last came.
TimePoint Worker::complete_gradients(int stage) {
    TimePoint arrived;
    if (GradientAllReduce* const sum = all_reduce(stage); sum != nullptr && sum->is_under_way()) {
        arrived = sum->finish();
        arrived = std::max(
            arrived,
            await_emulated(local_stage(stage).sum_begun + plan_->all_reduce[as_index(stage)]));
    }
    const auto source = gradient_source(plan_->schedule, stage);
    if (source) {
        const Reduction& reduction = edges_.reductions[as_index(*source)];
        const std::size_t messages =
            reduction.is_remote() ? local_stage(stage).stage->shared_parameters().size() : 1;
        for (std::size_t i = 0; i < messages; ++i) {
            arrived = std::max(arrived, reduction.channel->receive().arrived);
        }
        if (reduction.moments != nullptr) {
            arrived = std::max(arrived, reduction.moments->receive().arrived);
        }
        if (reduction.is_remote()) {  // its own gradients are about to change
            local_stage(stage).stage->note_received_gradients();
            const Reduction& own = edges_.reductions[as_index(stage)];
            own.channel->settle();
            if (own.moments != nullptr) {
                own.moments->settle();
            }
        }
    }
    local_stage(stage).stage->add_received_gradients();
    if (source && has_twin_moments(stage)) {
        local_stage(stage).stage->add_twin_moments(*source);
    }
    return arrived;
}

/// Where each replica has a share of the gradients' sums.
void Worker::share_squares(int stage) {
    if (GradientAllReduce* const sum = all_reduce(stage)) {
        sum->share_squares(local_stage(stage).stage->squares_of_share());
    }
}

/// Returns when all that it needs was there.
TimePoint Worker::update(int stage, const StepInput& step) {
    TimePoint ready;
    double scale = 1;
    if (edges_.norm) {
        const GradientNorm::Known known = edges_.norm->wait();
        ready = known.since;
        scale = clip_scale(step.optimizer, known.norm);
    } else {
        ready = complete_gradients(stage);
    }
    mark_begin(Op::Optimizer);
    local_stage(stage).stage->update(step.optimizer, step.step + 1, scale);
    share_squares(stage);
    if (GradientAllReduce* const sum = all_reduce(stage)) {
        const TimePoint begun = device_->now();
        sum->share_weights();
        if (!plan_->weight_gather.empty()) {
            await_emulated(begun + plan_->weight_gather[as_index(stage)]);
        }
    }
    return ready;
}

/// Tells the profiler when the device begins with an action: nothing is waited for any more.
void Worker::mark_begin(Op op) {
    if (action_begun_ && times_layers()) {
        device_->mark([this, op](TimePoint begin) { action_begun_(rank_, op, begin); });
    }
}

/// Whether the device's clock is read between layers in this step.
bool Worker::times_layers() const {
    return has_timer_ && (!times_layers_ || times_layers_());
}

/// Where links are emulated, what goes between replicas takes as long as the plan says, too; gives
/// the moment until which the rank waited for it, else long ago.
TimePoint Worker::await_emulated(TimePoint moment) {
    if (!emulates_links_ || device_->now() >= moment) {
        return {};
    }
    while (device_->now() < moment) {
        group_.progress();  // others may wait for what this one has sent
    }
    return moment;
}

void Worker::refuse_what_is_not_finite(const Action& action) {
    if (action.op == Op::Forward && is_last(action.stage)) {
        // No stage has updated its weights yet: every OPT comes after a backward that needs this
        // forward.
        refuse_loss_that_is_not_finite(*local_stage(action.stage).stage, action.micro_batch);
    }
    if (uses_gradients(action.op)) {
        refuse_gradients_that_are_not_finite(*local_stage(action.stage).stage);
    }
}

TimePoint Worker::send(Edge& edge, int micro_batch, Tensor tensor) {
    Message message{.micro_batch = micro_batch, .tensor = std::move(tensor), .available = {}};
    if (emulates_links_) {
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
        if (const auto other = gradient_source(plan_->schedule, local.index)) {
            edges_.reductions[stage].channel->close();
            edges_.reductions[as_index(*other)].channel->close();
        }
    }
    if (norms_to_do_ > 0) {  // the others' updates would wait for them
        edges_.norm->close();
    }
}

void Worker::abandon() {
    arena_.end_step();
    device_->discard();
    if (offload_) {
        offload_->abandon();
    }
    try {
        wait_for_departures();
    } catch (const std::exception&) {  // a lost device copies no more
        departures_.clear();
    }
    for (LocalStage& local : local_stages_) {
        for (Slot& slot : local.slots) {
            slot.activation = {};
            slot.gradient = {};
            for (std::vector<Tensor>* const messages :
                 {&slot.received, &slot.sent, &slot.sent_gradients, &slot.received_gradients}) {
                free_all(*messages);
            }
        }
        if (GradientAllReduce* const sum = all_reduce(local.index)) {
            sum->abandon();
        }
        local.stage->reset();
    }
}

Stage& Worker::stage(int index) {
    return *local_stage(index).stage;
}

const Tensor& Worker::input_gradient(int micro_batch) {
    const Slot& place = slot(0, micro_batch);
    return local_stage(0).has_branches ? place.received_gradients.at(0) : place.gradient;
}

Worker::LocalStage& Worker::local_stage(int stage) {
    const auto found = std::ranges::find(local_stages_, stage, &LocalStage::index);
    PIPETWIN_EXPECT(found != local_stages_.end(), "a rank works on its own stages only");
    return *found;
}

const Worker::LocalStage& Worker::local_stage(int stage) const {
    const auto found = std::ranges::find(local_stages_, stage, &LocalStage::index);
    PIPETWIN_EXPECT(found != local_stages_.end(), "a rank works on its own stages only");
    return *found;
}

void Worker::commit_batch() {
    const bool has_state = std::ranges::any_of(
        local_stages_, [](const LocalStage& local) { return !local.stage->state().empty(); });
    if (!has_state) {
        return;
    }
    for (const LocalStage& local : local_stages_) {
        local.stage->commit_batch();
    }
    device_->finish();
    device_->leave_thread();
}

Worker::Slot& Worker::slot(int stage, int micro_batch) {
    return local_stage(stage).slots.at(as_index(micro_batch));
}

}  // namespace pipetwin::exec
