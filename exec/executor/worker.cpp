// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/worker.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
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
            .replica = options.replica.index % plan->optimizer_shards,
            .optimizer_shards = plan->optimizer_shards,
            .parameter_alignment = traits(options.backend).parameter_alignment,
            .recomputed_blocks = plan->layer_recompute == LayerRecompute::Block
                                     ? recomputed_blocks(model)
                                     : std::vector<LayerRange>{},
            .recomputes_core = plan->layer_recompute == LayerRecompute::Selective,
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
    if (plan->gradient_shards > 1) {
        rooms_ = std::make_unique<WeightRooms>(
            arena_, device_->kernels(), plan->weight_shards > 1 ? plan->prefetch : 0);
    }
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
    if (rooms_) {
        rooms_->reserve();
    }
    reserve_channel_room(plan);
    device_->finish();  // the weights are there
    device_->leave_thread();
}

/// Makes the stage; its messages follow from the routes of outputs.
void Worker::connect_stage(LocalStage& local, const Model& model, StageOptions options) {
    const Schedule& schedule = plan_->schedule;
    const int piece = schedule.weights_of_stage[as_index(local.index)];
    const Stage::Place place{.stage = local.index,
                             .first_layer = plan_->partition->first_layer(piece),
                             .layer_count = plan_->partition->layers_in(piece)};
    options.group = group_of(local.index);
    ShardGroups shards;
    if (rooms_) {
        shards = edges_.shards[as_index(local.index)].groups();
        options.rooms = rooms_.get();
        options.shards = &shards;
        options.divides_weights = plan_->weight_shards > 1;
    }
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
    for (Slot& slot : local.slots) {
        slot.received.resize(local.senders.size());
        slot.sent.resize(local.receivers.size());
        slot.sent_gradients.resize(local.receivers.size());
        slot.received_gradients.resize(std::max(local.senders.size(), std::size_t{1}));
    }
    local.stage = std::make_unique<Stage>(*device_, arena_, model, place, options);
}

RowNeeds Worker::rehearse(const StepInput& step) {
    AllocationTrace trace;
    arena_.rehearse(&trace);
    if (rooms_) {
        rooms_->rehearse(true);
    }
    for (const LocalStage& local : local_stages_) {
        local.stage->rehearse(true);
    }
    for (const Action& action : plan_->schedule.ranks[as_index(rank_)]) {
        trace.turn();
        rehearse(action, step, trace);
    }
    for (LocalStage& local : local_stages_) {
        for (Slot& slot : local.slots) {
            free_all(slot.received_gradients);  // of the model's input
        }
        local.stage->rehearse(false);
    }
    if (rooms_) {
        rooms_->rehearse(false);
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
    if (rooms_) {
        rooms_->begin_step(evaluation);
    }
    for (LocalStage& local : local_stages_) {
        for (Slot& slot : local.slots) {
            free_all(slot.received_gradients);  // of the model's input, since the last step
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
    Duration before{};
    Duration in_groups{};
    if (is_compute(action.op)) {
        mark_begin(action.op, action.stage);
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
            before = waited(action.stage).sum();
            compute(action, step);
            in_groups = waited(action.stage).sum() - before;
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
            break;  // weights are gathered layer by layer, as they are needed
    }
    if (issued_ > 1) {
        device_->prepare_launch();
    }
    return {.cell = cell, .begin = begin, .ready = ready, .in_groups = in_groups};
}

/// The next action needs nothing but what this rank has, so that it may be issued while the device
/// computes this one: no device or replica has a part of its layers. That follows from the row
/// alone: a step issues what the step before did, with the same addresses.
bool Worker::is_issued_ahead(std::size_t cell) const {
    const std::vector<Action>& row = plan_->schedule.ranks[as_index(rank_)];
    return cell + 1 < row.size() && is_compute(row[cell].op) && is_compute(row[cell + 1].op) &&
           !offload_ && !times_layers() && !rooms_ && edges_.groups.empty();
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
    recorder_.record(begin, ready, last_end_, begun.in_groups);
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
            Slot& place = slot(action.stage, action.micro_batch);
            stage(action.stage)
                .evaluate(action.micro_batch,
                          place.received,
                          step.data[as_index(action.micro_batch)],
                          place.sent);
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
    Stage& here = stage(action.stage);
    Slot& place = slot(action.stage, action.micro_batch);
    const MicroBatch& data = step.data[as_index(action.micro_batch)];
    switch (action.op) {
        case Op::Forward:
            here.forward(action.micro_batch, place.received, data, !place.recomputed, place.sent);
            pass_activation_on(action);
            break;
        case Op::Recompute:
            here.recompute(action.micro_batch, data);
            break;
        case Op::Backward:
            here.backward(action.micro_batch, place.sent_gradients, place.received_gradients);
            pass_gradient_on(action);
            break;
        case Op::BackwardInput:
            here.backward_input(action.micro_batch, place.sent_gradients, place.received_gradients);
            pass_gradient_on(action);
            break;
        default:
            here.backward_weight(action.micro_batch);
            break;
    }
}

GradientAllReduce* Worker::all_reduce(int stage) const {
    return edges_.sums.empty() ? nullptr : edges_.sums[as_index(stage)].get();
}

Group* Worker::group_of(int stage) const {
    return edges_.groups.empty() ? nullptr : edges_.groups[as_index(stage)].get();
}

/// Time that a stage has spent in groups of devices and replicas so far.
GroupTimes Worker::waited(int stage) const {
    const Group* const group = group_of(stage);
    return {.devices = group != nullptr ? group->use().time : Duration{},
            .replicas = use_of_shards().time};
}

/// Over the replicas first: what goes to another stage are their sums.
void Worker::reduce(int stage) {
    const bool goes_on = gradient_source(plan_->schedule, stage).has_value();
    local_stage(stage).stage->zero_missing_gradients();
    local_stage(stage).stage->add_up_terms();
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

bool Worker::has_twin_moments(int stage) const {
    return model_stage_count(plan_->schedule) < plan_.stage_count() &&
           local_stage(stage).stage->moments().size() > 0;
}

/// Waits for what another stage and other replicas have to add, where they have; returns when the
/// last came.
TimePoint Worker::complete_gradients(int stage) {
    local_stage(stage).stage->add_up_terms();
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

/// Where each replica has a share of the gradients' sums, and then where devices divide layers.
void Worker::share_squares(int stage) {
    Stage& here = *local_stage(stage).stage;
    if (GradientAllReduce* const sum = all_reduce(stage)) {
        sum->share_squares(here.squares_of_share());
    }
    here.share_squares();
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
    mark_begin(Op::Optimizer, stage);
    local_stage(stage).stage->update(step.optimizer, step.step + 1, scale);
    share_squares(stage);
    if (GradientAllReduce* const sum = all_reduce(stage)) {
        const TimePoint begun = device_->now();
        sum->share_weights();
        if (plan_->weight_shards == 1) {
            local_stage(stage).stage->spread_weights();
        }
        if (!plan_->weight_gather.empty()) {
            await_emulated(begun + plan_->weight_gather[as_index(stage)]);
        }
    }
    return ready;
}

/// Tells the profiler when the device begins with an action: nothing is waited for any more.
void Worker::mark_begin(Op op, int stage) {
    if (action_begun_ && times_layers()) {
        device_->mark([this, op, waited = waited(stage)](TimePoint begin) {
            action_begun_(rank_, op, begin, waited);
        });
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
            for (std::vector<Tensor>* const messages :
                 {&slot.received, &slot.sent, &slot.sent_gradients, &slot.received_gradients}) {
                free_all(*messages);
            }
        }
        if (GradientAllReduce* const sum = all_reduce(local.index)) {
            sum->abandon();
        }
        if (Group* const group = group_of(local.index)) {
            group->abandon();
        }
        local.stage->reset();
    }
    if (rooms_) {
        rooms_->abandon();
    }
}

Stage& Worker::stage(int index) {
    return *local_stage(index).stage;
}

const Tensor& Worker::input_gradient(int micro_batch) {
    return slot(0, micro_batch).received_gradients.at(0);
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
