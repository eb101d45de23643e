// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/costs/contention.h"
#include "core/costs/profile.h"
#include "core/partition/partition.h"
#include "core/plan/action_messages.h"
#include "core/plan/bucketed_sums.h"
#include "core/plan/context_parts.h"
#include "core/plan/stage_cost.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"

namespace pipetwin {

class Model;
struct ScenarioParts;
struct SettledScenario;

/// Everything a plan is made of. Stages are 0..S-1, boundary b lies between stages b and b+1.
struct PlanParts {
    std::string schedule_name;  ///< "gpipe", or the file it came from
    Schedule schedule;  ///< lowered: with recompute, communication and, where asked, NORM and OPT
    int chunks = 1;
    RecomputeRules recompute;
    RecomputeTiming recompute_timing = RecomputeTiming::Eager;
    LayerRecompute layer_recompute = LayerRecompute::None;
    int recompute_blocks = 1;              ///< Block: of a stage, that are computed again together
    int recompute_only = 0;                ///< Block: first ones of a stage, alone; 0: all
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
    /// [stage]: how its sums go on beside its last backward, where the rank goes on meanwhile;
    /// empty: they begin with its REDUCE_GRAD.
    std::vector<BucketedSums> bucketed_sums{};
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
    std::vector<ContextParts> context_parts{};  ///< [rank]: of `context`, beside the runtime itself
    /// What the memory pool of each device reserves beyond the tensors in it, as a share of them.
    /// The limits are what is left for tensors and context.
    double allocator_reserve = 0;
    /// [rank]: what the pool keeps of messages in addition, until something else needs its place;
    /// empty: nothing.
    std::vector<Bytes> kept_messages{};
    int replicas = 1;                ///< of the whole pipeline, each with its share of a mini-batch
    int optimizer_shards = 1;        ///< neighbours that have its state between them
    int gradient_shards = 1;         ///< ... that have the gradients between them, too
    int weight_shards = 1;           ///< ... that have the weights between them, all step long
    int prefetch = 0;                ///< layers whose weights are gathered ahead
    int tensor_parallel = 1;         ///< devices of a rank that share all of its layers
    bool sequence_parallel = false;  ///< these have a part of the rows between layers each
    int context_parallel = 1;        ///< parts of every sample, each on as many of these
    int expert_parallel = 1;         ///< parts of the experts of a layer
    int expert_tensor_parallel = 1;  ///< devices that share each expert
    bool stale_gradients = false;    ///< schedules without a flush
    std::optional<CostSource> cost_source;  ///< none for plain numbers
    std::vector<std::string> notes{};       ///< what a reader of a prediction has to know

    /// Devices of a rank.
    int rank_devices() const { return tensor_parallel * context_parallel; }
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
