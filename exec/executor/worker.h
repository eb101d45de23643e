// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/plan/plan.h"
#include "exec/device/allocation_trace.h"
#include "exec/device/copy_engine.h"
#include "exec/device/group.h"
#include "exec/device/paced_links.h"
#include "exec/executor/executor_options.h"
#include "exec/executor/recorder.h"
#include "exec/executor/reductions/gradient_all_reduce.h"
#include "exec/executor/reductions/gradient_norm.h"
#include "exec/memory_plan/message_room.h"
#include "exec/stage/stage.h"
#include "exec/stage/stash_offload.h"
#include "exec/stage/weight_rooms.h"
#include "exec/transport/channel.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::exec {

/// How tensors get from one rank to another.
enum class TensorRoute {
    Handover,  ///< within one memory: they change hands, or are added where they belong
    Copy,      ///< into another memory of this process: the sender copies them
    Remote,    ///< to another process: its channel carries them
};

/// One pair of stages in one direction, between two ranks.
struct Edge {
    std::unique_ptr<Channel> channel;
    LinkCost link;        ///< how long a message is under way on a paced device
    TimePoint link_free;  ///< when the paced link has sent its last message; of the sender
    int number = 0;       ///< core/schedule/edge.h
    /// Over which its messages go, if paced devices share links. Null: over its own link alone.
    PacedLinks* shared_links = nullptr;
    TensorRoute route = TensorRoute::Handover;
    MessageRoom* receive_buffers = nullptr;  ///< of the receiver; with TensorRoute::Copy
    /// [micro-batch]: where copies go, in the receiver's arena; empty: wherever there is room.
    std::vector<void*> places{};

    /// Whether another process has the other end.
    bool is_remote() const { return route == TensorRoute::Remote; }
    /// Whether the sender writes a message when it sends it, having a tensor of its own until then.
    bool copies() const { return route != TensorRoute::Handover; }
};

/// The gradients of one stage on their way to the stage that shares its weights, or one of them. A
/// message says that they are there; its tensor is empty, for the sender writes them where they
/// belong. To another process they are the messages, one for each parameter.
struct Reduction {
    std::unique_ptr<Channel> channel;  ///< none where the stage's weights are its own
    /// To another process, of what norms have seen: in host memory, wherever gradients lie. Null:
    /// the stage has no such norms, or hands nothing to another process.
    std::unique_ptr<Channel> moments;
    Stage* receiver = nullptr;
    TensorRoute route = TensorRoute::Handover;
    LinkCost link;

    /// Whether another process has the receiver, or the sender.
    bool is_remote() const { return route == TensorRoute::Remote; }
};

/// All edges of a plan; an edge without a channel lies between two stages of one rank.
struct Edges {
    std::vector<Edge> forward;          ///< [pair of stages]: outputs, to the later one
    std::vector<Edge> backward;         ///< [pair of stages]: gradients, to the earlier one
    std::vector<Reduction> reductions;  ///< [stage]: from it to where its gradients go
    std::vector<std::unique_ptr<GradientAllReduce>>
        sums;                            ///< [stage]; null: of one replica, or elsewhere
    std::unique_ptr<GradientNorm> norm;  ///< null where the plan has no norms
    /// [stage] The devices that compute it together; empty: one does. Null: not here.
    std::vector<std::unique_ptr<Group>> groups;
    /// The replicas that have the weights or gradients of a stage between them.
    struct Shards {
        std::unique_ptr<Group> gathers;
        std::unique_ptr<Group> sums;
        std::unique_ptr<Group> between;  ///< null: as ShardGroups
        ShardGroups groups() const { return {gathers.get(), sums.get(), between.get()}; }
        /// Calls act(group) for each.
        template <class Do>
        void for_each(const Do& act) const {
            for (Group* const group : {gathers.get(), sums.get(), between.get()}) {
                if (group != nullptr) {
                    act(*group);
                }
            }
        }
        /// Ends what others wait for in them (Group::close).
        void close() const {
            for_each([](Group& group) { group.close(); });
        }
    };
    std::vector<Shards> shards;  ///< [stage]; empty: each has all of them
};

/// What every worker needs to know about the step.
struct StepInput {
    std::vector<MicroBatch> data;
    OptimizerSettings optimizer;
    int step = 0;             ///< counts from 0
    bool evaluation = false;  ///< forwards alone
};

/// One rank: its device, its memory, its stages, and what lies between two of its actions. Lives as
/// long as the executor; during a step it belongs to the rank's thread.
class Worker {
  public:
    /// What a worker is given beside its plan and device.
    struct Settings {
        const ExecutorOptions* options;
        std::vector<int> cores;  ///< the thread is bound to one of them; empty: not bound
    };
    Worker(const Plan& plan,
           const Model& model,
           int rank,
           Edges& edges,
           std::unique_ptr<Device> device,
           const Settings& settings);

    /// What the rank will need memory for in a step of micro-batches of this size; before the
    /// first.
    RowNeeds rehearse(const StepInput& step);

    /// On the rank's thread, before the step or the evaluation begins.
    void prepare(const StepInput& step);

    /// The step begins at `start`, which every worker of the step knows; returns when that moment
    /// has come.
    void start(TimePoint start);

    /// The times of an action that is not complete yet, as its span has them.
    struct Begun {
        std::size_t cell = 0;
        TimePoint begin;
        TimePoint ready;
        Duration in_groups{};  ///< spent in messages of groups
    };
    /// Turns to the action in a cell of the row and issues all of it. The device may still compute
    /// the action before.
    Begun issue(std::size_t cell, const StepInput& step);
    /// Begins an issued action; the one before is finished. True: the next action of the row is to
    /// be issued before this one is finished.
    bool launch(const Begun& action);
    /// Returns when the result of the action is complete.
    void finish(const Begun& action);

    /// An action of an evaluation: F, SEND_F and RECV_F only.
    void evaluate(const Action& action, const StepInput& step);

    /// The step has succeeded on all ranks: running statistics follow its mini-batch.
    void commit_batch();

    /// Whether the stages compute with the averages of their weights; does nothing where they have
    /// none.
    void use_averages(bool on);

    /// Ends the rank's sends and receives of this step.
    void close_channels();

    /// Frees what a failed step has left behind.
    void abandon();

    /// From now on copies what it sends, into memories that are not its own.
    void copy_outgoing_messages();
    /// Where it gets what comes from other memories.
    MessageRoom& receive_buffers() { return receive_buffers_; }

    /// Accounts a detached tensor of any rank of this executor as one of this rank.
    Tensor adopt(Tensor tensor);

    Device& device() { return *device_; }
    Arena& arena() { return arena_; }
    const Arena& arena() const { return arena_; }
    const Recorder& recorder() const { return recorder_; }
    /// What the rank has spent in sums and gathers over replicas that divide gradients.
    GroupUse use_of_shards() const { return rooms_ ? rooms_->use() : GroupUse{}; }
    /// Null where stashes stay on their device.
    const StashOffload* offload() const { return offload_.get(); }
    /// A stage of this rank, by its index in the model. Throws InternalError where it has none
    /// such.
    Stage& stage(int index);
    /// The stages that send messages to a stage of this rank, and those that it sends to, where the
    /// model has branches; in the order of the stage's messages.
    const std::vector<int>& senders(int stage) { return local_stage(stage).senders; }
    const std::vector<int>& receivers(int stage) { return local_stage(stage).receivers; }
    /// Whether a stage of this rank gets what norms have seen from another one with the same
    /// weights.
    bool has_twin_moments(int stage) const;
    /// The gradient of the model's input; empty unless ExecutorOptions::input_gradient.
    const Tensor& input_gradient(int micro_batch);

  private:
    /// What waits at a stage for a micro-batch's next action: all messages of the stage, before its
    /// actions and until they are sent.
    struct Slot {
        std::vector<Tensor> received;            ///< [sender]
        std::vector<Tensor> sent;                ///< [receiver]
        std::vector<Tensor> sent_gradients;      ///< [receiver]: come back from it
        std::vector<Tensor> received_gradients;  ///< [sender]: go back to it; of the model's input
        bool recomputed = false;                 ///< the row has an R for it
    };
    /// A stage of this rank, with what its micro-batches left there.
    struct LocalStage {
        int index = 0;
        std::unique_ptr<Stage> stage;
        std::vector<int> senders;    ///< of all messages; stages
        std::vector<int> receivers;  ///< likewise
        std::vector<Slot> slots;     ///< [micro-batch]
        TimePoint sum_begun;         ///< over the replicas
    };

    void reserve_channel_room(const Plan& plan);
    void rehearse(const Action& action, const StepInput& step, AllocationTrace& trace);
    LocalStage& local_stage(int stage);
    const LocalStage& local_stage(int stage) const;
    Slot& slot(int stage, int micro_batch);
    void connect_stage(LocalStage& local, const Model& model, StageOptions options);
    Tensor& message(const Action& action);
    Stage::Boundary message_shape(const Action& action, int samples);
    bool is_on_this_rank(int stage) const;
    TimePoint turn_to(std::size_t cell, const Action& action, TimePoint begin);
    void compute(const Action& action, const StepInput& step);
    void pass_activation_on(const Action& action);
    void pass_gradient_on(const Action& action);
    void reduce(int stage);
    void hand_gradients_over(int stage);
    void hand_gradients_to_process(int stage);
    GradientAllReduce* all_reduce(int stage) const;
    Group* group_of(int stage) const;
    GroupTimes waited(int stage) const;
    TimePoint complete_gradients(int stage);
    void share_squares(int stage);
    TimePoint update(int stage, const StepInput& step);
    void mark_begin(Op op, int stage);
    bool times_layers() const;
    bool is_issued_ahead(std::size_t cell) const;
    TimePoint await_emulated(TimePoint moment);
    void refuse_what_is_not_finite(const Action& action);
    bool is_last(int stage) const { return !has_next_stage(plan_->schedule, stage); }
    TimePoint send(Edge& edge, int micro_batch, Tensor tensor);
    Message send_copy(Edge& edge, Message message);
    void forget_what_has_left();
    void wait_for_departures(const Edge* edge = nullptr);
    Edge& edge_at(const Action& action) const;
    TimePoint receive(Edge& edge, Tensor& tensor);
    void expect_messages(const StepInput& step);
    void expect_message(const Action& action, const StepInput& step);
    void expect_gradients();

    const Plan& plan_;
    const int rank_;
    Edges& edges_;
    const bool emulates_links_;  ///< messages take no less than the plan says
    /// Told of the begin of actions (ExecutorOptions).
    const std::function<void(int rank, Op, TimePoint, const GroupTimes& waited)> action_begun_;
    const std::function<bool()> times_layers_;  ///< as ExecutorOptions
    const bool has_timer_;  ///< of layers or actions, called where `times_layers_` says so
    ProcessGroup& group_;
    const std::vector<int> cores_;
    std::unique_ptr<Device> device_;
    Arena arena_;
    MessageRoom receive_buffers_;
    std::vector<LocalStage> local_stages_;  ///< the rank's stages, ascending
    Recorder recorder_;
    int issued_ = 0;      ///< actions that are not finished: two at most
    TimePoint last_end_;  ///< of the actions that are
    bool evaluates_ = false;
    std::atomic<int> norms_to_do_ = 0;    ///< of this step; read where the channels are closed
    std::unique_ptr<WeightRooms> rooms_;  ///< null: replicas divide no gradients
    std::unique_ptr<StashOffload> offload_;
    std::unique_ptr<CopyEngine> copies_;  ///< to other memories; null: all share one
    struct Departure {
        Tensor tensor;  ///< what is copied
        const Edge* edge = nullptr;
        int copy = 0;
    };
    std::vector<Departure> departures_;
};

}  // namespace pipetwin::exec
