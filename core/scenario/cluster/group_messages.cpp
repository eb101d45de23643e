// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/cluster/group_messages.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/base/as_index.h"
#include "core/costs/collectives/collective_time.h"
#include "core/model/model.h"
#include "core/plan/divided_layers.h"
#include "core/plan/layer_modules.h"
#include "core/plan/plan.h"
#include "core/scenario/choices.h"
#include "core/scenario/planner.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/edge.h"

namespace pipetwin {

namespace {

/// Bytes and time of messages.
struct Sent {
    Bytes bytes{};
    Duration time{};

    Sent& operator+=(const Sent& more) {
        bytes += more.bytes;
        time += more.time;
        return *this;
    }
    friend Sent operator+(Sent a, const Sent& b) { return a += b; }
};

/// Messages of a layer, for one micro-batch.
struct BothWays {
    Sent forward{};
    Sent backward{};

    BothWays& operator+=(const BothWays& more) {
        forward += more.forward;
        backward += more.backward;
        return *this;
    }
    friend BothWays operator+(BothWays a, const BothWays& b) { return a += b; }
};

/// The plan, and what it was made from.
class Groups {
  public:
    Groups(const Plan& plan,
           const SettledScenario& scenario,
           const Model& model,
           const Profile& profile)
        : plan_(plan),
          scenario_(scenario),
          model_(model),
          profile_(profile),
          cluster_(scenario, profile, plan.rank_count()),
          costs_(pipetwin::layer_costs(plan, scenario, model, profile)),
          samples_((costs_.whole.empty() ? costs_.samples : costs_.whole).front().front()),
          modules_(
              modules_of_layers(model, samples_, plan->partition.value(), costs_.rules.modules)) {}

    std::vector<GroupMessages> all() const;
    std::vector<ExpertState> expert_states() const;

  private:
    using OfLayer = std::function<BothWays(int layer)>;

    bool sends_again(int layer) const;
    Sent of_rank(int rank, const OfLayer& of) const;
    void add(std::vector<GroupMessages>& to,
             GroupMessages group,
             const std::function<Sent(int rank)>& of) const;
    void add_tensor(std::vector<GroupMessages>& to) const;
    void add_context(std::vector<GroupMessages>& to) const;
    void add_experts(std::vector<GroupMessages>& to) const;
    void add_data(std::vector<GroupMessages>& to) const;
    void add_pipeline(std::vector<GroupMessages>& to) const;
    Bytes summed_of(int layer) const;
    BothWays of_tensor(int layer) const;
    BothWays of_context(int layer) const;
    BothWays of_experts(int layer) const;
    Sent of_weights(const ReplicaGroups& groups, Bytes weights, int micro_batches) const;
    Beside beside_data() const;

    const Plan& plan_;
    const SettledScenario& scenario_;
    const Model& model_;
    const Profile& profile_;
    Cluster cluster_;
    LayerCosts costs_;
    const LayerSamples& samples_;  ///< [layer], of the first micro-batch and kind of device
    std::vector<ModulesOfLayer> modules_;
};

/// Whether a backward sends what the forward of the layer did, as it computes all of it again.
bool Groups::sends_again(int layer) const {
    const bool is_whole = costs_.rules.recompute.mode == LayerRecompute::Block;
    return (is_whole && !modules_[as_index(layer)].keeps) ||
           modules_[as_index(layer)].recompute.has(RecomputeModule::Experts);
}

/// A rank's messages of a step: those of the layers of its actions.
Sent Groups::of_rank(int rank, const OfLayer& of) const {
    const Partition& partition = plan_->partition.value();
    std::vector<BothWays> of_piece(as_index(partition.stage_count()));
    for (int piece = 0; piece < partition.stage_count(); ++piece) {
        const int first = partition.first_layer(piece);
        for (int layer = first; layer < first + partition.layers_in(piece); ++layer) {
            of_piece[as_index(piece)] += of(layer);
        }
    }
    Sent sum;
    for (const Action& action : plan_->schedule.ranks[as_index(rank)]) {
        if (action.stage < 0) {
            continue;
        }
        const BothWays& both =
            of_piece[as_index(plan_->schedule.weights_of_stage[as_index(action.stage)])];
        if (action.op == Op::Forward || action.op == Op::Recompute) {
            sum += both.forward;
        } else if (action.op == Op::Backward || action.op == Op::BackwardInput) {
            sum += both.backward;
        }
    }
    return sum;
}

/// Adds a group with what it sends on the rank that this takes longest on, if that is anything.
void Groups::add(std::vector<GroupMessages>& to,
                 GroupMessages group,
                 const std::function<Sent(int rank)>& of) const {
    for (int rank = 0; rank < plan_.rank_count(); ++rank) {
        const Sent own = of(rank);
        if (own.time > group.time || (own.time == group.time && own.bytes > group.sent)) {
            group.rank = rank;
            group.sent = own.bytes;
            group.time = own.time;
        }
    }
    if (group.members > 1 && group.sent > Bytes{}) {
        to.push_back(std::move(group));
    }
}

/// The part of a layer's output that sums between devices that share it have.
Bytes Groups::summed_of(int layer) const {
    return Bytes{samples_[as_index(layer)].output.count /
                 profile_.layers[as_index(layer)].output_rows};
}

/// All-reduces of each layer's output and of the gradient of its input, or halves of them; with
/// divided sequences the input is gathered once more.
BothWays Groups::of_tensor(int layer) const {
    const int devices = costs_.rules.tensor.devices;
    const int sums = profile_.layers[as_index(layer)].tensor_sums;
    const int whole = costs_.rules.tensor.sequence_parallel ? devices : 1;
    Bytes input;
    for (const int source : model_.inputs_of(layer)) {
        input += summed_of(source) * whole;
    }
    const DeviceGroup group{.members = devices};
    const auto summed = [&](Bytes bytes) {
        return sent_bytes(Collective::AllReduce, group, bytes * sums);
    };
    const Bytes again =
        whole > 1 ? sent_bytes(Collective::AllGather, group, input * sums) : Bytes{};
    return {.forward = {.bytes = summed(summed_of(layer) * whole)},
            .backward = {.bytes = summed(input) + again}};
}

void Groups::add_tensor(std::vector<GroupMessages>& to) const {
    const TensorParallel& tensor = costs_.rules.tensor;
    const auto bytes = [this](int layer) { return of_tensor(layer); };
    const auto others = [this](int layer) { return of_context(layer) + of_experts(layer); };
    GroupMessages group{
        .axis = GroupAxis::Tensor,
        .members = tensor.devices,
        .nodes = tensor.per_node > 0 ? tensor.devices / tensor.per_node : 1,
        .collectives = {Collective::AllReduce},
        .beside = tensor.sequence_parallel && tensor.lanes ? Beside::Products : Beside::Nothing};
    if (tensor.sequence_parallel) {
        group.collectives = {Collective::AllGather, Collective::ReduceScatter};
    }
    add(to, std::move(group), [&](int rank) {
        Duration waits{};
        for (const Action& action : plan_->schedule.ranks[as_index(rank)]) {
            waits += plan_.tensor_sums(action);
        }
        return Sent{.bytes = of_rank(rank, bytes).bytes,
                    .time = std::max(Duration{}, waits - of_rank(rank, others).time)};
    });
}

namespace {

/// What messages add to the times of a layer that does nothing but send this.
template <class WithMessages>
BothWays added_times(const LayerTraffic& traffic, const WithMessages& with_messages) {
    LayerSample sample;
    sample.traffic = traffic;
    const LayerMessages messages = with_messages(LayerSamples{sample}).front().messages;
    return {.forward = {.time = messages.forward_sums},
            .backward = {.time = messages.backward_sums}};
}

}  // namespace

BothWays Groups::of_context(int layer) const {
    const ContextParallel& context = costs_.rules.context;
    const LayerTraffic& traffic = samples_[as_index(layer)].traffic;
    BothWays both = added_times(traffic, [&context](LayerSamples samples) {
        return with_context_messages(std::move(samples), context);
    });
    const Bytes heads = sent_bytes(Collective::AllToAll, context.heads, traffic.heads) +
                        sent_bytes(Collective::AllToAll, context.heads, traffic.outputs);
    const Bytes keys = sent_bytes(Collective::AllGather, context.ring, traffic.keys);
    const Bytes gradients = sent_bytes(Collective::AllGather, context.ring, traffic.key_gradients);
    both.forward.bytes = heads + keys;
    both.backward.bytes = heads + keys + gradients;
    if (sends_again(layer)) {
        both.backward += both.forward;
    }
    return both;
}

void Groups::add_context(std::vector<GroupMessages>& to) const {
    const ContextParallel& context = costs_.rules.context;
    if (context.devices == 1) {
        return;
    }
    GroupMessages group{.axis = GroupAxis::Context,
                        .members = context.devices,
                        .nodes = std::max(nodes_of(context.ring), nodes_of(context.heads))};
    const bool in_ring = !context.in_steps && (context.method == ContextMethod::Ring ||
                                               context.method == ContextMethod::RingAllToAll);
    group.beside = in_ring ? Beside::Attention : Beside::Nothing;
    if (context.method == ContextMethod::AllGather) {
        group.collectives = {Collective::AllGather, Collective::ReduceScatter};
    } else if (context.method != ContextMethod::Ring) {
        group.collectives = {Collective::AllToAll};
    }
    add(to, std::move(group), [this](int rank) {
        return of_rank(rank, [this](int layer) { return of_context(layer); });
    });
}

BothWays Groups::of_experts(int layer) const {
    const std::optional<ExpertParallel>& experts = costs_.rules.experts;
    if (!experts) {
        return {};
    }
    const LayerTraffic& traffic = samples_[as_index(layer)].traffic;
    BothWays both = added_times(traffic, [&experts](LayerSamples samples) {
        return with_expert_messages(std::move(samples), *experts);
    });
    const Collective exchange = experts->dispatch == ExpertDispatch::Nccl
                                    ? Collective::AllToAll
                                    : Collective::AllToAllDeduplicated;
    both.forward.bytes = sent_bytes(exchange, experts->parts, traffic.dispatch, experts->tokens) +
                         sent_bytes(exchange, experts->parts, traffic.combine, experts->tokens);
    both.backward.bytes = both.forward.bytes;
    if (sends_again(layer)) {
        both.backward += both.forward;
    }
    return both;
}

void Groups::add_experts(std::vector<GroupMessages>& to) const {
    const std::optional<ExpertParallel>& experts = costs_.rules.experts;
    if (!experts) {
        return;
    }
    add(to,
        {.axis = GroupAxis::Expert,
         .members = experts->parts.members,
         .nodes = nodes_of(experts->parts),
         .collectives = {experts->dispatch == ExpertDispatch::Nccl
                             ? Collective::AllToAll
                             : Collective::AllToAllDeduplicated}},
        [this](int rank) {
            return of_rank(rank, [this](int layer) { return of_experts(layer); });
        });
    const DeviceGroup& sharing = experts->sharing;
    add(to,
        {.axis = GroupAxis::ExpertTensor,
         .members = sharing.members,
         .nodes = nodes_of(sharing),
         .collectives = {Collective::AllGather, Collective::ReduceScatter}},
        [&](int rank) {
            return of_rank(rank, [&](int layer) {
                const Bytes rows = samples_[as_index(layer)].traffic.expert_rows;
                Sent way;
                for (const Collective kind : {Collective::AllGather, Collective::ReduceScatter}) {
                    way +=
                        {.bytes = sent_bytes(kind, sharing, rows),
                         .time = collective_time(kind, CollectiveAlgorithm::Auto, sharing, rows)};
                }
                const Sent back = sends_again(layer) ? way + way : way;
                return BothWays{.forward = way, .backward = back};
            });
        });
}

/// Gradients, and the weights that replicas which divide the state have updated or need.
Sent Groups::of_weights(const ReplicaGroups& groups, Bytes weights, int micro_batches) const {
    const Shard divided = divided_all_step(scenario_, stack_of(scenario_, profile_).get());
    const Bytes gradients =
        weights *
        gradient_bytes_per_byte(profile_.precision, has_fp32_gradients(scenario_, profile_));
    if (divided == Shard::None) {
        return {.bytes = sent_bytes(Collective::AllReduce, groups.all, gradients)};
    }
    const Bytes gathered = sent_bytes(Collective::AllGather, groups.sharing, weights);
    const Bytes share{gradients.count / groups.sharing.members};
    const Bytes summed = sent_bytes(Collective::ReduceScatter, groups.sharing, gradients) +
                         sent_bytes(Collective::AllReduce, groups.between, share);
    const int sums = divided == Shard::Optimizer ? 1 : micro_batches;
    const int gathers = divided == Shard::Weights ? 2 * micro_batches : 1;
    return {.bytes = summed * sums + gathered * gathers};
}

Beside Groups::beside_data() const {
    if (divided_all_step(scenario_, stack_of(scenario_, profile_).get()) >= Shard::Gradients) {
        return Beside::Layers;
    }
    if (!plan_->overlap_reduction) {
        return Beside::Nothing;
    }
    return plan_->bucketed_sums.empty() ? Beside::Actions : Beside::Backwards;
}

void Groups::add_data(std::vector<GroupMessages>& to) const {
    if (cluster_.weight_holders() == 1) {
        return;
    }
    const Shard divided = divided_all_step(scenario_, stack_of(scenario_, profile_).get());
    std::vector<Collective> collectives{Collective::AllReduce};
    if (divided != Shard::None) {
        collectives = {Collective::ReduceScatter, Collective::AllGather};
    }
    const auto of_stages = [this](int rank, const ReplicaGroups& groups, bool experts) {
        Sent sum;
        for (int stage = 0; stage < plan_.stage_count(); ++stage) {
            if (plan_->schedule.rank_of_stage[as_index(stage)] != rank) {
                continue;
            }
            const StageState& state = plan_->states[as_index(stage)];
            const Bytes weights =
                experts ? state.expert_weights : state.weights - state.expert_weights;
            sum += of_weights(groups, weights, plan_.micro_batches());
            if (!experts) {
                sum.time += plan_.all_reduce_time(stage) + plan_.weight_gather_time(stage);
            }
        }
        return sum;
    };
    const DeviceGroup all = cluster_.replica_groups(0).all;
    add(to,
        {.axis = GroupAxis::Data,
         .members = all.members,
         .nodes = nodes_of(all),
         .collectives = collectives,
         .beside = beside_data()},
        [&](int rank) { return of_stages(rank, cluster_.replica_groups(rank), false); });
    if (const std::optional<ReplicaGroups> experts = cluster_.expert_groups(0)) {
        add(to,
            {.axis = GroupAxis::ExpertData,
             .members = experts->all.members,
             .nodes = nodes_of(experts->all),
             .collectives = collectives,
             .beside = beside_data()},
            [&](int rank) { return of_stages(rank, cluster_.expert_groups(rank).value(), true); });
    }
}

void Groups::add_pipeline(std::vector<GroupMessages>& to) const {
    const Schedule& schedule = plan_->schedule;
    add(to,
        {.axis = GroupAxis::Pipeline,
         .members = plan_.rank_count(),
         .beside =
             plan_->transfer == TransferMode::Asynchronous ? Beside::Actions : Beside::Nothing},
        [&](int rank) {
            Sent sum;
            for (const Action& action : schedule.ranks[as_index(rank)]) {
                if (action.op == Op::SendForward || action.op == Op::SendBackward) {
                    const int edge = edge_of(schedule, action);
                    const Bytes bytes = plan_.message_bytes(edge, action.micro_batch);
                    const LinkCost& link = plan_->links[as_index(edge / 2)];
                    const double takes = message_ns(link, static_cast<double>(bytes.count));
                    sum += {.bytes = bytes, .time = Duration{std::llround(takes)}};
                }
            }
            return sum;
        });
}

std::vector<GroupMessages> Groups::all() const {
    std::vector<GroupMessages> groups;
    add_tensor(groups);
    add_context(groups);
    add_experts(groups);
    add_data(groups);
    add_pipeline(groups);
    return groups;
}

std::vector<ExpertState> Groups::expert_states() const {
    ModelParameters weights = parameters_of(profile_);
    bool has_any = false;
    for (LayerParameters& layer : weights.layers) {
        has_any = has_any || layer.experts > Bytes{};
        layer = {.parameters = layer.experts, .experts = layer.experts};
    }
    if (!has_any) {
        return {};
    }
    const std::vector<StageState> of_piece =
        stage_states(weights,
                     {samples_},
                     plan_->partition.value(),
                     weight_rules(scenario_, model_, profile_, costs_));
    std::vector<ExpertState> states(as_index(plan_.rank_count()));
    for (int stage = 0; stage < plan_.stage_count(); ++stage) {
        const StageState& own =
            of_piece[as_index(plan_->schedule.weights_of_stage[as_index(stage)])];
        ExpertState& state = states[as_index(plan_->schedule.rank_of_stage[as_index(stage)])];
        state.weights += own.weights;
        state.gradients += own.gradients;
        state.optimizer += own.optimizer_state;
    }
    return states;
}

}  // namespace

std::vector<GroupMessages> group_messages(const Plan& plan,
                                          const SettledScenario& scenario,
                                          const Model& model,
                                          const Profile& profile) {
    return plan->partition ? Groups(plan, scenario, model, profile).all()
                           : std::vector<GroupMessages>();
}

std::vector<ExpertState> expert_states(const Plan& plan,
                                       const SettledScenario& scenario,
                                       const Model& model,
                                       const Profile& profile) {
    return plan->partition ? Groups(plan, scenario, model, profile).expert_states()
                           : std::vector<ExpertState>();
}

}  // namespace pipetwin
