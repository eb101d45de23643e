// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/replica_messages.h"

#include "core/base/as_index.h"
#include "core/plan/bucketed_sums.h"
#include "core/plan/plan.h"
#include "core/scenario/cluster.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin {

StageReplicas stage_replicas(const SettledScenario& scenario,
                             const Profile& profile,
                             const Cluster& cluster,
                             const Schedule& grid,
                             int gradient) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    StageReplicas replicas{.divided = divided_all_step(scenario, stack_of(scenario, profile).get()),
                           .number = bytes_per_number(profile.precision),
                           .gradient = gradient,
                           .lanes = cluster.message_lanes()};
    const bool as_stack =
        replicas.lanes && replicas.lanes->hides_weights && pipeline.overlap_reduction;
    replicas.hides_gathers = pipeline.overlap_gather.value_or(as_stack);
    if (cluster.has_measured_replicas()) {
        for (const LayerCost& layer : profile.layers) {
            replicas.measured_updates.push_back(layer.replicas_update);
        }
    }
    if (cluster.weight_holders() > 1) {
        for (const int rank : grid.rank_of_stage) {
            replicas.groups.push_back(cluster.replica_groups(rank));
            if (auto experts = cluster.expert_groups(rank)) {
                replicas.experts.push_back(*std::move(experts));
            }
        }
    }
    return replicas;
}

namespace {

/// Times of what devices with the same weights send once a step.
struct WeightMessages {
    Duration sums{};    ///< of gradients
    Duration gather{};  ///< of updated weights
};

WeightMessages weight_messages(const StageReplicas& replicas,
                               const ReplicaGroups& groups,
                               Bytes weights,
                               bool stays) {
    const std::int64_t numbers = weights.count / replicas.number;
    const SentNumbers gradients{.count = numbers, .bytes = weights * replicas.gradient};
    WeightMessages messages;
    if (replicas.divided != Shard::Gradients) {
        messages.sums =
            stays ? share_sums_time(groups, gradients) : whole_sums_time(groups, gradients);
    }
    if (replicas.divided != Shard::None) {
        messages.gather = weights_time(groups, {.count = numbers, .bytes = weights});
    }
    return messages;
}

}  // namespace

void add_replica_messages(PlanParts& parts, const StageReplicas& replicas, const Schedule& grid) {
    if (!replicas.groups.empty()) {
        const int group = replicas.groups.front().sharing.members;
        parts.optimizer_shards = replicas.divided >= Shard::Optimizer ? group : 1;
        parts.gradient_shards = replicas.divided >= Shard::Gradients ? group : 1;
        parts.weight_shards = replicas.divided == Shard::Weights ? group : 1;
    }
    for (std::size_t stage = 0; stage < replicas.groups.size(); ++stage) {
        if (replicas.divided == Shard::Weights) {  // all is done micro-batch by micro-batch
            parts.all_reduce.emplace_back();
            parts.weight_gather.emplace_back();
            continue;
        }
        const StageState& state = parts.states[stage];
        const bool stays =
            replicas.divided != Shard::None && !gradient_source(grid, static_cast<int>(stage));
        WeightMessages messages = weight_messages(
            replicas, replicas.groups[stage], state.weights - state.expert_weights, stays);
        if (!replicas.experts.empty() && state.expert_weights > Bytes{}) {
            const WeightMessages experts =
                weight_messages(replicas, replicas.experts[stage], state.expert_weights, stays);
            messages.sums += experts.sums;
            messages.gather += experts.gather;
        }
        if (!replicas.measured_updates.empty()) {
            messages.gather = {};
            const int piece = grid.weights_of_stage[stage];
            const int first = parts.partition->first_layer(piece);
            for (int layer = 0; layer < parts.partition->layers_in(piece); ++layer) {
                messages.gather += replicas.measured_updates[as_index(first + layer)];
            }
        }
        parts.all_reduce.push_back(messages.sums);
        if (replicas.divided != Shard::None) {
            parts.weight_gather.push_back(messages.gather);
        }
    }
}

namespace {

/// [stage]: buckets in which replicas send `each` bytes for each byte of its weights. Without a
/// stack each layer is one.
std::vector<int> stage_buckets(const PlanParts& parts, const StageReplicas& replicas, int each) {
    std::vector<int> buckets;
    for (std::size_t stage = 0; stage < replicas.groups.size(); ++stage) {
        const ReplicaGroups& groups = replicas.groups[stage];
        const auto of = [&](const ReplicaGroups& holders, Bytes bytes) {
            return buckets_of(holders,
                              {.count = bytes.count / replicas.number, .bytes = bytes * each});
        };
        const StageState& state = parts.states[stage];
        const int of_experts = replicas.experts.empty() || state.expert_weights == Bytes{}
                                   ? 0
                                   : of(replicas.experts[stage], state.expert_weights);
        buckets.push_back(groups.stack
                              ? of(groups, state.weights - state.expert_weights) + of_experts
                              : parts.partition->layers_in(parts.schedule.weights_of_stage[stage]));
    }
    return buckets;
}

}  // namespace

void add_buckets(PlanParts& parts, const StageReplicas& replicas) {
    if (replicas.lanes && parts.overlap_reduction && !parts.all_reduce.empty()) {
        add_bucketed_sums(parts,
                          stage_buckets(parts, replicas, replicas.gradient),
                          replicas.lanes->gradients.share);
    }
    if (replicas.hides_gathers && !parts.weight_gather.empty()) {
        const MessageLanes known = replicas.lanes.value_or(MessageLanes{});
        hide_weight_gathers(parts, stage_buckets(parts, replicas, 1), known.weights.share);
    }
}

}  // namespace pipetwin
