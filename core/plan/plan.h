// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/costs/contention.h"
#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/partition/partition.h"
#include "core/plan/action_messages.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/receives.h"
#include "core/schedule/schedule.h"

namespace pipetwin {

struct ScenarioParts;
struct SettledScenario;

/// Costs of one stage for one micro-batch. Memory terms follow the rules of `LayerSample`.
struct StageCost {
    Duration forward{};
    Duration recompute{};
    Duration backward{};        ///< the whole of it; not below zero
    Duration backward_input{};  ///< where a schedule splits it
    Duration backward_weight{};
    Bytes input{};            ///< all that it is sent; for the first stage the model's own input
    Bytes output{};           ///< all that it sends to later stages; 0 for the last
    Bytes saved{};            ///< kept from F to B when everything is kept, input included
    Bytes split{};            ///< kept in addition from I to W: gradients of the inner outputs
    Bytes input_saved{};      ///< part of `saved` that goes with I
    Bytes unread_gradient{};  ///< part of the output's gradient that goes with I
    /// Most held during an F that keeps `saved`, where layers drop what they compute again; 0: no
    /// more than `saved` and the output.
    Bytes forward_peak{};
    Bytes forward_drop_peak{};  ///< most held during an F that keeps its input only, input included
    Bytes backward_peak{};      ///< most held during B: what is left of `saved`, and both gradients
    /// Most held during I: what is left of `saved`, what W reads, and both gradients; 0: no more
    /// than all of `saved` and `split`, and both gradients.
    Bytes backward_input_peak{};
    /// Part of `backward_peak` that is there only while B runs, where blocks do not keep what they
    /// need: what it computes again, and the gradients inside of the stage. 0: nothing is computed
    /// again.
    Bytes backward_again{};
    ActionMessages forward_messages{};          ///< of `forward`, and as much of `recompute`
    ActionMessages backward_input_messages{};   ///< of `backward_input`, and of `backward`
    ActionMessages backward_weight_messages{};  ///< of `backward_weight`, and of `backward`
};

/// Memory that a stage holds all the time, and the times of its update.
struct StageState {
    Bytes weights{};
    Bytes gradients{};  ///< with room for those of another stage that shares the weights
    Bytes optimizer_state{};
    Bytes running{};    ///< statistics of its norms; of the weights' kind of memory
    Bytes workspace{};  ///< largest of its layers
    Duration optimizer{};
    Duration norm{};  ///< of its gradients
};

/// Everything a plan is made of. Stages are 0..S-1, boundary b lies between stages b and b+1.
struct PlanParts {
    std::string schedule_name;  ///< "gpipe", or the file it came from
    Schedule schedule;  ///< lowered: with recompute, communication and, where asked, NORM and OPT
    int chunks = 1;
    RecomputeRules recompute;
    RecomputeTiming recompute_timing = RecomputeTiming::Eager;
    LayerRecompute layer_recompute = LayerRecompute::None;
    int recompute_blocks = 1;              ///< Block: of a stage, that are computed again together
    std::optional<Partition> partition;    ///< none for plain numbers
    std::vector<std::string> layer_names;  ///< empty for plain numbers
    std::vector<int> micro_batch_sizes;  ///< samples, one per micro-batch; empty for plain numbers
    std::vector<int> cost_class;         ///< per micro-batch: index into `costs`
    std::vector<std::vector<StageCost>> costs;  ///< [cost class][stage]
    std::vector<StageState> states;             ///< [stage]
    std::vector<LinkCost> links;  ///< [pair of stages] (core/schedule/edge.h), both ways alike
    /// [cost class][pair of stages]: bytes of a message, either way. Empty for a model in which
    /// every layer reads the one before it: a message is all that a stage sends or is sent.
    std::vector<std::vector<Bytes>> message_bytes;
    /// [stage]: from it to the stage that it hands gradients to; empty where no stage does.
    std::vector<LinkCost> reductions;
    Bytes tied_gradient{};  ///< what tied ends hand each other; 0: they have nothing in common
    /// [stage]: how long its REDUCE_GRAD sums the gradients of the pipeline's replicas; empty where
    /// there is one replica. Those of one rank go one after the other.
    std::vector<Duration> all_reduce;
    bool overlap_reduction = false;  ///< the rank goes on meanwhile, up to the stage's NORM or OPT
    /// [stage]: how long it takes at the end of its OPT until each replica has what the others have
    /// updated; empty where every replica updates all weights. Then `all_reduce` is of sums that
    /// stay where they are needed, and `states` have this share of the optimizer's state.
    std::vector<Duration> weight_gather;
    Duration dispatch{};                  ///< host time before every compute action
    std::optional<int> channel_capacity;  ///< none: unbounded, no send ever blocks
    TransferMode transfer = TransferMode::Asynchronous;
    /// From each device to its host memory and back, both at a time: stashes are copied over it
    /// (core/plan/offload.h). None: they stay on the device.
    std::optional<LinkCost> host_link;
    Contention contention;
    std::optional<Bytes> memory_limit;   ///< of every rank
    std::vector<Bytes> memory_limits{};  ///< [rank]; takes the place of `memory_limit`
    std::vector<Bytes> context{};        ///< [rank]: taken by the device's runtime; empty: nothing
    std::vector<Bytes> communication{};  ///< [rank]: part of `context` in buffers of messages
    /// What the memory pool of each device reserves beyond the tensors in it, as a share of them.
    /// The limits are what is left for tensors and context.
    double allocator_reserve = 0;
    int replicas = 1;              ///< of the whole pipeline, each with its share of a mini-batch
    int tensor_parallel = 1;       ///< devices of a rank, which share all of its layers
    bool stale_gradients = false;  ///< schedules without a flush
    std::optional<CostSource> cost_source;  ///< none for plain numbers
    std::vector<std::string> notes{};       ///< what a reader of a prediction has to know
};

/// Origin of a plan's rows, which decides how much of them `Plan::make` checks.
enum class RowsFrom {
    Anywhere,  ///< they are checked against every rule of core/schedule/validate.h
    Generator  ///< made by `generate` and `lower` alone, which tests hold to those rules
};

/// What every device will do, in order, and what each action costs. Validated; sizes agree.
class Plan {
  public:
    /// The only way to get a plan. Throws Error(BadInput) if a step would last more than 1e6 s, so
    /// that no sum of times overflows; Error(Infeasible) with `explain` if the schedule breaks a
    /// rule or deadlocks at the stated capacity, InternalError if sizes disagree.
    ///
    /// With RowsFrom::Generator the rules of core/schedule/validate.h are not checked again (this
    /// halves the cost); freedom from deadlock at a stated capacity still is.
    static Plan make(PlanParts parts, RowsFrom rows = RowsFrom::Anywhere);

    const PlanParts& parts() const { return *parts_; }
    const PlanParts* operator->() const { return parts_.get(); }

    /// Returns the plan with channels of this capacity. Throws Error(Infeasible) if it deadlocks
    /// then.
    Plan with_capacity(int capacity) const&;
    Plan with_capacity(int capacity) &&;

    /// Returns the plan with channels of this capacity, without the check for deadlocks: the caller
    /// has proven that no rank waits for ever.
    Plan with_proven_capacity(int capacity) &&;

    /// Returns the plan with other costs, [cost class][stage], and links, [pair]. The sizes must
    /// agree.
    Plan with_costs(std::vector<std::vector<StageCost>> costs, std::vector<LinkCost> links) const;

    int rank_count() const { return parts_->schedule.rank_count(); }
    int stage_count() const { return parts_->schedule.stage_count(); }
    int micro_batches() const { return parts_->schedule.micro_batches; }
    /// The costs of a stage for one micro-batch, by the cost class of the micro-batch.
    const StageCost& cost(int stage, int micro_batch) const;

    /// Bytes of the message of a micro-batch over an edge (core/schedule/edge.h).
    Bytes message_bytes(int edge, int micro_batch) const;

    /// Compute actions, NORM and OPT: their duration, dispatch included. REDUCE_GRAD: how long the
    /// rank is busy with it. Zero for sends and receives.
    Duration duration(const Action& action) const;

    /// The time within `duration` of a compute action in which the rank waits for shards of weights
    /// and gradients, in nanoseconds; zero for other actions. Parts of one duration: this, the next
    /// one, dispatch and computation.
    Duration shard_wait(const Action& action) const;
    /// The time within `duration` of a compute action that sums among the devices of the rank take
    /// (tensor parallelism), in nanoseconds; zero for other actions.
    Duration tensor_sums(const Action& action) const;
    /// The duration without dispatch of a compute action, NORM or OPT if its computation took
    /// another time. Its messages take as long as they do: those of the shards, of tensor
    /// parallelism, and the gather of weights at the end of an OPT.
    Duration with_computation(const Action& action, const OtherTime& other) const;

    /// Bytes that the REDUCE_GRAD of a stage hands to another stage of the pipeline, for a stage
    /// that does so.
    Bytes handed_over(int stage) const;

    /// Time in which the gradients of a stage are summed over the replicas; zero for one replica.
    Duration all_reduce_time(int stage) const;
    /// Time at the end of a stage's OPT until each replica has the weights that the others updated;
    /// zero where every replica updates all of them.
    Duration weight_gather_time(int stage) const;

    /// Limit of a rank's memory in bytes; none if it is unlimited.
    std::optional<Bytes> memory_limit(int rank) const;

    /// Samples of the mini-batch, over all replicas; none for plain numbers.
    std::optional<std::int64_t> samples() const;

    /// 64-bit FNV-1a over the rows, as 16 hex digits: two plans with one hash have the same
    /// actions.
    std::string hash() const;

  private:
    explicit Plan(PlanParts parts) : parts_(std::make_shared<PlanParts>(std::move(parts))) {}

    /// Shared by copies, as rows are large and a plan never changes; what an expiring plan alone
    /// has may still be written.
    std::shared_ptr<PlanParts> parts_;
};

/// The reason why an order can be simulated, but not trained with: it has no backward, or its
/// gradients would belong to older weights. None for every other order.
std::optional<std::string> why_not_trainable(const Schedule& schedule, bool stale_gradients);

/// Sizes of the micro-batches of a mini-batch: exactly min(batch, micro_batches) of them, differing
/// by at most 1, the larger ones first. Throws Error(BadInput), naming the value, if either
/// is out of range.
std::vector<int> micro_batch_sizes(int batch, int micro_batches);

/// Plain numbers: uniform or per-stage costs without a model.
struct PlainCosts {
    ScheduleKind schedule = ScheduleKind::GPipe;
    std::optional<Schedule> schedule_from_file;  ///< takes the place of `schedule`
    Receives receives = Receives::Blocking;      ///< of `schedule_from_file`
    std::string schedule_name{default_schedule};
    ScheduleShape shape;
    std::vector<Duration> forward;  ///< one per stage
    std::vector<Duration> backward;
    std::vector<Duration> backward_input;  ///< empty: halves of backward
    std::vector<Duration> backward_weight;
    std::vector<Duration> recompute_cost;  ///< empty: as forward
    RecomputeRules recompute;
    std::optional<RecomputeTiming> recompute_timing;  ///< none: the default of `schedule`
    LinkCost link;
    Bytes boundary;  ///< of every message
    /// Pieces of the model, no neighbours, of which the later one reads an output of the earlier
    /// one. Those of `schedule_from_file` stand in its rows.
    std::vector<StagePair> skips{};
    std::optional<int> channel_capacity;
    int group_size = 0;        ///< interleaved-1f1b
    int deferred_weights = 0;  ///< W that a rank may put off; 0: as scheduled
    MessageOrder message_order = MessageOrder::AsScheduled;
};

/// Makes a plan from plain numbers. Throws Error(BadInput) if a list does not have one entry per
/// stage, Error(Infeasible) as Plan::make. Rows of a file, and those whose W are put off, are
/// checked against the rules whatever `rows` says.
Plan make_plan(const PlainCosts& costs, RowsFrom rows = RowsFrom::Anywhere);

/// Numbers per weight that the training of a scenario keeps beside the gradient: the slots of its
/// optimizer, and one more where it averages the weights.
int optimizer_slots(const ScenarioParts& scenario);

/// Makes the plan of a scenario from the costs of its layers. `partition = "auto"` is the balanced
/// partition of forward + recompute + backward at the scenario's micro-batch size. The memory limit
/// is not checked: that is `check_memory` of core/timeline/memory_limits.h. Throws Error(BadInput)
/// if profile and model disagree (names both), Error(Infeasible) as Plan::make. `rows` is the
/// origin of the rows, as for Plan::make.
Plan make_plan(const SettledScenario& scenario,
               const Model& model,
               const Profile& profile,
               RowsFrom rows = RowsFrom::Anywhere);

}  // namespace pipetwin
